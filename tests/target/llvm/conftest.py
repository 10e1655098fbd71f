"""Building kernels for this machine."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tensorlang.ir.stmt import Kernel
from tensorlang.ir.verify import verify
from tensorlang.runtime.executable import Executable
from tensorlang.target.backend import backend
from tensorlang.target.detect import parse


def _compiled(kernel: Kernel, target: str = "llvm") -> Executable:
    verify(kernel)
    return backend("llvm").compile(kernel, parse(target))


@pytest.fixture
def compiled() -> Callable[..., Executable]:
    """Compile a kernel for a target text (default: this machine) after verifying it."""
    return _compiled
