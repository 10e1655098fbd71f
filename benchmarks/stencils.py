"""Stencils on grids beyond the last-level cache: without tiles in time, with them, and numba, in one run."""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

import tensorlang
from benchmarks.figure import Figure
from benchmarks.peers import Peer
from examples.polybench.stencils import heat_3d, jacobi_2d, seidel_2d
from tensorlang import te
from tensorlang.runtime.executable import Executable
from tensorlang.schedule import Schedule, Stage
from tensorlang.te import Axis

TIMES_UNTILED = 2.0
TIMES_NUMBA = 1.0
ROUNDS = 7
THREADS = 2
INTERPRETER = os.environ.get("NUMBA_PYTHON", sys.executable)
"""A Python that has numba; without one, its figures are left out."""

LINE = 16
"""Elements of float32 in a cache line."""

Array = npt.NDArray[np.float64]
Plan = Callable[[Stage], object]


@dataclass(frozen=True, slots=True)
class Stencil:
    """A script of the suite, its size, its updates per step and point, and how it is scheduled in either way."""

    name: str
    script: Callable[..., Any]
    shape: tuple[int, ...]
    steps: int
    arrays: int
    untiled: Plan
    tiled: Plan
    numba: str

    @property
    def updates(self) -> int:
        """Updates of points per call."""
        return self.arrays * self.steps * int(np.prod(self.shape))

    def schedule(self, plan: Plan, edge: int = 0) -> tuple[Schedule, list[te.Tensor]]:
        """The scheduled program and its arguments; `edge` is another size."""
        shape = (edge,) * len(self.shape) if edge else self.shape
        given = [te.placeholder(shape, "float64", name=name) for name in "AB"[: self.arrays]]
        made = self.script(self.steps, shape[0], *given)
        s = te.create_schedule((made[0] if isinstance(made, tuple) else made).op)
        plan(s[s.outputs[0]])
        return s, given

    def fresh(self, edge: int = 0) -> list[Array]:
        """The same random arrays each time."""
        shape = (edge,) * len(self.shape) if edge else self.shape
        start = np.random.default_rng(0).random(shape)
        return [start.copy() for _ in range(self.arrays)]


def rows(stage: Stage) -> None:
    """Each half of a step: rows in parallel, the innermost axis in vectors."""
    for axis in ("i", "i_1"):
        stage.parallel(axis)
    inner = [a for a in map(str, stage.leaf_iter_vars) if a[0] == str(stage.leaf_iter_vars[-1])[0]]
    for axis in inner:
        stage.vectorize(axis)


def jacobi_tiles(stage: Stage, steps: int = 8, tile: tuple[int, int] = (16, 512)) -> None:
    """Both halves in one band, shifted by a point; tiles in time, a row of each half after the other."""
    i = stage.fuse_with("i", stage.shift("i_1", 1))
    j = stage.fuse_with("j", stage.shift("j_1", 1))
    tiles = stage.time_tile("t", [i, j], steps, list(tile))
    stage.wavefront(*tiles[:2])
    for axis in stage.fission(j):
        stage.vectorize(axis)


def jacobi_rows(stage: Stage, steps: int, rows: int, threads: int) -> None:
    """On copies whose rows begin at cache lines: tiles of some double steps and whole rows, the halves a row apart."""
    packed = stage.cache_inplace(lambda i, j: (i, j))
    for k in range(2):
        copy = stage.schedule[f"{packed.name}.from{k}"]
        copy.storage_align(copy.op.axis[0], LINE, 0)
        row, column = map(str, copy.leaf_iter_vars)
        loops = ((copy, row, column), (stage, f"ax{k}_0", f"ax{k}_1"))
        for moved, outer, inner in loops:
            moved.vectorize(inner)
            if threads > 1:
                moved.parallel(outer)
    i = packed.fuse_with("i", packed.shift("i_1", 1))
    j = packed.fuse_with("j", packed.shift("j_1", 1))
    tiles = packed.time_tile("t", [i], steps, [rows])
    if threads > 1:
        packed.wavefront(*tiles[:2])
    for axis in packed.fission(j):
        packed.vectorize(axis)


