"""`tvm.contrib`: what classic programs take from it without meaning another library."""

from __future__ import annotations

from typing import Any

from tensorlang.names import listing, lookup


def __getattr__(name: str) -> Any:
    return lookup(__name__, name)


def __dir__() -> list[str]:
    return listing(__name__)
