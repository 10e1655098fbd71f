"""The smallest counter-example: smallest sizes first, then the earliest instances, in the user's names."""

from __future__ import annotations

from itertools import product

import pytest

from tensorlang import te
from tensorlang.errors import IllegalParallel, Instance, UncoveredRead, Witness
from tensorlang.polyhedral import isl
from tensorlang.polyhedral.witness import smallest
from tests.programs import Case, matmul, row_sum

n, m = te.var("n"), te.var("m")


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("{ [a] -> [b] : 2 <= a < 5 and a < b < 9 }", ([], [2], [3])),
        ("{ [a, b] -> [c, d] : 0 <= a, b, c, d < 4 and a + b > c + d }", ([], [0, 1], [0, 0])),
        ("[n] -> { [a] -> [b] : 0 <= a < b < n }", ([2], [0], [1])),
        ("[n, m] -> { [a] -> [b] : 0 <= a < n and 0 <= b < m and b = a + 3 }", ([1, 4], [0], [3])),
        ("[n, m] -> { [a] -> [b] : n >= 3 and m >= 2 and a = n and b = m }", ([3, 2], [3], [2])),
    ],
)
def test_smallest(text: str, wanted: tuple[list[int], list[int], list[int]]) -> None:
    assert smallest(isl.make_map(text)) == wanted


def race(case: Case, stage: str, axis: str) -> Witness:
    with pytest.raises(IllegalParallel) as caught:
        case.s[stage].parallel(axis)
    assert caught.value.witness is not None
    return caught.value.witness


def test_a_witness_in_full() -> None:
    case = matmul()
    case.s["C"].split("k", factor=3)
    case.s["C"].reorder("k_o", "j", "i", "k_i")
    assert race(case, "C", "k_o") == Witness(
        "reduction",
        "C[0, 0]",
        Instance("C", (0, 0, 0), (1, 0, 0, 0, 0, 0, 0, 0, 0)),
        Instance("C", (0, 0, 3), (1, 1, 0, 0, 0, 0, 0, 0, 0)),
        (0, 0, 3),
    )


@pytest.mark.parametrize(("parts", "smallest_size"), [(2, 2), (3, 2), (5, 2)])
def test_a_witness_exists_even_where_isl_sees_no_bounds(parts: int, smallest_size: int) -> None:
    """The blocks of nparts are k_o * ceil(n / parts) + k_i: not affine, until the size is a number."""
    case = row_sum(m, n)
    case.s["B"].split("k", nparts=parts)
    witness = race(case, "B", "k_o")
    assert dict(witness.sizes) == {"m": 1, "n": smallest_size}
    assert witness.source is not None and (witness.source.point, witness.sink.point) == ((0, 0), (0, 1))


def test_nested_parts() -> None:
    case = row_sum(m, n)
    case.s["B"].split("k", nparts=2)
    case.s["B"].split("k_i", nparts=3)
    witness = race(case, "B", "k_i_o")
    assert dict(witness.sizes) == {"m": 1, "n": 3}, "with two elements each block of k has but one"


def brute_force(rows: int, columns: int, factor: int) -> tuple[int, int] | None:
    """The first pair of updates of one row in different blocks, for given sizes."""
    pairs = [(a, b) for a, b in product(range(columns), repeat=2) if a // factor < b // factor]
    return min(pairs, default=None) if rows else None


@pytest.mark.parametrize("factor", [1, 2, 3, 7])
def test_sizes_are_the_smallest_that_fail(factor: int) -> None:
    case = row_sum(m, n)
    case.s["B"].split("k", factor=factor)
    witness = race(case, "B", "k_o")
    rows, columns = dict(witness.sizes)["m"], dict(witness.sizes)["n"]
    assert witness.source is not None
    assert (witness.source.point[1], witness.sink.point[1]) == brute_force(rows, columns, factor)
    assert all(
        brute_force(a, b, factor) is None
        for a, b in product(range(rows + columns + 1), repeat=2)
        if a + b < rows + columns
    )


def test_instances_print_as_reads() -> None:
    assert str(Instance("C", (1, 2), (0, 1))) == "C[1, 2]" and str(Instance("S", ())) == "S[]"


def test_a_read_of_fused_loops_of_any_size_has_a_real_witness() -> None:
    """The fused loop is cut in quotient and remainder by a size, which must not be zero in the witness."""
    A = te.placeholder((n, m), name="A")
    B = te.compute((n, m), lambda i, j: A[i, j] + 1, name="B")
    C = te.compute((n, m), lambda i, j: B[i, j] * 2, name="C")
    s = te.create_schedule(C.op)
    fused = s[C].fuse("i", "j")
    with pytest.raises(UncoveredRead) as caught:
        s[B].split("i", nparts=2)
        s[B].compute_at(s[C], fused)
    witness = caught.value.witness
    assert witness is not None and witness.source is None and witness.sink.statement == "C"
    assert all(size > 0 for size in dict(witness.sizes).values())
