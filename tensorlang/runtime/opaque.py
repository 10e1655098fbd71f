"""Python functions that torch.compile neither traces nor compiles: it leaves its graph where they are called."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any


def opaque(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function, out of reach of torch's compiler if that is there.

    It would look into what handles arrays, and fail at NumPy's views of memory. `torch.compiler.disable` would import
    the compiler, seconds of work, so it is asked for when the compiler is there.
    """
    apart: list[Callable[..., Any]] = []

    def entry(*args: Any, **named: Any) -> Any:
        if "torch._dynamo" in sys.modules:
            if not apart:
                apart.append(sys.modules["torch"].compiler.disable(function))
            return apart[0](*args, **named)
        return function(*args, **named)

    return entry
