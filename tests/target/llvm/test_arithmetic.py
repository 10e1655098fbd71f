"""Every operation on every dtype, on edge values, scalar and vector: what NumPy gives."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from tensorlang import dtypes
from tensorlang.ir.construct import array, indices, load, loop, store
from tensorlang.ir.expr import Binary, Expr, Unary, cast
from tensorlang.ir.stmt import Kernel, LoopKind
from tensorlang.runtime.executable import Executable

Compile = Callable[..., Executable]
Array = np.ndarray[Any, Any]

INTEGERS = [d.name for d in dtypes.TABLE.values() if d.is_integer]
FLOATS = [d.name for d in dtypes.TABLE.values() if d.is_float]
KINDS = [LoopKind.SERIAL, LoopKind.VECTORIZED]
(AT,) = indices("i")


def _edge_values(dtype: str) -> list[Any]:
    d = dtypes.info(dtype)
    if d.kind == "bool":
        return [False, True]
    if d.is_float:
        tiny, large = float(ml_dtypes.finfo(d.numpy).tiny), float(ml_dtypes.finfo(d.numpy).max)
        plain = [0.0, -0.0, 1.0, -1.0, 2.5, -2.5, 0.1, -7.3, 5.0, 100.0, tiny, large, -large]
        return [*plain, float("inf"), float("-inf"), float("nan")]
    low, high = (int(v) for v in dtypes.limits(dtype))
    near = [0, 1, 2, 3, 7, d.bits - 1, d.bits, d.bits + 1, high, high - 1, low, low + 1, -1, -2, -3, -7]
    return [v for v in dict.fromkeys(near) if low <= v <= high]


def _assert_equal(actual: Array, expected: Array, err_msg: str = "") -> None:
    """Equal dtype and values; NaN equals NaN (which NumPy's check does not know of ml_dtypes)."""
    assert actual.dtype == expected.dtype, err_msg
    if dtypes.info(actual.dtype.name).is_extension:
        actual, expected = actual.astype(np.float32), expected.astype(np.float32)
    np.testing.assert_array_equal(actual, expected, err_msg=err_msg)


def _pairs(dtype: str) -> tuple[Array, Array]:
    values = np.array(_edge_values(dtype), dtypes.info(dtype).numpy)
    a, b = np.meshgrid(values, values, indexing="ij")
    return a.ravel(), b.ravel()


def _apply(compiled: Compile, kind: LoopKind, body: Callable[..., Expr], result: str, *inputs: Array) -> Array:
    """Compute `body(elements...)` at every index."""
    size = len(inputs[0])
    buffers = [array(f"in{n}", (size,), dtypes.canonical(a.dtype)) for n, a in enumerate(inputs)]
    out = array("out", (size,), result)
    statement = store(out, AT, body(*(load(b, AT) for b in buffers)))
    kernel = Kernel("apply", (*buffers, out), (), ("out",), loop(AT, 0, size, statement, kind))
    values = np.zeros(size, dtypes.info(result).numpy)
    compiled(kernel)(*inputs, values)
    return values


def _numpy_binary(op: str, a: Array, b: Array) -> Array:
    bits = dtypes.info(dtypes.canonical(a.dtype)).bits
    if op in ("shl", "shr"):
        return (np.left_shift if op == "shl" else np.right_shift)(a, b)
    if op == "truncdiv" and a.dtype.kind in "iu":
        quotient = [0 if y == 0 else abs(x) // abs(y) * (-1 if (x < 0) != (y < 0) else 1) for x, y in _ints(a, b)]
        return np.array([q % 2**bits for q in quotient], f"u{bits // 8}").view(a.dtype)
    functions: dict[str, Callable[..., Any]] = {
        "add": np.add, "sub": np.subtract, "mul": np.multiply, "div": np.divide, "floordiv": np.floor_divide,
        "floormod": np.remainder, "truncmod": np.fmod, "truncdiv": lambda x, y: np.trunc(np.divide(x, y)),
        "min": np.minimum, "max": np.maximum, "bitand": np.bitwise_and, "bitor": np.bitwise_or,
        "bitxor": np.bitwise_xor, "eq": np.equal, "ne": np.not_equal, "lt": np.less, "le": np.less_equal,
        "gt": np.greater, "ge": np.greater_equal,
    }  # fmt: skip
    return np.asarray(functions[op](a, b))


def _ints(a: Array, b: Array) -> list[tuple[int, int]]:
    return [(int(x), int(y)) for x, y in zip(a, b, strict=True)]


_ARITHMETIC = ["add", "sub", "mul", "floordiv", "floormod", "truncdiv", "truncmod", "min", "max"]
_BITS = ["bitand", "bitor", "bitxor", "shl", "shr"]
_TESTS = ["eq", "ne", "lt", "le", "gt", "ge"]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dtype", INTEGERS)
def test_integers(compiled: Compile, dtype: str, kind: LoopKind) -> None:
    a, b = _pairs(dtype)
    for op in (*_ARITHMETIC, *_BITS, *_TESTS):
        result = "bool" if op in _TESTS else dtype
        actual = _apply(compiled, kind, lambda x, y, op=op, r=result: Binary(op, x, y, r), result, a, b)
        with np.errstate(all="ignore"):
            _assert_equal(actual, _numpy_binary(op, a, b), err_msg=op)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dtype", FLOATS)
def test_floats(compiled: Compile, dtype: str, kind: LoopKind) -> None:
    a, b = _pairs(dtype)
    for op in ("div", *_ARITHMETIC, *_TESTS):
        result = "bool" if op in _TESTS else dtype
        actual = _apply(compiled, kind, lambda x, y, op=op, r=result: Binary(op, x, y, r), result, a, b)
        with np.errstate(all="ignore"):
            _assert_equal(actual, _float_reference(op, a, b), err_msg=op)


def _float_reference(op: str, a: Array, b: Array) -> Array:
    """In float32 and rounded once for half precision."""
    if op in _TESTS or dtypes.info(dtypes.canonical(a.dtype)).bits > 16:
        return _numpy_binary(op, a, b)
    return _numpy_binary(op, a.astype(np.float32), b.astype(np.float32)).astype(a.dtype)


@pytest.mark.parametrize("divisor", [1, -1, 2, -2, 3, -3, 8, 64, 100, -128])
@pytest.mark.parametrize("dtype", ["int8", "int32", "int64", "uint8", "uint64"])
def test_division_by_constants(compiled: Compile, dtype: str, divisor: int) -> None:
    low, high = dtypes.limits(dtype)
    if not low <= divisor <= high:
        divisor = -divisor % 128
    a = np.array(_edge_values(dtype), dtypes.info(dtype).numpy)
    b = np.full_like(a, divisor)
    for op in ("floordiv", "floormod", "truncdiv", "truncmod"):
        for kind in KINDS:
            actual = _apply(compiled, kind, lambda x, op=op: Binary(op, x, _const(divisor, dtype), dtype), dtype, a)
            with np.errstate(all="ignore"):
                _assert_equal(actual, _numpy_binary(op, a, b), err_msg=f"{op} {kind}")


def _const(value: int, dtype: str) -> Expr:
    return cast(np.dtype(dtypes.info(dtype).numpy).type(value), dtype)


@pytest.mark.parametrize("kind", KINDS)
def test_unary(compiled: Compile, kind: LoopKind) -> None:
    for dtype in (*INTEGERS, *FLOATS):
        a = np.array(_edge_values(dtype), dtypes.info(dtype).numpy)
        actual = _apply(compiled, kind, lambda x, d=dtype: Unary("neg", x, d), dtype, a)
        _assert_equal(actual, np.negative(a), err_msg=dtype)
    for dtype in INTEGERS:
        a = np.array(_edge_values(dtype), dtypes.info(dtype).numpy)
        _assert_equal(_apply(compiled, kind, lambda x: ~x, dtype, a), ~a, err_msg=dtype)
    bits = np.array([True, False])
    _assert_equal(_apply(compiled, kind, lambda x: ~x, "bool", bits), ~bits)


@pytest.mark.parametrize("kind", KINDS)
def test_bools(compiled: Compile, kind: LoopKind) -> None:
    a, b = _pairs("bool")
    for op, function in (("and", np.logical_and), ("or", np.logical_or), ("min", np.minimum), ("max", np.maximum)):
        actual = _apply(compiled, kind, lambda x, y, op=op: Binary(op, x, y, "bool"), "bool", a, b)
        _assert_equal(actual, function(a, b), err_msg=op)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("source", list(dtypes.TABLE))
def test_casts(compiled: Compile, source: str, kind: LoopKind) -> None:
    for target in dtypes.TABLE:
        a = _castable(source, target)
        actual = _apply(compiled, kind, lambda x, t=target: cast(x, t), target, a)
        with np.errstate(all="ignore"):
            _assert_equal(actual, a.astype(dtypes.info(target).numpy), err_msg=target)


def _castable(source: str, target: str) -> Array:
    """Edge values, and values that test rounding; for floats to integers those that C defines."""
    values = _edge_values(source)
    s, t = dtypes.info(source), dtypes.info(target)
    if s.bits > 16 and s.kind != "bool":
        values += [2049, 2051, 16777217 % 2**31, 65519, 33825, 1000001]
    if s.is_float and s.bits == 64:
        values += [1 + 2.0**-11 + 2.0**-40, 1 + 2.0**-12, 65519.999999999, 2.0**-25 * (1 + 2.0**-40), 1e300]
    a = np.array(values, s.numpy)
    if s.is_float and t.is_integer:
        wide = a.astype(np.float64)
        low, high = (float(v) for v in dtypes.limits(target))
        a = a[np.isfinite(wide) & (wide > low - 1) & (wide < high)]
    return a


def test_floats_out_of_range_become_defined_integers(compiled: Compile) -> None:
    a = np.array([np.nan, np.inf, -np.inf, 1e10, -1e10, -1.0, 300.5], np.float32)
    low, high = -(2**31), 2**31 - 1
    for kind in KINDS:
        actual = {
            t: _apply(compiled, kind, lambda x, t=t: cast(x, t), t, a).tolist() for t in ("int32", "uint8", "uint32")
        }
        assert actual["int32"] == [0, high, low, high, low, -1, 300]
        assert actual["uint8"] == [0, 255, 0, 255, 0, 0, 255]
        assert actual["uint32"] == [0, 2**32 - 1, 0, 2**32 - 1, 0, 0, 300]
