# %% [markdown]
# # A matrix multiplication at the limit
#
# A core starts one or two multiply-adds of vectors in every cycle; no program does more. The plain loops of a matrix
# multiplication reach a thousandth of that. This page gets the rest step by step, and prints after each how fast the
# kernel is, as a share of the peak that is measured on this machine.
#
# Every step is one or two primitives. Each is proven legal when it is applied, so none of them can change the result.

# %%
from collections.abc import Callable
from time import perf_counter
from typing import Any

import numpy as np

import tensorlang
from tensorlang import te, topi
from tensorlang.schedules.cpu.register_tile import register_tile
from tensorlang.target import measure_peak, parse

M, N, K = 250, 1024, 1024
SECONDS = 0.1

rng = np.random.default_rng(0)
a, b = rng.random((M, K), np.float32), rng.random((K, N), np.float32)
exact = a.astype(np.float64) @ b

# %% [markdown]
# ## The yardstick
#
# `measure_peak` runs vectors of multiply-adds that need nothing from memory. A kernel is timed by the best of its calls
# in a tenth of a second, and its result is compared with NumPy's first.

# %%
peak = measure_peak(1)["gflops"]
print(f"one core: {peak:.0f} GFLOP/s")


def best_seconds(call: Callable[[], None]) -> float:
    """The time of the fastest call."""
    best, end = float("inf"), perf_counter() + SECONDS
    while perf_counter() < end:
        start = perf_counter()
        call()
        best = min(best, perf_counter() - start)
    return best


def show(step: str, s: Any, cores: int = 1) -> float:
    """Build a schedule, check it, and print its speed."""
    kernel = tensorlang.build(s, [A, B, C])
    c = np.empty((M, N), np.float32)
    kernel(a, b, c)
    np.testing.assert_allclose(c, exact, rtol=1e-4)
    gflops = 2 * M * N * K / best_seconds(lambda: kernel(a, b, c)) / 1e9
    print(f"{step:<28} {gflops:7.1f} GFLOP/s {gflops / peak / cores:6.1%} of the peak")
    return gflops


# %% [markdown]
# ## As it is written
#
# The definition has no order. Without a schedule each element is summed to its end before the next: one multiply-add at
# a time, each waiting for the one before, and a step down a column of B in between, which lies in another cache line.

# %%
A, B = te.placeholder((M, K), name="A"), te.placeholder((K, N), name="B")
k = te.reduce_axis((0, K), name="k")
C = te.compute((M, N), lambda i, j: te.sum(A[i, k] * B[k, j], axis=k), name="C")
naive = show("plain loops", te.create_schedule(C))

# %% [markdown]
# ## Vectors
#
# The elements of a row of C are independent, and so are those of a row of B. With k outside of j a whole row of C moves
# along in vectors. What is in the way now is memory: every multiply-add reads and writes C.

# %%
s = te.create_schedule(C)
i, j = s[C].op.axis
s[C].reorder(i, k, j)
s[C].vectorize(j)
show("vectors along j", s)

# %% [markdown]
# ## Accumulators in registers
#
# So C has to stay in registers while k runs. They hold a tile of rows times vectors, and besides it a row of vectors of
# B and one element of A: `rows * vectors + vectors + 1` registers. The larger the tile, the more multiply-adds for each
# load. `register_tile` looks for the tile that needs the fewest cycles on a machine.

# %%
tile = register_tile(M, N, parse(None), bits=32)
print(f"a tile of {tile.rows} rows and {tile.vectors} vectors, {tile.width} columns wide")

# %% [markdown]
# `cache_write` gives the sums a place of their own, and `compute_at` makes it as small as a tile. All indices into it
# are known after `unroll`: LLVM keeps it in registers. `tail="peel"` cuts the rows and columns that are left over into
# loops of their own, with smaller tiles, so that no test is left in the hot loop.


# %%
def tiled(block: int) -> tuple[Any, Any, Any]:
    """The schedule with register tiles, in blocks of columns; the stage of the sums, and the loop over blocks."""
    s = te.create_schedule(C)
    sums = s.cache_write(C, "local")
    i, j = s[C].op.axis
    blocks, j = s[C].split(j, factor=block)
    rows, i = s[C].split(i, factor=tile.rows, tail="peel")
    columns, j = s[C].split(j, factor=tile.width, tail="peel")
    s[C].reorder(blocks, rows, columns, i, j)
    s[C].unroll(i)
    s[C].vectorize(j)
    s[sums].compute_at(s[C], columns)
    i, j = s[sums].op.axis
    s[sums].reorder(*s[sums].op.reduce_axis, i, j)
    s[sums].unroll(i)
    s[sums].vectorize(j)
    return s, sums, blocks


s, sums, blocks = tiled(N)
show("a tile in registers", s)

# %% [markdown]
# ## Blocks that stay in the cache
#
# For every row of tiles all of B comes by. In blocks of a few tiles the columns of B stay in the second cache while all
# rows of A come by.

# %%
BLOCK = 4 * tile.width
s, sums, blocks = tiled(BLOCK)
show("blocks of columns", s)

# %% [markdown]
# ## Panels
#
# The tile reads a few cache lines of a row of B, then as many of the next row, which is elsewhere: often across a line,
# and in places of the cache that other rows want as well. `cache_read` copies the block, and `transform_layout` stores
# the copy in the order in which it is read: panels of the tile's width, row after row. The copy costs a few percent; it
# is read once for every row of tiles.

# %%
WIDTH = tile.width


def packed_schedule() -> tuple[Any, Any]:
    """The schedule with B in panels, and the loop over blocks."""
    s, sums, blocks = tiled(BLOCK)
    panels = s.cache_read(B, "global", [sums])
    panel, k, lane = s[panels].transform_layout(lambda k, j: (j // WIDTH, k, j % WIDTH))
    s[panels].compute_at(s[C], blocks)
    s[panels].reorder(k, panel, lane)
    s[panels].vectorize(lane)
    return s, blocks


s, blocks = packed_schedule()
packed = show("B in panels", s)
assert packed > 5 * naive

# %% [markdown]
# ## Threads
#
# Blocks of columns are independent. Each thread packs its own.

# %%
cores = parse(None).cores
s, blocks = packed_schedule()
s[C].parallel(blocks)
show("blocks in parallel", s, cores)

# %% [markdown]
# ## The library does the same
#
# `topi.schedule` applies these primitives, and computes tile and blocks from the shapes and the machine: also for a
# product of one row, which needs no panels, or of deep matrices, which are summed in parts. What follows the product is
# computed in its tile. The result is a schedule like any other.

# %%
show("topi.schedule", topi.schedule(C := topi.matmul(A, B)), cores)

bias = te.placeholder((N,), name="bias")
biased = te.compute((M, N), lambda i, j: C[i, j] + bias[j], name="biased")
relu = te.compute((M, N), lambda i, j: te.maximum(biased[i, j], 0.0), name="relu")
print(topi.schedule(relu))
