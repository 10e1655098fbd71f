# %% [markdown]
# # Why is it slow?
#
# Three ways to ask: `explain` says what each loop may do and what it touches, and warns of what its loops would suffer
# from, and `profile` where the time goes, and what binds it. Here a reduction of one's own, which no library has, is
# read by all three, and mended step by step. Each step that is printed was proven before.

# %%
from typing import Any

import numpy as np

import tensorlang
from tensorlang import te, topi

N, K = 16, 1 << 14
A = te.placeholder((N, K), name="A")
B = te.placeholder((N, K), name="B")
a, b = np.random.default_rng(0).random((2, N, K), np.float32)

# %% [markdown]
# ## A reduction of one's own
#
# The largest difference of two rows: `comm_reducer` takes how two values become one, and the value of nothing.
# What makes it a reduction is that the order does not matter; then it may be taken apart.

# %%
largest = te.comm_reducer(te.maximum, lambda dtype: te.const(0.0, dtype), name="largest")
k = te.reduce_axis((0, K), "k")
D = te.compute((N,), lambda i: largest(te.abs(A[i, k] - B[i, k]), axis=k), name="D")
wanted = np.abs(a - b).max(axis=1)


def timed(s: Any) -> tuple[Any, float]:
    """The kernel of a schedule on one thread, compared with NumPy; how many microseconds it takes."""
    f = tensorlang.build(s, [A, B, D], target="llvm -num-cores=1")
    d = f(a, b)
    np.testing.assert_allclose(d, wanted, rtol=1e-6)
    return f, 1e6 * min(f.time_evaluator(number=5, repeat=3)(a, b, d).results)


# %% [markdown]
# ## What its loops tell
#
# `k` carries the reduction, so its iterations are in line: one element at a time, each waiting for the one before. This
# is known without a run.

# %%
s = te.create_schedule(D.op)
print(s.explain(target="llvm -num-cores=1"))
plain, before = timed(s)

# %% [markdown]
# ## What the machine tells
#
# `profile` builds the kernel with clocks. `latency` means that neither arithmetic nor any cache is busy: the kernel
# waits for its own results.

# %%
print(plain.profile(a, b))

# %% [markdown]
# ## The step that it names
#
# `rfactor` makes partial results, one for each lane of a vector, which do not wait for one another. The step is Python:
# it can be typed, or run as it stands.

# %%
step = plain.warnings()[0].step
assert "rfactor" in step
exec(step, {"s": s})
print(s)
vectors, after = timed(s)
print("warnings that are left:", [warning.problem for warning in vectors.warnings()])
print(f"times as fast: more than 2: {before / after > 2}")

# %% [markdown]
# ## What binds it now
#
# More partial results would hide more of the wait: `limit` says how far away the machine's end is, and `bound by`
# which.

# %%
print(vectors.profile(a, b))

# %% [markdown]
# ## What the library does
#
# `topi.schedule` has a form for reductions of any kind: vectors, several of them, and parts for threads.

# %%
library, best = timed(topi.schedule(D, "llvm -num-cores=1"))
print(library.origin.schedule)
print("warnings:", list(library.warnings()))
print(f"at least as fast as ours: {best < 1.25 * after}")
assert best < before
