"""Tiles in time and wavefronts: the skews are found, the results are the same, and refusals name a dependence."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tensorlang import build, te
from tensorlang.errors import BadArgument, IllegalOrder, ScheduleError
from tensorlang.schedule import Trace
from tensorlang.testing.check import check_schedule
from tests.stencils import Stencil, jacobi, mirrored, planes, seidel

n = te.var("n")


def fused() -> Stencil:
    """Both halves of a step of jacobi in one band."""
    case = Stencil(jacobi, (n, n), (n, n))
    case.stage.fuse_with("i", case.stage.shift("i_1", 1))
    case.stage.fuse_with("j", case.stage.shift("j_1", 1))
    return case


def test_seidel_needs_the_skews_that_are_known() -> None:
    case = Stencil(seidel, (n, n))
    axes = case.stage.time_tile("t", ["i", "j"], 2, [3, 4])
    assert [str(a) for a in axes] == ["t_tile", "i_tile", "j_tile", "t", "i", "j"]
    assert str(case.s) == "s['seidel'].tile_by(['t', 'i', 'j'], [[1, 0, 0], [1, 1, 0], [1, 1, 1]], [2, 3, 4])\n"
    for size in (3, 8):
        check_schedule(case.s, case.args, sizes={"n": size})


def test_one_skew_less_is_refused() -> None:
    for row in ([0, 1, 1], [1, 0, 1]):
        with pytest.raises(IllegalOrder):
            Stencil(seidel, (n, n)).stage.tile_by(["t", "i", "j"], [[1, 0, 0], [1, 1, 0], row], [2, 3, 4])


def test_two_statements_are_skewed_by_two() -> None:
    case = fused()
    tiles = case.stage.time_tile("t", ["i_fused", "j_fused"], 2, [4, 4])[:3]
    step = case.s.trace.to_json()[-1]
    assert step["rows"] == [[1, 0, 0], [2, 1, 0], [2, 0, 1]]
    wave, inner = case.stage.wavefront(*tiles[:2])
    assert (str(wave), str(inner)) == ("i_fused_tile_s", "t_tile")
    for axis in case.stage.fission("j_fused"):
        case.stage.vectorize(axis)
    for size in (3, 9, 20):
        check_schedule(case.s, case.args, sizes={"n": size})


def test_diamonds_start_side_by_side() -> None:
    case = Stencil(planes, (2, n), steps=7)
    axes = case.stage.time_tile("t", ["i"], 4, [4], "diamond")
    assert case.s.trace.to_json()[-1]["rows"] == [[1, 1], [1, -1]]
    case.stage.wavefront(*axes[:2])
    for size in (3, 16):
        check_schedule(case.s, case.args, sizes={"n": size})


def test_a_parallel_wavefront_equals_the_sequential_run_bit_for_bit() -> None:
    @te.hybrid.script
    def averaged(steps, A):  # type: ignore[no-untyped-def]
        for t in range(steps):  # noqa: B007
            for i in range(1, A.shape[0] - 1):
                for j in range(1, A.shape[1] - 1):
                    A[i, j] = (A[i - 1, j + 1] + A[i, j - 1] + A[i, j] + A[i, j + 1] + A[i + 1, j]) / 5.0
        return A

    A = te.placeholder((65, 70), "float32", name="A")
    B = averaged(9, A)
    s = te.create_schedule(B.op)
    before = build(te.create_schedule(B.op), [A])
    s[B].wavefront(*s[B].time_tile("t", ["i", "j"], 2, [8, 16])[:2])
    after = build(s, [A])
    a = np.random.default_rng(0).random((65, 70)).astype(np.float32)
    b = a.copy()
    before(a)
    after(b)
    assert a.tobytes() == b.tobytes()


def test_a_wavefront_of_points_finds_its_factors() -> None:
    case = Stencil(seidel, (n, n))
    case.stage.wavefront("i", "j")
    assert "skew('j', by='i', factor=2)" in str(case.s)
    check_schedule(case.s, case.args, sizes={"n": 8})


def test_no_skew_tiles_a_mirror() -> None:
    case = Stencil(mirrored, (n,))
    with pytest.raises(IllegalOrder) as caught:
        case.stage.time_tile("t", ["i"], 2, [4])
    error = caught.value
    assert error.asked == "s['mirrored'].time_tile('t', ['i'], 2, [4], 'rectangular')"
    assert error.why == "no skew of i by t points forward along all dependences"
    assert error.witness is not None
    assert error.witness.source is not None
    assert error.witness.sink.point[1] < error.witness.source.point[1]
    assert case.s.trace == Trace()


def test_no_diamond_for_seidel() -> None:
    case = Stencil(seidel, (n, n))
    with pytest.raises(IllegalOrder) as caught:
        case.stage.time_tile("t", ["i", "j"], 2, [4, 4], shape="diamond")
    assert caught.value.why == "no skew by t points forward on both sides of i"
    assert caught.value.witness is not None
    assert caught.value.witness.distance == (0, 1, -1)


def test_a_refused_wavefront_leaves_the_schedule() -> None:
    case = Stencil(mirrored, (n,))
    with pytest.raises(ScheduleError) as caught:
        case.stage.wavefront("t", "i")
    assert caught.value.schedule[0] == "s['mirrored'].skew('i', by='t', factor=1)"
    assert case.s.trace == Trace()


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (("t", ["i", "j"], 2, [4, 4], "round"), "unknown shape 'round'; there are rectangular, diamond"),
        (("t", ["i", "j"], 2, [4]), "time_tile needs a size for each of 3 axes, got 2"),
        (("t", ["j"], 2, [4]), "time_tile takes neighbours, outermost first; the loops are t, i, j"),
        (("t", [], 2, [], "diamond"), "diamonds need a space axis"),
        (("t", ["i"], 0, [4]), "a tile size must be at least 1, got 0"),
    ],
)
def test_arguments(arguments: Any, why: str) -> None:
    with pytest.raises(BadArgument) as caught:
        Stencil(seidel, (n, n)).stage.time_tile(*arguments)
    assert caught.value.why == why


def test_a_wavefront_needs_two_axes() -> None:
    with pytest.raises(BadArgument, match="wavefront needs at least two axes"):
        Stencil(seidel, (n, n)).stage.wavefront("t")
