"""isl takes a product of sizes as a size of its own: what it says of it is checked with the sizes themselves."""

from __future__ import annotations

from typing import Any

import pytest

from tensorlang import lower, te
from tensorlang.errors import IllegalParallel
from tensorlang.ir.expr import Expr
from tensorlang.polyhedral.affine_text import Namer, least


def test_a_counter_example_names_sizes_that_can_be() -> None:
    @te.hybrid.script
    def follow(a: Any, b: Any, where: Any, n: Any) -> None:
        for i in range(n - 1):
            a[2 * i + 1] = max(a[2 * i + 1], b[where[i], n - i])
            for j in range(i, n - i):
                a[j] = min(a[j], j + a[i])

    n = te.var("n")
    a, where = (te.placeholder((2 * n + 3,), "int32", name=name) for name in ("a", "where"))
    b = te.placeholder((2 * n + 3, 2 * n + 3), "int32", name="b")
    s = te.create_schedule(follow(a, b, where, n).op)
    with pytest.raises(IllegalParallel) as caught:
        s["follow"].parallel("i")
    assert caught.value.witness is not None
    assert dict(caught.value.witness.sizes) == {"n": 3}


@pytest.mark.parametrize(
    ("expr", "low"),
    [
        (te.var("n") * te.var("m"), 0),
        ((te.var("n") + 3) * (te.var("n") + 2), 6),
        ((te.var("n") - 5) * te.var("m"), None),
        (te.var("n") - te.var("m"), None),
        ((te.var("n") + te.var("b") - 1) // te.var("b"), 0),
        ((te.var("n") - 1) // te.var("b"), None),
        (te.var("n") % te.var("m"), 0),
    ],
)
def test_only_what_cannot_be_negative_counts_so(expr: Expr, low: int | None) -> None:
    assert least(expr) == low


def test_a_product_is_one_size_however_it_is_written() -> None:
    n, m = te.var("n"), te.var("m")
    namer = Namer(frozenset({"n", "m"}))
    assert namer.parameter(n * (8 + (n - 1))) == namer.parameter((n + 7) * n)
    assert namer.parameter(m * n) == namer.parameter(n * m)
    assert len(namer.parameters) == 2


def test_skewed_loops_of_any_size_fused_twice() -> None:
    """One bound has the product as the steps wrote it, another as it was simplified."""
    n = te.var("n")
    C = te.compute((n, 8), lambda i, j: i + j, name="C")
    s = te.create_schedule(C.op)
    s["C"].skew("j", by="i", factor=1)
    s["C"].fuse(*s["C"].split(s["C"].fuse("i", "j_s"), factor=3))
    assert "in range(n * (n + 7))" in str(lower(s, [C]))
