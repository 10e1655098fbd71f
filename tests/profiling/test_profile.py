"""Profiles: times of parts add up, what binds textbook kernels, what would help and that it does, and traces."""

from __future__ import annotations

import json
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

import tensorlang
from tensorlang import te, topi
from tensorlang.cli.main import tensorlang as command
from tensorlang.errors import ArgumentError, TargetError
from tensorlang.profiling import Machine, Profile, machine, profile
from tensorlang.profiling.counters import Counters
from tensorlang.runtime.executable import Executable
from tensorlang.schedule import Schedule
from tensorlang.target.detect import host_cpu
from tensorlang.target.rates import Rates

pytestmark = pytest.mark.skipif(host_cpu().architecture != "x86_64", reason="the clock is that of x86-64")
TARGET = "llvm -num-cores=1"
CACHES = [("L1", 2.0**15), ("L2", 2.0**19), ("L3", 2.0**24)]


def known(**rates: float) -> Machine:
    """A machine that everybody knows, slower than any by as much as is needed to bind."""
    usual = {"fma float32x8": 1e3, "L1": 1e4, "L2": 1e4, "L3": 1e4, "memory": 1e4}
    return Machine(Rates(1, usual | rates), CACHES)


def built(s: Schedule, tensors: list[te.Tensor], target: str = TARGET) -> Executable:
    made: Executable = tensorlang.build(s, tensors, target=target)
    return made


def arrays(*tensors: te.Tensor) -> list[Any]:
    """Arguments with numbers in them."""
    rng = np.random.default_rng(0)
    return [rng.integers(0, 8, [int(n) for n in t.shape]).astype(t.dtype) for t in tensors]


def row(n: int, body: Callable[..., Any], width: int = 256, **more: Any) -> tuple[Schedule, te.Tensor]:
    """A stage over a row, in vectors."""
    out = te.compute((n,), body, name="out", **more)
    s: Schedule = te.create_schedule(out.op)
    _, inner = s[out].split(out.op.axis[0], factor=width)
    s[out].vectorize(inner)
    return s, out


def chain(n: int = 96) -> tuple[Schedule, list[te.Tensor]]:
    """Two products, and what is made of them."""
    A, B = te.placeholder((n, n), name="A"), te.placeholder((n, n), name="B")
    k, m = te.reduce_axis((0, n), "k"), te.reduce_axis((0, n), "m")
    C = te.compute((n, n), lambda i, j: te.sum(A[i, k] * B[k, j], axis=k), name="C")
    D = te.compute((n, n), lambda i, j: te.sum(C[i, m] * B[m, j], axis=m), name="D")
    E = te.compute((n, n), lambda i, j: te.exp(D[i, j]), name="E")
    s: Schedule = te.create_schedule(E.op)
    for stage, axis in ((C, k), (D, m)):
        i, j = stage.op.axis
        s[stage].reorder(i, axis, j)
        s[stage].vectorize(j)
    s[E].vectorize(E.op.axis[1])
    return s, [A, B, E]


def test_times_of_parts_add_up_and_results_are_those_of_a_call() -> None:
    s, tensors = chain()
    f, args = built(s, tensors), arrays(*tensors)
    f(*args)
    wanted = args[-1].copy()
    found = profile(f, args, machine=known())
    np.testing.assert_array_equal(args[-1], wanted)
    assert [p.stages for p in found.parts if p.limit is not None] == [("C",), ("D",), ("E",)]
    parts = sum(p.seconds for p in found.parts if p.limit is not None)
    assert parts + found.rest + found.call == pytest.approx(found.instrumented, rel=0.001)
    assert 0 < found.call + found.rest < 0.2 * parts
    operations = [p.operations for p in found.parts if p.limit is not None]
    assert operations == [2 * 96**3, 2 * 96**3, 96**2]
    assert found.parts[-1].bytes == 2 * 4 * 96**2
    assert "bound by" in str(found) and found.to_json()["parts"][0]["gflops"] > 0


