"""Whole messages in the five-part form: asked, why, witness, schedule, legal."""

from __future__ import annotations

import pickle
from collections.abc import Callable

import pytest

from tensorlang import te
from tensorlang.config import override
from tensorlang.errors import ScheduleError, TooComplex
from tensorlang.schedule import Schedule
from tests.programs import chain, matmul, row_sum, two_consumers

n, m = te.var("n"), te.var("m")


def message(s: Schedule, step: Callable[[Schedule], object]) -> str:
    """The text of a refusal, without the line number of this file."""
    with pytest.raises(ScheduleError) as caught:
        step(s)
    where = caught.value.where
    assert where is not None and where.file == __file__
    for line in caught.value.legal:
        exec(line, {"s": s.again(), "te": te, "outputs": s.outputs})
    return str(caught.value).replace(str(where), "test_messages.py:LINE")


def test_race(golden: Callable[[str], None]) -> None:
    s = matmul().s
    s["C"].split("k", 4)
    s["C"].reorder("k_o", "i", "j", "k_i")
    golden(message(s, lambda s: s["C"].parallel("k_o")))


def test_race_of_any_size(golden: Callable[[str], None]) -> None:
    golden(message(row_sum(m, n).s, lambda s: s["B"].parallel("k")))


def test_read_without_a_producer(golden: Callable[[str], None]) -> None:
    s = two_consumers().s
    s["C"].split("i", 4)
    golden(message(s, lambda s: s["B"].compute_at(s["C"], "i_o")))


def test_bad_argument(golden: Callable[[str], None]) -> None:
    s = chain().s
    outer, _ = s["C"].split("i", 4)
    s["C"].parallel(outer)
    golden(message(s, lambda s: s["C"].fuse("i_o", "i_i")))


def test_too_complex(golden: Callable[[str], None]) -> None:
    s = matmul(n, m, 8).s
    with override(budget=100):
        golden(message(s, lambda s: s["C"].parallel("i")))
    s["C"].parallel("i")


def test_errors_travel_between_processes() -> None:
    with pytest.raises(ScheduleError) as caught:
        row_sum(m, n).s["B"].parallel("k")
    again = pickle.loads(pickle.dumps(caught.value))
    assert type(again) is type(caught.value) and str(again) == str(caught.value)
    assert again.witness == caught.value.witness and again.legal == caught.value.legal


def test_a_budget_too_small_is_too_complex_and_changes_nothing() -> None:
    s = matmul(n, m, 8).s
    state = s.state
    with override(budget=100), pytest.raises(TooComplex, match="more than 100 isl operations"):
        s["C"].parallel("i")
    assert s.state is state
