"""Parts of tensors, by begins, ends and strides: strided_slice, strided_set, slice_like, sliding_window."""

from __future__ import annotations

from collections.abc import Sequence

from tensorlang import te
from tensorlang.errors import DefinitionError
from tensorlang.ir.expr import Expr, ExprLike, binary, same
from tensorlang.ir.simplify import simplify
from tensorlang.te.axis import extent_of
from tensorlang.te.operation import Tensor
from tensorlang.topi.axes import normalized, normalized_all
from tensorlang.topi.checked import checked
from tensorlang.topi.computed import computed

Cut = tuple[int, int, int]
"""The first index of a slice, its step, and how many elements it has."""


@checked
def strided_slice(
    a: Tensor,
    begin: Sequence[int | None],
    end: Sequence[int | None],
    strides: Sequence[int] | None = None,
    axes: Sequence[int] | None = None,
    slice_mode: str = "end",
    name: str = "strided_slice",
) -> Tensor:
    """Return `a[begin:end:strides]`, as Python slices a list: negative indices count from the end.

    `axes` are those that the numbers are for (None: the first ones). With `slice_mode` "size", `end` holds numbers of
    elements, -1 for all that are left, and there are no strides. DefinitionError for a stride of 0, lists of different
    lengths, and for extents that are no numbers.

        >>> from tensorlang import te, topi
        >>> topi.strided_slice(te.placeholder((9, 4)), [-2, 0], [None, 4], [-3, 1]).shape
        (3, 4)
    """
    cuts = _cuts("strided_slice", a, begin, end, strides, axes, slice_mode)

    def element(*i: Expr) -> Expr:
        return a(*[cuts[d][0] + k * cuts[d][1] if d in cuts else k for d, k in enumerate(i)])

    shape: list[ExprLike] = [cuts[d][2] if d in cuts else n for d, n in enumerate(a.shape)]
    return computed(shape, element, name)


@checked
def strided_set(
    a: Tensor,
    v: Tensor,
    begin: Sequence[int | None],
    end: Sequence[int | None],
    strides: Sequence[int] | None = None,
    name: str = "strided_set",
) -> Tensor:
    """Return `a` with `v` in place of `a[begin:end:strides]`; DefinitionError where `v` has another shape."""
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


@checked
def slice_like(data: Tensor, shape_like: Tensor, axes: Sequence[int] | None = None, name: str = "slice_like") -> Tensor:
    """Return the first elements of `data` along some axes (None: all), so many as `shape_like` has there.

    DefinitionError where it has more, or another rank.
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
