"""pad: the loops over whole tiles that it makes, what it refuses, and results on sizes that no tile divides."""

from __future__ import annotations

import pytest

from tensorlang import lower, te
from tensorlang.errors import BadArgument
from tensorlang.schedule import Schedule
from tensorlang.testing import check_schedule
from tests.programs import Case, matmul


def padded_product(m: int, n: int, k: int, rows: int, columns: int) -> Case:
    """C = A B in tiles of rows by columns, each summed in a local tile that is never cut short."""
    s, (A, B, C) = matmul(m, n, k)
    local = s.cache_write(C, "local")
    for source, axis, factor in ((A, 0, rows), (B, 1, columns)):
        copy = s.cache_read(source, "global", [local])
        s[copy].pad(copy.op.axis[axis], factor)
    s[local].pad("i", rows)
    s[local].pad("j", columns)
    i_o, j_o, _, _ = s[C].tile("i", "j", rows, columns)
    s[C].reorder(i_o, j_o)
    s[local].compute_at(s[C], j_o)
    return Case(s, (A, B, C))


@pytest.mark.parametrize(("m", "n", "k"), [(5, 7, 3), (8, 8, 8), (1, 9, 2)])
def test_products_of_padded_factors(m: int, n: int, k: int) -> None:
    s, args = padded_product(m, n, k, 4, 3)
    check_schedule(s, args)


def test_tiles_of_any_size_are_whole() -> None:
    n = te.var("n")
    A = te.placeholder((n, 5), name="A")
    k = te.reduce_axis((0, 5), "k")
    B = te.compute((n,), lambda i: te.sum(A[i, k], axis=k), name="B")
    s = te.create_schedule(B.op)
    local = s.cache_write(B, "local")
    copy = s.cache_read(A, "local", [local])
    s[copy].pad(copy.op.axis[0], 8)
    s[local].pad("i", 8)
    block, _ = s[B].split("i", factor=8)
    for stage in (local, copy):
        s[stage].compute_at(s[B], block)
    loops = str(lower(s, (A, B)))
    assert "for i in range(8):\n      B.local[i] = 0.0" in loops
    assert "select(int32(8 * i_o + ax0) < int32(n), A[8 * i_o + ax0, ax1], 0.0)" in loops
    for size in (0, 1, 8, 13):
        check_schedule(s, (A, B), {"n": size})


def test_a_multiple_stays_as_it_is() -> None:
    s, args = padded_product(8, 6, 4, 4, 3)
    assert "select" not in str(lower(s, args))


def halved() -> tuple[Schedule, te.Tensor, te.Tensor]:
    A = te.placeholder((10,), name="A")
    B = te.compute((10,), lambda i: A[i] * 0.5, name="B")
    C = te.compute((10,), lambda i: B[i] + 1, name="C")
    return te.create_schedule(C.op), B, C


def test_what_is_refused() -> None:
    s, B, C = halved()
    with pytest.raises(BadArgument, match="C is an output; pad would leave it incomplete"):
        s[C].pad("i", 4)
    with pytest.raises(BadArgument, match="x is no axis of the output of B; there are i"):
        s[B].pad("x", 4)
    with pytest.raises(BadArgument, match="factor must be at least 1, got 0"):
        s[B].pad("i", 0)
    s[B].split("i", factor=2)
    with pytest.raises(BadArgument, match="pad must come before other steps on B"):
        s[B].pad("i", 4)


def test_a_reduction_needs_something_to_read() -> None:
    s, (_, _, C) = matmul(5, 7, 3)
    local = s.cache_write(C, "local")
    with pytest.raises(BadArgument, match=r"C.local has nothing to read there: C.local reads A\[i, k\] outside A"):
        s[local].pad("i", 4)


def test_a_layout_that_leaves_elements_out_comes_after() -> None:
    s, B, _ = halved()
    s[B].transform_layout(lambda i: (i // 4, i % 4))
    with pytest.raises(BadArgument, match="B leaves some of p0 out; pad it before transform_layout"):
        s[B].pad("p0", 4)


def test_padding_may_be_in_place_before_a_layout() -> None:
    s, B, C = halved()
    s[B].pad("i", 4)
    s[B].transform_layout(lambda i: (i // 4, i % 4))
    check_schedule(s, (*B.op.input_tensors, C))


def test_zeros_beyond_an_axis_where_other_numbers_stand_within() -> None:
    A = te.placeholder((10,), name="A")
    B = te.compute((10,), lambda i: te.if_then_else(i < 7, A[i], 1.5), name="B")
    C = te.compute((10,), lambda i: B[i] + 1, name="C")
    s = te.create_schedule(C.op)
    s[B].pad("i", 4)
    assert "select(i < 10, select(i < 7, A[i], 1.5), 0.0)" in str(lower(s, (A, C)))
    check_schedule(s, (A, C))
