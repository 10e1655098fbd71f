# %% [markdown]
# # Tiling time
#
# Seidel's stencil replaces every point of a grid by the mean of its neighbourhood, in place: half of the neighbours
# are new already. No loop of it is parallel, and every step walks through the whole grid, which does not fit into the
# cache. Both can be changed by leaning the loops. By how much is a question about dependences, and answered for you.

# %%
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

import tensorlang
from tensorlang import te
from tensorlang.config import override

Array = npt.NDArray[Any]

# %% [markdown]
# ## The program
#
# A script is a Python function of loops. Called with tensors it declares an operation; called with arrays it runs as
# it stands, and is the reference.


# %%
@te.hybrid.script
def seidel(steps: Any, n: Any, A: Any) -> Any:
    for t in range(steps):  # noqa: B007
        for i in range(1, n - 1):
            for j in range(1, n - 1):
                A[i, j] = (
                    A[i - 1, j - 1] + A[i - 1, j] + A[i - 1, j + 1]
                    + A[i, j - 1] + A[i, j] + A[i, j + 1]
                    + A[i + 1, j - 1] + A[i + 1, j] + A[i + 1, j + 1]
                ) / 9.0  # fmt: skip
    return A


n, steps = te.var("n"), te.var("steps")
A = te.placeholder((n, n), "float64", name="A")
op = seidel(steps, n, A).op

# %% [markdown]
# ## What stands in the way
#
# Every loop carries a dependence, and two of their distances point backwards in some axis: `(1, -1, ...)` and
# `(0, 1, -1)`.

# %%
s = te.create_schedule(op)
print(s.explain())
try:
    s["seidel"].parallel("j")
except tensorlang.ScheduleError as error:
    print(error)
else:
    raise AssertionError("a race was not noticed")

# %% [markdown]
# ## Tiles that lean
#
# `time_tile` looks for the smallest skews that let all dependences point forward, and cuts tiles along them: a tile
# holds four steps of eight rows and eight columns, and leans to the left as time goes on.

# %%
t_tile, i_tile, j_tile, *_ = s["seidel"].time_tile("t", ["i", "j"], 4, [8, 8])
print(s)

# %% [markdown]
# In one dimension this can be drawn, to a file of the working folder that any browser shows. The numbers are the order
# of the visits, arrows point from a value to those who need it, and the grey line shows how a tile is left for the next
# one: no arrow points against it.


# %%
@te.hybrid.script
def seidel_1d(steps: Any, n: Any, A: Any) -> Any:
    for t in range(steps):  # noqa: B007
        for i in range(1, n - 1):
            A[i] = (A[i - 1] + A[i] + A[i + 1]) / 3.0
    return A


line = te.create_schedule(seidel_1d(steps, n, te.placeholder((n,), "float64", name="A")).op)
line["seidel_1d"].time_tile("t", ["i"], 4, [4])
picture = line.explain(as_="svg", sizes={"steps": 8, "n": 14})
Path("time_tiling.svg").write_text(picture, encoding="utf-8")
print(f"time_tiling.svg: {picture.count('<circle')} points")

# %% [markdown]
# ![Tiles of time, in the order of their visits](../docs/images/time_tiling.svg)
#
# ## Waves of tiles
#
# Tiles on one diagonal need nothing of each other. `wavefront` skews the loops over tiles until one of them is
# parallel; the factors are found, and everything is recorded as plain steps that can be read and edited.

# %%
s["seidel"].wavefront(t_tile, i_tile, j_tile)
print(s)
print(s.explain())

# %% [markdown]
# ## The same bits
#
# The tiled, parallel kernel does every addition of the script with the same operands, in another order of points. So
# its result is not just close.


# %%
def run(schedule: Any, threads: int) -> Array:
    """The grid after ten steps."""
    grid = np.random.default_rng(0).random((70, 70))
    with override(num_threads=threads):
        tensorlang.build(schedule, [steps, A])(10, grid)
    return grid


sequential = run(te.create_schedule(op), 1)
plain = np.random.default_rng(0).random((70, 70))
seidel(10, 70, plain)
assert np.array_equal(run(s, 2), sequential)
assert np.array_equal(sequential, plain)
print("tiled, in waves, on two threads: equal to plain Python, bit for bit\n")

# %% [markdown]
# ## All of it at once
#
# `auto_order` asks isl's scheduler, which minimises the distances of dependences, and turns what it proposes into
# steps: the skews, square tiles, and the wave.

# %%
s = te.create_schedule(op)
print(s.auto_order(parallel=True, tile=16))
assert "parallel" in str(s)
assert np.array_equal(run(s, 2), sequential)
print("auto_order: equal to plain Python, bit for bit")
