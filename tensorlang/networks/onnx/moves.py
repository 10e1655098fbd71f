"""Operators that put elements in other places: reshape, transpose, slice, join, pad, gather, resize."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import accumulate

import numpy as np

from tensorlang import dtypes, te, topi
from tensorlang.ir.expr import Expr, binary, cast
from tensorlang.networks.network import Value
from tensorlang.networks.node import Node, Rule, axis_of, element_of
from tensorlang.networks.onnx.elementwise import dtype_of
from tensorlang.networks.places import reshaped, within
from tensorlang.networks.refusal import Unsupported
from tensorlang.te.operation import Tensor


def _reshape(node: Node) -> Value:
    wanted = node.numbers(1, "shape") or []
    old = node.shape(0)
    shape = [old[k] if n == 0 and not node.attrs.get("allowzero") else n for k, n in enumerate(wanted)]
    if -1 in shape:
        known = math.prod(n for n in shape if n != -1)
        shape[shape.index(-1)] = math.prod(old) // known if known else 0
    return _checked_reshape(node, shape)


def _checked_reshape(node: Node, shape: Sequence[int]) -> Value:
    if math.prod(shape) != math.prod(node.shape(0)):
        raise Unsupported(f"{node.op} of {node.shape(0)} to {tuple(shape)}, which has another number of elements")
    return reshaped(node.tensor(0), shape, node.stage)


def _flatten(node: Node) -> Value:
    old = node.shape(0)
    axis = node.attrs.get("axis", 1)
    axis = axis + len(old) if axis < 0 else axis
    return _checked_reshape(node, [math.prod(old[:axis]), math.prod(old[axis:])])


def _squeeze(node: Node) -> Value:
    old = node.shape(0)
    axes = node.numbers(1, "axes")
    dropped = {axis_of(a, len(old), "Squeeze") for a in axes} if axes else {d for d, n in enumerate(old) if n == 1}
    return _checked_reshape(node, [n for d, n in enumerate(old) if d not in dropped])


def _unsqueeze(node: Node) -> Value:
    old, axes = node.shape(0), node.numbers(1, "axes") or []
    rank = len(old) + len(axes)
    new = {axis_of(a, rank, "Unsqueeze") for a in axes}
    rest = iter(old)
    return _checked_reshape(node, [1 if d in new else next(rest) for d in range(rank)])


def _transpose(node: Node) -> Value:
    rank = len(node.shape(0))
    return topi.transpose(node.tensor(0), node.attrs.get("perm", list(range(rank))[::-1]), node.stage)


def _concat(node: Node) -> Value:
    every = range(len(node.inputs))
    whole = [k for k in every if math.prod(node.shape(k))] or [*every]
    rank = len(node.shape(0))
    if len(whole) == 1:
        return node.value(whole[0])
    axis = axis_of(node.attrs.get("axis", 1), rank, "Concat")
    return topi.concatenate([node.tensor(k) for k in whole], axis, node.stage)


def _split(node: Node) -> tuple[Value, ...]:
    shape = node.shape(0)
    axis = axis_of(node.attrs.get("axis", 0), len(shape), "Split")
    count = node.attrs.get("num_outputs", node.outputs)
    sizes = node.numbers(1, "split")
    if sizes is None:
        each = -(-shape[axis] // count)
        sizes = [min(each, shape[axis] - k * each) for k in range(count)]
    starts = [0, *accumulate(sizes)][:-1]
    return tuple(_cut(node, axis, start, size, k) for k, (start, size) in enumerate(zip(starts, sizes, strict=True)))


def _cut(node: Node, axis: int, start: int, size: int, number: int) -> Value:
    shape, data = list(node.shape(0)), node.tensor(0)
    shape[axis] = size
    made: Tensor = te.compute(
        tuple(shape),
        lambda *i: data(*i[:axis], i[axis] + start, *i[axis + 1 :]),
        name=f"{node.stage}_{number}",
    )
    return made


def _slice(node: Node) -> Value:
    shape = node.shape(0)
    starts, ends = node.numbers(1, "starts") or [], node.numbers(2, "ends") or []
    axes = node.numbers(3, "axes") or list(range(len(starts)))
    steps = node.numbers(4, "steps") or [1] * len(starts)
    begin, step, extent = [0] * len(shape), [1] * len(shape), list(shape)
    for start, end, axis, by in zip(starts, ends, axes, steps, strict=True):
        d = axis_of(axis, len(shape), "Slice")
        taken = range(shape[d])[slice(start, end if by > 0 or end >= -shape[d] else None, by)]
        begin[d], step[d], extent[d] = taken.start, by, len(taken)
    data = node.tensor(0)
    places = [*zip(begin, step, strict=True)]
    return node.compute(extent, lambda *i: data(*(v * by + b for v, (b, by) in zip(i, places, strict=True))))


def _gather(node: Node) -> Value:
    shape, where = node.shape(0), node.shape(1)
    axis, at = axis_of(node.attrs.get("axis", 0), len(shape), "Gather"), node.value(1)
    data = node.tensor(0)
    if not isinstance(at, Tensor) and at.size == 1:
        one = int(at.ravel()[0]) % shape[axis]
        return node.compute(
            (*shape[:axis], *where, *shape[axis + 1 :]),
            lambda *i: data(*i[:axis], one, *i[axis + len(where) :]),
        )

    def element(*i: Expr) -> Expr:
        number = node.tensor(1)(*i[axis : axis + len(where)])
        return data(*i[:axis], within(number, shape[axis]), *i[axis + len(where) :])

    return node.compute((*shape[:axis], *where, *shape[axis + 1 :]), element)


def _gather_elements(node: Node) -> Value:
    shape = node.shape(0)
    axis, data, at = axis_of(node.attrs.get("axis", 0), len(shape), node.op), node.tensor(0), node.tensor(1)
    return node.compute(node.shape(1), lambda *i: data(*i[:axis], within(at(*i), shape[axis]), *i[axis + 1 :]))


def _expand(node: Node) -> Value:
    shape = np.broadcast_shapes(node.shape(0), tuple(int(n) for n in node.known(1, "the shape").ravel()))
    return node.compute(shape, lambda *i: element_of(node.value(0), lambda: node.tensor(0), i))


def _tile(node: Node) -> Value:
    shape, data = node.shape(0), node.tensor(0)
    times = [int(n) for n in node.known(1, "the repeats").ravel()]
    whole = [n * t for n, t in zip(shape, times, strict=True)]
    return node.compute(whole, lambda *i: data(*(binary("floormod", v, n) for v, n in zip(i, shape, strict=True))))


def _pad(node: Node) -> Value:
    shape, data = node.shape(0), node.value(0)
    given = node.numbers(1, "pads") or []
    axes = [axis_of(int(a), len(shape), "Pad") for a in node.known(3, "the axes").ravel()] if node.has(3) else None
    axes = list(range(len(shape))) if axes is None else axes
    before, after = [0] * len(shape), [0] * len(shape)
    for k, d in enumerate(axes):
        before[d], after[d] = given[k], given[k + len(axes)]
    mode = node.attrs.get("mode", "constant")
    whole = [n + a + b for n, a, b in zip(shape, before, after, strict=True)]

    def element(*index: Expr) -> Expr:
        places, inside = [], []
        for v, n, low, high in zip(index, shape, before, after, strict=True):
            place = v - low
            if mode == "constant":
                inside += [binary("ge", place, 0)] * (low > 0) + [binary("lt", place, n)] * (high > 0)
            elif low > 0 or high > 0:
                place = _folded(place, n, mode)
            places.append(place)
        value = node.tensor(0)(*places)
        return te.if_then_else(te.all(*inside), value, _padding(node, value.dtype)) if inside else value

    assert data is not None
    if mode not in ("constant", "edge", "reflect", "wrap"):
        raise Unsupported(f"Pad with mode {mode}")
    return node.compute(whole, element)


def _padding(node: Node, dtype: str) -> Expr:
    if node.has(2):
        return element_of(node.value(2), lambda: node.tensor(2), ())
    return te.const(node.attrs.get("value", 0), dtype)


def _folded(place: Expr, extent: int, mode: str) -> Expr:
    """A place beyond an end, brought back inside."""
    if mode == "wrap":
        return binary("floormod", place, extent)
    if mode == "edge":
        return te.maximum(te.minimum(place, extent - 1), 0)
    return (extent - 1) - te.abs((extent - 1) - te.abs(place))


def _depth_to_space(node: Node) -> Value:
    n, c, h, w = node.shape(0)
    block, data, made = node.attrs["blocksize"], node.tensor(0), c // node.attrs["blocksize"] ** 2
    columns_first = node.attrs.get("mode", "DCR") == "CRD"

    def element(b: Expr, k: Expr, y: Expr, x: Expr) -> Expr:
        part = binary("floormod", y, block) * block + binary("floormod", x, block)
        channel = k * (block * block) + part if columns_first else part * made + k
        return data(b, channel, binary("floordiv", y, block), binary("floordiv", x, block))

    return node.compute((n, made, h * block, w * block), element)


def _space_to_depth(node: Node) -> Value:
    n, c, h, w = node.shape(0)
    block, data = node.attrs["blocksize"], node.tensor(0)
    columns_first = node.attrs.get("mode", "DCR") == "CRD"

    def element(b: Expr, k: Expr, y: Expr, x: Expr) -> Expr:
        size = block * block if columns_first else c
        outer, inner = binary("floordiv", k, size), binary("floormod", k, size)
        channel, part = (outer, inner) if columns_first else (inner, outer)
        row, column = binary("floordiv", part, block), binary("floormod", part, block)
        return data(b, channel, y * block + row, x * block + column)

    return node.compute((n, c * block * block, h // block, w // block), element)


def _one_hot(node: Node) -> Value:
    depth = int(node.known(1, "the depth").ravel()[0])
    shape = node.shape(0)
    rank = len(shape) + 1
    axis = axis_of(node.attrs.get("axis", -1), rank, "OneHot")
    values = node.tensor(2)

    def element(*index: Expr) -> Expr:
        number = node.tensor(0)(*index[:axis], *index[axis + 1 :])
        number = te.select(
            binary("lt", number, te.const(0, number.dtype)), number + te.const(depth, number.dtype), number
        )
        return te.select(binary("eq", number, cast(index[axis], number.dtype)), values(1), values(0))

    return node.compute((*shape[:axis], depth, *shape[axis:]), element)


def _ahead(what: str) -> Rule:
    """An operator that makes arrays of nothing but numbers, which are evaluated where they are known."""

    def rule(node: Node) -> Value:
        for place in range(len(node.inputs)):
            node.known(place, what)
        raise Unsupported(f"{node.op} cannot be evaluated ahead")

    return rule


def _eye(node: Node) -> Value:
    dtype = dtype_of(node.attrs["dtype"]) if "dtype" in node.attrs else str(node.value(0).dtype)
    rows, columns = node.shape(0)
    return np.eye(rows, columns, int(node.attrs.get("k", 0))).astype(dtypes.info(dtype).numpy)


RULES: dict[str, Rule] = {
    "Concat": _concat,
    "ConstantOfShape": _ahead("the shape"),
    "DepthToSpace": _depth_to_space,
    "Expand": _expand,
    "EyeLike": _eye,
    "Flatten": _flatten,
    "Gather": _gather,
    "GatherElements": _gather_elements,
    "OneHot": _one_hot,
    "Pad": _pad,
    "Range": _ahead("a limit or the step"),
    "Reshape": _reshape,
    "Slice": _slice,
    "SpaceToDepth": _space_to_depth,
    "Split": _split,
    "Squeeze": _squeeze,
    "Tile": _tile,
    "Transpose": _transpose,
    "Unsqueeze": _unsqueeze,
}
