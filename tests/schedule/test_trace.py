"""Traces: JSON and Python text, replay, decisions, and keys that every process agrees on."""

from __future__ import annotations

import json
import os
import pickle
import subprocess
import sys
from pathlib import Path

import pytest

from tensorlang import lower, te
from tensorlang.errors import UncoveredRead
from tensorlang.schedule import Schedule, Trace
from tensorlang.schedule import primitives as p
from tensorlang.schedule.primitive import Decision, Primitive
from tensorlang.schedule.primitives import ComputeAt, ComputeRoot, Fuse, Parallel, Reorder, SampleChoice, Split
from tensorlang.testing.check import check_schedule
from tests.programs import Case, chain, diamond, matmul

ROOT = Path(__file__).parents[2]


def tuned() -> Case:
    """A matmul with open decisions."""
    s, args = matmul(12, 16, 8)
    rows, columns = s.sample_choice("rows", [2, 3, 4]), s.sample_choice("columns", [4, 8], decision=8)
    s.cache_read("B", "global", ["C"])
    s["B.global"].transform_layout(lambda k, j: (j // columns, k, j % columns))
    i_o, j_o, i_i, j_i = s["C"].tile("i", "j", rows, columns)
    s["C"].reorder(i_o, j_o, "k", i_i, j_i)
    s["C"].parallel(i_o)
    s["C"].vectorize(j_i)
    return Case(s, args)


def facts(s: Schedule) -> tuple[object, ...]:
    """All that a state is made of."""
    return s.trace, s.program.text, dict(s.state.stages), dict(s.state.decisions)


def replayed(trace: Trace) -> Schedule:
    return trace.apply(matmul(12, 16, 8).s)


def test_text_is_python_that_makes_the_trace() -> None:
    s = tuned().s
    text = s.trace.to_python()
    assert text == str(s)
    assert text.splitlines()[:2] == [
        "rows = s.sample_choice('rows', [2, 3, 4], decision=2)",
        "columns = s.sample_choice('columns', [4, 8], decision=8)",
    ]
    assert "transform_layout(lambda k, j: [j // columns, k, j % columns])" in text
    assert "s['C'].split('i', factor=rows)" in text
    typed = matmul(12, 16, 8).s
    exec(text, {"s": typed})
    assert facts(typed) == facts(s)


def test_json() -> None:
    s = tuned().s
    data = json.loads(json.dumps(s.trace.to_json()))
    assert {"step": "split", "stage": "C", "axis": "i", "factor": {"decision": "rows", "value": 2}, "nparts": None,
            "tail": "guard"} in data  # fmt: skip
    again = Trace.from_json(data)
    assert again == s.trace and again.key == s.trace.key
    assert facts(replayed(again)) == facts(s)


def test_pickle() -> None:
    s = tuned().s
    trace, state = pickle.loads(pickle.dumps((s.trace, s.state)))
    assert trace == s.trace and trace.to_python() == s.trace.to_python(), "decisions keep their names"
    assert state.stages == s.state.stages and state.program.text == s.program.text


def test_decisions_are_open() -> None:
    s, args = tuned()
    assert s.trace.open == {"rows": (2, 3, 4), "columns": (4, 8)}
    assert s.trace.decisions == {"rows": 2, "columns": 8}
    other = s.trace.with_decisions({"rows": 3, "columns": 4})
    assert other.decisions == {"rows": 3, "columns": 4} and s.trace.decisions == {"rows": 2, "columns": 8}
    assert other.open == s.trace.open and len(other.steps) == len(s.trace.steps)
    assert other.key != s.trace.key
    made = replayed(other)
    assert "range(4)" in str(lower(made, args)) and made.program.buffers["B.global"].shape[2].value == 4  # type: ignore[attr-defined]
    check_schedule(made, args)
    assert other.with_decisions({"rows": 2, "columns": 8}) == s.trace


def test_every_decision_keeps_the_meaning() -> None:
    s, args = tuned()
    for rows in s.trace.open["rows"]:
        for columns in s.trace.open["columns"]:
            check_schedule(
                replayed(s.trace.with_decisions({"rows": rows, "columns": columns})), args, targets=("interpreter",)
            )


def test_json_shows_the_decisions_of_now() -> None:
    """A step that refers to a decision shows the value decided, not the one it was written with."""
    other = tuned().s.trace.with_decisions({"rows": 4})
    split = next(d for d in other.to_json() if d["step"] == "split" and d["axis"] == "i")
    assert split["factor"] == {"decision": "rows", "value": 4}
    assert Trace.from_json(other.to_json()).key == other.key


def test_sample_perfect_tile() -> None:
    s = matmul(24, 12, 8).s
    inner = s.sample_perfect_tile("tile", 24, 3, max_innermost=4)
    assert [type(d) for d in inner] == [Decision, Decision] and [d.name for d in inner] == ["tile_0", "tile_1"]
    assert s.trace.open == {"tile_0": (1, 2, 3, 4, 6, 8, 12, 24), "tile_1": (1, 2, 3, 4)}
    chosen = matmul(24, 12, 8).s
    chosen.sample_perfect_tile("tile", 24, 3, decision=[6, 2])
    assert chosen.trace.decisions == {"tile_0": 6, "tile_1": 2}


def test_keys_tell_steps_apart() -> None:
    steps: list[Primitive] = [
        Split("C", "i", 4, None, "guard"), Split("C", "i", None, 4, "guard"), Split("C", "i", 4, None, "peel"),
        Split("C", "j", 4, None, "guard"), Split("B", "i", 4, None, "guard"), Parallel("C", "i"), Fuse("C", ("i", "j")),
        Reorder("C", ("i", "j")), Reorder("C", ("j", "i")), SampleChoice("f", (1, 2), 1), SampleChoice("f", (1, 2), 2),
        SampleChoice("f", (1, 2, 3), 1),
    ]  # fmt: skip
    keys = {Trace((step,)).key for step in steps}
    assert len(keys) == len(steps)
    assert Trace(tuple(steps[:2])).key != Trace(tuple(steps[1::-1])).key


def test_keys_are_the_same_in_every_process() -> None:
    program = (
        "from tests.schedule.test_trace import tuned\n"
        "s = tuned().s\n"
        "print(s.trace.key, s.original.key, s.program.key, s.trace.to_json())"
    )
    outputs = {
        subprocess.run(
            [sys.executable, "-c", program],
            capture_output=True,
            text=True,
            check=True,
            cwd=ROOT,
            env={**os.environ, "PYTHONHASHSEED": seed},
        ).stdout
        for seed in ("0", "1", "77")
    }
    s = tuned().s
    assert outputs == {f"{s.trace.key} {s.original.key} {s.program.key} {s.trace.to_json()}\n"}


def test_the_workload_key_does_not_depend_on_steps() -> None:
    s = matmul(12, 16, 8).s
    key = s.original.key
    s.cache_write("C", "local")
    assert s.original.key == key == matmul(12, 16, 8).s.original.key
    assert s.program.key != key and matmul(12, 16, 9).s.original.key != key


def test_replay_appends_to_what_is_there() -> None:
    s = chain().s
    s["B"].compute_inline()
    Trace((Split("C", "i", 4, None, "guard"), Parallel("C", "i_o"))).apply(s)
    assert str(s).splitlines() == [
        "s['B'].compute_inline()", "s['C'].split('i', factor=4)", "s['C'].parallel('i_o')",
    ]  # fmt: skip


@pytest.mark.parametrize("check", ["every", "final"])
def test_replay_checks_every_step_or_the_last_state(check: str) -> None:
    """B cannot move into C, as D reads it, too; checking the last state alone lets a step be wrong until the next."""
    trace = Trace((ComputeAt("B", "C", "i"), ComputeRoot("B")))
    s, args = diamond()
    if check == "every":
        with pytest.raises(UncoveredRead, match="D reads B outside the loop i of C"):
            trace.apply(s, check)
        assert not s.trace.steps
    else:
        check_schedule(trace.apply(s, check), args, targets=("interpreter",))


def test_equal_steps_make_equal_states() -> None:
    a, b = tuned().s, tuned().s
    assert a.state is not b.state and facts(a) == facts(b) != facts(matmul(12, 16, 8).s)


def test_symbolic_programs_round_trip() -> None:
    n = te.var("n")
    s, args = chain(n)
    s["B"].transform_layout(lambda i: n - 1 - i)
    s["C"].split("i", nparts=3)
    again = Trace.from_json(json.loads(json.dumps(s.trace.to_json()))).apply(chain(n).s)
    assert again.state.stages == s.state.stages and again.program.text == s.program.text
    for size in (0, 1, 10):
        check_schedule(again, args, {"n": size})


TEXTS: dict[str, Primitive] = {
    "s.strict()": p.Strict(),
    "s['B'].fuse('i', 'j')": p.Fuse("B", ("i", "j")),
    "s['B'].split('i', nparts=3, tail='peel')": p.Split("B", "i", None, 3, "peel"),
    "s['B'].skew('j', by='i', factor=1)": p.Skew("B", "j", "i", 1),
    "s['B'].shift('i', -2)": p.Shift("B", "i", "-2"),
    "s['B'].shift('i', 'n + 1', statement='S0')": p.Shift("B", "i", "n + 1", "S0"),
    "s['B'].compute_at(s['C'], 'i')": p.ComputeAt("B", "C", "i"),
    "s.assume('injective', 'idx')": p.Assume("injective", "idx"),
    "s.assume('range', 'idx', None, 8)": p.Assume("range", "idx", None, 8),
    "s['B'].pad('i', width)": p.Pad("B", "i", Decision("width", 8)),
}


@pytest.mark.parametrize("text", TEXTS)
def test_the_text_of_a_step_comes_from_its_fields(text: str) -> None:
    assert TEXTS[text].text() == text
