"""Random programs under random schedules for blocks and threads: the reference's results, no race, no barrier too many.

Kernels run thread by thread in lockstep, in two orders: copies under way happen as early and as late as they may.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import event, given, note, settings
from hypothesis import strategies as st

from tensorlang import build, lower, te
from tensorlang.errors import InternalError, MissingDependency, ScheduleError, TargetError
from tensorlang.ir import threads
from tensorlang.ir.stmt import Barrier, Kernel, Launch, Seq, Stmt, map_children, walk
from tensorlang.schedule import Schedule
from tensorlang.target.opencl import runtime
from tensorlang.testing.device_traces import device_schedules
from tensorlang.testing.strategies import ProgramCase, programs
from tests.property.test_random_schedules import CASES, part_of

EXAMPLES = max(CASES // 4, 6)


def drawn(data: st.DataObject, most: int = 2) -> tuple[ProgramCase, Schedule, Kernel | None]:
    """A program, a schedule of it, and the kernel; None where the schedule asks for what no GPU runs."""
    case = data.draw(programs(max_stages=most))
    schedule = data.draw(device_schedules(case.outputs))
    note(f"{case.program.text}{schedule.trace.to_python()}")
    try:
        kernel = lower(schedule, case.tensors, target="interpreter").kernel
    except (ScheduleError, TargetError):
        event("refused")
        return case, schedule, None
    launched = any(isinstance(stmt, Launch) for stmt in walk(kernel.body))
    return case, schedule, kernel if launched else None


def outcome(kernel: Kernel, case: ProgramCase, late: bool) -> list[npt.NDArray[Any]]:
    """The outputs of a run, with races detected."""
    outputs = [np.full(wanted.shape, 99, wanted.dtype) for wanted in case.expected()]
    arrays = {t.name: array.copy() for t, array in zip(case.placeholders, case.inputs, strict=True)}
    arrays |= {t.name: array for t, array in zip(case.outputs, outputs, strict=True)}
    threads.run(kernel, {p.name: arrays[p.name] for p in kernel.params}, late=late)
    return outputs


def assert_right(case: ProgramCase, outputs: list[npt.NDArray[Any]], where: str) -> None:
    for tensor, got, wanted in zip(case.outputs, outputs, case.expected(), strict=True):
        np.testing.assert_array_equal(got, wanted, err_msg=f"{tensor.name} {where}")


@pytest.mark.parametrize("part", range(2))
def test_schedules_on_threads_keep_meaning(part: int) -> None:
    @part_of(part)
    @settings(max_examples=EXAMPLES)
    @given(data=st.data())
    def run(data: st.DataObject) -> None:
        case, _, kernel = drawn(data, 2 + part)
        if kernel is not None:
            for late in (False, True):
                assert_right(case, outcome(kernel, case, late), f"with copies as {'late' if late else 'early'}")

    run()


@settings(max_examples=EXAMPLES // 2)
@given(data=st.data())
def test_schedules_on_threads_keep_meaning_on_opencl(data: st.DataObject) -> None:
    try:
        found = runtime.devices()
    except MissingDependency as error:
        pytest.skip(str(error))
    if not found:
        pytest.skip("no OpenCL driver is installed")
    case, schedule, kernel = drawn(data)
    if kernel is not None:
        outputs = [np.full(wanted.shape, 99, wanted.dtype) for wanted in case.expected()]
        build(schedule, case.tensors, target="opencl")(*(a.copy() for a in case.inputs), *outputs)
        assert_right(case, outputs, "on opencl")


def without_barrier(stmt: Stmt, number: int) -> Stmt:
    """A host program whose kernels lack one barrier."""
    left = iter(range(number + 1))

    def visit(s: Stmt) -> Stmt:
        if isinstance(s, Barrier) and next(left, None) == number:
            return Seq(())
        if isinstance(s, Launch):
            return replace(s, kernel=replace(s.kernel, body=visit(s.kernel.body)))
        return map_children(s, visit)

    return visit(stmt)


def barriers(stmt: Stmt) -> Iterator[Barrier]:
    for launch in walk(stmt):
        if isinstance(launch, Launch):
            yield from (s for s in walk(launch.kernel.body) if isinstance(s, Barrier))


def pipelined(trips: int, tiles: tuple[int, int], double: bool, computed: bool) -> tuple[Schedule, tuple[Any, ...]]:
    """C = A B by blocks of 4 x 4, its tiles of A and B kept `tiles` at once, along `trips` steps of 2."""
    k = te.reduce_axis((0, 2 * trips - 1), "k")
    A, B = te.placeholder((8, 2 * trips - 1), name="A"), te.placeholder((2 * trips - 1, 6), name="B")
    C = te.compute((8, 6), lambda i, j: te.sum(A[i, k] * B[k, j], axis=k), name="C")
    if computed:
        P = te.compute(A.shape, lambda i, j: A[i, j] * 2 + 1, name="P")
        C = te.compute((8, 6), lambda i, j: te.sum(P[i, k] * B[k, j], axis=k), name="C")
    s = te.create_schedule(C.op)
    shared = [P if computed else s.cache_read(A, "shared", [C]), s.cache_read(B, "shared", [C])]
    i_o, j_o, i_i, j_i = s[C].tile("i", "j", 4, 4)
    k_o, k_i = s[C].split("k", factor=2)
    s[C].reorder(i_o, j_o, k_o, i_i, j_i, k_i)
    for axis, tag in ((i_o, "blockIdx.y"), (j_o, "blockIdx.x"), (i_i, "threadIdx.y"), (j_i, "threadIdx.x")):
        s[C].bind(axis, tag)
    for stage, stages in zip(shared, tiles, strict=True):
        s[stage].compute_at(s[C], k_o)
        s[stage].set_scope("shared")
        for axis, tag in zip(s[stage].op.axis, ("threadIdx.y", "threadIdx.x"), strict=True):
            s[stage].bind(axis, tag)
        if double:
            s[stage].double_buffer()
        elif stages > 1:
            s[stage].pipeline(stages)
    return s, (A, B, C)


@pytest.mark.sampled(1)
@pytest.mark.covering(1)
@pytest.mark.parametrize("computed", [False, True])
@pytest.mark.parametrize("trips", [1, 2, 7])
def test_pipelines_of_any_depth_and_number_of_trips(trips: int, computed: bool) -> None:
    for tiles in ((1, 2), (3, 2), (5, 4)):
        s, args = pipelined(trips, tiles, double=False, computed=computed)
        assert_same(s, args)
    assert_same(*pipelined(trips, (2, 2), double=True, computed=computed))


@pytest.mark.parametrize("tiles", [(1, 1), (2, 2), (3, 2), (4, 4)])
def test_threads_race_without_any_one_of_the_barriers(tiles: tuple[int, int]) -> None:
    s, args = pipelined(5, tiles, double=False, computed=True)
    kernel = lower(s, args, target="interpreter").kernel
    count = sum(1 for _ in barriers(kernel.body))
    assert count == (2 if tiles == (1, 1) else 1)  # none before the first iteration that computes
    for number in range(count):
        less = replace(kernel, body=without_barrier(kernel.body, number))
        arrays = {t.name: np.zeros([int(e.value) for e in t.shape], np.float32) for t in args}
        with pytest.raises(InternalError, match=r"barrier|before it is written|under way"):
            threads.run(less, arrays, late=True)


def assert_same(s: Schedule, args: tuple[Any, ...]) -> None:
    """The kernel makes the product of its inputs, however late copies come."""
    kernel = lower(s, args, target="interpreter").kernel
    a, b, out = (np.zeros([int(e.value) for e in t.shape], np.float32) for t in args)
    a += np.arange(a.size).reshape(a.shape) % 5
    b += np.arange(b.size).reshape(b.shape) % 3
    first = a * 2 + 1 if "P" in s.program.by_name else a
    for late in (False, True):
        out[:] = 99
        threads.run(kernel, {"A": a, "B": b, "C": out}, late=late)
        np.testing.assert_array_equal(out, first @ b)
