"""Kernels of drawn schedules, run and compared with the reference: exactly, for all values are small whole numbers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import numpy.typing as npt

from tensorlang import build, config
from tensorlang.schedule import Schedule
from tensorlang.testing.soak.case import Wrong
from tensorlang.testing.strategies import ProgramCase

Array = npt.NDArray[Any]


def told(text: str, schedule: Schedule) -> str:
    """A program and its trace as Python."""
    return f"{text}{schedule.trace.to_python()}"


def run_on(case: ProgramCase, schedule: Schedule, target: str) -> None:
    """Build for a target, run, and raise Wrong unless the outputs are those of the reference."""
    kernel = build(schedule, case.tensors, target=target)
    outputs = noise(case)
    kernel(*(a.copy() for a in case.inputs), *outputs)
    assert_right(case, outputs, f"on {target}")


def noise(case: ProgramCase) -> list[Array]:
    """Arrays for the outputs, full of what is to be overwritten."""
    return [np.full(wanted.shape, 99, wanted.dtype) for wanted in case.expected()]


def assert_right(case: ProgramCase, outputs: Sequence[Array], where: str) -> None:
    """Raise Wrong unless the outputs are those of the reference."""
    for tensor, got, wanted in zip(case.outputs, outputs, case.expected(), strict=True):
        if not np.array_equal(got, wanted):
            at = tuple(int(i) for i in np.argwhere(got != wanted)[0])
            raise Wrong(f"{tensor.name}{list(at)} is {got[at]} {where}, and should be {wanted[at]}")


@contextmanager
def verified(seed: int) -> Iterator[None]:
    """Verify what every pass has made (TENSORLANG_CHECK=1) for every fourth seed."""
    with config.override(check=seed % 4 == 0):
        yield
