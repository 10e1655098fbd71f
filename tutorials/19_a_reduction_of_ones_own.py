# %% [markdown]
# # Scheduling a reduction of one's own
#
# The logarithm of a sum of exponentials, `log(sum(exp(x)))`, overflows where it is computed as it is written. The usual
# remedy reads the row twice: once for its maximum, once for the sum. Here one pass does both, by a reduction of one's
# own. It is declared, scheduled step by step, and compared with what `topi.schedule` does by itself. Each step is
# proven by tensorlang, and its result is compared with NumPy.

# %%
from typing import Any

import numpy as np

import tensorlang
from tensorlang import te, topi

N, K = 64, 1 << 12
ONE = "llvm -num-cores=1"
A = te.placeholder((N, K), name="A")
a = (30 * np.random.default_rng(0).standard_normal((N, K))).astype(np.float32)
highest = a.max(axis=1, keepdims=True).astype(np.float64)
wanted = highest[:, 0] + np.log(np.exp(a - highest).sum(axis=1))

# %% [markdown]
# ## The reduction
#
# A pair stands for a set of numbers: their maximum, and the sum of `exp(x - maximum)`. Two pairs become one: the sum
# that has the smaller maximum is scaled down. `te.comm_reducer` takes this function, and the pair of no numbers. One
# number x is the pair (x, 1).


# %%
def merge(x: Any, y: Any) -> tuple[Any, Any]:
    top = te.maximum(x[0], y[0])
    return top, x[1] * te.exp(x[0] - top) + y[1] * te.exp(y[0] - top)


merged = te.comm_reducer(merge, lambda t, u: (te.min_value(t), te.const(0.0, u)), name="merged")
k = te.reduce_axis((0, K), "k")
top, total = te.compute((N,), lambda i: merged((A[i, k], te.const(1.0, "float32")), axis=k), name="pair")
L = te.compute((N,), lambda i: top[i] + te.log(total[i]), name="L")

times: dict[str, float] = {}


def show(step: str, s: Any, target: str = ONE, out: te.Tensor = L) -> Any:
    """Build a schedule, compare it with NumPy, and print how many times as fast as plain loops it is."""
    f = tensorlang.build(s, [A, out], target=target)
    made = f(a)
    np.testing.assert_allclose(made, wanted, rtol=1e-5)
    times[step] = min(f.time_evaluator(number=1, repeat=20)(a, made).results)
    print(f"{step:<36} {times['plain loops'] / times[step]:6.1f} times as fast; equal to NumPy")
    return f


# %% [markdown]
# ## Plain loops
#
# `explain` says what is known before a run: `k` carries the reduction, so its iterations are in line. `profile` says
# what that costs: one element at a time, each waiting for the pair before it.

# %%
s = te.create_schedule(L)
print(s.explain(target=ONE))
plain = show("plain loops", s)
print(plain.profile(a))

# %% [markdown]
# ## What is not possible
#
# Iterations of `k` update one pair. To run them at once is refused, with the smallest case: two iterations that would
# write the same element. Below it stands what would be legal.

# %%
try:
    s["pair"].vectorize("k")
except tensorlang.ScheduleError as error:
    print(error)

# %% [markdown]
# ## Vectors along another axis
#
# Rows are independent. With a vector of rows inside, each row still adds its numbers in the order of the program. So
# this is legal in a strict schedule, too, in which no sum of floats may change its order. But neighbours in such a
# vector lie a row apart in memory, and a warning says so.

# %%
LANES = tensorlang.target.parse(ONE).vector_bytes // 4
s = te.create_schedule(L, strict=True)
i_o, i_i = s["pair"].split("i", factor=LANES)
s["pair"].reorder(i_o, "k", i_i)
s["pair"].vectorize(i_i)
rows = show("a vector of rows", s)
for warning in rows.warnings():
    print(warning)

# %% [markdown]
# ## Partial results
#
# `rfactor` takes a reduction apart: `pair.rf` has a pair for each lane of a vector, and `pair` merges these. Now a
# vector reads what lies side by side. It is what the refusal above proposed, for a part of `k`.


# %%
def in_parts(s: Any) -> Any:
    """The schedule with a partial result for each lane."""
    _, k_i = s["pair"].split("k", factor=LANES)
    s.rfactor("pair", k_i, factor_axis=1)
    s["pair.rf"].reorder("i", "k_o", "k_i")
    s["pair.rf"].vectorize("k_i")
    return s


