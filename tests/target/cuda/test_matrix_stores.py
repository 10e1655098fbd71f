"""Products that leave registers through shared memory: cast there, stored by stmatrix, written in rows of 16 bytes."""

from __future__ import annotations

import re
from collections import Counter
from functools import cache
from typing import Any

import numpy as np
import pytest

import tensorlang
from tensorlang import dtypes, te
from tensorlang.errors import InternalError, TargetError
from tensorlang.ir import threads
from tensorlang.ir.stmt import Barrier, Kernel, Seq
from tensorlang.runtime.host_program import device_kernels
from tensorlang.schedule import Schedule
from tensorlang.target.c_source import CUDA, module_source
from tensorlang.target.cuda.sass import disassembler, sass
from tensorlang.te.operation import Tensor
from tensorlang.testing.cuda_emulation import emulate_program, unavailable
from tests.target.cuda.compiled import compiled, needs_nvrtc
from tests.target.cuda.tensor_core_gemm import (
    Array,
    GroupProduct,
    Product,
    arrays,
    changed,
    copy,
    fragments,
    product,
    program,
)

emulated = pytest.mark.skipif(unavailable() is not None, reason=str(unavailable()))

CASES: dict[str, tuple[Product | GroupProduct, str]] = {
    "int8 to bf16": (Product(32, 32, 128, "s8", True, (32, 32), (32, 16), depth=64, stages=2), "bf16"),
    "columns first": (Product(32, 64, 64, "bf16", turned=True, block=(32, 32), warp=(16, 32), stages=2), "trans.bf16"),
    "warp groups": (GroupProduct(64, 64, 128, "f16", groups=1, columns=64, stages=2), "group.f16"),
}
CASE = pytest.mark.parametrize("name", CASES)


