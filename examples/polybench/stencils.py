"""Stencils: grids that are updated step by step."""

from __future__ import annotations

import numpy as np

from examples.polybench.case import WIDTH, Array, Arrays, Case, Mistake, Pairs, Scalar, Size, Tensor, as_vectors
from tensorlang import te
from tensorlang.errors import IllegalOrder, IllegalParallel
from tensorlang.schedule import Schedule


@te.hybrid.script
def adi(tsteps: Size, n: Size, a: Scalar, b: Scalar, c: Scalar, d: Scalar, e: Scalar, f: Scalar, u: Tensor) -> Tensor:
    """Heat on a square by alternating directions: every step solves tridiagonal systems by columns, then by rows."""
    v = te.allocate((n, n), "float64")
    p = te.allocate((n, n), "float64")
    q = te.allocate((n, n), "float64")
    for t in range(tsteps):
        for i in range(1, n - 1):
            v[0, i] = 1.0
            p[i, 0] = 0.0
            q[i, 0] = v[0, i]
            for j in range(1, n - 1):
                p[i, j] = -c / (a * p[i, j - 1] + b)
                q[i, j] = (-d * u[j, i - 1] + (1 + 2 * d) * u[j, i] - f * u[j, i + 1] - a * q[i, j - 1]) / (
                    a * p[i, j - 1] + b
                )
            v[n - 1, i] = 1.0
            for j in range(n - 2, 0, -1):
                v[j, i] = p[i, j] * v[j + 1, i] + q[i, j]
        for i in range(1, n - 1):
            u[i, 0] = 1.0
            p[i, 0] = 0.0
            q[i, 0] = u[i, 0]
            for j in range(1, n - 1):
                p[i, j] = -f / (d * p[i, j - 1] + e)
                q[i, j] = (-a * v[i - 1, j] + (1 + 2 * a) * v[i, j] - c * v[i + 1, j] - d * q[i, j - 1]) / (
                    d * p[i, j - 1] + e
                )
            u[i, n - 1] = 1.0
            for j in range(n - 2, 0, -1):
                u[i, j] = p[i, j] * u[i, j + 1] + q[i, j]
    return u


@te.hybrid.script
def fdtd_2d(tsteps: Size, nx: Size, ny: Size, ex: Tensor, ey: Tensor, hz: Tensor, pulse: Tensor) -> Tensor:
    """An electromagnetic wave on a grid: electric fields ex, ey and the magnetic field hz in turn."""
    for t in range(tsteps):
        if nx > 0:
            for j in range(ny):
                ey[0, j] = pulse[t]
        for i in range(1, nx):
            for j in range(ny):
                ey[i, j] = ey[i, j] - 0.5 * (hz[i, j] - hz[i - 1, j])
        for i in range(nx):
            for j in range(1, ny):
                ex[i, j] = ex[i, j] - 0.5 * (hz[i, j] - hz[i, j - 1])
        for i in range(nx - 1):
            for j in range(ny - 1):
                hz[i, j] = hz[i, j] - 0.7 * (ex[i, j + 1] - ex[i, j] + ey[i + 1, j] - ey[i, j])
    return ex, ey, hz


@te.hybrid.script
def heat_3d(tsteps: Size, n: Size, A: Tensor, B: Tensor) -> Tensor:
    """Heat in a cube, from A to B and back in every step."""
    for t in range(tsteps):
        for i in range(1, n - 1):
            for j in range(1, n - 1):
                for k in range(1, n - 1):
                    B[i, j, k] = (
                        0.125 * (A[i + 1, j, k] - 2.0 * A[i, j, k] + A[i - 1, j, k])
                        + 0.125 * (A[i, j + 1, k] - 2.0 * A[i, j, k] + A[i, j - 1, k])
                        + 0.125 * (A[i, j, k + 1] - 2.0 * A[i, j, k] + A[i, j, k - 1])
                        + A[i, j, k]
                    )
        for i in range(1, n - 1):
            for j in range(1, n - 1):
                for k in range(1, n - 1):
                    A[i, j, k] = (
                        0.125 * (B[i + 1, j, k] - 2.0 * B[i, j, k] + B[i - 1, j, k])
                        + 0.125 * (B[i, j + 1, k] - 2.0 * B[i, j, k] + B[i, j - 1, k])
                        + 0.125 * (B[i, j, k + 1] - 2.0 * B[i, j, k] + B[i, j, k - 1])
                        + B[i, j, k]
                    )
    return A, B


