"""Matrices of Winograd's algorithm, by Cook and Toom: polynomials are multiplied by their values at a few points.

`tile` results of a window of 3 are `y = A (G w * B d)`, where `*` is element by element, for `tile + 2` data.
Source: Winograd, Arithmetic Complexity of Computations, 1980.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from functools import cache
from math import prod
from operator import add, sub
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from tensorlang import te
from tensorlang.errors import InternalError
from tensorlang.ir.expr import Expr
from tensorlang.runtime.memory import aligned_empty

Matrix: TypeAlias = tuple[tuple[Fraction, ...], ...]
WINDOW = 3
POINTS = {
    2: (Fraction(0), Fraction(1), Fraction(-1)),
    4: (Fraction(0), Fraction(3, 4), Fraction(-3, 4), Fraction(3, 2), Fraction(-3, 2)),
}
"""Where polynomials are evaluated, infinity aside, by the tile: zero, then pairs of opposites.

Those of a tile of 4 make a quarter of the error of the usual 0, ±1, ±2 in the same time; A and B are exact in float32.
"""


@cache
def transforms(tile: int) -> tuple[Matrix, Matrix, Matrix]:
    """The matrices B of data, G of weights and A of results."""
    points, n = POINTS[tile], tile + WINDOW - 1
    others = [[q for q in points if q != p] for p in points]
    data = [_polynomial(rest, n) for rest in (*others, list(points))]
    scales = [prod((p - q for q in rest), start=Fraction(1)) for p, rest in zip(points, others, strict=True)]
    weights = [tuple(p**k / scale for k in range(WINDOW)) for p, scale in zip(points, scales, strict=True)]
    last = tuple(Fraction(k == WINDOW - 1) for k in range(WINDOW))
    results = [(*(p**i for p in points), Fraction(i == tile - 1)) for i in range(tile)]
    return tuple(data), (*weights, last), tuple(results)


def _polynomial(roots: Sequence[Fraction], length: int) -> tuple[Fraction, ...]:
    """The coefficients of the product of all `x - root`, the constant first."""
    found = [Fraction(1)]
    for root in roots:
        found = [low - root * high for low, high in zip([Fraction(0), *found], [*found, Fraction(0)], strict=True)]
    return tuple(found + [Fraction(0)] * (length - len(found)))


def transformed_weights(weight: npt.NDArray[Any], tile: int, block: int) -> npt.NDArray[np.float32]:
    """Weights [o, i, 3, 3] as float32[tile + 2, tile + 2, o / block, i, block], zeros behind the last output.

    Sums are made in float64, and rounded once.
    """
    points, (outputs, inputs) = tile + WINDOW - 1, weight.shape[:2]
    g = np.array(transforms(tile)[1], np.float64)
    both, windows = np.kron(g, g), weight.transpose(2, 3, 1, 0)
    made = aligned_empty((points * points, -(-outputs // block), inputs, block), np.float32)
    part, sums = np.zeros((WINDOW * WINDOW, inputs * block)), np.empty((points * points, inputs * block))
    for number in range(made.shape[1]):  # a block at a time stays in the caches
        some = windows[..., number * block : (number + 1) * block]
        part.reshape(*windows.shape[:-1], block)[..., : some.shape[-1]] = some
        np.matmul(both, part, out=sums)
        made[:, number] = sums.reshape(-1, inputs, block)
    made[:, -1, :, outputs - number * block :] = 0
    return made.reshape(points, points, *made.shape[1:])


def by_rows(matrix: Matrix, terms: Sequence[Expr]) -> list[Expr]:
    """A matrix times a vector, where rows belong to points: those of opposites are `even + odd` and `even - odd`."""
    found: list[Expr] = []
    for number, row in enumerate(matrix):
        even, odd = (_sum(row[k::2], terms[k::2]) for k in (0, 1))
        if number and even is not None and _are_opposite(matrix[number - 1], row):
            even, odd = (_sum(matrix[number - 1][k::2], terms[k::2]) for k in (0, 1))
            assert even is not None and odd is not None
            found.append(even - odd)
        elif even is not None and odd is not None:
            found.append(even + odd)
        else:
            found.append(_known(even if odd is None else odd))
    return found


def by_columns(matrix: Matrix, terms: Sequence[Expr]) -> list[Expr]:
    """A matrix times a vector, where columns belong to points: terms of opposites are added, or subtracted, first."""
    first, *pairs, last = terms
    sums, differences = ([op(a, b) for a, b in zip(pairs[::2], pairs[1::2], strict=True)] for op in (add, sub))
    return [
        _known(_sum((row[0], *row[1:-1:2], row[-1]), (first, *(differences if number % 2 else sums), last)))
        for number, row in enumerate(matrix)
    ]


def _are_opposite(row: Sequence[Fraction], other: Sequence[Fraction]) -> bool:
    """Whether rows are equal up to the signs of their odd elements, of which there are some."""
    return any(row[1::2]) and all(a == (-b if k % 2 else b) for k, (a, b) in enumerate(zip(row, other, strict=True)))


def _sum(factors: Sequence[Fraction], terms: Sequence[Expr]) -> Expr | None:
    """The sum of products by factors that are not zero; None where all are."""
    total: Expr | None = None
    for factor, term in zip(factors, terms, strict=True):
        if factor:
            value = term if factor == 1 else term * te.const(float(factor), term.dtype)
            total = value if total is None else total + value
    return total


def _known(value: Expr | None) -> Expr:
    if value is None:
        raise InternalError("a row of a transform is all zeros")
    return value
