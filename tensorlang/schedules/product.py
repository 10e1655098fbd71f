"""The roles in a product of matrices: which axis of a stage runs over rows, columns and terms, and how factors lie."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tensorlang import dtypes
from tensorlang.dataclass import dataclass
from tensorlang.errors import InternalError
from tensorlang.ir.expr import Const, Expr, Load, Var, variables
from tensorlang.te.axis import extent_of
from tensorlang.te.operation import ComputeOp, loads


@dataclass(frozen=True, slots=True)
class Product:
    """`out[batch, i, j] = sum over k of a * b`: names of axes, and their extents as far as they are known.

    `a` is the read that moves with i, `b` the one that moves with j: in rows of B, in columns (`b_transposed`), or in
    panels of `packed_width` columns that were laid out ahead. `bits`: the width of an element of a sum, or of a factor
    if that is wider. `turned`: i is the last axis of `out`, and j the one before.
    """

    batch: tuple[str, ...]
    i: str
    j: str
    k: str
    batches: int | None
    m: int | None
    n: int | None
    depth: int | None
    a: Load
    b: Load
    bits: int
    turned: bool = False

    @property
    def itemsize(self) -> int:
        """Bytes of an element of a factor."""
        return dtypes.info(self.a.buffer.dtype).bytes

    @property
    def a_transposed(self) -> bool:
        """Whether the elements of a row of A lie apart."""
        return self.k not in variables(self.a.index[-1])

    @property
    def b_transposed(self) -> bool:
        """Whether the elements of a row of B lie apart."""
        return self.j not in variables(self.b.index[-1])

    @property
    def packed_width(self) -> int | None:
        """The columns of a panel, if B came packed."""
        places = sum(self.j in variables(index) for index in self.b.index)
        return extent_of(self.b.buffer.shape[-1]) if places == 2 else None


def product_of(op: ComputeOp) -> Product:
    """Read the roles off a stage that is one."""
    *batch, i, j = op.axes
    (k,) = op.reduce_axes
    a, b = (next((r for r in loads(op) if _moves(r, axis.name)), None) for axis in (i, j))
    if a is None or b is None:
        raise InternalError(f"{op.name} is no product of matrices")
    batches = extent_of(batch[0].extent) if batch else 1
    extents = (batches, extent_of(i.extent), extent_of(j.extent), extent_of(k.extent))
    bits = max(dtypes.info(dtype).bits for dtype in (op.dtype, a.buffer.dtype, b.buffer.dtype))
    return Product(tuple(axis.name for axis in batch), i.name, j.name, k.name, *extents, a, b, bits)


def of_one_row(product: Product) -> Product:
    """A product with a single column, by a matrix whose columns lie along memory, as one with a single row."""
    places = sum(product.i in variables(index) for index in product.a.index)
    if product.n != 1 or not product.a_transposed or places != 1:
        return product
    i, j, m, n, a, b = product.j, product.i, product.n, product.m, product.b, product.a
    return replace(product, i=i, j=j, m=m, n=n, a=a, b=b, turned=True)


def is_product(op: ComputeOp) -> bool:
    """Whether a stage has those roles: two reads of single axes, one without the columns, one without the rows."""
    if len(op.axes) < 2 or len(op.reduce_axes) != 1 or len(op.body) > 1:
        return False
    *_, i, j = (axis.name for axis in op.axes)
    reads = list(dict.fromkeys((load.buffer.name, load.index) for load in loads(op)))
    if len(reads) != 2 or not all(_is_of_single_axes(index) for _, index in reads):
        return False
    moved = [{name for part in index for name in variables(part)} for _, index in reads]
    k = op.reduce_axes[0].name
    return sorted(({i, j} & axes) != {i} for axes in moved) == [False, True] and all(
        k in axes and len({i, j} & axes) == 1 for axes in moved
    )


def _is_of_single_axes(index: Sequence[Expr]) -> bool:
    """Whether every dimension is an axis, or the panel or the column of an axis that was cut."""
    return all(isinstance(part, Var | Const) or len(variables(part)) == 1 for part in index)


def _moves(read: Load, axis: str) -> bool:
    return any(axis in variables(index) for index in read.index)
