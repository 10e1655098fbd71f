"""Axis objects mean themselves: those of another stage, schedule or program are refused; a name means its stage's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tensorlang import te
from tensorlang.errors import BadArgument
from tensorlang.schedule import Schedule
from tensorlang.testing.check import check_schedule


def chain() -> tuple[Schedule, Any, Any, Any]:
    """B = A + 1, C = 2 B, both over i and j."""
    A = te.placeholder((20, 12), name="A")
    B = te.compute((20, 12), lambda i, j: A[i, j] + 1, name="B")
    C = te.compute((20, 12), lambda i, j: B[i, j] * 2, name="C")
    return te.create_schedule(C.op), A, B, C


STEPS: dict[str, Callable[[Any, Any, Any], Any]] = {
    "split": lambda stage, i, j: stage.split(i, factor=2),
    "fuse": lambda stage, i, j: stage.fuse(i, j),
    "reorder": lambda stage, i, j: stage.reorder(j, i),
    "reorder in a list": lambda stage, i, j: stage.reorder([j, i]),
    "tile": lambda stage, i, j: stage.tile(i, j, 2, 2),
    "skew": lambda stage, i, j: stage.skew(j, by=i),
    "shift": lambda stage, i, j: stage.shift(i, 1),
    "reverse": lambda stage, i, j: stage.reverse(i),
    "peel": lambda stage, i, j: stage.peel(i, first=1),
    "partition": lambda stage, i, j: stage.partition(i, 3),
    "affine": lambda stage, i, j: stage.affine([i, j], [[1, 0], [0, 1]]),
    "tile_by": lambda stage, i, j: stage.tile_by([i, j], [[1, 0], [0, 1]], [2, 2]),
    "time_tile": lambda stage, i, j: stage.time_tile(i, [j], 2, [2]),
    "wavefront": lambda stage, i, j: stage.wavefront(i, j),
    "vectorize": lambda stage, i, j: stage.vectorize(j),
    "unroll": lambda stage, i, j: stage.unroll(j),
    "parallel": lambda stage, i, j: stage.parallel(i),
    "bind": lambda stage, i, j: stage.bind(i, te.thread_axis("threadIdx.x")),
    "pragma": lambda stage, i, j: stage.pragma(i, "unroll_explicit", True),
    "prefetch": lambda stage, i, j: stage.prefetch(stage.op.input_tensors[0], i, 1),
    "pad": lambda stage, i, j: stage.pad(i, 8),
}


@pytest.mark.parametrize("step", STEPS)
def test_axes_of_another_stage_are_refused(step: str) -> None:
    s, _, B, C = chain()
    wanted = r"[ij] is an axis of C, and one of B is wanted: i, j, as an object of s\['B'\], or by name"
    with pytest.raises(BadArgument, match=wanted):
        STEPS[step](s[B], *C.op.axis)
    with pytest.raises(BadArgument, match=wanted):
        STEPS[step](s[B], *s[C].leaf_iter_vars)
    assert not s.trace.steps
    other = chain()
    with pytest.raises(BadArgument, match=r"[ij] is no axis of s, and one of B is wanted"):
        STEPS[step](s[B], *other[2].op.axis)
    with pytest.raises(BadArgument, match=r"[ij] is no axis of s, and one of B is wanted"):
        STEPS[step](s[B], *other[0][other[2]].leaf_iter_vars)


def test_axes_that_are_made_belong_to_their_stage() -> None:
    s, _, B, C = chain()
    _, inner = s[C].split(C.op.axis[0], factor=5)
    s[B].split(B.op.axis[0], factor=8)
    with pytest.raises(BadArgument, match="i_i is an axis of C"):
        s[B].split(inner, factor=2)
    s[B].split("i_i", factor=2)


def test_a_place_is_an_axis_of_the_stage_that_is_named() -> None:
    s, A, B, C = chain()
    with pytest.raises(BadArgument, match="i is an axis of B, and one of C is wanted"):
        s[B].compute_at(s[C], B.op.axis[0])
    s[B].compute_at(s[C], C.op.axis[0])
    check_schedule(s, [A, C])


def test_both_loops_that_are_fused_are_axes_of_their_stages() -> None:
    s, A, B, C = chain()
    with pytest.raises(BadArgument, match="i is an axis of C, and one of B is wanted"):
        s[B].fuse_with(C.op.axis[0], B.op.axis[0], stage=s[C])
    made = s[B].fuse_with(B.op.axis[0], C.op.axis[0], stage=s[C])
    s[made_stage(s)].parallel(made)
    s[C].reorder(*C.op.axis) if "C" in s.program.by_name else None
    check_schedule(s, [A, C])


def made_stage(s: Schedule) -> str:
    return next(stage.name for stage in s.stages if stage.leaf_iter_vars)


def test_stages_that_were_made_from_another_take_its_axes() -> None:
    A = te.placeholder((16, 24), name="A")
    k = te.reduce_axis((0, 24), "k")
    B = te.compute((16,), lambda i: te.sum(A[i, k], axis=k), name="B")
    s = te.create_schedule(B.op)
    local = s.cache_write(B, "local")
    outer, _ = s[B].split(B.op.axis[0], factor=4)
    s[local].compute_at(s[B], outer)
    s[local].split(k, factor=8)
    s[local].reorder(*local.op.axis)
    check_schedule(s, [A, B])
    s = te.create_schedule(B.op)
    _, k_i = s[B].split(k, factor=8)
    parts = s.rfactor(B, k_i)
    s[parts].reorder(*parts.op.axis)
    s[B].parallel(s[B].op.axis[0])
    check_schedule(s, [A, B])
    with pytest.raises(BadArgument, match="i is no axis of s, and one of B is wanted"):
        s.rfactor(B, chain()[2].op.axis[0])


def test_an_axis_may_stand_in_several_operations() -> None:
    A = te.placeholder((16, 24), name="A")
    k = te.reduce_axis((0, 24), "k")
    B = te.compute((16,), lambda i: te.sum(A[i, k], axis=k), name="B")
    C = te.compute((16,), lambda i: te.max(A[i, k] + B[i], axis=k), name="C")
    s = te.create_schedule(C.op)
    for stage in (B, C):
        s[stage].split(k, factor=8)
    check_schedule(s, [A, C])


def test_axes_stay_valid_where_their_steps_are_replayed() -> None:
    first, A, _, C = chain()
    outer, inner = first[C].split(C.op.axis[0], factor=5)
    second = te.create_schedule(C.op)
    second.replay(first.trace)
    second[C].reorder(inner, outer)
    check_schedule(second, [A, C])


def test_stages_of_another_schedule_are_refused() -> None:
    s, _, B, C = chain()
    other = chain()[0]
    with pytest.raises(BadArgument, match="C is a stage of another schedule"):
        s[B].compute_at(other[C.op.name], "i")


def test_operations_of_another_program_are_refused() -> None:
    s, _, B, _ = chain()
    other = chain()[2]
    with pytest.raises(BadArgument, match="this B is an operation of another program; 'B' names that of this schedule"):
        s[other].split("i", factor=2)
    with pytest.raises(BadArgument, match="this B is an operation of another program; 'B' names that of this schedule"):
        s.cache_write(other, "local")
    s["B"].split("i", factor=2)
    copy = s.cache_write(B, "local")
    s[B].op.input_tensors[0].op.name
    s[s[B].op.input_tensors[0]].compute_root()
    s[copy].compute_at(s[B], "i_o")
    s[copy.op].split("j", factor=3)
    s[s.outputs[0]].parallel("i")
