"""Places of elements in order: a radix sort of keys whose order as unsigned integers is that of the elements.

Elements are counted and moved by some bits of their keys after others, the lowest first, as often whatever they are.
Where few are wanted, those are found first, and only they are sorted.
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
from tensorlang.te.operation import Tensor
from tensorlang.topi.axes import within

_cast: Any = te.cast  # of numbers and of expressions
_GROUPS = (64, 32, 16, 8)
_FEW = 2
"""Where so many times the elements that are wanted are there, or more, they are found first, and then sorted."""
_LEAST = 2048
"""Elements from which on these are found first."""
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
    if extent < _LEAST or not 0 < _FEW * wanted <= extent:
        return _sorted(_keys(data, axis, descending, 1, f"{name}_keys"), wanted, f"{name}_places")
    group = next((n for n in _GROUPS if extent >= _FEW * wanted * n), 1)
    keys = _keys(data, axis, descending, group, f"{name}_keys")
    return _first(keys, wanted, group, name)


def _first(keys: Tensor, wanted: int, group: int, name: str) -> Tensor:
    """Places of the first keys: those are found first, in the order of their places, and then sorted.

    The last of as many first ones among the least keys of groups is a limit: what is above it is not wanted.
    """
    outer, inner, padded = shape_of(keys)
    k, groups = te.reduce_axis((0, group), "k"), padded // group
    least: Tensor = te.compute(
        (outer, inner, groups), lambda b, a, g: te.min(keys(b, a, g * group + k.var), axis=k), name=f"{name}_least"
    )
    all_groups: Tensor = te.compute((outer, inner), lambda b, a: te.const(groups, "int32"), name=f"{name}_groups")
    limit = _last_wanted(least, all_groups, wanted, f"{name}_limit")
    key, place, counts = _up_to(keys, least, limit, f"{name}_up_to")
    last = _last_wanted(key, counts, wanted, f"{name}_last")
    found = _those_wanted(key, place, counts, last, wanted, f"{name}_found")
    few: Tensor = te.compute(
        (outer, inner, wanted), lambda b, a, j: keys(b, a, within(found(b, a, j), padded)), name=f"{name}_few"
    )
    order = _sorted(few, wanted, f"{name}_order")
    made: Tensor = te.compute(
        (outer, inner, wanted), lambda b, a, j: found(b, a, within(order(b, a, j), wanted)), name=f"{name}_places"
    )
    return made


def _last_wanted(keys: Tensor, counts: Tensor, wanted: int, name: str) -> Tensor:
    """The last of as many first ones among so many keys in front: bit by bit, by counting what is below."""
    outer, inner, extent = shape_of(keys)
    dtype, bits = keys.dtype, dtypes.info(keys.dtype).bits

    def last_of_first_ones(keys, counts):  # type: ignore[no-untyped-def]
        last = te.output_tensor((outer, inner), dtype)
        for b in range(outer):
            for a in range(inner):
                last[b, a] = _cast(0, dtype)
                for s in range(bits):
                    tried = last[b, a] | (_cast(1, dtype) << (bits - 1 - s))
                    below = 0
                    for i in range(extent):
                        if i < counts[b, a]:
                            below = below + _cast(keys[b, a, i] < tried, "int32")
                    if below < wanted:
                        last[b, a] = tried
        return last

    found = te.hybrid.script(name=name)(last_of_first_ones)(keys, counts)
    assert isinstance(found, Tensor)
    return found


def _up_to(keys: Tensor, least: Tensor, limit: Tensor, name: str) -> Sequence[Tensor]:
    """Keys up to a limit in front, their places, and how many these are; groups that have none are passed over."""
    outer, inner, extent = shape_of(keys)
    groups, dtype = shape_of(least)[2], keys.dtype
    group = extent // groups

    def in_front(keys, least, limit):  # type: ignore[no-untyped-def]
        key = te.output_tensor((outer, inner, extent), dtype)
        place = te.output_tensor((outer, inner, extent), "int32")
        count = te.output_tensor((outer, inner), "int32")
        for b in range(outer):
            for a in range(inner):
                chosen = te.allocate((groups,), "int32", "local")
                few = 0
                for g in range(groups):
                    chosen[min(max(few, 0), groups - 1)] = g
                    few = few + _cast(least[b, a, g] <= limit[b, a], "int32")
                left = 0
                for c in range(groups):
                    if c < few:
                        for k in range(group):
                            i = min(max(chosen[c], 0), groups - 1) * group + k
                            at = min(max(left, 0), extent - 1)
                            key[b, a, at] = keys[b, a, i]
                            place[b, a, at] = i
                            left = left + _cast(keys[b, a, i] <= limit[b, a], "int32")
                count[b, a] = left
        return key, place, count

    found: Any = te.hybrid.script(name=name)(in_front)(keys, least, limit)
    return list(found)


def _those_wanted(key: Tensor, place: Tensor, counts: Tensor, last: Tensor, wanted: int, name: str) -> Tensor:
    """The places of the first keys among so many in front: all below the last, and the first that equal it.

    There is one more place, which means nothing.
    """
    outer, inner, extent = shape_of(key)

    def first_ones(key, place, counts, last):  # type: ignore[no-untyped-def]
        made = te.output_tensor((outer, inner, wanted + 1), "int32")
        for b in range(outer):
            for a in range(inner):
                below = 0
                for i in range(extent):
                    if i < counts[b, a]:
                        below = below + _cast(key[b, a, i] < last[b, a], "int32")
                ties = wanted - below
                taken = 0
                for i in range(extent):
                    if i < counts[b, a]:
                        made[b, a, min(max(taken, 0), wanted)] = place[b, a, i]
                        equal = _cast(key[b, a, i] == last[b, a], "int32") & _cast(ties > 0, "int32")
                        ties = ties - equal
                        taken = taken + (_cast(key[b, a, i] < last[b, a], "int32") | equal)
        return made

    found = te.hybrid.script(name=name)(first_ones)(key, place, counts, last)
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
        found.append(one if not place else binary("floormod", one, max(1, extent)))
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