def test_threads_and_the_parts_inside_of_their_loop(tmp_path: Path) -> None:
    A = te.placeholder((8, 8192), name="A")
    B = te.compute((8, 8192), lambda i, j: te.exp(A[i, j]), name="B")
    C = te.compute((8, 8192), lambda i, j: B[i, j] * B[i, 8191 - j], name="C")
    s: Schedule = te.create_schedule(C.op)
    s[C].parallel("i")
    s[B].compute_at(s[C], "i")
    s[B].vectorize("j")
    f = built(s, [A, C], "llvm")
    found = profile(f, arrays(A, C), machine=known())
    assert [(p.stages, p.loops) for p in found.parts[-2:]] == [(("B",), ("i",)), (("C",), ("i",))]
    assert found.threads >= 1 and found.busy is not None and 0 < found.busy <= 1
    found.save_trace(tmp_path / "trace.json")
    events = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    slices = [e for e in events if e["ph"] == "X"]
    assert {e["name"] for e in slices} == {"B + C", "B", "C"}
    assert sum(e["name"] == "B" for e in slices) == 8
    assert all(e["dur"] >= 0 and {"ts", "pid", "tid", "args"} <= e.keys() for e in slices)
    named = {e["tid"] for e in events if e["name"] == "thread_name"}
    assert {e["tid"] for e in slices} <= named


N = 1 << 14
x, y = te.placeholder((N,), name="x"), te.placeholder((N,), name="y")
big = te.placeholder((1 << 23,), name="big")
where = te.placeholder((N,), "int32", name="where")
TEXTBOOK: dict[str, tuple[Callable[[], tuple[Schedule, te.Tensor]], list[te.Tensor], dict[str, float], str]] = {
    "copy from L2": (lambda: row(N, lambda i: x[i]), [x], {"L2": 1e-2}, "L2"),
    "triad from L2": (lambda: row(N, lambda i: x[i] + 2 * y[i]), [x, y], {"L2": 1e-2}, "L2"),
    "copy from L3": (lambda: row(1 << 18, lambda i: big[i]), [big], {"L3": 1e-2}, "L3"),
    "copy from memory": (lambda: row(1 << 22, lambda i: big[i]), [big], {"memory": 1e-1}, "memory"),
    "polynomial": (lambda: row(N, lambda i: (x[i] * x[i] + 2) * x[i] + 1), [x], {"fma float32x8": 1e-4}, "compute"),
    "exp": (lambda: row(N, lambda i: te.exp(x[i])), [x], {"fma float32x8": 1e-3}, "compute"),
    "reads of L1": (lambda: row(256, lambda i: x[i] + x[i + 1]), [x], {"L1": 1e-3}, "L1"),
    "gather": (lambda: row(N, lambda i: x[where[i]]), [x, where], {}, "latency"),
}


@pytest.mark.parametrize("kernel", TEXTBOOK)
def test_what_binds_textbook_kernels(kernel: str) -> None:
    make, inputs, rates, binds = TEXTBOOK[kernel]
    s, out = make()
    found = profile(built(s, [*inputs, out]), arrays(*inputs, out), repeat=1, machine=known(**rates))
    (part,) = found.parts
    assert part.binds == binds


def test_a_product_in_tiles_is_bound_by_arithmetic_and_a_plain_one_by_what_it_waits_for() -> None:
    A, B = te.placeholder((128, 128), name="A"), te.placeholder((128, 128), name="B")
    (C,) = (topi.matmul(A, B),)
    slow = {"fma float32x8": 1e-1}
    tiled = profile(built(topi.schedule([C], TARGET), [A, B, C]), arrays(A, B, C), machine=known(**slow))
    dearest = max((p for p in tiled.parts if p.limit is not None), key=lambda p: p.seconds)
    assert dearest.binds == "compute"
    plain = profile(built(te.create_schedule(C.op), [A, B, C]), arrays(A, B, C), machine=known())
    assert plain.parts[0].binds == "latency"
    assert any("is scalar" in one.problem for one in plain.advice)
    assert not any("is scalar" in one.problem for one in tiled.advice)


