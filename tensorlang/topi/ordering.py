"""Places of elements in order: a radix sort of keys whose order as unsigned integers is that of the elements.

Elements are counted and moved by some bits of their keys after others, the lowest first, as often whatever they are.
Where few are wanted, only those are sorted that may be among them: those up to the last of as many first ones among the
least keys of groups.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from tensorlang import dtypes, te
from tensorlang.errors import DefinitionError
from tensorlang.ir import intrinsics
from tensorlang.ir.expr import Expr, binary, cast, select
from tensorlang.te.axis import extent_of
from tensorlang.te.branches import BRANCH
from tensorlang.te.operation import Tensor
from tensorlang.topi.axes import within

_cast: Any = te.cast  # of numbers and of expressions
_GROUPS = (64, 32, 16, 8)
_FEW = 2
"""Groups are so many times the elements that are wanted, at least."""
_LEAST = 2048
"""Elements from which on these are found first."""
_ROOM = 2, 64
"""Room for those that may be wanted: so many times those that are, and some more. Else all are sorted."""
_DIGITS = (128, 4), (4096, 8)
"""Bits by which fewer keys than so many are counted and moved at once, and those of more."""
_MOST_DIGITS = 11


def shape_of(tensor: Tensor) -> tuple[int, ...]:
    """The extents of a tensor as numbers; DefinitionError where one is none."""
    found = [extent_of(extent) for extent in tensor.shape]
    if any(n is None for n in found):
        raise DefinitionError(f"elements are put in order where their number is known; {tensor} has a symbolic extent")
    return tuple(n for n in found if n is not None)


def places_in_order(data: Tensor, axis: int, descending: bool, wanted: int, name: str) -> Tensor:
    """The places along an axis of the first `wanted` elements in order, as int32 [before, behind, wanted].

    `before` and `behind` are the elements of the dimensions in front of the axis and behind it. Equal elements keep
    their order, 0 and -0 are equal, and what is not a number is above all numbers, as NumPy and PyTorch have it.
    """
    extent = shape_of(data)[axis]
    group = next((n for n in _GROUPS if extent >= _FEW * wanted * n), 1) if extent >= _LEAST and wanted else 1
    keys = _keys(data, axis, descending, group, f"{name}_keys")
    if group == 1:
        return _sorted(keys, wanted, f"{name}_places")
    return _first(keys, extent, wanted, group, name)


def _first(keys: Tensor, extent: int, wanted: int, group: int, name: str) -> Tensor:
    """Places of the first keys: none of them is above the last of as many first ones of the least keys of groups."""
    outer, inner, padded = shape_of(keys)
    k, b, a, i = (te.reduce_axis((0, n), word) for n, word in ((group, "k"), (outer, "b"), (inner, "a"), (padded, "i")))
    groups = padded // group
    least: Tensor = te.compute(
        (outer, inner, groups), lambda b, a, g: te.min(keys(b, a, g * group + k.var), axis=k), name=f"{name}_least"
    )
    order = _sorted(least, wanted, f"{name}_groups")
    limit: Tensor = te.compute(
        (outer, inner), lambda b, a: least(b, a, within(order(b, a, wanted - 1), groups)), name=f"{name}_limit"
    )
    room = min(padded, _ROOM[0] * wanted + _ROOM[1])
    one = te.const(1, "int32")
    counts: Tensor = te.compute(
        (outer, inner),
        lambda b, a: te.sum(one, axis=i, where=binary("le", keys(b, a, i.var), limit(b, a))),
        name=f"{name}_counts",
    )
    most: Tensor = te.compute((), lambda: te.max(counts(b.var, a.var), axis=[b, a]), name=f"{name}_most")
    fits: Tensor = te.compute((), lambda: binary("le", most(), te.const(room, "int32")), name=f"{name}_fits")
    taken = _up_to(keys, limit, room, f"{name}_taken")
    chosen: Tensor = te.compute(
        (outer, inner, room),
        lambda b, a, j: select(
            binary("lt", j, counts(b, a)), keys(b, a, within(taken(b, a, j), padded)), ~te.const(0, keys.dtype)
        ),
        name=f"{name}_chosen",
    )
    own = _sorted(chosen, wanted, f"{name}_few")
    whole = _sorted(keys, wanted, f"{name}_whole")
    made: Tensor = te.compute(
        (outer, inner, wanted),
        lambda b, a, j: select(fits(), taken(b, a, within(own(b, a, j), room)), whole(b, a, j)),
        name=f"{name}_places",
        tag=BRANCH,  # all are sorted only where it is needed
    )
    return made


def _up_to(keys: Tensor, limit: Tensor, room: int, name: str) -> Tensor:
    """Places of keys up to a limit, as many as there is room for, the first ones in front; 0 behind them."""
    outer, inner, extent = shape_of(keys)

    def in_front(keys, limit):  # type: ignore[no-untyped-def]
        made = te.output_tensor((outer, inner, room), "int32")
        for b in range(outer):
            for a in range(inner):
                left = te.allocate((1,), "int32", "local")
                left[0] = 0
                for j in range(room):
                    made[b, a, j] = 0
                for i in range(extent):
                    if keys[b, a, i] <= limit[b, a]:
                        made[b, a, min(max(left[0], 0), room - 1)] = i
                        left[0] = left[0] + 1
        return made

    found = te.hybrid.script(name=name)(in_front)(keys, limit)
    assert isinstance(found, Tensor)
    return found


def _keys(data: Tensor, axis: int, descending: bool, group: int, name: str) -> Tensor:
    """Unsigned integers of 32 or 64 bits in the order of the elements, that of the axis last, in whole groups."""
    shape = shape_of(data)
    outer, inner, extent = shape[:axis], shape[axis + 1 :], shape[axis]
    padded = -(-extent // group) * group

    def element(b: Expr, a: Expr, k: Expr) -> Expr:
        key = _key(data(*_apart(b, outer), k if padded == extent else te.min(k, extent - 1), *_apart(a, inner)))
        key = ~key if descending else key
        if padded == extent:
            return key
        return select(binary("lt", k, extent), key, ~te.const(0, key.dtype))

    made: Tensor = te.compute((math.prod(outer), math.prod(inner), padded), element, name=name)
    return made


def _apart(index: Expr, shape: Sequence[int]) -> list[Expr]:
    """The indices of an element by its number among those of a shape."""
    found: list[Expr] = []
    for place, extent in enumerate(shape):
        behind = math.prod(shape[place + 1 :])
        one = binary("floordiv", index, behind) if behind > 1 else index
        found.append(one if not place else binary("floormod", one, extent))
    return found


def _key(value: Expr) -> Expr:
    """The unsigned integer of a number: bits of floats with the sign turned, those below 0 with all of them."""
    info = dtypes.info(value.dtype)
    if info.is_float:
        value = value if info.bits >= 32 else cast(value, "float32")
        bits = intrinsics.call("bits_of", value)
        top = te.const(1 << (dtypes.info(value.dtype).bits - 1), bits.dtype)
        ones = te.const((1 << dtypes.info(value.dtype).bits) - 1, bits.dtype)
        turned = select(binary("ge", bits, top), bits ^ ones, bits ^ top)
        number = select(binary("eq", value, te.const(0.0, value.dtype)), top, turned)
        return select(te.isnan(value), ones, number)
    wide = 64 if info.bits == 64 else 32
    if not value.dtype.startswith("int"):
        return cast(value, f"uint{wide}")
    key = cast(cast(value, f"int{wide}"), f"uint{wide}")
    return key ^ te.const(1 << (wide - 1), key.dtype)


def _sorted(keys: Tensor, wanted: int, name: str) -> Tensor:
    """Places of the first keys in order, of 32 or 64 bits."""
    outer, inner, extent = shape_of(keys)
    digits = next((bits for most, bits in _DIGITS if extent < most), _MOST_DIGITS)
    dtype, steps, bins = keys.dtype, -(-dtypes.info(keys.dtype).bits // digits), 1 << digits

    def in_order(keys):  # type: ignore[no-untyped-def]
        made = te.output_tensor((outer, inner, wanted), "int32")
        for b in range(outer):
            for a in range(inner):
                key = te.allocate((2, extent), dtype, "local")
                place = te.allocate((2, extent), "int32", "local")
                count = te.allocate((bins,), "int32", "local")
                total = te.allocate((1,), "int32", "local")
                for i in range(extent):
                    key[0, i] = keys[b, a, i]
                    place[0, i] = i
                for s in range(steps):
                    for d in range(bins):
                        count[d] = 0
                    for i in range(extent):
                        digit = _cast((key[s % 2, i] >> (digits * s)) & (bins - 1), "int32")
                        count[digit] = count[digit] + 1
                    total[0] = 0
                    for d in range(bins):
                        here = count[d]
                        count[d] = total[0]
                        total[0] = total[0] + here
                    for i in range(extent):
                        digit = _cast((key[s % 2, i] >> (digits * s)) & (bins - 1), "int32")
                        at = min(max(count[digit], 0), extent - 1)
                        key[1 - s % 2, at] = key[s % 2, i]
                        place[1 - s % 2, at] = place[s % 2, i]
                        count[digit] = count[digit] + 1
                for i in range(wanted):
                    made[b, a, i] = place[steps % 2, i]
        return made

    found = te.hybrid.script(name=name)(in_order)(keys)
    assert isinstance(found, Tensor)
    return found
