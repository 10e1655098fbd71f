"""Attention by warp groups: right in every execution, weights in registers, nothing spilled and nothing in turn."""

from __future__ import annotations

import re
from functools import cache
from typing import Any

import pytest

import tensorlang
from tensorlang import config, te
from tensorlang.driver import Lowered
from tensorlang.ir.stmt import BoxCopy, CallMachine, walk
from tensorlang.runtime.host_program import device_kernels
from tensorlang.schedule import Schedule
from tensorlang.schedules.gpu.attention_tile import AttentionTile, attention_tiles
from tensorlang.target import parse
from tensorlang.target.cuda.sass import disassembler
from tensorlang.te.operation import Tensor
from tensorlang.testing.cuda_emulation import emulate_program, unavailable
from tests.target.cuda.compiled import needs_nvrtc
from tests.thoroughness import draws
from tests.topi.gpu.test_attention_tensor_cores import exact, layer, scheduled
from tests.topi.programs import Array, close, given

HOPPER = "cuda -arch=sm_90a"
CASES = {"odd": (70, 140, 64, 64, True, "bfloat16"), "whole": (128, 256, 128, 128, False, "float16")}
"""Queries, keys, their width and that of the values, whether causal, dtype."""


@cache
def lowered(case: str) -> tuple[Schedule, list[Tensor], Lowered]:
    """A case with symbolic numbers of queries and keys if it is causal."""
    n, m, depth, width, is_causal, dtype = CASES[case]
    rows, keys = (te.var("n"), te.var("m")) if is_causal else (n, m)
    args = layer(1, rows, keys, depth, width, is_causal, dtype)
    s = scheduled(args, HOPPER)
    return s, args, tensorlang.lower(s, args, target=HOPPER)


def arrays(case: str) -> tuple[list[Array], Array]:
    """Queries, keys, values and an output to be written; what it is to be."""
    n, m, depth, width, is_causal, dtype = CASES[case]
    made = [given(name, 1, *shape, dtype=dtype)[1] for name, shape in zip("qkv", ((n, depth), (m, depth), (m, width)))]
    wanted = exact(made, is_causal)
    return [*made, (wanted * 0 + 77).astype(made[0].dtype)], wanted


@pytest.mark.skipif(unavailable() is not None, reason=str(unavailable()))
@pytest.mark.parametrize("case", CASES)
def test_the_text_computes_attention(case: str) -> None:
    """Copies as late as they may be, and at once, with threads in three orders by night."""
    kernel = lowered(case)[2].kernel
    sizes = dict(zip("nm", CASES[case][:2], strict=True)) if kernel.sizes else None
    for mode in ("late", "at_once"):
        for seed in range(draws(1, 3)):
            values, wanted = arrays(case)
            names = (p.name for p in kernel.params)
            emulate_program(kernel, dict(zip(names, values, strict=True)), sizes=sizes, mode=mode, seed=seed)
            close(values[-1], wanted)


def test_threads_do_not_race() -> None:
    s, args, _ = lowered("odd")
    values, wanted = arrays("odd")
    tensorlang.build(s, args, target="interpreter -max_shared_memory_per_block=232448")(*values)
    close(values[-1], wanted)


@pytest.mark.parametrize("case", CASES)
def test_one_thread_asks_for_blocks_of_keys_and_values(case: str) -> None:
    """Queries, keys and values are all that is in shared memory; only queries are copied by all threads."""
    (kernel,) = device_kernels(lowered(case)[2].kernel)
    boxes = {s.buffer.name for s in walk(kernel.body) if isinstance(s, BoxCopy)}
    assert boxes == {"attention_keys.shared", "attention_values.shared"}
    arrays = {b.name.removeprefix("attention_").removesuffix(".shared") for b in kernel.shared if b.dtype != "uint64"}
    assert arrays in ({"queries", "keys", "values"}, {"q", "keys", "values"})
    width = CASES[case][3]
    calls = {s.code.name for s in walk(kernel.body) if isinstance(s, CallMachine)}
    element = "bf16" if case == "odd" else "f16"
    keys = width
    scores, mixed = f"cuda.wgmma.m64n{keys}k64.{element}.bt", f"cuda.wgmma.m64n{width}k{keys}.{element}.ra"
    assert calls == {f"{scores}.update", f"{mixed}.update"}, "nothing is cleared"


def groups_of(n: int | None, depth: int, width: int, target: str = HOPPER) -> list[AttentionTile]:
    return [tile for tile in attention_tiles(parse(target), "bfloat16", n, depth, width) if tile.in_groups]


def test_what_warp_groups_take() -> None:
    assert all(groups_of(n, *widths) for n in (None, 65, 4096) for widths in ((64, 64), (128, 128), (192, 128)))
    assert not groups_of(64, 128, 128), "one group would be alone"
    assert not groups_of(4096, 96, 128) and not groups_of(4096, 128, 96), "rows of 128 bytes"
    assert not groups_of(4096, 128, 128, "cuda -arch=sm_80") and not groups_of(4096, 128, 128, "cuda -arch=sm_100")
    assert not groups_of(4096, 128, 128, f"{HOPPER} -max_shared_memory_per_block=65536"), "shared memory"


@needs_nvrtc
@pytest.mark.sampled(1)
@pytest.mark.parametrize("width", [64, 128])
@pytest.mark.parametrize("is_causal", [False, True])
def test_no_register_is_spilled(width: int, is_causal: bool) -> None:
    """A block of as many keys as values are wide, by a warp group: one instruction for each score of a thread."""
    args = layer(16, 4096, 4096, width, width, is_causal, "bfloat16")
    with config.override(check=False):
        kernel: Any = tensorlang.build(scheduled(args, HOPPER), args, target=HOPPER)
    (report,) = kernel.report.kernels
    assert kernel.report.clean and not kernel.report.warnings and report.stack == 0
    assert report.registers <= (128 if width == 64 else 255), (
        "two blocks are on a multiprocessor where values are narrow"
    )
    if disassembler() is not None:
        sass, scores = kernel.source("sass"), width // 2
        products = re.findall(rf"\bHGMMA\.64x{width}x16\.F32\.BF16", sass)
        assert 2 * width // 16 <= len(products) <= 3 * width // 16, "the first of some may be written out twice"
        assert len(re.findall(r"\bMUFU\.EX2", sass)) <= scores + (2 + width // 4 if is_causal else 2)
        assert len(re.findall(r"\bFMNMX", sass)) <= scores + 8
        assert not re.search(r"\b(LDL|STL|LDSM|HMMA)\b", sass)