def heat_tiles(stage: Stage) -> None:
    """As jacobi, over all steps; the rows along k stay whole, and apart."""
    i = stage.fuse_with("i", stage.shift("i_1", 1))
    j = stage.fuse_with("j", stage.shift("j_1", 1))
    tiles = stage.time_tile("t", [i, j], 16, [24, 24])
    stage.wavefront(*tiles[1:3])
    stage.vectorize("k")
    stage.vectorize("k_1")


def skewed(stage: Stage) -> tuple[Stage, Axis, Axis]:
    """The sweep in a layout whose rows are its wavefronts: no point of a row needs another, so rows run as vectors."""
    packed = stage.cache_inplace(lambda i, j: (2 * i + j, i))
    for copy, axes in ((stage.schedule[f"{packed.name}.from"], ("p0", "p1")), (stage, ("ax0", "ax1"))):
        outer, *_, row = copy.tile(*axes, 64, 64)
        copy.parallel(outer)
        copy.vectorize(row)
    front, row = packed.affine(["i", "j"], [[2, 1], [1, 0]])
    return packed, front, row


def seidel_fronts(stage: Stage) -> None:
    """Tiles of one step in wavefronts, their rows in vectors."""
    packed, front, row = skewed(stage)
    packed.wavefront(*packed.tile_by([front, row], [[1, 0], [0, 1]], [32, 128]))
    packed.vectorize(row)


def seidel_tiles(stage: Stage) -> None:
    """The same in tiles in time. They lean by a cache line along the rows, so that vectors stay aligned."""
    packed, front, row = skewed(stage)
    rows = [[1, 0, 0], [3, 1, 0], [8, 0, 1]]
    t_tile, front_tile, row_tile = packed.tile_by(["t", front, row], rows, [32, 128, 256])
    packed.reorder(t_tile, row_tile, front_tile)
    packed.wavefront(row_tile, front_tile)
    packed.vectorize(row)


_JACOBI = """
def half(a, b):
    for i in numba.prange(1, a.shape[0] - 1):
        for j in range(1, a.shape[1] - 1):
            b[i, j] = 0.2 * (a[i, j] + a[i, j - 1] + a[i, 1 + j] + a[1 + i, j] + a[i - 1, j])
"""
_HEAT = """
def half(a, b):
    for i in numba.prange(1, a.shape[0] - 1):
        for j in range(1, a.shape[1] - 1):
            for k in range(1, a.shape[2] - 1):
                b[i, j, k] = (0.125 * (a[i + 1, j, k] - 2.0 * a[i, j, k] + a[i - 1, j, k])
                            + 0.125 * (a[i, j + 1, k] - 2.0 * a[i, j, k] + a[i, j - 1, k])
                            + 0.125 * (a[i, j, k + 1] - 2.0 * a[i, j, k] + a[i, j, k - 1]) + a[i, j, k])
"""
_SEIDEL = """
def half(a, b):
    for i in range(1, a.shape[0] - 1):
        for j in range(1, a.shape[1] - 1):
            a[i, j] = (a[i - 1, j - 1] + a[i - 1, j] + a[i - 1, j + 1] + a[i, j - 1] + a[i, j] + a[i, j + 1]
                       + a[i + 1, j - 1] + a[i + 1, j] + a[i + 1, j + 1]) / 9.0
"""
_PROGRAM = """
import sys, time
import numba, numpy as np
{half}
half = numba.njit(parallel=sys.argv[1] == "2", fastmath=sys.argv[2] == "True")(half)
numba.set_num_threads({threads})
steps, shape = int(sys.argv[1]) * int(sys.argv[3]), tuple(map(int, sys.argv[4:]))
start = np.random.default_rng(0).random(shape)
a, b = start.copy(), start.copy()
def call():
    x, y = a, b
    for _ in range(steps):
        half(x, y)
        x, y = (y, x) if sys.argv[1] == "2" else (x, y)
for line in sys.stdin:
    if line == "0\\n":
        call()
        print(a.sum(), flush=True)
        continue
    seconds = []
    for _ in range(int(line)):
        t = time.perf_counter()
        call()
        seconds.append(time.perf_counter() - t)
    print(min(seconds), flush=True)
"""

