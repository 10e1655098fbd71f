"""How a stage is a product of matrices that tensor cores compute: its axes, its operands, and how they lie."""

from __future__ import annotations

from dataclasses import dataclass

from tensorlang.ir.expr import Binary, Cast, Load
from tensorlang.schedules.accesses import Access
from tensorlang.schedules.gpu.tensor_cores import ELEMENTS, TF32, multiplies
from tensorlang.schedules.gpu.warp_tile import DEPTH_BYTES
from tensorlang.schedules.recognise import Stage
from tensorlang.target.spec import Target
from tensorlang.te.operation import PRECISION


@dataclass(frozen=True, slots=True)
class Product:
    """`rows`, `columns` and `terms` are axes of a product, `batch` those of several; `element` names its operands.

    `left` is read along terms, and so is `right` where it is `turned`; else along columns. `left_across`: along rows.
    """

    stage: Stage
    batch: tuple[str, ...]
    rows: str
    columns: str
    terms: str
    left: Access
    right: Access
    left_across: bool
    turned: bool
    element: str

    @property
    def itemsize(self) -> int:
        """Bytes of an element of the operands."""
        return self.left.itemsize

    @property
    def depth(self) -> int:
        """Terms of one mma.sync."""
        return DEPTH_BYTES // self.itemsize

    def extent(self, axis: str) -> int:
        return self.stage.extents[axis]


def product_of(stage: Stage, target: Target) -> Product | None:
    """How a stage is a product of matrices, or of several, that a target has instructions for; None when it is not.

    Operands of 16 bits lie either way, bytes with their terms side by side. Products of float32 are made in tf32 where
    the program allows it.
    """
    op = stage.op
    if len(stage.spatial) < 2 or len(stage.reduce) != 1 or op.reduction is None or len(stage.reads) != 2:
        return None
    element = _element(stage, target)
    (*batch, rows, columns), (terms,) = stage.spatial, stage.reduce
    found = {}
    for read in stage.reads:
        names = tuple("".join(axis for axis, step in dim if step == 1) for dim in read.dims)
        if element is None or any(len(dim) > 1 for dim in read.dims) or not set(names[:-2]) <= {*batch, ""}:
            return None
        found[names[-2:]] = read
    left, right = found.get((rows, terms)), found.get((terms, columns))
    left_across, turned = left is None, right is None
    left, right = left or found.get((terms, rows)), right or found.get((columns, terms))
    if left is None or right is None or element is None or (left.itemsize == 1 and (left_across or not turned)):
        return None
    return Product(stage, tuple(batch), rows, columns, terms, left, right, left_across, turned, element)


def _element(stage: Stage, target: Target) -> str | None:
    """What instructions call the operands of a sum of products; None where there is no instruction."""
    op = stage.op
    reduction = op.reduction
    if reduction is None or reduction.reducer.text() != "sum" or reduction.where is not None or reduction.init:
        return None
    match reduction.sources:
        case (Binary(op="mul", a=Cast(value=Load() as a), b=Cast(value=Load() as b)),):
            dtypes = a.buffer.dtype, b.buffer.dtype, op.dtype
            return ELEMENTS[a.buffer.dtype, op.dtype] if multiplies(target, *dtypes) else None
        case (Binary(op="mul", a=Load(), b=Load()),):
            return TF32 if op.attrs.get(PRECISION) == TF32 else None
    return None
