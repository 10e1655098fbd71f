"""What a refusal offers instead was applied and proven: it can be typed in, and the result is right."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tensorlang import config, te
from tensorlang.errors import IllegalOrder, IllegalParallel, ScheduleError, TooComplex
from tensorlang.schedule import Schedule, repair
from tensorlang.testing.check import check_schedule

n = te.var("n")
Step = Callable[[Schedule], object]


@te.hybrid.script
def seidel(A):  # type: ignore[no-untyped-def]
    for t in range(4):
        for i in range(1, A.shape[0] - 1):
            for j in range(1, A.shape[1] - 1):
                A[i, j] = A[i - 1, j - 1] + A[i - 1, j + 1] - A[i, j] + A[i, j + 1] - A[i + 1, j] + t
    return A


@te.hybrid.script
def pipeline(A, B):  # type: ignore[no-untyped-def]
    for i in range(A.shape[0]):
        A[i] = A[i] * 3
    for j in range(A.shape[0] - 2):
        B[j] = A[j] + A[j + 2]
    return A, B


@te.hybrid.script
def carried(A, B):  # type: ignore[no-untyped-def]
    for i in range(1, A.shape[0]):
        A[i] = B[i - 1] + 1
        B[i] = A[i] * 2
        A[i] = A[i] - B[i]
    return A, B


@te.hybrid.script
def prefix(A):  # type: ignore[no-untyped-def]
    for i in range(1, A.shape[0]):
        A[i] = A[i - 1] - A[i]
    return A


@te.hybrid.script
def wave(A):  # type: ignore[no-untyped-def]
    for i in range(1, A.shape[0]):
        for j in range(1, A.shape[1]):
            A[i, j] = A[i - 1, j] + A[i, j - 1]
    return A


def plane() -> te.Tensor:
    return te.placeholder((n, n), "int32", name="A")


def lines() -> tuple[te.Tensor, te.Tensor]:
    return te.placeholder((n,), "int32", name="A"), te.placeholder((n,), "int32", name="B")


def tiled(s: Schedule) -> None:
    s["seidel"].split("i", factor=2)
    s["seidel"].split("j", factor=2)


CASES: dict[str, tuple[Any, Callable[[], Any], tuple[Step, ...], Step, str]] = {
    "an order": (
        seidel,
        plane,
        (),
        lambda s: s["seidel"].reorder("j", "i"),
        "s['seidel'].skew('j', by='i', factor=1); s['seidel'].reorder('j_s', 'i')",
    ),
    "another order": (
        wave,
        plane,
        (lambda s: s["wave"].split("i", factor=2), lambda s: s["wave"].split("j", factor=3)),
        lambda s: s["wave"].reorder("j_i", "j_o", "i_o", "i_i"),
        "s['wave'].reorder('j_o', 'j_i', 'i_o', 'i_i')",
    ),
    "two skews": (
        seidel,
        plane,
        (),
        lambda s: s["seidel"].reorder("j", "i", "t"),
        "s['seidel'].skew('j', by='t', factor=2); s['seidel'].skew('j_s', by='i', factor=1); "
        "s['seidel'].skew('i', by='t', factor=1); s['seidel'].reorder('j_s_s', 'i_s', 't')",
    ),
    "tiles": (
        seidel,
        plane,
        (tiled,),
        lambda s: s["seidel"].reorder("i_o", "j_o", "t", "i_i", "j_i"),
        "s = te.create_schedule(outputs); s['seidel'].skew('j', by='t', factor=2); ",
    ),
    "tiles by hyperplanes": (
        seidel,
        plane,
        (),
        lambda s: s["seidel"].tile_by(["t", "i", "j"], [[1, 0, 0], [0, 1, 0], [0, 0, 1]], [2, 2, 2]),
        "s['seidel'].tile_by(",
    ),
    "a fusion": (
        pipeline,
        lines,
        (),
        lambda s: s["pipeline"].fuse_with("i", "j"),
        "s['pipeline'].shift('j', 2); s['pipeline'].fuse_with('i', 'j_s')",
    ),
    "a fission": (
        carried,
        lines,
        (),
        lambda s: s["carried"].fission("i", "S0"),
        "s['carried'].fission('i', after='S1')",
    ),
    "threads": (
        wave,
        plane,
        (),
        lambda s: s["wave"].parallel("j"),
        "s['wave'].skew('j', by='i', factor=1); s['wave'].reorder('j_s', 'i'); s['wave'].parallel('i')",
    ),
}


def fresh(name: str) -> tuple[Schedule, list[Any], list[Any]]:
    """The schedule of a case up to its last step, its arguments and its outputs."""
    script, make, before, _, _ = CASES[name]
    given = make()
    inputs = list(given) if isinstance(given, tuple) else [given]
    made = script(*inputs)
    outputs = list(made) if isinstance(made, list | tuple) else [made]
    s = te.create_schedule(outputs[0].op)
    for step in before:
        step(s)
    return s, inputs, [outputs[0].op]


@pytest.mark.parametrize("name", CASES)
def test_every_repair_is_legal_and_right(name: str) -> None:
    *_, step, wanted = CASES[name]
    s, _, _ = fresh(name)
    with pytest.raises(ScheduleError) as caught:
        step(s)
    error = caught.value
    assert isinstance(error, IllegalOrder | IllegalParallel)
    assert 1 <= len(error.legal) <= repair.MOST
    assert error.legal[0].startswith(wanted)
    for text in error.legal:
        again, inputs, outputs = fresh(name)
        names: dict[str, Any] = {"s": again, "te": te, "outputs": outputs}
        exec(text, names)
        for size in (0, 1, 2, 3, 5, 8):
            check_schedule(names["s"], inputs, {"n": size}, targets=("interpreter",))


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
