"""Random kernels (hypothesis) whose result tells which statements ran, in which order, on which values.

Every statement folds a value into a running hash, so a pass that drops, repeats, reorders or changes one
gives another result.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from hypothesis import strategies as st

from tensorlang.dataclass import dataclass
from tensorlang.ir.construct import array, index, indices, load, loop, store
from tensorlang.ir.expr import Expr, Var, binary, cast, select
from tensorlang.ir.interpret import run
from tensorlang.ir.stmt import INDEX, Allocate, If, Kernel, Let, LoopKind, Seq, Stmt

LOG = array("log", (2,), "int64")
NOTES = array("notes", (16,), "int32")
SIZE = Var("n", INDEX)
_NAMES = indices("i j k l p q")
_SERIAL_KINDS = (LoopKind.SERIAL, LoopKind.UNROLLED, LoopKind.VECTORIZED)


@st.composite
def kernels(draw: st.DrawFn, kinds: Sequence[LoopKind] = _SERIAL_KINDS, depth: int = 3) -> Kernel:
    """A kernel over one size `n`, to be run with `trace`."""
    body = draw(_statements(_Scope((), tuple(kinds)), depth))
    return Kernel("random", (LOG, NOTES), (SIZE,), ("log", "notes"), body)


def trace(kernel: Kernel, n: int) -> tuple[int, ...]:
    """What a random kernel leaves behind for a size."""
    log, notes = np.zeros(2, np.int64), np.arange(16, dtype=np.int32)
    run(kernel, {"log": log, "notes": notes}, {"n": n})
    return *log.tolist(), *notes.tolist()


@dataclass(frozen=True, slots=True)
class _Scope:
    """The variables around, and the kinds of loops to draw."""

    variables: tuple[Var, ...]
    kinds: tuple[LoopKind, ...]

    def inside(self, var: Var) -> _Scope:
        return _Scope((*self.variables, var), self.kinds)

    def free(self) -> Var:
        return next(v for v in _NAMES if v not in self.variables)


@st.composite
def _statements(draw: st.DrawFn, scope: _Scope, depth: int) -> Stmt:
    kind = draw(st.sampled_from([0, 1, 2, 3, 4, 5, 5, 5, 6, 7, 8, 9])) if depth > 0 else 9
    below = _statements(scope, depth - 1)
    if kind < 5:
        var = scope.free()
        lower, upper = draw(_bounds(scope))
        return loop(
            var, lower, upper, draw(_statements(scope.inside(var), depth - 1)), draw(st.sampled_from(scope.kinds))
        )
    match kind:
        case 5:
            orelse = draw(st.none() | below)
            return If(draw(_guards(scope) | _conditions(scope)), draw(below), orelse)
        case 6:
            var = scope.free()
            return Let(var, draw(_expressions(scope, 2)), draw(_statements(scope.inside(var), depth - 1)))
        case 7:
            return _scratch(draw(_expressions(scope, 2)), draw(below), f"scratch{depth}")
        case 8:
            return Seq((draw(below), draw(below)))
    return draw(_leaves(scope))


def _scratch(value: Expr, body: Stmt, name: str) -> Stmt:
    buffer = array(name, (3,), "int64", "local")
    keep = store(LOG, 1, load(LOG, 1) * 3 + load(buffer, 1))
    return Allocate(buffer, Seq((store(buffer, 1, value), body, keep)))


@st.composite
def _leaves(draw: st.DrawFn, scope: _Scope) -> Stmt:
    value = draw(_expressions(scope, 3))
    if draw(st.booleans()):
        return store(LOG, 0, load(LOG, 0) * 1000003 + value)
    where = binary("floormod", draw(_expressions(scope, 2)), index(16))
    small = cast(binary("floormod", value, index(1000)), "int32")
    return store(NOTES, where, load(NOTES, where) * 31 + small)


@st.composite
def _bounds(draw: st.DrawFn, scope: _Scope) -> tuple[Expr, Expr]:
    """Bounds as tiling makes them: shifted, scaled, cut by a size or by a constant."""
    lower: Expr = index(draw(st.integers(-1, 3)))
    if draw(st.booleans()) and scope.variables:
        outer: Var = draw(st.sampled_from(scope.variables))
        lower = outer * index(draw(st.sampled_from([1, 2, 4]))) + index(draw(st.integers(0, 1)))
    if draw(st.integers(0, 3)) == 0:
        lower = binary("max", lower, draw(_expressions(scope, 1)))
    shape = draw(st.integers(0, 4))
    if shape == 0:
        return lower, binary("min", SIZE, index(9))
    upper = lower + index(draw(st.integers(0, 4)))
    if shape == 1:
        upper = binary("min", upper, SIZE)
    if shape == 2:
        upper = binary("min", binary("min", upper, draw(_expressions(scope, 1))), SIZE + index(1))
    return lower, upper


@st.composite
def _guards(draw: st.DrawFn, scope: _Scope) -> Expr:
    """Affine conditions, as tiling makes them."""

    def side() -> Expr:
        total: Expr = index(draw(st.integers(-2, 12)))
        for var in (*scope.variables[-2:], SIZE):
            total = total + var * index(draw(st.sampled_from([0, 0, 1, 1, 2, 4, -1])))
        return total

    condition = binary(draw(st.sampled_from(["lt", "le", "gt", "ge"])), side(), side())
    return binary("and", condition, draw(_guards(scope))) if draw(st.booleans()) else condition


@st.composite
def _conditions(draw: st.DrawFn, scope: _Scope) -> Expr:
    left, right = draw(_expressions(scope, 2)), draw(_expressions(scope, 1))
    condition = binary(draw(st.sampled_from(["lt", "le", "gt", "ge", "eq", "ne"])), left, right)
    match draw(st.integers(0, 5)):
        case 0:
            return binary("and", condition, draw(_conditions(scope)))
        case 1:
            return binary("or", condition, draw(_conditions(scope)))
        case 2:
            return ~condition
    return condition


@st.composite
def _expressions(draw: st.DrawFn, scope: _Scope, depth: int) -> Expr:
    if depth == 0 or draw(st.integers(0, 4)) == 0:
        choice = draw(st.integers(0, 4))
        if choice and scope.variables:
            return draw(st.sampled_from(scope.variables))
        return SIZE if choice == 1 else index(draw(st.integers(-2, 9)))
    below = _expressions(scope, depth - 1)
    op = draw(st.sampled_from(["add", "add", "sub", "mul", "floordiv", "floormod", "min", "max", "select", "load"]))
    match op:
        case "select":
            return select(draw(_conditions(_Scope(scope.variables, ()))), draw(below), draw(below))
        case "load":
            return cast(load(NOTES, binary("floormod", draw(below), index(16))), INDEX)
        case "mul" | "floordiv" | "floormod":
            return binary(op, draw(below), index(draw(st.sampled_from([2, 3, 4, 8, -2]))))
    return binary(op, draw(below), draw(below))
