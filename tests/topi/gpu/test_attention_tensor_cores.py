"""Attention on tensor cores: right in every execution, nothing of it in memory, no register spilled."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np
import pytest

import tensorlang
from tensorlang import config, dtypes, te, topi
from tensorlang.driver import Lowered
from tensorlang.ir.stmt import Launch, walk
from tensorlang.schedule import Schedule
from tensorlang.schedules.default import apply_forms
from tensorlang.schedules.gpu.attention_tile import attention_tiles
from tensorlang.target import parse
from tensorlang.target.cuda.sass import disassembler
from tensorlang.target.spec import Target
from tensorlang.te.operation import Tensor
from tensorlang.testing.cuda_emulation import emulate_program, unavailable
from tensorlang.topi.attention import attention_reference
from tests.target.cuda.compiled import needs_nvrtc
from tests.thoroughness import draws
from tests.topi.gpu.device_runs import GPU
from tests.topi.programs import Array, close, given

CASES = {"odd": (37, 133, 16, 48, True, "bfloat16"), "whole": (128, 128, 32, 32, False, "float16")}
"""Queries, keys, their width and that of the values, whether causal, dtype."""


def layer(heads: int, n: Any, m: Any, depth: int, width: int, is_causal: bool, dtype: str) -> list[Tensor]:
    """Queries, keys, values and their attention."""
    shapes = {"q": (n, depth), "k": (m, depth), "v": (m, width)}
    q, k, v = (te.placeholder((heads, *shape), dtype, name=name) for name, shape in shapes.items())
    return [q, k, v, topi.attention(q, k, v, is_causal=is_causal)]


def scheduled(args: list[Tensor], target: str = GPU) -> Schedule:
    return topi.schedule(args[-1], target, tuned=False)


@cache
def lowered(case: str) -> tuple[Schedule, list[Tensor], Lowered]:
    """A case with symbolic numbers of queries and keys if it is causal."""
    n, m, depth, width, is_causal, dtype = CASES[case]
    rows, keys = (te.var("n"), te.var("m")) if is_causal else (n, m)
    args = layer(1, rows, keys, depth, width, is_causal, dtype)
    s = scheduled(args)
    return s, args, tensorlang.lower(s, args, target=GPU)


def arrays(case: str) -> tuple[list[Array], Array]:
    """Queries, keys, values and an output to be written; what it is to be."""
    n, m, depth, width, is_causal, dtype = CASES[case]
    made = [given(name, 1, *shape, dtype=dtype)[1] for name, shape in zip("qkv", ((n, depth), (m, depth), (m, width)))]
    wanted = exact(made, is_causal)
    return [*made, np.full(wanted.shape, 77, dtypes.info(dtype).numpy)], wanted


def exact(values: Sequence[Array], is_causal: bool = False) -> Array:
    """The attention of numbers of any dtype, not rounded."""
    q, k, v = (x.astype(np.float64) for x in values)
    return attention_reference(q, k, v, is_causal)[0]


@pytest.mark.sampled(1)
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
    tensorlang.build(s, args, target="interpreter")(*values)
    close(values[-1], wanted)


@pytest.mark.sampled(1)
@pytest.mark.parametrize("case", CASES)
def test_scores_and_weights_stay_in_registers(case: str) -> None:
    text = str(lowered(case)[2])
    (launch,) = (stmt for stmt in walk(lowered(case)[2].kernel.body) if isinstance(stmt, Launch))
    copied = {"attention_queries", "attention_keys", "attention_values"} if case == "odd" else {"q", "attention_keys"}
    assert {b.name.removesuffix(".shared") for b in launch.kernel.shared} == copied | {"attention_values"}
    assert "begin copy attention_values.shared" in text
    assert re.search(r"attention_merged\.v0: float32\[(1, )*2(, 1)*\] in local", text), "greatest scores: one a row"


def test_blocks_of_keys_that_no_query_sees_are_left_out() -> None:
    args = layer(1, 192, 192, 16, 16, True, "bfloat16")
    with config.override(check=False):
        text = str(tensorlang.lower(scheduled(args), args, target=GPU))
    inside = text[text.index("for b in range(3)") :]
    assert re.match(r"[^:]*:\s+if b < blockIdx.x", inside) or "if b <= blockIdx.x" in inside
    assert inside.index("if b <= blockIdx.x") < inside.index("machine cuda.mma")


def test_what_follows_is_computed_in_the_registers_of_the_output() -> None:
    args = layer(1, 64, 64, 16, 16, False, "bfloat16")
    doubled = te.compute(args[-1].shape, lambda h, i, j: args[-1][h, i, j].astype("float32") * 2.0, name="doubled")
    text = str(tensorlang.lower(scheduled([doubled]), [*args[:-1], doubled], target=GPU))
    assert text.count("launch") == 1 and "cuda.mma.m16n8k16.bf16" in text


def fits(target: Target, n: int, depth: int, width: int) -> bool:
    return any(not tile.in_groups for tile in attention_tiles(target, "float16", n, depth, width))


def test_what_a_block_needs_fits_the_target() -> None:
    large, small = parse(GPU), parse("cuda -arch=sm_86")
    for widths in ((128, 128), (192, 192), (64, 256)):
        assert fits(large, 128, *widths) and fits(small, 128, *widths)
    assert fits(large, 128, 512, 32) and not fits(small, 128, 512, 32), "shared memory"
    assert not fits(large, 128, 256, 256), "registers"
    assert not fits(parse(f"{GPU} -max_num_threads=64"), 128, 64, 64), "threads"


@pytest.mark.sampled(1)
@pytest.mark.parametrize("depth", [24, 256])
def test_other_forms_are_made_by_threads(depth: int) -> None:
    q, k, v = (te.placeholder((1, 64, depth), "float16", name=name) for name in "qkv")
    out = topi.attention(q, k, v)
    text = str(tensorlang.lower(scheduled([out]), [q, k, v, out], target=GPU))
    assert "cuda.mma" not in text and "attention_rounded" not in text


def test_the_program_is_the_same_on_every_target() -> None:
    args = layer(1, 20, 70, 16, 16, True, "float16")
    with parse(GPU):
        again = layer(1, 20, 70, 16, 16, True, "float16")
    made = scheduled(args)
    assert made.original.key == scheduled(again, "llvm").original.key
    assert str(made).startswith("s['attention'].blocked_attention(keys=64, rows=32)\n")


def test_a_target_without_tensor_cores_runs_blocks_for_them() -> None:
    args = layer(1, 20, 70, 16, 16, False, "float16")
    s = te.create_schedule(args[-1].op)
    s[args[-1]].blocked_attention(keys=64, rows=32)
    apply_forms(s, parse("cuda -arch=sm_75"))
    values = [given(name, 1, *shape, dtype="float16")[1] for name, shape in zip("qkv", ((20, 16), (70, 16), (70, 16)))]
    made = np.full((1, 20, 16), 77, np.float16)
    tensorlang.build(s, args, target="interpreter")(*values, made)
    close(made, exact(values))


@pytest.mark.sampled(1)
@needs_nvrtc
@pytest.mark.covering(1)
@pytest.mark.parametrize("form", [(64, False), (128, False), (128, True)])
def test_no_register_is_spilled(form: tuple[int, bool]) -> None:
    """A block of 64 keys by a warp: 16 x 64 scores, and 16 x width values; nothing else touches shared memory."""
    width, is_causal = form
    args = layer(16, 4096, 4096, width, width, is_causal, "bfloat16")
    target = GPU
    with config.override(check=False):
        kernel: Any = tensorlang.build(scheduled(args, target), args, target=target)
    (report,) = kernel.report.kernels
    assert kernel.report.clean and report.stack == 0 and report.registers <= 255
    if disassembler() is not None:
        sass = kernel.source("sass")
        assert len(re.findall(r"\bHMMA\.16816\.F32\.BF16", sass)) == width
        assert len(re.findall(r"\bLDSM\.16\.MT?88\.4", sass)) == width // 2 + width // 16
        assert len(re.findall(r"\bMUFU\.EX2", sass)) <= 32 + 16 and not re.search(r"\b(LDL|STL)\b", sass)
