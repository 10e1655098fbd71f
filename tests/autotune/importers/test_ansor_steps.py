"""Steps of Ansor's logs replayed as primitives."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from tensorlang.autotune.importers.ansor_steps import graph_order, replay_steps
from tensorlang.errors import RecordError, ScheduleError
from tensorlang.te.operation import Tensor
from tensorlang.testing import check_schedule

from .programs import conv2d_layer, matmul, matmul_add, row_sum

Program = Callable[[], list[Tensor]]

TILED = [
    ["SP", 2, 0, 24, [2, 1, 4], 1],
    ["SP", 2, 4, 20, [1, 2, 5], 1],
    ["SP", 2, 8, 16, [4], 1],
    ["RE", 2, [0, 4, 1, 5, 8, 2, 6, 9, 3, 7]],
    ["FU", 2, [0, 1, 2]],
    ["AN", 2, 0, 3],
    ["PR", 2, 0, "auto_unroll_max_step$64"],
    ["AN", 2, 7, 2],
]
"""Multi-level tiling of a product."""

CACHED = [
    ["CHW", 2, "local"],
    *TILED[:4],
    ["FSP", 3, 0, 1, 2],
    ["FSP", 3, 3, 2, 2],
    ["RE", 3, [0, 3, 1, 4, 2, 5]],
    ["CA", 2, 3, 3],
    ["FU", 3, [0, 1, 2, 3]],
    ["AN", 3, 0, 3],
    ["PR", 2, 0, "auto_unroll_max_step$512"],
    ["AN", 2, 9, 2],
    ["AN", 3, 2, 2],
]
"""The same with a write cache, computed at a loop that is fused afterwards."""

FUSED = [
    *TILED[:4],
    ["FSP", 4, 0, 0, 2],
    ["FSP", 4, 3, 1, 2],
    ["RE", 4, [0, 3, 1, 4, 2, 5]],
    ["CA", 2, 4, 3],
    ["FU", 4, [0, 1]],
    ["AN", 4, 0, 3],
    ["AN", 2, 9, 2],
    ["AN", 4, 4, 2],
]
"""A product computed in the tiles of its consumer."""

DEVICE = [
    ["CI", 5],
    ["SP", 3, 0, 1, [1, 1, 1, 1], 1],
    ["SP", 3, 5, 4, [1, 2, 2, 1], 1],
    ["SP", 3, 10, 4, [1, 1, 1, 1], 1],
    ["SP", 3, 15, 4, [1, 1, 4, 1], 1],
    ["SP", 3, 20, 4, [2, 2], 1],
    ["SP", 3, 23, 3, [1, 1], 1],
    ["SP", 3, 26, 3, [3, 1], 1],
    [
        "RE",
        3,
        [0, 5, 10, 15, 1, 6, 11, 16, 2, 7, 12, 17, 20, 23, 26, 21, 24, 27, 3, 8, 13, 18, 22, 25, 28, 4, 9, 14, 19],
    ],
    ["FSP", 6, 0, 1, 3],
    ["FSP", 6, 4, 2, 3],
    ["FSP", 6, 8, 3, 3],
    ["FSP", 6, 12, 4, 3],
    ["RE", 6, [0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15]],
    ["CA", 3, 6, 11],
    ["CHR", 2, "shared", [3]],
    ["CA", 3, 4, 14],
    ["CHR", 1, "shared", [4]],
    ["CA", 2, 5, 14],
    ["CI", 1],
    ["FU", 8, [0, 1, 2, 3]],
    ["AN", 8, 0, 5],
    ["FU", 8, [1, 2, 3, 4]],
    ["AN", 8, 1, 4],
    ["FU", 8, [2, 3, 4, 5]],
    ["AN", 8, 2, 6],
    ["FU", 4, [0, 1, 2, 3]],
    ["SP", 4, 0, 48, [1], 1],
    ["AN", 4, 1, 2],
    ["FFSP", 4, 0, [4, 3, 2, 1], 1, 1],
    ["AN", 4, 1, 6],
    ["PR", 5, 0, "auto_unroll_max_step$16"],
]
"""A convolution for a GPU: inlined padding and bias, shared memory, threads."""

FACTORED = [
    ["SP", 1, 1, 24, [4], 0],
    ["RF", 1, 2, 1],
    ["AN", 1, 1, 2],
    ["CR", 1],
]
"""A sum in lanes, from a split by parts."""

CASES: list[tuple[str, Program, list[Any]]] = [
    ("tiled", lambda: matmul(24, 20, 16), TILED),
    ("cached", lambda: matmul(24, 20, 16), CACHED),
    ("fused", lambda: matmul_add(24, 16, 20, "float32"), FUSED),
    ("factored", lambda: row_sum(10, 24), FACTORED),
    ("device", lambda: conv2d_layer(1, 4, 4, 4, 3), DEVICE),
]


@pytest.mark.parametrize(("program", "steps"), [case[1:] for case in CASES], ids=[case[0] for case in CASES])
def test_replayed_steps_compute_what_the_program_does(program: Program, steps: Sequence[Any]) -> None:
    tensors = program()
    schedule = replay_steps(tensors, steps)
    assert len(schedule.trace.steps) >= len(steps) - 1
    check_schedule(schedule, tensors, targets=["interpreter"] if steps is DEVICE else ["interpreter", "llvm"])


def test_stages_are_numbered_as_ansor_does() -> None:
    def names(tensors: list[Tensor]) -> list[str]:
        return [op.name for op in graph_order(tensors)]

    assert names(matmul_add(4, 4, 4, "float32")) == ["A", "B", "product", "C", "out"]
    assert names(conv2d_layer(1, 4, 4, 4, 3)) == ["data", "pad", "w", "conv", "bias", "biased", "relu"]


@pytest.mark.parametrize(
    "step", [["XX", 2, 0], ["SP", 2], ["FU", 9, [0, 1]], ["AN", 2, 0, 77], ["RE", 2, [0, 1, 9]], [[0], 2], 7]
)
def test_a_step_that_does_not_fit_is_named(step: Any) -> None:
    with pytest.raises(RecordError, match="step 0 of the log line"):
        replay_steps(matmul(4, 4, 4), [step])


def test_an_illegal_schedule_is_refused() -> None:
    with pytest.raises(ScheduleError, match="imported schedule"):
        replay_steps(matmul(4, 4, 4), [["AN", 2, 2, 3]])
