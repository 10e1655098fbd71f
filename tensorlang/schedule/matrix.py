"""Integer matrices as rows: determinant, and the inverse of a unimodular one."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import TypeAlias

Row: TypeAlias = tuple[int, ...]
Matrix: TypeAlias = tuple[Row, ...]


def identity(n: int) -> Matrix:
    """The identity matrix."""
    return tuple(tuple(int(i == j) for j in range(n)) for i in range(n))


def determinant(matrix: Sequence[Sequence[int]]) -> int:
    """The determinant of a square matrix."""
    return int(_eliminated(matrix)[0])


def inverse(matrix: Matrix) -> Matrix | None:
    """The inverse of a square matrix whose determinant is 1 or -1; None of any other."""
    value, rows = _eliminated(matrix)
    if abs(value) != 1:
        return None
    return tuple(tuple(int(x) for x in row) for row in rows)


def _eliminated(matrix: Sequence[Sequence[int]]) -> tuple[Fraction, list[list[Fraction]]]:
    """Determinant and inverse by Gauss-Jordan elimination; no inverse (an empty list) when the determinant is 0."""
    n = len(matrix)
    rows = [[Fraction(x) for x in (*row, *unit)] for row, unit in zip(matrix, identity(n), strict=True)]
    value = Fraction(1)
    for k in range(n):
        pivot = next((r for r in range(k, n) if rows[r][k]), None)
        if pivot is None:
            return Fraction(0), []
        if pivot != k:
            rows[k], rows[pivot], value = rows[pivot], rows[k], -value
        value *= rows[k][k]
        rows[k] = [x / rows[k][k] for x in rows[k]]
        for r in range(n):
            if r != k and rows[r][k]:
                rows[r] = [x - rows[r][k] * y for x, y in zip(rows[r], rows[k], strict=True)]
    return value, [row[n:] for row in rows]
