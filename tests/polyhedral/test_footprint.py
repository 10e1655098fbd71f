"""The box of elements that one tile of readers needs."""

from __future__ import annotations

from itertools import product

import pytest

from tensorlang.ir.expr import Const, Expr, Var, binary
from tensorlang.ir.stmt import INDEX
from tensorlang.polyhedral.affine_text import evaluate
from tensorlang.polyhedral.footprint import Box, Reader, needed

T, i, j, k = (Var(name, INDEX) for name in "tijk")
n = Var("n", INDEX)


def number(value: int) -> Expr:
    return Const(value, INDEX)


def inside(*loops: tuple[str, int]) -> tuple[tuple[str, Expr, Expr], ...]:
    return tuple((name, number(0), number(extent)) for name, extent in loops)


def box(readers: list[Reader], rank: int = 1, tiles: Expr | int = 8) -> list[Box | None]:
    """The boxes needed by readers in a tile `t` of `tiles`."""
    upper = number(tiles) if isinstance(tiles, int) else tiles
    return needed(readers, [("t", number(0), upper)], rank, frozenset({"n"}))


def text(found: Box | None) -> str:
    return "whole" if found is None else f"{found.base} + {found.size}"


CASES: dict[str, tuple[list[tuple[Expr, ...]], str]] = {
    "one element": ([(T,)], "t + 1"),
    "the first element": ([(number(0),)], "0 + 1"),
    "a tile": ([(T * 4 + i,)], "4 * t + 4"),
    "a tile with a halo": ([(T * 4 + i,), (T * 4 + i + 2,)], "4 * t + 6"),
    "a halo on both sides": ([(T * 4 + i - 1,), (T * 4 + i + 1,)], "4 * t - 1 + 6"),
    "a stride": ([(T * 8 + i * 2,)], "8 * t + 7"),
    "backwards": ([(number(31) - T * 4 - i,)], "-4 * t + 28 + 4"),
    "a window": ([(T * 4 + i + k,)], "4 * t + 6"),
    "two places far apart": ([(T * 4 + i,), (number(0),)], "whole"),
    "every second tile": ([(binary("floordiv", T, 2) * 4 + i,)], "4 * t - 4 * ((t + 1) // 2) + 4"),
    "wrapped around": ([(binary("floormod", T * 4 + i, 6),)], "whole"),
    "a product of loops": ([(i * k,)], "whole"),
}


@pytest.mark.parametrize("name", CASES)
def test_boxes(name: str) -> None:
    indices, wanted = CASES[name]
    readers = [Reader(index, inside(("i", 4), ("k", 3))) for index in indices]
    assert text(box(readers)[0]) == wanted


@pytest.mark.parametrize("name", [name for name, (_, wanted) in CASES.items() if wanted != "whole"])
def test_boxes_hold_every_read_and_no_more(name: str) -> None:
    indices, _ = CASES[name]
    found = box([Reader(index, inside(("i", 4), ("k", 3))) for index in indices])[0]
    assert found is not None
    for tile in range(8):
        at = [{"t": tile, "i": a, "k": b} for a, b in product(range(4), range(3))]
        touched = {evaluate(index[0], values) for index in indices for values in at}
        base, size = evaluate(found.base, {"t": tile}), evaluate(found.size, {})
        assert (base, base + size - 1) == (min(touched), max(touched))


def test_dimensions_are_boxed_apart() -> None:
    reader = Reader((T * 4 + i, i * k, j), inside(("i", 4), ("j", 5), ("k", 3)))
    assert [text(b) for b in box([reader], rank=3)] == ["4 * t + 4", "whole", "0 + 5"]


def test_unknown_elements_need_everything() -> None:
    assert box([Reader(None, ())], rank=2) == [None, None]
    assert box([Reader((T,), ()), Reader(None, ())]) == [None]


def test_sizes_stay_symbolic() -> None:
    reader = Reader((T, i), (("i", number(0), n),))
    assert [text(b) for b in box([reader], rank=2, tiles=n)] == ["t + 1", "0 + n"]


def test_a_tile_that_never_runs_needs_no_box() -> None:
    assert box([Reader((T * 4 + i,), inside(("i", 4)))], tiles=0) == [None]
    assert box([Reader((T * 4 + i,), inside(("i", 0)))]) == [None]


def test_readers_of_one_tile_only() -> None:
    """A root stage has no tile around it: the box is that of all the reads."""
    found = needed([Reader((i + 2,), inside(("i", 5)))], [], 1, frozenset())
    assert text(found[0]) == "2 + 5"


def test_places_that_share_a_stride_but_no_bounds() -> None:
    """All that the hull of `2 i` and `2 (n - 1 - i)` knows is that its elements are even."""
    reads = [Reader((T * 2,), ()), Reader(((n - 1 - T) * 2,), ())]
    assert box(reads, tiles=n) == [None]
