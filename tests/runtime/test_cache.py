"""The disk cache: found again, never trusted blindly, never in the way."""

from __future__ import annotations

import os
import stat
import warnings
from pathlib import Path

import numpy as np
import pytest

from tensorlang import config
from tensorlang.errors import CacheRefused, InternalError
from tensorlang.ir.construct import array, store
from tensorlang.ir.stmt import Kernel
from tensorlang.runtime.cache import cached
from tensorlang.target.backend import backend
from tensorlang.target.detect import parse
from tensorlang.target.llvm import engine


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
        assert [cached(("a", "b"), make, bytes) for _ in range(3)] == [b"object"] * 3
        assert make.calls == 1
        assert cached(("ab", ""), _Maker(b"other"), bytes) == b"other"
    assert len(list(folder.iterdir())) == 2


@pytest.mark.parametrize("damage", [b"", b"short", b"\0" * 100])
def test_damaged_entries_are_made_again(folder: Path, damage: bytes) -> None:
    make = _Maker()
    with config.override(cache_dir=folder):
        cached(("key",), make, bytes)
        (entry,) = folder.iterdir()
        entry.write_bytes(damage)
        assert cached(("key",), make, bytes) == b"object"
        assert cached(("key",), make, bytes) == b"object"
    assert make.calls == 2


def test_what_killed_processes_left_half_written_is_removed(folder: Path) -> None:
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    old, new = folder / "old.tmp", folder / "new.tmp"
    for path in (old, new):
        path.write_bytes(b"half")
    os.utime(old, (0, 0))
    with config.override(cache_dir=folder):
        assert cached(("key",), _Maker(), bytes) == b"object"
    assert not old.exists()
    assert new.exists()


def test_the_cache_can_be_off(folder: Path) -> None:
    make = _Maker()
    with config.override(cache_dir=folder, cache=False):
        assert [cached(("key",), make, bytes) for _ in range(2)] == [b"object"] * 2
    assert make.calls == 2
    assert not folder.exists()


def test_an_entry_of_another_key_is_made_again(folder: Path) -> None:
    with config.override(cache_dir=folder):
        cached(("first",), _Maker(b"first"), bytes)
        (first,) = folder.iterdir()
        cached(("second",), _Maker(b"second"), bytes)
        (second,) = set(folder.iterdir()) - {first}
        first.write_bytes(second.read_bytes())
        assert cached(("first",), _Maker(b"again"), bytes) == b"again"
        assert cached(("first",), _Maker(), bytes) == b"again"


def test_an_entry_that_cannot_be_used_is_made_again(folder: Path) -> None:
    def use(found: bytes) -> bytes:
        if found == b"junk":
            raise InternalError("does not link")
        return found

    with config.override(cache_dir=folder):
        cached(("key",), _Maker(b"junk"), bytes)
        assert [cached(("key",), _Maker(), use) for _ in range(2)] == [b"object"] * 2
        with pytest.raises(InternalError, match="does not link"):
            cached(("other",), _Maker(b"junk"), use)


def test_an_object_that_does_not_link_is_compiled_again(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target, values = parse("llvm"), np.zeros(1, np.float32)
    with config.override(cache_dir=folder):
        with monkeypatch.context() as patched:
            patched.setattr(engine, "compile_object", lambda *_: b"junk")
            with pytest.raises(InternalError, match="does not link"):
                backend("llvm").compile(_constant(3.0), target)
        backend("llvm").compile(_constant(3.0), target)(values)
    assert values[0] == 3.0


@pytest.mark.parametrize("what", ["folder", "entry"])
def test_what_others_can_write_is_left_alone_and_said_once(folder: Path, what: str) -> None:
    make = _Maker()
    with config.override(cache_dir=folder), warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        cached(("key",), make, bytes)
        (entry,) = folder.iterdir()
        (folder if what == "folder" else entry).chmod(0o777)
        before = entry.read_bytes()
        assert [cached(("key",), make, bytes) for _ in range(2)] == [b"object"] * 2
        assert (make.calls, entry.read_bytes()) == (3, before)
        if what == "folder":
            cached(("new",), make, bytes)
            assert list(folder.iterdir()) == [entry]
    (warning,) = told
    assert (warning.category, warning.filename) == (CacheRefused, __file__)
    for words in ("others", f"chmod go-w {folder}", "TENSORLANG_CACHE_DIR"):
        assert words in str(warning.message)


def test_entries_are_for_us_alone(folder: Path) -> None:
    with config.override(cache_dir=folder):
        cached(("key",), _Maker(), bytes)
    assert [stat.S_IMODE(p.stat().st_mode) for p in (folder, *folder.iterdir())] == [0o700, 0o600]


def test_a_folder_that_cannot_be_written_only_costs_time(tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("not a folder")
    make = _Maker()
    with config.override(cache_dir=blocked):
        assert [cached(("key",), make, bytes) for _ in range(2)] == [b"object"] * 2
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
            cached(("key",), _Maker(), bytes)
    first, second = capsys.readouterr().err.splitlines()
    assert first.startswith("cache: makes ")
    assert second == first.replace("makes", "found")
