# %% [markdown]
# # A matrix multiplication on a GPU
#
# A GPU runs blocks of threads: the threads of a block share some fast memory and can wait for each other, blocks know
# nothing of each other. A schedule says which loops become blocks and threads (`bind`), and which arrays lie in shared
# memory or in the registers of a thread (scopes). Where threads have to wait is not said: it is derived from the
# dependences, and the barriers that are placed are proven to be enough.
#
# This page builds a matrix multiplication in four steps. It runs on a CUDA device where there is one, else on an OpenCL
# device, else on the interpreter, which runs all threads in lockstep and stops at a race. An OpenCL device may be a
# CPU: results are the same there, but the speeds that are printed tell nothing about a GPU.

# %%
from collections.abc import Callable
from typing import Any

import numpy as np

import tensorlang
from tensorlang import nd, te

SIZES = {"cuda": 2048, "opencl": 256, "interpreter": 32}
TARGET = next((kind for kind in ("cuda", "opencl") if nd.device(kind).exist), "interpreter")
N = SIZES[TARGET]
TILE = 16 if TARGET == "interpreter" else 64
print(f"kernels run on target {TARGET!r}, matrices are {N} x {N}\n")

rng = np.random.default_rng(0)
a, b = rng.random((N, N), np.float32), rng.random((N, N), np.float32)
exact = a.astype(np.float64) @ b

A, B = te.placeholder((N, N), name="A"), te.placeholder((N, N), name="B")
k = te.reduce_axis((0, N), name="k")
C = te.compute((N, N), lambda i, j: te.sum(A[i, k] * B[k, j], axis=k), name="C")


def show(step: str, s: Any) -> Any:
    """Build a schedule, check its result, and print its speed where that means something."""
    kernel = tensorlang.build(s, [A, B, C], target=TARGET, name="matmul")
    if TARGET == "interpreter":
        c = np.empty((N, N), np.float32)
        kernel(a, b, c)
        np.testing.assert_allclose(c, exact, rtol=1e-4)
        print(f"{step:<28} right, and no two threads meet in one element without a barrier between them")
        return kernel
    arrays = [nd.array(x, nd.device(TARGET)) for x in (a, b, np.zeros_like(a))]
    kernel(*arrays)
    np.testing.assert_allclose(arrays[2].numpy(), exact, rtol=1e-4)
    seconds = kernel.time_evaluator(number=3, repeat=3)(*arrays).median
    print(f"{step:<28} right, {2 * N**3 / seconds / 1e9:8.1f} GFLOP/s")
    return kernel


def refused(step: Callable[[], Any], kind: type[Exception]) -> None:
    """Do what is to be refused, and print why it was."""
    try:
        step()
    except kind as error:
        print(error, end="\n\n")
        return
    raise AssertionError("it was accepted")


# %% [markdown]
# ## 1. Blocks and threads
#
# Every element of C is independent: blocks of 16 x 16 threads, an element each. Neighbours along `threadIdx.x` should
# touch neighbours in memory, so that is the last axis.

# %%
block_x, block_y = te.thread_axis("blockIdx.x"), te.thread_axis("blockIdx.y")
thread_x, thread_y = te.thread_axis("threadIdx.x"), te.thread_axis("threadIdx.y")

s = te.create_schedule(C.op)
i, j = s[C].op.axis
i_o, j_o, i_i, j_i = s[C].tile(i, j, 16, 16)
for axis, thread in ((i_o, block_y), (j_o, block_x), (i_i, thread_y), (j_i, thread_x)):
    s[C].bind(axis, thread)
show("an element a thread", s)

# %% [markdown]
# ## 2. Shared memory
#
# Each element of A is read by the N threads of a row of C. `cache_read` with the scope `shared` gives a block its own
# copy of a tile; `compute_at` says when it is fetched, and its loops are bound to the same threads: so all of them
# fetch it together. A stage in shared memory is computed once for the block, not once for a thread.

# %%
s = te.create_schedule(C.op)
fetched = [s.cache_read(x, "shared", [C]) for x in (A, B)]
i, j = s[C].op.axis
i_o, j_o, i_i, j_i = s[C].tile(i, j, 16, 16)
k_o, k_i = s[C].split(k, factor=16)
s[C].reorder(i_o, j_o, i_i, j_i, k_o, k_i)
for axis, thread in ((i_o, block_y), (j_o, block_x), (i_i, thread_y), (j_i, thread_x)):
    s[C].bind(axis, thread)