STENCILS = (
    Stencil("jacobi-2d", jacobi_2d, (4000, 4000), 16, 2, rows, jacobi_tiles, _JACOBI),
    Stencil("heat-3d", heat_3d, (320, 320, 320), 16, 2, rows, heat_tiles, _HEAT),
    Stencil("seidel-2d", seidel_2d, (4000, 4000), 32, 1, seidel_fronts, seidel_tiles, _SEIDEL),
)


def measure() -> list[Figure]:
    """Updates per second of every stencil, and the ratios that are wanted."""
    return [figure for stencil in STENCILS for figure in _figures(stencil)]


def _figures(stencil: Stencil) -> Iterator[Figure]:
    what = f"{stencil.name} {'×'.join(map(str, stencil.shape))}, {THREADS} threads"
    seconds = {name: statistics.median(times) for name, times in _interleaved(stencil).items()}
    for name, value in seconds.items():
        yield Figure(f"{what}: {name}", stencil.updates / value / 1e9, "G/s")
    own = seconds["tiles in time"]
    yield Figure(f"{what}: times untiled", seconds["untiled"] / own, "", TIMES_UNTILED, at_most=False)
    numba = [value for name, value in seconds.items() if name.startswith("numba")]
    if numba:
        yield Figure(f"{what}: times the best numba", min(numba) / own, "", TIMES_NUMBA, at_most=False)


def _interleaved(stencil: Stencil) -> dict[str, list[float]]:
    """Seconds of every competitor, in turn, after their results are checked."""
    kernels = {"untiled": _checked(stencil, stencil.untiled), "tiles in time": _checked(stencil, stencil.tiled)}
    arrays = stencil.fresh()
    kernels["untiled"](*arrays)
    wanted = float(arrays[0].sum())
    again = stencil.fresh()
    kernels["tiles in time"](*again)
    np.testing.assert_allclose(again[0], arrays[0], rtol=1e-12)

    def own(kernel: Executable) -> float:
        begin = time.perf_counter()
        kernel(*arrays)
        return time.perf_counter() - begin

    with ExitStack() as stack:
        runs: dict[str, Callable[[], float]] = {name: partial(own, kernel) for name, kernel in kernels.items()}
        for peer in _numba(stencil, stack):
            np.testing.assert_allclose(peer.run(0), wanted, rtol=1e-9)
            runs[peer.name] = partial(peer.run, 1)
        found: dict[str, list[float]] = {name: [] for name in runs}
        for _ in range(ROUNDS + 1):
            for name, run in runs.items():
                found[name].append(run())
        return {name: values[1:] for name, values in found.items()}


def _checked(stencil: Stencil, plan: Plan) -> Executable:
    """The kernel of a plan, after that of a small grid has computed what plain Python does."""
    edge = 23
    small, expected = stencil.fresh(edge), stencil.fresh(edge)
    stencil.script(stencil.steps, edge, *expected)
    s, given = stencil.schedule(plan, edge)
    tensorlang.build(s, given)(*small)
    for got, wanted in zip(small, expected, strict=True):
        np.testing.assert_allclose(got, wanted, rtol=1e-12)
    s, given = stencil.schedule(plan)
    kernel: Executable = tensorlang.build(s, given)
    return kernel


def _numba(stencil: Stencil, stack: ExitStack) -> list[Peer]:
    """numba with and without fast math, if there is a numba."""
    if subprocess.run([INTERPRETER, "-c", "import numba"], capture_output=True, check=False).returncode:
        return []
    program = _PROGRAM.format(half=stencil.numba, threads=THREADS)
    numbers = [str(n) for n in (stencil.steps, *stencil.shape)]
    peers = []
    for fast in (False, True):
        command = [INTERPRETER, "-c", program, str(stencil.arrays), str(fast), *numbers]
        peers.append(stack.enter_context(Peer(f"numba{', fastmath' * fast}", command, os.environ)))
    return peers
