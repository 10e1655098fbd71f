"""Layouts by letters: `NCHW16c` is dimensions N, C / 16, H, W, and 16 of C innermost."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TypeAlias

from tensorlang.dataclass import dataclass
from tensorlang.errors import DefinitionError
from tensorlang.ir.expr import Const, Expr, binary
from tensorlang.ir.simplify import simplify
from tensorlang.te.operation import Tensor


@dataclass(frozen=True, slots=True)
class Blocked:
    """A coordinate in two parts: the number of its block of `size`, and the place in that."""

    outer: Expr
    inner: Expr
    size: int


Place: TypeAlias = Expr | Blocked

_PART = re.compile(r"([A-Z])|(\d+)([a-z])")


@dataclass(frozen=True, slots=True)
class Layout:
    """`letters`: the dimensions in order, small ones for what is inside a block; `blocks`: sizes by capital letter."""

    text: str
    letters: str
    blocks: Mapping[str, int]

    def extent(self, tensor: Tensor, letter: str) -> Expr:
        """The extent along a letter, all of its blocks."""
        whole = tensor.shape[self.letters.index(letter)]
        return simplify(whole * self.blocks[letter]) if letter in self.blocks else whole

    def dimension(self, letter: str, extents: Mapping[str, Expr]) -> Expr:
        """The extent of a dimension of this layout, by the extents of whole letters."""
        block = self.blocks.get(letter.upper())
        if block is None:
            return extents[letter]
        if letter.islower():
            return Const(block, "int32")
        return simplify(binary("floordiv", extents[letter] + (block - 1), block))

    def index(self, at: Mapping[str, Place]) -> list[Expr]:
        """The index of the element at some coordinates, by capital letter."""
        return [self._part(letter, at[letter.upper()]) for letter in self.letters]

    def _part(self, letter: str, place: Place) -> Expr:
        size = self.blocks.get(letter.upper())
        if isinstance(place, Blocked):
            if place.size == size:
                return place.outer if letter.isupper() else place.inner
            place = place.outer * place.size + place.inner
        if size is None:
            return place
        return binary("floordiv" if letter.isupper() else "floormod", place, size)


def layout(text: str, letters: str, blocked: Sequence[str] = ()) -> Layout:
    """Read a layout of all of `letters`, of which `blocked` may be in blocks; DefinitionError for anything else."""
    parts = _PART.findall(text)
    found = "".join(capital or small for capital, _, small in parts)
    blocks = {small.upper(): int(size) for _, size, small in parts if small}
    plain = "".join(c for c in found if c.isupper())
    wrong = sorted(plain) != sorted(letters) or len(found) != len(set(found)) or not set(blocks) <= set(blocked)
    if wrong or "".join("".join(p) for p in parts) != text or 0 in blocks.values():
        may = f", perhaps with blocks such as 16{blocked[0].lower()} at its end" if blocked else ""
        raise DefinitionError(f"no layout {text!r} is known here; it names {', '.join(letters)}, each once{may}")
    return Layout(text, found, blocks)
