"""Jacobi-2D in two buffers, tiled in time: one schedule that `tensorlang check` refuses, and one that is legal."""

from __future__ import annotations

from typing import Any

from tensorlang import te
from tensorlang.schedule import Schedule

TIME, ROWS, COLUMNS = 4, 8, 8


@te.hybrid.script
def jacobi(steps: Any, n: Any, U: Any) -> Any:
    """Every point becomes the mean of itself and its four neighbours, from one of two squares to the other."""
    for t in range(steps):
        for i in range(1, n - 1):
            for j in range(1, n - 1):
                U[(t + 1) % 2, i, j] = 0.2 * (
                    U[t % 2, i, j] + U[t % 2, i, j - 1] + U[t % 2, i, j + 1] + U[t % 2, i - 1, j] + U[t % 2, i + 1, j]
                )
    return U


def declared() -> Schedule:
    """The loops in their order, for all numbers of steps and sizes."""
    n, steps = te.var("n"), te.var("steps")
    U = te.placeholder((2, n, n), "float64", name="U")
    made: Schedule = te.create_schedule(jacobi(steps, n, U).op)
    return made


def without_skew() -> Schedule:
    """Rectangular tiles of time and space: a tile would need values that its neighbour has not made."""
    s = declared()
    s["jacobi"].tile_by(["t", "i", "j"], [[1, 0, 0], [0, 1, 0], [0, 0, 1]], [TIME, ROWS, COLUMNS])
    return s


def with_skew() -> Schedule:
    """Tiles that lean as far as the dependences want; wavefronts of them on all cores."""
    s = declared()
    t_tile, i_tile, j_tile, *_ = s["jacobi"].time_tile("t", ["i", "j"], TIME, [ROWS, COLUMNS])
    s["jacobi"].wavefront(t_tile, i_tile, j_tile)
    return s
