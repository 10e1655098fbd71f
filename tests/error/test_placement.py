"""Stages computed where their readers do not find them: refused with the read that has no producer."""

from __future__ import annotations

import pytest

from tensorlang import te
from tensorlang.errors import UncoveredRead
from tensorlang.schedule.primitives import ComputeInline
from tensorlang.testing.check import check_schedule
from tests.error.refusal import Refusal, refused
from tests.programs import Case, chain, diamond, matmul, stencil, two_consumers, with_extern


def reduced_chain() -> Case:
    """B = row sums of A; C = 2 B."""
    A = te.placeholder((6, 20), name="A")
    k = te.reduce_axis((0, 20), "k")
    B = te.compute((6,), lambda i: te.sum(A[i, k], axis=k), name="B")
    C = te.compute((6,), lambda i: B[i] * 2, name="C")
    return Case(te.create_schedule(C.op), (A, C))


def started_reduction() -> Case:
    """B is read by the initialisation of the sum C alone."""
    A = te.placeholder((4, 5), name="A")
    B = te.compute((4,), lambda i: A[i, 0] + 1, name="B")
    k = te.reduce_axis((0, 5), "k")
    C = te.compute((4,), lambda i: te.sum(A[i, k], axis=k, init=B[i]), name="C")
    return Case(te.create_schedule(C.op), (A, C))


PLACES = {
    "second consumer outside": Refusal(
        two_consumers,
        (),
        lambda s: s["B"].compute_at(s["C"], "i"),
        ("D reads B outside the loop i of C, where B is computed",),
        UncoveredRead,
        (None, "D[0]"),
        "B[0]",
        legal=("s['B'].compute_root()",),
    ),
    "first consumer outside": Refusal(
        two_consumers,
        (lambda s: s["D"].split("i", 4),),
        lambda s: s["B"].compute_at(s["D"], "i_o"),
        ("C reads B outside the loop i_o of D, where B is computed",),
        UncoveredRead,
        (None, "C[0]"),
        "B[0]",
        legal=("s['B'].compute_root()",),
    ),
    "consumer in an outer loop": Refusal(
        diamond,
        (lambda s: s["D"].compute_at(s["E"], "i"), lambda s: s["E"].parallel("i")),
        lambda s: s["B"].compute_at(s["D"], "i"),
        ("C reads B outside the loop i of D",),
        UncoveredRead,
        (None, "C[0]"),
        "B[0]",
        legal=("s['B'].compute_root()",),
    ),
    "initialisation outside the reduction": Refusal(
        started_reduction,
        (),
        lambda s: s["B"].compute_at(s["C"], "k"),
        ("C.init reads B outside the loop k of C, where B is computed",),
        UncoveredRead,
        (None, "C.init[0]"),
        "B[0]",
        legal=("s['B'].compute_root()", "s['B'].compute_at(s['C'], 'i')"),
    ),
    "host moved out of reach": Refusal(
        diamond,
        (
            lambda s: s["D"].compute_at(s["E"], "i"),
            lambda s: s["C"].compute_at(s["E"], "i"),
            lambda s: s["B"].compute_at(s["E"], "i"),
        ),
        lambda s: s["C"].compute_root(),
        ("C reads B outside the loop i of E, where B is computed",),
        UncoveredRead,
        (None, "C[0]"),
        "B[0]",
    ),
    "no consumer": Refusal(
        with_extern,
        (),
        lambda s: s["B"].compute_at(s["C"], "i"),
        ("C does not read B",),
        legal=("s['B'].compute_root()",),
    ),
    "roles exchanged": Refusal(
        two_consumers,
        (),
        lambda s: s["C"].compute_at(s["B"], "i"),
        ("C is an output", "C reads B, so did you mean s['B'].compute_at(s['C'], ...)?"),
        legal=(),
    ),
    "an output at another output": Refusal(
        two_consumers,
        (),
        lambda s: s["C"].compute_at(s["D"], "i"),
        ("C is an output; compute_at would leave it incomplete",),
        legal=("T = s.cache_write('C', 'global'); s[T].compute_at(s['C'], 'i')",),
    ),
    "an input as host": Refusal(
        chain, (), lambda s: s["B"].compute_at(s["A"], "i"), ("A is an input: it has no loops",)
    ),
    "an extern stage as host": Refusal(
        with_extern, (), lambda s: s["B"].compute_at(s["S"], "i"), ("S is an extern stage: it has no loops",)
    ),
    "an input": Refusal(chain, (), lambda s: s["A"].compute_at(s["B"], "i"), ("A is an input",)),
    "an extern stage": Refusal(with_extern, (), lambda s: s["S"].compute_at(s["C"], "i"), ("S is an extern stage",)),
    "its own loop": Refusal(
        chain,
        (),
        lambda s: s["B"].compute_at(s["B"], "i"),
        ("B cannot be computed inside itself",),
        legal=("s['B'].compute_root()", "s['B'].compute_at(s['C'], 'i')"),
    ),
    "a cycle": Refusal(
        chain,
        (lambda s: s.cache_read("B", "local", ["C"]), lambda s: s["B"].compute_at(s["B.local"], "ax0")),
        lambda s: s["B.local"].compute_at(s["B"], "i"),
        ("B is itself computed inside B.local",),
    ),
    "an output": Refusal(
        diamond,
        (),
        lambda s: s["E"].compute_at(s["D"], "i"),
        ("E is an output; compute_at would leave it incomplete",),
        legal=("s['D'].compute_at(s['E'], 'i')",),
    ),
    "an output that another reads": Refusal(
        two_consumers, (), lambda s: s["C"].compute_at(s["D"], "i"), ("C is an output; compute_at",)
    ),
    "a vectorised loop": Refusal(
        chain,
        (lambda s: s["C"].split("i", 4), lambda s: s["C"].vectorize("i_i")),
        lambda s: s["B"].compute_at(s["C"], "i_i"),
        ("i_i is vectorised: a buffer there has no lanes",),
    ),
    "inside a vectorised loop": Refusal(
        matmul,
        (lambda s: s.cache_read("A", "local", ["C"]), lambda s: s["C"].vectorize("j")),
        lambda s: s["A.local"].compute_at(s["C"], "k"),
        ("k is inside the vectorised axis j: a buffer there has no lanes",),
    ),
    "a split loop": Refusal(
        chain,
        (lambda s: s["C"].split("i", 4),),
        lambda s: s["B"].compute_at(s["C"], "i"),
        ("axis i of C was already transformed; its loops are i_o, i_i",),
    ),
    "a misspelt loop": Refusal(
        chain,
        (lambda s: s["C"].split("i", 4),),
        lambda s: s["B"].compute_at(s["C"], "i_oo"),
        ("no axis 'i_oo' in C; there are i_o, i_i; did you mean i_o?",),
    ),
}

