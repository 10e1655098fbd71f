"""Where the chunks of 16 bytes of a swizzled array lie: chunk c of row r at chunk `c ^ (r // divisor % modulus)`.

Eight neighbouring rows have one chunk each in all banks of shared memory, whatever column they are read at, so that
reading a column of chunks (ldmatrix) has no conflicts. The hardware of NVIDIA calls it swizzles of 32, 64 and 128 bytes
(PTX ISA, "Shared memory matrix layout").
"""

from __future__ import annotations

from tensorlang import dtypes
from tensorlang.errors import TargetError
from tensorlang.ir.expr import Buffer, Const, Expr, binary

CHUNK = 16
SPANS = (32, 64, 128)
"""Bytes of the rows that the hardware swizzles."""


def can_swizzle(row_bytes: int) -> bool:
    """Tell whether rows of so many bytes have a swizzle."""
    return row_bytes in SPANS or (row_bytes > 0 and row_bytes % 128 == 0)


def swizzle_mask(row_bytes: int) -> tuple[int, int]:
    """Return (divisor, modulus) of `f(r) = r // divisor % modulus`, what the chunks of row r are exchanged by.

    Raises TargetError for rows that have no swizzle.
    """
    if not can_swizzle(row_bytes):
        raise TargetError(
            f"rows of {row_bytes} bytes in shared memory have no swizzle; make them 32, 64 or a multiple of 128 bytes "
            "long, or pad them"
        )
    span = min(row_bytes, 128)
    return 128 // span, span // CHUNK


def row_bytes(buffer: Buffer) -> int | None:
    """The bytes of a row of an array, of two dimensions or more; None where that is not constant."""
    last = buffer.shape[-1] if len(buffer.shape) > 1 else None
    return int(last.value) * dtypes.info(buffer.dtype).bytes if isinstance(last, Const) else None


def turned(buffer: Buffer, index: tuple[Expr, ...]) -> tuple[Expr, ...]:
    """The index at which an element of a swizzled array lies; of any other array, its own index."""
    size = row_bytes(buffer) if buffer.swizzled else None
    if size is None:
        return index
    divisor, modulus = swizzle_mask(size)
    each = CHUNK // dtypes.info(buffer.dtype).bytes
    *_, row, column = index
    chunk = binary("bitxor", column // each, row // divisor % modulus)
    return (*index[:-1], chunk * each + column % each)
