# %% [markdown]
# # A matrix multiplication on tensor cores
#
# The matrix instructions of a GPU multiply small tiles, and the 32 threads of a warp run each of them together: the
# elements of a tile are spread over their registers in an order that the hardware wants. Here that order is part of the
# intrinsic, and the scope `warp` is for arrays that lie so. The schedule is one of loops, stages and `tensorize`, as
# for the instructions of CPUs; what is computed does not change, and races are looked for as in any other program.
#
# The page multiplies bfloat16 matrices, adds a row of biases and applies ReLU, all of it in one kernel. It runs on a
# CUDA device where there is one; else the interpreter runs all threads in lockstep, and stops at a race.

# %%
from typing import Any

import ml_dtypes
import numpy as np

import tensorlang
from tensorlang import nd, te
from tensorlang.errors import TargetError

ON_DEVICE = nd.device("cuda").exist
TARGET = "cuda" if ON_DEVICE else "interpreter"
M, N, K = (4096, 4096, 4096) if ON_DEVICE else (64, 64, 64)
BLOCK, WARP, DEPTH, STAGES = ((128, 128), (64, 32), 32, 4) if ON_DEVICE else ((32, 32), (16, 16), 32, 3)
print(f"the kernel runs on target {TARGET!r}, on {M} x {K} by {K} x {N} elements\n")

A, B = (te.placeholder(shape, "bfloat16", name=name) for shape, name in (((M, K), "A"), ((K, N), "B")))
bias = te.placeholder((N,), name="bias")
k = te.reduce_axis((0, K), name="k")
C = te.compute((M, N), lambda i, j: te.sum(A[i, k].astype("float32") * B[k, j].astype("float32"), axis=k), name="C")
D = te.compute((M, N), lambda i, j: te.max(C[i, j] + bias[j], 0.0).astype("bfloat16"), name="D")

# %% [markdown]
# ## The instruction
#
# An intrinsic is a computation of fixed size and the code that does it. This one multiplies 16 x 16 by 16 x 8 elements
# and adds them to 16 x 8 sums. `ldmatrix` brings tiles from shared memory into registers, in the order that the product
# wants; the form `b` turns its tile on the way.

# %%
MULTIPLY, LOAD_A, LOAD_B = (te.intrin(f"cuda.{name}.bf16") for name in ("mma.m16n8k16", "ldmatrix.a", "ldmatrix.b"))
print(MULTIPLY.program.text, end="\n\n")

# %% [markdown]
# ## The schedule
#
# On a device a block computes 128 x 128 elements of D, a warp 64 x 32 of them. Warps go along `threadIdx.z` and
# `threadIdx.y`, lanes along `threadIdx.x`. Sums stay in registers: C has the scope `warp`, and is computed inside the
# loops of warps, but outside of the loop of lanes.
#
# A lane holds two rows that are 8 apart of each 16, and two neighbouring columns of each 8. The loops of D are split
# like that: then every lane finds the sums of its own elements in its own registers, and stores pairs.

# %%
THREADS = {tag: te.thread_axis(tag) for tag in (f"{of}Idx.{axis}" for of in ("block", "thread") for axis in "xyz")}


def output(s: Any, lanes: str = "rows first") -> Any:
    """Split D into blocks, warps and lanes; returns the loop of warps."""
    i, j = s[D].op.axis
    i_block, j_block, i, j = s[D].tile(i, j, *BLOCK)
    i_warp, j_warp, i, j = s[D].tile(i, j, *WARP)
    i_tile, j_tile, i, j = s[D].tile(i, j, 16, 8)
    half, row = s[D].split(i, 8)
    column, pair = s[D].split(j, 2)
    order = (row, column) if lanes == "rows first" else (column, row)
    s[D].reorder(i_block, j_block, i_warp, j_warp, *order, i_tile, j_tile, half, pair)
    lane = s[D].fuse(*order)
    bound = {"blockIdx.y": i_block, "blockIdx.x": j_block, "threadIdx.z": i_warp, "threadIdx.y": j_warp}
    for tag, axis in {**bound, "threadIdx.x": lane}.items():
        s[D].bind(axis, THREADS[tag])
    s[D].vectorize(pair)
    return j_warp


# %% [markdown]
# The sums take steps of 32 along k through shared memory, and of 16 through registers. The tiles in shared memory are
# copied three steps ahead (`pipeline`), asynchronously, 16 bytes a thread at a time. `swizzle` turns the order of these
# chunks from row to row, so that `ldmatrix`, which reads a column of them, needs no bank of shared memory twice.


