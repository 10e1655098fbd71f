"""Operators that read elements at places which other tensors hold, and tensors that are made of nothing."""

from __future__ import annotations

import numpy as np

from tensorlang import dtypes, te
from tensorlang.ir.expr import Expr, cast
from tensorlang.networks.network import Value
from tensorlang.networks.node import element_of, shape_of
from tensorlang.networks.places import within
from tensorlang.networks.refusal import Unsupported
from tensorlang.networks.torch.call import Call, Rule


def _embedded(call: Call) -> Value:
    return call.onnx("Gather", call["weight"], call["indices"], axis=0)


def _index_selected(call: Call) -> Value:
    return call.onnx("Gather", call["self"], call["index"], axis=call["dim"])


def _gathered(call: Call) -> Value:
    return call.onnx("GatherElements", call["self"], call["index"], axis=call["dim"])


def _indexed(call: Call) -> Value:
    """Some dimensions at indices that are broadcast to one shape, which stands where these dimensions were.

    Where others are in between, it stands in front (NumPy's rule).
    """
    data, given = call.tensor(call["self"]), list(call["indices"])
    shape = shape_of(data)
    if any(index is not None and str(index.dtype) in ("bool", "uint8") for index in given):
        raise Unsupported("with a mask, whose number of elements is not known ahead")
    dims = [d for d, index in enumerate(given) if index is not None]
    around = np.broadcast_shapes(*(shape_of(given[d]) for d in dims))
    front = dims[0] if dims == list(range(dims[0], dims[-1] + 1)) else 0

    def element(*index: Expr) -> Expr:
        inner = index[front : front + len(around)]
        rest = iter((*index[:front], *index[front + len(around) :]))
        return data(*(_place(call, given[d], inner, n) if d in dims else next(rest) for d, n in enumerate(shape)))

    return call.compute(call.shape, element)


def _place(call: Call, index: Value, at: tuple[Expr, ...], extent: int) -> Expr:
    return within(element_of(index, lambda: call.tensor(index), at), extent)


def _filled(word: str | None, usual: float = 0) -> Rule:
    """A tensor of one number."""

    def rule(call: Call) -> Value:
        value = usual if word is None else call[word]
        return np.broadcast_to(np.asarray(value, dtypes.info(call.dtype).numpy), call.shape)

    return rule


def _copied(call: Call) -> Value:
    source = call["src"]
    return call.compute(
        call.shape, lambda *i: cast(element_of(source, lambda: call.tensor(source), i), call.dtype)
    )  # fmt: skip


def _added_up(call: Call) -> Value:
    """Sums of all elements up to each one, for dimensions so short that adding them anew costs little."""
    dim, longest = call["dim"], 4096
    if not call.shape:
        return call.cast(call["self"], call.dtype)
    dim %= len(call.shape)
    if call.shape[dim] > longest:
        raise Unsupported(f"along {call.shape[dim]} elements; up to {longest} are taken")
    data = call.tensor(call.cast(call["self"], call.dtype))
    k = te.reduce_axis((0, call.shape[dim]), "k")
    return call.compute(
        call.shape, lambda *i: te.sum(data(*i[:dim], k, *i[dim + 1 :]), axis=k, where=k.var <= i[dim])
    )  # fmt: skip


RULES: dict[str, Rule] = {
    "copy.default": _copied,
    "cumsum.default": _added_up,
    "embedding.default": _embedded,
    "fill.Scalar": _filled("value"),
    "full_like.default": _filled("fill_value"),
    "gather.default": _gathered,
    "index.Tensor": _indexed,
    "index_select.default": _index_selected,
    "new_full.default": _filled("fill_value"),
    "new_ones.default": _filled(None, 1),
    "new_zeros.default": _filled(None),
    "ones_like.default": _filled(None, 1),
    "zeros_like.default": _filled(None),
}
