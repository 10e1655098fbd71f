"""Elements written at indices that are data: scatter_elements, scatter_nd, scatter_add, sparse_to_dense."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from tensorlang import dtypes, te
from tensorlang.errors import DefinitionError
from tensorlang.ir.expr import Expr, binary
from tensorlang.te.operation import Tensor
from tensorlang.topi.axes import as_int64, extents, normalized
from tensorlang.topi.checked import checked
from tensorlang.topi.computed import computed
from tensorlang.topi.creation import full
from tensorlang.topi.transform import reshape

_cast: Any = te.cast  # of numbers and of expressions
Script: TypeAlias = Callable[..., Any]
"""What `te.hybrid.script` reads."""
_COMBINED = {"add": te.add, "mul": te.multiply, "min": te.minimum, "max": te.maximum}
_HOW = ("update", "mean", *_COMBINED)


@checked
def scatter_elements(
    data: Tensor,
    indices: Tensor,
    updates: Tensor,
    axis: int = 0,
    reduction: str = "update",
    name: str = "scatter_elements",
) -> Tensor:
    """Return `data` with each update written to, or combined with, the element whose index along an axis is given.

    `indices` and `updates` have one shape, that of `data` or a smaller one off the axis. Updates come one after the
    other: `update` keeps the last one, `mean` (of floats) takes that of what is there and the update; `add`, `mul`,
    `min` and `max` may come in any order. Each is rounded to the dtype of `data`: sums of many in 16 bits want data of
    float32, and a cast behind. Negative indices count from the end, others that are out of range are an
    error when the kernel runs. DefinitionError for other shapes, dtypes and symbolic extents.

        >>> from tensorlang import te, topi
        >>> data, at = te.placeholder((4, 5)), te.placeholder((2, 5), "int32")
        >>> topi.scatter_elements(data, at, te.placeholder((2, 5)), 0, "add").shape
        (4, 5)
    """
    where, shape, given = normalized(name, data, axis), extents(name, data), extents(name, indices)
    fits = len(given) == len(shape) and all(
        n <= m for d, (n, m) in enumerate(zip(given, shape, strict=True)) if d != where
    )
    _check(name, data, indices, updates, reduction, fits and extents(name, updates) == given)
    part = [n if d != where else shape[where] for d, n in enumerate(given)]
    box = data if tuple(part) == shape else computed(part, data, f"{name}_part")
    signed = (
        computed(given, lambda *i: as_int64(indices(*i)), f"{name}_indices") if indices.dtype == "uint64" else indices
    )
    outer, inner = math.prod(part[:where]), math.prod(part[where + 1 :])
    before, behind = ([outer] if outer != 1 else []), ([inner] if (outer, inner) != (1, 1) else [])
    flat, at, new = (
        _shaped(x, (*before, n, *behind), f"{name}_{word}")
        for x, n, word in ((box, shape[where], "data"), (signed, given[where], "at"), (updates, given[where], "new"))
    )
    whole = name if box is data else f"{name}_box"
    made = _written(flat, at, new, reduction, whole if flat is box else f"{name}_written")
    written = _shaped(made, part, whole)
    if box is data:
        return written

    def element(*i: Expr) -> Expr:
        inside = [binary("lt", v, n) for v, n, m in zip(i, part, shape, strict=True) if n < m]
        return te.if_then_else(te.all(*inside), written(*i), data(*i))

    return computed(shape, element, name)


@checked
def scatter(data: Tensor, indices: Tensor, updates: Tensor, axis: int = 0, name: str = "scatter") -> Tensor:
    """Return `scatter_elements` of updates of which the last one to an element counts: TVM's name until 0.9.

    >>> from tensorlang import te, topi
    >>> te.evaluate(topi.scatter, [0, 0, 0], [2], [5])
    array([0, 0, 5], dtype=int32)
    """
    return scatter_elements(data, indices, updates, axis, "update", name)


@checked
def scatter_add(data: Tensor, indices: Tensor, updates: Tensor, axis: int = 0, name: str = "scatter_add") -> Tensor:
    """Return `scatter_elements` that adds updates up: TVM's name until 0.9.

    >>> from tensorlang import te, topi
    >>> te.evaluate(topi.scatter_add, [1, 1], [0], [5])
    array([6, 1], dtype=int32)
    """
    return scatter_elements(data, indices, updates, axis, "add", name)


@checked
def scatter_nd(
    data: Tensor, indices: Tensor, updates: Tensor, mode: str = "update", name: str = "scatter_nd"
) -> Tensor:
    """Return `data` with updates at the points that `indices` names: its first axis runs over coordinates.

    Updates are elements, or slices along the axes behind the coordinates: their shape is that of `indices` without its
    first axis, and of `data` behind as many axes as there are coordinates. `mode`, rounding and indices are as the
    reduction, rounding and indices of scatter_elements.

        >>> from tensorlang import te, topi
        >>> points, rows = te.placeholder((1, 7), "int32"), te.placeholder((7, 5))
        >>> topi.scatter_nd(te.placeholder((4, 5)), points, rows, "add").shape
        (4, 5)
    """
    shape, (count, *points) = extents(name, data), extents(name, indices) or (0,)
    fits = bool(indices.ndim) and 1 <= count <= len(shape)
    _check(name, data, indices, updates, mode, fits and extents(name, updates) == (*points, *shape[count:]))
    many, inner = math.prod(points), math.prod(shape[count:])
    rows = reshape(indices, (count, many), f"{name}_rows")

    def place(k: Expr) -> Expr:
        """The number of a point; one that is out of range stays so."""
        number: Expr = te.const(0, "int64")
        inside: list[Expr] = []
        for row, extent in enumerate(shape[:count]):
            at = as_int64(rows(row, k))
            at = te.select(binary("lt", at, 0), at + extent, at)
            inside += [binary("ge", at, 0), binary("lt", at, extent)]
            number = number * extent + at
        return te.select(te.all(*inside), number, te.const(math.prod(shape[:count]), "int64"))

    flat = [math.prod(shape[:count]), *([inner] if inner != 1 else [])]
    at = computed((many, 1)[: len(flat)], lambda k, *_: place(k), f"{name}_at")
    given = _shaped(data, flat, f"{name}_data")
    new = _shaped(updates, (many, *flat[1:]), f"{name}_new")
    return _shaped(_written(given, at, new, mode, name if given is data else f"{name}_written"), shape, name)


@checked
def sparse_to_dense(
    sparse_indices: Tensor,
    output_shape: Sequence[int],
    sparse_values: Tensor,
    default_value: float | Tensor = 0,
    name: str = "sparse_to_dense",
) -> Tensor:
    """Return a tensor of a shape that has `sparse_values` at the places of `sparse_indices`, `default_value` elsewhere.

    `sparse_indices` are places [n, dimensions], or of a vector [n] or (). Values: one for each, or () for all. Of
    several values for a place the last one counts. A place that is out of range, or negative, is an error when the
    kernel runs. DefinitionError for other shapes and dtypes.

        >>> import numpy as np
        >>> from tensorlang import te, topi
        >>> te.evaluate(topi.sparse_to_dense, [[1], [3]], output_shape=[4], sparse_values=np.array([5, 6]))
        array([0, 5, 0, 6])
    """
    shape, rank = tuple(output_shape), len(output_shape)
    given = extents(name, sparse_indices)
    many = given[0] if given else 1
    fits = (given if len(given) == 2 else (*given, 1))[-1] == rank and len(given) <= 2 and min(shape, default=-1) >= 0
    if not fits or sparse_values.ndim > 1 or (sparse_values.ndim and extents(name, sparse_values) != (many,)):
        wanted = f"places of {rank} coordinates, and a value for each"
        raise DefinitionError(f"{name} to the shape {shape} wants {wanted}; got {sparse_indices}, {sparse_values}")
    if isinstance(default_value, Tensor) and (default_value.ndim or default_value.dtype != sparse_values.dtype):
        raise DefinitionError(f"the default_value of {name} is a number or one {sparse_values.dtype}: {default_value}")
    start = (
        computed(shape, lambda *_: default_value(), f"{name}_default")
        if isinstance(default_value, Tensor)
        else full(shape, sparse_values.dtype, default_value, f"{name}_default")
    )

    def place(d: Expr, k: Expr) -> Expr:
        """A coordinate; a scatter would count negative ones from the end."""
        at = as_int64(sparse_indices(*(k, d)[: sparse_indices.ndim]))
        return te.select(binary("lt", at, 0), te.const((1 << 63) - 1, "int64"), at)

    rows = computed((rank, many), place, f"{name}_rows")
    values = computed((many,), lambda k: sparse_values(*(k,)[: sparse_values.ndim]), f"{name}_values")
    return scatter_nd(start, rows, values, "update", name)


def _shaped(x: Tensor, shape: Sequence[int], name: str) -> Tensor:
    """A tensor in another shape; itself where that is its own: scripts read arrays, and so a copy."""
    return x if extents(name, x) == tuple(shape) else reshape(x, shape, name)


def _check(name: str, data: Tensor, indices: Tensor, updates: Tensor, how: str, fits: bool) -> None:
    if how not in _HOW or (how != "update" and data.dtype == "bool"):
        raise DefinitionError(f"{name} combines numbers by one of {_HOW}, bools by update; got {how!r} of {data.dtype}")
    if how == "mean" and not dtypes.info(data.dtype).is_float:
        raise DefinitionError(f"{name} takes means of floats, got {data}: cast it to float32 before")
    if not fits or updates.dtype != data.dtype or not dtypes.info(indices.dtype).is_integer:
        wanted = f"integer indices for {data}, and updates that fit both"
        raise DefinitionError(f"{name} wants {wanted}; got {indices} and {updates}")


def _written(data: Tensor, at: Tensor, updates: Tensor, how: str, name: str) -> Tensor:
    """Data [n], [n, inner] or [outer, n, inner] with updates, in their order, at places; of these `inner` may be 1."""
    script = (_written_elements, _written_rows, _written_blocks)[data.ndim - 1]
    found = te.hybrid.script(name=name)(script(data, at, how))(data, at, updates)
    assert isinstance(found, Tensor)
    return found


def _choice(how: str) -> tuple[bool, bool, Any]:
    """Whether the update counts, or its mean with what is there; else what makes one of both."""
    return how == "update", how == "mean", _COMBINED.get(how)


def _written_elements(data: Tensor, at: Tensor, how: str) -> Script:
    (n,), (m,), dtype = extents("", data), extents("", at), data.dtype
    update, mean, combine = _choice(how)

    def scattered(data, at, updates):  # type: ignore[no-untyped-def]
        made = te.output_tensor((n,), dtype)
        for i in range(n):
            made[i] = data[i]
        for k in range(m):
            place = _cast(at[k], "int64")
            place = place + n if place < 0 else place
            if update:
                made[place] = updates[k]
            else:
                made[place] = (made[place] + updates[k]) / 2 if mean else combine(made[place], updates[k])
        return made

    return scattered


def _written_rows(data: Tensor, at: Tensor, how: str) -> Script:
    (n, inner), (m, own), dtype = extents("", data), extents("", at), data.dtype
    wide, (update, mean, combine) = int(own == inner), _choice(how)

    def scattered(data, at, updates):  # type: ignore[no-untyped-def]
        made = te.output_tensor((n, inner), dtype)
        for i in range(n):
            for a in range(inner):
                made[i, a] = data[i, a]
        for k in range(m):
            for a in range(inner):
                place = _cast(at[k, a * wide], "int64")
                place = place + n if place < 0 else place
                if update:
                    made[place, a] = updates[k, a]
                elif mean:
                    made[place, a] = (made[place, a] + updates[k, a]) / 2
                else:
                    made[place, a] = combine(made[place, a], updates[k, a])
        return made

    return scattered


def _written_blocks(data: Tensor, at: Tensor, how: str) -> Script:
    (outer, n, inner), (_, m, own), dtype = extents("", data), extents("", at), data.dtype
    wide, (update, mean, combine) = int(own == inner), _choice(how)

    def scattered(data, at, updates):  # type: ignore[no-untyped-def]
        made = te.output_tensor((outer, n, inner), dtype)
        for b in range(outer):
            for i in range(n):
                for a in range(inner):
                    made[b, i, a] = data[b, i, a]
            for k in range(m):
                for a in range(inner):
                    place = _cast(at[b, k, a * wide], "int64")
                    place = place + n if place < 0 else place
                    if update:
                        made[b, place, a] = updates[b, k, a]
                    elif mean:
                        made[b, place, a] = (made[b, place, a] + updates[b, k, a]) / 2
                    else:
                        made[b, place, a] = combine(made[b, place, a], updates[b, k, a])
        return made

    return scattered
