"""Random loop nests: machine code leaves behind what the interpreter leaves."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from tensorlang.ir.construct import array, index, indices, load, loop, store
from tensorlang.ir.expr import Expr, Var, binary, cast, select
from tensorlang.ir.interpret import run
from tensorlang.ir.stmt import INDEX, If, Kernel, Let, LoopKind, Seq, Stmt
from tensorlang.ir.verify import verify
from tensorlang.target.backend import backend
from tensorlang.target.detect import parse
from tensorlang.testing.loop_ir import kernels, trace
from tests.thoroughness import draws

_LOOPS = (LoopKind.SERIAL, LoopKind.UNROLLED)


def _compiled(kernel: Kernel) -> Callable[..., None]:
    return backend("llvm").compile(kernel, parse("llvm"), (*kernel.params, *kernel.sizes))


@settings(max_examples=draws(40, 2000))
@given(kernels(_LOOPS), st.integers(0, 9))
def test_serial_kernels_mean_the_same(kernel: Kernel, n: int) -> None:
    log, notes = np.zeros(2, np.int64), np.arange(16, dtype=np.int32)
    _compiled(kernel)(log, notes, n)
    assert (*log.tolist(), *notes.tolist()) == trace(kernel, n)


# One vector loop over `v`: every lane reads `a`, `b` (never written) and its own elements of `out`.

A, B = array("a", (64,), "int32"), array("b", (4, 64), "int64")
OUT = array("out", (64,), "int32")
lane, size = indices("v n")
LET = Var("t", "int32")


def _index(draw: st.DrawFn, depth: int) -> Expr:
    """An index that is in range wherever it is evaluated: 0 <= lane < 30, 0 <= size < 4."""
    match draw(st.integers(0, 6)):
        case 0:
            return lane + index(draw(st.integers(0, 30)))
        case 1:
            return lane * index(2) + index(draw(st.integers(0, 3)))
        case 2:
            return index(40) - lane
        case 3:
            return binary("floordiv", lane, index(draw(st.integers(1, 5)))) + size
        case 4:
            return size * index(4)
        case 5 if depth:
            return binary("floormod", cast(_value(draw, depth - 1, False), INDEX), index(64))
    return lane


def _condition(draw: st.DrawFn, depth: int, let: bool) -> Expr:
    if draw(st.integers(0, 3)) == 0:
        return size < index(draw(st.integers(0, 4)))
    op = draw(st.sampled_from(["lt", "ge", "eq", "ne"]))
    condition = binary(op, _value(draw, depth, let), _value(draw, 0, let))
    if draw(st.integers(0, 3)) == 0:
        return binary(draw(st.sampled_from(["and", "or"])), lane < index(draw(st.integers(0, 30))), condition)
    return condition


def _value(draw: st.DrawFn, depth: int, let: bool) -> Expr:
    """An int32 expression; `let`: the variable LET is in sight."""
    kind = draw(st.integers(0, 8))
    if depth == 0 or kind < 2:
        leaves: list[Expr] = [cast(lane, "int32"), cast(size, "int32"), load(A, lane), load(OUT, lane)]
        return draw(st.sampled_from([*leaves, LET] if let else leaves))
    if kind == 2:
        return load(A, _index(draw, depth))
    if kind == 3:
        return cast(load(B, draw(st.sampled_from([size, index(2)])), _index(draw, depth)), "int32")
    if kind == 4:
        outside = cast(load(A, lane * index(1000) - index(500)), "int32")
        safe = binary("and", lane * index(1000) - index(500) >= index(0), lane * index(1000) - index(500) < index(64))
        return select(safe, outside, _value(draw, depth - 1, let))
    below = (_value(draw, depth - 1, let), _value(draw, depth - 1, let))
    if kind == 5:
        return select(_condition(draw, depth - 1, let), *below)
    return binary(draw(st.sampled_from(["add", "mul", "min", "bitxor", "floordiv", "floormod", "shr"])), *below)


def _lane_statement(draw: st.DrawFn, depth: int, let: bool) -> Stmt:
    kind = draw(st.integers(0, 5)) if depth else 5
    match kind:
        case 0:
            return Seq((_lane_statement(draw, depth - 1, let), _lane_statement(draw, depth - 1, let)))
        case 1:
            orelse = _lane_statement(draw, depth - 1, let) if draw(st.booleans()) else None
            return If(_condition(draw, 1, let), _lane_statement(draw, depth - 1, let), orelse)
        case 2 if not let:
            return Let(LET, _value(draw, 2, False), _lane_statement(draw, depth - 1, True))
        case 3:
            name = Var(f"k{depth}", INDEX)
            return loop(name, 0, binary("min", size, index(3)), _lane_statement(draw, depth - 1, let))
    return store(OUT, lane, _value(draw, 2, let))


@st.composite
def vector_kernels(draw: st.DrawFn) -> Kernel:
    lower, extent = draw(st.integers(0, 6)), draw(st.integers(0, 24))
    start = index(lower) if draw(st.booleans()) else size
    body = loop(lane, start, start + index(extent), _lane_statement(draw, 3, False), LoopKind.VECTORIZED)
    return Kernel("lanes", (A, B, OUT), (size,), ("out",), body)


@settings(max_examples=draws(60, 3000))
@given(vector_kernels(), st.integers(0, 3), st.integers(0, 2**32 - 1))
def test_vector_kernels_mean_the_same(kernel: Kernel, n: int, seed: int) -> None:
    verify(kernel)
    random = np.random.default_rng(seed)
    a = random.integers(-(2**31), 2**31, 64).astype(np.int32)
    b = random.integers(-5, 6, (4, 64))
    start = random.integers(-100, 100, 64).astype(np.int32)
    expected, actual = start.copy(), start.copy()
    run(kernel, {"a": a, "b": b, "out": expected}, {"n": n})
    _compiled(kernel)(a, b, actual, n)
    np.testing.assert_array_equal(actual, expected)