# %%
def scheduled(lanes: str = "rows first") -> Any:
    """The program on tensor cores."""
    s = te.create_schedule(D.op)
    warp = output(s, lanes)
    s[C].set_scope("warp")
    shared = [s.cache_read(x, "shared", [C]) for x in (A, B)]
    held = [s.cache_read(x, "warp", [C]) for x in shared]

    s[C].compute_at(s[D], warp)
    i_tile, j_tile, i, j = s[C].tile(*s[C].op.axis, 16, 8)
    step, k_i = s[C].split(s[C].op.reduce_axis[0], DEPTH)
    k_tile, k_i = s[C].split(k_i, 16)
    s[C].reorder(step, k_tile, i_tile, j_tile, i, j, k_i)
    s[C].unroll(k_tile)
    s[C].tensorize(i, MULTIPLY)

    for tile, load in zip(held, (LOAD_A, LOAD_B), strict=True):
        s[tile].compute_at(s[C], k_tile)
        inside = s[tile].tile(*s[tile].op.axis, 16, 16)[2]
        s[tile].tensorize(inside, load)

    for tile in shared:
        s[tile].compute_at(s[C], step)
        chunk, element = s[tile].split(s[tile].fuse(*s[tile].op.axis), 8)
        s[tile].vectorize(element)
        warps = {"y": BLOCK[1] // WARP[1], "z": BLOCK[0] // WARP[0]}
        for axis, extent in {"x": 32, **warps}.items():
            chunk, thread = s[tile].split(chunk, extent)
            s[tile].bind(thread, THREADS[f"threadIdx.{axis}"])
        s[tile].swizzle()
        s[tile].pipeline(STAGES)
    return s


s = scheduled()
kernel = tensorlang.build(s, [A, B, bias, D], target=TARGET, name="linear")

rng = np.random.default_rng(0)
a, b = (rng.standard_normal(shape, np.float32).astype(ml_dtypes.bfloat16) for shape in ((M, K), (K, N)))
biases = rng.standard_normal(N, np.float32)
exact = np.maximum(a.astype(np.float32) @ b.astype(np.float32) + biases, 0)
device = nd.device("cuda") if ON_DEVICE else nd.cpu()
arrays = [nd.array(x, device) for x in (a, b, biases, np.zeros((M, N), ml_dtypes.bfloat16))]
kernel(*arrays)
np.testing.assert_allclose(arrays[3].numpy().astype(np.float32), exact, rtol=2**-7, atol=1e-3 * K**0.5)
print(f"{TARGET}: equal to NumPy, up to the rounding of bfloat16")
if ON_DEVICE:
    seconds = kernel.time_evaluator(number=10, repeat=3)(*arrays).median
    print(f"{2 * M * N * K / seconds / 1e12:.0f} TFLOP/s")

# %% [markdown]
# ## What the threads run
#
# `machine` statements are run by the lanes of a warp together; what they mean stands below them, in plain loops. Nobody
# asked for the barrier and the wait for copies: they are derived from the dependences.

# %%
loops = str(tensorlang.lower(s, [A, B, bias, D], target="cuda -arch=sm_80"))
shown = [
    line for line in loops.splitlines() if any(w in line for w in ("allocate", "machine", "barrier", "wait", "copy"))
]
print("\n" + "\n".join(line[:120] for line in shown))

# %% [markdown]
# ## A thread that copies for all
#
# From sm_90 on, one thread can ask for a whole tile of A (`bulk_copy`): the loops over threads are gone, and all wait
# at barriers in shared memory, which count the bytes that arrive. The wait stands where it stood.

# %%
s = scheduled()
s["A.shared"].bulk_copy()
loops = str(tensorlang.lower(s, [A, B, bias, D], target="cuda -arch=sm_90a"))
print("\n" + "\n".join(line.strip()[:120] for line in loops.splitlines() if "A.shared.filled" in line))

# %% [markdown]
# ## What is refused
#
# With the lanes numbered down the columns first, a thread would need sums that another one holds in its registers.

# %%
try:
    tensorlang.lower(scheduled("columns first"), [A, B, bias, D], target="cuda -arch=sm_80")
except TargetError as error:
    print(f"\n{error}")
else:
    raise AssertionError("it was accepted")
