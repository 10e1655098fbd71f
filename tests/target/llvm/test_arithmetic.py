"""Every operation on every dtype, on edge values, scalar and vector: what NumPy gives."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from tensorlang import dtypes
from tensorlang.ir.construct import array, indices, load, loop, store
from tensorlang.ir.expr import Binary, Buffer, Expr, Unary, cast
from tensorlang.ir.stmt import Kernel, LoopKind, Seq, Stmt
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


@dataclass(frozen=True, slots=True)
class Loop:
    """`body` of an element of each input, at every index."""

    body: Callable[..., Expr]
    inputs: tuple[Array, ...]
    kind: LoopKind


def _results(compiled: Compile, loops: Mapping[str, Loop]) -> dict[str, Array]:
    """What loops compute, by name: all of one kernel."""
    inputs: dict[int, tuple[Buffer, Array]] = {}
    outputs: list[tuple[Buffer, Array]] = []
    statements: list[Stmt] = []
    for n, one in enumerate(loops.values()):
        size = len(one.inputs[0])
        for a in one.inputs:
            inputs.setdefault(id(a), (array(f"in{len(inputs)}", (size,), dtypes.canonical(a.dtype)), a))
        made = one.body(*(load(inputs[id(a)][0], AT) for a in one.inputs))
        out = array(f"out{n}", (size,), made.dtype)
        outputs.append((out, np.zeros(size, dtypes.info(out.dtype).numpy)))
        statements.append(loop(AT, 0, size, store(out, AT, made), one.kind))
    arguments = [*inputs.values(), *outputs]
    written = tuple(out.name for out, _ in outputs)
    kernel = Kernel("apply", tuple(b for b, _ in arguments), (), written, Seq(tuple(statements)))
    compiled(kernel)(*(values for _, values in arguments))
    return {name: values for name, (_, values) in zip(loops, outputs, strict=True)}


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


def _binary(op: str, dtype: str) -> Callable[[Expr, Expr], Expr]:
    return lambda x, y: Binary(op, x, y, "bool" if op in _TESTS else dtype)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dtype", INTEGERS)
def test_integers(compiled: Compile, dtype: str, kind: LoopKind) -> None:
    pairs = _pairs(dtype)
    found = _results(compiled, {op: Loop(_binary(op, dtype), pairs, kind) for op in (*_ARITHMETIC, *_BITS, *_TESTS)})
    for op, actual in found.items():
        with np.errstate(all="ignore"):
            _assert_equal(actual, _numpy_binary(op, *pairs), err_msg=op)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dtype", FLOATS)
def test_floats(compiled: Compile, dtype: str, kind: LoopKind) -> None:
    pairs = _pairs(dtype)
    found = _results(compiled, {op: Loop(_binary(op, dtype), pairs, kind) for op in ("div", *_ARITHMETIC, *_TESTS)})
    for op, actual in found.items():
        with np.errstate(all="ignore"):
            _assert_equal(actual, _float_reference(op, *pairs), err_msg=op)


def _float_reference(op: str, a: Array, b: Array) -> Array:
    """In float32 and rounded once for half precision."""
    if op in _TESTS or dtypes.info(dtypes.canonical(a.dtype)).bits > 16:
        return _numpy_binary(op, a, b)
    return _numpy_binary(op, a.astype(np.float32), b.astype(np.float32)).astype(a.dtype)


@pytest.mark.sampled(8)
@pytest.mark.parametrize("divisor", [1, -1, 2, -2, 3, -3, 8, 64, 100, -128])
@pytest.mark.parametrize("dtype", ["int8", "int32", "int64", "uint8", "uint64"])
def test_division_by_constants(compiled: Compile, dtype: str, divisor: int) -> None:
    low, high = dtypes.limits(dtype)
    if not low <= divisor <= high:
        divisor = -divisor % 128
    a = np.array(_edge_values(dtype), dtypes.info(dtype).numpy)
    b = np.full_like(a, divisor)
    ops = ("floordiv", "floormod", "truncdiv", "truncmod")
    loops = {f"{op} {kind}": Loop(_by_constant(op, divisor, dtype), (a,), kind) for op in ops for kind in KINDS}
    for name, actual in _results(compiled, loops).items():
        with np.errstate(all="ignore"):
            _assert_equal(actual, _numpy_binary(name.split()[0], a, b), err_msg=name)


def _by_constant(op: str, divisor: int, dtype: str) -> Callable[[Expr], Expr]:
    return lambda x: Binary(op, x, _const(divisor, dtype), dtype)


def _const(value: int, dtype: str) -> Expr:
    return cast(np.dtype(dtypes.info(dtype).numpy).type(value), dtype)


@pytest.mark.parametrize("kind", KINDS)
def test_unary(compiled: Compile, kind: LoopKind) -> None:
    for dtype in (*INTEGERS, *FLOATS, "bool"):
        a = np.array(_edge_values(dtype), dtypes.info(dtype).numpy)
        operators: dict[str, Callable[[Any], Any]] = {} if dtype == "bool" else {"neg": operator.neg}
        operators |= {} if dtype in FLOATS else {"invert": operator.inv}
        bodies = {"neg": _negated, "invert": _inverted}
        found = _results(compiled, {name: Loop(bodies[name], (a,), kind) for name in operators})
        for name, function in operators.items():
            _assert_equal(found[name], function(a), err_msg=f"{name} {dtype}")


def _negated(x: Expr) -> Expr:
    return Unary("neg", x, x.dtype)


def _inverted(x: Expr) -> Expr:
    return ~x


@pytest.mark.parametrize("kind", KINDS)
def test_bools(compiled: Compile, kind: LoopKind) -> None:
    a, b = _pairs("bool")
    functions = {"and": np.logical_and, "or": np.logical_or, "min": np.minimum, "max": np.maximum}
    found = _results(compiled, {op: Loop(_binary(op, "bool"), (a, b), kind) for op in functions})
    for op, function in functions.items():
        _assert_equal(found[op], function(a, b), err_msg=op)


@pytest.mark.sampled(6)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("source", list(dtypes.TABLE))
def test_casts(compiled: Compile, source: str, kind: LoopKind) -> None:
    a = _cast_values(source)
    for target, actual in _results(compiled, {t: Loop(_cast_to(t), (a,), kind) for t in dtypes.TABLE}).items():
        known = _castable(a, target)
        with np.errstate(all="ignore"):
            _assert_equal(actual[known], a[known].astype(dtypes.info(target).numpy), err_msg=target)


def _cast_to(dtype: str) -> Callable[[Expr], Expr]:
    return lambda x: cast(x, dtype)


def _cast_values(source: str) -> Array:
    """Edge values, and values that test rounding."""
    values, s = _edge_values(source), dtypes.info(source)
    if s.bits > 16 and s.kind != "bool":
        values += [2049, 2051, 16777217 % 2**31, 65519, 33825, 1000001]
    if s.is_float and s.bits == 64:
        values += [1 + 2.0**-11 + 2.0**-40, 1 + 2.0**-12, 65519.999999999, 2.0**-25 * (1 + 2.0**-40), 1e300]
    return np.array(values, s.numpy)


def _castable(a: Array, target: str) -> Array:
    """Which of the values C defines; of floats that become integers not all."""
    if not (dtypes.info(a.dtype.name).is_float and dtypes.info(target).is_integer):
        return np.ones(len(a), np.bool_)
    wide = a.astype(np.float64)
    low, high = (float(v) for v in dtypes.limits(target))
    return np.asarray(np.isfinite(wide) & (wide > low - 1) & (wide < high))


def test_floats_out_of_range_become_defined_integers(compiled: Compile) -> None:
    a = np.array([np.nan, np.inf, -np.inf, 1e10, -1e10, -1.0, 300.5], np.float32)
    low, high = -(2**31), 2**31 - 1
    for kind in KINDS:
        found = _results(compiled, {t: Loop(_cast_to(t), (a,), kind) for t in ("int32", "uint8", "uint32")})
        actual = {t: values.tolist() for t, values in found.items()}
        assert actual["int32"] == [0, high, low, high, low, -1, 300]
        assert actual["uint8"] == [0, 255, 0, 255, 0, 0, 255]
        assert actual["uint32"] == [0, 2**32 - 1, 0, 2**32 - 1, 0, 0, 300]
