"""Operators that put elements in other places: reshape, permute, slice, join, pad, repeat."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import accumulate
from typing import Any

import numpy as np

from tensorlang import te, topi
from tensorlang.ir.expr import Expr, binary
from tensorlang.networks.network import Value
from tensorlang.networks.node import element_of, shape_of
from tensorlang.networks.places import reshaped
from tensorlang.networks.refusal import Unsupported
from tensorlang.networks.torch.call import Call, Rule
from tensorlang.te.operation import Tensor


def _same(call: Call) -> Value:
    value: Value = call["self"]
    return value


def _reshaped(call: Call) -> Value:
    return reshaped(call.tensor(call["self"]), call.shape, call.stage)


def _permuted(call: Call) -> Value:
    return topi.transpose(call.tensor(call["self"]), [d % max(1, len(call.shape)) for d in call["dims"]], call.stage)


def _swapped(call: Call) -> Value:
    order = list(range(len(call.shape)))
    if len(order) > 1:
        a, b = call.given.get("dim0", 0), call.given.get("dim1", 1)
        order[a], order[b] = order[b], order[a]
    return topi.transpose(call.tensor(call["self"]), order, call.stage)


def _expanded(call: Call) -> Value:
    value = call["self"]
    return call.compute(call.shape, lambda *i: element_of(value, lambda: call.tensor(value), i))


def _slice(call: Call) -> Value:
    data, dim = call.tensor(call["self"]), call["dim"] % len(call.shape)
    extent = shape_of(data)[dim]
    taken = range(extent)[slice(call["start"], call["end"], call["step"])]
    return call.compute(call.shape, lambda *i: data(*i[:dim], i[dim] * taken.step + taken.start, *i[dim + 1 :]))


def _select(call: Call) -> Value:
    data = call.tensor(call["self"])
    shape = shape_of(data)
    dim = call["dim"] % len(shape)
    at = call["index"] % shape[dim]
    return call.compute(call.shape, lambda *i: data(*i[:dim], at, *i[dim:]))


def _pieces(call: Call) -> tuple[Value, ...]:
    """Parts of a tensor along a dimension, as large as those that are made."""
    data, dim = call.tensor(call["self"]), call["dim"]
    dim %= len(call.shape)
    starts = [0, *accumulate(shape[dim] for shape, _ in call.made)]
    return tuple(
        _piece(call, data, dim, start, shape, k) for k, (start, (shape, _)) in enumerate(zip(starts, call.made))
    )


def _piece(call: Call, data: Tensor, dim: int, start: int, shape: Sequence[int], number: int) -> Tensor:
    return call.compute(shape, lambda *i: data(*i[:dim], i[dim] + start, *i[dim + 1 :]), f"{number}")


def _unbound(call: Call) -> tuple[Value, ...]:
    data = call.tensor(call["self"])
    dim = call["dim"] % len(shape_of(data))

    def one(number: int) -> Tensor:
        return call.compute(call.shape, lambda *i: data(*i[:dim], number, *i[dim:]), f"{number}")

    return tuple(one(number) for number in range(len(call.made)))


def _joined(call: Call) -> Value:
    whole = [call.cast(t, call.dtype, f"cast{k}") for k, t in enumerate(call["tensors"]) if math.prod(shape_of(t))]
    if len(whole) == 1:
        return whole[0]
    if not whole:
        raise Unsupported("of tensors without elements")
    return topi.concatenate([call.tensor(t) for t in whole], call["dim"] % len(call.shape), call.stage)


def _stacked(call: Call) -> Value:
    dim = call["dim"] % len(call.shape)
    shape = [1 if d == dim else n for d, n in enumerate(call.shape)]
    parts = [
        reshaped(call.tensor(call.cast(t, call.dtype, f"cast{k}")), shape, f"{call.stage}_{k}")
        for k, t in enumerate(call["tensors"])
    ]
    return parts[0] if len(parts) == 1 else topi.concatenate(parts, dim, call.stage)


def _padded(mode: str) -> Rule:
    """Padding, which ATen gives from the last dimension on."""

    def rule(call: Call) -> Value:
        data = call["self"]
        rank, given = len(call.shape), next(call[name] for name in ("pad", "padding") if name in call.given)
        before, after = [0] * rank, [0] * rank
        for k in range(len(given) // 2):
            before[rank - 1 - k], after[rank - 1 - k] = given[2 * k : 2 * k + 2]
        cut = [max(0, -n) for n in (*before, *after)]
        if any(cut):
            data = _cut(call, call.tensor(data), cut[:rank], cut[rank:])
        pads = np.array([max(0, n) for n in (*before, *after)])
        value = np.asarray(call.given.get("value") or 0, data.dtype)
        return call.onnx("Pad", data, pads, value, mode=mode)

    return rule


def _cut(call: Call, data: Tensor, before: Sequence[int], after: Sequence[int]) -> Tensor:
    shape = [n - a - b for n, a, b in zip(shape_of(data), before, after, strict=True)]
    return call.compute(shape, lambda *i: data(*(v + b for v, b in zip(i, before, strict=True))), "cut")


def _repeated(call: Call) -> Value:
    data, times = call.tensor(call["self"]), call["repeats"]
    whole = (1,) * (len(times) - len(shape_of(data))) + shape_of(data)
    return call.onnx("Tile", reshaped(data, whole, f"{call.stage}_whole"), np.array(times))


def _flipped(call: Call) -> Value:
    data, shape = call.tensor(call["self"]), call.shape
    dims = {d % len(shape) for d in call["dims"]}
    return call.compute(shape, lambda *i: data(*(shape[d] - 1 - v if d in dims else v for d, v in enumerate(i))))


def _rolled(call: Call) -> Value:
    data, shape = call.tensor(call["self"]), call.shape
    if not call["dims"]:
        raise Unsupported("over all elements; give dims")
    shifts = {d % len(shape): s for s, d in zip(call["shifts"], call["dims"], strict=True)}

    def element(*index: Expr) -> Expr:
        return data(*(
            binary("floormod", v + (-shifts[d]) % shape[d], shape[d]) if d in shifts else v for d, v in enumerate(index)
        ))  # fmt: skip

    return call.compute(shape, element)


def _triangle(upper: int) -> Rule:
    return lambda call: call.onnx("Trilu", call["self"], np.array(call["diagonal"]), upper=upper)


def _shuffled(op: str, factor: str, **attributes: Any) -> Rule:
    def rule(call: Call) -> Value:
        data = call.tensor(call["self"])
        shape = shape_of(data)
        images = reshaped(data, (math.prod(shape[:-3]), *shape[-3:]), f"{call.stage}_images")
        made = call.onnx(op, images, part="images_out", blocksize=call[factor], **attributes)
        return reshaped(made, call.shape, call.stage)

    return rule


def _unshuffled(call: Call) -> Value:
    """Each pixel of a block a channel, those of one channel side by side."""
    data, shape, by = call.tensor(call["self"]), call.shape, call["downscale_factor"]

    def element(*index: Expr) -> Expr:
        *front, k, y, x = index
        inner = binary("floormod", k, by * by)
        channel = binary("floordiv", k, by * by)
        return data(*front, channel, y * by + binary("floordiv", inner, by), x * by + binary("floormod", inner, by))

    return call.compute(shape, element)


def _slice_scattered(call: Call) -> Value:
    dim = call["dim"] % len(call.shape)
    taken = range(call.shape[dim])[slice(call["start"], call["end"], call["step"])]
    data, source = call.tensor(call["self"]), call.tensor(call["src"])

    def element(*index: Expr) -> Expr:
        less = index[dim] - taken.start
        place = less if taken.step == 1 else binary("floordiv", less, taken.step)
        inside = [binary("ge", less, 0), binary("lt", place, len(taken))]
        if taken.step != 1:
            inside.append(binary("eq", binary("floormod", less, taken.step), 0))
        return te.if_then_else(te.all(*inside), source(*index[:dim], place, *index[dim + 1 :]), data(*index))

    return call.compute(call.shape, element)


def _select_scattered(call: Call) -> Value:
    dim = call["dim"] % len(call.shape)
    at = call["index"] % call.shape[dim]
    data, source = call.tensor(call["self"]), call.tensor(call["src"])
    return call.compute(
        call.shape,
        lambda *i: te.if_then_else(binary("eq", i[dim], at), source(*i[:dim], *i[dim + 1 :]), data(*i)),
    )


def _diagonal(call: Call) -> Value:
    data = call.tensor(call["self"])
    rank = len(shape_of(data))
    one, two = call["dim1"] % rank, call["dim2"] % rank
    down, right = max(0, -call["offset"]), max(0, call["offset"])

    def element(*index: Expr) -> Expr:
        rest, last = iter(index[:-1]), index[-1]
        return data(*(last + down if d == one else last + right if d == two else next(rest) for d in range(rank)))

    return call.compute(call.shape, element)


def _windowed(call: Call) -> Value:
    data = call.tensor(call["self"])
    dim, step = call["dimension"] % len(shape_of(data)), call["step"]
    return call.compute(call.shape, lambda *i: data(*i[:dim], i[dim] * step + i[-1], *i[dim + 1 : -1]))


RULES: dict[str, Rule] = {
    **dict.fromkeys(
        ("alias.default", "clone.default", "detach.default"), _same,
    ),
    **dict.fromkeys(
        ("view.default", "_unsafe_view.default", "squeeze.default", "squeeze.dim", "squeeze.dims",
         "unsqueeze.default"),
        _reshaped,
    ),
    **dict.fromkeys(("split_with_sizes.default", "split.Tensor"), _pieces),
    **dict.fromkeys(("reflection_pad1d.default", "reflection_pad2d.default"), _padded("reflect")),
    **dict.fromkeys(("replication_pad1d.default", "replication_pad2d.default"), _padded("edge")),
    "cat.default": _joined,
    "constant_pad_nd.default": _padded("constant"),
    "diagonal.default": _diagonal,
    "expand.default": _expanded,
    "flip.default": _flipped,
    "permute.default": _permuted,
    "pixel_shuffle.default": _shuffled("DepthToSpace", "upscale_factor", mode="CRD"),
    "pixel_unshuffle.default": _unshuffled,
    "repeat.default": _repeated,
    "roll.default": _rolled,
    "select.int": _select,
    "select_scatter.default": _select_scattered,
    "slice.Tensor": _slice,
    "slice_scatter.default": _slice_scattered,
    "stack.default": _stacked,
    "t.default": _swapped,
    "transpose.int": _swapped,
    "tril.default": _triangle(0),
    "triu.default": _triangle(1),
    "unbind.int": _unbound,
    "unfold.default": _windowed,
}  # fmt: skip
