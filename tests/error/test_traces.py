"""Traces that cannot be read, or do not fit the program: one clear error, and the schedule as it was."""

from __future__ import annotations

from typing import Any

import pytest

from tensorlang.errors import BadArgument, IllegalParallel, RecordError, ScheduleError
from tensorlang.schedule import Trace
from tests.programs import chain, matmul, row_sum

SPLIT: dict[str, Any] = {"step": "split", "stage": "C", "axis": "i", "factor": 4, "nparts": None, "tail": "guard"}

UNREADABLE: dict[str, tuple[Any, str]] = {
    "an object": ({}, "a trace is a list of steps, got dict"),
    "text": ("[]", "a trace is a list of steps, got str"),
    "a list of numbers": ([3], "a trace is a list of steps, got list"),
    "an unknown step": ([{"step": "splt"}], "unknown schedule step 'splt'; .*; did you mean split"),
    "a step without a name": ([{"stage": "C"}], "unknown schedule step None"),
    "a step named by a list": ([{"step": ["split"]}], r"unknown schedule step \['split'\]"),
    "a missing field": ([{"step": "split", "stage": "C"}], "step split needs the fields .*'tail'.*, got .*'stage'"),
    "a field too many": ([{**SPLIT, "by": 1}], "step split needs the fields .* got .*'by'"),
    "a text for a number": ([{**SPLIT, "factor": "4"}], r"field factor of step split is int \| None, got '4'"),
    "a fraction for a number": ([{**SPLIT, "factor": 4.0}], r"field factor of step split is int \| None, got 4.0"),
    "a bool for a number": ([{**SPLIT, "factor": True}], r"field factor of step split is int \| None, got True"),
    "a number for a name": ([{**SPLIT, "stage": 7}], "field stage of step split is str, got 7"),
    "a text for a list": (
        [{"step": "reorder", "stage": "C", "axes": "ij"}],
        r"field axes of step reorder is tuple\[str, ...\], got 'ij'",
    ),
    "a list of wrong things": ([{"step": "reorder", "stage": "C", "axes": [1]}], r"is tuple\[str, ...\], got \(1,\)"),
    "candidates that are texts": (
        [{"step": "sample_choice", "name": "f", "candidates": ["2"], "decision": 2}],
        r"field candidates of step sample_choice is tuple\[int, ...\], got \('2',\)",
    ),
    "code in an index": (
        [SPLIT, {"step": "transform_layout", "stage": "B", "axes": ["i"], "index": ["exit(3)"]}],
        r"step transform_layout: cannot read the index expression 'exit\(3\)'",
    ),
    "half an index": (
        [SPLIT, {"step": "transform_layout", "stage": "B", "axes": ["i"], "index": ["i +"]}],
        r"cannot read the index expression 'i \+': invalid syntax",
    ),
    "code for a name": (
        [{"step": "sample_choice", "name": "x = 1; y", "candidates": [2], "decision": 2}],
        "field name of step sample_choice is Identifier, got 'x = 1; y'",
    ),
}


@pytest.mark.parametrize("name", UNREADABLE)
def test_unreadable(name: str) -> None:
    data, why = UNREADABLE[name]
    with pytest.raises(RecordError, match=why):
        Trace.from_json(data)


MISFITS: dict[str, tuple[list[dict[str, Any]], type[ScheduleError], str]] = {
    "another program's stage": ([{**SPLIT, "stage": "D"}], BadArgument, "no stage 'D'"),
    "another program's axis": ([SPLIT, {**SPLIT, "axis": "j"}], BadArgument, "no axis 'j' in C"),
    "a decision that was not made": (
        [{**SPLIT, "factor": {"decision": "t", "value": 4}}],
        BadArgument,
        "no decision 't' was sampled; there are kept",
    ),
    "an unknown name in an index": (
        [{"step": "transform_layout", "stage": "B", "axes": ["i"], "index": ["i + j"]}],
        BadArgument,
        r"cannot read the index expression 'i \+ j': j is neither an axis, a decision nor a size",
    ),
}


@pytest.mark.parametrize("check", ["every", "final"])
@pytest.mark.parametrize("name", MISFITS)
def test_a_trace_that_does_not_fit_changes_nothing(name: str, check: str) -> None:
    data, error, why = MISFITS[name]
    s = chain().s
    s.sample_choice("kept", [1, 2])
    state, trace = s.state, s.trace
    with pytest.raises(error, match=why):
        Trace.from_json(data).apply(s, check)
    assert s.state is state and s.trace is trace


@pytest.mark.parametrize("check", ["every", "final"])
def test_an_illegal_step_in_a_trace_is_found_and_changes_nothing(check: str) -> None:
    data = [{**SPLIT, "axis": "k"}, {"step": "parallel", "stage": "C", "axis": "k_o"}]
    s = matmul().s
    state = s.state
    with pytest.raises(IllegalParallel, match="k_o would run at the same time"):
        Trace.from_json(data).apply(s, check)
    assert s.state is state and not s.trace.steps


def test_decisions() -> None:
    s = row_sum().s
    factor = s.sample_choice("factor", [4, 5, 10])
    s["B"].split("k", factor)
    with pytest.raises(RecordError, match="no decision 'facto'; there are factor; did you mean factor"):
        s.trace.with_decisions({"facto": 4})
    with pytest.raises(RecordError, match=r"decision factor = 6 is not among \[4, 5, 10\]"):
        s.trace.with_decisions({"factor": 6})
    assert s.trace.with_decisions({"factor": 5}).decisions == {"factor": 5}
