"""A kernel read back: which instances its leaves run, in which loops, under which tests, and when.

A guard is part of what the statements in it do. Any other test says which instances run, and isl has to see it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import field, replace

from tensorlang.dataclass import dataclass
from tensorlang.errors import InternalError
from tensorlang.ir.expr import (
    Binary,
    Const,
    Expr,
    Select,
    Unary,
    Var,
    binary,
    rewrite,
    substitute,
    walk,
)
from tensorlang.ir.instance import Instance
from tensorlang.ir.loops import THREAD_REDUCE
from tensorlang.ir.simplify.conditions import negated
from tensorlang.ir.stmt import (
    INDEX,
    Allocate,
    AsyncCommit,
    AsyncWait,
    Barrier,
    CallMachine,
    DeviceKernel,
    For,
    If,
    Kernel,
    Launch,
    Leaf,
    Let,
    LoopKind,
    MachineCommit,
    MachineWait,
    Mark,
    Seq,
    Stmt,
    Store,
)
from tensorlang.ir.thread_tags import BLOCKS, THREADS
from tensorlang.lowering.passes.full_tile import operands
from tensorlang.lowering.read_back.rolled import Depth, rolled
from tensorlang.lowering.read_back.runs import Place, Run, branch
from tensorlang.polyhedral.statement import constant_bound

_ZERO = Const(0, INDEX)


@dataclass(frozen=True, slots=True)
class _Around:
    """The loops and tests around a place in the code, and what names stand for."""

    loops: tuple[str, ...] = ()
    conditions: tuple[Expr, ...] = ()
    time: tuple[int | str, ...] = ()
    unordered: tuple[str, ...] = ()
    lanes: tuple[str, ...] = ()
    gathered: tuple[str, ...] = ()
    names: Mapping[str, Expr] = field(default_factory=dict)
    allocated: tuple[tuple[str, Place], ...] = ()

    def at(self, position: int) -> _Around:
        return replace(self, time=(*self.time, position))

    def meaning(self, expr: Expr) -> Expr:
        return substitute(expr, self.names) if self.names else expr

    def under(self, condition: Expr) -> _Around:
        parts = operands("and", self.meaning(condition))
        return replace(self, conditions=(*self.conditions, *map(_in_cases, parts)))

    def inside(self, loop: For) -> _Around:
        name = loop.var.name
        within = self._over(name, self.meaning(loop.lower), self.meaning(loop.upper))
        if loop.kind is LoopKind.SERIAL and not loop.pragmas:
            return within
        return replace(
            within,
            unordered=(*self.unordered, name) if loop.kind in (LoopKind.PARALLEL, LoopKind.BOUND) else self.unordered,
            lanes=(*self.lanes, name) if loop.kind is LoopKind.VECTORIZED else self.lanes,
            gathered=(*self.gathered, name) if (THREAD_REDUCE, 1) in loop.pragmas else self.gathered,
        )

    def with_array(self, name: str) -> _Around:
        """What is around the statements that have an array, which is made here."""
        place = tuple(part for part in self.time if part not in self.unordered)
        return replace(self, allocated=(*self.allocated, (name, place)))

    def on_device(self, kernel: DeviceKernel) -> _Around:
        """What is around the code of all threads of a launch."""
        within = self
        threads = (Const(extent, INDEX) for extent in kernel.block)
        for tag, extent in zip((*BLOCKS, *THREADS), (*map(self.meaning, kernel.grid), *threads), strict=True):
            within = within._over(tag, _ZERO, extent)
        return replace(within, unordered=(*self.unordered, *BLOCKS, *THREADS))

    def _over(self, name: str, lower: Expr, upper: Expr) -> _Around:
        if name in self.loops:
            raise InternalError(f"the generated code has a loop {name} inside another one")
        var = Var(name, INDEX)
        bounds = (  # one by one: a maximum in a condition would cut isl's sets in pieces
            *(binary("ge", var, low) for low in operands("max", lower)),
            *(binary("lt", var, up) for up in operands("min", upper)),
        )
        return replace(
            self,
            loops=(*self.loops, name),
            conditions=(*self.conditions, *map(_in_cases, bounds)),
            time=(*self.time, name),
            names={known: value for known, value in self.names.items() if known != name},
        )


def runs_of(kernel: Kernel) -> list[Run]:
    """Return what the leaves of a kernel run, in the order of the code."""
    return list(_runs(kernel.body, _Around()))


def _runs(stmt: Stmt, around: _Around) -> Iterator[Run]:
    match stmt:
        case Seq():
            row = [list(_runs(child, around.at(k))) for k, child in enumerate(_flat(stmt))]
            yield from rolled(row, Depth(len(around.loops), len(around.conditions), len(around.time)))
        case For():
            yield from _runs(stmt.body, around.inside(stmt))
        case If(is_guard=True):
            yield from _runs(stmt.then, around.at(branch(0)))
            if stmt.orelse is not None:
                yield from _runs(stmt.orelse, around.at(branch(1)))
        case If():
            yield from _runs(stmt.then, around.at(branch(0)).under(stmt.cond))
            if stmt.orelse is not None:
                yield from _runs(stmt.orelse, around.at(branch(1)).under(negated(stmt.cond)))
        case Allocate():
            yield from _runs(stmt.body, around.with_array(stmt.buffer.name))
        case Let():
            names = {**around.names, stmt.var.name: around.meaning(stmt.value)}
            yield from _runs(stmt.body, replace(around, names=names) if stmt.var.dtype == INDEX else around)
        case Launch(kernel):
            yield from _runs(kernel.body, around.on_device(kernel))
        case _ if isinstance(stmt, Leaf):
            for k, instance in enumerate(stmt.runs):
                yield from _run(instance, around.at(branch(k)) if len(stmt.runs) > 1 else around, stmt)


def is_private(stmt: Stmt) -> bool:
    """Whether each thread runs a statement for itself: on memory of its own, or as all have to."""
    match stmt:
        case Barrier() | AsyncCommit() | AsyncWait() | MachineCommit() | MachineWait() | Mark():
            return True
        case CallMachine():
            return stmt.code.lanes > 0
        case Store():
            return stmt.buffer.scope in ("local", "warp")
    return False


def _run(instance: Instance, around: _Around, leaf: Stmt) -> Iterator[Run]:
    """The run of an instance by a leaf, with every choice made."""
    private = is_private(leaf)
    for name, lower, end in instance.over:
        around = around._over(name, Const(lower, INDEX), Const(end, INDEX))
    for condition in instance.conditions:
        around = around.under(condition)
    values = tuple([around.meaning(v) for v in instance.values])
    for where, found in _cases(values, around):
        loops = where.loops
        threads = tuple(t for t in THREADS if private and t in loops and t not in instance.combined)
        yield Run(
            instance.statement,
            found,
            loops,
            where.conditions,
            where.time,
            where.unordered,
            where.lanes,
            where.gathered,
            instance.part,
            threads,
            instance.moved,
            leaf,
            where.allocated,
        )


def _cases(values: tuple[Expr, ...], around: _Around) -> Iterator[tuple[_Around, tuple[Expr, ...]]]:
    """Values without choices between numbers, each case under its conditions."""
    chosen = [value for value in values if not isinstance(value, Var | Const)]
    node: Expr | None = _choice(chosen)
    if isinstance(node, Select):
        condition, then, orelse = node.cond, node.then, node.orelse
    else:
        extreme = _extreme(chosen)
        if extreme is None:
            yield around, values
            return
        node, then, orelse = extreme, extreme.a, extreme.b
        condition = binary("le" if extreme.op == "min" else "ge", then, orelse)
    for test, value in ((condition, then), (negated(condition), orelse)):
        yield from _cases(tuple(_taken(v, node, value) for v in values), around.under(test))


def _choice(exprs: Iterable[Expr]) -> Select | None:
    """A choice between numbers, which isl makes where a bound or a value has several pieces."""
    return next((node for expr in exprs for node in walk(expr) if isinstance(node, Select)), None)


def _extreme(exprs: Iterable[Expr]) -> Binary | None:
    """A minimum or maximum."""
    return next((n for e in exprs for n in walk(e) if isinstance(n, Binary) and n.op in ("min", "max")), None)


def _taken(expr: Expr, choice: Expr, value: Expr) -> Expr:
    """An expression where a choice is made."""
    return rewrite(expr, lambda node: value if node is choice else None)


def _in_cases(condition: Expr) -> Expr:
    """The same condition without choices between numbers."""
    if constant_bound(condition) is not None:
        return condition
    choice = _choice((condition,))
    if choice is None:
        return condition
    then = binary("and", choice.cond, _taken(condition, choice, choice.then))
    orelse = binary("and", Unary("not", choice.cond, "bool"), _taken(condition, choice, choice.orelse))
    return _in_cases(binary("or", then, orelse))


def _flat(stmt: Seq) -> list[Stmt]:
    found: list[Stmt] = []
    for child in stmt.body:
        found += _flat(child) if isinstance(child, Seq) else [child]
    return found
