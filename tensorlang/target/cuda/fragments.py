"""Which element of a tile each lane holds: the layouts of matrix instructions.

PTX ISA, "Matrix fragments for mma" and "Register fragments for wgmma".
"""

from __future__ import annotations

from tensorlang.dataclass import dataclass
from tensorlang.errors import TargetError
from tensorlang.ir.fragment import Digit, Fragment, Number, total

WARP = 32
GROUP = 128
"""Threads that execute a wgmma."""


@dataclass(frozen=True, slots=True)
class Multiply:
    """A matrix instruction `c += a b`: its shape, the PTX names of its types, and the fragments of its operands.

    `a` is rows by k, `b` is k by columns. Where an instruction reads an operand from shared memory, its fragment is
    that of the registers which could hold it, or None.
    """

    m: int
    n: int
    k: int
    element: str
    accumulator: str
    a: Fragment
    b: Fragment | None
    c: Fragment

    @property
    def name(self) -> str:
        """The device function in the table."""
        kind = "mma" if self.b is not None else "wgmma"
        return f"tl_{kind}_m{self.m}n{self.n}k{self.k}_{self.accumulator}_{self.element}"


@dataclass(frozen=True, slots=True)
class Gather:
    """Which address each lane gives to ldmatrix or stmatrix: row, and 16-byte chunk in it, from the tile's corner.

    `instruction` is the device function; four matrices fill registers 0 to 3.
    """

    instruction: str
    row: tuple[Digit, ...]
    chunk: tuple[Digit, ...]

    def place(self, lane: Number) -> tuple[Number, Number]:
        """Return row and chunk for a lane."""
        return total(self.row, {"lane": lane}), total(self.chunk, {"lane": lane})


PACKED = {"bf16": 2, "f16": 2, "tf32": 1, "s8": 4, "u8": 4, "e4m3": 4, "e5m2": 4}
"""Elements of an operand in one register."""


def a_fragment(packed: int, lanes: int = WARP) -> Fragment:
    """The left operand: 16 rows a warp by 32 bytes of k; `packed` elements to a register."""
    warps = (Digit("lane", WARP, lanes // WARP, 16),) if lanes > WARP else ()
    row = (Digit("lane", 4, 8, 1), Digit("register", 1, 2, 8), *warps)
    return Fragment(16 * lanes // WARP, 8 * packed, lanes, 4, packed, row, _k_digits(packed, divisor=2))


def b_fragment(packed: int) -> Fragment:
    """The right operand of a warp: 32 bytes of k by 8 columns."""
    return Fragment(8 * packed, 8, WARP, 2, packed, _k_digits(packed, divisor=1), (Digit("lane", 4, 8, 1),))


def c_fragment(packed: int = 1) -> Fragment:
    """The accumulator of a warp: 16 x 8, one element to a register, or two of f16."""
    if packed == 2:
        row = (Digit("lane", 4, 8, 1), Digit("register", 1, 2, 8))
        return Fragment(16, 8, WARP, 2, 2, row, (Digit("element", 1, 2, 1), Digit("lane", 1, 4, 2)))
    row = (Digit("lane", 4, 8, 1), Digit("register", 2, 2, 8))
    return Fragment(16, 8, WARP, 4, 1, row, (Digit("register", 1, 2, 1), Digit("lane", 1, 4, 2)))


def group_accumulator(columns: int, packed: int = 1) -> Fragment:
    """The accumulator of wgmma: 64 rows, 16 of each warp, by a multiple of 8 columns; `packed` as in `c_fragment`."""
    if columns % 8 or not 8 <= columns <= 256:
        raise TargetError(f"wgmma has 8 to 256 columns, a multiple of 8; got {columns}")
    if packed == 2:
        row = (Digit("lane", 4, 8, 1), Digit("register", 1, 2, 8), Digit("lane", WARP, 4, 16))
        column = (Digit("element", 1, 2, 1), Digit("lane", 1, 4, 2), Digit("register", 2, columns // 8, 8))
        return Fragment(64, columns, GROUP, columns // 4, 2, row, column)
    row = (Digit("lane", 4, 8, 1), Digit("register", 2, 2, 8), Digit("lane", WARP, 4, 16))
    column = (Digit("register", 1, 2, 1), Digit("lane", 1, 4, 2), Digit("register", 4, columns // 8, 8))
    return Fragment(64, columns, GROUP, columns // 2, 1, row, column)


def warp_multiply(element: str, accumulator: str = "f32") -> Multiply:
    """The mma.sync of a type: 16 x 8 by 32 bytes of k."""
    packed = PACKED[element]
    c = c_fragment(2 if accumulator == "f16" else 1)
    return Multiply(16, 8, 8 * packed, element, accumulator, a_fragment(packed), b_fragment(packed), c)


def group_multiply(element: str, columns: int, accumulator: str = "f32") -> Multiply:
    """The wgmma of a type: 64 rows by `columns` by 32 bytes of k; b is in shared memory only."""
    packed = PACKED[element]
    c = group_accumulator(columns)
    return Multiply(64, columns, 8 * packed, element, accumulator, a_fragment(packed, GROUP), None, c)


A_ROWS = Gather("tl_ldmatrix_x4", row=(Digit("lane", 1, 16, 1),), chunk=(Digit("lane", 16, 2, 1),))
"""The left operand from [m][k]: one tile of 16 rows by 32 bytes."""

A_COLUMNS = Gather(
    "tl_ldmatrix_x4_trans",
    row=(Digit("lane", 1, 8, 1), Digit("lane", 16, 2, 8)),
    chunk=(Digit("lane", 8, 2, 1),),
)
"""The left operand from [k][m], 16-bit elements only: one tile of 32 bytes of k by 16 rows."""

B_COLUMNS = Gather(
    "tl_ldmatrix_x4",
    row=(Digit("lane", 1, 8, 1), Digit("lane", 16, 2, 8)),
    chunk=(Digit("lane", 8, 2, 1),),
)
"""The right operand from [n][k]: two tiles, of columns 0 to 7 in registers 0 and 1, of 8 to 15 in 2 and 3."""

B_ROWS = Gather("tl_ldmatrix_x4_trans", row=(Digit("lane", 1, 16, 1),), chunk=(Digit("lane", 16, 2, 1),))
"""The right operand from [k][n], 16-bit elements only: two tiles, as of B_COLUMNS."""

ROWS_DOWN = Gather("tl_stmatrix_x4", row=(Digit("lane", 1, 16, 1),), chunk=(Digit("lane", 16, 2, 1),))
"""Two accumulators of 16 bits beside each other, to 16 rows of 16."""

GROUP_ROWS_DOWN = Gather(
    "tl_stmatrix_x4",
    row=(Digit("lane", 1, 16, 1), Digit("lane", WARP, 4, 16)),
    chunk=(Digit("lane", 16, 2, 1),),
)
"""16 columns of an accumulator of a warp group, to 64 rows; each warp stores 16 of them."""

ROWS_RIGHT = Gather(
    "tl_stmatrix_x4_trans",
    row=(Digit("lane", 1, 8, 1), Digit("lane", 16, 2, 8)),
    chunk=(Digit("lane", 8, 2, 1),),
)
"""Two accumulators beside each other, with rows and columns exchanged."""


def _k_digits(packed: int, divisor: int) -> tuple[Digit, ...]:
    """Where along k: element by element in a register, then over four lanes, then the second half of the 32 bytes."""
    digits = (Digit("lane", 1, 4, packed), Digit("register", divisor, 2, 4 * packed))
    return digits if packed == 1 else (Digit("element", 1, packed, 1), *digits)
