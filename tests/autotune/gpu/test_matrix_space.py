"""Sketches for tensor cores: where there are any, and candidates that are legal, compiled and right."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tensorlang
from tensorlang import config
from tensorlang.autotune.search.sketch import Sketch
from tensorlang.autotune.space import sketches_of
from tensorlang.autotune.task import Task, arguments_of, create_task
from tensorlang.ir.stmt import CallMachine, DeviceKernel, Launch, walk
from tensorlang.lowering.device.limits import buffer_bytes
from tensorlang.schedule import Schedule
from tensorlang.testing import check_schedule
from tensorlang.testing.cuda_emulation import emulate_program, unavailable
from tests.target.cuda.compiled import needs_nvrtc
from tests.thoroughness import draws

from .programs import drawn, scheduled

FOLDER = Path(__file__).parent
AMPERE, HOPPER = "cuda -arch=sm_80", "cuda -arch=sm_90a"
WARPS, PARTS, GROUPS = "tensor-cores", "tensor-cores.parts", "warp-groups.64"
CASES: dict[str, tuple[str, tuple[Any, ...], str, str]] = {
    "bfloat16": ("product", (128, 64, 32), AMPERE, WARPS),
    "int8": ("product", (128, 64, 64, "int8", 1), AMPERE, WARPS),
    "tf32, both turned around": ("tf32", (32, 64, 32, 1, 0), AMPERE, WARPS),
    "float8 in warp groups": ("product", (64, 64, 128, "float8_e4m3fn", 1), HOPPER, GROUPS),
    "parts": ("product", (16, 32, 1024), AMPERE, PARTS),
    "warp groups": ("product", (64, 64, 256, "bfloat16", 1), HOPPER, GROUPS),
    "batches in warp groups": ("batches", (2, 64, 64, 128, 1), HOPPER, GROUPS),
    "A across": ("across", (32, 64, 32), AMPERE, WARPS),
    "both across in warp groups": ("across", (64, 64, 128), HOPPER, GROUPS),
}
"""Program, its sizes, target, and the sketch in question."""
ROOMY = "interpreter -max_shared_memory_per_block=232448"
"""As much as a block of Hopper has."""


@cache
def task_of(case: str) -> Task:
    name, sizes, target, _ = CASES[case]
    return create_task(f"{FOLDER / 'narrow.py'}:{name}", sizes, target)


@cache
def sketch_of(case: str) -> Sketch:
    (found,) = (sketch for sketch in sketches_of(task_of(case)) if sketch.name == CASES[case][3])
    return found


def kernels(task: Task, made: Schedule) -> list[DeviceKernel]:
    """The kernels of a candidate, for its target."""
    lowered = tensorlang.lower(made, arguments_of(task.tensors), target=task.target)
    return [stmt.kernel for stmt in walk(lowered.kernel.body) if isinstance(stmt, Launch)]


@pytest.mark.sampled(2)
@pytest.mark.parametrize("case", CASES)
def test_candidates_are_legal_within_the_limits_and_right(case: str) -> None:
    task = task_of(case)
    sketch = sketch_of(case)
    limits = task.target.gpu
    assert limits is not None
    candidates = drawn(sketch, draws(1, 2), 0)
    assert candidates
    for decisions in candidates:
        made = scheduled(task, sketch, decisions)
        found = kernels(task, made)
        assert any(isinstance(stmt, CallMachine) for kernel in found for stmt in walk(kernel.body))
        assert all(prod(kernel.block) <= limits.max_threads for kernel in found)
        assert all(sum(map(buffer_bytes, kernel.shared)) <= limits.shared_bytes for kernel in found)
    check_schedule(made, arguments_of(task.tensors), targets=(ROOMY,))


def test_a_block_has_no_more_warps_than_the_target_has_threads_for() -> None:
    """All other limits let this program have 16 warps."""
    for most, warps in ((1024, 16), (64, 2)):
        task = create_task(
            f"{FOLDER / 'narrow.py'}:product", (256, 256, 64), f"cuda -arch=sm_80 -max_num_threads={most}"
        )
        (sketch,) = (sketch for sketch in sketches_of(task) if sketch.name == WARPS)
        found = {d["warps_down"] * d["warps_across"] for d in drawn(sketch, 60, 0)}
        assert max(found) == warps and min(found) > 1


def test_float8_needs_an_architecture_that_has_its_instructions() -> None:
    names = {}
    for arch in ("sm_80", "sm_89"):
        task = create_task(f"{FOLDER / 'narrow.py'}:product", (64, 64, 128, "float8_e5m2", 1), f"cuda -arch={arch}")
        names[arch] = {sketch.name for sketch in sketches_of(task)}
    assert WARPS in names["sm_89"] and WARPS not in names["sm_80"]


@needs_nvrtc
@pytest.mark.parametrize("case", ["parts", "tf32, both turned around", "both across in warp groups"])
def test_candidates_compile_without_spills(case: str) -> None:
    task = task_of(case)
    sketch = sketch_of(case)
    (decisions, *_) = drawn(sketch, 1, 1)
    with config.override(check=False):
        built: Any = tensorlang.build(
            scheduled(task, sketch, decisions), arguments_of(task.tensors), target=task.target
        )
    assert built.report.clean, (decisions, built.report)
    assert all(kernel.stack == 0 for kernel in built.report.kernels), (decisions, built.report)


@pytest.mark.sampled(1)
@pytest.mark.skipif(unavailable() is not None, reason=str(unavailable()))
@pytest.mark.parametrize("case", ["parts", "batches in warp groups"])
def test_the_text_of_a_candidate_computes_the_product(case: str) -> None:
    task = task_of(case)
    sketch = sketch_of(case)
    (decisions, *_) = drawn(sketch, 1, 2)
    made = scheduled(task, sketch, decisions)
    program = tensorlang.lower(made, arguments_of(task.tensors), target=task.target).kernel
    rng = np.random.default_rng(0)
    a, b, c = ([int(extent) for extent in p.shape] for p in program.params)
    left, right = (rng.integers(-2, 3, shape) for shape in (a, b))
    out = np.full(c, 77, np.float32)
    words = [_bits(x, task.inputs[n].dtype) for n, x in enumerate((left, right))]
    emulate_program(program, dict(zip((p.name for p in program.params), (*words, out), strict=True)))
    wanted = left @ (right.swapaxes(-1, -2) if CASES[case][1][-1] == 1 else right)
    np.testing.assert_array_equal(out, np.maximum(wanted, 0) if CASES[case][0] == "product" else wanted)


def _bits(values: Any, dtype: str) -> Any:
    """Whole numbers as a dtype of 16 bits, which is given as its bits."""
    return values.astype(tensorlang.dtypes.info(dtype).numpy).view(np.uint16)


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    ("target", "args"),
    [
        ("opencl", (64, 64, 64)),
        ("cuda -arch=sm_75", (64, 64, 64)),
        ("cuda -arch=sm_80", (60, 64, 64)),
        ("cuda -arch=sm_80", (64, 64, 64, "float32")),
        ("cuda -arch=sm_80", (64, 64, 64, "int8", 0)),
    ],
)
def test_where_there_are_no_instructions_there_is_no_such_sketch(target: str, args: tuple[Any, ...]) -> None:
    task = create_task(f"{FOLDER / 'narrow.py'}:product", args, target)
    assert not [name for name in _names(sketches_of(task)) if name.startswith(("tensor", "warp-groups"))]


def test_warp_groups_come_first_and_parts_where_tiles_are_few() -> None:
    def names(sizes: tuple[Any, ...], target: str) -> list[str]:
        task = create_task(f"{FOLDER / 'narrow.py'}:product", sizes, target)
        return [name for name in _names(sketches_of(task)) if not name.startswith(("tiles", "library"))]

    turned = ("bfloat16", 1)
    assert names((256, 256, 2048, *turned), HOPPER) == [
        *("warp-groups.256", "warp-groups.128", "warp-groups.64", "tensor-cores", "tensor-cores.parts")
    ]
    assert names((256, 256, 2048, *turned), AMPERE) == ["tensor-cores", "tensor-cores.parts"]
    assert names((250, 256, 2048), HOPPER) == []
    assert names((256, 256, 256, *turned), AMPERE) == ["tensor-cores"]


def _names(sketches: Sequence[Sketch]) -> list[str]:
    return [sketch.name for sketch in sketches]
