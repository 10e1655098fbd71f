"""Records survive: other names, another machine, and what is computed element by element before and behind."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tensorlang
from tensorlang import te, topi
from tensorlang.autotune import (
    HistoryMiss,
    LogWriter,
    RecordSkipped,
    Status,
    TuningRecord,
    apply_best,
    apply_history_best,
    create_task,
    find_best,
    read_log,
    task_of,
    tune,
)
from tensorlang.errors import RecordError
from tensorlang.schedule import Schedule, Trace, create_schedule
from tensorlang.te.forms import text_key
from tensorlang.te.operation import Tensor

ELSEWHERE = "llvm -mcpu=haswell"
HERE = "llvm -mcpu=skylake-avx512"
N = 32
RNG = np.random.default_rng(5)


@pytest.fixture(autouse=True)
def silent() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        yield


def product(a: str = "A", b: str = "B", c: str = "C", axes: str = "ijk", turned: bool = False) -> list[Tensor]:
    """C = A B under any names; `turned`: the second factor is declared first."""
    first, second = (te.placeholder((N, N), name=name) for name in ((b, a) if turned else (a, b)))
    A, B = (second, first) if turned else (first, second)
    k = te.reduce_axis((0, N), axes[2])
    names = list(axes[:2])
    C = te.compute((N, N), lambda *at: te.sum(A[at[0], k] * B[k, at[1]], axis=k), name=c, varargs_names=names)
    return [A, B, C]


def in_a_copy(s: Schedule) -> None:
    """Computed in a local copy of each tile, as tuners have it."""
    local = s.cache_write("C", "local")
    _, j_o, i_i, j_i = s["C"].tile("i", "j", 8, 16)
    s["C"].unroll(i_i)
    s["C"].vectorize(j_i)
    s[local].compute_at(s["C"], j_o)
    s[local].reorder("k", "i", "j")
    s[local].vectorize("j")


def in_place(s: Schedule) -> None:
    """Computed in tiles of the output itself."""
    i_o, j_o, i_i, j_i = s["C"].tile("i", "j", 8, 16)
    s["C"].reorder(i_o, j_o, "k", i_i, j_i)
    s["C"].vectorize(j_i)
    s["C"].parallel(i_o)


def sums_outside(s: Schedule) -> None:
    """No loop holds whole elements."""
    s["C"].reorder("k", "i", "j")
    s["C"].vectorize(s["C"].split("j", factor=8)[1])


def with_a_copy_of_a_factor(s: Schedule) -> None:
    """Rows of the first factor are copied for each tile."""
    i_o, *_ = s["C"].tile("i", "j", 8, 16)
    s["A.local"].compute_at(s["C"], i_o) if s.cache_read("A", "local", ["C"]) else None


def record(make: Callable[[Schedule], None], target: str = HERE, tensors: list[Tensor] | None = None) -> TuningRecord:
    """A record of a schedule by hand."""
    task = task_of(tensors or product(), "product", [N], target, threads=1)
    s = create_schedule([t.op for t in task.outputs])
    make(s)
    return TuningRecord(
        task.workload, task.target.to_json(), 1, "by hand", s.trace.to_json(), s.trace.key, {}, Status.OK, (1e-3,),
        time="2026-01-01T00:00:00Z",
    )  # fmt: skip


def outline(trace: Trace) -> list[tuple[str, tuple[object, ...]]]:
    """The steps without names; a copy of the main stage is that stage itself where something follows it."""
    found = []
    for step in trace.steps:
        values = [getattr(step, f.name) for f in fields(step)]  # type: ignore[arg-type]
        found.append((type(step).__name__, tuple(v for v in values if not isinstance(v, str | tuple))))
    return [step for step in found if step[0] not in ("CacheWrite", "SetScope")]


def relu(x: Tensor, name: str = "relu") -> Any:
    return te.compute(x.shape, lambda *i: te.maximum(x(*i), 0.0), name=name)


def check(s: Schedule, tensors: list[Tensor]) -> None:
    """A schedule computes what the program without steps does, here."""
    shapes = [tuple(int(str(e)) for e in t.shape) for t in tensors]
    made = [RNG.standard_normal(shape).astype("float32") for shape in shapes]
    plain = [array.copy() for array in made]
    tensorlang.build(s, tensors, "interpreter")(*made)
    tensorlang.build(create_schedule(tensors[-1].op), tensors, "llvm")(*plain)
    np.testing.assert_allclose(made[-1], plain[-1], rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("operator", ["matmul", "conv2d"])
def test_tuned_under_other_names_on_another_machine_and_applied_behind_a_relu(operator: str, tmp_path: Path) -> None:
    sizes = (24, 40, 16) if operator == "matmul" else (1, 4, 8, 8, 8, 3)
    task, log = create_task(operator, sizes, ELSEWHERE, threads=1), tmp_path / "log"
    tune(task, trials=2, log=log)
    x, w = (te.placeholder(t.shape, name=name) for t, name in zip(task.inputs, ("x", "w"), strict=True))
    y = topi.matmul(x, w) if operator == "matmul" else topi.conv2d(x, w, padding="SAME")
    z = relu(y, "positive")
    with pytest.raises(
        RecordError, match=r"same main group\): it has no positive, -mcpu haswell.*; other_targets=True"
    ):
        apply_best(log, [x, w, z], HERE, 1)
    s = apply_best(log, [x, w, z], HERE, 1, other_targets=True)
    assert s.origin.endswith(f"record of {task.workload}, as an anchor; measured for {ELSEWHERE} with 1 thread")
    assert outline(s.trace) == outline(Trace.from_json(find_best(log, task).trace))
    arrays = [RNG.standard_normal([int(str(e)) for e in t.shape]).astype("float32") for t in (x, w, z)]
    tensorlang.build(s, [x, w, z], "llvm")(*arrays)
    wanted = np.empty_like(arrays[2])
    topi.OPERATORS[operator].numpy(*arrays[:2], wanted)
    np.testing.assert_allclose(arrays[2], np.maximum(wanted, 0), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("make", [in_a_copy, in_place, sums_outside, with_a_copy_of_a_factor])
def test_names_and_order_of_declaration_do_not_count(make: Callable[[Schedule], None]) -> None:
    tensors = product("B", "weights.T", "A", "qij", turned=True)
    s = apply_best([record(make)], tensors, HERE, 1)
    assert s.origin == "the record of 2026-01-01T00:00:00Z: 0.1 GFLOP/s, 1 ms (by hand)"
    there = replace(record(make), trace=s.trace.to_json(), workload=task_of(tensors, "it", (), HERE, 1).workload)
    assert apply_best([there], product(), HERE, 1).trace.key == record(make).trace_key
    check(s, tensors)


@pytest.mark.parametrize(
    ("make", "line"),
    [
        (in_a_copy, "s['y'].compute_at(s['relu'], 'i1_o')"),
        (in_place, "s['relu'].reverse_compute_at(s['y'], 'j_o')"),
        (sums_outside, "s['relu'].vectorize("),
        (with_a_copy_of_a_factor, "s['x.local'].compute_at(s['y'], 'i_o')"),
    ],
)
def test_what_follows_is_computed_in_the_tile(make: Callable[[Schedule], None], line: str) -> None:
    x, w, y = product("x", "w", "y")
    bias = te.placeholder((N,), name="bias")
    z = relu(te.compute((N, N), lambda i, j: y[i, j] + bias[j], name="biased"))
    s = apply_best([record(make)], [x, w, bias, z], HERE, 1)
    assert "as an anchor" in s.origin and line in str(s) and "s['biased'].compute_inline()" in str(s)
    check(s, [x, w, bias, z])


def test_what_precedes_is_inlined_into_a_copy_and_else_stored() -> None:
    def halved() -> list[Tensor]:
        x, w = te.placeholder((N, N), name="x"), te.placeholder((N, N), name="w")
        half = te.compute((N, N), lambda i, j: x[i, j] * 0.5, name="half")
        k = te.reduce_axis((0, N), "k")
        return [x, w, te.compute((N, N), lambda i, j: te.sum(half[i, k] * w[k, j], axis=k), name="y")]

    copied, stored = (apply_best([record(make)], halved(), HERE, 1) for make in (with_a_copy_of_a_factor, in_place))
    assert "s['half'].compute_inline()" in str(copied) and "s.cache_read('half', 'local', ['y'])" in str(copied)
    assert "s['half'].vectorize(" in str(stored)
    for make in (with_a_copy_of_a_factor, in_place):
        tensors = halved()
        check(apply_best([record(make)], tensors, HERE, 1), tensors)


def test_the_largest_part_wins_and_the_whole_before_parts() -> None:
    x, w, y = product("x", "w", "y")
    z = relu(y)
    last = te.compute((N, N), lambda i, j: z[i, j] + 1.0, name="last")

    def with_relu(s: Schedule) -> None:
        s["relu"].split("i0", factor=4)
        s["relu"].vectorize("i1")

    both = [record(in_place), record(with_relu, tensors=[x, w, z])]
    assert "split('i0', factor=4)" in str(apply_best(both, [x, w, last], HERE, 1))
    assert "as an anchor" not in apply_best(both, [x, w, z], HERE, 1).origin


def test_everything_that_looks_records_up_takes_anchors(tmp_path: Path) -> None:
    with LogWriter(tmp_path / "log") as writer:
        writer.append(record(in_a_copy))
    x, w, y = product("x", "w", "y")
    z, target = relu(y), tensorlang.target.parse(f"{HERE} -num-cores=1")
    with apply_history_best(tmp_path / "log"):
        assert "as an anchor" in topi.schedule(z, target).origin
        with target:
            assert "as an anchor" in tensorlang.autotune.apply_best(tmp_path / "log", [x, w, z]).origin
    with (
        apply_history_best(tmp_path / "log", miss="error"),
        pytest.raises(RecordError, match="-mcpu skylake-avx512, not"),
    ):
        topi.schedule(z, f"{ELSEWHERE} -num-cores=1")
    with apply_history_best(tmp_path / "log", miss="error", other_targets=True):
        assert "measured for llvm -mcpu=skylake" in topi.schedule(z, f"{ELSEWHERE} -num-cores=1").origin


def test_a_program_with_another_reduction_takes_no_part_of_it() -> None:
    x, w, y = product("x", "w", "y")
    k = te.reduce_axis((0, N), "k")
    total = te.compute((N,), lambda i: te.sum(y[i, k], axis=k), name="total")
    with pytest.raises(RecordError, match=r"\(same main group\): it has no total"):
        apply_best([record(in_place)], [x, w, total], HERE, 1)
    with apply_history_best([record(in_place)]), pytest.warns(HistoryMiss):
        topi.schedule(total, f"{HERE} -num-cores=1")


def test_an_anchor_that_is_refused_is_skipped() -> None:
    illegal = replace(record(in_place), trace=[{"step": "parallel", "stage": "C", "axis": "k"}], seconds=(1e-6,))
    x, w, y = product("x", "w", "y")
    with pytest.warns(RecordSkipped, match=r"as an anchor.* is refused: .* but y\[0, 0\] is updated"):
        s = apply_best([illegal, record(in_place)], [x, w, relu(y)], HERE, 1)
    assert "reverse_compute_at" in str(s)


def test_records_of_schema_2_are_known_by_their_forms() -> None:
    data = record(in_a_copy).to_json() | {"schema": 2}
    text = data["workload"]["program"]
    old = TuningRecord.from_json(data | {"workload": data["workload"] | {"key": text_key(text)}})
    assert old == record(in_a_copy)
    damaged = TuningRecord.from_json(data | {"workload": data["workload"] | {"key": "another"}})
    assert damaged.workload.key == "another"


def test_records_without_a_text_serve_their_own_names_alone() -> None:
    found = record(in_a_copy)
    old = replace(found, workload=replace(found.workload, key=text_key(found.workload.program), program=""))
    assert apply_best([old], product(), HERE, 1).trace.key == found.trace_key
    with pytest.raises(RecordError, match="has no record of"):
        apply_best([old], product("x", "w", "y"), HERE, 1)


@pytest.mark.parametrize(
    ("wanted", "said"),
    [
        (
            lambda: create_task("matmul", (N, N, 64), HERE, 1),
            r"A is float32\[32, 64\] there|A is float32\[32, 32\] there",
        ),
        (lambda: create_task("matmul", (N, N, N, "float64"), HERE, 1), r"A is float32\[32, 32\] there, not float64"),
        (lambda: create_task("matmul", (N, N, N), HERE, 2), r"\(1 thread, not 2\); other_targets=True takes it"),
        (lambda: create_task("matmul", (N, N, N), "interpreter", 1), r"\(kind llvm, not interpreter[^;]*$"),
    ],
)
def test_a_miss_says_in_what_the_nearest_differs(wanted: Callable[[], Any], said: str, tmp_path: Path) -> None:
    with LogWriter(tmp_path / "log") as writer:
        writer.append(record(in_place))
    with pytest.raises(RecordError, match=said):
        find_best(tmp_path / "log", wanted())
    assert len(read_log(tmp_path / "log").records) == 1


def test_a_search_goes_on_under_other_names(tmp_path: Path) -> None:
    log = tmp_path / "log"
    first = tune(task_of(product(), "product", [N], HERE, threads=1), trials=3, log=log)
    again = task_of(product("x", "w", "y", "pqr"), "product", [N], HERE, threads=1)
    second = tune(again, trials=4, log=log)
    worked = [r for r in first.records if r.ok]
    assert second.resumed == len(worked) and len(second.records) == 4
    assert len({r.trace_key for r in second.records}) == 4
    assert {step["stage"] for r in second.records for step in r.trace if "stage" in step} == {"y", "y.local"}
    assert len(read_log(log).records) == len(first.records) + 4 - len(worked)