def advice(s: Schedule, tensors: list[te.Tensor], target: str = TARGET) -> dict[str, str]:
    """The problems of a kernel, by their first words, with the steps that would help; its loops alone tell as much."""
    f = built(s, tensors, target)
    found = profile(f, arrays(*tensors), repeat=1, machine=known())
    assert {(one.problem, one.step) for one in found.advice} <= {(one.problem, one.step) for one in f.warnings()}
    return {one.problem.split("(")[0]: one.step for one in found.advice}


def test_a_scalar_loop_is_told_and_gone_after_its_step() -> None:
    x_ = te.placeholder((1 << 16,), name="x")
    k = te.reduce_axis((0, 1 << 16), "k")
    out = te.compute((1,), lambda i: te.sum(x_[k], axis=k), name="out")
    s: Schedule = te.create_schedule(out.op)
    (problem,) = advice(s, [x_, out])
    assert problem == "the reduction over k is not split into partial results"
    exec(advice(s, [x_, out])[problem], {"s": s})
    assert not any("split" in other or "scalar" in other for other in advice(s, [x_, out]))


def test_a_reduction_of_a_tuple_is_one_part_and_told_as_others_are() -> None:
    n = 1 << 14
    x_, k = te.placeholder((4, n), name="x"), te.reduce_axis((0, n), "k")
    both = te.comm_reducer(
        lambda a, b: (te.maximum(a[0], b[0]), a[1] + b[1]), lambda t, u: (te.min_value(t), te.const(0, u)), name="both"
    )
    out = te.compute((4,), lambda i: both((x_[i, k], x_[i, k]), axis=k), name="out")
    s: Schedule = te.create_schedule(out[0].op)
    f = built(s, [x_, *out])
    assert [part.name for part in profile(f, arrays(x_), machine=known()).parts if part.limit] == ["out"]
    (told,) = f.warnings()
    assert (told.stage, told.problem) == ("out", "the reduction over k is not split into partial results")
    exec(told.step, {"s": s})
    assert [one.problem for one in built(s, [x_, *out]).warnings() if one.stage == "out.rf"] == []


def test_no_vectors_are_proposed_of_a_loop_that_another_stage_is_computed_in(recwarn: pytest.WarningsRecorder) -> None:
    x_ = te.placeholder((4096,), name="x")
    inner = te.compute((4096,), lambda i: x_[i] + 1, name="inner")
    out = te.compute((4096,), lambda i: te.exp(inner[i]), name="out")
    s: Schedule = te.create_schedule(out.op)
    s[inner].compute_at(s[out], "i")
    found = s.explain(target=TARGET).warnings
    assert found is not None
    told = [(one.stage, "is scalar" in one.problem, "s['out']" in one.step) for one in found]
    assert told == [("out", True, False)]
    assert list(recwarn) == []


def test_explain_warns_without_a_build() -> None:
    A, B = te.placeholder((64, 64), name="A"), te.placeholder((64, 64), name="B")
    C = topi.matmul(A, B)
    by_hand: Schedule = te.create_schedule(C.op)
    found = by_hand.explain(target=TARGET)
    assert found.warnings == built(by_hand, [A, B, C]).warnings() and "is scalar" in found.warnings[0].problem
    assert str(found).endswith(f"warnings\n  {found.warnings[0]}\n") and "is scalar" in found._repr_html_()
    made = topi.schedule(C, TARGET)
    assert str(made.explain()).endswith("warnings\n  none\n")
    assert made.explain(target="interpreter").warnings is None


def test_a_gather_is_told_and_gone_in_another_order() -> None:
    A = te.placeholder((64, 64), name="A")
    T = te.compute((64, 64), lambda i, j: A[j, i] + 1, name="T")
    s: Schedule = te.create_schedule(T.op)
    s[T].vectorize("j")
    assert advice(s, [A, T])["a vector reads A 64 elements apart "].startswith("vectorize an axis that A has last")
    other: Schedule = te.create_schedule(T.op)
    other[T].reorder("j", "i")
    other[T].vectorize("i")
    assert not any("reads A" in problem for problem in advice(other, [A, T]))


