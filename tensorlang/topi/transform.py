"""Elements in other places: transposed, reshaped, joined, padded, cut."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from tensorlang import dtypes, te
from tensorlang.errors import DefinitionError
from tensorlang.ir.expr import Const, Expr, ExprLike, as_expr, binary, same
from tensorlang.ir.simplify import simplify
from tensorlang.names import lookup
from tensorlang.te.axis import extent_of
from tensorlang.te.operation import Tensor
from tensorlang.topi.axes import new_place, normalized, normalized_all, sizes
from tensorlang.topi.checked import checked
from tensorlang.topi.layouts import layout
from tensorlang.topi.operator import Operator

Array = npt.NDArray[Any]


@checked
def transpose(a: Tensor, axes: Sequence[int] | None = None, name: str = "transpose") -> Tensor:
    """Return `a` with its dimensions in the order of `axes` (None: reversed); DefinitionError for no such order.

    >>> from tensorlang import te, topi
    >>> te.evaluate(topi.transpose, [[1, 2], [3, 4]])
    array([[1, 3],
           [2, 4]], dtype=int32)
    """
    order = list(range(a.ndim))[::-1] if axes is None else [normalized("transpose", a, axis) for axis in axes]
    if sorted(order) != list(range(a.ndim)):
        raise DefinitionError(f"transpose: {a.name} has {a.ndim} dimensions, so {list(axes or ())} is no order of them")
    made = te.compute(
        tuple(a.shape[d] for d in order),
        lambda *i: a(*[i[order.index(d)] for d in range(a.ndim)]),
        name=name,
    )
    assert isinstance(made, Tensor)
    return made


@checked
def reshape(a: Tensor, newshape: Sequence[ExprLike], name: str = "reshape") -> Tensor:
    """Return the elements of `a`, in the order of memory, in another shape; one extent may be -1: what is left.

    DefinitionError when the number of elements differs.

        >>> from tensorlang import te, topi
        >>> te.evaluate(topi.reshape, [1, 2, 3, 4], newshape=(2, 2))
        array([[1, 2],
               [3, 4]], dtype=int32)
    """
    extents = sizes("reshape", newshape)
    unknown = [place for place, n in enumerate(extents) if isinstance(n, Const) and n.value == -1]
    count = _product(a.shape)
    if len(unknown) == 1:
        others = _product([n for place, n in enumerate(extents) if place != unknown[0]])
        if extent_of(simplify(others)) == 0:
            raise DefinitionError(f"reshape: -1 may be anything beside an extent of 0; write all of {a}'s new extents")
        extents[unknown[0]] = simplify(binary("floordiv", count, others))
    if len(unknown) > 1 or not same(simplify(_product(extents)), simplify(count)):
        wanted = f"the shape ({', '.join(map(str, newshape))}) of {simplify(_product(extents))}"
        raise DefinitionError(f"reshape: {a} of {simplify(count)} elements does not fill {wanted}; -1 fits one extent")

    def element(*i: Expr) -> Expr:
        if extent_of(simplify(count)) == 0:
            return a(*[0] * a.ndim)  # there is none
        place = reduce(lambda flat, pair: flat * pair[1] + pair[0], zip(i, extents, strict=True), as_expr(0))
        index: list[Expr] = []
        for extent in reversed(a.shape[1:]):
            index.insert(0, binary("floormod", place, extent))
            place = binary("floordiv", place, extent)
        return a(*([place, *index] if a.ndim else []))

    made = te.compute(tuple(extents), element, name=name)
    assert isinstance(made, Tensor)
    return made


@checked
def expand_dims(a: Tensor, axis: int, num_newaxis: int = 1, name: str = "expand_dims") -> Tensor:
    """Return `a` with dimensions of extent 1 in front of `axis` (of the result, when negative).

    >>> from tensorlang import te, topi
    >>> te.evaluate(topi.expand_dims, [1, 2], axis=0)
    array([[1, 2]], dtype=int32)
    """
    place = new_place("expand_dims", a, axis)
    shape = (*a.shape[:place], *[as_expr(1, "int32")] * num_newaxis, *a.shape[place:])
    made = te.compute(shape, lambda *i: a(*i[:place], *i[place + num_newaxis :]), name=name)
    assert isinstance(made, Tensor)
    return made


@checked
def squeeze(a: Tensor, axis: int | Sequence[int] | None = None, name: str = "squeeze") -> Tensor:
    """Return `a` without dimensions of extent 1: those of `axis`, or all; DefinitionError when one is longer.

    >>> from tensorlang import te, topi
    >>> te.evaluate(topi.squeeze, [[1, 2]], axis=0)
    array([1, 2], dtype=int32)
    """
    ones = [d for d, n in enumerate(a.shape) if isinstance(n, Const) and n.value == 1]
    dropped = ones if axis is None else normalized_all("squeeze", a, axis)
    if not set(dropped) <= set(ones):
        raise DefinitionError(f"squeeze: not all of the dimensions {list(dropped)} of {a} have the extent 1")
    kept = [d for d in range(a.ndim) if d not in dropped]

    def element(*i: Expr) -> Expr:
        return a(*[i[kept.index(d)] if d in kept else 0 for d in range(a.ndim)])

    made = te.compute(tuple(a.shape[d] for d in kept), element, name=name)
    assert isinstance(made, Tensor)
    return made


@checked
def concatenate(a_tuple: Sequence[Tensor], axis: int = 0, name: str = "concatenate") -> Tensor:
    """Return tensors side by side along an axis; DefinitionError where dtypes or other extents differ.

    >>> from tensorlang import te, topi
    >>> te.evaluate(topi.concatenate, ([1, 2], [3]), axis=0)
    array([1, 2, 3], dtype=int32)
    """
    if not a_tuple:
        raise DefinitionError("concatenate wants at least one tensor, got none")
    first, where = a_tuple[0], normalized("concatenate", a_tuple[0], axis)
    for other in a_tuple[1:]:
        fits = other.dtype == first.dtype and other.ndim == first.ndim
        if not fits or any(not same(a, b) for d, (a, b) in enumerate(zip(first.shape, other.shape)) if d != where):
            raise DefinitionError(f"concatenate along axis {where}: {other} does not fit {first}")
    ends: list[Expr] = []
    for tensor in a_tuple:
        ends.append(simplify(ends[-1] + tensor.shape[where]) if ends else tensor.shape[where])

    def element(*i: Expr) -> Expr:
        def read(number: int) -> Expr:
            start: ExprLike = ends[number - 1] if number else 0
            return a_tuple[number](*i[:where], i[where] - start, *i[where + 1 :])

        made = read(len(a_tuple) - 1)
        for number in reversed(range(len(a_tuple) - 1)):
            made = te.select(i[where] < ends[number], read(number), made)
        return made

    shape = (*first.shape[:where], ends[-1], *first.shape[where + 1 :])
    made = te.compute(shape, element, name=name)
    assert isinstance(made, Tensor)
    return made


@checked
def pad(
    data: Tensor,
    pad_before: Sequence[int],
    pad_after: Sequence[int] | None = None,
    pad_value: float = 0.0,
    name: str = "pad",
) -> Tensor:
    """Return `data` with a border of `pad_value`: so many elements before and after each dimension (None: as before).

    DefinitionError when there is not one whole number of at least 0 for each dimension.

        >>> from tensorlang import te, topi
        >>> te.evaluate(topi.pad, [1, 2], pad_before=[1], pad_after=[1], pad_value=9)
        array([9, 1, 2, 9], dtype=int32)
    """
    after = pad_before if pad_after is None else pad_after
    if len(pad_before) != data.ndim or len(after) != data.ndim or any(n < 0 for n in (*pad_before, *after)):
        wanted = f"{data.ndim} numbers of at least 0 on each side"
        raise DefinitionError(f"pad of {data} wants {wanted}, got {list(pad_before)} and {list(after)}")
    value = te.const(int(pad_value) if dtypes.info(data.dtype).is_integer else pad_value, data.dtype)
    ends = [simplify(n + before) for n, before in zip(data.shape, pad_before, strict=True)]

    def element(*i: Expr) -> Expr:
        inside = [at >= before for at, before in zip(i, pad_before, strict=True) if before]
        inside += [at < end for at, end, more in zip(i, ends, after, strict=True) if more]
        read = data(*[at - before for at, before in zip(i, pad_before, strict=True)])
        return te.select(te.all(*inside) if len(inside) > 1 else inside[0], read, value) if inside else read

    shape = tuple(simplify(end + more) for end, more in zip(ends, after, strict=True))
    made = te.compute(shape, element, name=name)
    assert isinstance(made, Tensor)
    return made


@checked
def split(ary: Tensor, indices_or_sections: int | Sequence[int], axis: int = 0, name: str = "split") -> list[Tensor]:
    """Return the parts of `ary` along an axis: so many equal ones, or cut at some indices.

    DefinitionError when they are not equal, or the indices do not rise.

        >>> from tensorlang import te, topi
        >>> te.evaluate(topi.split, [1, 2, 3, 4], indices_or_sections=2)
        (array([1, 2], dtype=int32), array([3, 4], dtype=int32))
    """
    where = normalized("split", ary, axis)
    extent = ary.shape[where]
    if isinstance(indices_or_sections, int):
        size = simplify(binary("floordiv", extent, indices_or_sections)) if indices_or_sections > 0 else extent
        if not same(simplify(size * indices_or_sections), simplify(extent)):
            raise DefinitionError(f"split: {extent} elements of {ary} do not make {indices_or_sections} equal parts")
        bounds = [simplify(size * k) for k in range(indices_or_sections + 1)]
    else:
        bounds = [as_expr(0, "int32"), *map(as_expr, indices_or_sections), extent]
        known = [extent_of(b) for b in bounds]
        if any(low is not None and high is not None and low >= high for low, high in pairwise(known)):
            raise DefinitionError(f"split: {list(indices_or_sections)} are no rising indices inside of 0..{extent}")

    def part(low: Expr, high: Expr, number: int) -> Tensor:
        shape = (*ary.shape[:where], simplify(high - low), *ary.shape[where + 1 :])
        made = te.compute(shape, lambda *i: ary(*i[:where], i[where] + low, *i[where + 1 :]), name=f"{name}_{number}")
        assert isinstance(made, Tensor)
        return made

    return [part(low, high, number) for number, (low, high) in enumerate(pairwise(bounds))]


@checked
def layout_transform(array: Tensor, src_layout: str, dst_layout: str, name: str = "layout_transform") -> Tensor:
    """Return a tensor of layout `src_layout` in another one, as from `NCHW` to `NCHW16c`; blocks are to fit exactly.

    DefinitionError for other letters, or an extent that is not a multiple of its block.

        >>> import numpy as np
        >>> from tensorlang import te, topi
        >>> te.evaluate(topi.layout_transform, np.arange(4).reshape(1, 4), src_layout="NC", dst_layout="NC2c").tolist()
        [[[0, 1], [2, 3]]]
    """
    letters = "".join(sorted({c.upper() for c in src_layout if c.isalpha()}))
    source, target = layout(src_layout, letters, letters), layout(dst_layout, letters, letters)
    whole = {letter: source.extent(array, letter) for letter in letters}
    for letter, size in target.blocks.items():
        if not same(simplify(binary("floormod", whole[letter], size)), Const(0, whole[letter].dtype)):
            raise DefinitionError(f"{dst_layout}: {whole[letter]} along {letter} are no blocks of {size}")

    def extent(letter: str) -> Expr:
        size = target.blocks.get(letter.upper())
        if letter.islower():
            return as_expr(size or 1, "int32")
        return whole[letter] if size is None else simplify(binary("floordiv", whole[letter], size))

    def element(*i: Expr) -> Expr:
        at = dict(zip(target.letters, i, strict=True))
        place = {c: at[c] * target.blocks[c] + at[c.lower()] if c in target.blocks else at[c] for c in letters}
        return array(*source.index(place))

    made = te.compute(tuple(map(extent, target.letters)), element, name=name)
    assert isinstance(made, Tensor)
    return made


def _product(extents: Sequence[Expr]) -> Expr:
    return reduce(lambda a, b: a * b, extents, as_expr(1, "int32"))


def _transpose_workload(n: int, m: int, dtype: str = "float32") -> list[Tensor]:
    a = te.placeholder((n, m), name="A", dtype=dtype)
    return [a, transpose(a)]


def transpose_numpy(a: Array, out: Array) -> None:
    """What a NumPy user writes; the competitor of the tables."""
    np.copyto(out, a.T)


def _concatenate_workload(n: int, m: int, dtype: str = "float32") -> list[Tensor]:
    a, b = (te.placeholder((n, m), name=name, dtype=dtype) for name in "AB")
    return [a, b, concatenate([a, b], axis=1)]


def concatenate_numpy(a: Array, b: Array, out: Array) -> None:
    """What a NumPy user writes; the competitor of the tables."""
    np.concatenate([a, b], axis=1, out=out)


OPERATORS = (
    Operator("transpose", ("N", "M"), _transpose_workload, lambda a: [np.ascontiguousarray(a.T)], transpose_numpy),
    Operator(
        "concatenate",
        ("N", "M"),
        _concatenate_workload,
        lambda a, b: [np.concatenate([a, b], axis=1)],
        concatenate_numpy,
    ),
)


def __getattr__(name: str) -> Any:
    return lookup(__name__, name)
