"""What the benchmark of the tuner tunes: workloads of the contest of kernels, with nothing known ahead."""

from __future__ import annotations

import fnmatch
from dataclasses import dataclass, replace
from typing import Any

from benchmarks import workloads
from benchmarks.workloads import Workload
from tensorlang.autotune import Task, create_task


@dataclass(frozen=True, slots=True)
class Subject:
    """A workload, and how the tuners call it: an operator of `topi` with its sizes."""

    workload: Workload
    operator: str
    sizes: tuple[int, ...]

    @property
    def name(self) -> str:
        """The workload's."""
        return self.workload.name

    def task(self, threads: int) -> Task:
        """What tensorlang tunes, on this machine."""
        return create_task(self.operator, self.sizes, threads=threads)

    def variant(self, options: dict[str, Any]) -> Workload:
        """The workload as a contestant gets it, who is told which kernel to build."""
        shape = self.workload.definition.shape(self.workload.shapes, self.workload.options)
        told = {"arguments": list(self.workload.shapes), "shape": shape, **options}
        return replace(self.workload, options={**self.workload.options, **told})


def _subject(named: Workload, operator: str, *sizes: int) -> Subject:
    return Subject(replace(named, constant=()), operator, sizes)


SUBJECTS = (
    _subject(workloads.square(1024), "matmul", 1024, 1024, 1024),
    _subject(workloads.conv(28, 128, 128, 3)[0], "conv2d", 1, 128, 28, 28, 128, 3),
    _subject(workloads.conv(112, 32, 32, 3, groups=32)[0], "depthwise_conv2d", 1, 32, 112, 112, 3),
    _subject(workloads.row_softmax(512, 1000, workloads.Goal(1.0, 1.0)), "softmax", 512, 1000),
    _subject(workloads.batched(12, 128, 128, 64)[0], "batch_matmul", 12, 128, 128, 64),
)


def chosen(pattern: str) -> list[Subject]:
    """Those with names like the pattern."""
    return [s for s in SUBJECTS if fnmatch.fnmatch(s.name, f"*{pattern}*")]
