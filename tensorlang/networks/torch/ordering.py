"""Operators that order elements, and that write to places which other tensors hold."""

from __future__ import annotations

import numpy as np

from tensorlang import dtypes, te
from tensorlang.ir.expr import Expr, binary, cast
from tensorlang.networks.network import Value
from tensorlang.networks.node import element_of, shape_of
from tensorlang.networks.refusal import Unsupported
from tensorlang.networks.torch.call import Call, Rule

_REDUCED = {"sum": "add", "prod": "mul", "amax": "max", "amin": "min", "add": "add", "multiply": "mul"}
"""Names of ONNX for what becomes of several values of one place."""


def _ordered(call: Call, count: int, largest: bool) -> tuple[Value, ...]:
    given = call["self"]
    if not shape_of(given):
        return call.cast(given, call.dtype), np.zeros((), np.int64)
    return call.onnx_all("TopK", given, np.array([count]), outputs=2, axis=call["dim"], largest=int(largest))


def _top(call: Call) -> tuple[Value, ...]:
    return _ordered(call, call["k"], call["largest"])


def _sorted(call: Call) -> tuple[Value, ...]:
    shape = shape_of(call["self"])
    return _ordered(call, shape[call["dim"]] if shape else 1, call["descending"])


def _scattered(how: str = "", value: str = "src") -> Rule:
    def rule(call: Call) -> Value:
        data, index, source = call["self"], call["index"], call[value]
        reduction = how or _REDUCED.get(call.given.get("reduce") or "", "none")
        if call.given.get("include_self") is False or call.given.get("reduce") == "mean":
            raise Unsupported("with means, or without the elements that were there")
        if not shape_of(data):
            raise Unsupported("of a number")
        if isinstance(source, int | float):
            source = np.full(shape_of(index), source, dtypes.info(call.dtype).numpy)
        inputs = data, index, call.cast(source, call.dtype)
        return call.onnx("ScatterElements", *inputs, axis=call["dim"], reduction=reduction)

    return rule


def _put(call: Call) -> Value:
    """Values at places of the first dimensions, whose indices are broadcast to one shape."""
    data, given, values = call["self"], list(call["indices"]), call["values"]
    found = [index for index in given if index is not None]
    if any(str(index.dtype) in ("bool", "uint8") for index in found):
        raise Unsupported("with a mask, whose number of elements is not known ahead")
    if not found or any(index is None for index in given[: len(found)]):
        raise Unsupported("at places of other dimensions than the first")
    around, depth = np.broadcast_shapes(*map(shape_of, found)), len(found)

    def place(*i: Expr) -> Expr:
        made = None
        for d in reversed(range(depth)):
            one = cast(element_of(found[d], lambda d=d: call.tensor(found[d]), i[:-1]), "int64")  # type: ignore[misc]
            made = one if made is None else te.select(binary("eq", i[-1], d), one, made)
        assert made is not None
        return made

    places = call.compute((*around, depth), place, "places")
    shape = (*around, *shape_of(data)[depth:])
    source = call.pointwise(lambda x: x, values) if shape_of(values) == shape else _wide(call, values, shape)
    return call.onnx("ScatterND", data, places, source, reduction="add" if call["accumulate"] else "none")


def _wide(call: Call, values: Value, shape: tuple[int, ...]) -> Value:
    return call.compute(shape, lambda *i: element_of(values, lambda: call.tensor(values), i), "values")


def _multiplied_up(call: Call) -> Value:
    data = call.cast(call["self"], call.dtype)
    if not call.shape:
        return data
    return call.onnx("CumProd", data, np.array(call["dim"]))


RULES: dict[str, Rule] = {
    "_unsafe_index_put.default": _put,
    "argsort.default": lambda call: _sorted(call)[1],
    "cumprod.default": _multiplied_up,
    "index_put.default": _put,
    "scatter.reduce": _scattered(),
    "scatter.src": _scattered(),
    "scatter.value": _scattered(value="value"),
    "scatter_add.default": _scattered("add"),
    "scatter_reduce.two": _scattered(),
    "sort.default": _sorted,
    "sort.stable": _sorted,
    "topk.default": _top,
}
