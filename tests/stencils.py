"""Stencil programs of several tests: in place, by two arrays, by two planes, and recurrences that resist tiling."""

from __future__ import annotations

from typing import Any

from tensorlang import te
from tensorlang.schedule import Schedule

Size = int | te.Var


@te.hybrid.script
def seidel(steps: Any, A: Any) -> Any:
    """In place: every element sees new neighbours before it, and old ones behind it."""
    for t in range(steps):  # noqa: B007
        for i in range(1, A.shape[0] - 1):
            for j in range(1, A.shape[1] - 1):
                A[i, j] = A[i - 1, j + 1] + A[i, j - 1] + A[i, j] + A[i, j + 1] + A[i + 1, j]
    return A


@te.hybrid.script
def jacobi(steps: Any, A: Any, B: Any) -> Any:
    """From A to B and back."""
    for t in range(steps):  # noqa: B007
        for i in range(1, A.shape[0] - 1):
            for j in range(1, A.shape[1] - 1):
                B[i, j] = A[i - 1, j] + A[i, j - 1] + A[i, j] + A[i, j + 1] + A[i + 1, j]
        for i in range(1, A.shape[0] - 1):
            for j in range(1, A.shape[1] - 1):
                A[i, j] = B[i - 1, j] + B[i, j - 1] + B[i, j] + B[i, j + 1] + B[i + 1, j]
    return A, B


@te.hybrid.script
def planes(steps: Any, A: Any) -> Any:
    """One statement: the planes of A are the old and the new grid in turn."""
    for t in range(steps):
        for i in range(1, A.shape[1] - 1):
            A[(t + 1) % 2, i] = A[t % 2, i - 1] + A[t % 2, i] + A[t % 2, i + 1]
    return A


@te.hybrid.script
def mirrored(steps: Any, A: Any) -> Any:
    """Every step reads the other end of the row: no skew by a constant helps."""
    for t in range(steps):  # noqa: B007
        for i in range(A.shape[0]):
            A[i] = A[A.shape[0] - 1 - i] + 1
    return A


class Stencil:
    """A script, its arrays as the arguments of a build, and its default schedule."""

    def __init__(self, script: Any, *shapes: tuple[Size, ...], steps: int = 5) -> None:
        self.args = [te.placeholder(shape, "int64", name=name) for shape, name in zip(shapes, "AB", strict=False)]
        made = script(steps, *self.args)
        self.s: Schedule = te.create_schedule((made[0] if isinstance(made, tuple) else made).op)
        self.stage = self.s[script.name]
