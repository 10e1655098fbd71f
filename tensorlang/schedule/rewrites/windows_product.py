"""Convolutions as products of matrices: windows of the data as rows, weights as columns, no matrix in memory yet.

The implicit form of the product: a schedule computes the rows in tiles, in fast memory. Padding is zeros in the rows,
which are multiplied as all else.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import reduce

from tensorlang import te
from tensorlang.dataclass import dataclass
from tensorlang.ir.expr import Binary, Cast, Const, Expr, Var, cast, rewrite, substitute, variables
from tensorlang.ir.simplify import simplify
from tensorlang.te.axis import Axis, extent_of
from tensorlang.te.operation import ComputeOp, Read, Reduce, Tensor
from tensorlang.te.reducer import builtin
from tensorlang.te.terms import term_axis


@dataclass(frozen=True, slots=True)
class Windows:
    """A convolution `out[x, f] = sum over terms of data * weight`, its rows, columns and terms as axes.

    `rows` and `terms` are counted through in the order in which they are given. Of several `groups` of columns, each
    has rows of its own. `where`: what of a window is not padding.
    """

    op: ComputeOp
    rows: tuple[Axis, ...]
    column: Axis
    terms: tuple[Axis, ...]
    groups: int
    data: Read
    weight: Read
    where: Expr | None

    @property
    def features(self) -> int:
        """The columns of a group."""
        return (extent_of(self.column.extent) or 0) // self.groups

    @property
    def depth(self) -> int:
        """The number of terms."""
        total = 1
        for axis in self.terms:
            total *= extent_of(axis.extent) or 0
        return total

    @property
    def by_features(self) -> bool:
        """Whether neighbouring weights are those of neighbouring columns, and not of neighbouring terms."""
        return self.column.name in variables(self.weight.index[-1])


def windows_of(op: ComputeOp, rows: Sequence[str], terms: Sequence[str], groups: int) -> Windows | str:
    """A declared operation as a product of windows; what is wrong with it, as text, where it is none."""
    own = {axis.name: axis for axis in op.axes}
    summed = {axis.name: axis for axis in op.reduce_axes}
    rest = [axis for name, axis in own.items() if name not in rows]
    if sorted(terms) != sorted(summed) or len(rest) != 1 or sorted(rows) != sorted(own.keys() - {rest[0].name}):
        return f"rows are all of {', '.join(own)} but one, and terms all of {', '.join(summed) or 'none'}"
    (column,) = rest
    factors = _factors(op, rows)
    if isinstance(factors, str):
        return factors
    data, weight, where = factors
    count = extent_of(column.extent)
    inner = [own[name] for name in rows[1:]] + [summed[name] for name in terms]
    if count is None or count % groups or any(extent_of(axis.extent) is None for axis in inner):
        return f"{groups} groups of {column.name} < {column.extent}, and extents of all axes but the first in numbers"
    axes = tuple(own[name] for name in rows), column, tuple(summed[name] for name in terms)
    found = Windows(op, *axes, groups, data, weight, where)
    of_rows = variables(_by_group(found, data)) | (set() if where is None else variables(where))
    if column.name in of_rows or set(rows) & variables(weight):
        return f"one factor and the condition do not move with {column.name} but for its group, the other not with rows"
    return found


def _factors(op: ComputeOp, rows: Sequence[str]) -> tuple[Read, Read, Expr | None] | str:
    """The factor that moves with rows, the other one, and the condition of a sum of products; else what is wanted."""
    match op.body:
        case (Reduce(sources=(Binary(op="mul", a=x, b=y),), where=where, init=()) as total,) if (
            total.reducer == builtin("sum", op.dtype) and not op.where
        ):
            a, b = (z.value if isinstance(z, Cast) else z for z in (x, y))
            if isinstance(a, Read) and isinstance(b, Read):
                return (a, b, where) if variables(a) & set(rows) else (b, a, where)
        case _:
            pass
    return f"{op.name} is a sum of products of two elements, under a condition on rows and terms"


def _by_group(w: Windows, expr: Expr) -> Expr:
    """An expression in which the group of a column is an axis of its own, `@group`."""
    if w.groups == 1:
        return expr
    if w.features == 1:
        return substitute(expr, {w.column.name: Var("@group")})

    def rule(node: Expr) -> Expr | None:
        match node:
            case Binary(op="floordiv", a=Var(name=name), b=Const(value=size)) if (name, size) == (
                w.column.name,
                w.features,
            ):
                return Var("@group")
        return None

    return rewrite(expr, rule)


def windows_product(w: Windows, name: str) -> Tensor:
    """The convolution in its own layout, out of a product that has its pixels as rows."""
    rows, columns = _windows(w, f"{name}_windows"), _filters(w, f"{name}_filters")
    k, dtype = term_axis(Const(w.depth, "int32"), rows, columns), w.op.dtype

    def element(*index: Expr) -> Expr:
        *group, m, f = index
        factor = columns(*group, k, f) if w.by_features else columns(*group, f, k)
        return te.sum(cast(rows(*group, m, k), dtype) * cast(factor, dtype), axis=k)

    groups = [Const(w.groups, "int32")] * (w.groups > 1)
    shape = (*groups, rows.shape[-2], Const(w.features, "int32"))
    product = te.compute(shape, element, name=f"{name}_product")

    def pixel(*index: Expr) -> Expr:
        at = dict(zip([axis.name for axis in w.op.axes], index, strict=True))
        f, m = at[w.column.name], _counted([at[axis.name] for axis in w.rows], w.rows)
        value: Expr = product(f // w.features, m, f % w.features) if groups else product(m, f)
        return value

    names = [axis.name for axis in w.op.axes]
    made: Tensor = te.compute(w.op.shape, pixel, name=name, tag=f"{w.op.tag}_product", varargs_names=names)
    return made


def _windows(w: Windows, name: str) -> Tensor:
    """The windows as rows, [pixel, term]; in groups [group, pixel, term]."""

    def element(*index: Expr) -> Expr:
        *group, m, k = index
        at = {**_digits(m, w.rows), **_digits(k, w.terms), **dict.fromkeys(["@group"] * len(group), index[0])}
        value = substitute(_by_group(w, w.data), at)
        return value if w.where is None else te.if_then_else(substitute(w.where, at), value, te.const(0, value.dtype))

    pixels = reduce(lambda total, axis: total * axis.extent, w.rows[1:], w.rows[0].extent)
    made: Tensor = te.compute((*_groups(w), simplify(pixels), Const(w.depth, "int32")), element, name=name)
    return made


def _filters(w: Windows, name: str) -> Tensor:
    """The weights as a matrix, [term, column] or [column, term], as they lie; in groups one for each."""

    def element(*index: Expr) -> Expr:
        *group, i, j = index
        k, f = (i, j) if w.by_features else (j, i)
        column = group[0] * w.features + f if group else f
        return substitute(w.weight, {**_digits(k, w.terms), w.column.name: column})

    shape = (w.depth, w.features) if w.by_features else (w.features, w.depth)
    made: Tensor = te.compute((*_groups(w), *shape), element, name=name)
    return made


def _groups(w: Windows) -> list[Expr]:
    return [Const(w.groups, "int32")] * (w.groups > 1)


def _digits(number: Expr, axes: Sequence[Axis]) -> Mapping[str, Expr]:
    """The values of axes that are counted through, the last one fastest, at a number."""
    found: dict[str, Expr] = {}
    size = 1
    for axis in reversed(axes):
        digit = number // size if size > 1 else number
        found[axis.name] = digit if axis is axes[0] else digit % axis.extent
        size *= extent_of(axis.extent) or 1
    return found


def _counted(values: Sequence[Expr], axes: Sequence[Axis]) -> Expr:
    """The number of a place in axes that are counted through."""
    total = values[0]
    for value, axis in zip(values[1:], axes[1:], strict=True):
        total = total * axis.extent + value
    return total
