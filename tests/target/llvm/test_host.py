"""What LLVM says of this machine is asked once, and again where the CPU or the library is another one."""

from __future__ import annotations

import platform
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tensorlang import config
from tensorlang.runtime import cache
from tensorlang.target.llvm import engine, host


@pytest.fixture
def asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """How often LLVM was asked, with an empty cache."""
    times: list[int] = []
    real = engine.host

    def host() -> Any:
        times.append(1)
        return real()

    monkeypatch.setattr(engine, "host", host)
    with config.override(cache_dir=tmp_path):
        yield times


def known() -> host.Host:
    """What a process learns that begins now."""
    return host.host.__wrapped__()


def test_llvm_is_asked_once(asked: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    if host._answers(host._library()) is None:
        pytest.skip("this CPU is not asked who it is")
    first, real = known(), host._answers
    assert first == engine.host() and first.features and len(asked) == 2
    assert known() == first and len(asked) == 2
    monkeypatch.setattr(host, "_answers", lambda library: (real(library) or "") + " another CPU")
    assert known() == first and len(asked) == 3
    monkeypatch.setattr(host, "_library", lambda: "another library")
    assert known() == first and len(asked) == 4
    assert known() == first and len(asked) == 4


def test_entries_of_no_use_are_made_again(asked: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    """As one of another revision, whose classes are gone: it stopped each later process."""
    monkeypatch.setattr(host, "_answers", lambda library: "a CPU")
    cache.keep(("host", host._library(), platform.machine(), "a CPU"), b"cno_such_module\nHost\n.")
    assert known() == known() == engine.host() and len(asked) == 2


def test_without_a_cache_it_is_always_asked(asked: list[int]) -> None:
    with config.override(cache=False):
        assert known() == known() and len(asked) == 2


def test_a_cpu_answers_alike_on_all_cores() -> None:
    library = host._library()
    assert library and len({host._answers(library) for _ in range(50)}) == 1
