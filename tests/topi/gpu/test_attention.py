"""Attention on a GPU: all keys at once or in blocks, with scores in shared memory only."""

from __future__ import annotations

from typing import Any

import pytest

from tensorlang import config, lower, te, topi
from tensorlang.ir.stmt import Allocate, Launch, walk
from tensorlang.schedules.gpu.attention import attention_tile
from tensorlang.target import parse
from tensorlang.te.operation import Tensor
from tensorlang.testing import check_schedule
from tests.topi.gpu.device_runs import TARGETS, compiled, each_architecture, needs_nvrtc, scheduled

targets = pytest.mark.parametrize("target", TARGETS)


def layer(heads: int, n: Any, m: Any, d: int, is_causal: bool = False) -> list[Tensor]:
    """Queries, keys, values and their attention."""
    query = te.placeholder((heads, n, d), name="Q")
    key, value = (te.placeholder((heads, m, d), name=name) for name in "KV")
    return [query, key, value, topi.attention(query, key, value, is_causal=is_causal)]


def check(target: str, args: list[Tensor], **sizes: int) -> None:
    """Run the schedule of the last tensor, and compare with the reference."""
    s = topi.schedule(args[-1], "opencl" if target == "opencl" else "cuda -arch=sm_75", tuned=False)
    check_schedule(s, args, sizes, targets=(target,))


@pytest.mark.sampled(2)
@pytest.mark.covering(1)
@targets
@pytest.mark.parametrize(("n", "m", "d", "is_causal"), [(40, 50, 24, False), (20, 33, 16, True), (1, 70, 36, False)])
def test_all_scores_at_once(n: int, m: int, d: int, is_causal: bool, target: str) -> None:
    check(target, layer(2, n, m, d, is_causal))


@pytest.mark.sampled(1)
@targets
def test_blocks_of_keys(target: str) -> None:
    args = layer(1, te.var("n"), te.var("m"), 16, is_causal=target == "opencl")
    check(target, args, n=9, m=523)


@pytest.mark.sampled(1)
@targets
def test_what_follows(target: str) -> None:
    *inputs, out = layer(2, 20, 33, 16)
    doubled = te.compute(out.shape, lambda h, i, j: out[h, i, j] * 2.0, name="doubled")
    check(target, [*inputs, doubled])


@pytest.mark.sampled(1)
@pytest.mark.parametrize("keys", [256, 4096])
def test_no_score_is_in_global_memory(keys: int) -> None:
    *inputs, out = layer(8, 256, keys, 64)
    with config.override(check=False):
        kernel = lower(scheduled(out), [*inputs, out], target="cuda -arch=sm_80").kernel
    (launch,) = (stmt for stmt in walk(kernel.body) if isinstance(stmt, Launch))
    assert not any(isinstance(stmt, Allocate) for stmt in walk(kernel.body) if stmt is not launch)
    assert {b.name for b in launch.kernel.shared} >= {
        "attention_scaled",
        "attention_weight",
        "K.shared",
        "V.shared",
    } - ({"K.shared"} if keys > 2048 else set())


def test_scores_fit_into_shared_memory() -> None:
    for target in ("cuda -arch=sm_75", "cuda -arch=sm_90a", "opencl"):
        limits = parse(target).gpu
        assert limits is not None
        for kept in (64, 512, 2048):
            rows = attention_tile(kept, 64, 32, parse(target)).scores.rows.extent
            assert 2 * rows * kept * 4 < limits.shared_bytes
    assert attention_tile(256, 64, 32, parse("cuda -arch=sm_80")).scores.rows.extent == 32


@pytest.mark.sampled(1)
@needs_nvrtc
@pytest.mark.covering(1)
@each_architecture
@pytest.mark.parametrize(("n", "m", "d"), [(1024, 1024, 64), (4096, 4096, 128)])
def test_no_kernel_spills(n: int, m: int, d: int, arch: str) -> None:
    *inputs, out = layer(8, n, m, d)
    with config.override(check=False):
        found = compiled(out, *inputs, archs=[arch])
    assert all(report.registers <= 128 for _, report in found)
