"""How a tile is distributed over the lanes of a warp, as sums of digits of the numbers of lane and register.

A fragment distributes a tile over lanes, the registers of each, and the elements packed in one register. Its layout is
a number system: a row or column is a sum of digits `(x // divisor % modulus) * scale`, where x is the number of the
lane, of the register or of the element.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Literal, TypeVar

from tensorlang.dataclass import dataclass
from tensorlang.ir.expr import Expr

Number = TypeVar("Number", int, Expr)
Source = Literal["lane", "register", "element"]


@dataclass(frozen=True, slots=True)
class Digit:
    """`(x // divisor % modulus) * scale` of the number x of a lane, a register or an element."""

    of: Source
    divisor: int
    modulus: int
    scale: int


@dataclass(frozen=True, slots=True)
class Fragment:
    """How `rows` x `columns` elements lie in the registers of `lanes` threads, `elements` to a register.

    In an array of several fragments those of one row of them follow each other, or `down`, those of one column.
    """

    rows: int
    columns: int
    lanes: int
    registers: int
    elements: int
    row: tuple[Digit, ...]
    column: tuple[Digit, ...]
    down: bool = False

    def place(self, lane: Number, register: Number, element: Number) -> tuple[Number, Number]:
        """Return row and column of what a lane holds; of index expressions as of numbers."""
        numbers = {"lane": lane, "register": register, "element": element}
        return total(self.row, numbers), total(self.column, numbers)

    def holder(self, row: Number, column: Number) -> tuple[Number, Number, Number]:
        """Return the lane, the register and the element of it that hold a place: the inverse of `place`."""
        parts = [(row, digit) for digit in self.row] + [(column, digit) for digit in self.column]
        lane, register, element = (
            sum((value // d.scale % d.modulus * d.divisor for value, d in parts if d.of == of), row * 0)
            for of in ("lane", "register", "element")
        )
        return lane, register, element

    def number(self, row: Number, column: Number, extents: tuple[int, int]) -> Number:
        """Return which fragment of an array of so many rows and columns an element is in."""
        down, right = row // self.rows, column // self.columns
        if self.down:
            return right * (extents[0] // self.rows) + down
        return down * (extents[1] // self.columns) + right

    @property
    def transposed(self) -> Fragment:
        """The same elements of the tile with rows and columns exchanged."""
        return replace(self, rows=self.columns, columns=self.rows, row=self.column, column=self.row, down=not self.down)

    def __str__(self) -> str:
        return f"{self.rows} x {self.columns} over {self.lanes} lanes"


def total(digits: tuple[Digit, ...], numbers: dict[str, Number]) -> Number:
    """The sum of digits of the numbers of lane, register and element."""
    start = numbers["lane"] * 0
    return sum((numbers[d.of] // d.divisor % d.modulus * d.scale for d in digits), start)
