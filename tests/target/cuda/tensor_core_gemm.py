"""Products of matrices by tensor cores, as a schedule: blocks, warps, fragments, stages; and with an epilogue."""

from __future__ import annotations

import math
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

import tensorlang
from tensorlang import dtypes, te
from tensorlang.ir.stmt import Kernel, Launch, Stmt, map_children
from tensorlang.schedule import Schedule, Stage
from tensorlang.te.axis import Axis
from tensorlang.te.operation import Tensor

Array = NDArray[Any]
INSTRUCTIONS = {
    "bf16": ("bfloat16", "float32", 16),
    "f16": ("float16", "float32", 16),
    "tf32": ("float32", "float32", 8),
    "s8": ("int8", "int32", 32),
    "u8": ("uint8", "int32", 32),
    "e4m3": ("float8_e4m3fn", "float32", 32),
    "e5m2": ("float8_e5m2", "float32", 32),
    "f16.f16": ("float16", "float16", 16),
}
"""Elements by PTX -> dtype of operands and of the accumulator, and k of one product."""


@dataclass(frozen=True, slots=True)
class Product:
    """`c = a b`, or of b as [n][k] if `turned`; tiles of a block and of a warp as (rows, columns), `depth` of k.

    `a_turned`: of a as [k][m].
    `epilogue`: add a row of biases and apply GELU, to an output in the dtype of the operands; `scaled`: multiply by a
    number, to an output of bfloat16. `loads` ends the name of the instructions that load fragments. `copying`: threads
    of a warp that copy tiles. `lanes`: as the accumulator has them, down its rows first, or `wrong`.
    """

    m: int
    n: int
    k: int
    element: str = "bf16"
    turned: bool = False
    block: tuple[int, int] = (128, 128)
    warp: tuple[int, int] = (64, 32)
    depth: int = 32
    stages: int = 4
    epilogue: bool = False
    scaled: bool = False
    swizzled: bool = True
    loads: str = ""
    copying: int = 32
    lanes: str = "rows"
    a_turned: bool = False

    @property
    def dtype(self) -> str:
        return INSTRUCTIONS[self.element][0]


@dataclass(frozen=True, slots=True)
class GroupProduct:
    """`c = a b^T` by wgmma: a warp group computes 64 rows of a block's `columns`; `depth` of k is 128 bytes.

    b as [k][n] if not `turned`, a as [k][m] if `a_turned`. `ahead`: tiles that are copied before they are read. `wide`:
    products of as many of the columns.
    """

    m: int
    n: int
    k: int
    element: str = "bf16"
    groups: int = 2
    columns: int = 256
    stages: int = 4
    relu: bool = False
    ahead: int | None = None
    turned: bool = True
    a_turned: bool = False
    wide: int = 0

    @property
    def depth(self) -> int:
        return 128 // dtypes.info(INSTRUCTIONS[self.element][0]).bytes


