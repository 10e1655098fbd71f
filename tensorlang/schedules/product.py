"""The roles in a product of matrices: which axis of a stage runs over rows, columns and terms, and how factors lie."""

from __future__ import annotations

from dataclasses import dataclass

from tensorlang import dtypes
from tensorlang.errors import InternalError
from tensorlang.ir.expr import Load, variables
from tensorlang.te.axis import extent_of
from tensorlang.te.operation import ComputeOp, loads


@dataclass(frozen=True, slots=True)
class Product:
    """`out[batch, i, j] = sum over k of a * b`: names of axes, and their extents as far as they are known.

    `a` is the read that moves with i, `b` the one that moves with j: in rows of B, in columns (`b_transposed`), or in
    panels of `packed_width` columns that were laid out ahead. `bits`: the width of an element of a sum, or of a factor
    if that is wider.
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
    """Read the roles off a stage of the library."""
    *batch, i, j = op.axes
    (k,) = op.reduce_axes
    a, b = (next((r for r in loads(op) if _moves(r, axis.name)), None) for axis in (i, j))
    if a is None or b is None:
        raise InternalError(f"{op.name} is no product of matrices")
    batches = extent_of(batch[0].extent) if batch else 1
    extents = (batches, extent_of(i.extent), extent_of(j.extent), extent_of(k.extent))
    bits = max(dtypes.info(dtype).bits for dtype in (op.dtype, a.buffer.dtype, b.buffer.dtype))
    return Product(tuple(axis.name for axis in batch), i.name, j.name, k.name, *extents, a, b, bits)


def _moves(read: Load, axis: str) -> bool:
    return any(axis in variables(index) for index in read.index)
