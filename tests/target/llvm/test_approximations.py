"""Errors of the polynomial functions over the whole range, their special values, and the code they become."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tensorlang.ir import intrinsics
from tensorlang.ir.construct import array, indices, load, loop, store
from tensorlang.ir.expr import Call
from tensorlang.ir.stmt import Kernel, LoopKind
from tensorlang.runtime.executable import Executable
from tensorlang.target.detect import runs_here
from tests.target.llvm.stated_errors import IN_FLOAT64, stated

Compile = Callable[..., Executable]
Array = np.ndarray[Any, Any]
(AT,) = indices("i")
STATED = stated()
FUNCTIONS = ["exp", "exp2", "expm1", "log", "log2", "log10", "log1p", "tanh", "sigmoid", "erf", "sin", "cos"]
ROOTS = ["sqrt", "rsqrt"]
TWO = ("pow", "atan2", "hypot")
LONG = [name for name in IN_FLOAT64 if name not in TWO]
ANGLES = {"sin", "cos", "tan"}
"""Functions that call the C library for large arguments."""
SWEEP = np.arange(0, 2**32, 4099, dtype=np.uint64).astype(np.uint32).view(np.float32)
"""About a million float32 numbers, as many of each exponent."""
EDGES = np.array([0.0, 1.0, 0.5, 2.0, 3.0, 1e-40, 88.7, 103.9, 709.7, 745.1, 3e38, np.inf, np.nan])
SHORT_EDGES = (EDGES.astype(np.float32), (-EDGES).astype(np.float32))
HARD = ((0.5, 2), (0.7, 0.7501), (0.7495, 0.75), (-0.3, -0.2499), (0.4, 0.7), (-20, -2), (30, 40))
"""Ranges in which some function has its largest error."""
EXTENDED = np.finfo(np.longdouble).nmant > 60


def _run(compiled: Compile, name: str, inputs: tuple[Array, ...], vector: bool = True, target: str = "llvm") -> Array:
    dtype, size = str(inputs[0].dtype), len(inputs[0])
    arrays = [array(f"in{n}", (size,), dtype) for n in range(len(inputs))]
    out = array("out", (size,), dtype)
    statement = store(out, AT, Call(name, tuple(load(b, AT) for b in arrays), dtype))
    kind = LoopKind.VECTORIZED if vector else LoopKind.SERIAL
    kernel = Kernel(f"run_{name}", (*arrays, out), (), ("out",), loop(AT, 0, size, statement, kind))
    values = np.empty(size, dtype)
    executable = compiled(kernel, target)
    if not runs_here(executable.target):
        pytest.skip(f"this machine cannot run {target}")
    executable(*inputs, values)
    return values


def _check(name: str, inputs: tuple[Array, ...], actual: Array, allowed: float) -> None:
    """Compare with the function in wider arithmetic: finite results in units, others exactly."""
    wider = np.float64 if actual.dtype == np.float32 else np.longdouble
    with np.errstate(all="ignore"):
        exact = _reference(name, tuple(x.astype(wider) for x in inputs))
        rounded = exact.astype(actual.dtype)
    special = ~np.isfinite(rounded)
    np.testing.assert_array_equal(actual[special], rounded[special])
    zeros = rounded == 0
    np.testing.assert_array_equal(np.signbit(actual[zeros]), np.signbit(rounded[zeros]))
    info = np.finfo(actual.dtype)
    _, exponent = np.frexp(np.where(special, 1, exact))
    unit = np.maximum(np.ldexp(wider(1), exponent - 1 - info.nmant), wider(info.smallest_subnormal))
    with np.errstate(all="ignore"):
        error = np.where(special, 0, np.abs(actual.astype(wider) - exact) / unit)
    worst = int(np.argmax(error))
    assert error[worst] <= allowed, f"{error[worst]:.3f} units at {[x[worst] for x in inputs]}"


def _reference(name: str, inputs: tuple[Array, ...]) -> Array:
    (x,) = inputs[:1]
    if name == "sigmoid":
        power = np.exp(-np.abs(x))
        return np.asarray(np.where(x < 0, power, 1) / (1 + power))
    if name == "erf":
        return _erf(x)
    values: Array = intrinsics.TABLE[name].function(*inputs)
    return values


def _erf(x: Array) -> Array:
    """By a series of positive terms, which loses nothing; 1 beyond 6.5."""
    near = np.minimum(np.abs(x), x.dtype.type(6.5))
    term = total = near
    for n in range(1, 200):
        term = term * 2 * near * near / (2 * n + 1)
        total = total + term
    root = np.sqrt(x.dtype.type(math.pi) if x.dtype == np.float64 else np.arctan(np.longdouble(1)) * 4)
    return np.asarray(np.copysign(np.exp(-near * near) * total * 2 / root, x))


def _float64_inputs(seed: int) -> Array:
    random = np.random.default_rng(seed)
    count = 20000
    bits = random.integers(0, 2**64, count, dtype=np.uint64).view(np.float64)
    spread = np.exp2(random.uniform(-60, 40, count)) * random.choice([-1.0, 1.0], count)
    hard = [random.uniform(low, high, count) for low, high in HARD]
    return np.concatenate([bits, spread, random.uniform(-40, 40, count), *hard, EDGES, -EDGES])


def test_every_function_states_at_most_two_units() -> None:
    assert {(f, d) for f in (*FUNCTIONS, *ROOTS, *LONG, *TWO) for d in ("float32", "float64")} <= set(STATED)
    assert max(STATED.values()) <= 2


@pytest.mark.parametrize("name", [f for f in (*FUNCTIONS, *ROOTS, *LONG) if f != "erf"])
def test_float32_over_the_whole_range(compiled: Compile, name: str) -> None:
    inputs = (np.concatenate([SWEEP, *SHORT_EDGES]),)
    _check(name, inputs, _run(compiled, name, inputs), STATED[name, "float32"])


def test_float32_erf(compiled: Compile) -> None:
    inputs = (np.concatenate([SWEEP[::13], np.linspace(-4.5, 4.5, 40001, dtype=np.float32), *SHORT_EDGES]),)
    _check("erf", inputs, _run(compiled, "erf", inputs), STATED["erf", "float32"])


@pytest.mark.skipif(not EXTENDED, reason="NumPy's longdouble has no more bits than float64 here")
@pytest.mark.parametrize("name", [*FUNCTIONS, *ROOTS, *LONG])
def test_float64(compiled: Compile, name: str) -> None:
    inputs = (_float64_inputs(7),)
    if name == "erf":
        inputs = (np.concatenate([np.linspace(-6.2, 6.2, 20001), EDGES, -EDGES]),)
    _check(name, inputs, _run(compiled, name, inputs), STATED[name, "float64"])


@pytest.mark.parametrize(
    ("name", "dtype"),
    [
        *((name, "float32") for name in TWO),
        *(
            pytest.param(name, "float64", marks=pytest.mark.skipif(not EXTENDED, reason="no wider floats here"))
            for name in TWO
        ),
    ],
)
def test_functions_of_two_numbers(compiled: Compile, name: str, dtype: str) -> None:
    random = np.random.default_rng(11)
    special = np.concatenate([EDGES, -EDGES, [2.5, -2.5, 1e9 + 1, -1e9]])
    pairs = np.stack(np.meshgrid(special, special)).reshape(2, -1)
    near = np.stack([random.uniform(0.5, 2, 30000), random.uniform(-1000, 1000, 30000)])
    spread = np.exp2(random.uniform(-20, 20, (2, 30000))) * random.choice([-1.0, 1.0], (2, 30000))
    inputs = tuple(np.concatenate([pairs, near, spread], axis=1).astype(dtype))
    _check(name, inputs, _run(compiled, name, inputs), STATED[name, dtype])


@pytest.mark.parametrize("target", ["llvm", "llvm -mcpu=haswell", "llvm -mcpu=nehalem"])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", [*FUNCTIONS, *LONG, *TWO])
def test_scalar_and_vector_code_give_the_same_bits(compiled: Compile, name: str, dtype: str, target: str) -> None:
    random = np.random.default_rng(2)
    count = 1013  # a tail of 5 lanes of 16 and of 8
    values = np.concatenate([random.uniform(-100, 100, 500), np.exp2(random.uniform(-140, 120, 487)), EDGES, -EDGES])
    inputs = tuple(random.permutation(values)[:count].astype(dtype) for _ in range(1 + (name in TWO)))
    serial = _run(compiled, name, inputs, vector=False)
    vectors = _run(compiled, name, inputs, target=target)
    np.testing.assert_array_equal(serial, vectors)


def test_exact_powers_of_two(compiled: Compile) -> None:
    for dtype, low, high in (("float32", -149, 128), ("float64", -1074, 1024)):
        whole = np.arange(low, high).astype(dtype)
        powers = np.ldexp(np.ones(1, dtype), whole.astype(int))
        np.testing.assert_array_equal(_run(compiled, "exp2", (whole,)), powers)
        np.testing.assert_array_equal(_run(compiled, "log2", (powers,)), whole)


@pytest.mark.parametrize(
    "target", ["llvm -mcpu=skylake-avx512", "llvm -mcpu=haswell", "llvm -mtriple=aarch64-linux-gnu -mcpu=neoverse-n1"]
)
@pytest.mark.parametrize(
    ("name", "dtype"),
    [*((f, d) for f in FUNCTIONS for d in ("float16", "float32", "float64")), *((f, "float64") for f in LONG)],
)
def test_no_call_of_the_c_library_in_a_vector_loop(compiled: Compile, name: str, dtype: str, target: str) -> None:
    inputs, out = array("in", (640,), dtype), array("out", (640,), dtype)
    body = loop(AT, 0, 640, store(out, AT, Call(name, (load(inputs, AT),), dtype)), LoopKind.VECTORIZED)
    assembly = compiled(Kernel("f", (inputs, out), (), ("out",), body), target).source("asm")
    called = set(re.findall(r"\b(?:callq|bl)\s+(\w+)", assembly))
    assert called - {"f"} <= ({name, f"{name}f"} if name in ANGLES else set())


def test_large_angles_are_left_to_one_branch(compiled: Compile) -> None:
    inputs, out = array("in", (64,)), array("out", (64,))
    body = loop(AT, 0, 64, store(out, AT, Call("sin", (load(inputs, AT),), "float32")), LoopKind.VECTORIZED)
    text = compiled(Kernel("f", (inputs, out), (), ("out",), body), "llvm -mcpu=skylake-avx512").source("ll")
    blocks = re.split(r"^(\w+):$", text, flags=re.MULTILINE)
    holders = {label for label, block in zip(blocks[1::2], blocks[2::2], strict=True) if "@sinf(float" in block}
    assert holders and all(label.startswith("rare") for label in holders - {blocks[-2]})
