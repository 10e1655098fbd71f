"""Random scans mean what plain Python says, and keep their meaning under random schedules."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from tensorlang import te
from tensorlang.errors import BadArgument
from tensorlang.te.operation import HybridOp
from tensorlang.te.program import canonical
from tensorlang.te.reference import evaluate
from tensorlang.testing import check_schedule
from tensorlang.testing.traces import schedules

STEPS, WIDTH = 5, 4


@dataclass(frozen=True)
class Term:
    """A state or an earlier stage, `back` steps ago, its columns moved by `shift` around the end."""

    source: int
    back: int
    shift: int


@dataclass(frozen=True)
class Stage:
    """The product of terms, or its sum over the columns where `skip` leaves out the own one."""

    terms: tuple[Term, ...]
    summed: bool
    skip: bool


@dataclass(frozen=True)
class Network:
    """Stages of a time step; the last ones update the states. Sources count the states first, then the stages."""

    states: int
    first: int
    stages: tuple[Stage, ...]


@st.composite
def networks(draw: st.DrawFn) -> Network:
    """Small networks, in which a state is read at the times that exist, and a stage at any."""
    states, first = draw(st.integers(1, 2)), draw(st.integers(1, 2))
    stages = []
    for number in range(draw(st.integers(states, 4))):
        terms = []
        for _ in range(draw(st.integers(1, 2))):
            source = draw(st.integers(0, states + number - 1))
            back = draw(st.integers(1, first) if source < states else st.sampled_from([0, 0, 1]))
            terms.append(Term(source, back, draw(st.integers(0, 2))))
        stages.append(Stage(tuple(terms), draw(st.booleans()), draw(st.booleans())))
    return Network(states, first, tuple(stages))


def declared(network: Network) -> tuple[Any, tuple[Any, ...]]:
    """X, and the results of the scan."""
    X = te.placeholder((STEPS, WIDTH), "int32", name="X")
    known = [te.placeholder((STEPS, WIDTH), "int32", name=f"state{k}") for k in range(network.states)]
    inits = [
        te.compute((network.first, WIDTH), lambda t, i, k=k: X[t, i] + k, name=f"init{k}")
        for k in range(network.states)
    ]
    for number, stage in enumerate(network.stages):
        known.append(_compute(network, stage, X, tuple(known), f"G{number}"))
    states, updates = known[: network.states], known[-network.states :]
    return X, tuple(te.scan(inits, updates, states, inputs=[X], name="net"))


def _compute(network: Network, stage: Stage, X: Any, known: tuple[Any, ...], name: str) -> Any:
    k = te.reduce_axis((0, WIDTH), "k")

    def product(t: Any, i: Any) -> Any:
        value: Any = X[t, i]
        for term in stage.terms:
            read = known[term.source][t - term.back, (i + term.shift) % WIDTH]
            unguarded = term.source < network.states or not term.back
            value = value * (read if unguarded else te.if_then_else(t - term.back >= network.first, read, 1))
        return value

    def element(t: Any, i: Any) -> Any:
        return te.sum(product(t, k), axis=k, where=k != i if stage.skip else None) if stage.summed else product(t, i)

    return te.compute((STEPS, WIDTH), element, name=name)


def by_python(network: Network, x: Any) -> list[Any]:
    """The states of a network, element by element."""
    known = [np.zeros((STEPS, WIDTH), "int32") for _ in range(network.states + len(network.stages))]
    for k in range(network.states):
        known[k][: network.first] = x[: network.first] + k
    for t in range(network.first, STEPS):
        for number, stage in enumerate(network.stages):
            factors = [x[t]]
            for term in stage.terms:
                exists = term.source < network.states or t - term.back >= network.first
                factors += [np.roll(known[term.source][t - term.back], -term.shift)] if exists else []
            product = np.prod(factors, axis=0, dtype="int32")
            total = [product.sum(dtype="int32") - (product[i] if stage.skip else 0) for i in range(WIDTH)]
            known[network.states + number][t] = total if stage.summed else product
        for k in range(network.states):
            known[k][t] = known[len(known) - network.states + k][t]
    return known[: network.states]


@settings(max_examples=settings().max_examples // 4)
@given(st.data())
def test_random_scans_under_random_schedules(data: st.DataObject) -> None:
    network = data.draw(networks())
    X, results = declared(network)
    x = np.random.default_rng(0).integers(-2, 3, (STEPS, WIDTH)).astype("int32")
    program, _ = canonical(results)
    with np.errstate(over="ignore"):
        wanted = by_python(network, x)
    for got, want in zip(evaluate(program, [x]).values(), wanted, strict=True):
        np.testing.assert_array_equal(got, want)
    schedule = data.draw(schedules(results, max_steps=3))
    op = schedule.program.by_name["net"]
    assert isinstance(op, HybridOp)
    for member in op.members:
        if data.draw(st.booleans()):
            with contextlib.suppress(BadArgument):
                schedule[member.op].compute_inline()
    check_schedule(schedule, [X, *results], inputs={"X": x})
