"""What a refusal offers instead was applied and proven: it can be typed in, and the result is right."""

from __future__ import annotations

import time
from typing import Any

import pytest

from tensorlang import config, te
from tensorlang.errors import IllegalOrder, IllegalParallel, ScheduleError, TooComplex
from tensorlang.schedule import Schedule
from tensorlang.schedule.proposals import repair
from tensorlang.testing.check import check_schedule
from tests.schedule.repair_cases import CASES, Step, added, n, prefix, split, sums, tiles_outside


def fresh(name: str) -> tuple[Schedule, list[Any], list[Any]]:
    """The schedule of a case up to its last step, its arguments and its outputs."""
    script, make, before, _, _ = CASES[name]
    given = make()
    inputs = list(given) if isinstance(given, tuple) else [given]
    made = script(*inputs)
    outputs = list(made) if isinstance(made, list | tuple) else [made]
    s = te.create_schedule([o.op for o in outputs])
    for step in before:
        step(s)
    known = [s.buffer_of(i) for i in inputs if isinstance(i, te.Tensor)]
    news = [o for o in outputs if s.original.storage[s.buffer_of(o)][0] not in known]
    return s, [*inputs, *news], [o.op for o in outputs]


def refusal(name: str) -> ScheduleError:
    """The error of the last step of a case."""
    s, _, _ = fresh(name)
    with pytest.raises((IllegalOrder, IllegalParallel)) as caught:
        CASES[name][3](s)
    return caught.value


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", CASES)
def test_every_repair_is_legal_and_right(name: str) -> None:
    error = refusal(name)
    assert error.legal[0].startswith(CASES[name][4])
    assert len(set(error.legal)) == len(error.legal) <= repair.MOST
    for text in error.legal:
        again, inputs, outputs = fresh(name)
        before = again.state
        names: dict[str, Any] = {"s": again, "te": te, "outputs": outputs}
        exec(text, names)
        assert names["s"].state != before
        for size in (0, 1, 3, 5):
            check_schedule(names["s"], inputs, {"n": size, "steps": 3}, targets=("interpreter",))
        check_schedule(names["s"], inputs, {"n": 11, "steps": 6}, targets=("llvm",))


def test_choices_of_a_tuner_stay_open() -> None:
    s, inputs, outputs = fresh("an order")
    size = s.sample_choice("size", [2, 4], decision=4)
    split("seidel", 2, size, size)(s)
    with pytest.raises(IllegalOrder) as caught:
        tiles_outside("seidel")(s)
    names: dict[str, Any] = {"te": te, "outputs": outputs}
    exec(caught.value.legal[0], names)
    trace = names["s"].trace
    assert trace.open == {"size": (2, 4)} and trace.decisions == {"size": 4}
    check_schedule(trace.with_decisions({"size": 2}).apply(te.create_schedule(outputs)), inputs, {"n": 9})


def test_another_stage_moves_along() -> None:
    """What is computed inside a tile is put there again, under the new name of the loop."""
    X, A = te.placeholder((n, n), "int32", name="X"), te.placeholder((n, n), "int32", name="A")
    B = te.compute((n, n), lambda i, j: X[i, j] * 2, name="B")
    outputs = [added(A, B).op]
    s = te.create_schedule(outputs)
    s[B].split("i", factor=4)
    split("added", 3, 4)(s)
    s[B].compute_at(s["added"], "t_o")
    with pytest.raises(IllegalOrder) as caught:
        tiles_outside("added")(s)
    names: dict[str, Any] = {"s": s, "te": te, "outputs": outputs}
    exec(caught.value.legal[0], names)
    again = names["s"]
    assert again.state.stages["B"].attach == s.state.stages["B"].attach
    assert again.state.stages["added"].leaves == ("t_o", "i_s_o", "t_i", "i_s_i")
    check_schedule(again, [X, A], {"n": 9}, targets=("llvm",))


def test_one_shift_is_offered_the_smallest() -> None:
    error = refusal("a fusion")
    assert error.legal == ("s['pipeline'].shift('j', 2); s['pipeline'].fuse_with('i', 'j_s')",)


def test_a_sum_in_threads_by_partial_results_or_atomic_updates() -> None:
    factored = "s.rfactor('C', 'k', factor_axis=0); s['C.rf'].parallel('k')"
    shared = "s['C'].atomic(); s['C'].parallel('k')"
    assert refusal("a sum in threads").legal == ("s['C'].parallel('i')", factored, shared)


def test_a_strict_sum_of_floats_stays_whole() -> None:
    s = te.create_schedule(sums(te.placeholder((n, 12), "float32", name="A")).op, strict=True)
    with pytest.raises(IllegalParallel) as caught:
        s["C"].parallel("k")
    assert caught.value.legal == ("s['C'].parallel('i')",)


def test_a_lost_shift_gets_the_nearest_that_works() -> None:
    s, _, _ = fresh("a fusion")
    s["pipeline"].fuse_with("i", s["pipeline"].shift("j", 2))
    with pytest.raises(IllegalOrder) as caught:
        s["pipeline"].shift("i_fused", -1, statement="S1")
    assert caught.value.legal == ("s['pipeline'].shift('i_fused', 1, statement='S1')",)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", [name for name in CASES if "tiles" in name])
def test_the_search_is_quick(name: str) -> None:
    """Seconds are far more than it takes: distances between parts of loops would take those."""
    error = refusal(name)
    start = time.process_time()
    assert error.legal
    assert time.process_time() - start < 2.0


def test_the_schedule_is_as_it_was_after_the_search() -> None:
    s, _, _ = fresh("tiles")
    state, trace = s.state, s.trace
    with pytest.raises(IllegalOrder):
        CASES["tiles"][3](s)
    assert s.state is state and s.trace is trace


def test_nothing_is_offered_where_nothing_is_legal() -> None:
    s = te.create_schedule(prefix(te.placeholder((n,), "int32", name="A")).op)
    steps: list[Step] = [lambda s: s["prefix"].reverse("i"), lambda s: s["prefix"].parallel("i")]
    for step in steps:
        with pytest.raises((IllegalOrder, IllegalParallel)) as caught:
            step(s)
        assert caught.value.legal == ()


def test_the_search_stops_at_its_budget(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(repair, "OPERATIONS", 10)
    s, _, _ = fresh("an order")
    with pytest.raises(IllegalOrder) as caught:
        CASES["an order"][3](s)
    assert caught.value.legal == () and caught.value.witness is not None


def test_a_verdict_without_budget_is_too_complex() -> None:
    s, _, _ = fresh("tiles")
    with config.override(budget=200), pytest.raises(TooComplex):
        CASES["tiles"][3](s)
