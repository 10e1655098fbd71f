# %% [markdown]
# # Weights of a few bits: a format of your own
#
# A language model that writes one token multiplies each of its weights once: what counts is how many bytes they take.
# This page invents a format of 3 bits with two levels of scales, 3.19 bits a weight, and multiplies by it without a
# schedule: weights stay as narrow as they are until they are in registers, sums are made of bytes by the dot
# instructions of the CPU. The formats that others use come with the library (`topi.BLOCK_FORMATS`, docs/lowbit.md).
#
# Run it as a script, or cell by cell in an editor that knows `# %%`.

# %%
import time
from typing import Any

import numpy as np

import tensorlang
from tensorlang import te, topi

N, K = 4096, 4096
TARGET = "llvm -num-cores=1"
rng = np.random.default_rng(0)

# %% [markdown]
# ## 1. The format
#
# A block of 32 weights of a row has a scale of 4 bits, under a float16 for 256 of them. A weight is
# `large * small * (code - 4)`. This is how NumPy finds the numbers.

# %%
weights = rng.standard_normal((N, K)).astype(np.float32)
largest = abs(weights).reshape(N, K // 32, 32).max(-1) / 4
large = (largest.reshape(N, K // 256, 8).max(-1) / 15).astype(np.float16)
small = np.clip(np.ceil(largest / np.repeat(large, 8, 1).astype(np.float32)), 1, 15).astype(np.uint8)
scales = np.repeat(large, 8, 1).astype(np.float32) * small
codes = np.clip(np.rint(weights.reshape(N, K // 32, 32) / scales[..., None]) + 4, 0, 7).astype(np.uint8)

# %% [markdown]
# ## 2. The layout
#
# Lanes of a register are rows, so 16 rows make a panel, and a word of 32 bits holds four neighbouring terms of a row.
# Two bits of four words share a byte, the third bits of eight words another one. Two scales share a byte, too.

# %%
panels = N // 16
words = np.ascontiguousarray(codes.reshape(panels, 16, K // 32, 8, 4).transpose(0, 2, 3, 1, 4))
pairs = (words & 3).reshape(panels, K // 32, 4, 2, 16, 4) << np.arange(0, 8, 2, dtype=np.uint8)[:, None, None, None]
thirds = (words >> 2) << np.arange(8, dtype=np.uint8)[:, None, None]
halves = np.ascontiguousarray(small.reshape(panels, 16, K // 64, 2).transpose(0, 2, 3, 1))
arrays = [
    np.bitwise_or.reduce(pairs, axis=2),
    np.bitwise_or.reduce(thirds, axis=2),
    halves[:, :, 0] | halves[:, :, 1] << 4,
    np.ascontiguousarray(large.reshape(panels, 16, K // 256).transpose(0, 2, 1)),
]
print(f"{8 * sum(array.nbytes for array in arrays) / N / K:.2f} bits a weight")

# %% [markdown]
# ## 3. The program
#
# Three stages: codes as bytes, sums of a block in whole numbers, sums of blocks under scales. Vectors are quantized by
# the library, to bytes and a scale for each block; `sums` are those of their bytes, to take the 4 out again.

# %%
low, high, fine, coarse = (
    te.placeholder(a.shape, a.dtype, n) for a, n in zip(arrays, ("low", "high", "fine", "coarse"))
)
x = te.placeholder((1, K), name="x")
data = topi.quantize_blocks(x, 32)
w, t, b = te.reduce_axis((0, 8), "w"), te.reduce_axis((0, 4), "t"), te.reduce_axis((0, K // 32), "b")


def code(q: Any, v: Any, lane: Any, byte: Any) -> Any:
    two = low[q, v // 8, v % 2, lane, byte] >> (v % 8 // 2 * 2).astype("uint8") & 3
    return two | (high[q, v // 8, lane, byte] >> (v % 8).astype("uint8") & 1) << 2


def dot(i: Any, q: Any, c: Any, lane: Any) -> Any:
    term = data.codes[i, c, w, t].astype("int32") * unpacked[q, c * 8 + w, lane, t].astype("int32")
    return te.sum(term, axis=[w, t])


def under_scales(i: Any, q: Any, lane: Any) -> Any:
    scale = (fine[q, b // 2, lane] >> (b % 2 * 4).astype("uint8") & 15).astype("float32")
    scale = scale * coarse[q, b // 8, lane].astype("float32") * data.scales[i, b]
    return te.sum((dots[i, q, b, lane] - 4 * data.sums[i, b]).astype("float32") * scale, axis=b)


unpacked = te.compute((panels, K // 4, 16, 4), code, name="unpacked")
dots = te.compute((1, panels, K // 32, 16), dot, name="dots")
y = te.compute((1, panels, 16), under_scales, name="y")

# %% [markdown]
# ## 4. No schedule
#
# `topi.schedule` finds the three stages by what they access. The tuner starts from the same schedule, with its sizes
# open: `tensorlang tune file.py:function`.

# %%
s = topi.schedule(y, TARGET, tuned=False)
print("form of y:", next(note.form for note in s.forms if note.stage == "y"))
product = tensorlang.build(s, [x, low, high, fine, coarse, y], TARGET)
vector, out = rng.standard_normal((1, K)).astype(np.float32), np.empty((1, panels, 16), np.float32)
product(vector, *arrays, out)

exact = vector @ (scales[..., None] * (codes.astype(np.float32) - 4)).reshape(N, K).T
print("within a hundredth of float32:", np.abs(out.reshape(1, N) - exact).max() < 0.01 * np.abs(exact).max())

# %% [markdown]
# ## 5. How fast?
#
# In turn with a read of as many bytes. These weights fit into a cache; `python -m benchmarks lowbit` takes matrices
# that do not, and other libraries beside them.

# %%
numbers = np.concatenate([np.frombuffer(array.tobytes(), np.uint32) for array in arrays])
given, k = te.placeholder(numbers.shape, "uint32", "given"), te.reduce_axis((0, numbers.size), "k")
total = te.compute((1,), lambda i: te.sum(given[k], axis=k), name="total")
read = tensorlang.build(topi.schedule(total, TARGET, tuned=False), [given, total], TARGET)
found = np.empty(1, np.uint32)
times: tuple[list[float], list[float]] = ([], [])
for _ in range(50):
    marks = [time.perf_counter()]
    product(vector, *arrays, out)
    marks.append(time.perf_counter())
    read(numbers, found)
    marks.append(time.perf_counter())
    for samples, seconds in zip(times, np.diff(marks), strict=True):
        samples.append(float(seconds))
own, other = (float(np.median(samples)) for samples in times)
print(f"{numbers.nbytes / own / 1e9:.1f} GB/s of weights; a read: {numbers.nbytes / other / 1e9:.1f} GB/s")