@te.hybrid.script
def jacobi_1d(tsteps: Size, n: Size, A: Tensor, B: Tensor) -> Tensor:
    """Means of three neighbours on a line, from A to B and back in every step."""
    for t in range(tsteps):
        for i in range(1, n - 1):
            B[i] = 0.33333 * (A[i - 1] + A[i] + A[i + 1])
        for i in range(1, n - 1):
            A[i] = 0.33333 * (B[i - 1] + B[i] + B[i + 1])
    return A, B


@te.hybrid.script
def jacobi_2d(tsteps: Size, n: Size, A: Tensor, B: Tensor) -> Tensor:
    """Means of five neighbours on a square, from A to B and back in every step."""
    for t in range(tsteps):
        for i in range(1, n - 1):
            for j in range(1, n - 1):
                B[i, j] = 0.2 * (A[i, j] + A[i, j - 1] + A[i, j + 1] + A[i + 1, j] + A[i - 1, j])
        for i in range(1, n - 1):
            for j in range(1, n - 1):
                A[i, j] = 0.2 * (B[i, j] + B[i, j - 1] + B[i, j + 1] + B[i + 1, j] + B[i - 1, j])
    return A, B


@te.hybrid.script
def seidel_2d(tsteps: Size, n: Size, A: Tensor) -> Tensor:
    """Means of nine neighbours on a square, in place: half of them are new already."""
    for t in range(tsteps):
        for i in range(1, n - 1):
            for j in range(1, n - 1):
                A[i, j] = (
                    A[i - 1, j - 1]
                    + A[i - 1, j]
                    + A[i - 1, j + 1]
                    + A[i, j - 1]
                    + A[i, j]
                    + A[i, j + 1]
                    + A[i + 1, j - 1]
                    + A[i + 1, j]
                    + A[i + 1, j + 1]
                ) / 9.0
    return A


STEPS = 4


def adi_coefficients(n: int = 20, steps: int = 10) -> dict[str, float]:
    """The tridiagonal systems of both directions, for a grid of n points and so many steps in a unit of time."""
    column, row = 2.0 * n * n / steps, 1.0 * n * n / steps
    return {"a": -column / 2, "b": 1 + column, "c": -column / 2, "d": -row / 2, "e": 1 + row, "f": -row / 2}


def _solve_lines(lower: float, diagonal: float, upper: float, right: Array) -> Array:
    """Solve a tridiagonal system for every column of `right`; the values at both borders are 1."""
    n = len(right)
    system = np.diag([1.0] + [diagonal] * (n - 2) + [1.0])
    inside = np.arange(1, n - 1)
    system[inside, inside - 1] = lower
    system[inside, inside + 1] = upper
    return np.linalg.solve(system, np.concatenate([np.ones_like(right[:1]), right[1:-1], np.ones_like(right[:1])]))


def adi_law(given: Arrays, got: Arrays) -> Pairs:
    """The same steps by NumPy's solver of linear systems."""
    a, b, c, d, e, f = adi_coefficients().values()
    u = given["u"].copy()
    v = np.zeros_like(u)
    for _ in range(STEPS):
        v[:, 1:-1] = _solve_lines(a, b, c, -d * u[:, :-2] + (1 + 2 * d) * u[:, 1:-1] - f * u[:, 2:])
        u[1:-1] = _solve_lines(d, e, f, (-a * v[:-2] + (1 + 2 * a) * v[1:-1] - c * v[2:]).T).T
    yield got["u"], u


def fdtd_2d_law(given: Arrays, got: Arrays) -> Pairs:
    """Whole fields at once."""
    ex, ey, hz = (given[name].copy() for name in ("ex", "ey", "hz"))
    for pulse in given["pulse"]:
        ey[0] = pulse
        ey[1:] -= 0.5 * np.diff(hz, axis=0)
        ex[:, 1:] -= 0.5 * np.diff(hz, axis=1)
        hz[:-1, :-1] -= 0.7 * (np.diff(ex[:-1], axis=1) + np.diff(ey[:, :-1], axis=0))
    yield got["ex"], ex
    yield got["ey"], ey
    yield got["hz"], hz


