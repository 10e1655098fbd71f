"""Lines as TVM's tuners write them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from .test_ansor_steps import CACHED, DEVICE, FUSED, TILED

CPU = "llvm -keys=cpu -mcpu=skylake-avx512 -num-cores=2"
GPU = "cuda -keys=cuda,gpu -max_num_threads=1024 -thread_warp_size=32"
TIME = 1600000000
PROGRAMS = Path(__file__).parent / "programs.py"

_LATER: dict[str, list[Any]] = {"v0.2": [], "v0.3": [], "v0.4": [""], "v0.5": ["", 1], "v0.6": ["", 1, []]}
"""What versions of Ansor add to a task, behind the hardware."""


def ansor(version: str, key: Any, steps: Any, target: str = CPU, **result: Any) -> str:
    """A line of Ansor. `result`: costs, error."""
    hardware = [] if version == "v0.2" else [[4, 64, 64, 0, 0, 0, 0, 0]]
    task = [key if isinstance(key, str) else json.dumps(key), target, *hardware, *_LATER.get(version, [])]
    taken = [result.get("costs", [0.002, 0.003]), result.get("error", 0), 1.5, TIME]
    return json.dumps({"i": [task, [[], steps]], "r": taken, "v": version})


def autotvm(name: str, args: Any, entity: Any, target: str = CPU, **rest: Any) -> str:
    """A line of AutoTVM. `rest`: index, costs, error, version."""
    config = {"index": rest.get("index", 0), "code_hash": None, "entity": entity}
    taken = [rest.get("costs", [0.002]), rest.get("error", 0), 1.5, TIME + 0.25]
    version = rest.get("version", 0.2)
    return json.dumps(
        {
            "input": [target, name, args, {}],
            "config": config,
            "result": taken,
            "version": version,
            "tvm_version": "0.17",
        }
    )


def tensor(*shape: int) -> list[Any]:
    """An input among the arguments of a line."""
    return ["TENSOR", list(shape), "float32"]


def tiles(y: list[int], x: list[int], word: str, threads: bool) -> list[Any]:
    """A configuration of the template importers/matmul."""
    return [["tile_y", "sp", y], ["tile_x", "sp", x], ["ann", "an", [word]], ["threads", "ot", threads]]


ANSOR = {
    "tiled": ansor("v0.6", ["matmul", 24, 20, 16], TILED),
    "cached": ansor("v0.5", ["matmul", 24, 20, 16], CACHED),
    "early": ansor("v0.4", ["matmul", 24, 20, 16], TILED[:4]),
    "fused": ansor("v0.3", ["matmul_add", 24, 16, 20, "float32"], FUSED),
    "plain": ansor("v0.2", ["scaled", tensor(6, 8), [3, 1]], [["AN", 1, 1, 2]]),
}
AUTOTVM = {
    "open": autotvm("importers/matmul", [24, 20, 16], tiles([-1, 4], [-1, 5], "vec", True), index=3 + 8 * (3 + 6 * 2)),
    "whole": autotvm("importers/matmul", [24, 20, 16], tiles([6, 4], [4, 5], "none", False)),
    "other": autotvm("importers/matmul", [24, 20, 16], tiles([-1, 5], [-1, 7], "unroll", True)),
    "nopack": autotvm(
        "dense_nopack.x86",
        [tensor(6, 32), tensor(12, 32), None, "float32"],
        [["tile_y", "sp", [-1, 2]], ["tile_x", "sp", [-1, 3]], ["tile_k", "sp", [-1, 8]]],
    ),
    "pack": autotvm(
        "dense_pack.x86",
        [tensor(8, 32), tensor(24, 32), tensor(24), "float32"],
        [
            ["tile_y", "sp", [-1, 2, 4]],
            ["tile_x", "sp", [-1, 1, 8]],
            ["tile_k", "sp", [-1, 4]],
            ["tile_inner", "sp", [-1, 2]],
        ],
    ),
    "window": autotvm(
        "conv2d_NCHWc.x86",
        [tensor(1, 4, 7, 7), tensor(16, 4, 3, 3), [2, 2], [1, 1, 1, 1], [1, 1], "NCHW", "NCHW", "float32"],
        [
            ["tile_ic", "sp", [1, 4]],
            ["tile_oc", "sp", [2, 8]],
            ["tile_ow", "sp", [2, 2]],
            ["unroll_kw", "ot", True],
        ],
    ),
    "pixels": autotvm(
        "conv2d_NCHWc.x86",
        [tensor(1, 4, 6, 6), tensor(16, 4, 1, 1), [1, 1], [0, 0, 0, 0], [1, 1], "NCHW", "NCHW", "float32"],
        [["tile_ic", "sp", [-1, 2]], ["tile_oc", "sp", [-1, 8]], ["tile_ow", "sp", [-1, 3]], ["tile_oh", "ot", 2]],
    ),
    "batched": autotvm(
        "batch_matmul.x86",
        [tensor(2, 8, 32), tensor(2, 12, 32), [2, 8, 12]],
        [["tile_y", "sp", [-1, 4]], ["tile_x", "sp", [-1, 6]], ["tile_k", "sp", [-1, 16]]],
    ),
}
ON_A_GPU = ansor("v0.2", ["conv2d_layer", 1, 4, 4, 4, 3], DEVICE, GPU)
