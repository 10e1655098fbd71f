"""Races and reversed dependences: refused with the smallest pair of instances that would go wrong."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from tensorlang import te
from tensorlang.errors import IllegalOrder, IllegalParallel
from tensorlang.schedule.check import is_legal, verify
from tensorlang.te.program import Program
from tests.error.refusal import Refusal, Step, refused
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


def factored(stage: str, axis: str, how: str = "parallel", thread: str = "") -> str:
    """The asked step on partial results."""
    return f"s.rfactor({stage!r}, {axis!r}, factor_axis=0); " + _step(f"{stage}.rf", axis, how, thread)


def shared(stage: str, axis: str, how: str = "parallel", thread: str = "") -> str:
    """The asked step with atomic updates."""
    return f"s[{stage!r}].atomic(); " + _step(stage, axis, how, thread)


def _step(stage: str, axis: str, how: str, thread: str) -> str:
    arguments = ", ".join(map(repr, filter(None, (axis, thread))))
    return f"s[{stage!r}].{how}({arguments})"


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
        factored("C", "k"),
        shared("C", "k"),
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
        factored("C", "k", "vectorize"),
    ),
    "bound sum": race(
        matmul,
        (),
        lambda s: s["C"].bind("k", "blockIdx.x"),
        "k",
        "C[0, 0]",
        "C[0, 0, 0]",
        "C[0, 0, 1]",
        "s['C'].bind('i', 'blockIdx.x')",
        "s['C'].bind('j', 'blockIdx.x')",
        factored("C", "k", "bind", "blockIdx.x"),
        shared("C", "k", "bind", "blockIdx.x"),
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
        factored("C", "k_o"),
        shared("C", "k_o"),
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
        factored("C", "k_i", "vectorize"),
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
        factored("B", "k_l_fused"),
        shared("B", "k_l_fused"),
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
        factored("B", "k"),
        shared("B", "k"),
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
        factored("B", "l", "bind", "blockIdx.x"),
        shared("B", "l", "bind", "blockIdx.x"),
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
        factored("B", "l_s"),
        shared("B", "l_s"),
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
        factored("C", "k"),
        shared("C", "k"),
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
        factored("C", "k"),
        shared("C", "k"),
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
        factored("T", "k"),
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
        factored("T", "k_i", "vectorize"),
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
        "s['B'].split('k', factor=4); " + factored("B", "k_i"),
        shared("B", "k"),
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
        "s['B'].split('k_o', factor=4); " + factored("B", "k_o_i"),
        shared("B", "k_o"),
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
        factored("B", "k_i", "vectorize"),
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
        factored("B", "k_o"),
        shared("B", "k_o"),
        m=1,
        n=2,
    ),
}


@pytest.mark.parametrize("name", RACES)
def test_refused(name: str) -> None:
    refused(RACES[name])


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