INLINE = {
    "an output": Refusal(
        chain,
        (),
        lambda s: s["C"].compute_inline(),
        ("C is an output; compute_inline would leave it incomplete",),
        legal=("T = s.cache_write('C', 'global'); s[T].compute_inline()",),
    ),
    "an output that another stage reads": Refusal(
        two_consumers, (), lambda s: s["D"].compute_inline(), ("D is an output",)
    ),
    "an input": Refusal(chain, (), lambda s: s.apply(ComputeInline("A")), ("A is an input",)),
    "a reduction": Refusal(
        reduced_chain,
        (),
        lambda s: s["B"].compute_inline(),
        ("B is a reduction and must be stored",),
        legal=("s['B'].compute_root()", "s['B'].compute_at(s['C'], 'i')"),
    ),
    "what an extern stage reads": Refusal(
        with_extern, (), lambda s: s["B"].compute_inline(), ("S is an extern stage and needs B in memory",)
    ),
    "an extern stage": Refusal(with_extern, (), lambda s: s["S"].compute_inline(), ("S is an extern stage",)),
    "a host": Refusal(
        stencil,
        (lambda s: s.cache_read("A", "local", ["B"]), lambda s: s["A.local"].compute_at(s["B"], "i")),
        lambda s: s["B"].compute_inline(),
        ("A.local is computed inside B",),
    ),
}


@pytest.mark.parametrize("name", PLACES)
def test_compute_at_is_refused(name: str) -> None:
    refused(PLACES[name])


@pytest.mark.parametrize("name", INLINE)
def test_compute_inline_is_refused(name: str) -> None:
    refused(INLINE[name])


def test_the_cure_for_an_output_works() -> None:
    """What `legal` says in words: compute the output in a cache, and place that."""
    s, args = chain()
    T = s.cache_write("C", "global")
    s[T].compute_at(s["C"], "i")
    s["B"].compute_at(s[T], "i")
    check_schedule(s, args, targets=("interpreter",))


def test_two_consumers_in_one_loop_are_served() -> None:
    s, args = diamond()
    for stage in ("D", "C", "B"):
        s[stage].compute_at(s["E"], "i")
    check_schedule(s, args, targets=("interpreter",))


def test_a_stage_of_no_elements_has_no_witness() -> None:
    """The read that nobody serves never runs: refused all the same, without an instance to show."""
    refused(
        Refusal(
            lambda: two_consumers(0),
            (),
            lambda s: s["B"].compute_at(s["C"], "i"),
            ("D reads B outside the loop i of C",),
            UncoveredRead,
        )
    )