def test_what_is_computed_again_is_told_and_gone_after_its_step() -> None:
    A = te.placeholder((65, 64), name="A")
    B = te.compute((65, 64), lambda i, j: te.exp(A[i, j]), name="B")
    C = te.compute((64, 64), lambda i, j: B[i, j] + B[i + 1, j], name="C")
    s: Schedule = te.create_schedule(C.op)
    s[B].compute_at(s[C], "i")
    step = advice(s, [A, C])["every element is computed 2.0 times"]
    exec(step, {"s": s})
    assert not any("is computed" in problem for problem in advice(s, [A, C]))


def test_one_thread_of_several_is_told_and_gone_after_its_step(monkeypatch: pytest.MonkeyPatch) -> None:
    from tensorlang.profiling import advice as room

    monkeypatch.setattr(room, "available_cores", lambda: 2)
    A = te.placeholder((256, 1024), name="A")
    B = te.compute((256, 1024), lambda i, j: te.exp(A[i, j]), name="B")
    s: Schedule = te.create_schedule(B.op)
    s[B].vectorize("j")
    target = "llvm -num-cores=2"
    assert advice(s, [A, B], target)["runs on one of 2 threads"] == "s['B'].parallel('i')"
    s[B].parallel("i")
    assert "runs on one of 2 threads" not in advice(s, [A, B], target)


def test_an_array_of_a_tile_that_no_second_cache_holds_is_told() -> None:
    A = te.placeholder((4, 1 << 21), name="A")
    B = te.compute((4, 1 << 21), lambda i, j: A[i, j] + 1, name="B")
    C = te.compute((4, 1 << 21), lambda i, j: B[i, j] * B[i, (1 << 21) - 1 - j], name="C")
    s: Schedule = te.create_schedule(C.op)
    s[B].compute_at(s[C], "i")
    s[C].vectorize("j")
    s[B].vectorize("j")
    problems = advice(s, [A, C])
    assert any("exceed the second cache" in problem for problem in problems)
    s[B].compute_inline()
    assert not any("exceed the second cache" in problem for problem in advice(s, [A, C]))


def test_sums_in_narrow_floats_are_told_and_gone_when_they_are_wide() -> None:
    a, b = (te.placeholder((64, 64), "bfloat16", name=name) for name in "ab")
    k = te.reduce_axis((0, 64), "k")
    own = te.compute((64, 64), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), name="own")
    for c, told in ((own, True), (topi.matmul(a, b), False), (topi.matmul(a, b, out_dtype="float32"), False)):
        s = topi.schedule(c, "llvm -num-cores=1")
        problems = advice(s, [a, b, c], "llvm -num-cores=1")
        assert ("its sums are rounded to bfloat16 at every term" in problems) == told


def test_sums_along_a_row_in_vectors_are_not_called_scalar() -> None:
    a, x = te.placeholder((512, 1024), name="a"), te.placeholder((1, 1024), name="x")
    y = topi.dense(x, a)
    s = topi.schedule(y, "llvm -num-cores=1")
    assert "reduce_tree" in str(tensorlang.lower(s, [x, a, y]))
    assert not advice(s, [x, a, y], "llvm -num-cores=1")


def test_warnings_of_sizes_that_are_not_known() -> None:
    n = te.var("n")
    x_ = te.placeholder((n,), name="x")
    k = te.reduce_axis((0, n), "k")
    S = te.compute((1,), lambda i: te.sum(x_[k], axis=k), name="S")
    f = built(te.create_schedule(S.op), [x_, S])
    assert [one.problem for one in f.warnings()] == ["the reduction over k is not split into partial results"]
    assert f.warnings({"n": 2}) == ()
    with pytest.raises(ArgumentError, match=r"sizes are numbers by name, there are n, got \{'m': 2\}"):
        f.warnings({"m": 2})
    with pytest.raises(TargetError, match="warnings are for kernels of this CPU"):
        built(te.create_schedule(S.op), [x_, S], "interpreter").warnings()


def test_sizes_that_are_passed() -> None:
    n = te.var("n")
    A = te.placeholder((n,), name="A")
    B = te.compute((n,), lambda i: A[i] * 2, name="B")
    f = built(te.create_schedule(B.op), [A, B])
    a = np.ones(5000, np.float32)
    found = profile(f, [a, np.empty_like(a)], repeat=1, machine=known())
    assert found.parts[0].operations == 5000 and found.parts[0].bytes == 40000


