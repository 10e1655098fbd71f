"""Where the chunks of 16 bytes of a swizzled array lie: chunk c of row r at chunk `c ^ (r // divisor % modulus)`.

Eight neighbouring rows have one chunk each in all banks of shared memory, whatever column they are read at, so that
reading a column of chunks (ldmatrix) has no conflicts. The hardware of NVIDIA calls it swizzles of 32, 64 and 128 bytes
(PTX ISA, "Shared memory matrix layout"). It knows no rows of more than 128 bytes: an array in panels has its columns
in rows of so many, one panel of all rows behind the other.
"""

from __future__ import annotations

from tensorlang import dtypes
from tensorlang.errors import TargetError
from tensorlang.ir.expr import Buffer, Const, Expr, binary

CHUNK = 16
ATOM_ROWS = 8
"""Rows after which the order of chunks is the same again, of which tiles and panels are made."""
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
    if buffer.panels and size > SPANS[-1]:
        return _in_panels(buffer, index)
    each = CHUNK // dtypes.info(buffer.dtype).bytes
    *_, row, column = index
    chunk = binary("bitxor", column // each, row // divisor % modulus)
    return (*index[:-1], chunk * each + column % each)


def panel_rows(buffer: Buffer) -> int | None:
    """The rows of the panels of an array, or of one whose rows are as long as those; None where it has no panels."""
    rows = buffer.shape[-2] if len(buffer.shape) > 1 else None
    whole = buffer.swizzled and (buffer.panels or row_bytes(buffer) == SPANS[-1])
    return int(rows.value) if whole and isinstance(rows, Const) else None


def _in_panels(buffer: Buffer, index: tuple[Expr, ...]) -> tuple[Expr, ...]:
    """The index, with all of the way in a matrix in the last dimension."""
    each, wide = (n // dtypes.info(buffer.dtype).bytes for n in (CHUNK, SPANS[-1]))
    *lead, row, column = index
    panel, inside = column // wide, column % wide
    chunk = binary("bitxor", inside // each, row % (SPANS[-1] // CHUNK))
    place = panel * buffer.shape[-2] * wide + row * wide + chunk * each + inside % each
    return (*lead, Const(0, row.dtype), place)
