"""Errors of the polynomial functions over the whole range, their special values, and the code they become."""

from __future__ import annotations

import ctypes
import ctypes.util
import math
import platform
import re
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import numpy as np
import pytest

from tensorlang.ir import intrinsics
from tensorlang.ir.construct import array, indices, load, loop, store
from tensorlang.ir.expr import Call
from tensorlang.ir.stmt import Kernel, LoopKind, Seq
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
UNFUSED, MORE_UNFUSED = "llvm -mcpu=nehalem", 0.25
"""A CPU that multiplies and adds in two steps, and the units by which errors grow there."""
UNDERFLOW = 0x10
"""FE_UNDERFLOW of C99's <fenv.h> on x86: a result is too small for a normal float."""
EXTENDED = np.finfo(np.longdouble).nmant > 60


def _kernel(names: Sequence[str], dtype: str, size: int, vector: bool = True) -> Kernel:
    """A loop for each of some functions, of the first of the inputs."""
    rows = [intrinsics.TABLE[name] for name in names]
    arrays = [array(f"in{n}", (size,), dtype) for n in range(max(row.arity for row in rows))]
    outs = [array(f"out_{name}", (size,), dtype) for name in names]
    calls = [Call(row.name, tuple(load(b, AT) for b in arrays[: row.arity]), dtype) for row in rows]
    kind = LoopKind.VECTORIZED if vector else LoopKind.SERIAL
    loops = [loop(AT, 0, size, store(out, AT, call), kind) for out, call in zip(outs, calls, strict=True)]
    return Kernel("run", (*arrays, *outs), (), tuple(out.name for out in outs), Seq(tuple(loops)))


def _run_all(
    compiled: Compile, names: Sequence[str], inputs: tuple[Array, ...], vector: bool = True, target: str = "llvm"
) -> dict[str, Array]:
    dtype, size = str(inputs[0].dtype), len(inputs[0])
    kernel = _kernel(names, dtype, size, vector)
    values = [np.empty(size, dtype) for _ in names]
    executable = compiled(kernel, target)
    if not runs_here(executable.target):
        pytest.skip(f"this machine cannot run {target}")
    executable(*inputs[: len(kernel.params) - len(names)], *values)
    return dict(zip(names, values, strict=True))


def _run(compiled: Compile, name: str, inputs: tuple[Array, ...]) -> Array:
    return _run_all(compiled, [name], inputs)[name]


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


def test_every_function_but_one_states_at_most_two_units() -> None:
    assert {(f, d) for f in (*FUNCTIONS, *ROOTS, *LONG, *TWO) for d in ("float32", "float64")} <= set(STATED)
    assert {function for (function, _), units in STATED.items() if units > 2} == {"sigmoid"}
    assert max(STATED.values()) <= 2.5


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


EVERY = (*FUNCTIONS, *LONG, *TWO)
TOGETHER = 8
"""Functions in one kernel: LLVM takes longer for all of them."""


@cache
def _bits(compiled: Compile, place: int, dtype: str, vector: bool, target: str) -> dict[str, Array]:
    """What some functions make of numbers in scalar or in vector code."""
    random = np.random.default_rng(2)
    count = 1013  # a tail of 5 lanes of 16 and of 8
    values = np.concatenate([random.uniform(-100, 100, 500), np.exp2(random.uniform(-140, 120, 487)), EDGES, -EDGES])
    inputs = tuple(random.permutation(values)[:count].astype(dtype) for _ in range(2))
    return _run_all(compiled, EVERY[place : place + TOGETHER], inputs, vector, target)


@pytest.mark.sampled(5)
@pytest.mark.parametrize("target", ["llvm", "llvm -mcpu=haswell", UNFUSED])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", EVERY)
def test_scalar_and_vector_code_give_the_same_bits(compiled: Compile, name: str, dtype: str, target: str) -> None:
    place = EVERY.index(name) // TOGETHER * TOGETHER
    vectors = _bits(compiled, place, dtype, True, target)[name]
    same = target if target == UNFUSED else "llvm"
    np.testing.assert_array_equal(_bits(compiled, place, dtype, False, same)[name], vectors)


