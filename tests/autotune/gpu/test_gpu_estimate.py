"""The estimate for GPUs: what nests say of blocks and their memory, and what it knows to be slow."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tensorlang.autotune import create_task, tune
from tensorlang.autotune.model.gpu_blocks import kernels
from tensorlang.autotune.model.gpu_estimate import GPU_TERMS, gpu_estimate
from tensorlang.autotune.model.gpu_features import gpu_feature_names, gpu_features
from tensorlang.autotune.model.gpu_machine import GpuMachine
from tensorlang.autotune.model.nest import Nest
from tensorlang.autotune.search.sketch import Sketch
from tensorlang.autotune.space import sketches_of
from tensorlang.errors import RecordError
from tensorlang.target import parse

from .programs import OPERATORS

TARGET = "cuda -arch=sm_80"
MACHINE = GpuMachine.of(parse(TARGET))
GOOD = {
    "virtual_x": 1,
    "threads_x": 16,
    "inner_x": 4,
    "virtual_y": 2,
    "threads_y": 16,
    "inner_y": 4,
    "step_0": 16,
    "unroll": 4,
    "fetch_0": 4,
    "fetch_1": 4,
    "pipeline": 3,
}


@pytest.fixture(scope="module")
def product() -> dict[str, Sketch]:
    task = create_task("matmul", (2048, 2048, 2048), TARGET)
    return {sketch.name: sketch for sketch in sketches_of(task)}


def _nests(sketch: Sketch, *candidates: dict[str, int]) -> tuple[Nest, ...]:
    rows = [sketch.row({name: each[name] for name in sketch.knobs}) for each in candidates]
    assert all(row is not None for row in rows)
    return sketch.describe(np.asarray(rows))


def _seconds(sketch: Sketch, *candidates: dict[str, int]) -> list[float]:
    return [float(s) for s in gpu_estimate(_nests(sketch, *candidates), MACHINE).seconds]


def test_nests_tell_blocks_threads_and_memory(product: dict[str, Sketch]) -> None:
    blocks = kernels(_nests(product["tiles.shared"], GOOD), MACHINE)["C"]
    tile_x, tile_y = 16 * 4, 2 * 16 * 4
    assert blocks.blocks[0] == (2048 / tile_x) * (2048 / tile_y)
    assert blocks.threads[0] == 256
    assert blocks.shared[0] == 3 * 16 * (tile_x + tile_y) * 4  # three tiles of sixteen terms
    assert blocks.registers[0] >= 2 * 4 * 4


def test_threads_do_not_repeat_what_they_share(product: dict[str, Sketch]) -> None:
    copy = next(n for n in _nests(product["tiles.shared"], GOOD) if n.output.buffer == "A.shared")
    walked = np.prod([loop.trips[0] for loop in copy.loops])
    assert walked == 2048 * 2048 * (2048 / 64)  # every tile of columns reads all of A once


def test_nothing_is_faster_than_the_peak(product: dict[str, Sketch]) -> None:
    rng = np.random.default_rng(0)
    for sketch in product.values():
        guess = gpu_estimate(sketch.describe(sketch.sample(rng, 500)), MACHINE)
        assert (guess.seconds >= 2 * 2048**3 / MACHINE.flops).all()
        assert all((term >= 0).all() for term in guess.terms.values())
        assert np.allclose(np.sum(guess.stages, axis=0), guess.seconds)


def test_tiles_in_shared_memory_beat_rereading(product: dict[str, Sketch]) -> None:
    own = {name: GOOD[name] for name in product["tiles.direct"].knobs}
    assert _seconds(product["tiles.direct"], own)[0] > 2 * _seconds(product["tiles.shared"], GOOD)[0]


def test_what_is_known_to_be_slow(product: dict[str, Sketch]) -> None:
    slow = {
        "a tile of one element a thread": {"inner_x": 1, "inner_y": 1, "virtual_y": 1},
        "half a warp": {"threads_x": 4, "threads_y": 4},
        "no copy ahead": {"pipeline": 1},
        "one term a step": {"step_0": 1, "fetch_0": 1, "unroll": 1},
        "blocks that leave most multiprocessors idle": {"threads_x": 256, "inner_x": 8, "virtual_y": 4},
    }
    seconds = _seconds(product["tiles.shared"], GOOD, *(GOOD | changed for changed in slow.values()))
    assert {name: s > 1.01 * seconds[0] for name, s in zip(slow, seconds[1:], strict=True)} == dict.fromkeys(slow, True)


WARPS = {"warp_rows": 64, "warp_columns": 32, "warps_down": 2, "warps_across": 4, "step": 32, "pipeline": 4}
GROUPS = {"groups_down": 2, "pipeline": 4}
ORDERED: dict[str, tuple[tuple[Any, ...], str, list[tuple[str, dict[str, int]]]]] = {
    "order of blocks": (
        (16384, 16384, 1024, "bfloat16", 1),
        "cuda -arch=sm_80",
        [("tensor-cores", WARPS | {"together": n}) for n in (8, 4, 2)],
    ),
    "tiles": (
        (4096, 4096, 4096, "bfloat16", 1),
        "cuda -arch=sm_90a",
        [
            ("warp-groups.256", GROUPS),
            ("tensor-cores", WARPS),
            ("tensor-cores", WARPS | {"pipeline": 2}),
            ("tensor-cores", WARPS | {"warp_rows": 32, "warps_across": 2}),
        ],
    ),
    "parts": (
        (256, 256, 16384, "bfloat16", 1),
        "cuda -arch=sm_80",
        [
            ("tensor-cores.parts", WARPS | {"part": 1024}),
            ("tensor-cores.parts", WARPS | {"part": 8192}),
            ("tensor-cores", WARPS),
        ],
    ),
}
"""Candidates for products on tensor cores, those that should be faster first: what an expert would say."""


@pytest.mark.parametrize("case", ORDERED)
def test_candidates_for_tensor_cores_come_in_the_order_that_an_expert_expects(case: str) -> None:
    sizes, target, candidates = ORDERED[case]
    task = create_task(f"{Path(__file__).parent / 'narrow.py'}:product", sizes, target)
    sketches, machine = {sketch.name: sketch for sketch in sketches_of(task)}, GpuMachine.of(task.target)
    seconds = []
    for name, decisions in candidates:
        usual = {knob: values[0] for knob, values in sketches[name].knobs.items()}
        seconds += [float(s) for s in gpu_estimate(_nests(sketches[name], usual | decisions), machine).seconds]
    assert all(faster < 0.999 * slower for faster, slower in pairwise(seconds)), seconds


def test_tf32_takes_longer_than_16_bits() -> None:
    narrow = str(Path(__file__).parent / "narrow.py")
    tasks = [create_task(f"{narrow}:{name}", (2048, 2048, 2048), TARGET) for name in ("tf32", "product")]
    seconds = []
    for task in tasks:
        sketch = next(sketch for sketch in sketches_of(task) if sketch.name == "tensor-cores")
        usual = {knob: values[0] for knob, values in sketch.knobs.items()} | WARPS
        seconds.append(gpu_estimate(_nests(sketch, usual), MACHINE).seconds[0])
    assert seconds[0] > 1.5 * seconds[1]


def test_neighbouring_threads_should_read_neighbouring_elements() -> None:
    task = create_task(f"{OPERATORS}:transpose", (4096, 4096), TARGET)
    along, turned = sketches_of(task)  # the library's turns it around in tiles
    best = [
        gpu_estimate(sketch.describe(sketch.sample(np.random.default_rng(0), 64)), MACHINE).seconds.min()
        for sketch in (turned, along)
    ]
    assert best[1] > 1.5 * best[0]


def test_double_precision_and_slower_machines_take_longer(product: dict[str, Sketch]) -> None:
    nests = _nests(product["tiles.shared"], GOOD)
    fast = gpu_estimate(nests, MACHINE).seconds[0]
    assert gpu_estimate(nests, GpuMachine.of(parse("cuda -arch=sm_75"))).seconds[0] > 1.5 * fast
    assert gpu_estimate([replace(nest, bits=64) for nest in nests], MACHINE).seconds[0] > 1.5 * fast


def test_features_are_one_finite_row_a_candidate_with_names(product: dict[str, Sketch]) -> None:
    for sketch in product.values():
        nests = sketch.describe(sketch.sample(np.random.default_rng(1), 100))
        rows = gpu_features(nests, gpu_estimate(nests, MACHINE), MACHINE)
        assert rows.shape == (nests[0].count, len(gpu_feature_names()))
        assert rows.dtype == np.float32
        assert np.isfinite(rows).all()
    assert len(set(gpu_feature_names())) == len(gpu_feature_names())
    assert {f"term {name}" for name in GPU_TERMS} <= set(gpu_feature_names())


def test_no_model_of_cpus_judges_a_gpu(device: object) -> None:
    with pytest.raises(RecordError, match="learned from CPUs, and there is none for target opencl"):
        tune(create_task("matmul", (8, 8, 8), "opencl"), trials=1, model="pretrained")
