"""Nests: footprints equal to what an enumeration of the loops touches."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tensorlang.autotune.model.nest import Kind, Loop, Nest, register_tile
from tensorlang.schedules.accesses import LINE, Access, footprint

from ..fakes import matmul_nest

_AXES = ("i", "j", "k")


def _touched(access: Access, tile: dict[str, int]) -> set[tuple[int, ...]]:
    """The elements that a tile at the origin touches, by walking it."""
    axes = sorted(tile)
    points = itertools.product(*(range(tile[a]) for a in axes))
    values = (dict(zip(axes, point, strict=True)) for point in points)
    return {tuple(sum(int(c) * v[a] for a, c in terms) for terms in access.dims) for v in values}


@st.composite
def _accesses(draw: st.DrawFn) -> Access:
    """Unit coefficients, one or two axes a dimension, no axis twice; arrays as large as the axes need."""
    axes = draw(st.permutations(_AXES))
    cut = draw(st.integers(1, 3))
    dims = [[(a, 1)] for a in axes[:cut]]
    for axis in axes[cut:]:
        if draw(st.booleans()):
            dims[draw(st.integers(0, cut - 1))].append((axis, 1))
    return Access("X", draw(st.sampled_from([4, 8])), (64,) * cut, tuple(map(tuple, dims)))


@given(_accesses(), st.fixed_dictionaries({a: st.integers(1, 5) for a in _AXES}))
def test_elements_are_those_that_the_tile_touches(access: Access, tile: dict[str, int]) -> None:
    columns = {axis: np.array([float(n)]) for axis, n in tile.items()}
    assert footprint(access, columns, 1).elements[0] == len(_touched(access, tile))


@given(st.integers(1, 20), st.integers(1, 80))
def test_lines_are_those_of_aligned_rows(rows: int, width: int) -> None:
    access = Access("X", 4, (64, 128), ((("i", 1),), (("j", 1),)))
    tile = {"i": rows, "j": width}
    lines = {(r * 128 + c) * 4 // LINE for r, c in _touched(access, tile)}
    columns = {axis: np.array([float(n)]) for axis, n in tile.items()}
    assert footprint(access, columns, 1).lines[0] == len(lines)


def test_a_packed_array_is_contiguous_and_a_full_row_too() -> None:
    tile = {"i": np.array([4.0]), "j": np.array([8.0])}
    plain = Access("X", 4, (64, 128), ((("i", 1),), (("j", 1),)))
    packed = Access("X", 4, (64, 128), ((("i", 1),), (("j", 1),)), packed=True)
    narrow = Access("X", 4, (64, 8), ((("i", 1),), (("j", 1),)))
    assert footprint(plain, tile, 1).lines[0] == 4
    assert footprint(packed, tile, 1).lines[0] == 2
    assert footprint(narrow, tile, 1).lines[0] == 2


def test_scalars_take_one_line() -> None:
    assert footprint(Access("X", 4, (), ()), {}, 3).lines.tolist() == [1, 1, 1]


def test_tiles_grow_outwards_and_never_exceed_their_axis() -> None:
    nest = matmul_nest([6, 12], [64, 32], size=100)
    tiles = nest.tiles()
    assert [t["i"].tolist() for t in tiles] == [[100, 100], [100, 100], [6, 12], [6, 12], [1, 1], [1, 1]]
    assert [t["k"].tolist() for t in tiles] == [[100, 100]] * 3 + [[1, 1]] * 3
    assert nest.trips_outside()[2].tolist() == [2 * 17, 4 * 9]


@pytest.mark.parametrize(
    ("rows", "width", "accumulators", "registers", "loads"),
    [(12, 32, 24, 27, 14), (8, 48, 24, 28, 11), (1, 16, 1, 3, 2)],
)
def test_the_register_tile_of_a_matmul(rows: int, width: int, accumulators: int, registers: int, loads: int) -> None:
    tile = register_tile(matmul_nest(rows, width), lanes=16)
    assert tile.kept
    assert (tile.accumulators[0], tile.registers[0], tile.loads[0]) == (accumulators, registers, loads)
    assert tile.fma[0] == accumulators


def test_results_that_are_not_kept_in_registers_cost_loads() -> None:
    kept = matmul_nest(4, 16)
    order = (kept.loops[2], kept.loops[0], kept.loops[1], *kept.loops[3:])  # k outermost
    moved = Nest(order, kept.accesses, kept.extents, kept.reduce_axes, kept.operations, 32, 1, True)
    assert not register_tile(moved, 16).kept
    assert register_tile(moved, 16).loads[0] == register_tile(kept, 16).loads[0] + 2 * 4


def test_an_array_across_the_vectors_is_gathered() -> None:
    transposed = Access("B", 4, (64, 64), ((("j", 1),), (("k", 1),)))
    base = matmul_nest(2, 16, size=64)
    accesses = (*base.accesses[:2], transposed)
    nest = Nest(base.loops, accesses, base.extents, base.reduce_axes, base.operations, 32, 1, True)
    assert register_tile(nest, 16).gathers[0] == 16
    assert math.isclose(register_tile(nest, 16).loads[0], 2)


def test_loop_kinds_tell_the_tile_from_the_rest() -> None:
    one = np.ones(1)
    loops = (Loop("i", 8 * one, Kind.PARALLEL), Loop("i", 4 * one, Kind.UNROLLED), Loop("j", 16 * one, Kind.VECTORIZED))
    out = Access("Y", 4, (32, 16), ((("i", 1),), (("j", 1),)), write=True)
    nest = Nest(loops, (out,), {"i": 32, "j": 16}, frozenset(), 512.0, 32, 1, False)
    assert register_tile(nest, 16).accumulators[0] == 4


def test_strides_are_those_of_the_last_dimension() -> None:
    rows, pairs = ((("i", 1),), (("j", 1), ("k", 2))), ((("i", 1),), (("i", 1), ("j", -1)))
    access, diagonal = (Access("X", 4, (64, 64), dims) for dims in (rows, pairs))
    assert [access.stride(axis) for axis in _AXES] == [0, 1, 2]
    assert [diagonal.stride(axis) for axis in _AXES] == [0, -1, 0]
    assert [access.stride_one(axis) for axis in _AXES] == [False, True, False]


def test_strides_that_follow_decisions_are_those_of_all_candidates() -> None:
    same, different = (Access("X", 4, (64,), ((("i", np.asarray(c)),),)) for c in ([2.0, 2.0], [1.0, 2.0]))
    assert (same.stride("i"), different.stride("i")) == (2, 0)
