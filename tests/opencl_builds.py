"""The OpenCL programs of a run: a driver takes most of its time to make them fast, which is not what tests ask."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from tensorlang.target.opencl import runtime
from tensorlang.target.opencl.runtime import OpenclDevice
from tests.profiles import is_optimised

_PLAIN = "-cl-opt-disable"


def build_quickly(patch: pytest.MonkeyPatch) -> None:
    """Have the others built as they stand."""
    build = runtime.build

    def quick(context: Any, device: OpenclDevice, text: str, options: Sequence[str]) -> Any:
        return build(context, device, text, options if is_optimised(text) else (*options, _PLAIN))

    patch.setattr(runtime, "build", quick)
