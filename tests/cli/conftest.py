"""The command line on a machine whose caches are soon flushed and measured."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tensorlang.target import detect
from tests.forked_workers import SMALL_CACHES

_own = detect.cache_sizes


@pytest.fixture(scope="package", autouse=True)
def small_caches() -> Iterator[None]:
    """Let this machine's caches be small ones."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(detect, "cache_sizes", lambda: SMALL_CACHES)
        yield


@pytest.fixture
def own_caches(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of this machine, for tests with processes of their own."""
    monkeypatch.setattr(detect, "cache_sizes", _own)