def test_what_has_no_clock_is_refused() -> None:
    B = te.compute((8,), lambda i: x[i] * 2, name="B")
    with pytest.raises(TargetError, match="this CPU alone, and main is of the target interpreter"):
        built(te.create_schedule(B.op), [x, B], "interpreter").profile(*arrays(x, B))
    E = te.extern((8,), [x], lambda given, made: None, name="E")
    with pytest.raises(TargetError, match="main calls Python"):
        built(te.create_schedule(E.op), [x, E]).profile(*arrays(x, E))


def test_the_command_line(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(machine, "undisturbed_rates", lambda threads, kept: known().rates)
    wanted = ["profile", "softmax", "--shape", "64,256", "--threads", "1", "--repeat", "1"]
    shown = CliRunner().invoke(command, [*wanted, "--trace", str(tmp_path / "t.json")], catch_exceptions=False)
    assert shown.exit_code == 0 and "bound by" in shown.output
    assert json.loads((tmp_path / "t.json").read_text())["traceEvents"]
    data = json.loads(CliRunner().invoke(command, [*wanted, "--json"]).output)
    assert data["parts"] and data["overhead"] > -1


def test_a_kernel_shows_the_roofline_of_its_last_profile(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "undisturbed_rates", lambda threads, kept: known().rates)
    s, tensors = chain(8)
    f = built(s, tensors)
    assert "<svg" not in f._repr_html_()
    found = f.profile(*arrays(*tensors), repeat=1)
    assert found.roofline in f._repr_html_() and found.roofline.count("<circle") == 3
    nothing, out = row(256, lambda i: x[i])
    assert profile(built(nothing, [x, out]), arrays(x, out), machine=known()).roofline == ""


def test_counters_are_shown_in_all_forms(monkeypatch: pytest.MonkeyPatch) -> None:
    room = import_module("tensorlang.profiling.profile")
    monkeypatch.setattr(room, "counted", lambda run: Counters({"cycles": 4e6, "instructions": 1e7}, "no more"))
    s, out = row(N, lambda i: x[i] + 1)
    found = profile(built(s, [x, out]), arrays(x, out), repeat=1, machine=known())
    line = "counters: 4e+06 cycles, 1e+07 instructions, 2.50 instructions a cycle, no others: no more"
    assert line in str(found) and line in found._repr_html_()
    data = found.to_json()
    assert data["counters"] == {"cycles": 4e6, "instructions": 1e7} and data["not counted"] == "no more"
    (whole,) = [event for event in found.trace["traceEvents"] if event["ph"] == "X"]
    assert whole["args"]["cycles"] == 4e6


def test_profiles_are_values() -> None:
    s, out = row(N, lambda i: x[i] + 1)
    found = profile(built(s, [x, out]), arrays(x, out), repeat=1, machine=known())
    assert isinstance(found, Profile) and found == found and str(found) == repr(found)


def test_outputs_may_be_left_out() -> None:
    s, out = row(N, lambda i: x[i])
    f = built(s, [x, out])
    assert profile(f, arrays(x), machine=known()).parts
    for wrong in (0, 1.5, True, "x"):
        with pytest.raises(ArgumentError, match="repeat is a number of runs"):
            profile(f, arrays(x), repeat=wrong, machine=known())  # type: ignore[arg-type]


def test_fused_loops_are_no_gather_and_divided_places_follow_no_data() -> None:
    a = te.placeholder((4, 8, 32), name="A")
    b = te.compute((4, 8, 32), lambda i, j, k: a[i, j, k] * 2, name="B")
    s: Schedule = te.create_schedule(b.op)
    s[b].vectorize(s[b].fuse("i", "j", "k"))
    assert built(s, [a, b]).warnings() == ()
    doubled = te.compute((64,), lambda i: a[0, 0, i // 2], name="D")
    s = te.create_schedule(doubled.op)
    s[doubled].vectorize("i")
    (warning,) = built(s, [a, doubled]).warnings()
    assert "reads A at distances that change (a gather)" in warning.problem