parts = show("a partial result for each lane", in_parts(te.create_schedule(L)))
print("warnings that are left:", len(parts.warnings()))
print("more than twice as fast as plain loops:", 2 * times["a partial result for each lane"] < times["plain loops"])

# %% [markdown]
# ## Why that is legal
#
# The order of numbers changes: with 16 lanes, lane 0 merges the numbers 0, 16, 32 and so on, and the lanes are merged
# last. That gives the same pair only because merging is associative and commutative. With `comm_reducer` you say that
# it is, and tensorlang takes your word for it: it proves what order does, not algebra. So try it on numbers.

# %%


def merge_numbers(x: Any, y: Any) -> Any:
    """The same function on NumPy's numbers."""
    top = np.maximum(x[0], y[0])
    return np.array([top, x[1] * np.exp(x[0] - top) + y[1] * np.exp(y[0] - top)])


rng = np.random.default_rng(1)
x, y, z = rng.normal(size=(3, 1000)), rng.normal(size=(3, 1000)), rng.normal(size=(3, 1000))
x[1:], y[1:], z[1:] = np.exp(x[1:]), np.exp(y[1:]), np.exp(z[1:])
grouped = merge_numbers(merge_numbers(x, y), z), merge_numbers(x, merge_numbers(y, z))
print("associative, up to rounding:", np.allclose(*grouped, rtol=1e-12))
print("commutative:", np.array_equal(merge_numbers(x, y), merge_numbers(y, x)))
print("the same bits in any grouping:", np.array_equal(*grouped))

# %% [markdown]
# It is associative but for rounding, as every sum of floats is. Where the last bit matters, ask for a strict schedule:
# it refuses.

# %%
try:
    in_parts(te.create_schedule(L, strict=True))
except tensorlang.ScheduleError as error:
    print(error)

# %% [markdown]
# ## Two passes, and `reduce_tree`
#
# The usual way has two plain reductions, a maximum and a sum. For those there is a shorter word: the pragma
# `reduce_tree` lets the code combine iterations in any order, as vectors, several side by side. There are no new
# stages. A strict schedule refuses it for sums, for the same reason. As long as a row stays in a cache, two passes may
# be the faster way: a merge computes two exponentials for each number, the second pass one. A schedule does not change
# that; only the definition does.

# %%
k1, k2 = te.reduce_axis((0, K), "k"), te.reduce_axis((0, K), "k")
M = te.compute((N,), lambda i: te.max(A[i, k1], axis=k1), name="M")
S = te.compute((N,), lambda i: te.sum(te.exp(A[i, k2] - M[i]), axis=k2), name="S")
usual = te.compute((N,), lambda i: M[i] + te.log(S[i]), name="usual")
s = te.create_schedule(usual)
s["M"].pragma("k", "reduce_tree")
s["S"].pragma("k", "reduce_tree")
show("two passes, each a reduce_tree", s, out=usual)

# %% [markdown]
# ## Threads
#
# Rows are independent of each other: `parallel` over `i` needs no partial results. Those of a row are made where they
# are merged, so that one loop has threads, and a row's partial results stay in its thread's cache.

# %%
s = in_parts(te.create_schedule(L))
s["pair.rf"].compute_at(s["pair"], "i")
s["pair"].parallel("i")
show("lanes, and rows by threads", s, "llvm")

# %% [markdown]
# A single long row has no other rows beside it. Then its parts are what threads share: `rfactor` of the outer part.
# Each part is a plain loop here; lanes inside of it are a second `rfactor`.

# %%
s = te.create_schedule(L)
k_o, _ = s["pair"].split("k", nparts=4)
s.rfactor("pair", k_o, factor_axis=0)
s["pair.rf"].parallel("k_o")
show("a part of each row for each thread", s, "llvm")

# %% [markdown]
# ## The library
#
# `topi.schedule` knows nothing of this reduction but that it is one. It takes the steps of above: lanes, several
# vectors of partial results, and the merge of those in vectors, too.

# %%
s = topi.schedule(L, ONE)
print(s)
library = show("topi.schedule", s)
show("topi.schedule, all threads", topi.schedule(L, "llvm"), "llvm")
print("warnings:", [str(warning) for warning in library.warnings()])
print("the library beats plain loops:", times["topi.schedule"] < times["plain loops"])
