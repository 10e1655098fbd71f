"""Parts of tensors, by begins, ends and strides: strided_slice (of numbers or of data), strided_set, sliding_window."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tensorlang import dtypes, te
from tensorlang.errors import DefinitionError
from tensorlang.ir.expr import Expr, ExprLike, binary, cast, same
from tensorlang.ir.simplify import simplify
from tensorlang.te.axis import extent_of
from tensorlang.te.operation import Tensor
from tensorlang.topi.axes import as_int64, extents, normalized, normalized_all
from tensorlang.topi.checked import checked
from tensorlang.topi.computed import computed, replaced
from tensorlang.topi.creation import full_like

Cut = tuple[int, int, int]
"""The first index of a slice, its step, and how many elements it has."""


@checked
def strided_slice(
    a: Tensor,
    begin: Tensor | Sequence[int | None],
    end: Tensor | Sequence[int | None],
    strides: Tensor | Sequence[int] | None = None,
    axes: Sequence[int] | None = None,
    slice_mode: str = "end",
    name: str = "strided_slice",
) -> Tensor:
    """Return `a[begin:end:strides]`, as Python slices a list: negative indices count from the end.

    `axes` are those that the numbers are for (None: the first ones). With `slice_mode` "size", `end` holds numbers of
    elements, -1 for all that are left, and there are no strides. Where the numbers are data, tensors all, the result
    is that of dynamic_strided_slice in the shape of `a`. DefinitionError for a stride of 0, lists of different lengths,
    and for extents that are no numbers.

        >>> from tensorlang import te, topi
        >>> topi.strided_slice(te.placeholder((9, 4)), [-2, 0], [None, 4], [-3, 1]).shape
        (3, 4)
    """
    if isinstance(begin, Tensor) or isinstance(end, Tensor) or isinstance(strides, Tensor):
        if axes is not None or slice_mode != "end":
            raise DefinitionError("strided_slice by numbers that are data takes no axes, and slice_mode 'end'")
        first, last, steps = _data("strided_slice", begin, end, strides)
        made: Tensor = dynamic_strided_slice(a, first, last, steps, name=name)
        return made
    cuts = _cuts("strided_slice", a, begin, end, strides, axes, slice_mode)

    def element(*i: Expr) -> Expr:
        return a(*[cuts[d][0] + k * cuts[d][1] if d in cuts else k for d, k in enumerate(i)])

    shape: list[ExprLike] = [cuts[d][2] if d in cuts else n for d, n in enumerate(a.shape)]
    return computed(shape, element, name)


@checked
def dynamic_strided_slice(
    a: Tensor,
    begin: Tensor,
    end: Tensor,
    strides: Tensor,
    output_shape: Sequence[int] | None = None,
    with_sizes: bool = False,
    name: str = "dynamic_strided_slice",
) -> Any:
    """Return `a[begin:end:strides]` of numbers that are data: vectors with a number for each of the first axes.

    The result has `output_shape`, or, as an upper bound, the shape of `a`; behind the last element of the slice it has
    zeros, and what it has no room for is left out. `with_sizes`: a list of it and of the elements that the slice has
    along each axis, int64. A stride of 0 counts as 1. DefinitionError for vectors of different lengths, and for
    extents that are no numbers.

        >>> from tensorlang import te, topi
        >>> begin, end, strides = (te.placeholder((1,), "int32", name) for name in ("begin", "end", "strides"))
        >>> topi.dynamic_strided_slice(te.placeholder((9, 4)), begin, end, strides, (5, 4)).shape
        (5, 4)
    """
    shape = extents(name, a)
    made = shape if output_shape is None else tuple(output_shape)
    count, cuts = _cuts_of_data(name, a, begin, end, strides)
    if len(made) != a.ndim or min(made, default=0) < 0 or made[count:] != shape[count:]:
        raise DefinitionError(f"{name}: the output_shape of a slice of {count} axes of {a} is not {made}")

    def element(*i: Expr) -> Expr:
        inside = [binary("lt", cast(v, "int64"), cuts(d, 2)) for d, v in enumerate(i[:count])]
        at = [cuts(d, 0) + cast(v, "int64") * cuts(d, 1) for d, v in enumerate(i[:count])]
        return te.if_then_else(te.all(*inside), a(*at, *i[count:]), te.const(0, a.dtype)) if count else a(*i)

    taken = computed(made, element, name)
    if not with_sizes:
        return taken
    rest = shape[count:]
    sizes = computed((a.ndim,), lambda d: _chosen(d, [*(cuts(k, 2) for k in range(count)), *rest]), f"{name}_sizes")
    return [taken, sizes]


def _cuts_of_data(name: str, a: Tensor, begin: Tensor, end: Tensor, strides: Tensor) -> tuple[int, Tensor]:
    """How many axes are cut, and the first index, the step and the number of elements of each."""
    shape, given = extents(name, a), [extents(name, x) for x in (begin, end, strides)]
    count = max(given[0] + given[1], default=-1) if all(len(x) == 1 for x in given) else -1
    integers = all(dtypes.info(x.dtype).is_integer for x in (begin, end, strides))
    if not max(given[2], default=-1) <= count <= a.ndim or count < 0 or not integers:
        wanted = f"vectors of integers, at most {a.ndim} and strides for none but those that are cut"
        raise DefinitionError(f"{name} of {a} wants {wanted}, got {begin}, {end}, {strides}")

    def cut(d: Expr, k: Expr) -> Expr:
        numbers = _number(begin, d, te.const(0)), _number(end, d, _chosen(d, shape)), _number(strides, d, te.const(1))
        return _cut(k, _chosen(d, shape), *numbers)

    return count, computed((count, 3), cut, f"{name}_cuts")


def _number(x: Tensor, d: Expr, missing: Expr) -> Expr:
    """A number of a vector as int64; another behind its end."""
    (length,) = extents(x.name, x)
    there = as_int64(x(te.minimum(d, length - 1))) if length else missing
    return te.select(d < length, cast(there, "int64"), cast(missing, "int64"))


def _data(operator: str, begin: object, end: object, strides: object) -> list[Tensor]:
    """Begins, ends and strides that are data; strides of 1 where none are given."""
    if not (isinstance(begin, Tensor) and isinstance(end, Tensor) and isinstance(strides, Tensor | None)):
        given = (begin, end, strides)
        raise DefinitionError(f"{operator}: begins, ends and strides are all numbers, or all tensors; got {given}")
    return [begin, end, full_like(begin, 1, f"{operator}_strides") if strides is None else strides]


def _cut(k: Expr, extent: Expr, begin: Expr, end: Expr, step: Expr) -> Expr:
    """The first index (k = 0), the step (1) and the number of elements (2) of an axis, as Python cuts a list."""
    zero, one = te.const(0, "int64"), te.const(1, "int64")
    step = te.maximum(step, te.const(1 - (1 << 63), "int64"))  # that of abs fits
    step = te.select(binary("eq", step, zero), one, step)
    back = binary("lt", step, zero)
    least, most = te.select(back, -one, zero), te.select(back, extent - 1, extent)

    def within(at: Expr) -> Expr:
        at = te.select(binary("lt", at, zero), at + extent, at)
        return te.maximum(te.minimum(at, most), least)

    low, high = within(begin), within(end)
    span = te.select(back, low - high, high - low)
    size = te.select(binary("gt", span, zero), te.floordiv(span - 1, te.abs(step)) + 1, zero)
    return te.select(k < 1, low, te.select(k < 2, step, size))


def _chosen(d: Expr, values: Sequence[ExprLike]) -> Expr:
    """The value of an axis by its number."""
    made: Expr = te.const(0, "int64")
    for number, value in enumerate(values):
        made = te.select(binary("eq", d, number), te.cast(value, "int64"), made)
    return made


@checked
def strided_set(
    a: Tensor,
    v: Tensor,
    begin: Tensor | Sequence[int | None],
    end: Tensor | Sequence[int | None],
    strides: Tensor | Sequence[int] | None = None,
    name: str = "strided_set",
) -> Tensor:
    """Return `a` with `v` in place of `a[begin:end:strides]`; DefinitionError where `v` has another shape.

    Where the numbers are data, tensors all, of a slice that is larger than `v` only so many elements are replaced.

    >>> from tensorlang import te, topi
    >>> te.evaluate(topi.strided_set, [1, 2, 3], [9], begin=[1], end=[2])
    array([1, 9, 3], dtype=int32)
    """
    if isinstance(begin, Tensor) or isinstance(end, Tensor) or isinstance(strides, Tensor):
        return _set_by_data(a, v, _data("strided_set", begin, end, strides), name)
    cuts = _cuts("strided_set", a, begin, end, strides, None, "end")
    wanted = [cuts[d][2] if d in cuts else n for d, n in enumerate(a.shape)]
    if v.ndim != a.ndim or not all(extent_of(n) == w or same(n, w) for n, w in zip(v.shape, wanted, strict=True)):
        raise DefinitionError(f"strided_set: {v} does not fit the slice of {a}, of shape {tuple(wanted)}")

    def element(*i: Expr) -> Expr:
        tests: list[Expr] = []
        index: list[ExprLike] = list(i)
        for d, (first, step, count) in cuts.items():
            distance = i[d] - first if step > 0 else first - i[d]
            tests += [distance >= 0, distance < count * abs(step)]
            tests += [binary("floormod", distance, abs(step)) == 0] if abs(step) > 1 else []
            index[d] = binary("floordiv", distance, abs(step))
        return te.select(te.all(*tests), v(*index), a(*i)) if tests else v(*i)

    return computed(a.shape, element, name)


def _set_by_data(a: Tensor, v: Tensor, numbers: Sequence[Tensor], name: str) -> Tensor:
    """A tensor with another in place of a slice by numbers that are data."""
    shape, part = extents(name, a), extents(name, v)
    count, cuts = _cuts_of_data(name, a, *numbers)
    if v.dtype != a.dtype or len(part) != len(shape) or part[count:] != shape[count:]:
        raise DefinitionError(f"{name}: {v} does not fit a slice of {count} axes of {a}")

    def element(*i: Expr) -> Expr:
        inside, index = list[Expr](), list[ExprLike](i)
        for d in range(count):
            step = cuts(d, 1)
            back = binary("lt", step, te.const(0, "int64"))
            away = te.select(back, cuts(d, 0) - cast(i[d], "int64"), cast(i[d], "int64") - cuts(d, 0))
            wide = te.abs(step)
            index[d] = te.floordiv(away, wide)
            whole = binary("eq", te.floormod(away, wide), te.const(0, "int64"))
            inside += [away >= 0, whole, index[d] < te.minimum(cuts(d, 2), te.const(part[d], "int64"))]
        return te.if_then_else(te.all(*inside), v(*index), a(*i)) if inside else v(*i)

    return computed(shape, element, name)


@checked
def slice_like(data: Tensor, shape_like: Tensor, axes: Sequence[int] | None = None, name: str = "slice_like") -> Tensor:
    """Return the first elements of `data` along some axes (None: all), so many as `shape_like` has there.

    DefinitionError where it has more, or another rank.

        >>> from tensorlang import te, topi
        >>> te.evaluate(topi.slice_like, [[1, 2], [3, 4]], [[0]])
        array([[1]], dtype=int32)
    """
    wanted = normalized_all("slice_like", data, axes)
    if max(wanted, default=-1) >= shape_like.ndim:
        raise DefinitionError(f"slice_like: {shape_like} has no axes {list(wanted)}")
    for d in wanted:
        have, want = extent_of(data.shape[d]), extent_of(shape_like.shape[d])
        if not same(data.shape[d], shape_like.shape[d]) and (have is None or want is None or have < want):
            raise DefinitionError(f"slice_like: {data} is not known to have {shape_like.shape[d]} elements in axis {d}")
    shape = [shape_like.shape[d] if d in wanted else n for d, n in enumerate(data.shape)]
    return computed(shape, data, name)


@checked
def sliding_window(
    data: Tensor, axis: int, window_shape: Sequence[int], strides: Sequence[int], name: str = "sliding_window"
) -> Tensor:
    """Return the windows of a shape that slide, by strides, over the axes from `axis` on: their axes come last.

    DefinitionError for windows that do not fit.

        >>> from tensorlang import te, topi
        >>> te.evaluate(topi.sliding_window, [1, 2, 3, 4], axis=0, window_shape=[2], strides=[1])
        array([[1, 2],
               [2, 3],
               [3, 4]], dtype=int32)
    """
    first = normalized("sliding_window", data, axis)
    over = range(first, first + len(window_shape))
    if len(strides) != len(window_shape) or over.stop > data.ndim or min([*window_shape, *strides], default=0) < 1:
        raise DefinitionError(f"sliding_window of {data} from axis {first}: {window_shape} by {strides} do not fit")
    shape: list[ExprLike] = list(data.shape)
    for d, size, step in zip(over, window_shape, strides, strict=True):
        known = extent_of(data.shape[d])
        if known is not None and known < size:
            raise DefinitionError(f"sliding_window: a window of {size} does not fit axis {d} of {data}")
        shape[d] = simplify(binary("floordiv", data.shape[d] - size, step) + 1)

    def element(*i: Expr) -> Expr:
        index: list[ExprLike] = list(i[: data.ndim])
        for number, (d, step) in enumerate(zip(over, strides, strict=True)):
            index[d] = i[d] * step + i[data.ndim + number]
        return data(*index)

    return computed([*shape, *window_shape], element, name)


def _cuts(
    operator: str,
    a: Tensor,
    begin: Sequence[int | None],
    end: Sequence[int | None],
    strides: Sequence[int] | None,
    axes: Sequence[int] | None,
    slice_mode: str,
) -> dict[int, Cut]:
    """The slice of each axis that is cut."""
    if slice_mode not in ("end", "size"):
        raise DefinitionError(f"{operator}: slice_mode is 'end' or 'size', got {slice_mode!r}")
    where = range(len(begin)) if axes is None else [normalized(operator, a, axis) for axis in axes]
    steps = list(strides or [1] * len(begin))
    steps += [steps[-1] if len(steps) == 1 else 1] * (len(begin) - len(steps))
    if not len(begin) == len(end) == len(where) == len(steps) or len(where) > a.ndim or len(set(where)) < len(where):
        raise DefinitionError(f"{operator} of {a}: begin, end, strides and axes are lists of one length, an axis each")
    if 0 in steps:
        raise DefinitionError(f"{operator}: a stride is 0")
    found: dict[int, Cut] = {}
    for d, low, high, step in zip(where, begin, end, steps, strict=True):
        extent = extent_of(a.shape[d])
        if (low or 0) == 0 and step == 1 and (high is None or (slice_mode == "size" and high == -1)):
            continue
        if extent is None:
            raise DefinitionError(f"{operator}: axis {d} of {a} has a symbolic extent; slice the others by axes=")
        if slice_mode == "size":
            first = (low or 0) + extent if (low or 0) < 0 else (low or 0)
            part = range(extent)[first : None if high in (-1, None) else first + high]
        else:
            part = range(extent)[slice(low, high, step)]
        found[d] = part.start, part.step, len(part)
    return found


@checked
def fifo_buffer(data: Tensor, buffer: Tensor, axis: int, name: str = "fifo_buffer") -> Tensor:
    """Return `buffer` without its first elements along an axis, and `data` behind: a queue that keeps its length.

    DefinitionError for more data than room, and for other shapes beside the axis.

        >>> from tensorlang import te, topi
        >>> te.evaluate(topi.nn.fifo_buffer, [4, 5], [1, 2, 3], axis=0)
        array([3, 4, 5], dtype=int32)
    """
    where = normalized(name, buffer, axis)
    new, room = extents(name, data), extents(name, buffer)
    beside = all(a == b for d, (a, b) in enumerate(zip(new, room, strict=False)) if d != where)
    if len(new) != len(room) or not beside or new[where] > room[where] or data.dtype != buffer.dtype:
        raise DefinitionError(f"{name}: {data} does not fit into {buffer} along axis {where}")
    kept = room[where] - new[where]

    def element(*i: Expr) -> Expr:
        old = buffer(*replaced(i, where, i[where] + new[where]))
        return te.if_then_else(binary("lt", i[where], kept), old, data(*replaced(i, where, i[where] - kept)))

    return computed(room, element, name)