def _relax(source: Array, target: Array, centre: float, beside: float) -> None:
    """Write weighted means of each inner point and its neighbours along every axis, whole arrays at once."""
    inside = (slice(1, -1),) * source.ndim
    total = centre * source[inside]
    for axis in range(source.ndim):
        for shifted in (slice(None, -2), slice(2, None)):
            total = total + beside * source[(*inside[:axis], shifted, *inside[axis + 1 :])]
    target[inside] = total


def _to_and_fro(given: Arrays, got: Arrays, centre: float, beside: float) -> Pairs:
    A, B = given["A"].copy(), given["B"].copy()
    for _ in range(STEPS):
        _relax(A, B, centre, beside)
        _relax(B, A, centre, beside)
    yield got["A"], A
    yield got["B"], B


def heat_3d_law(given: Arrays, got: Arrays) -> Pairs:
    """Whole arrays at once."""
    return _to_and_fro(given, got, 0.25, 0.125)


def jacobi_1d_law(given: Arrays, got: Arrays) -> Pairs:
    """Whole arrays at once."""
    return _to_and_fro(given, got, 0.33333, 0.33333)


def jacobi_2d_law(given: Arrays, got: Arrays) -> Pairs:
    """Whole arrays at once."""
    return _to_and_fro(given, got, 0.2, 0.2)


def seidel_2d_law(given: Arrays, got: Arrays) -> Pairs:
    """A step solves a linear system: new - earlier new = later old, by the neighbours' places in the order."""
    A = given["A"].copy()
    n = len(A)
    points = [(i, j) for i in range(1, n - 1) for j in range(1, n - 1)]
    around = [(i, j) for i in (-1, 0, 1) for j in (-1, 0, 1)]
    earlier, later = np.zeros((n * n, n * n)), np.eye(n * n)
    for i, j in points:
        later[i * n + j] = 0
        for di, dj in around:
            (earlier if (di, dj) < (0, 0) else later)[i * n + j, (i + di) * n + j + dj] = 1 / 9
    step = np.linalg.solve(np.eye(n * n) - earlier, later)
    yield got["A"].ravel(), np.linalg.matrix_power(step, STEPS) @ A.ravel()


def adi_schedule(s: Schedule) -> None:
    """The systems of one direction in parallel."""
    stage = s["adi"]
    stage.parallel("i")
    stage.parallel("i_1")


def fdtd_2d_schedule(s: Schedule) -> None:
    """Rows in parallel, columns as vectors."""
    stage = s["fdtd_2d"]
    for row, column in (("i", "j_1"), ("i_1", "j_2"), ("i_2", "j_3")):
        stage.parallel(row)
        as_vectors(stage, column)


def heat_3d_schedule(s: Schedule, steps: int = 2, edge: int = WIDTH) -> None:
    """Both half steps in one nest, the second a point behind; tiles of time and space."""
    stage = s["heat_3d"]
    space = [stage.fuse_with(axis, stage.shift(f"{axis}_1", 1)) for axis in ("i", "j", "k")]
    stage.time_tile("t", space, steps, [edge] * 3)


def jacobi_1d_schedule(s: Schedule, steps: int = 2, edge: int = WIDTH) -> None:
    """Both half steps in one loop, the second a point behind; tiles of time and space."""
    stage = s["jacobi_1d"]
    space = stage.fuse_with("i", stage.shift("i_1", 1))
    stage.time_tile("t", [space], steps, [edge])


def jacobi_2d_schedule(s: Schedule, steps: int = 2, edge: int = WIDTH) -> None:
    """Both half steps in one nest, the second a point behind; tiles of time and space, in parallel wavefronts."""
    stage = s["jacobi_2d"]
    space = [stage.fuse_with(axis, stage.shift(f"{axis}_1", 1)) for axis in ("i", "j")]
    tiles = stage.time_tile("t", space, steps, [edge] * 2)[:3]
    stage.wavefront(*tiles)


