"""What profiles count: operations exactly, and of what is moved the least that a machine can do with."""

from __future__ import annotations

from typing import Any

import pytest

import tensorlang
from tensorlang import te, topi
from tensorlang.ir.construct import array, indices, load, loop
from tensorlang.ir.stmt import Let, Seq
from tensorlang.profiling.machine import Limit, _with_units
from tensorlang.profiling.profile import LoopTime
from tensorlang.profiling.regions import instrumented
from tensorlang.profiling.runs import Condition, Runs, wanted_by
from tensorlang.profiling.work import Work, work_of
from tensorlang.schedule import Schedule
from tensorlang.target.rates import Rates
from tensorlang.te import Tensor

TARGET = "llvm -num-cores=1"
REGISTERS = 2048
N = 1 << 12
i, j, k, n = indices("i j k n")


def works(s: Schedule, tensors: list[Tensor]) -> list[Work]:
    """The work of the parts of a kernel that have no parts of their own."""
    kernel = tensorlang.lower(s, tensors, target=TARGET).kernel
    regions = instrumented(kernel, {}, 1000).regions
    parents = {region.parent for region in regions}
    return [work_of(r, {}, kernel.streamed) for n, r in enumerate(regions) if n not in parents]


def copy(n: int, **how: Any) -> tuple[Schedule, list[Tensor]]:
    """A row that is copied in vectors."""
    x = te.placeholder((n,), name="x")
    out = te.compute((n,), lambda i: x[i], name="out")
    s: Schedule = te.create_schedule(out.op)
    s[out].vectorize(s[out].split(out.op.axis[0], factor=64)[1])
    return s, [x, out]


def runs(*around: Any) -> float:
    """How often what is inside of all of these runs."""
    found = Runs.of({"n": 10}, wanted_by((), around))
    for one in around:
        found = found.inside(one)
    return found.count


def test_loops_and_conditions_that_depend_on_outer_loops_are_counted() -> None:
    assert runs(loop(i, 0, n, []), loop(j, 0, n, [])) == 100
    assert runs(loop(i, 0, n, []), loop(j, 0, i, [])) == 45
    assert runs(loop(i, 0, n, []), loop(j, i, n, []), loop(k, i, j, [])) == 165
    assert runs(loop(i, 0, n, []), Condition(i < 3), loop(j, 0, 7, [])) == 21
    assert runs(loop(i, 0, n, []), Condition(i < 3, holds=False)) == 7
    assert runs(loop(i, 0, n, []), Let(j, i * 2, Seq(())), loop(k, 0, j, [])) == 90
    assert runs(loop(i, 0, 1000, []), loop(j, 0, i, [])) == pytest.approx(499_500, rel=0.01)
    assert runs(loop(i, 5, 5, []), loop(j, 0, i, [])) == 0


def test_what_data_say_counts_as_one_run_and_as_a_condition_that_holds() -> None:
    data = load(array("data", (4,), "int64"), 0)
    assert runs(loop(i, 0, data, []), loop(j, 0, 3, [])) == 3
    assert runs(loop(i, 0, 4, []), Condition(i < data)) == 4
    assert runs(loop(i, 0, 4, []), Condition(i < data, holds=False)) == 0
    assert runs(loop(i, 0, 4, []), Let(j, data, Seq(())), loop(k, 0, j, [])) == 4


@pytest.mark.parametrize("sizes", [(25, 70, 33), (100, 700, 30)])
def test_operations_of_partial_tiles_are_exact(sizes: tuple[int, int, int]) -> None:
    rows, columns, depth = sizes
    A, B = te.placeholder((rows, depth), name="A"), te.placeholder((depth, columns), name="B")
    C = topi.matmul(A, B)
    assert sum(work.operations for work in works(topi.schedule(C, TARGET), [A, B, C])) == 2 * rows * columns * depth


def test_operations_of_tuples_are_exact() -> None:
    x, r = te.placeholder((4, 100), name="x"), te.reduce_axis((0, 100), "r")
    both = te.comm_reducer(lambda a, b: (a[0] + b[0], a[1] * b[1]), lambda t, u: (te.const(0, t), te.const(1, u)))
    out = te.compute((4,), lambda i: both((x[i, r], x[i, r]), axis=r), name="out")
    (work,) = works(te.create_schedule(out[0].op), [x, *out])
    assert (work.operations, work.touched) == (2 * 4 * 100, 4 * (4 * 100 + 2 * 4))


