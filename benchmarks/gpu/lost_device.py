"""A plugin of pytest-xdist: a process that has lost its device ends, so that the tests after it run in a new one."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

from tensorlang.errors import KernelError

if TYPE_CHECKING:
    import pytest

PLUGIN = "benchmarks.gpu.lost_device"
_LOST = 3


def pytest_exception_interact(call: pytest.CallInfo[None], node: pytest.Item) -> None:
    """End a process of pytest-xdist whose CUDA context is lost; its test counts as failed."""
    error = call.excinfo.value if call.excinfo else None
    lost = isinstance(error, KernelError) and "device context is lost" in str(error)
    if lost and hasattr(node.config, "workerinput"):
        print(f"{node.nodeid}: {error}", file=sys.stderr, flush=True)
        os._exit(_LOST)
