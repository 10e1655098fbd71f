"""Where the chunks of swizzled rows lie."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import pytest

from tensorlang import dtypes
from tensorlang.errors import TargetError
from tensorlang.ir.construct import array, index
from tensorlang.ir.interpret import evaluate
from tensorlang.ir.swizzle import can_swizzle, panel_rows, swizzle_mask, turned


@pytest.mark.parametrize(("dtype", "columns"), [("bfloat16", 16), ("int8", 64), ("float32", 32), ("float16", 192)])
def test_chunks_of_a_row_change_places(dtype: str, columns: int) -> None:
    buffer = replace(array("t", (2, 16, columns), dtype), swizzled=True)
    chunk = 16 // dtypes.info(dtype).bytes
    divisor, modulus = swizzle_mask(columns * dtypes.info(dtype).bytes)
    for row in range(16):
        found = []
        for column in range(columns):
            n, r, c = (int(evaluate(i, {})) for i in turned(buffer, (index(1), index(row), index(column))))
            assert (n, r) == (1, row)
            assert c == (column // chunk ^ row // divisor % modulus) * chunk + column % chunk
            found.append(c)
        assert sorted(found) == list(range(columns))


@pytest.mark.parametrize(("dtype", "columns"), [("bfloat16", 128), ("float32", 96), ("float16", 64)])
def test_panels_are_what_the_hardware_swizzles(dtype: str, columns: int) -> None:
    """Pieces of 128 bytes of all rows, one behind the other; of each the address is turned as wgmma does."""
    buffer = replace(array("t", (2, 16, columns), dtype), swizzled=True, panels=True)
    size = dtypes.info(dtype).bytes
    wide, found = 128 // size, set()
    for row, column in product(range(16), range(columns)):
        n, r, c = (int(evaluate(i, {})) for i in turned(buffer, (index(1), index(row), index(column))))
        plain = (column // wide * 16 + row) * 128 + column % wide * size
        assert n == 1 and (r * columns + c) * size == plain ^ (plain >> 7 & 7) << 4
        found.add(r * columns + c)
    assert found == set(range(16 * columns))
    assert panel_rows(buffer) == 16
    assert panel_rows(replace(buffer, panels=False)) == (16 if columns == wide else None)


def test_other_arrays_stay_as_they_are() -> None:
    where = (index(1), index(9))
    assert turned(array("t", (16, 64)), where) is where


def test_rows_that_the_banks_do_not_divide_have_no_swizzle() -> None:
    assert [n for n in range(8, 300, 8) if can_swizzle(n)] == [32, 64, 128, 256]
    with pytest.raises(TargetError, match="rows of 96 bytes in shared memory have no swizzle"):
        swizzle_mask(96)
