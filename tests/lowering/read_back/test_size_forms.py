"""Quotients of sizes as sums: what they say is so for every size, and numbers that are equal read the same."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tensorlang.ir.affine import Affine
from tensorlang.ir.expr import Expr, Var, binary
from tensorlang.ir.stmt import INDEX
from tensorlang.lowering.read_back.size_forms import SizeForms

n, i, j = (Var(name, INDEX) for name in "nij")


def value(form: Affine, size: int) -> int | None:
    """What a sum is at a size; None where it has quotients of more than the size alone."""
    known = {"": 1, "n": size}
    for name in form.keys() - known.keys():
        head, _, divisor = name.partition(" // ")
        if head != "n":
            return None
        known[name] = size // int(divisor)
    return sum(factor * known[name] for name, factor in form.items())


@given(
    factor=st.integers(-70, 70),
    added=st.integers(-70, 70),
    divisor=st.sampled_from((1, 2, 3, 8, 32)),
    least=st.integers(0, 3),
    remainder=st.booleans(),
)
def test_a_sum_is_the_quotient(factor: int, added: int, divisor: int, least: int, remainder: bool) -> None:
    rest = binary("floormod", n, divisor)
    sums = SizeForms.under([binary("ge", rest, least)], ["i"], {})
    expr = binary("floormod" if remainder else "floordiv", factor * n + added, divisor)
    form = sums.of(expr)
    assert form is not None
    for size in range(80):
        made = value(form, size)
        if size % divisor >= least and made is not None:
            inner = factor * size + added
            assert made == (inner % divisor if remainder else inner // divisor)


def test_what_isl_writes_in_many_ways_is_one_sum() -> None:
    def form(expr: Expr, least: int) -> Affine | None:
        return SizeForms.under([binary("ge", binary("floormod", n, 32), least)], ["i"], {}).of(expr)

    ways = (n // 32, n - (31 * n + 31) // 32, (n + 31) // 32 - 1)
    assert [form(way, 1) for way in ways] == [{"n // 32": 1}] * 3
    assert form(ways[0], 0) != form(ways[2], 0)


@given(
    factors=st.tuples(*[st.integers(-20, 20)] * 2),
    added=st.integers(-20, 20),
    divisor=st.sampled_from((1, 2, 3, 8)),
    low=st.integers(-3, 3),
    extent=st.integers(1, 9),
    remainder=st.booleans(),
)
def test_a_sum_is_the_quotient_of_loops(
    factors: tuple[int, int], added: int, divisor: int, low: int, extent: int, remainder: bool
) -> None:
    sums = SizeForms.under([], ["i", "j"], {"j": (low, low + extent, True)})
    inner = factors[0] * i + factors[1] * j + added
    form = sums.of(binary("floormod" if remainder else "floordiv", inner, divisor))
    ends = [factors[1] * end + added for end in (low, low + extent - 1)]
    decided = factors[0] % divisor == 0 and ends[0] // divisor == ends[1] // divisor
    assert form is not None or not decided
    if form is None:
        return
    for x in range(-5, 5):
        for y in range(low, low + extent):
            number = factors[0] * x + factors[1] * y + added
            made = form.get("i", 0) * x + form.get("j", 0) * y + form.get("", 0)
            assert made == (number % divisor if remainder else number // divisor)


def test_loops_are_no_sizes() -> None:
    assert SizeForms.under([], ["i"], {}).of(i // 32) is None
    assert SizeForms.under([], [], {}).of(binary("floordiv", i + 32 * n, 32)) == {"n": 1, "i // 32": 1}
