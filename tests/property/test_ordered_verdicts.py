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

from tensorlang.errors import Instance, ScheduleError
from tensorlang.schedule import Schedule
from tensorlang.schedule import primitives as p
from tensorlang.schedule.check import is_legal, verify
from tensorlang.schedule.derive import Derived, derive
from tensorlang.testing.check import check_schedule
from tensorlang.testing.ordered_programs import OrderedCase, ordered_programs
from tensorlang.testing.traces import schedules
from tests.property import enumeration
from tests.property.test_random_schedules import part_of

VERDICTS = {"nightly": 7_000}.get(settings.get_current_profile_name(), 120)
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
    found = enumeration.broken(derived, sizes)
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
    assert min(verdicts[True], verdicts[False]) > sum(verdicts.values()) // 6, verdicts


@pytest.mark.parametrize("part", range(2))
def test_legal_schedules_keep_meaning(part: int) -> None:
    @part_of(part)
    @settings(max_examples=VERDICTS)
    @given(data=st.data())
    def run(data: st.DataObject) -> None:
        case, schedule = drawn(data, part == 1)
        for sizes in case.sizes[-2:]:
            check_schedule(schedule, case.args, sizes, inputs=case.inputs(sizes))

    run()


FACTS: tuple[tuple[p.Assume, ...], ...] = (
    (p.Assume("injective", "where", None, None),),
    (p.Assume("monotonic", "where", None, None),),
    (p.Assume("range", "where", 1, 4),),
    (p.Assume("injective", "where", None, None), p.Assume("monotonic", "where", None, None)),
    (p.Assume("monotonic", "where", None, None), p.Assume("range", "where", 0, 3)),
)


def fitting(facts: tuple[p.Assume, ...], length: int, rng: np.random.Generator) -> npt.NDArray[Any]:
    """An index array of which some facts hold."""
    kinds = {f.fact: f for f in facts}
    low, high = next(((f.low, f.high) for f in facts if f.fact == "range"), (0, length))
    made = rng.permutation(length) if "injective" in kinds else rng.integers(low, high, length)
    return np.sort(made) if "monotonic" in kinds else made


def test_facts_prove_nothing_wrong() -> None:
    """A schedule that is legal by stated facts orders all pairs right, whatever the index array that they fit."""
    helped: Counter[bool] = Counter()

    @settings(max_examples=VERDICTS)
    @given(data=st.data(), seed=st.integers(0, 99))
    def run(data: st.DataObject, seed: int) -> None:
        facts = data.draw(st.sampled_from(FACTS))
        case = data.draw(ordered_programs(data=True, symbolic=False).filter(lambda c: "where" in c.program.by_name))
        schedule = data.draw(schedules(case.outputs, max_steps=3, check=False, favoured=("parallel",), first=facts))
        note(f"{case.program.text}{schedule.trace.to_python()}")
        if not is_legal(schedule.state):
            return
        helped[not is_legal(replace(schedule.state, facts=()))] += 1
        rng = np.random.default_rng(seed)
        length = case.inputs({})["where"].shape[0]
        for _ in range(3):
            memory = {"where": fitting(facts, length, rng)}
            assert next(enumeration.broken(derive(schedule.state), {}, memory), None) is None, memory

    run()
    assert helped[True] and helped[False], helped