@pytest.mark.sampled(5)
@pytest.mark.parametrize("name", [*FUNCTIONS, *LONG])
def test_cpus_without_fused_multiply_add_lose_little(compiled: Compile, name: str) -> None:
    thin = SWEEP[::61] if name != "erf" else np.linspace(-4.5, 4.5, 4001, dtype=np.float32)
    shorts = np.concatenate([thin, np.linspace(-40, 40, 4001, dtype=np.float32), *SHORT_EDGES])
    with np.errstate(invalid="ignore"):
        longs = shorts.astype(np.float64)
    for inputs, dtype in ((shorts, "float32"), (longs, "float64")):
        if dtype == "float32" or EXTENDED:
            made = _run_all(compiled, [name], (inputs,), target=UNFUSED)[name]
            _check(name, (inputs,), made, STATED[name, dtype] + MORE_UNFUSED)


def test_exact_powers_of_two(compiled: Compile) -> None:
    for dtype, low, high in (("float32", -149, 128), ("float64", -1074, 1024)):
        whole = np.arange(low, high).astype(dtype)
        powers = np.ldexp(np.ones(1, dtype), whole.astype(int))
        np.testing.assert_array_equal(_run(compiled, "exp2", (whole,)), powers)
        np.testing.assert_array_equal(_run(compiled, "log2", (powers,)), whole)


@pytest.mark.skipif(platform.machine() != "x86_64", reason="flags of another CPU have other values")
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("target", ["llvm", "llvm -mcpu=haswell"])
def test_exponentials_of_masked_places_do_not_underflow(compiled: Compile, target: str, dtype: str) -> None:
    names, libm = ["exp", "exp2", "sigmoid"], ctypes.CDLL(ctypes.util.find_library("m"))
    inputs = np.repeat(np.array([-np.inf, np.finfo(dtype).min, -1e9, -1500, 0.25], dtype), 16)
    values = [np.empty_like(inputs) for _ in names]
    executable = compiled(_kernel(names, dtype, len(inputs)), target)
    if not runs_here(executable.target):
        pytest.skip(f"this machine cannot run {target}")
    libm.feclearexcept(UNDERFLOW)
    executable(inputs, *values)
    assert not libm.fetestexcept(UNDERFLOW)
    for name, value in zip(names, values, strict=True):
        _check(name, (inputs,), value, STATED[name, dtype])


@pytest.mark.sampled(4)
@pytest.mark.parametrize(
    "target", ["llvm -mcpu=skylake-avx512", "llvm -mcpu=haswell", "llvm -mtriple=aarch64-linux-gnu -mcpu=neoverse-n1"]
)
@pytest.mark.parametrize(
    ("names", "dtype"),
    [
        (names[place : place + TOGETHER], dtype)
        for names, dtype in ((FUNCTIONS, "float16"), (FUNCTIONS, "float32"), ([*FUNCTIONS, *LONG], "float64"))
        for place in range(0, len(names), TOGETHER)
    ],
)
def test_no_call_of_the_c_library_in_a_vector_loop(
    compiled: Compile, names: Sequence[str], dtype: str, target: str
) -> None:
    assembly = compiled(_kernel(names, dtype, 640), target).source("asm")
    called = set(re.findall(r"\b(?:callq|bl)\s+(\w+)", assembly))
    assert called - {"run"} <= {spelled for name in ANGLES.intersection(names) for spelled in (name, f"{name}f")}


def test_large_angles_are_left_to_one_branch(compiled: Compile) -> None:
    inputs, out = array("in", (64,)), array("out", (64,))
    body = loop(AT, 0, 64, store(out, AT, Call("sin", (load(inputs, AT),), "float32")), LoopKind.VECTORIZED)
    text = compiled(Kernel("f", (inputs, out), (), ("out",), body), "llvm -mcpu=skylake-avx512").source("ll")
    blocks = re.split(r"^(\w+):$", text, flags=re.MULTILINE)
    holders = {label for label, block in zip(blocks[1::2], blocks[2::2], strict=True) if "@sinf(float" in block}
    assert holders and all(label.startswith("rare") for label in holders - {blocks[-2]})
