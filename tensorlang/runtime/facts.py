"""Facts about index arrays, tested on the arrays of a call before a kernel runs (TENSORLANG_CHECK=1)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from tensorlang.dataclass import dataclass
from tensorlang.errors import ArgumentError
from tensorlang.runtime.arrays import as_array

Array = npt.NDArray[Any]


@dataclass(frozen=True, slots=True)
class FactCheck:
    """A stated fact about argument `position` of a kernel; `low` and `high` belong to `range`."""

    kind: str
    name: str
    position: int
    low: int | None = None
    high: int | None = None

    def __call__(self, array: Any) -> None:
        """Raise ArgumentError with the first elements that contradict the fact."""
        try:
            values = as_array(array)
        except TypeError:
            return  # the kernel says what it takes
        complaint = _TESTS[self.kind](values, self)
        if complaint:
            raise ArgumentError(f"{self.name} is not {self._stated()}, as the schedule assumes: {complaint}")

    def __str__(self) -> str:
        return f"{self.name} is {self._stated()}"

    def _stated(self) -> str:
        return f"in the range {self.low} <= element < {self.high}" if self.kind == "range" else self.kind


def _injective(values: Array, check: FactCheck) -> str:
    flat = values.ravel()
    order = np.argsort(flat, kind="stable")
    equal = np.flatnonzero(flat[order][1:] == flat[order][:-1])
    if not equal.size:
        return ""
    second = int(order[equal + 1].min())
    first = int(np.flatnonzero(flat == flat[second])[0])
    return f"{_element(values, check, first)} and {_element(values, check, second)} are both {flat[second]}"


def _monotonic(values: Array, check: FactCheck) -> str:
    falls = np.flatnonzero(values[1:] < values[:-1])
    if not falls.size:
        return ""
    at = int(falls[0])
    return f"{_element(values, check, at)} is {values[at]}, and {_element(values, check, at + 1)} is {values[at + 1]}"


def _range(values: Array, check: FactCheck) -> str:
    assert check.low is not None and check.high is not None
    outside = np.flatnonzero((values.ravel() < check.low) | (values.ravel() >= check.high))
    if not outside.size:
        return ""
    at = int(outside[0])
    return f"{_element(values, check, at)} is {values.ravel()[at]}"


def _element(values: Array, check: FactCheck, at: int) -> str:
    return f"{check.name}[{', '.join(str(int(i)) for i in np.unravel_index(at, values.shape))}]"


_TESTS: dict[str, Callable[[Array, FactCheck], str]] = {
    "injective": _injective,
    "monotonic": _monotonic,
    "range": _range,
}
"""Kind of a fact -> what contradicts it, or nothing."""