for tile in fetched:
    s[tile].compute_at(s[C], k_o)
    for axis, thread in zip(s[tile].op.axis, (thread_y, thread_x), strict=True):
        s[tile].bind(axis, thread)
show("tiles in shared memory", s)

# %% [markdown]
# `lower` prints what each thread runs. Two barriers have been placed: no thread may read a tile before all have fetched
# their part of it, and none may fetch the next one over it before all have read it.

# %%
loops = str(tensorlang.lower(s, [A, B, C], target="cuda"))
print(f"\n{loops}")
assert loops.count("barrier of the block") == 2

# %% [markdown]
# ## 3. A tile in the registers of a thread
#
# A multiply-add that reads two elements of shared memory waits for them. Of a tile of 4 x 4 elements a thread reads 8
# elements for 16 multiply-adds, and the sums stay in its registers: the scope `local`. The tiles are fetched in
# vectors of four elements.


# %%
def in_registers(tile: int, stages: int = 1) -> Any:
    """A block computes tile x tile elements, a thread 4 x 4 of them; tiles are fetched ahead if there are stages."""
    s = te.create_schedule(C.op)
    fetched = [s.cache_read(x, "shared", [C]) for x in (A, B)]
    held = [s.cache_read(x, "local", [C]) for x in fetched]
    sums = s.cache_write(C, "local")
    i, j = s[C].op.axis
    i_o, j_o, i_i, j_i = s[C].tile(i, j, tile, tile)
    i_t, j_t, _, j_e = s[C].tile(i_i, j_i, 4, 4)
    for axis, thread in ((i_o, block_y), (j_o, block_x), (i_t, thread_y), (j_t, thread_x)):
        s[C].bind(axis, thread)
    s[C].vectorize(j_e)

    s[sums].compute_at(s[C], j_t)
    k_o, k_i = s[sums].split(s[sums].op.reduce_axis[0], factor=8)
    s[sums].reorder(k_o, k_i, *s[sums].op.axis)
    s[sums].unroll(k_i)
    for x in held:
        s[x].compute_at(s[sums], k_i)
    for x in fetched:
        s[x].compute_at(s[sums], k_o)
        rest, lanes = s[x].split(s[x].fuse(*s[x].op.axis), factor=4)
        rest, x_t = s[x].split(rest, factor=tile // 4)
        _, y_t = s[x].split(rest, factor=tile // 4)
        s[x].bind(x_t, thread_x)
        s[x].bind(y_t, thread_y)
        s[x].vectorize(lanes)
        if stages > 1:
            s[x].pipeline(stages)
    return s


show("a tile in registers", in_registers(TILE))

# %% [markdown]
# ## 4. Fetching ahead
#
# `pipeline(3)` keeps three tiles of each operand: while one is used, the next two are under way. On CUDA devices from
# sm_80 on these are asynchronous copies. A thread waits for its own copies, and one barrier for each tile lets the
# others see them; the second barrier is no longer needed: what is overwritten was read a step before that barrier.

# %%
s = in_registers(TILE, stages=3)
kernel = show("fetched ahead", s)
loops = str(tensorlang.lower(s, [A, B, C], target="cuda"))
steady = loops[loops.rindex("for k_o in range") :]
assert steady.count("barrier of the block") == 1 and "begin copy" in steady

print(f"\n{kernel.source({'cuda': 'cuda', 'opencl': 'opencl'}.get(TARGET, 'loops'))}\n")

# %% [markdown]
# ## What is refused
#
# Blocks cannot wait for each other. With the steps of the sum given to blocks, two of them would add to one element:
# that is a race, refused when the axis is bound, with the smallest case and ways out. (Bound to `threadIdx.x` the same
# axis is legal: the threads of a block combine their parts.)

# %%
s = te.create_schedule(C.op)
k_o, k_i = s[C].split(k, factor=8)
refused(lambda: s[C].bind(k_o, block_x), tensorlang.ScheduleError)

# %% [markdown]
# Limits of a device are asked before anything is compiled. Here every thread would have one element of a block of
# 64 x 64.

# %%
s = te.create_schedule(C.op)
i_o, j_o, i_i, j_i = s[C].tile(C.op.axis[0], C.op.axis[1], 64, 64)
for axis, thread in ((i_o, block_y), (j_o, block_x), (i_i, thread_y), (j_i, thread_x)):
    s[C].bind(axis, thread)
refused(lambda: tensorlang.lower(s, [A, B, C], target="cuda -arch=sm_80"), tensorlang.TargetError)

# %% [markdown]
# [docs/gpu.md](../docs/gpu.md) is the guide: scopes, reductions across threads, arrays on the device, streams, graphs.
