# %% [markdown]
# # An operator of your own
#
# No library has the operator `C[i, j] = max over k of min(A[i, k], B[k, j])`: the widest path between two layers of a
# graph, a product of fuzzy relations. Here it is declared, scheduled by hand, checked, compiled, and timed beside
# NumPy. The sizes are odd on purpose: tiles need not divide them.
#
# Run it as a script, or cell by cell in an editor that knows `# %%`.

# %%
import timeit
from typing import Any

import numpy as np
import numpy.typing as npt

import tensorlang
from tensorlang import te

Array = npt.NDArray[Any]
M, N, K = 37, 53, 61

# %% [markdown]
# ## What to compute
#
# `te.compute` says what an element is; nothing is said about loops. A reduction is the whole value of its element, and
# runs over axes made by `te.reduce_axis`.


# %%
def max_min(m: int, n: int, k: int, dtype: str) -> list[te.Tensor]:
    """Return `[A[m, k], B[k, n], C[m, n]]` of the operator, all of `dtype`."""
    A = te.placeholder((m, k), name="A", dtype=dtype)
    B = te.placeholder((k, n), name="B", dtype=dtype)
    r = te.reduce_axis((0, k), name="k")
    C = te.compute((m, n), lambda i, j: te.max(te.minimum(A[i, r], B[r, j]), axis=r), name="C")
    return [A, B, C]


def max_min_numpy(a: Array, b: Array) -> Array:
    """The same with NumPy: it needs room for all `m * k * n` minima."""
    smallest: Array = np.minimum(a[:, :, None], b[None, :, :]).max(axis=1)
    return smallest


# %% [markdown]
# ## The default schedule
#
# A schedule holds the loops of every stage. Before any step they are those of the definition.

# %%
A, B, C = max_min(M, N, K, "float32")
s = te.create_schedule(C.op)
print(tensorlang.lower(s, [A, B, C], name="max_min"))

# %% [markdown]
# ## A schedule by hand
#
# - `split` cuts `C` into tiles of 8 rows and 16 columns, and `reorder` puts the loops over tiles outside.
#   `tail="peel"` makes loops of their own for the tiles at the border, so that the others need no test.
# - `cache_write` computes the values of `C` in a stage of its own, `C.local`, and `compute_at` places that stage inside
#   the loop over tiles: each tile is computed in registers, then copied to its place.
# - Inside a tile, `k` runs outside the rows and columns: one row of `B` serves all eight rows of the tile.
# - `vectorize`, `unroll` and `parallel` say how the loops run.
#
# Every step is proven legal when it is applied: no value is read before it is computed, and no two threads or lanes
# touch the same element.


# %%
def tiled(tensors: list[te.Tensor]) -> Any:
    """Schedule the operator in register tiles of 8 x 16, a row of tiles per thread."""
    C = tensors[-1]
    s = te.create_schedule(C.op)
    tile = s.cache_write(C, "local")
    i, j = s[C].op.axis
    i_o, i_i = s[C].split(i, factor=8, tail="peel")
    j_o, j_i = s[C].split(j, factor=16, tail="peel")
    s[C].reorder(i_o, j_o, i_i, j_i)
    s[C].vectorize(j_i)
    s[tile].compute_at(s[C], j_o)
    rows, columns = s[tile].op.axis
    (k,) = s[tile].op.reduce_axis
    s[tile].reorder(k, rows, columns)
    s[tile].unroll(rows)
    s[tile].vectorize(columns)
    s[C].parallel(i_o)
    return s


s = tiled([A, B, C])
loops = str(tensorlang.lower(s, [A, B, C], name="max_min"))
print("\n".join(loops.splitlines()[:24]), "\n  ... and the tiles at the border")

# %% [markdown]
# A schedule prints as the steps that made it: a text to paste, to keep, or to replay.

# %%
print(s)

# %% [markdown]
# ## A step that would be wrong
#
# All iterations of `k` update the same element. Sharing them among threads would be a race, and is refused: the error
# names the loop, the smallest pair of instances that would collide, the steps so far, and what would be legal instead.
# The schedule is as it was.

# %%
before = str(s)
try:
    s["C.local"].parallel("k")
except tensorlang.ScheduleError as error:
    print(error)
else:
    raise AssertionError("a race was not noticed")
assert str(s) == before

# %% [markdown]
# ## Build, run, compare
#
# `build` compiles for this machine. The executable takes NumPy arrays (or any CPU tensor that speaks DLPack), and
# checks their shapes and dtypes. Minima and maxima do not round, so the results are equal, not just close.


# %%
def example(dtype: str) -> tuple[Array, Array]:
    """Seeded inputs of a dtype."""
    rng = np.random.default_rng(0)
    a, b = (rng.integers(-1000, 1000, shape).astype(dtype) for shape in ((M, K), (K, N)))
    return a, b


def seconds_of_numpy(a: Array, b: Array) -> float:
    """The time of one call of the NumPy version, in seconds."""
    return min(timeit.repeat(lambda: max_min_numpy(a, b), number=10, repeat=5)) / 10


for dtype in ("float32", "int32"):
    tensors = max_min(M, N, K, dtype)
    kernel = tensorlang.build(tiled(tensors), tensors, target="llvm", name="max_min")
    a, b = example(dtype)
    c = np.empty((M, N), dtype)
    kernel(a, b, c)
    assert np.array_equal(c, max_min_numpy(a, b))

    ours = kernel.time_evaluator(number=100, repeat=5)(a, b, c).median
    print(f"{dtype}: equal to NumPy; {ours * 1e6:.1f} µs, NumPy {seconds_of_numpy(a, b) * 1e6:.0f} µs")

# %% [markdown]
# A kernel this small ends after a few microseconds on one thread; starting the others pays for larger sizes only.
#
# The machine code is one call away. The inner loop is made of vector maxima:

# %%
lines = [line.strip() for line in kernel.source("asm").splitlines()]
print("\n".join([line for line in lines if line.startswith(("vpmaxs", "pmaxs", "smax"))][:4]))

# %% [markdown]
# Next: `02_autotune_matmul.py` lets the tuner choose the schedule.