def seidel_2d_schedule(s: Schedule, steps: int = 2, edge: int = WIDTH) -> None:
    """Tiles of time and space, leaning so that no dependence points back, in parallel wavefronts."""
    stage = s["seidel_2d"]
    tiles = stage.time_tile("t", ["i", "j"], steps, [edge] * 2)[:3]
    stage.wavefront(*tiles)


def _upright(s: Schedule) -> None:
    stage = s["jacobi_2d"]
    rows, _ = (stage.fuse_with(axis, stage.shift(f"{axis}_1", 1)) for axis in ("i", "j"))
    stage.tile("t", rows, 2, WIDTH)


CASES = (
    Case(
        name="adi",
        script=adi,
        shapes={"u": ("n", "n")},
        sizes={"tsteps": STEPS, "n": 9},
        outputs=("u",),
        law=adi_law,
        schedule=adi_schedule,
        mistakes={
            "rows before the columns are done": Mistake(
                lambda s: s["adi"].fuse_with("i", "i_1"), IllegalOrder, "flow", "adi.v[0, 2]", (0,)
            ),
        },
        scalars=adi_coefficients(),
    ),
    Case(
        name="fdtd-2d",
        script=fdtd_2d,
        shapes={"ex": ("nx", "ny"), "ey": ("nx", "ny"), "hz": ("nx", "ny"), "pulse": ("tsteps",)},
        sizes={"tsteps": STEPS, "nx": 7, "ny": 9},
        outputs=("ex", "ey", "hz"),
        law=fdtd_2d_law,
        schedule=fdtd_2d_schedule,
        mistakes={
            "all steps of one field before the others": Mistake(
                lambda s: s["fdtd_2d"].fission("t"), IllegalOrder, "anti", "ey[0, 0]", (1,)
            ),
        },
    ),
    Case(
        name="heat-3d",
        script=heat_3d,
        shapes={"A": ("n", "n", "n"), "B": ("n", "n", "n")},
        sizes={"tsteps": STEPS, "n": 6},
        outputs=("A", "B"),
        law=heat_3d_law,
        schedule=heat_3d_schedule,
        mistakes={
            "both half steps in one nest, without the second being behind": Mistake(
                lambda s: s["heat_3d"].fuse_with("i", "i_1"), IllegalOrder, "flow", "B[2, 1, 1]", (0,)
            ),
        },
    ),
    Case(
        name="jacobi-1d",
        script=jacobi_1d,
        shapes={"A": ("n",), "B": ("n",)},
        sizes={"tsteps": STEPS, "n": 13},
        outputs=("A", "B"),
        law=jacobi_1d_law,
        schedule=jacobi_1d_schedule,
        mistakes={
            "both half steps in one loop, without the second being behind": Mistake(
                lambda s: s["jacobi_1d"].fuse_with("i", "i_1"), IllegalOrder, "flow", "B[2]", (0,)
            ),
        },
    ),
    Case(
        name="jacobi-2d",
        script=jacobi_2d,
        shapes={"A": ("n", "n"), "B": ("n", "n")},
        sizes={"tsteps": STEPS, "n": 9},
        outputs=("A", "B"),
        law=jacobi_2d_law,
        schedule=jacobi_2d_schedule,
        mistakes={
            "tiles of time that do not lean": Mistake(_upright, IllegalOrder, "anti", "B[2, 1]", (1,)),
        },
    ),
    Case(
        name="seidel-2d",
        script=seidel_2d,
        shapes={"A": ("n", "n")},
        sizes={"tsteps": STEPS, "n": 8},
        outputs=("A",),
        law=seidel_2d_law,
        schedule=seidel_2d_schedule,
        mistakes={
            "tiles of time that do not lean": Mistake(
                lambda s: s["seidel_2d"].tile("t", "i", 2, 4), IllegalOrder, "flow", "A[4, 1]", (1, -1, 0)
            ),
            "rows in parallel": Mistake(
                lambda s: s["seidel_2d"].parallel("i"), IllegalParallel, "flow", "A[1, 1]", (0, 1, 0)
            ),
        },
    ),
)