def stored(p: Product | GroupProduct, store: str) -> tuple[Schedule, tuple[Tensor, ...]]:
    """D = A B^T, cast to 16 bits in the registers of the sums; `trans` in the name of the store: D as [column][row]."""
    groups, turned = isinstance(p, GroupProduct), store.startswith("trans")
    A, B, _, C, _ = program(Product(p.m, p.n, p.k, p.element, turned=True))
    dtype = "bfloat16" if store.endswith("bf16") else "float16"

    def narrow(i: Any, j: Any) -> Any:
        return (C[j, i] if turned else C[i, j]).astype(dtype)

    D = te.compute((p.n, p.m) if turned else (p.m, p.n), narrow, name="D")
    s = te.create_schedule(D.op)
    with s.proven_together("a product that is stored by rows"):
        s[C].set_scope("warp")
        DS = s.cache_write(D, "shared")
        DW = s.cache_write(DS, "warp")
        AS, BS = (s.cache_read(x, "shared", [C]) for x in (A, B))
        if isinstance(p, GroupProduct):
            block, warp, along = (64 * p.groups, p.columns), (64, p.columns), (128, p.groups, 1)
        else:
            block, warp = p.block, p.warp
            along = (32, block[1] // warp[1], block[0] // warp[0])
        bi, bj, *_ = s[D].tile(*s[D].op.axis, *(block[::-1] if turned else block))
        s[D].bind(bi, te.thread_axis("blockIdx.y"))
        s[D].bind(bj, te.thread_axis("blockIdx.x"))
        inner = s[D].leaf_iter_vars[2:]
        rest, lanes = s[D].split(s[D].fuse(*inner), 8)
        s[D].vectorize(lanes)
        bound(s, D, rest, along)
        s[DS].compute_at(s[D], bj)
        s[DS].swizzle()
        i, j = s[DS].op.axis[::-1] if turned else s[DS].op.axis
        wi, i = s[DS].split(i, warp[0])
        wj, j = s[DS].split(j, warp[1])
        io, ii = s[DS].split(i, 64 if groups else 16)
        jo, jj = s[DS].split(j, 16)
        s[DS].reorder(wi, wj, io, jo, *((jj, ii) if turned else (ii, jj)))
        s[DS].bind(wi, te.thread_axis("threadIdx.y" if groups else "threadIdx.z"))
        if not groups:
            s[DS].bind(wj, te.thread_axis("threadIdx.y"))
        for stage in (DW, C):
            s[stage].compute_at(s[DS], wj)
        held(s, DW, groups, turned)
        s[DS].tensorize(jj if turned else ii, te.intrin(f"cuda.stmatrix.{store}"))
        multiplied(s, C, (AS, BS), p, along)
    return s, (A, B, D)


def bound(s: Schedule, stage: Tensor, rest: Any, along: tuple[int, int, int]) -> None:
    """The threads of a block along an axis."""
    for axis, extent in zip("xyz", along, strict=True):
        if extent > 1:
            rest, thread = s[stage].split(rest, extent)
            s[stage].bind(thread, te.thread_axis(f"threadIdx.{axis}"))


def held(s: Schedule, stage: Tensor, groups: bool, turned: bool) -> None:
    """The lanes as the accumulator has them."""
    i, j = s[stage].op.axis[::-1] if turned else s[stage].op.axis
    warp, i = s[stage].split(i, 16)
    half, row = s[stage].split(i, 8)
    tile, j = s[stage].split(j, 8)
    column, pair = s[stage].split(j, 2)
    if groups:
        s[stage].reorder(warp, row, column, tile, half, pair)
        lane = s[stage].fuse(s[stage].fuse(warp, row), column)
    else:
        s[stage].reorder(row, column, warp, tile, half, pair)
        lane = s[stage].fuse(row, column)
    s[stage].bind(lane, te.thread_axis("threadIdx.x"))


def multiplied(
    s: Schedule, C: Tensor, shared: tuple[Tensor, Tensor], p: Product | GroupProduct, along: tuple[int, int, int]
) -> None:
    """The sums, of tiles in shared memory that are copied ahead."""
    if isinstance(p, GroupProduct):
        i, j = s[C].op.axis
        step, k = s[C].split(s[C].op.reduce_axis[0], p.depth)
        s[C].reorder(step, i, j, k)
    else:
        parts = [s.cache_read(x, "warp", [C]) for x in shared]
        step, inner = product(s[C], p)
        for tile, word in zip(parts, ("a", "bt"), strict=True):
            s[tile].compute_at(s[C], inner)
            fragments(s[tile], f"cuda.ldmatrix.{word}.{p.element}")
    for x in shared:
        s[x].compute_at(s[C], step)
        copy(s[x], along, 16 // dtypes.info(x.dtype).bytes)
        s[x].swizzle()
        if p.stages > 1:
            s[x].pipeline(p.stages)
    if isinstance(p, GroupProduct):
        s[C].tensorize(i, te.intrin(f"cuda.wgmma.m64n{p.columns}k{p.depth}.{p.element}.bt"))


@cache
def lowered(name: str) -> Kernel:
    s, args = stored(*CASES[name])
    arch = "sm_90a" if name == "warp groups" else "sm_90"
    found: Kernel = tensorlang.lower(s, list(args), target=f"cuda -arch={arch}", name="gemm").kernel
    return found


def operands(name: str) -> tuple[dict[str, Array], Array]:
    """Arguments as their bits, and the output."""
    p, store = CASES[name]
    given, wanted = arrays(p)
    wanted = wanted.astype(dtypes.info("bfloat16" if store.endswith("bf16") else "float16").numpy)
    wanted = np.ascontiguousarray(wanted.T) if store.startswith("trans") else wanted
    words = {n: given[n].view("u2") if given[n].itemsize == 2 else given[n] for n in "AB"}
    return {**words, "D": np.zeros(wanted.shape, np.uint16)}, wanted


@pytest.mark.sampled(1)
@emulated
@CASE
def test_programs_compute_what_they_say(name: str) -> None:
    made = lowered(name)
    for mode in ("late", "at_once"):
        for seed in range(3 if name == "columns first" else 1):
            given, wanted = operands(name)
            emulate_program(made, given, mode="late" if mode == "late" else "at_once", seed=seed)
            np.testing.assert_array_equal(given["D"].view(wanted.dtype), wanted)


@pytest.mark.sampled(1)
@needs_nvrtc
@pytest.mark.skipif(disassembler() is None, reason="no nvdisasm: pip install nvidia-cuda-nvdisasm")
@CASE
def test_sums_leave_by_stmatrix(name: str) -> None:
    p, store = CASES[name]
    arch = "sm_90a" if name == "warp groups" else "sm_90"
    made = compiled(module_source(device_kernels(lowered(name)), CUDA).text, arch)
    assert made.report.clean and not made.report.warnings and made.report["gemm_kernel0"].stack == 0
    found = Counter(re.findall(r"\b([A-Z][A-Z0-9]+(?:\.[A-Z0-9_x]+)*)\b", sass(made.cubin)))
    rows, columns = (64, p.columns) if isinstance(p, GroupProduct) else p.warp
    tiles = columns // 16 * (1 if isinstance(p, GroupProduct) else rows // 16)
    assert found["STSM.16.MT88.4" if store.startswith("trans") else "STSM.16.M88.4"] == tiles
    assert found["STG.E.128"] >= 1 and not [n for n in found if n.startswith(("STS", "LDL", "STL")) and "STSM" not in n]
    assert {n for n in found if n.startswith("STG")} == {"STG.E.128"}


def test_what_is_stored_is_read_behind_a_barrier() -> None:
    """The interpreter finds the race where there is none; older architectures have no such instruction."""
    p = Product(32, 32, 32, "f16", turned=True, block=(32, 32), warp=(16, 16), stages=1)
    s, args = stored(p, "f16")
    program = tensorlang.lower(s, list(args), target="cuda -arch=sm_90", name="gemm").kernel
    given, wanted = arrays(p)
    inputs = {"A": given["A"], "B": given["B"], "D": np.zeros((32, 32), np.float16)}
    threads.run(program, inputs)
    np.testing.assert_array_equal(inputs["D"], wanted.astype(np.float16))
    with pytest.raises(InternalError, match=r"thread .* (reads|writes)"):
        threads.run(changed(program, {Barrier: Seq(())}), inputs)
    with pytest.raises(TargetError, match=r"cuda\.stmatrix\.f16 needs sm_90, or a later one, and the target is sm_80"):
        tensorlang.build(s, list(args), target="cuda -arch=sm_80")