def program(p: Product) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Operands, biases, the product, and what is made of it."""
    dtype, total, _ = INSTRUCTIONS[p.element]
    A = te.placeholder((p.k, p.m) if p.a_turned else (p.m, p.k), dtype, name="A")
    B = te.placeholder((p.n, p.k) if p.turned else (p.k, p.n), dtype, name="B")
    bias = te.placeholder((p.n,), total, name="bias")
    k = te.reduce_axis((0, p.k), "k")

    def element(i: Any, j: Any) -> Any:
        a, b = A[k, i] if p.a_turned else A[i, k], B[j, k] if p.turned else B[k, j]
        return te.sum(a.astype(total) * b.astype(total), axis=k)

    C = te.compute((p.m, p.n), element, name="C")
    if p.scaled:
        scale = te.placeholder((1,), total, name="scale")
        return A, B, scale, C, te.compute((p.m, p.n), lambda i, j: (C[i, j] * scale[0]).astype("bfloat16"), name="D")
    if not p.epilogue:
        return A, B, bias, C, C
    x = te.compute((p.m, p.n), lambda i, j: C[i, j] + bias[j], name="x")
    D = te.compute((p.m, p.n), lambda i, j: (0.5 * x[i, j] * (1 + te.erf(x[i, j] * 0.5**0.5))).astype(dtype), name="D")
    return A, B, bias, C, D


def scheduled(p: Product, stepwise: bool = False) -> tuple[Schedule, tuple[Tensor, ...]]:
    """The program on tensor cores; `stepwise`: proven after each step, and not at the end."""
    A, B, bias, C, D = program(p)
    s = te.create_schedule(D.op)
    with nullcontext() if stepwise else s.proven_together("a product of warps"):
        if p.epilogue:
            s["x"].compute_inline()
        if D is not C:
            s[C].set_scope("warp")
        CW = s.cache_write(C, "warp") if D is C else C
        AS, BS = s.cache_read(A, "shared", [CW]), s.cache_read(B, "shared", [CW])
        AW, BW = s.cache_read(AS, "warp", [CW]), s.cache_read(BS, "warp", [CW])
        warps = (p.block[0] // p.warp[0], p.block[1] // p.warp[1])
        output(s[D], p)
        s[CW].compute_at(s[D], s[D].leaf_iter_vars[3])
        at = product(s[CW], p)
        for tile, name in ((AW, "at" if p.a_turned else "a"), (BW, "bt" if p.turned else "b")):
            s[tile].compute_at(s[CW], at[1])
            fragments(s[tile], f"cuda.ldmatrix.{name}.{p.element.partition('.')[0]}{p.loads}")
        for tile in (AS, BS):
            s[tile].compute_at(s[CW], at[0])
            copy(s[tile], (p.copying, warps[1], warps[0]), 16 // dtypes.info(p.dtype).bytes)
            if p.swizzled:
                s[tile].swizzle()
            if p.stages > 1:
                s[tile].pipeline(p.stages)
    return s, (A, B, *((bias,) if D is not C else ()), D)


def output(stage: Stage, p: Product) -> None:
    """Blocks, warps along z and y, and the 32 lanes as a fragment of accumulators lies in them."""
    i, j = stage.op.axis
    bi, i = stage.split(i, p.block[0])
    bj, j = stage.split(j, p.block[1])
    wi, i = stage.split(i, p.warp[0])
    wj, j = stage.split(j, p.warp[1])
    io, i = stage.split(i, 16)
    h, g = stage.split(i, 8)
    jo, j = stage.split(j, 8)
    q, e = stage.split(j, 2)
    order = (g, q) if p.lanes == "rows" else (q, g)
    stage.reorder(bi, bj, wi, wj, *order, io, jo, h, e)
    lane = stage.fuse(*order)
    tags = ("blockIdx.y", "blockIdx.x", "threadIdx.z", "threadIdx.y", "threadIdx.x")
    for axis, tag in zip((bi, bj, wi, wj, lane), tags, strict=True):
        stage.bind(axis, te.thread_axis(tag))
    stage.vectorize(e)


def product(stage: Stage, p: Product) -> tuple[Any, Any]:
    """Steps of k in shared memory, and in registers; the products of fragments inside. Returns the two loops."""
    depth = INSTRUCTIONS[p.element][2]
    (i, j), (k,) = stage.op.axis, stage.op.reduce_axis
    ko, ki = stage.split(k, p.depth)
    ki, kk = stage.split(ki, depth)
    io, ii = stage.split(i, 16)
    jo, jj = stage.split(j, 8)
    stage.reorder(ko, ki, io, jo, ii, jj, kk)
    stage.unroll(ki)
    stage.tensorize(ii, te.intrin(f"cuda.mma.m16n8k{depth}.{p.element}{turns(p)}"))
    return ko, ki


def turns(p: Product | GroupProduct) -> str:
    """What ends the name of an instruction."""
    return ".at" * p.a_turned + ".bt" * p.turned


def fragments(stage: Stage, name: str) -> None:
    """Fragments of an operand from shared memory."""
    rows, columns = te.intrin(name).op.shape
    i, j = stage.op.axis
    io, ii = stage.split(i, int(rows))
    jo, jj = stage.split(j, int(columns))
    stage.reorder(io, jo, ii, jj)
    stage.tensorize(ii, te.intrin(name))


def copy(stage: Stage, threads: tuple[int, int, int], wide: int) -> None:
    """A tile from global memory by threads along x, y, z, 16 bytes each at a time."""
    rest, lanes = stage.split(stage.fuse(*stage.op.axis), wide)
    stage.vectorize(lanes)
    for axis, extent in zip("xyz", threads, strict=True):
        if extent > 1:
            rest, thread = stage.split(rest, extent)
            stage.bind(thread, te.thread_axis(f"threadIdx.{axis}"))


def arrays(p: Product | GroupProduct) -> tuple[dict[str, Array], Array]:
    """Operands of small whole numbers, and an output to be written, by name; what the program makes of them."""
    if isinstance(p, GroupProduct):
        given, wanted = arrays(Product(p.m, p.n, p.k, p.element, turned=p.turned, a_turned=p.a_turned))
        if not p.relu:
            return given, wanted
        bias = np.arange(p.n, dtype=wanted.dtype) - 60
        return {"A": given["A"], "B": given["B"], "bias": bias, "D": given["C"]}, np.maximum(wanted + bias, 0)
    rng = np.random.default_rng(5)
    least = 0 if p.element == "u8" else -4
    a, b = rng.integers(least, 5, (p.m, p.k)), rng.integers(least, 5, (p.k, p.n))
    kind: Any = dtypes.info(p.dtype).numpy
    left = np.ascontiguousarray(a.T if p.a_turned else a)
    given = {"A": left.astype(kind), "B": np.ascontiguousarray(b.T if p.turned else b).astype(kind)}
    if p.scaled:
        scaled = (a @ b * 0.25).astype(ml_dtypes.bfloat16)
        return {**given, "scale": np.array([0.25], np.float32), "D": np.zeros_like(scaled)}, scaled
    if not p.epilogue:
        wanted = (a @ b).astype(INSTRUCTIONS[p.element][1])
        return {**given, "C": np.zeros_like(wanted)}, wanted
    bias = rng.uniform(-1, 1, p.n).astype(np.float32)
    x = a @ b + bias.astype(np.float64)
    erf = np.vectorize(math.erf)
    return {**given, "bias": bias, "D": np.zeros((p.m, p.n), kind)}, 0.5 * x * (1 + erf(x * 0.5**0.5))


def on_groups(stage: Stage, groups: int, columns: int) -> tuple[Axis, Axis]:
    """Give a result to blocks, warp groups and their lanes, as wgmma leaves it; the loops of a group and of a pair."""
    i, j = stage.op.axis
    bi, bj, i, j = stage.tile(i, j, 64 * groups, columns)
    group, i = stage.split(i, 64)
    warp, i = stage.split(i, 16)
    half, row = stage.split(i, 8)
    tile, j = stage.split(j, 8)
    column, pair = stage.split(j, 2)
    stage.reorder(bi, bj, group, warp, row, column, tile, half, pair)
    lane = stage.fuse(stage.fuse(warp, row), column)
    tags = ("blockIdx.y", "blockIdx.x", "threadIdx.y", "threadIdx.x")
    for axis, tag in zip((bi, bj, group, lane), tags, strict=True):
        stage.bind(axis, te.thread_axis(tag))
    return group, pair


def scheduled_groups(p: GroupProduct) -> tuple[Schedule, tuple[Tensor, ...]]:
    """The program on the tensor cores of warp groups."""
    A, B, bias, C, D = program(Product(p.m, p.n, p.k, p.element, turned=p.turned, a_turned=p.a_turned))
    if p.relu:
        D = te.compute((p.m, p.n), lambda i, j: te.max(C[i, j] + bias[j], 0.0), name="D")
    s = te.create_schedule(D.op)
    with s.proven_together("a product of warp groups"):
        if p.relu:
            s[C].set_scope("warp")
        CW = C if p.relu else s.cache_write(C, "warp")
        shared = [s.cache_read(x, "shared", [CW]) for x in (A, B)]
        group, pair = on_groups(s[D], p.groups, p.columns)
        s[D].vectorize(pair)
        s[CW].compute_at(s[D], group)
        i, j = s[CW].op.axis
        step, k = s[CW].split(s[CW].op.reduce_axis[0], p.depth)
        if p.wide:
            columns, j = s[CW].split(j, p.wide)
            s[CW].reorder(step, columns, i, j, k)
        else:
            s[CW].reorder(step, i, j, k)
        for x, panels in zip(shared, (p.a_turned, not p.turned), strict=True):
            s[x].compute_at(s[CW], step)
            copy(s[x], (128, p.groups, 1), 16 // dtypes.info(x.dtype).bytes)
            s[x].swizzle(panels)
            if p.stages > 1:
                s[x].pipeline(p.stages, p.ahead)
        s[CW].tensorize(i, te.intrin(f"cuda.wgmma.m64n{p.wide or p.columns}k{p.depth}.{p.element}{turns(p)}"))
    return s, (A, B, *((bias,) if p.relu else ()), D)


@cache
def kernel(p: Product | GroupProduct) -> Kernel:
    """The program, proven at its end and once for all tests, lowered for the oldest GPU that has the instruction."""
    made = scheduled(p) if isinstance(p, Product) else scheduled_groups(p)
    arch = "sm_90a" if isinstance(p, GroupProduct) else "sm_89" if "float8" in p.dtype else "sm_80"
    found: Kernel = tensorlang.lower(made[0], list(made[1]), target=f"cuda -arch={arch}", name="gemm").kernel
    return found


def changed(program: Kernel, change: dict[type[Stmt], Stmt]) -> Kernel:
    """The program with statements of some kinds replaced in its launches."""

    def visit(stmt: Stmt) -> Stmt:
        if isinstance(stmt, Launch):
            return replace(stmt, kernel=replace(stmt.kernel, body=visit(stmt.kernel.body)))
        return change.get(type(stmt)) or map_children(stmt, visit)

    return replace(program, body=visit(program.body))
