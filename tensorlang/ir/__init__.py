"""Expressions, loop IR, its interpreter, simplifier and verifier."""

from typing import Any

from tensorlang.names import listing, lookup


def __getattr__(name: str) -> Any:
    return lookup(__name__, name)


def __dir__() -> list[str]:
    return listing(__name__)
