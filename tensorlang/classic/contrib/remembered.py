"""`tvm.contrib.pickle_memoize`: what a function without arguments that change returned before."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import TypeVar

F = TypeVar("F", bound=Callable[..., object])


def memoize(key: str, save_at_exit: bool = False) -> Callable[[F], F]:
    """Return a decorator of functions that are called once for equal arguments, in this process.

    `key` and `save_at_exit` are accepted for TVM's sake, which keeps results in files.
    """
    del key, save_at_exit
    return cache  # type: ignore[return-value]
