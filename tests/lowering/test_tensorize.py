"""Tiles in the generated loops: what is called where, the same results as the reference, and the check of it all."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tensorlang import lower, te
from tensorlang.errors import InternalError
from tensorlang.lowering.kernel import make_kernel
from tensorlang.lowering.pipeline import CPU_PASSES
from tensorlang.lowering.read_back.implemented import check_implemented, parts_of
from tensorlang.lowering.tensorize import Scanned, with_tiles
from tensorlang.schedule.derive import derive
from tensorlang.testing import check_schedule
from tests.intrinsics import tile_matmul
from tests.programs import Case, matmul
from tests.thoroughness import draws

PEELED = """\
kernel main(A: float32[5, 4], B: float32[4, 19], C: float32[5, 19]):
  for i in range(5):
    for j_o in range(2):
      machine fma.f32x8.reset(C[i, 8 * j_o]):
        for C.j_i.init in range(8):
          C[i, 8 * j_o + C.j_i.init] = 0.0
      for k in range(4):
        machine fma.f32x8.update(A[i, k], B[k, 8 * j_o], C[i, 8 * j_o]):
          for C.j_i in range(8):
            C[i, 8 * j_o + C.j_i] = C[i, 8 * j_o + C.j_i] + A[i, k] * B[k, 8 * j_o + C.j_i]
    for j_i in range(3):
      C[i, j_i + 16] = 0.0
    for k in range(4):
      for j_i in range(3):
        C[i, j_i + 16] = C[i, j_i + 16] + A[i, k] * B[k, j_i + 16]
"""


def rows(n: int) -> Case:
    """A matmul whose columns are tensorized by 8."""
    case = matmul(5, n, 4)
    case.s["C"].split("j", factor=8, tail="peel")
    case.s["C"].reorder("i", "j_o", "k", "j_i")
    case.s["C"].tensorize("j_i", te.intrin("fma.f32x8"))
    return case


def test_whole_tiles_are_calls_and_the_remainder_is_loops() -> None:
    s, args = rows(19)
    assert str(lower(s, list(args))) == PEELED
    check_schedule(s, args)


def test_plain_statements_are_taken_over_with_the_indices_of_the_tile() -> None:
    s, args = matmul(4, 16, 3)
    s["C"].split("j", factor=8)
    s["C"].reorder("j_o", "i", "j_i", "k")
    s["C"].tensorize("i", tile_matmul(4, 8, 3, variants=1))
    assert str(lower(s, list(args))) == (
        "kernel main(A: float32[4, 3], B: float32[3, 16], C: float32[4, 16]):\n"
        "  for j_o in range(2):\n"
        "    for i%1 in range(4):\n"
        "      for j%2 in range(8):\n"
        "        C[i%1, 8 * j_o + j%2] = 0.0\n"
        "        for k%3 in range(3):\n"
        "          C[i%1, 8 * j_o + j%2] = C[i%1, 8 * j_o + j%2] + A[i%1, k%3] * B[k%3, 8 * j_o + j%2]\n"
    )


def test_a_call_that_misses_part_of_the_stage_is_found() -> None:
    s, args = rows(19)
    derived = derive(s.state)
    scanned = with_tiles(s.state, derived)
    names = [a.name for a in args if isinstance(a, te.Tensor)]

    def check(broken: Scanned) -> None:
        kernel = make_kernel(s.state, derived, broken, names, "main")
        for _, function in CPU_PASSES:
            kernel = function(kernel)
        check_implemented(kernel, derived.scop, parts_of(kernel))

    check(scanned)
    number, plan = next((k, p) for k, p in scanned.tiles.items() if p.variants == ("update",))
    (part,) = plan.covered
    short = replace(part, inner=tuple(replace(loop, extent=loop.extent - 1) for loop in part.inner))
    with pytest.raises(InternalError, match="the generated code does not run C at"):
        check(replace(scanned, tiles={**scanned.tiles, number: replace(plan, covered=(short,))}))
    with pytest.raises(InternalError, match="runs an instance of C twice"):
        check(replace(scanned, tiles={**scanned.tiles, number: replace(plan, covered=(part, part))}))


ORDERS = st.permutations(["i_i", "j_i", "k_i"])


@settings(max_examples=draws(14, 20))
@given(st.data())
def test_random_tiles_of_a_matmul_agree_with_the_reference(data: st.DataObject) -> None:
    sizes = [data.draw(st.integers(1, 7), label=name) for name in "mnk"]
    tile = [data.draw(st.integers(1, size), label=f"tile of {name}") for size, name in zip(sizes, "mnk")]
    symbolic = data.draw(st.booleans(), label="symbolic")
    shape = [te.var("M"), te.var("N"), te.var("K")] if symbolic else sizes
    s, args = matmul(shape[0], shape[1], shape[2], "int32")
    for axis, factor in zip("ijk", tile):
        s["C"].split(axis, factor=factor, tail="peel")
    outer = data.draw(st.permutations(["i_o", "j_o", "k_o"]), label="outer loops")
    inner = data.draw(ORDERS, label="tile loops")
    s["C"].reorder(*outer, *inner)
    s["C"].tensorize(inner[0], tile_matmul(tile[0], tile[1], tile[2], "int32"))
    known = dict(zip("MNK", sizes)) if symbolic else {}
    check_schedule(s, args, sizes=known)
