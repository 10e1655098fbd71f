"""The layouts of matrix instructions: against the formulas of the PTX specification, ldmatrix, and NumPy."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from numpy.typing import NDArray

from tensorlang.errors import TargetError
from tensorlang.ir.expr import Expr, Var
from tensorlang.ir.fragment import Fragment
from tensorlang.ir.interpret import evaluate
from tensorlang.ir.simplify import simplify
from tensorlang.target.cuda.fragments import (
    A_ROWS,
    B_COLUMNS,
    B_ROWS,
    GROUP,
    PACKED,
    Gather,
    Multiply,
    c_fragment,
    group_accumulator,
    group_multiply,
    warp_multiply,
)
from tensorlang.target.cuda.intrinsics import INTRINSICS
from tensorlang.target.cuda.wgmma import WIDTHS

Array = NDArray[np.int64]
Formula = Callable[[int, int], tuple[int, int]]
ACCUMULATOR = {"s8": "s32", "u8": "s32"}
WARP_MULTIPLIES = [*(warp_multiply(e, ACCUMULATOR.get(e, "f32")) for e in PACKED), warp_multiply("f16", "f16")]
GROUP_MULTIPLIES = [group_multiply(e, n, ACCUMULATOR.get(e, "f32")) for e in PACKED for n in WIDTHS]
FRAGMENTS = [f for made in (*WARP_MULTIPLIES, *GROUP_MULTIPLIES) for f in (made.a, made.b, made.c) if f is not None]


def held(fragment: Fragment) -> list[tuple[int, int, int]]:
    """All lanes, registers and elements of a fragment, in order."""
    lanes, registers, elements = range(fragment.lanes), range(fragment.registers), range(fragment.elements)
    return [(lane, register, element) for lane in lanes for register in registers for element in elements]


def distribute(fragment: Fragment, tile: Array) -> Array:
    """What each lane holds of a tile: lanes x registers x elements."""
    assert tile.shape == (fragment.rows, fragment.columns)
    values = [tile[fragment.place(*at)] for at in held(fragment)]
    return np.array(values).reshape(fragment.lanes, fragment.registers, fragment.elements)


def collect(fragment: Fragment, registers: Array) -> Array:
    """The tile whose elements lanes hold."""
    tile = np.full((fragment.rows, fragment.columns), -(10**9))
    for at in held(fragment):
        tile[fragment.place(*at)] = registers[at]
    return tile


@pytest.mark.parametrize("fragment", dict.fromkeys(FRAGMENTS), ids=lambda f: f"{f.rows}x{f.columns}x{f.elements}")
def test_each_element_of_a_tile_has_one_holder(fragment: Fragment) -> None:
    places = [fragment.place(*at) for at in held(fragment)]
    assert sorted(places) == [(r, c) for r in range(fragment.rows) for c in range(fragment.columns)]
    assert [fragment.holder(*place) for place in places] == held(fragment)


@pytest.mark.parametrize("multiply", [*WARP_MULTIPLIES, *GROUP_MULTIPLIES], ids=lambda m: m.name)
def test_each_layout_belongs_to_an_instruction_of_the_table(multiply: Multiply) -> None:
    row = INTRINSICS[multiply.name]
    assert f"%{multiply.c.registers - 1}" in row.text
    assert f"m{multiply.m}n{multiply.n}k{multiply.k}." in row.mnemonic


def specified_16_bits_a(lane: int, i: int) -> tuple[int, int]:
    """PTX ISA, "mma.m16n8k16", .f16 and .bf16: a0 to a7."""
    row = lane // 4 if 0 <= i < 2 or 4 <= i < 6 else lane // 4 + 8
    return row, lane % 4 * 2 + (i & 1) if i < 4 else lane % 4 * 2 + (i & 1) + 8


def specified_16_bits_b(lane: int, i: int) -> tuple[int, int]:
    """PTX ISA, "mma.m16n8k16", .f16 and .bf16: b0 to b3."""
    return lane % 4 * 2 + (i & 1) if i < 2 else lane % 4 * 2 + (i & 1) + 8, lane // 4


def specified_tf32_a(lane: int, i: int) -> tuple[int, int]:
    """PTX ISA, "mma.m16n8k8", .tf32: a0 to a3."""
    return lane // 4 if i in (0, 2) else lane // 4 + 8, lane % 4 if i in (0, 1) else lane % 4 + 4


def specified_tf32_b(lane: int, i: int) -> tuple[int, int]:
    """PTX ISA, "mma.m16n8k8", .tf32: b0 and b1."""
    return lane % 4 if i == 0 else lane % 4 + 4, lane // 4


def specified_8_bits_a(lane: int, i: int) -> tuple[int, int]:
    """PTX ISA, "mma.m16n8k32": a0 to a15."""
    row = lane // 4 if 0 <= i < 4 or 8 <= i < 12 else lane // 4 + 8
    return row, lane % 4 * 4 + (i & 3) if i < 8 else lane % 4 * 4 + (i & 3) + 16


def specified_8_bits_b(lane: int, i: int) -> tuple[int, int]:
    """PTX ISA, "mma.m16n8k32": b0 to b7."""
    return lane % 4 * 4 + (i & 3) if i < 4 else lane % 4 * 4 + (i & 3) + 16, lane // 4


def specified_c(lane: int, i: int) -> tuple[int, int]:
    """PTX ISA, "mma.m16n8k16": c0 to c3, of f32, s32 and f16."""
    return lane // 4 if i < 2 else lane // 4 + 8, lane % 4 * 2 + (i & 1)


SPECIFIED: dict[int, tuple[Formula, Formula]] = {
    1: (specified_tf32_a, specified_tf32_b),
    2: (specified_16_bits_a, specified_16_bits_b),
    4: (specified_8_bits_a, specified_8_bits_b),
}


@pytest.mark.parametrize("multiply", WARP_MULTIPLIES, ids=lambda m: m.name)
def test_the_layouts_of_a_warp_are_the_specified_ones(multiply: Multiply) -> None:
    assert multiply.b is not None
    specified = (*SPECIFIED[PACKED[multiply.element]], specified_c)
    for fragment, formula in zip((multiply.a, multiply.b, multiply.c), specified, strict=True):
        for lane, register, element in held(fragment):
            number = register * fragment.elements + element
            assert fragment.place(lane, register, element) == formula(lane, number)


def test_the_accumulator_of_a_group_is_the_specified_one() -> None:
    """PTX ISA, "Register fragments for wgmma.mma_async.m64nNk16", matrix D."""
    for columns in WIDTHS:
        fragment = group_accumulator(columns)
        for thread, i, _ in held(fragment):
            row = thread // 32 * 16 + thread % 32 // 4 + (8 if i % 4 >= 2 else 0)
            assert fragment.place(thread, i, 0) == (row, i // 4 * 8 + thread % 4 * 2 + i % 2)


@pytest.mark.parametrize("columns", [0, 12, 264])
def test_wgmma_has_no_other_widths(columns: int) -> None:
    with pytest.raises(TargetError, match=f"got {columns}"):
        group_accumulator(columns)


@pytest.mark.parametrize("multiply", WARP_MULTIPLIES, ids=lambda m: m.name)
def test_lanes_find_what_they_multiply_in_the_registers_of_others(multiply: Multiply) -> None:
    """Each lane makes its accumulators out of what lanes hold of its rows of a and its columns of b."""
    assert multiply.b is not None
    rng = np.random.default_rng(7)
    a = rng.integers(-8, 8, (multiply.m, multiply.k))
    b = rng.integers(-8, 8, (multiply.k, multiply.n))
    of_a, of_b = distribute(multiply.a, a), distribute(multiply.b, b)
    of_c = np.zeros((multiply.c.lanes, multiply.c.registers, multiply.c.elements), np.int64)
    for at in held(multiply.c):
        row, column = multiply.c.place(*at)
        pairs = ((multiply.a.holder(row, k), multiply.b.holder(k, column)) for k in range(multiply.k))
        of_c[at] = sum(of_a[left] * of_b[right] for left, right in pairs)
    np.testing.assert_array_equal(collect(multiply.c, of_c), a @ b)


def ldmatrix(memory: Array, gather: Gather, per_chunk: int) -> Array:
    """What ldmatrix.x4 puts where, by the specification: lanes x 4 registers x elements of 32 bits."""
    turned, packed = gather.instruction.endswith("_trans"), per_chunk // 4
    result = np.zeros((32, 4, packed), memory.dtype)
    for matrix in range(4):
        places = (gather.place(lane) for lane in range(8 * matrix, 8 * matrix + 8))
        rows = np.stack([memory[row, chunk * per_chunk : (chunk + 1) * per_chunk] for row, chunk in places])
        rows = rows.T if turned else rows
        result[:, matrix, :] = rows.reshape(32, packed)
    return result


@pytest.mark.parametrize("element", PACKED)
def test_ldmatrix_brings_the_left_operand_from_rows_of_k(element: str) -> None:
    made, per_chunk = warp_multiply(element), 4 * PACKED[element]
    tile = np.arange(made.m * made.k).reshape(made.m, made.k)
    np.testing.assert_array_equal(ldmatrix(tile, A_ROWS, per_chunk), distribute(made.a, tile))


@pytest.mark.parametrize("element", PACKED)
def test_ldmatrix_brings_two_right_operands_from_rows_of_k(element: str) -> None:
    made, per_chunk = warp_multiply(element), 4 * PACKED[element]
    assert made.b is not None
    memory = np.arange(16 * made.k).reshape(16, made.k)
    got = ldmatrix(memory, B_COLUMNS, per_chunk)
    np.testing.assert_array_equal(got[:, :2], distribute(made.b, memory[:8].T))
    np.testing.assert_array_equal(got[:, 2:], distribute(made.b, memory[8:].T))


def test_ldmatrix_transposes_right_operands_of_16_bits() -> None:
    made = warp_multiply("bf16")
    assert made.b is not None
    memory = np.arange(16 * 16).reshape(16, 16)
    got = ldmatrix(memory, B_ROWS, 8)
    np.testing.assert_array_equal(got[:, :2], distribute(made.b, memory[:, :8]))
    np.testing.assert_array_equal(got[:, 2:], distribute(made.b, memory[:, 8:]))


def test_two_accumulators_side_by_side_are_a_left_operand() -> None:
    """The product of attention: s[j] packed in pairs is a of the next product, without a move between lanes."""
    a, c = warp_multiply("bf16").a, c_fragment()
    for lane, register, element in held(a):
        row, column = a.place(lane, register, element)
        holder, its_register, _ = c.holder(row, column % 8)
        assert holder == lane
        assert (register, element) == (column // 8 * 2 + its_register // 2, its_register % 2)


def test_the_registers_of_a_group_are_those_of_its_warps() -> None:
    for element in PACKED:
        group, warp = group_multiply(element, 64), warp_multiply(element)
        for thread, register, part in held(group.a):
            row, column = warp.a.place(thread % 32, register, part)
            assert group.a.place(thread, register, part) == (row + thread // 32 * 16, column)
    assert group_multiply("f16", 64).a.lanes == GROUP


def test_places_are_index_expressions_too() -> None:
    lane, register, element = (Var(name, "int64") for name in ("lane", "register", "element"))
    for fragment in (warp_multiply("s8").a, group_accumulator(64)):
        exprs = fragment.place(lane, register, element)
        for at in held(fragment)[::37]:
            values = dict(zip((lane, register, element), at, strict=True))
            assert tuple(int(evaluate(e, values)) for e in exprs) == fragment.place(*at)


def test_loops_that_follow_the_layout_stay_in_their_lane() -> None:
    """What a schedule makes of a tile of 64 x 32: splits by 16 and 8, by 8 and 2, and two of the loops on the lanes."""
    ranges = {"x": (0, 31), "q": (0, 3), "g": (0, 7), "io": (0, 3), "h": (0, 1), "jo": (0, 3), "e": (0, 1)}
    x, q, g, io, h, jo, e = (Var(name, "int64") for name in ranges)

    def held_by(fragment: Fragment, row: Expr, column: Expr) -> list[str]:
        return [str(simplify(part, ranges)) for part in fragment.holder(row, column)]

    fused = (io * 16 + h * 8 + x // 4, jo * 8 + x % 4 * 2 + e)
    assert held_by(c_fragment(), *fused) == ["x", "2 * h + e", "0"]
    apart = (io * 16 + h * 8 + g, jo * 8 + q * 2 + e)
    assert held_by(c_fragment(), *apart) == ["4 * g + q", "2 * h + e", "0"]
    assert held_by(warp_multiply("bf16").a, *apart) == ["4 * g + q", "h + 2 * (jo % 2)", "e"]
    assert held_by(c_fragment(), fused[1], fused[0])[0] != "x"
