"""Rates of a machine in words of the estimate: of what was measured, rounded, or of the name alone."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tensorlang import config
from tensorlang.runtime import cache
from tensorlang.target.rates import Rates, core_of, keep, recall, usual_core
from tensorlang.target.spec import Target

TARGET = Target("llvm", vector_bytes=64, caches=(32768, 1 << 20, 1 << 25))
SPLIT = Rates(
    1,
    {
        "clock": 3.72,
        "fma float32x16": 3.66,
        "fma float32x8": 7.25,
        "load float32x16": 3.45,
        "load float32x8": 6.9,
        "L1": 220.0,
        "L2": 117.0,
        "L3": 60.0,
        "memory": 20.0,
    },
)
"""Of a CPU that splits vectors of 512 bits."""


def test_a_cpu_that_splits_wide_vectors_has_half_the_rate() -> None:
    wide, narrow = core_of(SPLIT, TARGET), core_of(SPLIT, replace(TARGET, vector_bytes=32))
    assert wide is not None
    assert narrow is not None
    assert (wide.fma, wide.loads, narrow.fma, narrow.loads) == (1, 1, 2, 2)
    assert usual_core(TARGET).fma == 2
    assert SPLIT.gflops == pytest.approx(117.12)


def test_two_measurements_of_one_machine_give_one_core() -> None:
    again = Rates(1, {name: rate * 1.004 for name, rate in SPLIT.values.items()})
    assert core_of(again, TARGET) == core_of(SPLIT, TARGET)


def test_a_core_is_known_from_what_was_measured_alone() -> None:
    assert core_of(None, TARGET) is None
    assert core_of(replace(SPLIT, threads=2), TARGET) is None
    assert core_of(SPLIT, replace(TARGET, vector_bytes=16)) is None
    without = {name: rate for name, rate in SPLIT.values.items() if name != "memory"}
    assert core_of(replace(SPLIT, values=without), TARGET) is None


def test_a_file_of_rates_is_bound_to_its_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with config.override(cache_dir=tmp_path):
        keep(TARGET, 1, {"memory": 20.0})
        assert recall(TARGET, 1) == {"memory": 20.0}
        assert recall(TARGET, 2) == {}
        assert recall(replace(TARGET, cpu="haswell"), 1) == {}
        monkeypatch.setattr("tensorlang.target.rates.cpu_model", lambda: "another CPU")
        assert recall(TARGET, 1) == {}


@pytest.mark.parametrize(
    "content", [b"", b"no json", b"[1]", b'{"memory": "fast"}', b'{"memory": -1}', b'{"memory": NaN}']
)
def test_a_file_of_something_else_says_nothing(tmp_path: Path, content: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    with config.override(cache_dir=tmp_path):
        monkeypatch.setattr("tensorlang.target.rates.json.dumps", lambda data: content.decode())
        keep(TARGET, 1, {"memory": 20.0})
        monkeypatch.undo()
        assert recall(TARGET, 1) == {}


def test_what_is_kept_gives_way_to_what_is_kept_later(tmp_path: Path) -> None:
    with config.override(cache_dir=tmp_path):
        cache.keep(("a",), b"one")
        cache.keep(("a",), b"two")
        assert (cache.find(("a",)), cache.find(("b",))) == (b"two", None)
    with config.override(cache_dir=tmp_path, cache=False):
        cache.keep(("a",), b"three")
        assert cache.find(("a",)) is None
