"""Races and reversed dependences: refused with the smallest pair of instances that would go wrong."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from tensorlang import te
from tensorlang.errors import IllegalOrder, IllegalParallel
from tensorlang.schedule.check import is_legal, verify
from tensorlang.te.program import Program
from tests.error.refusal import Refusal, Step, is_call, prepared, refused
from tests.programs import Case, argmax, chain, matmul, plane_sum, row_sum

n, m = te.var("n"), te.var("m")


def race(
    make: Callable[[], Case],
    before: tuple[Step, ...],
    step: Step,
    axis: str,
    element: str,
    first: str,
    then: str,
    *legal: str,
    **sizes: int,
) -> Refusal:
    why = (f"iterations of {axis} would run at the same time", f"{element} is updated by two of them")
    return Refusal(
        make,
        before,
        step,
        why,
        IllegalParallel,
        (first, then),
        element,
        sizes,
        legal,
    )


def halves(stage: str, axis: str, factor: int = 4) -> tuple[Step, ...]:
    return (lambda s: s[stage].split(axis, factor),)


FACTOR = ("s.rfactor('C', 'k')", "then parallel 'k' of the partial results")

RACES = {
    "parallel sum": race(
        matmul,
        (),
        lambda s: s["C"].parallel("k"),
        "k",
        "C[0, 0]",
        "C[0, 0, 0]",
        "C[0, 0, 1]",
        "s['C'].parallel('i')",
        "s['C'].parallel('j')",
        *FACTOR,
    ),
    "vectorized sum": race(
        matmul,
        (),
        lambda s: s["C"].vectorize("k"),
        "k",
        "C[0, 0]",
        "C[0, 0, 0]",
        "C[0, 0, 1]",
        "s['C'].vectorize('i')",
        "s['C'].vectorize('j')",
        "s.rfactor('C', 'k')",
        "then vectorize 'k' of the partial results",
    ),
    "bound sum": race(
        matmul,
        (),
        lambda s: s["C"].bind("k", "threadIdx.x"),
        "k",
        "C[0, 0]",
        "C[0, 0, 0]",
        "C[0, 0, 1]",
        "s['C'].bind('i', 'threadIdx.x')",
        "s['C'].bind('j', 'threadIdx.x')",
        "s.rfactor('C', 'k')",
        "then bind 'k' of the partial results",
    ),
    "parallel blocks of a sum": race(
        matmul,
        halves("C", "k"),
        lambda s: s["C"].parallel("k_o"),
        "k_o",
        "C[0, 0]",
        "C[0, 0, 0]",
        "C[0, 0, 4]",
        "s['C'].parallel('i')",
        "s['C'].parallel('j')",
        "s.rfactor('C', 'k_o')",
        "then parallel 'k_o' of the partial results",
    ),
    "vectorized part of a sum": race(
        matmul,
        halves("C", "k"),
        lambda s: s["C"].vectorize("k_i"),
        "k_i",
        "C[0, 0]",
        "C[0, 0, 0]",
        "C[0, 0, 1]",
        "s['C'].vectorize('i')",
        "s['C'].vectorize('j')",
        "s.rfactor('C', 'k_i')",
        "then vectorize 'k_i' of the partial results",
    ),
    "fused sum": race(
        plane_sum,
        (lambda s: s["B"].fuse("k", "l"),),
        lambda s: s["B"].parallel("k_l_fused"),
        "k_l_fused",
        "B[0]",
        "B[0, 0, 0]",
        "B[0, 0, 1]",
        "s['B'].parallel('i')",
        "s.rfactor('B', 'k_l_fused')",
        "then parallel 'k_l_fused' of the partial results",
    ),
    "outer axis of two": race(
        plane_sum,
        (),
        lambda s: s["B"].parallel("k"),
        "k",
        "B[0]",
        "B[0, 0, 0]",
        "B[0, 1, 0]",
        "s['B'].parallel('i')",
        "s.rfactor('B', 'k')",
        "then parallel 'k' of the partial results",
    ),
    "inner axis of two": race(
        plane_sum,
        (),
        lambda s: s["B"].bind("l", "blockIdx.x"),
        "l",
        "B[0]",
        "B[0, 0, 0]",
        "B[0, 0, 1]",
        "s['B'].bind('i', 'blockIdx.x')",
        "s.rfactor('B', 'l')",
        "then bind 'l' of the partial results",
    ),
    "skewed sum": race(
        plane_sum,
        (lambda s: s["B"].skew("l", "k"),),
        lambda s: s["B"].parallel("l_s"),
        "l_s",
        "B[0]",
        "B[0, 0, 0]",
        "B[0, 0, 1]",
        "s['B'].parallel('i')",
        "s.rfactor('B', 'l_s')",
        "then parallel 'l_s' of the partial results",
    ),
    "sum moved outside": race(
        matmul,
        (lambda s: s["C"].reorder("k", "i", "j"),),
        lambda s: s["C"].parallel("k"),
        "k",
        "C[0, 0]",
        "C[0, 0, 0]",
        "C[0, 0, 1]",
        "s['C'].parallel('i')",
        "s['C'].parallel('j')",
        *FACTOR,
    ),
    "beside a parallel axis": race(
        matmul,
        (lambda s: s["C"].parallel("i"),),
        lambda s: s["C"].parallel("k"),
        "k",
        "C[0, 0]",
        "C[0, 0, 0]",
        "C[0, 0, 1]",
        "s['C'].parallel('j')",
        *FACTOR,
    ),
    "around a stage": race(
        row_sum,
        (lambda s: s.cache_read("A", "local", ["B"]), lambda s: s["A.local"].compute_at(s["B"], "i")),
        lambda s: s["B"].vectorize("k"),
        "k",
        "B[0]",
        "B[0, 0]",
        "B[0, 1]",
    ),
    "pairs in parallel": race(
        argmax,
        (),
        lambda s: s["T"].parallel("k"),
        "k",
        "T.v0[0]",
        "T[0, 0]",
        "T[0, 1]",
        "s['T'].parallel('i')",
        "s.rfactor('T', 'k')",
        "then parallel 'k' of the partial results",
    ),
    "pairs as lanes": race(
        argmax,
        halves("T", "k", 3),
        lambda s: s["T"].vectorize("k_i"),
        "k_i",
        "T.v0[0]",
        "T[0, 0]",
        "T[0, 1]",
        "s['T'].vectorize('i')",
        "s.rfactor('T', 'k_i')",
        "then vectorize 'k_i' of the partial results",
    ),
    "sum of any length": race(
        lambda: row_sum(m, n),
        (),
        lambda s: s["B"].parallel("k"),
        "k",
        "B[0]",
        "B[0, 0]",
        "B[0, 1]",
        "s['B'].parallel('i')",
        "split k by a constant factor, s.rfactor the inner axis, then parallel the axis of partial results",
        m=1,
        n=2,
    ),
    "blocks of a sum of any length": race(
        lambda: row_sum(m, n),
        halves("B", "k"),
        lambda s: s["B"].parallel("k_o"),
        "k_o",
        "B[0]",
        "B[0, 0]",
        "B[0, 4]",
        "s['B'].parallel('i')",
        "split k_o by a constant factor, s.rfactor the inner axis, then parallel the axis of partial results",
        m=1,
        n=5,
    ),
    "lanes of a sum of any length": race(
        lambda: row_sum(m, n),
        halves("B", "k"),
        lambda s: s["B"].vectorize("k_i"),
        "k_i",
        "B[0]",
        "B[0, 0]",
        "B[0, 1]",
        "s.rfactor('B', 'k_i')",
        "then vectorize 'k_i' of the partial results",
        m=1,
        n=2,
    ),
    "parts of a sum of any length": race(
        lambda: row_sum(m, n),
        (lambda s: s["B"].split("k", nparts=4),),
        lambda s: s["B"].parallel("k_o"),
        "k_o",
        "B[0]",
        "B[0, 0]",
        "B[0, 1]",
        "s['B'].parallel('i')",
        "s.rfactor('B', 'k_o')",
        "then parallel 'k_o' of the partial results",
        m=1,
        n=2,
    ),
}


@pytest.mark.parametrize("name", RACES)
def test_refused(name: str) -> None:
    refused(RACES[name])


@pytest.mark.parametrize("name", [n for n, case in RACES.items() if any("rfactor('" in t for t in case.legal or ())])
def test_partial_results_may_run_as_was_asked(name: str) -> None:
    """The repair through rfactor leads where the user wanted to go."""
    case = RACES[name]
    assert case.legal is not None
    s, _ = prepared(case)
    factor, then = case.legal[-2:]
    assert is_call(factor)
    made = eval(factor, {"s": s})
    stage = s[made[0] if isinstance(made, list) else made]
    word, axis = then.split()[1], then.split("'")[1]
    getattr(stage, word)(axis, *(("threadIdx.x",) if word == "bind" else ()))
    assert is_legal(s.state)


def test_spatial_axes_have_no_race() -> None:
    s = matmul(n, m, 8).s
    s["C"].reorder("k", "i", "j")
    s["C"].parallel("i")
    s["C"].bind("j", "threadIdx.x")
    assert is_legal(s.state)


def test_a_consumer_before_its_producer_is_an_illegal_order() -> None:
    """No primitive moves a root stage before its producer; a program in the wrong order shows the verdict."""
    s = chain(3).s
    a, b, c = s.program.ops
    reversed_program = Program((a, c, b), s.program.outputs)
    stages = {name: s.state.stages[name] for name in ("C", "B")}
    with pytest.raises(IllegalOrder, match=r"C\[0\] would run before what it needs") as caught:
        verify(replace(s.state, program=reversed_program, stages=stages))
    witness = caught.value.witness
    assert witness is not None and (witness.kind, witness.element) == ("flow", "B[0]")
    assert str(witness.source) == "B[0]" and str(witness.sink) == "C[0]"
    assert witness.source is not None and witness.source.time > witness.sink.time


def test_every_race_is_found_whatever_the_step_before() -> None:
    s = matmul().s
    s["C"].tile("i", "j", 2, 3)
    s["C"].split("k", 3)
    for axis in ("k_o", "k_i"):
        for ask in (s["C"].parallel, s["C"].vectorize):
            with pytest.raises(IllegalParallel):
                ask(axis)
