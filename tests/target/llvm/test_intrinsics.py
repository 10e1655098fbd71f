"""Math intrinsics: against NumPy in wider arithmetic, in units in the last place."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from tensorlang import dtypes
from tensorlang.ir import intrinsics
from tensorlang.ir.construct import array, indices, load, loop, store
from tensorlang.ir.expr import Call
from tensorlang.ir.stmt import Kernel, LoopKind, Seq
from tensorlang.runtime.executable import Executable
from tensorlang.target.llvm.intrinsics import known
from tests.target.llvm.stated_errors import stated

Compile = Callable[..., Executable]
Array = np.ndarray[Any, Any]
FLOATS = ["float16", "bfloat16", "float32", "float64"]
KINDS = [LoopKind.SERIAL, LoopKind.VECTORIZED]
FLOAT_ROWS = [row.name for row in intrinsics.TABLE.values() if row.family == "float"]
(AT,) = indices("i")
STATED = stated()
TOGETHER = 8


def test_the_backend_has_every_intrinsic() -> None:
    assert known() >= set(intrinsics.TABLE)


def _apply(compiled: Compile, names: Sequence[str], kind: LoopKind, inputs: Sequence[Array]) -> dict[str, Array]:
    """What functions make of the first of some inputs: one kernel, with a loop for each."""
    dtype, size = dtypes.canonical(inputs[0].dtype), len(inputs[0])
    rows = [intrinsics.TABLE[name] for name in names]
    buffers = [array(f"in{n}", (size,), dtype) for n in range(max(row.arity for row in rows))]
    outs = [array(f"out_{row.name}", (size,), row.result(dtype)) for row in rows]
    calls = [Call(row.name, tuple(load(b, AT) for b in buffers[: row.arity]), row.result(dtype)) for row in rows]
    loops = [loop(AT, 0, size, store(out, AT, call), kind) for out, call in zip(outs, calls, strict=True)]
    kernel = Kernel("apply", (*buffers, *outs), (), tuple(out.name for out in outs), Seq(tuple(loops)))
    made = [np.zeros(size, dtypes.info(out.dtype).numpy) for out in outs]
    compiled(kernel)(*inputs[: len(buffers)], *made)
    return dict(zip(names, made, strict=True))


@cache
def _floats(compiled: Compile, dtype: str, kind: LoopKind, place: int) -> dict[str, Array]:
    """What some of the functions make of their inputs: LLVM takes longer for all in one kernel."""
    return _apply(compiled, FLOAT_ROWS[place : place + TOGETHER], kind, _inputs(3, dtype, 3000))


@cache
def _inputs(arity: int, dtype: str, size: int) -> tuple[Array, ...]:
    """Values over the whole range, dense around zero, and the special ones."""
    random = np.random.default_rng(3)
    numpy_type = dtypes.info(dtype).numpy
    with np.errstate(all="ignore"):
        spread = np.exp2(random.uniform(-30, 30, (arity, size))) * random.choice([-1.0, 1.0], (arity, size))
        near = random.uniform(-12, 12, (arity, size))
        special = np.array([0.0, -0.0, 1.0, -1.0, 0.5, -2.5, 3.5, np.inf, -np.inf, np.nan])
        columns = [np.concatenate([s, n, random.permutation(special)]) for s, n in zip(spread, near, strict=True)]
        return tuple(c.astype(numpy_type) for c in columns)


def _ulps(actual: Array, exact: Array) -> Array:
    """Distance in units in the last place of the result's dtype."""
    info = ml_dtypes.finfo(actual.dtype)
    wide = actual.astype(np.longdouble)
    smallest = np.longdouble(float(info.smallest_subnormal))
    _, exponent = np.frexp(np.where(np.isfinite(exact), exact, 1))
    unit = np.maximum(np.ldexp(np.longdouble(1), exponent - 1 - info.nmant), smallest)
    error: Array = np.abs(wide - exact) / unit
    return error


def _allowed(name: str, dtype: str) -> float:
    """What is stated; libm stays below 1.5 in float32, and in float64 the reference is no better than 2.5."""
    if dtype in ("float16", "bfloat16"):
        return 0.51
    return 2.5 if dtype == "float64" else STATED.get((name, dtype), 1.5)


@pytest.mark.sampled(6)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("name", FLOAT_ROWS)
def test_floats(compiled: Compile, name: str, dtype: str, kind: LoopKind) -> None:
    inputs = _inputs(3, dtype, 3000)[: intrinsics.TABLE[name].arity]
    place = FLOAT_ROWS.index(name) // TOGETHER * TOGETHER
    actual = _floats(compiled, dtype, kind, place)[name]
    wider = np.float64 if dtype != "float64" else np.longdouble if name not in ("erf", "fma") else np.float64
    with np.errstate(all="ignore"):
        exact = intrinsics.TABLE[name].function(*(x.astype(wider) for x in inputs)).astype(np.longdouble)
        rounded = exact.astype(actual.dtype)
        special = ~np.isfinite(rounded.astype(np.float64))
        expected = rounded[special].astype(np.float64)
        np.testing.assert_array_equal(actual[special].astype(np.float64), expected)
        error = _ulps(actual[~special], exact[~special])
    worst = int(np.argmax(error)) if error.size else 0
    assert error.size and error[worst] <= _allowed(name, dtype), [x[~special][worst] for x in inputs]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dtype", FLOATS)
def test_tests_of_floats(compiled: Compile, dtype: str, kind: LoopKind) -> None:
    inputs = _inputs(1, dtype, 50)
    for name, actual in _apply(compiled, ["isnan", "isinf", "isfinite", "abs"], kind, inputs).items():
        expected = np.asarray(intrinsics.TABLE[name].numpy(*inputs))
        np.testing.assert_array_equal(actual.astype(np.float64), expected.astype(np.float64), err_msg=name)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dtype", [d.name for d in dtypes.TABLE.values() if d.is_integer])
def test_integers(compiled: Compile, dtype: str, kind: LoopKind) -> None:
    low, high = (int(v) for v in dtypes.limits(dtype))
    values = np.array([v for v in (low, low + 1, -5, -1, 0, 1, 2, 77, high - 1, high) if low <= v], dtype)
    names = ("abs", "popcount", "clz", "isnan", "isinf", "isfinite")
    for name, actual in _apply(compiled, names, kind, (values,)).items():
        np.testing.assert_array_equal(actual, intrinsics.TABLE[name].numpy(values), err_msg=name)
