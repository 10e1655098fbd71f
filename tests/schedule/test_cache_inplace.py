"""Updates in place that run on copies in another layout."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tensorlang
from tensorlang import te
from tensorlang.errors import BadArgument, IllegalParallel
from tensorlang.schedule import Schedule
from tests.stencils import Size, Stencil, jacobi, seidel

n = te.var("n")


@te.hybrid.script
def scattered(A: Any, where: Any) -> Any:
    """Elements updated at the places that another array names."""
    for i in range(8):
        A[where[i]] = A[where[i]] + i
    return A


@te.hybrid.script
def doubled(A: Any) -> Any:
    """A new array."""
    out = te.output_tensor((8,), "int64")
    for i in range(8):
        out[i] = A[i] * 2
    return out


def skewed(case: Stencil) -> None:
    """Wavefronts as rows, in vectors."""
    packed = case.stage.cache_inplace(lambda i, j: (2 * i + j, i))
    _, row = packed.affine(["i", "j"], [[2, 1], [1, 0]])
    packed.vectorize(row)


def blocked(case: Stencil) -> None:
    """Blocks of four rows."""
    case.stage.cache_inplace(lambda i, j: (i // 4, j, i % 4))


def tiled(case: Stencil) -> None:
    """Tiles in time over the skewed copy."""
    packed = case.stage.cache_inplace(lambda i, j: (2 * i + j, i))
    front, row = packed.affine(["i", "j"], [[2, 1], [1, 0]])
    time, fronts, rows = packed.tile_by(["t", front, row], [[1, 0, 0], [3, 1, 0], [8, 0, 1]], [2, 4, 8])
    packed.reorder(time, rows, fronts)
    packed.wavefront(rows, fronts)
    packed.vectorize(row)


def swapped(case: Stencil) -> None:
    """Columns as rows."""
    case.stage.cache_inplace(lambda i, j: (j, i))


FIXED, ANY = (11, 7), (n, n)


@pytest.mark.sampled(1)
@pytest.mark.parametrize("target", ["interpreter", "llvm"])
@pytest.mark.parametrize(
    ("script", "plan", "shape"),
    [
        (seidel, skewed, FIXED),
        (seidel, skewed, ANY),
        (seidel, blocked, FIXED),
        (seidel, tiled, FIXED),
        (seidel, tiled, ANY),
        (jacobi, blocked, FIXED),
        (jacobi, swapped, ANY),
    ],
)
def test_results_are_those_of_the_loops_as_declared(
    script: Any, plan: Callable[[Stencil], None], shape: tuple[Size, ...], target: str
) -> None:
    number = 1 if script is seidel else 2
    case = Stencil(script, *(shape,) * number, steps=3)
    plan(case)
    real = tuple(9 if isinstance(extent, te.Var) else extent for extent in shape)
    start = [np.arange(np.prod(real), dtype="i8").reshape(real) * (k + 3) % 17 for k in range(number)]
    found, wanted = [a.copy() for a in start], [a.copy() for a in start]
    script(3, *wanted)
    tensorlang.build(case.s, case.args, target=target)(*found)
    for got, expected in zip(found, wanted, strict=True):
        np.testing.assert_array_equal(got, expected)


def test_the_loops_of_the_copy_are_proven_as_any_others() -> None:
    packed = Stencil(seidel, (11, 7)).stage.cache_inplace(lambda i, j: (2 * i + j, i))
    with pytest.raises(IllegalParallel, match=r"flow through seidel\.packed"):
        packed.vectorize("j")


def test_the_copy_has_one_memory() -> None:
    case = Stencil(seidel, (11, 7))
    swapped(case)
    assert str(tensorlang.lower(case.s, case.args)).count("allocate") == 1


def _after_a_step(s: Schedule) -> None:
    s["seidel"].split("i", factor=2)
    s["seidel"].cache_inplace(lambda i, j: (j, i))


def _by_data() -> Schedule:
    A, where = te.placeholder((8,), "int64", name="A"), te.placeholder((8,), "int64", name="where")
    made: Schedule = te.create_schedule(scattered(A, where).op)
    return made


def _new_array() -> Schedule:
    made: Schedule = te.create_schedule(doubled(te.placeholder((8,), "int64", name="A")).op)
    return made


def _computed() -> Schedule:
    A = te.placeholder((8,), "int64", name="A")
    made: Schedule = te.create_schedule(te.compute((8,), lambda i: A[i] + 1, name="B").op)
    return made


def _plane() -> Schedule:
    return Stencil(seidel, (11, 7)).s


@pytest.mark.parametrize(
    ("program", "step", "why"),
    [
        (_plane, _after_a_step, "must come before other steps on seidel"),
        (_plane, lambda s: s["seidel"].cache_inplace(lambda i: i), "has 2 dimensions, the map takes 1"),
        (_plane, lambda s: s["seidel"].cache_inplace(lambda i, j: i + j), "two elements to one place"),
        (_plane, lambda s: s["seidel"].cache_inplace(lambda i, j: (i - j, i)), "must start at 0"),
        (_plane, lambda s: s["seidel"].cache_inplace((1, 0)), "expected a function from the old indices"),
        (
            _by_data,
            lambda s: s["scattered"].cache_inplace(lambda i: 7 - i),
            r"scattered\[where\[i\]\] is indexed by data",
        ),
        (_new_array, lambda s: s["doubled"].cache_inplace(lambda i: 7 - i), "doubled is a new array"),
        (_computed, lambda s: s["B"].cache_inplace(lambda i: 7 - i), "B updates nothing in place"),
    ],
)
def test_refusals(program: Callable[[], Schedule], step: Callable[[Schedule], object], why: str) -> None:
    with pytest.raises(BadArgument, match=why):
        step(program())
