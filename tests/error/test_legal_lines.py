"""Lines after `legal:` are Python that was run; words are advice; nothing else gets in."""

from __future__ import annotations

import ast
import pickle
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tensorlang import te
from tensorlang.errors import BadArgument, ScheduleError, UncoveredRead
from tensorlang.schedule import Schedule
from tensorlang.schedule.proposals.replayed import Refusal
from tests.programs import chain, matmul

_TEXTS = Path(__file__).parents[1] / "golden"


def legal_lines(text: str) -> Iterator[str]:
    """The lines after `legal:` in the text of an error."""
    for found in re.finditer(r"^  legal: (.*(?:\n         .*)*)", text, re.MULTILINE):
        yield from (line.strip() for line in found.group(1).splitlines())


def test_every_line_of_a_golden_text_is_python() -> None:
    lines = [line for file in _TEXTS.rglob("*.txt") for line in legal_lines(file.read_text(encoding="utf-8"))]
    assert len(lines) >= 5
    for line in lines:
        assert all(isinstance(s, ast.Expr | ast.Assign) for s in ast.parse(line).body), line


def test_nobody_claims_to_be_legal() -> None:
    """Suggestions become legal in one place, which runs them."""
    package = Path(__file__).parents[2] / "tensorlang"
    claims = [p for p in package.rglob("*.py") if re.search(r"\blegal=", p.read_text(encoding="utf-8"))]
    assert claims == []


def split_in_two() -> Schedule:
    s = matmul().s
    s["C"].split("i", factor=4)
    return s


LINES = {
    "whole": ("s['C'].reorder('i_i', 'i_o')", ["s['C'].reorder('i_i', 'i_o')"], []),
    "several": ("s['C'].unroll('i_i'); s['C'].parallel('i_o')", ["s['C'].unroll('i_i'); s['C'].parallel('i_o')"], []),
    "with the step itself": ("s['C'].unroll('i_i'); ...", ["s['C'].unroll('i_i'); s['C'].parallel('j')"], []),
    "named parts": (
        "a, b = s['C'].split('j', factor=2); s['C'].parallel(a)",
        ["a, b = s['C'].split('j', factor=2); s['C'].parallel(a)"],
        [],
    ),
    "a stage of its own": (
        "T = s.cache_write('C', 'local'); s[T].compute_at(s['C'], 'j')",
        ["T = s.cache_write('C', 'local'); s[T].compute_at(s['C'], 'j')"],
        [],
    ),
    "anew": (
        "s = te.create_schedule(outputs); s['C'].parallel('i')",
        ["s = te.create_schedule(outputs); s['C'].parallel('i')"],
        [],
    ),
    "illegal": ("s['C'].parallel('k')", [], []),
    "an axis that is not there": ("s['C'].parallel('q')", [], []),
    "the last step is wrong": ("s['C'].unroll('i_i'); s['C'].parallel('q')", [], []),
    "words": ("larger tiles", [], ["larger tiles"]),
    "a form": ("s['C'].split('i', factor=...)", [], ["s['C'].split('i', factor=...)"]),
    "an import": ("__import__('os').abort()", [], []),
    "a private name": ("s._undo(1)", [], []),
    "an attribute of an attribute": ("s['C'].schedule.apply.__globals__.clear()", [], []),
    "another function": ("print(s)", [], []),
    "code in an index": ("s['C'].transform_layout(lambda i, j: [__import__('os').abort(), j])", [], []),
}


@pytest.mark.parametrize("name", LINES)
def test_a_line_is_shown_if_it_runs(name: str) -> None:
    text, legal, advice = LINES[name]
    s = split_in_two()
    state = s.state
    found = Refusal(s, "s['C'].parallel('j')").sorted([text])
    assert (list(found.legal), list(found.advice)) == (legal, advice)
    assert s.state is state
    for line in found.legal:
        exec(line, {"s": split_in_two(), "te": te, "outputs": s.outputs})


def test_steps_of_a_call_that_was_undone_are_part_of_the_line() -> None:
    """tile splits twice before its reorder is refused, and takes both back."""
    A = te.placeholder((8, 8), "int32", name="A")
    C = te.recurrence((8, 8), lambda C, t, i: te.if_then_else(te.all(t > 0, i < 7), C[t - 1, i + 1], A[t, i]), name="C")
    s = te.create_schedule(C.op)
    with pytest.raises(ScheduleError) as caught:
        s[C].tile("t", "i", 2, 2)
    assert caught.value.legal and str(s) == ""
    for line in caught.value.legal:
        again = te.create_schedule(C.op)
        exec(line, {"s": again, "te": te, "outputs": [C.op]})
        assert again.trace.steps


def test_choices_of_a_tuner_have_their_names() -> None:
    s = matmul().s
    size = s.sample_choice("size", [2, 4], decision=4)
    with pytest.raises(BadArgument) as caught:
        s["C"].split("i", factor=size, tail="perfect")
        s["C"].fuse("j", "i_i")
    for line in caught.value.legal:
        exec(line, {"s": s.again(), "te": te, "size": size})


def test_without_a_schedule_there_are_words_only() -> None:
    error = BadArgument("asked", "why", suggested=["s['C'].unroll('i')", "larger tiles"])
    assert (error.legal, error.advice) == ((), ("larger tiles",))
    assert str(error).endswith("  advice: larger tiles")


def test_what_was_tried_travels_between_processes() -> None:
    with pytest.raises(UncoveredRead) as caught:
        s = chain().s
        s["B"].compute_at(s["C"], "i")
        s["B"].set_store_predicate("i < 3")
    again = pickle.loads(pickle.dumps(caught.value))
    assert (again.legal, again.advice, str(again)) == (caught.value.legal, caught.value.advice, str(caught.value))
