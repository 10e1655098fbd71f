"""The interpreter: NumPy's values, checked accesses, orders of parallel loops."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tensorlang import dtypes
from tensorlang.errors import InternalError, KernelError
from tensorlang.ir import intrinsics
from tensorlang.ir.construct import array, indices, kernel, load, loop, store
from tensorlang.ir.expr import Binary, Call, Cast, Const, Expr, Select, Unary, Var, cast
from tensorlang.ir.interpret import evaluate, run, translate
from tensorlang.ir.operators import BITWISE, COMPARE
from tensorlang.ir.stmt import Allocate, CallPython, Fail, If, Kernel, Let, LoopKind, Seq, Stmt

INTEGERS = [d.name for d in dtypes.TABLE.values() if d.is_integer]
FLOATS = [d.name for d in dtypes.TABLE.values() if d.is_float]
i, j, n = indices("i j n")
NUMPY = {
    "add": np.add, "sub": np.subtract, "mul": np.multiply, "floordiv": np.floor_divide, "floormod": np.remainder,
    "truncmod": np.fmod, "min": np.minimum, "max": np.maximum, "bitand": np.bitwise_and, "bitor": np.bitwise_or,
    "bitxor": np.bitwise_xor, "shl": np.left_shift, "shr": np.right_shift, "div": np.true_divide,
    "eq": np.equal, "ne": np.not_equal, "lt": np.less, "le": np.less_equal, "gt": np.greater, "ge": np.greater_equal,
}  # fmt: skip


def numpy_value(op: str, a: Any, b: Any, dtype: str) -> Any:
    storage = dtypes.info(dtype).numpy
    with np.errstate(all="ignore"):
        return NUMPY[op](np.array([a], storage), np.array([b], storage))[0]


def integers(dtype: str) -> st.SearchStrategy[int]:
    low, high = (int(x) for x in dtypes.limits(dtype))
    near = [low, low + 1, high, high - 1, 0, 1, 2, 3, 7, 8, 31, 32, 63, 64]
    return st.sampled_from(near + ([-1, -2, -7] if low < 0 else [])) | st.integers(low, high)


@settings(max_examples=10 * settings().max_examples)
@given(st.data())
def test_integer_operations_are_numpys(data: st.DataObject) -> None:
    dtype = data.draw(st.sampled_from(INTEGERS))
    op = data.draw(st.sampled_from([o for o in NUMPY if o != "div"]))
    a, b = data.draw(integers(dtype)), data.draw(integers(dtype))
    x, y = Var("x", dtype), Var("y", dtype)
    expr = Binary(op, x, y, "bool" if op in COMPARE else dtype)
    wanted = int(numpy_value(op, a, b, dtype))
    assert int(evaluate(expr, {x: a, y: b})) == wanted
    known = Binary(op, x, Const(b, dtype), expr.dtype)
    assert int(evaluate(known, {x: a})) == wanted


@given(st.data())
def test_truncating_division_rounds_towards_zero(data: st.DataObject) -> None:
    dtype = data.draw(st.sampled_from([d for d in INTEGERS if d != "uint64"]))
    a, b = data.draw(integers(dtype)), data.draw(integers(dtype))
    x, y = Var("x", dtype), Var("y", dtype)
    quotient = evaluate(Binary("truncdiv", x, y, dtype), {x: a, y: b})
    remainder = evaluate(Binary("truncmod", x, y, dtype), {x: a, y: b})
    if b == 0:
        assert (quotient, remainder) == (0, 0)
        return
    low, high = dtypes.limits(dtype)
    exact = abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)
    assert quotient == (exact if low <= exact <= high else low)
    assert remainder == a - exact * b


@settings(max_examples=4 * settings().max_examples)
@given(st.data())
def test_float_operations_round_in_their_dtype(data: st.DataObject) -> None:
    dtype = data.draw(st.sampled_from(FLOATS))
    ops = [o for o in NUMPY if o not in BITWISE and o not in ("floordiv", "floormod")]
    op = data.draw(st.sampled_from(ops))
    storage = dtypes.info(dtype).numpy
    values = st.floats(width=32) | st.sampled_from([0.0, -0.0, 1.0, float("inf"), float("nan"), 1e-8, 3e38])
    with np.errstate(all="ignore"):
        a, b = (np.array([data.draw(values)]).astype(storage)[0] for _ in range(2))
    x, y = Var("x", dtype), Var("y", dtype)
    result = evaluate(Binary(op, x, y, "bool" if op in COMPARE else dtype), {x: a, y: b})
    # The sign of the smaller of two zeros is nobody's promise.
    np.testing.assert_array_equal(np.float64(result), np.float64(numpy_value(op, a, b, dtype)))


@settings(max_examples=4 * settings().max_examples)
@given(st.data())
def test_casts_are_numpys(data: st.DataObject) -> None:
    source = data.draw(st.sampled_from([*INTEGERS, "bool", *FLOATS]))
    target = data.draw(st.sampled_from([*INTEGERS, "bool", *FLOATS]))
    if dtypes.info(source).is_float:
        # Where an integer dtype cannot hold the value, the platform decides.
        limit = 100 if dtypes.info(target).is_integer else 60000
        value: Any = dtypes.info(source).numpy.type(data.draw(st.floats(0, limit, width=32)))
    else:
        value = data.draw(integers(source)) if source != "bool" else data.draw(st.booleans())
    x = Var("x", source)
    with np.errstate(all="ignore"):
        wanted = np.array([value], dtypes.info(source).numpy).astype(dtypes.info(target).numpy)[0]
    if source != target:
        np.testing.assert_equal(np.float64(evaluate(Cast(x, target), {x: value})), np.float64(wanted))


@pytest.mark.parametrize(
    "name", sorted(n for n, row in intrinsics.TABLE.items() if row.family not in ("pattern", "table"))
)
def test_intrinsics_come_from_the_table(name: str) -> None:
    row = intrinsics.TABLE[name]
    dtype = "int32" if row.family == "bits" else "float32"
    storage = dtypes.info(dtype).numpy
    operands = [3, 2, 5] if row.family == "bits" else [0.5, 0.25, 2.0]
    given = [storage.type(v) for v in operands[: row.arity]]
    variables = [Var(f"x{n}", dtype) for n in range(row.arity)]
    call = Call(name, tuple(variables), row.result(dtype))
    plain = [v.item() if row.family == "bits" else v for v in given]
    with np.errstate(all="ignore"):
        np.testing.assert_equal(evaluate(call, dict(zip(variables, plain, strict=True))), row.numpy(*given))


def test_float32_sums_round_at_every_step() -> None:
    x = Var("x", "float32")
    total: Expr = x
    for _ in range(3):
        total = total + 1.0
    assert evaluate(total, {x: np.float32(2**24)}) == np.float32(2**24)


def test_a_branch_not_taken_reads_nothing() -> None:
    a, b = array("A", (n,)), array("B", (n,))
    outside = Select(i < n - 1, load(a, i + 1), Const(-1.0, "float32"), "float32")
    out = np.zeros(3, np.float32)
    run(kernel("k", [a, b], "B", loop(i, 0, n, store(b, i, outside)), [n]), {"A": np.arange(3.0), "B": out}, {"n": 3})
    assert out.tolist() == [1, 2, -1]


def test_conditions_stop_early() -> None:
    a, b = array("A", (n,)), array("B", (n,))
    guarded = If(Binary("and", i < n - 1, load(a, i + 1) > 0.0, "bool"), store(b, i, 1.0))
    out = np.zeros(2, np.float32)
    run(kernel("k", [a, b], "B", loop(i, 0, n, guarded), [n]), {"A": np.ones(2, np.float32), "B": out}, {"n": 2})
    assert out.tolist() == [1, 0]


@pytest.mark.parametrize(
    ("where", "message"), [(3, r"read A\[3\], outside its shape \(3,\)"), (-1, r"read A\[-1\], outside")]
)
def test_reads_outside_are_found(where: int, message: str) -> None:
    a, b = array("A", (n,)), array("B", (n,))
    body = store(b, 0, load(a, where))
    with pytest.raises(InternalError, match=message):
        run(kernel("k", [a, b], "B", body, [n]), {"A": np.zeros(3), "B": np.zeros(3)}, {"n": 3})


def test_writes_outside_are_found() -> None:
    b = array("B", (2, 2))
    with pytest.raises(InternalError, match=r"write B\[0, 2\], outside its shape \(2, 2\)"):
        run(kernel("k", [b], "B", loop(j, 0, 3, store(b, (0, j), 1.0))), {"B": np.zeros((2, 2))})


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "int32", "int64", "uint8"])
def test_scratch_starts_unlike_any_result(dtype: str) -> None:
    b, scratch = array("B", (1,), dtype), array("scratch", (2,), dtype, "local")
    out = np.zeros(1, dtypes.info(dtype).numpy)
    run(kernel("k", [b], "B", Allocate(scratch, store(b, 0, load(scratch, 1)))), {"B": out})
    assert np.isnan(out.astype(np.float64)[0]) or bytes(out) == b"\xa5" * out.itemsize


def test_scratch_is_fresh_in_every_iteration() -> None:
    b, scratch = array("B", (3,)), array("scratch", (1,), scope="local")
    body = Allocate(scratch, Seq((store(b, i, load(scratch, 0)), store(scratch, 0, 1.0))))
    out = np.zeros(3, np.float32)
    run(kernel("k", [b], "B", loop(i, 0, 3, body)), {"B": out})
    assert np.isnan(out).all()


def racy() -> Kernel:
    """A kernel whose parallel loop is not parallel: it writes down who came last."""
    b, log = array("B", (1,), "int64"), array("L", (8,), "int64")
    body = Seq((store(log, load(b, 0), i), store(b, 0, load(b, 0) + 1)))
    return kernel("racy", [b, log], "B L", loop(i, 0, 8, body, LoopKind.PARALLEL))


def order_of(**options: Any) -> list[int]:
    log = np.zeros(8, np.int64)
    run(racy(), {"B": np.zeros(1, np.int64), "L": log}, **options)
    return log.tolist()


def test_orders_of_parallel_loops() -> None:
    assert order_of() == list(range(8))
    assert order_of(order="reversed") == list(range(7, -1, -1))
    shuffled = order_of(order="shuffled", seed=1)
    assert sorted(shuffled) == list(range(8))
    assert shuffled != list(range(8))
    assert shuffled == order_of(order="shuffled", seed=1)
    assert shuffled != order_of(order="shuffled", seed=2)
    with pytest.raises(ValueError, match="sideways"):
        order_of(order="sideways")


def test_the_first_fault_is_raised_when_the_kernel_is_done() -> None:
    b = array("B", (1,))
    body = Seq((Fail("first"), Fail("second"), store(b, 0, 1.0)))
    out = np.zeros(1, np.float32)
    with pytest.raises(KernelError, match="first"):
        run(kernel("k", [b], "B", body), {"B": out})
    assert out[0] == 1.0


def test_python_functions_get_whole_arrays() -> None:
    a, b = array("A", (n,)), array("B", (n,))

    def twice(x: Any, y: Any) -> None:
        y[...] = 2 * x

    body = CallPython("twice", (a, b))
    called = Kernel("k", (a, b), (n,), ("B",), body, (("twice", twice),))
    out = np.zeros(3, np.float32)
    run(called, {"A": np.arange(3, dtype=np.float32), "B": out}, {"n": 3})
    assert out.tolist() == [0, 2, 4]
    with pytest.raises(InternalError, match="not among its callbacks"):
        translate(kernel("k", [a, b], "B", body, [n]))


def test_lets_are_evaluated_once() -> None:
    b = array("B", (1,), "int32")
    before = Var("C.new", "int32")
    body = Let(before, load(b, 0), Seq((store(b, 0, 5), store(b, 0, before + load(b, 0)))))
    out = np.array([3], np.int32)
    run(kernel("k", [b], "B", body), {"B": out})
    assert out[0] == 8


def test_deep_nests() -> None:
    variables = indices(" ".join(f"i{n}" for n in range(30)))
    b = array("B", (1,), "int64")
    stmt: Stmt = store(b, 0, load(b, 0) + variables[0] + variables[-1])
    for n, var in reversed(list(enumerate(variables))):
        stmt = loop(var, 0, 2 if n in (0, 15, 29) else 1, stmt)
    out = np.zeros(1, np.int64)
    run(kernel("k", [b], "B", stmt), {"B": out})
    assert out[0] == 8


@pytest.mark.parametrize("dtype", [*INTEGERS, *FLOATS, "bool"])
def test_every_dtype_is_stored_and_loaded(dtype: str) -> None:
    storage = dtypes.info(dtype).numpy
    a, b = array("A", (n,), dtype), array("B", (n,), dtype)
    given = np.array([0, 1, 1, 0]).astype(storage)
    out = np.zeros(4, storage)
    run(kernel("k", [a, b], "B", loop(i, 0, n, store(b, n - 1 - i, load(a, i))), [n]), {"A": given, "B": out}, {"n": 4})
    np.testing.assert_array_equal(out, given[::-1])


def test_unknown_variables_are_our_mistake() -> None:
    b = array("B", (1,), "int64")
    with pytest.raises(InternalError, match="variable i outside its scope"):
        translate(kernel("k", [b], "B", store(b, 0, i)))


def test_matmul() -> None:
    i, j, k = indices("i j k")
    a, b, c = (array(name, (5, 5)) for name in "ABC")
    update = store(c, (i, j), load(c, i, j) + load(a, i, k) * load(b, k, j))
    body = loop(i, 0, 5, loop(j, 0, 5, [store(c, (i, j), 0.0), loop(k, 0, 5, update)]), LoopKind.PARALLEL)
    x, y = (np.random.default_rng(n).integers(-5, 5, (5, 5)).astype(np.float32) for n in range(2))
    out = np.zeros((5, 5), np.float32)
    run(kernel("mm", [a, b, c], "C", body), {"A": x, "B": y, "C": out})
    np.testing.assert_array_equal(out, x @ y)


def test_bool_and_unary_operations() -> None:
    x, flag = Var("x", "int8"), Var("flag", "bool")
    assert evaluate(Unary("neg", x, "int8"), {x: -128}) == -128
    assert evaluate(Unary("invert", x, "int8"), {x: 5}) == -6
    assert evaluate(~flag, {flag: True}) is False
    assert evaluate(cast(flag, "int32") + 1, {flag: True}) == 2
    assert all(evaluate(Binary("max", flag, flag, "bool"), {flag: f}) is f for f in (True, False))
