"""Full and partial tiles: isolate leaves constant bounds where whole tiles fit, and exact remainders."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

import tensorlang
from tensorlang import te
from tensorlang.ir.expr import binary
from tensorlang.ir.stmt import For, Stmt, children
from tensorlang.polyhedral.affine_text import Namer
from tensorlang.polyhedral.nest import loops
from tensorlang.polyhedral.tiles import isolate_option
from tensorlang.schedule.derive import derive
from tests.programs import Case, chain, matmul

n, m = te.var("n"), te.var("m")
Nest = dict[str, str]


def nests(stmt: Stmt, around: tuple[tuple[str, str], ...] = ()) -> Iterator[Nest]:
    """The innermost loop nests of a kernel: axis -> extent, from the outside."""
    if isinstance(stmt, For):
        around = (*around, (stmt.axis, str(binary("sub", stmt.upper, stmt.lower))))
    below = [nest for child in children(stmt) for nest in nests(child, around)]
    if isinstance(stmt, For) and not below:
        yield dict(around)
    yield from below


def lowered(case: Case) -> list[Nest]:
    return list(nests(tensorlang.lower(case.s, case.args).kernel.body))


def tiled(rows: int | te.Var, columns: int | te.Var, tail: str = "peel") -> list[Nest]:
    """The update nests of a matmul in register tiles of 4 x 8."""
    case = matmul(rows, columns, 5)
    i_o, j_o, i_i, j_i = case.s["C"].tile("i", "j", 4, 8, tail=tail)
    case.s["C"].reorder(i_o, j_o, "k", i_i, j_i)
    return [nest for nest in lowered(case) if "k" in nest]


def tile(nest: Nest) -> tuple[str, str]:
    return nest.get("i_i", "1"), nest["j_i"]


def test_odd_sizes_make_four_nests_of_constant_extent() -> None:
    found = tiled(10, 19)
    assert [tile(nest) for nest in found] == [("4", "8"), ("4", "3"), ("2", "8"), ("2", "3")]
    assert found[0] == {"i_o": "2", "j_o": "2", "k": "5", "i_i": "4", "j_i": "8"}
    assert all(extent.isdigit() for nest in found for extent in nest.values())


def test_sizes_that_fit_make_one_nest() -> None:
    assert tiled(8, 16) == [{"i_o": "2", "j_o": "2", "k": "5", "i_i": "4", "j_i": "8"}]
    assert [tile(nest) for nest in tiled(8, 19)] == [("4", "8"), ("4", "3")]
    assert [tile(nest) for nest in tiled(9, 16)] == [("4", "8"), ("1", "8")]


def test_sizes_below_a_tile_make_partial_tiles_only() -> None:
    assert [tile(nest) for nest in tiled(3, 5)] == [("3", "5")]


def test_any_size_has_one_nest_of_whole_tiles() -> None:
    found = tiled(n, m)
    whole = [nest for nest in found if tile(nest) == ("4", "8")]
    assert whole == [{"i_o": "n // 4", "j_o": "m // 8", "k": "5", "i_i": "4", "j_i": "8"}]
    assert {tile(nest) for nest in found} == {("4", "8"), ("4", "m % 8"), ("n % 4", "8"), ("n % 4", "m % 8")}


def test_guarded_tails_stay_one_nest() -> None:
    (nest,) = tiled(10, 19, tail="guard")
    assert all(text.startswith("min(") for text in tile(nest))


@pytest.mark.parametrize(
    ("extent", "wanted"), [(20, ["8", "4"]), (16, ["8"]), (8, ["8"]), (7, ["7"]), (n, ["8", "n % 8"])]
)
def test_one_axis(extent: int | te.Var, wanted: list[str]) -> None:
    case = chain(extent)
    case.s["C"].split("i", factor=8, tail="peel")
    assert [nest["i_i"] for nest in lowered(case) if "i_i" in nest] == wanted


def test_a_tile_split_again_is_whole_when_all_its_parts_are() -> None:
    case = chain(37)
    case.s["C"].split("i", factor=12, tail="peel")
    case.s["C"].split("i_i", factor=4)
    found = [nest for nest in lowered(case) if "i_i_i" in nest]
    assert found[0] == {"i_o": "3", "i_i_o": "3", "i_i_i": "4"} and len(found) >= 1


def test_the_option_lists_the_bands_around() -> None:
    """isl ignores an isolate option whose prefix is not exactly the enclosing bands."""
    case = matmul(10, 19, 5)
    case.s["C"].tile("i", "j", 4, 8, tail="peel")
    derived = derive(case.s.state)
    by_axis = {loop.axis: loop for loop in loops(derived.tree)}
    namer = Namer(frozenset())
    statements = derived.scop.statements
    outer = isolate_option(by_axis["i_o"], statements, (), namer)
    inner = isolate_option(by_axis["j_o"], statements, ("C.i_o",), namer)
    assert outer is not None and re.search(r"isolate\[\[\] -> \[\w+\]\]", outer)
    assert inner is not None and re.search(r"isolate\[\[\w+\] -> \[\w+\]\]", inner)
    assert by_axis["i_i"].peel == () and dict(by_axis["j_o"].peel)["C.j_i"] == 8


def test_no_whole_tile_no_option() -> None:
    case = chain(7)
    case.s["C"].split("i", factor=8, tail="peel")
    derived = derive(case.s.state)
    loop = next(loop for loop in loops(derived.tree) if loop.axis == "i_o")
    assert loop.peel and isolate_option(loop, derived.scop.statements, (), Namer(frozenset())) is None