def test_sums_of_a_tile_stay_in_registers() -> None:
    x, y, k_ = te.placeholder((N,), name="x"), te.placeholder((N,), name="y"), te.reduce_axis((0, N), "k")
    out = te.compute((1,), lambda i: te.sum(x[k_] * y[k_], axis=k_), name="out")

    def loaded(width: int) -> float:
        s: Schedule = te.create_schedule(out.op)
        _, inner = s[out].split(k_, factor=width)
        s.rfactor(out, inner, factor_axis=1)
        s["out.rf"].reorder("k_o", "k_i")
        s["out.rf"].vectorize("k_i")
        return sum(work.loaded(REGISTERS) for work in works(s, [x, y, out]))

    arrays = 4 * 2 * N
    assert arrays <= loaded(64) <= 1.05 * arrays
    assert loaded(1024) >= 1.5 * arrays


@pytest.mark.parametrize(
    ("value", "operations", "cost"),
    [
        (lambda x: x * x + 1, 2, 2),
        (lambda x: x * x, 1, 2),
        (lambda x: (x - 1) * (x - 1) + x, 4, 2),
        (lambda x: (x - 1) * (x - 2) + x, 4, 3),
        (lambda x: x + 1 + x, 2, 2),
        (lambda x: te.exp(x) + 1, 2, 13),
        (lambda x: te.exp(x * x), 2, 14),
        (lambda x: te.abs(x) + te.floor(x), 3, 3),
        (lambda x: te.fma(x, x, x), 1, 2),
    ],
)
def test_additions_may_have_units_of_their_own(value: Any, operations: int, cost: int) -> None:
    x = te.placeholder((N,), name="x")
    out = te.compute((N,), lambda i: value(x[i]), name="out")
    (work,) = works(te.create_schedule(out.op), [x, out])
    assert work.operations == operations * N and work.cost == cost * N


def test_loads_and_stores_are_done_at_once() -> None:
    (work,) = works(*copy(N))
    assert work.loaded(REGISTERS) == 4 * N and work.touched == 8 * N


def test_what_is_written_comes_in_before_and_goes_past_caches_where_it_is_streamed() -> None:
    (work,) = works(*copy(1 << 20))
    assert work.beyond(1 << 14) == pytest.approx(8 << 20)
    past = Work(work.operations, work.cost, work.in_vectors, work.kinds, work.accesses, ("out",))
    assert past.beyond(1 << 14) == pytest.approx(4 << 20)


def test_a_cache_keeps_a_share_of_what_is_a_little_larger() -> None:
    (work,) = works(*copy(1 << 20))
    traffic = [work.beyond(size) / (8 << 20) for size in (12 << 20, 8 << 20, 4 << 20, 1 << 20)]
    assert traffic[0] == 0 and traffic == sorted(traffic)
    assert traffic[1] == pytest.approx(0.453, abs=0.01) and traffic[3] == pytest.approx(1, abs=1e-3)


def test_units_of_several_cores_are_as_many_times_those_of_one_as_were_measured() -> None:
    one = Rates(1, {"clock": 4.0, "fma float32x8": 8.0, "dot int8x64": 4.0, "L1": 200.0, "memory": 30.0})
    two = Rates(2, {"fma float32x8": 12.0, "L1": 390.0, "memory": 40.0})
    both = _with_units(two, one)
    assert both.values == {"fma float32x8": 12.0, "dot int8x64": 6.0, "L1": 390.0, "memory": 40.0}
    assert _with_units(one, one) is one


def test_runs_that_are_too_short_to_tell_them_from_their_neighbours_have_no_share() -> None:
    def share(entries: int) -> float | None:
        return LoopTime(("S",), (), 0, entries, 1e-3, 1.0, 1.0, Limit(1e-3, "compute"), "compute").share

    assert share(1) == share(1000) == 1.0
    assert share(5000) is None


def test_rows_that_a_ring_keeps_are_read_once() -> None:
    size = 512
    x = te.placeholder((size + 2, size), name="x")
    doubled = te.compute((size + 2, size), lambda i, j: x[i, j] * 2.0, name="doubled")
    out = te.compute((size, size), lambda i, j: doubled[i, j] + doubled[i + 1, j] + doubled[i + 2, j], name="out")
    s: Schedule = te.create_schedule(out.op)
    _, inner = s[out].split("i", factor=64)
    s[doubled].compute_at(s[out], inner)
    s[doubled].rolling_buffer()
    moved = sum(work.beyond(1 << 15) for work in works(s, [x, out]))
    assert moved < 4 * size * size * 4  # each row that comes in, and each that goes out
