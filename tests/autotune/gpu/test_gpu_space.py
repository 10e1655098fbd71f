"""Search spaces for GPUs: their rules, limits that hold before anything is built, and candidates that are right."""

from __future__ import annotations

from functools import cache
from math import prod
from typing import Any

import numpy as np
import pytest

from tensorlang.autotune.search.sketch import Sketch
from tensorlang.autotune.space import sketches_of
from tensorlang.autotune.task import Task, arguments_of, create_task
from tensorlang.driver import lower
from tensorlang.ir.stmt import DeviceKernel, Launch, walk
from tensorlang.lowering.device.limits import buffer_bytes
from tests.thoroughness import draws

from .programs import OPERATORS, PROGRAMS, drawn, scheduled, task_of, wrong

NARROW = "cuda -arch=sm_80 -max_num_threads=64 -max_shared_memory_per_block=2048"
"""So that limits count for small programs too."""
SKETCHES = {  # what the library would take is the last, with its sizes open: parts of a total, tiles turned around
    "product": ["tiles.shared", "tiles.shared.registers", "tiles.direct", "sums", "library"],
    "convolution": ["tiles.shared", "tiles.shared.registers", "tiles.direct", "sums", "library"],
    "softmax": ["rows.keep", "library"],
    "total": ["sums", "library"],
    "transpose": ["elements", "library"],
    "means": ["library"],
    "running sums": ["bound", "library"],
}
CANDIDATES = {"product": 8, "convolution": 2, "softmax": 25, "total": 25, "transpose": 25, "means": 50}
"""Of each sketch, so that a program has about 50, those that take long to prove fewer; by day a third of them."""


@cache
def _sketches(name: str, args: tuple[Any, ...], target: str) -> list[Sketch]:
    """To look at, in several tests."""
    return sketches_of(create_task(name, args, target))


def _kernels(task: Task, sketch: Sketch, decisions: dict[str, int]) -> list[DeviceKernel]:
    lowered = lower(scheduled(task, sketch, decisions), arguments_of(task.tensors), target=task.target)
    return [stmt.kernel for stmt in walk(lowered.kernel.body) if isinstance(stmt, Launch)]


@pytest.mark.parametrize("program", PROGRAMS)
def test_every_kind_of_group_has_its_sketches(program: str) -> None:
    found = _sketches(*PROGRAMS[program], "cuda -arch=sm_80")
    assert [sketch.name for sketch in found] == SKETCHES[program]
    assert all(len(drawn(sketch, 8, 0)) >= min(sketch.size, 2) for sketch in found)
    library = found[-1]
    assert library.start is not None  # measured first, as it is
    row = library.row(library.start)
    assert row is not None and library.allowed(np.array([row])).all()


def test_a_product_leaves_all_that_makes_it_fast_open() -> None:
    shared = _sketches("matmul", (512, 512, 512), "cuda -arch=sm_80")[0]
    assert set(shared.knobs) == {
        *(f"{part}_{tag}" for part in ("virtual", "threads", "inner") for tag in "xy"),
        *("step_0", "unroll", "fetch_0", "fetch_1", "pipeline"),
    }
    assert shared.knobs["pipeline"] == (1, 2, 3, 4)
    assert shared.size > 10**6
    assert len(drawn(shared, 64, 0)) == 64


def test_only_where_copies_are_asynchronous_many_tiles_are_kept() -> None:
    for target in ("cuda -arch=sm_75", "opencl"):
        assert sketches_of(task_of("product", target))[0].knobs["pipeline"] == (1, 2)


@pytest.mark.sampled(1)
@pytest.mark.parametrize("program", CANDIDATES)
def test_every_candidate_is_legal_and_lowered_within_the_limits(program: str) -> None:
    task = task_of(program, NARROW)
    seen = 0
    for number, sketch in enumerate(_ruled(program, NARROW)):
        for decisions in drawn(sketch, draws(-(-CANDIDATES[program] // 3), CANDIDATES[program]), number):
            kernels = _kernels(task, sketch, decisions)  # a TargetError would say which limit
            assert all(prod(kernel.block) <= 64 for kernel in kernels), decisions
            assert all(sum(map(buffer_bytes, kernel.shared)) <= 2048 for kernel in kernels), decisions
            seen += 1
    assert seen >= 4


def _ruled(program: str, target: str) -> list[Sketch]:
    """The sketches with open sizes, which know the limits; not a closed one, which is refused where it does not fit."""
    return [sketch for sketch in _sketches(*PROGRAMS[program], target) if sketch.knobs]


def test_limits_are_asked_without_lowering_anything() -> None:
    narrow, wide = (
        {s.name: s for s in _sketches("matmul", (512, 512, 512), target)} for target in (NARROW, "cuda -arch=sm_80")
    )
    start: dict[str, int] = {name: values[0] for name, values in wide["tiles.shared"].knobs.items()}
    many = start | {"threads_x": 32, "threads_y": 8}
    large = start | {"threads_x": 32, "inner_x": 8, "step_0": 32}
    fits = start | {"threads_x": 32}
    assert _allowed(wide["tiles.shared"], many, large, fits) == [True, True, True]
    assert _allowed(narrow["tiles.shared"], many, large, fits) == [False, False, True]


def test_a_thread_has_so_many_registers() -> None:
    sketch = _sketches("matmul", (512, 512, 512), "cuda -arch=sm_80")[0]
    start: dict[str, int] = {name: values[0] for name, values in sketch.knobs.items()} | {"threads_x": 32}
    tile = {"inner_x": 8, "inner_y": 8}
    assert _allowed(sketch, start | tile, start | tile | {"virtual_x": 4}) == [True, False]


def test_what_no_limit_leaves_is_named() -> None:
    target = "cuda -arch=sm_80 -max_num_threads=1 -max_shared_memory_per_block=1"
    found = {sketch.name: drawn(sketch, 4, 0) for sketch in sketches_of(create_task("matmul", (64, 64, 64), target))}
    assert found["tiles.shared"] == []
    assert found["sums"] != []


@pytest.mark.sampled(2)
@pytest.mark.parametrize("program", PROGRAMS)
def test_candidates_compute_what_the_program_says(program: str) -> None:
    task = task_of(program, "interpreter")
    gpu = task_of(program, "cuda -arch=sm_80")
    for number, sketch in enumerate(_ruled(program, "cuda -arch=sm_80")):
        for decisions in drawn(sketch, draws(1, 2), 100 + number):
            assert wrong(program, task, scheduled(gpu, sketch, decisions), "interpreter") == "", decisions


def test_a_program_of_several_groups_varies_one_at_a_time() -> None:
    task = create_task(f"{OPERATORS}:two_products", (12, 14, 9, 10), "cuda -arch=sm_80")
    names = [sketch.name.split("+") for sketch in sketches_of(task) if sketch.name != "library"]
    assert names[0] == ["tiles.shared", "tiles.shared"]
    assert all(sum(own != first for own, first in zip(name, names[0], strict=True)) == 1 for name in names[1:])


def _allowed(sketch: Sketch, *candidates: dict[str, int]) -> list[bool]:
    rows: list[Any] = [sketch.row(decisions) for decisions in candidates]
    return [bool(good) for good in sketch.allowed(np.asarray(rows))]
