"""A kernel with clocks around its loop nests: which parts of it are timed, and the kernel that writes down when.

The clock is the counter of the CPU. Each iteration of a parallel loop writes to a row of its own, so that nothing is
shared; the part in front of it and behind it write to the first row.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TypeGuard

from tensorlang.dataclass import dataclass
from tensorlang.ir.expr import Binary, Buffer, Const, Expr, Load, Select, Var, as_expr, binary, rewrite
from tensorlang.ir.machine import MachineCall
from tensorlang.ir.overflow import exact_value
from tensorlang.ir.stmt import (
    INDEX,
    Allocate,
    AtomicUpdate,
    CallMachine,
    CallPython,
    For,
    If,
    Kernel,
    Let,
    LoopKind,
    Seq,
    Stmt,
    Store,
    children,
    map_children,
    walk,
)
from tensorlang.profiling.runs import Around, Condition, trips, tuple_stores

CLOCKS = "clocks"
"""The array that an instrumented kernel writes to: for each row and region its first beginning, its last end, and the
sum of all times between."""
FIRST, LAST, TOTAL = range(3)
_FIELDS = 3
_LINE = 8
"""Numbers of a line of the cache: rows begin at one."""
_THREADS = 64
"""Rows of any kernel, so that iterations that threads share are told apart."""
_ROW = 10
"""What a row costs, in looks at the clock: it comes from memory, and goes back."""


@dataclass(frozen=True, slots=True)
class Region:
    """Neighbours that make one stage, or several: `around` are the loops and conditions that they are in, `entries` how
    often they begin, by what is known of trips; `parent` is the region that they are a part of, by its place.
    """

    stages: tuple[str, ...]
    body: tuple[Stmt, ...]
    around: tuple[Around, ...]
    entries: int
    parent: int | None

    @property
    def loops(self) -> list[For]:
        """The loops that it is in."""
        return [one for one in self.around if isinstance(one, For)]

    @property
    def parallel(self) -> For | None:
        """The parallel loop that it is in."""
        return next((loop for loop in self.loops if loop.kind is LoopKind.PARALLEL), None)

    @property
    def has_threads(self) -> bool:
        """Whether several threads do it: it is in a parallel loop, or has one."""
        return self.parallel is not None or any(_is_parallel(s) for part in self.body for s in walk(part))


@dataclass(frozen=True, slots=True)
class Instrumented:
    """A kernel with clocks, its regions, and the shape of the array of times."""

    kernel: Kernel
    regions: tuple[Region, ...]
    shape: tuple[int, int]


def _middle(loop: For, values: Mapping[str, int]) -> dict[str, int]:
    """The values with one for the variable of a loop, from its middle."""
    lower, upper = exact_value(loop.lower, values), exact_value(loop.upper, values)
    return {**values, loop.var.name: ((lower or 0) + (upper or 0)) // 2}


def instrumented(kernel: Kernel, sizes: Mapping[str, int], most: int) -> Instrumented:
    """The kernel with clocks around all regions that begin at most so often."""
    cutter = _Cutter(dict(sizes), most)
    rows = max((trips(s, sizes) or 1 for s in walk(kernel.body) if _is_parallel(s)), default=1)
    body = cutter.region((kernel.body,), (), 1, None, as_expr(0, INDEX), dict(sizes))
    width = -(-_FIELDS * len(cutter.regions) // _LINE) * _LINE
    clocks = Buffer(CLOCKS, (as_expr(rows, INDEX), as_expr(width, INDEX)), INDEX)
    made = replace(
        kernel,
        params=(*kernel.params, clocks),
        outputs=(*kernel.outputs, CLOCKS),
        body=_placed(body, clocks),
    )
    return Instrumented(made, tuple(cutter.regions), (rows, width))


def _is_parallel(stmt: Stmt) -> TypeGuard[For]:
    return isinstance(stmt, For) and stmt.kind is LoopKind.PARALLEL


def stages_of(stmts: Iterable[Stmt]) -> tuple[str, ...]:
    """The stages whose arrays statements write, in order."""
    return tuple(dict.fromkeys(name for stmt in stmts for name in _written(stmt)))


def _written(stmt: Stmt) -> Iterator[str]:
    if stores := tuple_stores(stmt):
        yield stores[0].buffer.name.removesuffix(".v0")
        return
    match stmt:
        case Store(buffer=buffer) | AtomicUpdate(buffer=buffer):
            yield buffer.name
        case CallMachine(views=views):
            yield views[-1].buffer.name
        case CallPython(buffers=buffers):
            yield buffers[-1].name
    for child in children(stmt):
        yield from _written(child)


class _Cutter:
    """Cuts a kernel into regions, outer ones first."""

    def __init__(self, sizes: dict[str, int], most: int) -> None:
        self.regions: list[Region] = []
        self._sizes = sizes
        self._most = most

    def region(
        self,
        body: tuple[Stmt, ...],
        around: tuple[Around, ...],
        entries: int,
        parent: int | None,
        row: Expr,
        values: dict[str, int],
    ) -> Stmt:
        """Statements with clocks around them, and around those inside."""
        number = len(self.regions)
        self.regions.append(Region(stages_of(body), body, around, entries, parent))
        inner = [self._inside(stmt, around, entries, number, row, values) for stmt in body]
        return _timed(inner, number, row)

    def _inside(
        self, stmt: Stmt, around: tuple[Around, ...], entries: int, parent: int, row: Expr, values: dict[str, int]
    ) -> Stmt:
        match stmt:
            case For(kind=LoopKind.PARALLEL):
                count = trips(stmt, values)
                if count is None or entries * count > max(self._most // _ROW, _THREADS):
                    return stmt
                own = binary("sub", stmt.var, stmt.lower)
                loops = (*around, stmt)
                return replace(
                    stmt, body=self.region((stmt.body,), loops, entries * count, parent, own, _middle(stmt, values))
                )
            case For(kind=LoopKind.SERIAL):
                count = trips(stmt, values)
                if count is None or entries * count > self._most:
                    return stmt
                made = self._inside(stmt.body, (*around, stmt), entries * count, parent, row, _middle(stmt, values))
                return replace(stmt, body=made)
            case Seq():
                groups = _groups(stmt.body)
                if len(groups) == 1:
                    return Seq(tuple(self._inside(s, around, entries, parent, row, values) for s in stmt.body))
                if entries * len(groups) > self._most:
                    return stmt
                return Seq(tuple(self.region(g, around, entries, parent, row, values) for g in groups))
            case Allocate():
                return replace(stmt, body=self._inside(stmt.body, around, entries, parent, row, values))
            case Let() if not tuple_stores(stmt):
                return replace(stmt, body=self._inside(stmt.body, (*around, stmt), entries, parent, row, values))
            case If():
                holds, fails = Condition(stmt.cond), Condition(stmt.cond, holds=False)
                then = self._inside(stmt.then, (*around, holds), entries, parent, row, values)
                orelse = stmt.orelse and self._inside(stmt.orelse, (*around, fails), entries, parent, row, values)
                return replace(stmt, then=then, orelse=orelse)
        return stmt


def _groups(body: Sequence[Stmt]) -> list[tuple[Stmt, ...]]:
    """Statements by the stages that they make; loops are apart, of which each may have parts inside."""
    groups: list[list[Stmt]] = []
    before: tuple[str, ...] = ()
    for stmt in body:
        stages = stages_of([stmt])
        if groups and (not stages or stages == before or not before):
            groups[-1].append(stmt)
        else:
            groups.append([stmt])
        before = stages or before
    loops = len(groups) == 1 and all(isinstance(s, For) and s.kind is LoopKind.SERIAL and stages_of([s]) for s in body)
    return [(s,) for s in body] if loops else [tuple(group) for group in groups]


def _now() -> Expr:
    return MachineCall("llvm", "llvm.readcyclecounter", (), INDEX)


_UNPLACED = Buffer(CLOCKS, (), INDEX)


def _timed(body: Sequence[Stmt], number: int, row: Expr) -> Stmt:
    """Statements, and what writes down when they began and ended."""
    begin, end = Var(f"begin_{number}", INDEX), Var(f"end_{number}", INDEX)

    def at(field: int) -> tuple[Expr, ...]:
        return row, as_expr(_FIELDS * number + field, INDEX)

    first, total = Load(_UNPLACED, at(FIRST)), Load(_UNPLACED, at(TOTAL))
    was = Select(Binary("eq", first, Const(0, INDEX), "bool"), begin, first, INDEX)
    stores = (
        Store(_UNPLACED, at(FIRST), was),
        Store(_UNPLACED, at(LAST), end),
        Store(_UNPLACED, at(TOTAL), binary("add", total, binary("sub", end, begin))),
    )
    return Let(begin, _now(), Seq((*body, Let(end, _now(), Seq(stores)))))


def _placed(stmt: Stmt, clocks: Buffer) -> Stmt:
    """The statement with the array of times, whose width is known at the end."""

    def load(node: Expr) -> Expr | None:
        return Load(clocks, node.index) if isinstance(node, Load) and node.buffer is _UNPLACED else None

    if isinstance(stmt, Store) and stmt.buffer is _UNPLACED:
        return replace(stmt, buffer=clocks, value=rewrite(stmt.value, load))
    return map_children(stmt, lambda inner: _placed(inner, clocks))
