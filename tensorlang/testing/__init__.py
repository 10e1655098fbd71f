"""Tools for testing tensor programs and schedules: comparison, `check_schedule`, and random programs and schedules.

`testing.strategies` and `testing.traces` need hypothesis. What needs the compiler is imported when it is first used.
"""

from typing import Any

from tensorlang.names import listing, lookup, offer
from tensorlang.testing.compare import assert_allclose

__all__ = ["assert_allclose"]

offer("tensorlang.testing", {"check_intrinsic": "tensorlang.testing.intrinsics:check_intrinsic"})
offer("tensorlang.testing", {"device_enabled": "tensorlang.nd:enabled"})
offer(
    "tensorlang.testing",
    {
        name: f"tensorlang.classic.machines:{name}"
        for name in (
            "enabled_targets",
            "main",
            "parametrize_targets",
            "requires_cuda",
            "requires_gpu",
            "requires_llvm",
            "requires_opencl",
            "uses_gpu",
        )
    },
)
offer("tensorlang.testing", {"check_schedule": "tensorlang.testing.check:check_schedule"})


def __getattr__(name: str) -> Any:
    return lookup(__name__, name)


def __dir__() -> list[str]:
    return listing(__name__)
