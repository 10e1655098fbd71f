"""Products of whole tiles by the matrix unit of Intel's CPUs (AMX), of any size: which there are, and their names.

A tile register holds 16 rows of 64 bytes; an instruction multiplies one of data by one of a panel of weights, in words
of 32 bits, and adds to a third one of sums. Source: Intel 64 and IA-32 Architectures Software Developer's Manual,
volume 1, chapter 18.
"""

from __future__ import annotations

import re
from typing import TypeAlias

from tensorlang import dtypes
from tensorlang.dataclass import dataclass

INSTRUCTIONS = {
    ("uint8", "int8"): "tdpbusd",
    ("int8", "int8"): "tdpbssd",
    ("int8", "uint8"): "tdpbsud",
    ("uint8", "uint8"): "tdpbuud",
    ("bfloat16", "bfloat16"): "tdpbf16ps",
}
"""By the dtypes of data and weights."""
FEATURES = {"bfloat16": ("amx-bf16", "amx-tile"), "int8": ("amx-int8", "amx-tile"), "uint8": ("amx-int8", "amx-tile")}
"""What a CPU must have, by the dtype of the weights."""
ROWS, WORDS, WORD = 16, 16, 4
"""The rows of a tile, the words of a row, and the bytes of a word. Tiles of sums have as many columns as rows."""
_PANEL, _FEW, _MANY = 2, 2, 6
"""Tiles of a panel, and of data that are multiplied by it at once: two or one by two, each in a register of its own, or
one by six in turn.
"""
MOST_ROWS, MOST_COLUMNS = _FEW * ROWS, _PANEL * ROWS
"""Rows of data that follow each other, and columns of a panel, in one product."""
Share: TypeAlias = tuple[int, int, int]
"""The rows of a tile of data: its first y and x, and how many follow."""
_NAME = re.compile(r"x86\.amx\.(\w+)\.(\w+)\.(\d+)x(\d+)x(\d+)\.(\d+)x(\d+)x(\d+)\.(\d+)r(\d+)\.(\d+)([rj])(\d+)")


@dataclass(frozen=True, slots=True)
class Tiles:
    """`out[y, x, i] += sum over p, q, w, t of data[.., .., ..] * kernel[p, q, w, i, t]`.

    `rows` are the extents of y and x, `columns` that of i, `terms` those of p, q and the words w, each of as many terms
    t as fill 32 bits. Data are read at `down[0] * y + down[1] * p` and `right[0] * x + right[1] * q`; if `joint`, the
    latter counts terms, and words follow in the same dimension.
    """

    data: str
    kernel: str
    rows: tuple[int, int]
    columns: int
    terms: tuple[int, int, int]
    down: tuple[int, int] = (1, 1)
    right: tuple[int, int] = (1, 1)
    joint: bool = False

    @property
    def name(self) -> str:
        """The name of the intrinsic, which tells all of it."""
        rows, terms = "x".join(map(str, (*self.rows, self.columns))), "x".join(map(str, self.terms))
        right = f"{self.right[0]}{'j' if self.joint else 'r'}{self.right[1]}"
        return f"x86.amx.{self.data}.{self.kernel}.{rows}.{terms}.{self.down[0]}r{self.down[1]}.{right}"

    @property
    def fits(self) -> bool:
        """Whether the registers hold the sums, and the terms are cut into equal parts."""
        shares = self.shares()
        whole = self.columns % ROWS == 0 and 1 <= self.panels <= _PANEL
        return whole and (self.in_turn or len(shares) <= _FEW) and all(n <= ROWS for _, _, n in shares)

    @property
    def in_turn(self) -> bool:
        """Whether tiles of data, all of one size, take turns in one register, so that many share a tile of a panel."""
        return self.columns == ROWS and len({n for _, _, n in self.shares()}) == 1

    def passes(self) -> list[list[Share]]:
        """The shares whose sums are in registers together."""
        shares = self.shares()
        count = -(-len(shares) // (_MANY if self.in_turn else _FEW))
        size = -(-len(shares) // count)
        return [shares[start : start + size] for start in range(0, len(shares), size)]

    @property
    def panels(self) -> int:
        """The tiles side by side in a panel of weights."""
        return self.columns // ROWS

    @property
    def step(self) -> int:
        """The words of a row of the tiles: the most that divide those there are."""
        return next(n for n in range(WORDS, 0, -1) if self.terms[2] % n == 0)

    @property
    def size(self) -> int:
        """The bytes of a term."""
        return dtypes.info(self.kernel).bytes

    @property
    def group(self) -> int:
        """The terms of a word."""
        return WORD // self.size

    @property
    def out(self) -> str:
        """The dtype of the sums."""
        return "float32" if self.kernel == "bfloat16" else "int32"

    def shares(self) -> list[Share]:
        """The rows of each tile of data: its first y and x, and how many follow, along x unless it has one column."""
        high, wide = self.rows
        if high > 1 and wide > 1:
            return [(y, 0, wide) for y in range(high)]
        count = high * wide
        first = count if count <= ROWS else -(-count // 2)
        parts = [(0, first)] + [(first, count - first)] * (count > first)
        return [(0, start, n) if high == 1 else (start, 0, n) for start, n in parts]


def tiles_of(name: str) -> Tiles | None:
    """The tiles that a name tells; None for any other name, and for what the registers do not hold."""
    found = _NAME.fullmatch(name)
    if found is None or (found[1], found[2]) not in INSTRUCTIONS:
        return None
    high, wide, columns, p, q, words, *steps = (int(found[n]) for n in (3, 4, 5, 6, 7, 8, 9, 10, 11, 13))
    made = Tiles(
        found[1],
        found[2],
        (high, wide),
        columns,
        (p, q, words),
        (steps[0], steps[1]),
        (steps[2], steps[3]),
        found[12] == "j",
    )
    return made if min(high, wide, p, q, words) > 0 and made.fits else None
