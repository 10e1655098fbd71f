"""The disk cache: found again, never trusted blindly, never in the way."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tensorlang import config
from tensorlang.ir.construct import array, store
from tensorlang.ir.stmt import Kernel
from tensorlang.runtime.cache import cached
from tensorlang.target.backend import backend
from tensorlang.target.detect import parse


class _Maker:
    def __init__(self, made: bytes = b"object") -> None:
        self.made = made
        self.calls = 0

    def __call__(self) -> bytes:
        self.calls += 1
        return self.made


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "kernels"


def test_an_object_is_made_once(folder: Path) -> None:
    make = _Maker()
    with config.override(cache_dir=folder):
        assert [cached(("a", "b"), make) for _ in range(3)] == [b"object"] * 3
        assert make.calls == 1
        assert cached(("ab", ""), _Maker(b"other")) == b"other"
    assert len(list(folder.iterdir())) == 2


@pytest.mark.parametrize("damage", [b"", b"short", b"\0" * 100])
def test_damaged_entries_are_made_again(folder: Path, damage: bytes) -> None:
    make = _Maker()
    with config.override(cache_dir=folder):
        cached(("key",), make)
        (entry,) = folder.iterdir()
        entry.write_bytes(damage)
        assert cached(("key",), make) == b"object"
        assert cached(("key",), make) == b"object"
    assert make.calls == 2


def test_the_cache_can_be_off(folder: Path) -> None:
    make = _Maker()
    with config.override(cache_dir=folder, cache=False):
        assert [cached(("key",), make) for _ in range(2)] == [b"object"] * 2
    assert make.calls == 2
    assert not folder.exists()


def test_a_folder_that_cannot_be_written_only_costs_time(tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("not a folder")
    make = _Maker()
    with config.override(cache_dir=blocked):
        assert [cached(("key",), make) for _ in range(2)] == [b"object"] * 2
    assert make.calls == 2


def _constant(value: float) -> Kernel:
    a = array("A", (1,))
    return Kernel("constant", (a,), (), ("A",), store(a, 0, value))


def test_kernels_are_found_again_by_everything_that_changes_them(folder: Path) -> None:
    with config.override(cache_dir=folder):
        for value, cpu, entries in ((1.0, "", 1), (1.0, "", 1), (2.0, "", 2), (2.0, " -mcpu=x86-64", 3)):
            target = parse(f"llvm{cpu}")
            values = np.zeros(1, np.float32)
            backend("llvm").compile(_constant(value), target)(values)
            assert values[0] == value
            assert len(list(folder.iterdir())) == entries


def test_the_log_says_what_was_found(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with config.override(cache_dir=folder, log="cache"):
        for _ in range(2):
            cached(("key",), _Maker())
    first, second = capsys.readouterr().err.splitlines()
    assert first.startswith("cache: makes ")
    assert second == first.replace("makes", "found")
