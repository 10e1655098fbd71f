"""What `tvm.testing` says of targets: which there are, and which tests need one."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, TypeVar

from tensorlang.nd import Device, device, enabled

F = TypeVar("F", bound=Callable[..., Any])
_TARGETS = ("llvm", "cuda", "opencl")


def enabled_targets() -> list[tuple[str, Device]]:
    """Return the targets that this machine runs, and their devices."""
    return [(target, device(target, 0)) for target in _TARGETS if enabled(target)]


def uses_gpu(*tests: F) -> Any:
    """Mark a test that may use a GPU; it runs anyway."""
    return tests[0] if tests else uses_gpu


def requires(target: str) -> Callable[..., Any]:
    """Return a decorator of tests that are skipped where a target does not run."""

    def decorate(*tests: F) -> Any:
        import pytest

        mark = pytest.mark.skipif(not enabled(target), reason=f"{target} does not run here")
        return mark(tests[0]) if tests else mark

    return decorate


requires_llvm, requires_cuda, requires_opencl = requires("llvm"), requires("cuda"), requires("opencl")
requires_gpu = requires_cuda


def parametrize_targets(*args: Any) -> Any:
    """Give a test the arguments `target` and `dev`: of the targets that are named and run here, or of all that do."""
    import pytest

    if len(args) == 1 and callable(args[0]):
        return parametrize_targets()(args[0])
    wanted = args or _TARGETS
    here = [(target, dev) for target, dev in enabled_targets() if any(w.split()[0] == target for w in wanted)]
    return pytest.mark.parametrize(("target", "dev"), here)


def main() -> None:
    """Run the tests of the file that is run, and end with their exit code."""
    import pytest

    sys.exit(pytest.main([sys.argv[0], *sys.argv[1:]]))
