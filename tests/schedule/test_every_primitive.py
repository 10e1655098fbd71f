"""Every step of a schedule, as its row uses it: proven, printed, replayed, run; docs/primitives.md shows the rows."""

from __future__ import annotations

import runpy
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tensorlang import lower, te
from tensorlang.errors import BadArgument
from tensorlang.schedule import Schedule, Stage, Trace
from tensorlang.schedule.primitive import REGISTRY
from tensorlang.testing.check import check_schedule
from tests.programs import Case
from tests.schedule.primitive_uses import USES, Use

DOCS = Path(__file__).parents[2] / "docs"
rows = pytest.mark.parametrize("key", USES)
CLASSIC = """
normalize create_group cache_read cache_write rfactor split fuse set_scope bind env_threads set_store_predicate
compute_at compute_inline compute_root reorder tile vectorize tensorize unroll parallel pragma prefetch storage_align
double_buffer rolling_buffer transform_layout
"""


def used(use: Use) -> Case:
    """The program of a row under its statements."""
    case = use.program()
    exec(use.steps, {"s": case.s, "te": te})
    return case


def assert_same(found: Schedule, wanted: Schedule) -> None:
    """Two schedules are in the same state, by the same steps."""
    assert found.trace == wanted.trace and found.program.text == wanted.program.text
    for field in fields(wanted.state):
        if field.name != "program":
            assert getattr(found.state, field.name) == getattr(wanted.state, field.name), field.name


def test_every_primitive_has_a_row() -> None:
    composed = {key for key, use in USES.items() if use.recorded}
    assert set(USES) - composed == set(REGISTRY)
    assert [name for name in CLASSIC.split() if name not in {*USES, "normalize"}] == []


@rows
def test_the_step_is_recorded(key: str) -> None:
    use = USES[key]
    steps = [data["step"] for data in used(use).s.trace.to_json()]
    assert key in steps if not use.recorded else tuple(steps[: len(use.recorded)]) == use.recorded
    assert hasattr(Stage, key) or hasattr(Schedule, key)


@rows
def test_the_trace_replays_as_text_and_as_json(key: str) -> None:
    case = used(USES[key])
    written = USES[key].program()
    exec(case.s.trace.to_python(), {"s": written.s, "te": te})
    assert_same(written.s, case.s)
    read = USES[key].program()
    Trace.from_json(case.s.trace.to_json()).apply(read.s)
    assert_same(read.s, case.s)
    assert read.s.trace.key == case.s.trace.key


@rows
def test_loops(key: str, golden: Callable[[str], None]) -> None:
    case = used(USES[key])
    golden(f"{case.s}\n{lower(case.s, case.args)}")


@pytest.mark.sampled(20)
@rows
def test_results(key: str) -> None:
    use = USES[key]
    case = used(use)
    check_schedule(case.s, case.args, targets=use.targets, inputs={n: np.array(v, "int32") for n, v in use.inputs})


@rows
def test_a_wrong_use_is_refused(key: str) -> None:
    refused = USES[key].refused
    case = refused.program()
    legal, _, last = refused.steps.rpartition("\n")
    names = {"s": case.s, "te": te}
    exec(legal, names)
    before = case.s.state, case.s.trace
    with pytest.raises(refused.error) as caught:
        exec(last, names)
    assert type(caught.value) is refused.error
    assert (caught.value.witness is None) is (refused.error is BadArgument)
    assert (case.s.state, case.s.trace) == before


def test_the_page_is_up_to_date() -> None:
    script: dict[str, Any] = runpy.run_path(str(DOCS / "make_reference.py"))
    page = (DOCS / "primitives.md").read_text(encoding="utf-8")
    assert page == script["primitives"](), "run: python docs/make_reference.py"
