"""Deep expressions become Lets: of few levels, in order, and evaluated only where the program says."""

from __future__ import annotations

import numpy as np
import pytest

from tensorlang.ir import construct as ir
from tensorlang.ir.expr import Const, Expr, Select, Var, const, select
from tensorlang.ir.interpret import evaluate
from tensorlang.ir.name_parts import MOST, name_parts
from tensorlang.ir.stmt import Kernel, Let, Store, stmt_exprs, walk
from tensorlang.ir.verify import verify
from tensorlang.target.interpreter.backend import InterpreterBackend
from tensorlang.target.spec import Target

(i,) = ir.indices("i")
A, C, B = ir.array("A", [8]), ir.array("C", [8], "int64"), ir.array("B", [8])


def kernel(value: Expr) -> Kernel:
    """`B[i] = value` for all eight elements."""
    return ir.kernel("f", [A, C, B], "B", ir.loop(i, 0, 8, ir.store(B, i, value)))


def results(made: Kernel, inputs: list[np.ndarray]) -> np.ndarray:
    """What a kernel writes, as the interpreter runs it."""
    verify(made)
    out = np.zeros(8, np.float32)
    InterpreterBackend().compile(made, Target("interpreter"))(*inputs, out)
    return out


def test_what_is_not_deep_stays_as_it_is() -> None:
    value: Expr = ir.load(A, i)
    for _ in range(MOST - 2):
        value = value + 1.0
    given = kernel(value)
    assert name_parts(given) is given


def test_parts_have_few_levels_and_sums_keep_their_order() -> None:
    value: Expr = ir.load(A, i)
    for n in range(300):
        value = value + const(1.0 + n / 7, "float32")
    made = name_parts(kernel(value))
    assert all(e.levels <= MOST for e in stmt_exprs(made.body))
    lets = [s for s in walk(made.body) if isinstance(s, Let)]
    assert [let.var.name for let in lets] == [f"part.{n}" for n in range(6)]
    assert all(str(let.value).startswith(f"part.{n} + ") for n, let in enumerate(lets[1:]))


def test_a_store_is_still_the_operation_that_it_was() -> None:
    value: Expr = ir.load(A, i)
    for _ in range(MOST * 3):
        value = value * 2.0
    (store,) = (s for s in walk(name_parts(kernel(ir.load(B, i) + value)).body) if isinstance(s, Store))
    assert str(store.value).startswith("B[i] + ")


@pytest.mark.parametrize("inside", ["then", "orelse", "and", "or"])
def test_memory_is_read_only_where_it_was(inside: str) -> None:
    index, zero = ir.load(C, i), Const(0, "int64")
    deep: Expr = ir.load(A, index)  # out of bounds where the index is negative
    for _ in range(200):
        deep = deep * 1.0 + 0.0
    positive, negative = index >= zero, index < zero
    value: Select = {
        "then": select(positive, deep, -1.0),
        "orelse": select(negative, -1.0, deep),
        "and": select(positive & (deep > -10.0), ir.load(A, select(positive, index, zero)), -1.0),
        "or": select(negative | (deep < -10.0), -1.0, ir.load(A, select(positive, index, zero))),
    }[inside]
    a, where = np.arange(8, dtype=np.float32), np.array([3, -9, 0, -1, 7, 7, -(2**40), 2])
    wanted = np.where(where >= 0, a[np.maximum(where, 0) % 8], -1)
    made = name_parts(kernel(value))
    assert any(isinstance(s, Let) for s in walk(made.body))
    assert np.array_equal(results(made, [a, where]), wanted)


def test_choices_nest_hundreds_deep() -> None:
    value: Expr = ir.load(A, i)
    for n in range(300):
        value = select(ir.load(A, i) > float(n), ir.load(A, i) * float(n), value)
    made = name_parts(kernel(value))
    assert all(e.levels <= MOST for e in stmt_exprs(made.body))
    a = np.array([-1, 0, 0.5, 1.5, 7.5, 40.5, 250.5, 1000], np.float32)
    last = np.ceil(a) - 1
    wanted = np.where(a > 0, a * np.minimum(last, 299), a).astype(np.float32)
    assert np.array_equal(results(made, [a, np.zeros(8, np.int64)]), wanted)


def test_one_expression_is_evaluated_by_its_parts() -> None:
    x = Var("x", "int32")
    value: Expr = x
    for _ in range(500):
        value = value * 3 + 1
    with np.errstate(over="ignore"):
        wanted = np.int32(5)
        for _ in range(500):
            wanted = wanted * np.int32(3) + np.int32(1)
    assert evaluate(value, {x: 5}) == wanted
