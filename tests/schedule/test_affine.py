"""Loops seen through matrices: affine, tile_by, and the arithmetic behind them."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tensorlang import lower, te
from tensorlang.errors import BadArgument, IllegalOrder
from tensorlang.schedule import Trace
from tensorlang.schedule.matrix import Matrix, determinant, identity, inverse
from tensorlang.testing.check import check_schedule
from tests.programs import matmul
from tests.stencils import Stencil, seidel

n = te.var("n")


@st.composite
def unimodular(draw: st.DrawFn, size: int = 3) -> Matrix:
    """A product of a few steps that add one row to another, swap rows, or turn one around."""
    rows = [list(row) for row in identity(size)]
    for _ in range(draw(st.integers(0, 5))):
        i, j = draw(st.permutations(range(size)))[:2]
        match draw(st.integers(0, 2)):
            case 0:
                factor = draw(st.integers(-2, 2))
                rows[i] = [a + factor * b for a, b in zip(rows[i], rows[j], strict=True)]
            case 1:
                rows[i], rows[j] = rows[j], rows[i]
            case _:
                rows[i] = [-a for a in rows[i]]
    return tuple(map(tuple, rows))


@given(unimodular())
def test_inverse_of_a_unimodular_matrix(matrix: Matrix) -> None:
    back = inverse(matrix)
    assert back is not None
    assert np.array_equal(np.matmul(matrix, back), np.eye(3))
    assert np.array_equal(np.matmul(back, matrix), np.eye(3))
    assert abs(determinant(matrix)) == 1


def test_determinants() -> None:
    assert determinant(((1, 2), (3, 4))) == -2
    assert determinant(((0, 1), (1, 0))) == -1
    assert determinant(((1, 2), (2, 4))) == 0
    assert inverse(((1, 2), (3, 4))) is None
    assert inverse(((1, 2), (2, 4))) is None


@given(unimodular())
def test_any_unimodular_matrix_keeps_what_a_free_nest_computes(matrix: Matrix) -> None:
    A = te.placeholder((3, 4, 2), "int32", name="A")
    B = te.compute((3, 4, 2), lambda i, j, k: A[i, j, k] * 2, name="B")
    s = te.create_schedule(B.op)
    s[B].affine(B.op.axis, matrix)
    check_schedule(s, [A, B])


def test_rows_of_a_recurrence(golden: Callable[[str], None]) -> None:
    case = Stencil(seidel, (n, n))
    axes = case.stage.affine(["t", "i", "j"], [[1, 0, 0], [1, 1, 0], [1, 1, 1]])
    assert [str(a) for a in axes] == ["t_a", "i_a", "j_a"]
    golden(f"{case.s}\n{lower(case.s, case.args)}")
    check_schedule(case.s, case.args, sizes={"n": 7})


def test_a_matrix_that_reverses_a_dependence_is_refused() -> None:
    case = Stencil(seidel, (n, n))
    with pytest.raises(IllegalOrder) as caught:
        case.stage.affine(["i", "j"], [[0, 1], [1, 0]])
    witness = caught.value.witness
    assert witness is not None
    assert witness.distance == (0, 1, -1)


BAD: dict[str, tuple[list[str], list[list[int]], str]] = {
    "gaps": (["t", "i"], [[1, 0], [1, 2]], "the determinant must be 1 or -1, and is 2: steps would have gaps"),
    "lost": (["t", "i"], [[1, 1], [1, 1]], "the determinant must be 1 or -1, and is 0: axes are lost"),
    "rows": (["t", "i"], [[1, 0]], "the matrix needs 2 rows, one per axis, got 1"),
    "columns": (["t", "i"], [[1], [0]], "every row needs 2 whole numbers, one per axis, got [1]"),
    "not neighbours": (["t", "j"], [[1, 0], [0, 1]], "affine takes neighbours, outermost first"),
    "inside out": (["j", "i"], [[1, 0], [0, 1]], "affine takes neighbours, outermost first"),
    "twice": (["t", "t"], [[1, 0], [0, 1]], "axis t appears twice"),
    "none": ([], [], "affine needs at least one axis"),
}


@pytest.mark.parametrize("name", BAD)
def test_arguments_of_affine(name: str) -> None:
    axes, matrix, why = BAD[name]
    with pytest.raises(BadArgument) as caught:
        Stencil(seidel, (n, n)).stage.affine(axes, matrix)
    assert why in caught.value.why


def test_kinds_do_not_mix() -> None:
    with pytest.raises(BadArgument) as caught:
        matmul().s["C"].affine(["j", "k"], [[0, 1], [1, 0]])
    assert "j is a spatial axis and k a reduce axis" in caught.value.why
    with pytest.raises(BadArgument):
        matmul().s["C"].tile_by(["j", "k"], [[1, 0]], [4])


def test_an_annotated_axis_stays() -> None:
    s = matmul().s
    s["C"].parallel("i")
    with pytest.raises(BadArgument, match="i of C is parallel"):
        s["C"].affine(["i", "j"], [[0, 1], [1, 0]])


TILES: dict[str, tuple[list[list[int]], list[int], list[int] | None]] = {
    "boxes": ([[1, 0], [0, 1]], [2, 3], None),
    "diamonds": ([[1, 1], [1, -1]], [3, 3], None),
    "shifted diamonds": ([[1, 1], [1, -1]], [4, 2], [1, -1]),
    "stripes": ([[1, 2]], [3], None),
}


@pytest.mark.parametrize("name", TILES)
def test_tiles_of_a_free_nest(name: str, golden: Callable[[str], None]) -> None:
    rows, sizes, shifts = TILES[name]
    A = te.placeholder((5, n), "int32", name="A")
    B = te.compute((5, n), lambda i, j: A[i, j] * 2, name="B")
    s = te.create_schedule(B.op)
    tiles = s[B].tile_by(B.op.axis, rows, sizes, shifts)
    assert [str(a) for a in tiles] == ["i_tile", "j_tile"][: len(rows)]
    golden(f"{s}\n{lower(s, [A, B])}")
    for size in (1, 7, 8):
        check_schedule(s, [A, B], sizes={"n": size})
    again = Trace.from_json(s.trace.to_json()).apply(te.create_schedule(B.op))
    assert again.trace == s.trace


def test_tiles_can_be_taken_on() -> None:
    case = Stencil(seidel, (9, 9))
    case.stage.tile_by(["t", "i", "j"], [[1, 0, 0], [1, 1, 0], [1, 1, 1]], [2, 3, 4])
    case.stage.split("j", factor=2)
    case.stage.skew("i", by="t", factor=1)
    check_schedule(case.s, case.args)


@pytest.mark.parametrize(
    ("rows", "sizes", "why"),
    [
        ([[0, 0]], [4], "a row of zeros cuts no tiles"),
        ([[1, 0], [0, 1]], [4], "tile_by needs a size and a shift for each of 2 rows"),
        ([[1, 0], [0, 1], [1, 1]], [4, 4, 4], "tile_by takes one to 2 rows, got 3"),
        ([[1, 0]], [0], "a tile size must be at least 1, got 0"),
    ],
)
def test_arguments_of_tile_by(rows: list[list[int]], sizes: list[int], why: str) -> None:
    with pytest.raises(BadArgument) as caught:
        Stencil(seidel, (n, n)).stage.tile_by(["t", "i"], rows, sizes)
    assert caught.value.why == why


def test_tiles_against_a_dependence_are_refused() -> None:
    with pytest.raises(IllegalOrder):
        Stencil(seidel, (n, n)).stage.tile_by(["t", "i"], [[1, 0], [0, 1]], [2, 2])
