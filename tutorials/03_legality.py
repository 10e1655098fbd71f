# %% [markdown]
# # A step that is refused, and the way out
#
# Every step of a schedule is proven when it is applied: isl knows all pairs of instances that touch one element, and
# a step must keep the order of each pair, for all sizes at once. A step that would break one is refused. The error is
# data: why, the smallest pair that goes wrong, the sizes for which it does, and steps that are legal instead. Those
# are not guessed: each was applied and proven before it was printed.
#
# Here six mistakes are made, each is read, and each is repaired.

# %%
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import tensorlang
from tensorlang import te
from tensorlang.config import override
from tensorlang.testing import check_schedule


def refused(step: Callable[..., Any], *arguments: Any, **named: Any) -> tensorlang.ScheduleError:
    """Apply a step that is to be refused, and print why it was."""
    try:
        step(*arguments, **named)
    except tensorlang.ScheduleError as error:
        print(error, end="\n\n")
        return error
    raise AssertionError("an illegal step was accepted")


# %% [markdown]
# ## 1. Threads that meet in one sum
#
# All iterations of `k` update the same element. In other compilers `parallel` on a reduce axis compiles, and adds up
# wrongly from time to time.

# %%
A = te.placeholder((6, 1000), "int32", name="A")
k = te.reduce_axis((0, 1000), "k")
B = te.compute((6,), lambda i: te.sum(A[i, k], axis=k), name="B")

s = te.create_schedule(B.op)
blocks, inside = s[B].split(k, factor=125)
error = refused(s[B].parallel, blocks)
assert error.witness is not None and error.witness.element == "B[0]"

# %% [markdown]
# The witness is the smallest pair of instances that would meet: `distance (0, 125)` is one block. `time` says when each
# of them runs: the place among neighbours and the iteration of each loop around it, by turns and from the outermost in,
# to be compared as words of a dictionary are. Two repairs are printed: another axis, and a sum of partial sums, one per
# block, which threads may share.

# %%
partial_sums = s.rfactor(B, blocks)
s[partial_sums].parallel(partial_sums.op.axis[0])
check_schedule(s, [A, B])
print(s)

# %% [markdown]
# ## 2. A value that one of its readers would miss
#
# `P` is read by `Q` and by `R`. Computed tile by tile inside `Q`, it would not be there any more for `R`.

# %%
X = te.placeholder((66,), "int32", name="X")
P = te.compute((66,), lambda i: X[i] * 2, name="P")
Q = te.compute((64,), lambda i: P[i] + P[i + 1] + P[i + 2], name="Q")
R = te.compute((64,), lambda i: P[i] * Q[i], name="R")

s = te.create_schedule(R.op)
outer, _ = s[Q].split(Q.op.axis[0], factor=16)
error = refused(s[P].compute_at, s[Q], outer)

# %% [markdown]
# So the tiles are those of `R`: computed inside of them, `Q` and `P` are there for both readers. Each tile computes its
# own 18 elements of `P`, and `explain` counts what that costs.

# %%
s = te.create_schedule(R.op)
outer, _ = s[R].split(R.op.axis[0], factor=16)
s[Q].compute_at(s[R], outer)
s[P].compute_at(s[R], outer)
check_schedule(s, [X, R])
print(s.explain())

# %% [markdown]
# ## 3. Tiles of time
#
# A stencil that runs many times over a grid reads and writes all of it in every step. Tiles of several steps would
# keep it in the cache, but rectangular ones are wrong: at its right border a tile needs values of the next tile.


# %%
@te.hybrid.script
def jacobi(steps: Any, n: Any, U: Any) -> Any:
    for t in range(steps):
        for i in range(1, n - 1):
            for j in range(1, n - 1):
                U[(t + 1) % 2, i, j] = 0.2 * (
                    U[t % 2, i, j] + U[t % 2, i, j - 1] + U[t % 2, i, j + 1] + U[t % 2, i - 1, j] + U[t % 2, i + 1, j]
                )
    return U


