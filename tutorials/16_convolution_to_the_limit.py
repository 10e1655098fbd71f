# %% [markdown]
# # A convolution, from a few percent of the peak to the peak
#
# The steps of [a product at the limit](05_matmul_to_the_limit.py) carry over: a convolution is a product whose rows are
# read from overlapping windows. Each step is one or two primitives, and after each the speed is printed as a share of
# the peak that is measured on this machine.

# %%
from time import perf_counter
from typing import Any

import numpy as np

import tensorlang
from tensorlang import te, topi
from tensorlang.target import measure_peak, parse

H, C, F = 28, 64, 64
SECONDS = 0.05
peak = measure_peak(1)["gflops"]
rng = np.random.default_rng(0)
image, filters = rng.random((H + 2, H + 2, C), np.float32), rng.random((3, 3, C, F), np.float32)
windows = np.lib.stride_tricks.sliding_window_view(image, (3, 3), (0, 1))
exact = np.einsum("hwcrs,rscf->hwf", windows, filters, optimize=True)

# %% [markdown]
# ## The definition
#
# An image with a border, channels last, so that what belongs to a pixel lies together.

# %%
X, W = te.placeholder((H + 2, H + 2, C), name="X"), te.placeholder((3, 3, C, F), name="W")
r, q, c = te.reduce_axis((0, 3), "r"), te.reduce_axis((0, 3), "q"), te.reduce_axis((0, C), "c")
Y = te.compute((H, H, F), lambda h, w, f: te.sum(X[h + r, w + q, c] * W[r, q, c, f], axis=[r, q, c]), name="Y")


def show(step: str, s: Any, target: str = "llvm -num-cores=1") -> float:
    """Build a schedule, check it, and print its speed."""
    kernel = tensorlang.build(s, [X, W, Y], target=target)
    made = kernel(image, filters)
    np.testing.assert_allclose(made, exact, rtol=1e-4)
    best, end = float("inf"), perf_counter() + SECONDS
    while perf_counter() < end:
        start = perf_counter()
        kernel(image, filters, made)
        best = min(best, perf_counter() - start)
    gflops = 2 * H * H * F * C * 9 / best / 1e9
    print(f"{step:<34} {gflops:7.1f} GFLOP/s {gflops / peak:6.1%} of the peak")
    return gflops


plain = show("as it is written", te.create_schedule(Y))

# %% [markdown]
# ## Filters in vectors
#
# The weights of neighbouring filters lie side by side: a pixel and a channel are read once, and multiplied with a
# vector of them.

# %%
s = te.create_schedule(Y)
s[Y].reorder("h", "w", "r", "q", "c", "f")
s[Y].vectorize("f")
show("filters in vectors", s)

# %% [markdown]
# ## A tile of pixels in registers
#
# Sums of some neighbouring pixels times a vector or two of filters stay in registers while all channels pass: each
# vector of weights is used once for every pixel of the tile. `cache_write` and `compute_at` give the sums a place
# inside of the tile, and `unroll` makes it registers.

# %%
LANES = parse(None).vector_bytes // 4


def tiled(pixels: int, vectors: int) -> Any:
    """The schedule with sums of so many pixels and vectors of filters in registers."""
    s = te.create_schedule(Y)
    sums = s.cache_write(Y, "local")
    h, w, f = s[Y].op.axis
    f_o, f_i = s[Y].split(f, factor=vectors * LANES)
    w_o, w_i = s[Y].split(w, factor=pixels)
    s[Y].reorder(f_o, h, w_o, w_i, f_i)
    s[Y].unroll(w_i)
    s[Y].vectorize(f_i)
    s[sums].compute_at(s[Y], w_o)
    h, w, f = s[sums].op.axis
    s[sums].reorder(h, *s[sums].op.reduce_axis, w, f)
    s[sums].unroll(w)
    s[sums].vectorize(f)
    return s


for pixels, vectors in ((7, 1), (7, 2), (14, 1)):
    tile = show(f"{pixels} pixels, {vectors} vectors in registers", tiled(pixels, vectors))
assert tile > 4 * plain

# %% [markdown]
# ## What would still help?
#
# `warnings` has nothing to say of these loops on one thread. On all of them, rows are independent.

# %%
print("warnings:", list(tensorlang.build(tiled(14, 1), [X, W, Y], target="llvm -num-cores=1").warnings()))

# %% [markdown]
# ## The library
#
# `topi.schedule` finds the windows in the definition, and chooses tiles, blocks and layouts for the machine, in any
# sizes: what is written in `te` need not say "convolution".

# %%
show("topi.schedule", topi.schedule(Y, "llvm -num-cores=1"))
