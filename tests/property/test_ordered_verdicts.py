"""Programs with order in them: isl's verdict equals the enumeration of all pairs, and legal schedules keep meaning."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import event, given, note, settings
from hypothesis import strategies as st

from tensorlang import te
from tensorlang.errors import Instance, ScheduleError
from tensorlang.ir.expr import Buffer, Const, Load, Var, cast
from tensorlang.ir.stmt import INDEX, For, LoopKind, Seq, Store, walk
from tensorlang.schedule import Schedule
from tensorlang.schedule import primitives as p
from tensorlang.schedule.check import is_legal, verify
from tensorlang.schedule.derive import derive
from tensorlang.schedule.derive.plans import Derived
from tensorlang.schedule.primitive import Primitive
from tensorlang.te.operation import HybridOp, Read
from tensorlang.testing.check import check_schedule
from tensorlang.testing.ordered_programs import OrderedCase, ordered_programs
from tensorlang.testing.traces import schedules
from tests.property import enumeration
from tests.property.test_random_schedules import part_of

VERDICTS = {"nightly": 7_000}.get(settings.get_current_profile_name(), 16)
"""Cases of each kind of verdict."""


def drawn(data: st.DataObject, indirect: bool, **options: Any) -> tuple[OrderedCase, Schedule]:
    """A program and a schedule of it, told in full when the test fails."""
    dtypes = {"dtypes_from": options.pop("dtypes_from")} if "dtypes_from" in options else {}
    case = data.draw(ordered_programs(data=indirect, **dtypes))
    schedule = data.draw(schedules(case.outputs, **options))
    note(f"{case.program.text}{schedule.trace.to_python()}")
    event(f"{len(schedule.trace.steps)} steps")
    return case, schedule


def same(event: enumeration.Event, instance: Instance) -> bool:
    """Whether an enumerated instance is the one that a witness names."""
    statement, values = event
    time = tuple(values[p] if isinstance(p, str) else p for p in statement.time)
    return (statement.name, time) == (instance.statement, instance.time)


def convicts(error: ScheduleError, derived: Derived) -> bool:
    """Whether the instances of a witness are a dependent pair in the wrong order, for the sizes that it names."""
    witness = error.witness
    if witness is None:  # of a read that never runs
        return not enumeration.covered(derived)
    sizes = dict(witness.sizes)
    if witness.source is None:
        return not enumeration.covered(derived, sizes)
    first, then = witness.source, witness.sink
    both = [e for i in (first, then) for e in enumeration.events_at(derived, i.statement, i.time, sizes)]
    found = enumeration.broken(derived, sizes, among=both)
    return any({same(a, first), same(b, then)} == {True} or {same(b, first), same(a, then)} == {True} for a, b in found)


OPTIONS: dict[str, dict[str, Any]] = {
    "affine": {"indirect": False},
    "through data": {"indirect": True},
    "strict": {"indirect": False, "dtypes_from": ("float32",), "first": (p.Strict(),)},
}


@pytest.mark.parametrize("kind", OPTIONS)
def test_verdict_equals_enumeration(kind: str) -> None:
    verdicts: Counter[bool] = Counter()

    @part_of(len(kind))
    @settings(max_examples=VERDICTS)
    @given(data=st.data())
    def run(data: st.DataObject) -> None:
        case, schedule = drawn(data, max_steps=5, check=False, threads=True, **OPTIONS[kind])
        derived = derive(schedule.state)
        legal = is_legal(schedule.state)
        event("legal" if legal else "illegal")
        verdicts[legal] += 1
        if legal:
            assert all(enumeration.is_legal(derived, sizes) for sizes in case.sizes)
        else:
            with pytest.raises(ScheduleError) as caught:
                verify(schedule.state)
            assert convicts(caught.value, derived), caught.value

    run()
    assert min(verdicts[True], verdicts[False]) > sum(verdicts.values()) // 10, verdicts


@pytest.mark.parametrize("part", range(2))
def test_legal_schedules_keep_meaning(part: int) -> None:
    @part_of(part)
    @settings(max_examples=VERDICTS // 2)
    @given(data=st.data())
    def run(data: st.DataObject) -> None:
        case, schedule = drawn(data, part == 1)
        for sizes in case.sizes[-1:]:
            check_schedule(schedule, case.args, sizes, inputs=case.inputs(sizes))

    run()


FACTS: tuple[tuple[p.Assume, ...], ...] = (
    (p.Assume("injective", "where", None, None),),
    (p.Assume("monotonic", "where", None, None),),
    (p.Assume("range", "where", 1, 4),),
    (p.Assume("injective", "where", None, None), p.Assume("monotonic", "where", None, None)),
    (p.Assume("monotonic", "where", None, None), p.Assume("range", "where", 0, 3)),
)


EXTENT = 5


def fitting(facts: tuple[p.Assume, ...], length: int, rng: np.random.Generator) -> npt.NDArray[Any]:
    """An index array of which some facts hold."""
    kinds = {f.fact: (f.low or 0, f.high or length) for f in facts}
    made = rng.permutation(length) if "injective" in kinds else rng.integers(*kinds.get("range", (0, length)), length)
    return np.sort(made) if "monotonic" in kinds else made


@st.composite
def scatters(draw: Any) -> HybridOp:
    """`for i: A[where[i + c] + d] = ...`, up to three stores that may also update, or know their element."""
    A = te.placeholder((3 * EXTENT,), "int32", name="A")
    where = te.placeholder((2 * EXTENT,), "int32", name="where")
    made, i, stores = Buffer("P", A.shape, "int32"), Var("i", INDEX), []
    for _ in range(draw(st.sampled_from((1, 1, 2, 3)))):
        at = i + draw(st.sampled_from((0, 0, 1)))
        found = cast(Read(where, (at,)), INDEX) if draw(st.integers(0, 3)) else at
        index = (found + draw(st.sampled_from((0, 0, 1, 2, EXTENT))),)
        value = cast(i, "int32")
        stores.append(Store(made, index, Load(made, index) + value if draw(st.booleans()) else value))
    body = For(i, Const(0, INDEX), Const(EXTENT, INDEX), LoopKind.SERIAL, Seq(tuple(stores)))
    return HybridOp("P", (made,), body, (A,))


STEPS = (p.Parallel("P", "i"), p.Reverse("P", "i"), p.Fission("P", "i", ""), p.Vectorize("P", "i"))


def test_facts_prove_nothing_wrong() -> None:
    """A schedule that is legal by stated facts orders all pairs right, whatever the index array that they fit."""
    helped: Counter[bool] = Counter()

    @settings(max_examples=3 * VERDICTS)
    @given(st.sampled_from(FACTS + FACTS[::3]), scatters(), st.sampled_from(STEPS), st.integers(0, 99))
    def run(facts: tuple[p.Assume, ...], op: HybridOp, step: Primitive, seed: int) -> None:
        schedule = te.create_schedule(op)
        if isinstance(step, p.Fission) and sum(isinstance(s, Store) for s in walk(op.body)) == 1:
            return
        for each in (*(f for f in facts if "where" in schedule.program.by_name), step):
            schedule.advance(each, check=False)
        note(f"{schedule.original.text}{schedule.trace.to_python()}")
        if not is_legal(schedule.state):
            return
        helped[not is_legal(replace(schedule.state, facts=()))] += 1
        derived, rng = derive(schedule.state), np.random.default_rng(seed)
        for _ in range(5):
            memory = {"where": fitting(facts, 2 * EXTENT, rng)}
            assert next(enumeration.broken(derived, {}, memory), None) is None, memory

    run()
    assert min(helped.values()) > VERDICTS // 10, helped
