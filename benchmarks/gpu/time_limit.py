"""A plugin of pytest: `--time-limit=60` skips the tests that are not begun after so many seconds."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pytest

PLUGIN = "benchmarks.gpu.time_limit"
NO_TIME = "no time is left for it"
_begin = time.monotonic()


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option."""
    parser.addoption("--time-limit", type=float, required=True)


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip what comes too late."""
    import pytest

    if time.monotonic() - _begin > item.config.getoption("--time-limit"):
        pytest.skip(NO_TIME)