n, steps = te.var("n"), te.var("steps")
U = te.placeholder((2, n, n), "float64", name="U")
outputs = [jacobi(steps, n, U).op]
s = te.create_schedule(outputs)
t_o, t_i = s["jacobi"].split("t", factor=4)
i_o, i_i = s["jacobi"].split("i", factor=8)
j_o, j_i = s["jacobi"].split("j", factor=8)
error = refused(s["jacobi"].reorder, t_o, i_o, j_o, t_i, i_i, j_i)
assert error.witness is not None and error.witness.distance == (1, 0, -1)
assert error.witness.sizes_text == "fails exactly when steps >= 2 and n >= 10"

# %% [markdown]
# The pair is read like this: step 1 at column 7 needs what step 0 made of column 8, which lies in the next tile. The
# repair leans the tiles by one row and one column per step. Loops can only be skewed before they are split, so it is
# the schedule again from its start. It is a line of Python, and can be run as it was printed. The reference is the
# script itself: it is plain Python as well.

# %%
(repair,) = error.legal
names: dict[str, Any] = {"te": te, "outputs": outputs}
exec(repair, names)
s = names["s"]
print(s)

kernel = tensorlang.build(s, [steps, U])
rng = np.random.default_rng(0)
start = rng.random((2, 30, 30))
tiled, plain = start.copy(), start.copy()
kernel(9, tiled)
jacobi(9, 30, plain)
assert np.array_equal(tiled, plain)
print("tiled in time: equal to plain Python, bit for bit\n")

# %% [markdown]
# ## 4. What may run how?
#
# `s.explain()` shows every dependence with its distances, and says of every loop whether it is parallel, may change
# places with the loop around it, or must stay sequential and because of what.

# %%
print(s.explain())

# %% [markdown]
# ## 5. Sums of floats
#
# Floating-point sums depend on their order. By default a reduction may be reordered, by your steps and never by the
# compiler. With `strict=True` not even that: every schedule gives the same bits.

# %%
F = te.placeholder((6, 1000), name="F")
f = te.reduce_axis((0, 1000), "f")
G = te.compute((6,), lambda i: te.sum(F[i, f], axis=f), name="G")

s = te.create_schedule(G.op, strict=True)
refused(s[G].reverse, f)
s[G].split(f, factor=125)
s[G].parallel(G.op.axis[0])
print(s)

# %% [markdown]
# ## 6. Indices that only you know
#
# Where `where[i]` points is known when the kernel runs. The proof takes it for any element, and says so. If you know
# that no two are equal, say that: it is a step of the schedule, and with `TENSORLANG_CHECK=1` every call tests it.


# %%
@te.hybrid.script
def scatter(values: Any, where: Any) -> Any:
    out = te.output_tensor((8,), "int32")
    for i in range(8):
        out[where[i]] = values[i]
    return out


values, where = te.placeholder((8,), "int32", name="values"), te.placeholder((8,), "int32", name="where")
out = scatter(values, where)
s = te.create_schedule(out.op)
error = refused(s[out].parallel, "i")
exec(error.legal[0], {"s": s})

kernel = tensorlang.build(s, [values, where, out])
numbers, places, result = np.arange(8, dtype="int32"), np.arange(8, dtype="int32")[::-1].copy(), np.zeros(8, "int32")
with override(check=True):
    kernel(numbers, places, result)
    assert result.tolist() == [7, 6, 5, 4, 3, 2, 1, 0]
    places[3] = places[5]
    try:
        kernel(numbers, places, result)
    except tensorlang.errors.ArgumentError as error_of_call:
        print(error_of_call, end="\n\n")
    else:
        raise AssertionError("a false fact was not noticed")

# %% [markdown]
# ## From the command line
#
# `tensorlang check FILE.py:function` proves what a function returns, prints the explanation or the refusal, and ends
# with 1 for an illegal schedule: a line for your tests.

# %%
file = Path(__file__).parents[1] / "examples" / "time_tiling.py"
for function in ("without_skew", "with_skew"):
    command = [sys.executable, "-m", "tensorlang", "check", f"{file}:{function}"]
    done = subprocess.run(command, check=False, capture_output=True, encoding="utf-8")
    print(f"tensorlang check {file.name}:{function} ends with {done.returncode}")
    print(done.stdout)

# %% [markdown]
# Next: `04_time_tiling.py` lets the skew be found.
