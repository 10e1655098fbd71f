"""Loops whose instances are told by remainders: isl loses some of them where their values are one apart."""

from __future__ import annotations

from typing import Any

import pytest

from tensorlang import lower, te
from tensorlang.polyhedral import isl
from tensorlang.testing.check import check_schedule


def colours(n: Any) -> Any:
    """The even places of rows, then the odd ones."""

    @te.hybrid.script
    def f(A: Any) -> Any:
        for c in range(2):
            for i in range(n):
                for j in range(n):
                    if j % 2 == c:
                        A[i, j] = A[i, j] + i
        return A

    return f(te.placeholder((n, n), "int32", name="A"))


def board(period: int, left: int) -> Any:
    """Every `period`-th place of a square of any size."""

    @te.hybrid.script
    def f(n: Any, A: Any) -> Any:
        for i in range(n):
            for j in range(n):
                if (i + j) % period == left:
                    A[i, j] = A[i, j] + i
        return A

    n = te.var("n")
    return f(n, te.placeholder((n, n), "int32", name="A"))


@pytest.mark.parametrize("axes", [("c", "i"), ("i", "j")])
def test_a_colour_among_fused_loops(axes: tuple[str, str]) -> None:
    out = colours(4)
    s = te.create_schedule(out.op)
    s["f"].fuse(*axes)
    check_schedule(s, [out], targets=["interpreter"])


@pytest.mark.parametrize("parts", [2, 4])
def test_tiles_that_follow_single_elements(parts: int) -> None:
    A = te.placeholder((8, 8), "int32", name="A")
    B = te.compute((8, 8), lambda i, j: A[i, j] * 3, name="B")
    C = te.compute((8, 8), lambda i, j: B[i, j] + 1, name="C")
    s = te.create_schedule(C.op)
    _, j_o, _, _ = s[C].tile("i", "j", 2, parts)
    s[C].split(j_o, factor=2)
    s[C].reverse_compute_at(s[B], s[B].fuse("i", "j"))
    check_schedule(s, [A, C], targets=["interpreter"])


@pytest.mark.parametrize(("period", "left", "factor"), [(2, 0, 5), (2, 0, 7), (3, 1, 5)])
def test_full_tiles_of_a_board(period: int, left: int, factor: int) -> None:
    out = board(period, left)
    s = te.create_schedule(out.op)
    s["f"].split("j", factor=factor, tail="peel")
    for n in (0, 4, 7, 11):
        check_schedule(s, [out], {"n": n}, targets=["interpreter"])


def test_tiles_are_full_whatever_of_them_runs() -> None:
    """No tile of two runs at both its ends: it is full by its bounds."""
    s = te.create_schedule(board(2, 0).op)
    s["f"].split("j", factor=2, tail="peel")
    assert "in range(n // 2)" in str(lower(s, [board(2, 0)]))


@pytest.mark.parametrize("where", ["j mod 2 = floor(i/4)", "(i + j) mod 3 = floor(i/2)"])
def test_values_some_units_apart_are_all_there(where: str) -> None:
    bands = 'schedule: "[{ S[i, j] -> [8*i] }]", child: { schedule: "[{ S[i, j] -> [8*j] }]" }'
    domain = f'domain: "{{ S[i, j] : 0 <= i < 8 and 0 <= j < 4 and {where} }}"'
    _, whole = isl.whole_loops_of_schedule(f"{{ {domain}, child: {{ {bands} }} }}", "{ : }", as_given=True)
    assert whole


def test_where_loops_are_wrong_statements_test_what_divides() -> None:
    """isl drops the test that k is odd, which remainders of i and k ask for beside another condition."""
    A = te.placeholder((9,), "int32", name="A")
    k = te.reduce_axis((0, 5), "k")

    def element(j: Any, i: Any) -> Any:
        return te.sum(A[i + 4], axis=k, where=te.any((6 * i + k) % 4 == 3, 12 * i + 4 * j <= 0))

    B = te.compute((8, 4), element, name="B")
    s = te.create_schedule(B.op)
    local = s.cache_write("B", "local")
    s[local].reorder("k", "j", "i")
    assert "% 4 == 3" in str(lower(s, [A, B]))
    check_schedule(s, [A, B])
