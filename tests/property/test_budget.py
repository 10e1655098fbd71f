"""Nothing hangs: large programs and deep nests get a verdict, or TooComplex, in seconds."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import pytest

from tensorlang import lower, te
from tensorlang.errors import IllegalOrder, IllegalParallel, ScheduleError, TooComplex
from tensorlang.polyhedral import isl
from tensorlang.schedule import Schedule, create_schedule
from tests.te.hybrid_runs import from_text
from tests.thoroughness import draws

SECONDS = 30.0
"""Of processor time for one request. All of these take less than a tenth of it on an idle machine."""


@contextmanager
def in_time() -> Iterator[None]:
    """Fail when a block takes longer than it may."""
    start = time.process_time()
    yield
    assert time.process_time() - start < SECONDS


def _in_a_row(count: int) -> str:
    """Loops one after another, each over what the one before has updated."""
    arrays = [("A", "B")[k % 2] for k in range(count)]
    loops = [
        f"    for i{k} in range(1, n - 1):\n        {a}[i{k}] = A[i{k} - 1] + B[i{k} + 1]" for k, a in enumerate(arrays)
    ]
    return "\n".join(["@te.hybrid.script", "def script(n, A, B):", *loops, "    return A, B"])


def _together(count: int) -> str:
    """Many statements in one loop."""
    body = [f"        {a}[i] = {a}[i] + {b}[i] * {k}.0" for k in range(count // 2) for a, b in ("AB", "BA")]
    return "\n".join(["@te.hybrid.script", "def script(n, A, B):", "    for i in range(n):", *body, "    return A, B"])


def _through_indices(count: int) -> str:
    """Statements whose elements depend on data."""
    body = [f"        A[I[(i + {k}) % n]] = A[I[i]] * {k}.0 + A[i * i % n]" for k in range(count)]
    return "\n".join(["@te.hybrid.script", "def script(n, A, I):", "    for i in range(n):", *body, "    return A"])


def _deep(depth: int) -> str:
    """A stencil in place, in as many loops as it has dimensions."""
    axes = "abcdefg"[:depth]
    loops = [f"{'    ' * (k + 1)}for {axis} in range(1, n):" for k, axis in enumerate(axes)]
    reads = [f"A[{', '.join(f'{b} - 1' if a == b else b for b in axes)}]" for a in axes]
    body = f"{'    ' * (depth + 1)}A[{', '.join(axes)}] = {' + '.join(reads)}"
    return "\n".join(["@te.hybrid.script", "def script(n, A):", *loops, body, "    return A"])


def _scheduled(text: str, *arrays: tuple[int, str]) -> tuple[Schedule, Any, list[Any]]:
    n = te.var("n")
    made = [te.placeholder((n,) * rank, dtype, name=f"X{k}") for k, (rank, dtype) in enumerate(arrays)]
    outputs = from_text(text, "script")(n, *made)
    first = outputs[0] if isinstance(outputs, list | tuple) else outputs
    s = create_schedule([first.op])
    return s, s[first.op], [n, *made]


F = (1, "float32")
PROGRAMS: dict[str, Callable[[], tuple[Schedule, Any, list[Any]]]] = {
    "many loops in a row": lambda: _scheduled(_in_a_row(draws(20, 50)), F, F),
    "many statements together": lambda: _scheduled(_together(draws(40, 100)), F, F),
    "many statements through indices": lambda: _scheduled(_through_indices(draws(8, 15)), F, (1, "int32")),
    "7 loops deep": lambda: _scheduled(_deep(7), (7, "float32")),
}


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", PROGRAMS)
def test_every_request_ends(name: str) -> None:
    with in_time():
        s, stage, args = PROGRAMS[name]()

    def loop(place: int) -> str:
        return s.state.stages[stage.name].leaves[place]

    requests: list[Callable[[], object]] = [
        lambda: stage.split(loop(0), 4),
        lambda: stage.parallel(loop(0)),
        lambda: stage.reverse(loop(-1)),
        s.explain,
        s.auto_order,
        lambda: lower(s, args),
    ]
    for request in requests:
        with in_time():
            try:
                request()
            except (TooComplex, IllegalOrder, IllegalParallel) as error:
                assert str(error)


def test_the_order_of_many_loops_is_told() -> None:
    """A verdict, and not that it is too complex."""
    _, stage, _ = _scheduled(_in_a_row(draws(30, 100)), F, F)
    stage.split("i0", 4)
    with pytest.raises(IllegalParallel):
        stage.parallel("i1")
    with pytest.raises(IllegalOrder):
        stage.reverse("i2")


def test_a_chain_of_stages_in_one_loop() -> None:
    n = te.var("n")
    stages = [te.placeholder((n,), name="A")]
    for k in range(draws(25, 50)):
        stages.append(_doubled(stages[-1], k))
    s = create_schedule(stages[-1].op)
    with in_time():
        outer, _ = s[stages[-1]].split(stages[-1].op.axis[0], factor=16)
        for stage in reversed(stages[1:-1]):
            s[stage].compute_at(s[stages[-1]], outer)
        s[stages[-1]].parallel(outer)
        lower(s, [stages[0], stages[-1]])


def _doubled(tensor: te.Tensor, k: int) -> te.Tensor:
    made: te.Tensor = te.compute(tensor.shape, lambda i: tensor[i] * 2.0, name=f"S{k}")
    return made


@pytest.mark.parametrize("factor", [2, 3])
def test_splits_of_splits(factor: int) -> None:
    n = te.var("n")
    A, r = te.placeholder((n, n), name="A"), te.reduce_axis((0, n), name="r")
    B = te.compute((n, n), lambda i, j: te.sum(A[i, r] * A[r, j], axis=r), name="B")
    s = create_schedule(B.op)
    axis, inner = B.op.axis[0], r
    with in_time(), suppress(TooComplex):
        for _ in range(10):
            axis, _ = s[B].split(axis, factor=factor)
            inner, _ = s[B].split(inner, factor=factor)
        lower(s, [A, B])


def test_skews_of_skews() -> None:
    s, stage, args = _scheduled(_deep(3), (3, "float32"))
    b, c = "b", "c"
    with in_time(), suppress(ScheduleError):
        for k in range(6):
            b = str(stage.skew(b, "a", k + 1))
            c = str(stage.skew(c, b, 1))
        stage.split(b, 4)
        stage.split(c, 4)
        s.explain()
        lower(s, args)


def test_the_lemma_of_farkas_is_bounded() -> None:
    """isl does not count what this takes: a set of too many constraints is refused at once."""
    axes = [f"x{k}" for k in range(9)]
    corners = " or ".join("(" + " and ".join(f"{a} = {int(a == b)}" for a in axes) + ")" for b in axes)
    steps = isl.make_set(f"{{ [{', '.join(axes)}] : {corners} }}").coalesce()
    with in_time(), pytest.raises(isl.BudgetExceeded):
        isl.nonnegative_rows(steps)
