"""Statements of loop IR to lines of C."""

from __future__ import annotations

from dataclasses import replace

from tensorlang.errors import InternalError, TargetError
from tensorlang.ir.expr import Const, Load, Var, walk
from tensorlang.ir.loops import UNROLL_FULL, constant_extent, reads_memory, uses
from tensorlang.ir.shuffle import Shuffle, shuffles
from tensorlang.ir.stmt import (
    Allocate,
    AsyncCommit,
    AsyncCopy,
    AsyncWait,
    AtomicUpdate,
    Barrier,
    BoxCopy,
    CallMachine,
    Fail,
    For,
    If,
    Let,
    LoopKind,
    MachineCommit,
    MachineWait,
    Prefetch,
    Seq,
    Stmt,
    Store,
    ThreadReduce,
    stmt_exprs,
)
from tensorlang.ir.stmt import walk as statements
from tensorlang.ir.warp_arrays import fragments
from tensorlang.target.c_source import arithmetic, copies
from tensorlang.target.c_source import code as c
from tensorlang.target.c_source.atomics import atomic_update
from tensorlang.target.c_source.expressions import declared_type, element, factor, index, stored, value
from tensorlang.target.c_source.machine import call_machine, declared_registers
from tensorlang.target.c_source.memory import barrier, declaration
from tensorlang.target.c_source.reduction import thread_reduce
from tensorlang.target.c_source.scope import Scope, Storage
from tensorlang.target.c_source.shuffle import shuffled
from tensorlang.target.c_source.vectors import vector_loop

MOST_UNROLLED = 256
"""Loops that index arrays in registers are copied as long as there are no more copies of their bodies than that."""


_REGISTERS = ("local", "warp")


def emit(scope: Scope, stmt: Stmt) -> None:
    """Append the lines of a statement."""
    match stmt:
        case Store():
            scope.line(f"{element(scope, stmt.buffer, stmt.index)} = {stored(scope, value(scope, stmt.value))};")
        case Seq():
            for part in stmt.body:
                emit(scope, part)
        case For():
            _loop(scope, stmt)
        case If():
            _if(scope, stmt)
        case Let():
            emit(let(scope, stmt.var, stmt), stmt.body)
        case Allocate():
            _allocate(scope, stmt)
        case Prefetch():
            pass
        case _:
            _together(scope, stmt)


def _together(scope: Scope, stmt: Stmt) -> None:
    """Statements in which threads have to do with each other, or with the host."""
    match stmt:
        case AtomicUpdate():
            atomic_update(scope, stmt)
        case ThreadReduce():
            thread_reduce(scope, stmt)
        case Barrier():
            scope.line(barrier(scope, stmt.scope))
        case AsyncCopy() | BoxCopy() | AsyncCommit() | AsyncWait():
            copies.emit(scope, stmt)
        case Fail():
            scope.line(f"{scope.dialect.exchange[32]}(fault, 0, {scope.text.message(stmt.message)});")
        case CallMachine():
            call_machine(scope, stmt)
        case MachineCommit():
            scope.line(f"{stmt.group}_commit();")
        case MachineWait():
            scope.line(f"{stmt.group}_wait<{stmt.pending}>();")
        case _:
            raise InternalError(f"{type(stmt).__name__} stands inside a device kernel")


def let(scope: Scope, var: Var, stmt: Let) -> Scope:
    """Declare a variable; the scope that has it."""
    known = shuffled(scope, stmt.value) if isinstance(stmt.value, Shuffle) else value(scope, stmt.value)
    made = arithmetic.cast(scope.text, known, var.dtype)
    name = scope.fresh(var.name)
    scope.line(f"const {declared_type(scope, made)} {name} = {made.text};")
    held = replace(made, text=name, rank=c.ATOM, bits="", unrounded="", stored="")
    factors = dict(scope.factors)
    return scope.bind(var.name, held, factor(stmt.value, factors) if var.dtype == stmt.value.dtype else 1)


def _loop(scope: Scope, stmt: For) -> None:
    extent = constant_extent(stmt)
    if stmt.kind is LoopKind.BOUND:
        raise InternalError(f"the loop over {stmt.var.name} is still bound to {stmt.thread} in a device kernel")
    if stmt.kind is LoopKind.VECTORIZED and vector_loop(scope, stmt, emit):
        return
    copied = 1
    if extent is not None and extent > 1:
        fits = extent * scope.unrolled <= MOST_UNROLLED
        asked = stmt.kind in (LoopKind.UNROLLED, LoopKind.VECTORIZED) or (UNROLL_FULL, 1) in stmt.pragmas
        if asked or (fits and _indexes_registers(stmt)):
            scope.pragma("unroll")
            copied = extent
    lower, upper = index(scope, stmt.lower), index(scope, stmt.upper)
    last = upper.interval[1] - 1
    if extent is not None:
        last = min(last, lower.interval[1] + extent - 1)
    name = scope.fresh(stmt.var.name, kept=False)
    var = scope.index_code(name, (lower.interval[0], max(last, lower.interval[0])), lower.unknown or upper.unknown)
    type_ = declared_type(scope, var)
    end = upper.at(c.LESS + 1)
    if reads_memory(stmt.upper):
        end = scope.fresh(f"{stmt.var.name}_end")
        scope.line(f"const {type_} {end} = {upper.text};")
    scope.line(f"for ({type_} {name} = {lower.text}; {name} < {end}; ++{name}) {{")
    emit(replace(scope.deeper.bind(stmt.var.name, var), unrolled=scope.unrolled * copied), stmt.body)
    scope.line("}")


def _indexes_registers(loop: For) -> bool:
    """Whether the variable of a loop indexes an array of the thread."""
    name = loop.var.name
    stores = (s for s in statements(loop.body) if isinstance(s, Store | AtomicUpdate))
    if any(s.buffer.scope in _REGISTERS and any(uses(i, name) for i in s.index) for s in stores):
        return True
    loads = (n for e in stmt_exprs(loop.body) for n in walk(e) if isinstance(n, Load) and n.buffer.scope in _REGISTERS)
    return any(uses(i, name) for n in loads for i in n.index)


def _if(scope: Scope, stmt: If) -> None:
    scope.line(f"if ({value(scope, stmt.cond).text}) {{")
    emit(scope.deeper, stmt.then)
    if stmt.orelse is not None:
        scope.line("} else {")
        emit(scope.deeper, stmt.orelse)
    scope.line("}")


def _allocate(scope: Scope, stmt: Allocate) -> None:
    buffer = stmt.buffer
    if buffer.scope not in _REGISTERS:
        raise InternalError(f"the {buffer.scope} array {buffer.name} is allocated inside a device kernel")
    if not all(isinstance(extent, Const) for extent in buffer.shape):
        raise TargetError(
            f"the array {buffer} of each thread has no constant size; give the loops inside its computation constant "
            "extents (split), or place it in global memory"
        )
    if buffer.scope == "warp":
        emit(declared_registers(scope, buffer, fragments(stmt.body)[buffer.name]), stmt.body)
        return
    name = scope.fresh(buffer.name)
    # Lanes whose part nobody wrote, and nobody uses, take part in shuffles: what they have must be defined.
    begin = " = {0}" if any(s.value.buffer.name == buffer.name for s in shuffles(stmt.body)) else ""
    scope.line(f"{declaration(scope.dialect, buffer, name)}{begin};")
    emit(scope.declare(buffer, Storage(name, buffer, "local")), stmt.body)
