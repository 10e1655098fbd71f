"""The device interpreter computes what the serial interpreter computes, on random values and random statements."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, note, settings

from tensorlang import dtypes
from tensorlang.ir import interpret, intrinsics, threads
from tensorlang.ir.construct import array, index, indices, kernel, load, loop, store
from tensorlang.ir.expr import Binary, Call, Cast, Expr, Select, Unary, substitute
from tensorlang.ir.operators import ARITHMETIC, BITWISE, COMPARE
from tensorlang.ir.printer import kernel_text
from tensorlang.ir.stmt import INDEX, Allocate, Kernel, Let, Seq
from tensorlang.testing.loop_ir import LOG, NOTES, SIZE, kernels, trace
from tests.launches import TX, launched

N = 48  # threads
INTEGERS = [d.name for d in dtypes.TABLE.values() if d.is_integer]
FLOATS = [d.name for d in dtypes.TABLE.values() if d.is_float]
i, k, t = indices("i k t")


def interesting(dtype: str, seed: int) -> Any:
    """Values of a dtype: extremes, small ones, and any."""
    rng = np.random.default_rng(seed)
    storage = dtypes.info(dtype).numpy
    if dtype == "bool":
        return rng.integers(0, 2, N).astype(storage)
    if dtypes.info(dtype).is_float:
        special = [0.0, -0.0, 1.0, -2.5, np.inf, -np.inf, np.nan, 1e-8, 3e38, 65504.0]
        with np.errstate(all="ignore"):
            values = np.where(rng.random(N) < 0.4, rng.choice(special, N), rng.normal(size=N) * 10)
            return values.astype(storage)
    low, high = (int(x) for x in dtypes.limits(dtype))
    near = [x for x in (low, low + 1, high, high - 1, 0, 1, 2, 3, 7, 31, 64, -1, -2, -7) if low <= x <= high]
    anything = rng.integers(low, high, N, np.int64 if low else np.uint64, endpoint=True)
    return np.where(
        rng.random(N) < 0.6, np.array(rng.choice(np.array(near, object), N), storage), anything.astype(storage)
    )


def agree(value: Expr, *operands: Any) -> None:
    """Compute `value` over the elements of its thread: by a loop, by all threads, and by one thread in a loop."""
    dtype = value.dtype
    names = [array(f"x{n}", (N,), dtypes.canonical(x.dtype)) for n, x in enumerate(operands)]
    out = array("out", (N,), dtype)
    given = {b.name: x for b, x in zip(names, operands, strict=True)}
    results = []
    one_by_one = kernel("serial", [*names, out], "out", loop(TX, 0, N, store(out, TX, value)))
    together = launched([*names, out], "out", store(out, TX, value), (N,))
    alone = loop(t, 0, N, store(out, t, substitute(value, {TX.name: t})))
    by_one = launched([*names, out], "out", alone, (1,))
    for run, code in ((interpret.run, one_by_one), (threads.run, together), (threads.run, by_one)):
        found = np.zeros(N, dtypes.info(dtype).numpy)
        run(code, given | {"out": found})
        results.append(found)
    for other in results[1:]:
        same(results[0], other)


def same(serial: Any, found: Any) -> None:
    """Equal to the bit, any NaN counting as one."""
    bits = [np.where(x != x, np.zeros_like(x), x).view(f"u{x.dtype.itemsize}") for x in (serial, found)]
    np.testing.assert_array_equal(serial != serial, found != found)
    np.testing.assert_array_equal(*bits)


def operand(dtype: str, number: int) -> Expr:
    """The thread's element of the operand of a number."""
    return load(array(f"x{number}", (N,), dtype), TX)


@pytest.mark.sampled(5)
@pytest.mark.parametrize("dtype", [*INTEGERS, *FLOATS, "bool"])
def test_every_operator(dtype: str) -> None:
    a, b = interesting(dtype, 0), interesting(dtype, 1)
    for seed in range(3):
        a, b = interesting(dtype, 2 * seed), interesting(dtype, 2 * seed + 1)
        x, y = operand(dtype, 0), operand(dtype, 1)
        wanted: tuple[str, ...] = (*ARITHMETIC, *BITWISE)
        if dtype in FLOATS:
            wanted = ARITHMETIC
        elif dtype == "bool":
            wanted = ("min", "max")
        for op in wanted:
            if op != "div" or dtype in FLOATS:
                agree(Binary(op, x, y, dtype), a, b)
        for op in (*COMPARE, *(("and", "or") if dtype == "bool" else ())):
            agree(Binary(op, x, y, "bool"), a, b)
        for op in ("not",) if dtype == "bool" else ("neg",) if dtype in FLOATS else ("neg", "invert"):
            agree(Unary(op, x, dtype), a)
        agree(Select(Binary("lt", x, y, "bool"), y, x, dtype), a, b)


@pytest.mark.sampled(5)
@pytest.mark.parametrize("dtype", [*INTEGERS, *FLOATS, "bool"])
def test_every_cast(dtype: str) -> None:
    """Of floats only values that every dtype holds: elsewhere the platform decides."""
    values = interesting(dtype, 5)
    if dtype in FLOATS:
        values = np.random.default_rng(0).integers(0, 100, N).astype(values.dtype) / values.dtype.type(4)
    for target in (*INTEGERS, *FLOATS, "bool"):
        if target != dtype:
            agree(Cast(operand(dtype, 0), target), values)


@pytest.mark.sampled(12)
@pytest.mark.parametrize("name", sorted(intrinsics.TABLE))
def test_every_intrinsic(name: str) -> None:
    row = intrinsics.TABLE[name]
    of_bits = [name.removesuffix("_of_bits")] if name.endswith("_of_bits") else []
    held = [dtypes.info(d).bits_dtype for d in of_bits]
    held += ["uint8"] if row.family == "table" else []
    for dtype in held or (FLOATS if row.family in ("float", "test", "pattern") else ("int8", "int64", "uint32")):
        given = [interesting(dtype, n) for n in range(row.arity)]
        agree(Call(name, tuple(operand(dtype, n) for n in range(row.arity)), row.result(dtype)), *given)


def for_all_threads(code: Kernel) -> Kernel:
    """Every thread runs a random kernel for the size that its number is, on arrays of its own."""
    logs, notes = array("logs", (N, 2), INDEX), array("all_notes", (N, 16), "int32")
    log, own = (b.__class__(b.name, b.shape, b.dtype, "local") for b in (LOG, NOTES))
    body = Seq((
        store(log, 0, 0), store(log, 1, 0), loop(k, 0, 16, store(own, k, Cast(k, "int32"))),
        Let(SIZE, TX - index(2), code.body),
        loop(k, 0, 2, store(logs, (TX, k), load(log, k))), loop(k, 0, 16, store(notes, (TX, k), load(own, k))),
    ))  # fmt: skip
    return launched([logs, notes], "logs all_notes", Allocate(log, Allocate(own, body)), (N,))


@settings(max_examples=settings().max_examples // 2)
@given(kernels())
def test_random_statements_where_threads_go_apart(code: Kernel) -> None:
    note(kernel_text(code))
    logs, notes = np.zeros((N, 2), np.int64), np.zeros((N, 16), np.int32)
    threads.run(for_all_threads(code), {"logs": logs, "all_notes": notes})
    for n in range(0, N, 5):
        assert (*logs[n].tolist(), *notes[n].tolist()) == trace(code, n - 2)
