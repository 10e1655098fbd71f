"""Schedules for threads of a GPU that race, or ask for what no block has: refused, with the threads or the limit."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass

import pytest

import tensorlang
from tensorlang import te
from tensorlang.errors import BadArgument, IllegalParallel, OneThread, OverwrittenValue, ScheduleError, TargetError
from tensorlang.errors import UncoveredRead as Uncovered
from tensorlang.testing.check import check_schedule
from tests.error.device_programs import counts, in_place, over_time, prefix, rows, smoothed
from tests.error.refusal import Refusal, Step, refused
from tests.programs import Case, argmax, chain, diamond, matmul, two_consumers, with_extern

n = te.var("n")


def bound(stage: str, axis: str, thread: str) -> Step:
    return lambda s: s[stage].bind(axis, thread)


def race(
    make: Callable[[], Case],
    step: Step,
    element: str,
    pair: tuple[str, str],
    places: tuple[str, str],
    *,
    before: tuple[Step, ...] = (),
    what: str = "written and read",
) -> Refusal:
    """A dependence between two iterations; `places` are the threads that would run its two instances."""
    why = (
        f"but {element} is {what} by two of them",
        f"{pair[0]} runs on {places[0]}, and {pair[1]} on {places[1]}",
    )
    return Refusal(make, before, step, why, IllegalParallel, pair, element)


RACES = {
    "stencil in place": race(
        in_place,
        bound("relax", "i", "threadIdx.x"),
        "relax[1]",
        ("relax.S1[1]", "relax.S1[2]"),
        ("thread 1", "thread 2"),
    ),
    "time steps of a stencil": race(
        smoothed,
        bound("smooth", "t", "blockIdx.x"),
        "smooth[1, 1]",
        ("smooth.S1[0, 0]", "smooth.S1[1, 0]"),
        ("thread 0 of block 0", "thread 0 of block 1"),
        before=(bound("smooth", "i", "threadIdx.x"),),
    ),
    "prefix sum": race(
        prefix, bound("P", "i", "threadIdx.y"), "P[0]", ("P.S0[0]", "P.S0[1]"), ("thread (0, 0)", "thread (0, 1)")
    ),
    "prefix sum in blocks": race(
        prefix,
        bound("P", "i_o", "blockIdx.x"),
        "P[7]",
        ("P.S0[7]", "P.S0[8]"),
        ("block 0", "block 1"),
        before=(lambda s: s["P"].split("i", 8),),
    ),
    "virtual threads of a prefix sum": race(
        prefix, bound("P", "i", "vthread"), "P[0]", ("P.S0[0]", "P.S0[1]"), ("virtual thread 0", "virtual thread 1")
    ),
    "time of a scan": race(
        over_time,
        bound("sums", "t", "threadIdx.x"),
        "sums[1, 0]",
        ("sums.S1[1, 0]", "sums.S1[2, 0]"),
        ("thread 1", "thread 2"),
    ),
    "reduction over blocks": race(
        matmul,
        bound("C", "k_o", "blockIdx.y"),
        "C[0, 0]",
        ("C[0, 0, 0]", "C[0, 0, 4]"),
        ("thread (0, 0) of block (0, 0)", "thread (0, 0) of block (0, 1)"),
        before=(
            lambda s: s["C"].split("k", 4),
            lambda s: s["C"].reorder("k_o", "i", "j", "k_i"),
            bound("C", "i", "blockIdx.x"),
            bound("C", "j", "threadIdx.y"),
        ),
        what="updated",
    ),
    "pairs over blocks": race(
        argmax, bound("T", "k", "blockIdx.x"), "T.v0[0]", ("T[0, 0]", "T[0, 1]"), ("block 0", "block 1"), what="updated"
    ),
    "reduction over virtual threads": race(
        matmul,
        bound("C", "k", "vthread"),
        "C[0, 0]",
        ("C[0, 0, 0]", "C[0, 0, 1]"),
        ("virtual thread 0", "virtual thread 1"),
        what="updated",
    ),
}


def in_blocks(stage: str = "C", tile: tuple[int, int] = (8, 8)) -> tuple[Step, ...]:
    """Tiles of a plane on blocks, their elements on threads."""
    tags = {"i_o": "blockIdx.y", "j_o": "blockIdx.x", "i_i": "threadIdx.y", "j_i": "threadIdx.x"}
    return (lambda s: s[stage].tile("i", "j", *tile), *(bound(stage, axis, tag) for axis, tag in tags.items()))


def inside(axis: str, scope: str = "") -> tuple[Step, ...]:
    """B at an axis of C."""
    placed: Step = lambda s: s["B"].compute_at(s["C"], axis)  # noqa: E731
    return (placed, lambda s: s["B"].set_scope(scope)) if scope else (placed,)


def strip(tile: str = "shared") -> tuple[Step, ...]:
    """Rows of C on blocks, B in strips along a serial loop."""
    first: Step = lambda s: s["C"].tile("i", "j", 8, 8)  # noqa: E731
    tags = {"i_o": "blockIdx.x", "i_i": "threadIdx.y", "j_i": "threadIdx.x"}
    return (first, *(bound("C", axis, tag) for axis, tag in tags.items()), *inside("j_o", tile))


STEPS = {
    **RACES,
    "blocks that keep what the one before has computed": Refusal(
        rows,
        (*strip(), lambda s: s["B"].rolling_buffer()),
        bound("C", "j_o", "blockIdx.y"),
        ("B[0, 8] runs on thread (0, 0) of block (0, 0), and C[0, 8] on thread (0, 0) of block (0, 1)",),
        IllegalParallel,
        ("B[0, 8]", "C[0, 8]"),
        "B[0, 8]",
    ),
    "threads that renew a rolling buffer for each other": Refusal(
        rows,
        (*strip(), lambda s: s["B"].rolling_buffer()),
        bound("C", "j_o", "threadIdx.z"),
        ("B overwrites the memory of B[8, 0] before C has read it",),
        OverwrittenValue,
        ("B[0, 0]", "C[8, 0]"),
        "B[8, 0]",
    ),
    "tiles ahead of what they are made of": Refusal(
        diamond,
        (
            lambda s: s["C"].compute_inline(),
            lambda s: s["E"].split("i", 4),
            bound("E", "i_o", "blockIdx.x"),
            lambda s: s["D"].compute_at(s["E"], "i_i"),
            lambda s: s["B"].compute_at(s["E"], "i_i"),
        ),
        lambda s: s["D"].pipeline(3),
        ("D reads B[0], which B does not compute there",),
        Uncovered,
        (None, "D[0]"),
        "B[0]",
    ),
    "a stage of a block that another kernel reads": Refusal(
        two_consumers,
        (lambda s: s["C"].split("i", 4), bound("C", "i_o", "blockIdx.x")),
        lambda s: s["B"].compute_at(s["C"], "i_o"),
        ("D reads B outside the loop i_o of C, where B is computed",),
        Uncovered,
        (None, "D[0]"),
        "B[0]",
        legal=("s['B'].compute_root()",),
    ),
    "one thread axis for two loops": Refusal(
        matmul,
        (bound("C", "i", "blockIdx.x"),),
        bound("C", "j", "blockIdx.x"),
        ("blockIdx.x is bound to axis i of C already",),
    ),
    "an unknown thread axis": Refusal(
        matmul, (), bound("C", "i", "warp"), ("unknown thread axis 'warp'; there are blockIdx.x", "vthread")
    ),
    "a bound loop bound again": Refusal(
        chain, (bound("C", "i", "threadIdx.x"),), bound("C", "i", "blockIdx.x"), ("axis i of C is bound already",)
    ),
    "threads launched around no scan": Refusal(
        chain,
        (),
        lambda s: s["C"].env_threads([te.thread_axis("threadIdx.x")]),
        ("env_threads is for scans, and C is none",),
    ),
    "threads launched twice": Refusal(
        over_time,
        (lambda s: s["sums"].env_threads([te.thread_axis("threadIdx.x")]),),
        lambda s: s["sums"].env_threads([te.thread_axis("threadIdx.x")]),
        ("threadIdx.x is launched around sums already",),
    ),
    "a pipeline of one tile": Refusal(
        rows, inside("i"), lambda s: s["B"].pipeline(1), ("a pipeline has at least 2 stages, got 1",)
    ),
    "a pipeline at the root": Refusal(
        rows,
        (),
        lambda s: s["B"].pipeline(3),
        ("pipeline needs a stage that is computed inside a loop, and B is not",),
    ),
}


@pytest.mark.parametrize("name", STEPS)
def test_refused_step(name: str) -> None:
    refused(STEPS[name])


def test_a_histogram_without_atomics_is_a_race_of_threads() -> None:
    s = counts().s
    with pytest.raises(IllegalParallel) as caught:
        s["count"].bind("i", "threadIdx.x")
    assert "count.S1[0] runs on thread 0, and count.S1[1] on thread 1" in caught.value.why
    assert "count[int64(X[i])] in count.S1 depends on data: it counts as any element" in caught.value.why
    assert "s.assume('injective', 'X'); s['count'].bind('i', 'threadIdx.x')" in caught.value.legal
    s["count"].atomic()
    s["count"].bind("i", "threadIdx.x")


@dataclass(frozen=True)
class Unfit:
    """A legal schedule that no GPU runs: `texts` of the error, and the repairs that it names."""

    make: Callable[[], Case]
    steps: tuple[Step, ...]
    texts: tuple[str, ...]
    error: type[Exception] = BadArgument
    legal: tuple[str, ...] | None = None
    advice: tuple[str, ...] = ()


PLACES = {
    "local memory that other threads read": Unfit(
        rows,
        (*in_blocks(), *inside("j_o", "local")),
        ("B is in local memory", "computed outside of i_i of C, whose threads read it"),
        legal=("s['B'].compute_at(s['C'], 'j_i')", "s['B'].set_scope('shared')"),
    ),
    "local memory that several threads fill": Unfit(
        rows,
        (*in_blocks(), *inside("j_o", "local"), bound("B", "j", "threadIdx.x")),
        ("its loop j is bound to threadIdx.x: other threads would not find its elements",),
        legal=("s['B'].set_scope('shared')",),
        advice=("leave j unbound",),
    ),
    "memory of a thread that several threads fill": Unfit(
        rows,
        (*in_blocks(), *inside("i_i"), bound("B", "j", "threadIdx.x")),
        ("each thread of i_i of C on threadIdx.y computes B for itself, but its loop j is bound to threadIdx.x",),
        legal=("s['B'].set_scope('shared')",),
        advice=("leave j unbound",),
    ),
    "shared memory without a block": Unfit(
        rows,
        (bound("C", "j", "threadIdx.x"), *inside("i", "shared")),
        ("B is in shared memory, which a block of threads has, and no loop around it is bound to blockIdx",),
        legal=(),
        advice=("bind a loop around the place where it is computed to 'blockIdx.x'",),
    ),
    "threads inside themselves": Unfit(
        rows,
        (*in_blocks(), *inside("j_i"), bound("B", "j", "threadIdx.x")),
        ("threadIdx.x runs j_i of C and, inside it, j of B",),
        legal=("s['B'].set_scope('shared')",),
        advice=("leave j of B unbound: each computes its own part",),
    ),
    "blocks inside themselves": Unfit(
        rows,
        (*in_blocks(), *inside("j_o"), bound("B", "j", "blockIdx.x")),
        ("blockIdx.x runs j_o of C and, inside it, j of B",),
        legal=(),
        advice=("leave j of B unbound: each computes its own part",),
    ),
    "a place that never comes to be": Unfit(
        diamond,
        (bound("E", "i", "blockIdx.x"), lambda s: s["B"].compute_at(s["E"], "i")),
        ("B is to be computed at i of E, but C, D, which reads it, is not computed there",),
    ),
    "blocks inside threads": Unfit(
        rows,
        (bound("C", "i", "threadIdx.x"), bound("C", "j", "blockIdx.x")),
        ("the loop j on blockIdx.x stands inside the loop i on threadIdx.x", "reorder"),
        TargetError,
    ),
    "blocks inside a loop of a block": Unfit(
        lambda: matmul(16, 16, 16),
        (bound("C", "i", "blockIdx.x"), lambda s: s["C"].reorder("i", "k", "j"), bound("C", "j", "blockIdx.y")),
        ("the loop j on blockIdx.y stands", "blocks run independently"),
        TargetError,
    ),
    "blocks beside other statements of a block": Unfit(
        rows,
        (bound("C", "i", "blockIdx.x"), *inside("i"), bound("C", "j", "blockIdx.y")),
        ("the loop j on blockIdx.y stands beside other statements of the same block",),
        TargetError,
    ),
    "threads of any number": Unfit(
        lambda: chain(n),
        (bound("C", "i", "threadIdx.x"),),
        ("the loop i on threadIdx.x runs from 0 to n, and no constant bounds its length; split it",),
        TargetError,
    ),
    "shared memory of any size": Unfit(
        lambda: rows(n),
        (lambda s: s["C"].reorder("j", "i"), bound("C", "j", "blockIdx.x"), *inside("j", "shared")),
        ("keeps B: float32[n, 2] in", "need a constant shape"),
        TargetError,
    ),
    "a Python function": Unfit(
        with_extern, (), ("the operation S calls a Python function (te.extern), which no GPU runs",), TargetError
    ),
}


@pytest.mark.parametrize("name", PLACES)
@pytest.mark.filterwarnings("ignore::tensorlang.errors.OneThread")
def test_refused_build(name: str) -> None:
    case = PLACES[name]
    s, args = _scheduled(case)
    with pytest.raises(case.error) as caught:
        tensorlang.lower(s, args, target="cuda")
    for text in case.texts:
        assert text in str(caught.value)
    if not isinstance(caught.value, ScheduleError):
        return
    assert caught.value.asked == "build main for cuda" and caught.value.schedule == tuple(str(s).splitlines())
    assert caught.value.where is not None and caught.value.where.file == __file__
    assert case.legal is None or (caught.value.legal, caught.value.advice) == (case.legal, case.advice)
    for repair in caught.value.legal:
        s, args = _scheduled(case)
        exec(repair, {"s": s})
        tensorlang.lower(s, args, target="cuda")
        check_schedule(s, args, targets=("interpreter",))


def _scheduled(case: Unfit) -> Case:
    made = case.make()
    for step in case.steps:
        step(made.s)
    return made


def on_a_plane(size: int, tile: tuple[int, int], *more: Step) -> tuple[Callable[[], Case], tuple[Step, ...]]:
    return lambda: rows(size, size), (*in_blocks(tile=tile), *more)


LIMITS = {
    "threads of a block": (
        *on_a_plane(64, (64, 64)),
        "cuda",
        "needs 4096 threads in a block (64 x 64 x 1), and cuda allows 1024",
    ),
    "threads along z": (
        lambda: rows(128, 8),
        (bound("C", "i", "threadIdx.z"),),
        "cuda",
        "needs 128 threads along threadIdx.z, and cuda allows 64; bind the loop to threadIdx.x",
    ),
    "shared memory": (
        *on_a_plane(256, (128, 8), *inside("j_o", "shared"), lambda s: s["B"].storage_align("i", 512, 0)),
        "cuda",
        "needs 262144 bytes of shared memory in a block, and cuda allows",
    ),
    "shared memory of the interpreter": (
        *on_a_plane(256, (128, 8), *inside("j_o", "shared"), lambda s: s["B"].storage_align("i", 512, 0)),
        "interpreter",
        "narrower elements, or 'interpreter -max_shared_memory_per_block=262144'",
    ),
    "registers": (
        lambda: rows(256, 256),
        (
            lambda s: s["C"].tile("i", "j", 32, 32),
            bound("C", "i_o", "blockIdx.x"),
            bound("C", "j_o", "threadIdx.x"),
            *inside("j_o", "local"),
        ),
        "cuda",
        "needs at least 1056 registers in each thread for its local arrays, and cuda allows 255: B: float32[32, 33]",
    ),
}


@pytest.mark.parametrize("name", LIMITS)
@pytest.mark.filterwarnings("ignore::tensorlang.errors.OneThread")
def test_what_is_asked_and_what_is_allowed(name: str) -> None:
    make, steps, target, text = LIMITS[name]
    s, args = _scheduled(Unfit(make, steps, ()))
    with pytest.raises(TargetError) as caught:
        tensorlang.lower(s, args, target=target)
    assert text in str(caught.value)


def message(raising: Callable[[], object]) -> str:
    """The text of a refusal, without the line number of this file."""
    with pytest.raises(ScheduleError) as caught:
        raising()
    return str(caught.value).replace(str(caught.value.where), "test_device.py:LINE")


def test_race_of_threads(golden: Callable[[str], None]) -> None:
    s = matmul().s
    s["C"].split("k", 4)
    s["C"].bind("i", "blockIdx.x")
    s["C"].bind("j", "threadIdx.y")
    golden(message(lambda: s["C"].bind("k_o", "blockIdx.y")))


def test_memory_of_other_threads(golden: Callable[[str], None]) -> None:
    s, args = _scheduled(PLACES["local memory that other threads read"])
    golden(message(lambda: tensorlang.lower(s, args, target="cuda")))


def test_a_stage_on_one_thread_is_told_once() -> None:
    s, args = chain(100)
    s["B"].bind("i", "threadIdx.x")
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("default")
        for _ in range(2):
            tensorlang.lower(s, args, target="cuda")
    (warning,) = told
    assert warning.filename == __file__
    advice = "s['C'].split('i', factor=64); s['C'].bind('i_o', 'blockIdx.x'); s['C'].bind('i_i', 'threadIdx.x')"
    text = "a single thread runs C: no loop is bound to blocks or threads; what would help: "
    assert str(warning.message) == text + advice
    exec(advice, {"s": s})
    with warnings.catch_warnings():
        warnings.simplefilter("error", OneThread)
        tensorlang.lower(s, args, target="cuda")


def test_no_advice_where_no_loop_may_run_on_threads() -> None:
    s, args = prefix()
    with pytest.warns(OneThread) as told:
        tensorlang.lower(s, args, target="opencl")
    assert str(told[0].message) == "a single thread runs P: no loop is bound to blocks or threads"
