"""Parallel loops over fused axes: split again where their bodies divide, and the same iterations in the same order."""

from __future__ import annotations

import numpy as np
import pytest

from tensorlang.ir.construct import array, indices, loop, store
from tensorlang.ir.expr import Binary, Expr, walk
from tensorlang.ir.interpret import run
from tensorlang.ir.loops import STRIDED
from tensorlang.ir.stmt import For, Kernel, LoopKind, stmt_exprs
from tensorlang.ir.stmt import walk as statements
from tensorlang.ir.verify import verify
from tensorlang.lowering.passes.unfuse import unfuse

f, g = indices("f g")
SERIAL, PARALLEL = LoopKind.SERIAL, LoopKind.PARALLEL


def _kernel(shape: tuple[int, ...], place: tuple[Expr, ...], extent: int, kind: LoopKind = PARALLEL) -> Kernel:
    out = array("out", shape, "int64")
    return Kernel("fill", (out,), (), ("out",), loop(f, 0, extent, store(out, place, f * 3), kind))


def _loops(kernel: Kernel) -> list[int]:
    return [int(str(s.upper)) for s in statements(kernel.body) if isinstance(s, For) and s.kind is PARALLEL]


def _divides(kernel: Kernel) -> bool:
    divisions = ("floordiv", "floormod")
    return any(isinstance(n, Binary) and n.op in divisions for e in stmt_exprs(kernel.body) for n in walk(e))


@pytest.mark.parametrize(
    ("kernel", "loops"),
    [
        (_kernel((5, 7), (f // 7, f % 7), 35), [5, 7]),
        (_kernel((3, 4, 5), (f // 20, f // 5 % 4, f % 5), 60), [3, 4, 5]),
        (_kernel((5, 7), (f // 7, f % 7), 35, SERIAL), []),
        (_kernel((6, 7), (f // 7, f % 7), 36), [36]),  # the last row is not whole
        (_kernel((35,), (f,), 35), [35]),
        (_kernel((1, 7), (f // 7, f % 7), 7), [7]),
    ],
)
def test_which_loops_are_split(kernel: Kernel, loops: list[int]) -> None:
    split = unfuse(kernel)
    verify(split)
    assert _loops(split) == loops
    assert len(loops) < 2 or not _divides(split)
    before, after = np.zeros((2, *(int(str(e)) for e in kernel.params[0].shape)), np.int64)
    run(kernel, {"out": before})
    run(split, {"out": after})
    np.testing.assert_array_equal(before, after)


def test_loops_of_other_beginnings_and_of_threads_in_turn_stay() -> None:
    out = array("out", (5, 7), "int64")
    body = store(out, (f // 7, f % 7), f)
    late = Kernel("late", (out,), (), ("out",), loop(f, 7, 35, body, PARALLEL))
    assert unfuse(late) == late
    turns = For(f, late.body.lower, late.body.upper, PARALLEL, body, "f", "", ((STRIDED, 1),))  # type: ignore[union-attr]
    dealt = Kernel("dealt", (out,), (), ("out",), turns)
    assert unfuse(dealt) == dealt
