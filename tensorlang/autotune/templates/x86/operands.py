"""What the templates ask of their tensors."""

from __future__ import annotations

from tensorlang import dtypes
from tensorlang.errors import DefinitionError
from tensorlang.ir.expr import Const
from tensorlang.te.operation import Tensor


def extents(template: str, tensor: Tensor, dimensions: str) -> list[int]:
    """The extents of an operand; DefinitionError unless it has these dimensions, of known extents, and floats.

    Operators on narrower types are other programs, with instructions of their own.
    """
    dtype = dtypes.info(tensor.dtype)
    if tensor.ndim != len(dimensions.split(", ")):
        raise DefinitionError(f"{template} takes an array [{dimensions}], got {tensor}")
    if not dtype.is_float or dtype.bits < 32:
        raise DefinitionError(
            f"{template} takes float32 or float64, got {tensor}: use tensorlang.topi, which has others"
        )
    found = [int(n.value) for n in tensor.shape if isinstance(n, Const)]
    if len(found) != tensor.ndim:
        raise DefinitionError(f"{template} takes arrays of known extents, got {tensor}")
    return found
