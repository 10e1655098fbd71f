"""`tvm.arith` and hashes of expressions: what is proven holds, and what does not hold is not proven."""

from __future__ import annotations

import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

import tensorlang as tvm
from tensorlang import te
from tensorlang.errors import DefinitionError
from tensorlang.te.arith import Analyzer, ConstIntBound


def bound() -> tuple[Analyzer, te.Var, te.Var]:
    analyzer, i, n = Analyzer(), te.var("i"), te.var("n")
    analyzer.bind(i, te.Range.from_min_extent(0, 16))
    return analyzer, i, n


def test_expressions_are_simplified_within_ranges() -> None:
    analyzer, i, n = bound()
    assert str(analyzer.simplify((n * 16 + i) // 16)) == "n" and str(analyzer.simplify((n * 16 + i) % 16)) == "i"
    assert str(analyzer.rewrite_simplify(n + 3 - n)) == "3"
    assert str(analyzer.canonical_simplify(i * 3 - i - i)) == "i"
    analyzer.bind(n, 5)
    assert str(analyzer.simplify(n * 2)) == "10"


def test_conditions_are_proven_or_not() -> None:
    analyzer, i, n = bound()
    assert analyzer.can_prove(i < 16) and not analyzer.can_prove(i < 15) and not analyzer.can_prove(n > 0)
    assert analyzer.can_prove_equal(i + n - i, n) and not analyzer.can_prove_equal(i, n)
    assert analyzer.can_prove_greater_equal(i + 3, 3) and not analyzer.can_prove_greater_equal(i, 1)
    assert analyzer.can_prove_less(i // 4, 4) and not analyzer.can_prove_less(i // 4, 3)
    with analyzer.constraint_scope(n >= 8):
        assert analyzer.can_prove(n + i >= 8)
    assert not analyzer.can_prove(n + i >= 8)


def test_ranges_may_be_of_variables() -> None:
    analyzer, _, n = bound()
    j = te.var("j")
    analyzer.bind(j, te.Range.from_min_extent(n, 4))
    assert analyzer.can_prove(j - n < 4) and analyzer.can_prove(j >= n) and not analyzer.can_prove(j > n)


def test_bounds_of_expressions() -> None:
    analyzer, i, n = bound()
    assert analyzer.const_int_bound(i * 2 - 1) == ConstIntBound(-1, 29)
    analyzer.update(n, ConstIntBound(-3, 4))
    assert analyzer.const_int_bound(n + i) == ConstIntBound(-3, 19)
    analyzer.update(n, ConstIntBound(0, 9))
    assert analyzer.const_int_bound(n) == ConstIntBound(0, 4)
    analyzer.update(n, ConstIntBound(0, 9), override=True)
    assert analyzer.const_int_bound(n) == ConstIntBound(0, 9)
    assert analyzer.const_int_bound(te.var("m", "int64")) == ConstIntBound(ConstIntBound.NEG_INF, ConstIntBound.POS_INF)
    with pytest.raises(DefinitionError, match="takes an expression of integers, got float32"):
        analyzer.const_int_bound(te.var("x", "float32") + 1)
    with pytest.raises(DefinitionError, match="bind takes a variable, got i \\+ 1"):
        analyzer.bind(i + 1, 3)  # type: ignore[arg-type]


@given(st.integers(1, 9), st.integers(1, 9), st.integers(-9, 9), st.integers(-40, 40))
def test_what_is_proven_holds_everywhere(extent: int, by: int, plus: int, limit: int) -> None:
    analyzer, i = Analyzer(), te.var("i")
    analyzer.bind(i, te.Range.from_min_extent(0, extent))
    found = analyzer.const_int_bound((i * 3 + plus) // by)
    values = [(k * 3 + plus) // by for k in range(extent)]
    assert found.min_value <= min(values) and max(values) <= found.max_value
    if analyzer.can_prove((i * 3 + plus) // by < limit):
        assert max(values) < limit


def test_hashes_are_those_of_trees() -> None:
    a, b = te.var("a"), te.var("b")
    shared = a + b
    same, other = (a + b) * (a + b), (a + b) * (a - b)
    assert tvm.ir.structural_hash(shared * shared) == tvm.ir.structural_hash(same) != tvm.ir.structural_hash(other)
    assert tvm.ir.structural_hash(te.const(1, "int32")) != tvm.ir.structural_hash(te.const(1, "int64"))
    assert tvm.ir.structural_hash([a, 1]) != tvm.ir.structural_hash([a, 2]) != tvm.ir.structural_hash([a])
    program = "from tensorlang import ir, te; n = te.var('n'); print(ir.structural_hash(n * 2 + 1))"
    there = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
    n = te.var("n")
    assert int(there) == tvm.ir.structural_hash(n * 2 + 1)
