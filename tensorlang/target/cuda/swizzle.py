"""Where 16-byte chunks of a tile lie in shared memory so that no access conflicts, and what an access costs.

One formula serves cp.async, ldmatrix, bulk tensor copies and wgmma: chunk `c` of row `r` is stored at chunk
`c ^ f(r)`. For rows of 32, 64 and 128 bytes in a tile that begins on a boundary of 1024 bytes it is the hardware's
mode of that span (CUDA driver API, CUtensorMapSwizzle; PTX ISA, "Shared memory matrix layout").
"""

from __future__ import annotations

from collections.abc import Sequence

from tensorlang.dataclass import dataclass
from tensorlang.errors import TargetError
from tensorlang.ir.swizzle import ATOM_ROWS, CHUNK, SPANS, swizzle_mask

_BANKS = 32
_WORD = 4
_MODES = {0: 0, 128: 1, 64: 2, 32: 3}
_ADDRESS_BITS = 18


def swizzled_chunk(row: int, chunk: int, row_bytes: int) -> int:
    """Return the chunk of a row at which its chunk `chunk` is stored."""
    divisor, modulus = swizzle_mask(row_bytes)
    return chunk ^ (row // divisor % modulus)


def swizzled_offset(row: int, byte: int, row_bytes: int) -> int:
    """Return the offset in bytes of byte `byte` of a row from the beginning of the tile."""
    return row * row_bytes + swizzled_chunk(row, byte // CHUNK, row_bytes) * CHUNK + byte % CHUNK


def hardware_address(address: int, span: int) -> int:
    """Return what TMA and wgmma make of a shared address in the mode of a span of 32, 64 or 128 bytes."""
    if span not in SPANS:
        raise TargetError(f"the hardware swizzles spans of 32, 64 and 128 bytes, not of {span}")
    return address ^ ((address >> 7) & (span // CHUNK - 1)) << 4


def wavefronts(addresses: Sequence[int], size: int) -> int:
    """Return how many passes shared memory needs for one access of a warp: `size` bytes at each lane's address.

    Lanes go in phases of 128 bytes together; a phase takes as many passes as the largest number of different words
    of 4 bytes that it wants of one of the 32 banks. The ideal is one a phase.
    """
    lanes = 128 // size
    return sum(_passes(addresses[k : k + lanes], size) for k in range(0, len(addresses), lanes))


def _passes(addresses: Sequence[int], size: int) -> int:
    words = {(a + byte) // _WORD for a in addresses for byte in range(0, size, _WORD)}
    banks = [0] * _BANKS
    for word in words:
        banks[word % _BANKS] += 1
    return max(banks)


@dataclass(frozen=True, slots=True)
class Descriptor:
    """What tells wgmma where an operand lies in shared memory; distances and address in bytes.

    Rows of `span` bytes are swizzled in atoms of 8 rows. `leading`: from one atom to the next along the rows;
    `stride`: across them. `span` is 0 for no swizzle.
    """

    address: int
    leading: int
    stride: int
    span: int

    def encoded(self) -> int:
        """Return the 64 bits. TargetError for what does not fit them."""
        for name, value in (("address", self.address), ("leading", self.leading), ("stride", self.stride)):
            if value % CHUNK or not 0 <= value < 1 << _ADDRESS_BITS:
                raise TargetError(f"{name} of a wgmma descriptor is a multiple of 16 below 256 KB, got {value}")
        if self.span not in _MODES:
            raise TargetError(f"wgmma swizzles spans of 32, 64 and 128 bytes, or 0 for none, got {self.span}")
        low = self.address >> 4 | (self.leading >> 4) << 16
        return low | (self.stride >> 4) << 32 | _MODES[self.span] << 62

    @staticmethod
    def decoded(bits: int) -> Descriptor:
        """Return what 64 bits say."""
        modes = {mode: span for span, mode in _MODES.items()}
        address, leading, stride = ((bits >> shift & 0x3FFF) << 4 for shift in (0, 16, 32))
        return Descriptor(address, leading, stride, modes[bits >> 62])


def descriptor_along_k(address: int, span: int = 128) -> Descriptor:
    """The operand [m][k] or [n][k] with rows of `span` bytes of k; 32 bytes further along k is the address + 32."""
    return Descriptor(address, CHUNK, ATOM_ROWS * span, span)


def descriptor_along_n(address: int, atom_bytes: int) -> Descriptor:
    """The right operand [k][n] of 16-bit elements in atoms of 64 columns, `atom_bytes` apart (128-byte swizzle).

    16 rows further along k is the address + 2048.
    """
    return Descriptor(address, atom_bytes, ATOM_ROWS * 128, 128)
