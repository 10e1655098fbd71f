"""What was generated is checked: the loops and guards, turned back into isl, run exactly the wanted instances.

The scan is repeated with marker stores in place of the statements, taken through the passes that touch loops,
and read back: every instance of the schedule's domain must run, exactly once, and in a legal order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from tensorlang.errors import InternalError
from tensorlang.ir.expr import (
    Binary,
    Buffer,
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
from tensorlang.ir.loops import THREAD_REDUCE
from tensorlang.ir.simplify.conditions import negated
from tensorlang.ir.stmt import INDEX, Allocate, For, If, Kernel, LoopKind, Seq, Stmt, Store
from tensorlang.lowering.instances import Run, check_instances
from tensorlang.lowering.passes.full_tile import operands
from tensorlang.lowering.tensorize import Scanned, over_tile
from tensorlang.polyhedral.legality import violations
from tensorlang.polyhedral.scan import LeafBuilder, scan
from tensorlang.polyhedral.statement import Access, Scop, Statement
from tensorlang.schedule.derive.plans import Derived

_ZERO = Const(0, INDEX)


def check_implemented(
    derived: Derived, scanned: Scanned, passes: Sequence[Callable[[Kernel], Kernel]], order: bool = True
) -> None:
    """Raise InternalError unless the generated loops run the instances of `derived`, each once, in a legal order.

    `order=False` leaves out the order, which costs most.
    """
    body = scan(scanned.tree, scanned.scop, _marker_of(scanned), lambda _, inside: inside)
    sizes = tuple(Var(name, INDEX) for name in sorted(derived.scop.sizes))
    markers = tuple(_buffer(k, len(s.loops)) for k, s in enumerate(derived.scop.statements))
    kernel = Kernel("markers", markers, sizes, tuple(m.name for m in markers), body)
    for function in passes:
        kernel = function(kernel)
    runs = list(_runs(kernel.body, _Context()))
    for k, statement in enumerate(derived.scop.statements):
        check_instances(statement, [r for r in runs if r.statement == k], derived.scop)
    if order:
        _check_order(derived.scop, runs)


def _buffer(number: int, rank: int) -> Buffer:
    return Buffer(f"S{number}", (_ZERO,) * rank, "int32")


def _marker_of(scanned: Scanned) -> LeafBuilder:
    """Markers of statements, and of all that a tile stands for."""

    def marker(number: int, values: Mapping[str, Expr]) -> Stmt:
        if number not in scanned.tiles:
            return _marker(number, {name: values[name] for name in scanned.scop.statements[number].loops})
        parts = [over_tile(part, values, marker) for part in scanned.tiles[number].covered]
        return parts[0] if len(parts) == 1 else Seq(tuple(parts))

    return marker


def _marker(number: int, values: Mapping[str, Expr]) -> Stmt:
    return Store(_buffer(number, len(values)), tuple(values.values()), Const(0, "int32"))


@dataclass(frozen=True, slots=True)
class _Context:
    """The loops and guards around a place in the code; loop names are made unique by position."""

    loops: tuple[str, ...] = ()
    conditions: tuple[Expr, ...] = ()
    time: tuple[int | str, ...] = ()
    unordered: tuple[str, ...] = ()
    lanes: tuple[str, ...] = ()
    gathered: tuple[str, ...] = ()

    def at(self, position: int) -> _Context:
        return replace(self, time=(*self.time, position))

    def under(self, condition: Expr) -> _Context:
        return replace(self, conditions=(*self.conditions, *map(_in_cases, operands("and", condition))))

    def inside(self, loop: For) -> _Context:
        name = loop.var.name
        bounds = (  # one by one: a maximum in a condition would cut isl's sets in pieces
            *(binary("ge", loop.var, low) for low in operands("max", loop.lower)),
            *(binary("lt", loop.var, up) for up in operands("min", loop.upper)),
        )
        return _Context(
            (*self.loops, name),
            (*self.conditions, *map(_in_cases, bounds)),
            (*self.time, name),
            (*self.unordered, name) if loop.kind in (LoopKind.PARALLEL, LoopKind.BOUND) else self.unordered,
            (*self.lanes, name) if loop.kind is LoopKind.VECTORIZED else self.lanes,
            (*self.gathered, name) if (THREAD_REDUCE, 1) in loop.pragmas else self.gathered,
        )


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
    choice = _choice((condition,))
    if choice is None:
        return condition
    then = binary("and", choice.cond, _taken(condition, choice, choice.then))
    orelse = binary("and", Unary("not", choice.cond, "bool"), _taken(condition, choice, choice.orelse))
    return _in_cases(binary("or", then, orelse))


def _runs(stmt: Stmt, around: _Context) -> Iterator[Run]:
    match stmt:
        case Store() if (choice := _choice(stmt.index)) is not None:
            yield from _cases(stmt, choice, choice.cond, choice.then, choice.orelse, around)
        case Store() if (extreme := _extreme(stmt.index)) is not None:
            first = binary("le" if extreme.op == "min" else "ge", extreme.a, extreme.b)
            yield from _cases(stmt, extreme, first, extreme.a, extreme.b, around)
        case Store():
            number = int(stmt.buffer.name[1:])
            loops, where, time = around.loops, around.conditions, around.time
            yield Run(number, stmt.index, loops, where, time, around.unordered, around.lanes, around.gathered)
        case Seq():
            for k, child in enumerate(_flat(stmt)):
                yield from _runs(child, around.at(k))
        case For():
            yield from _runs(stmt.body, around.inside(stmt))
        case If():
            yield from _runs(stmt.then, around.at(0).under(stmt.cond))
            if stmt.orelse is not None:
                yield from _runs(stmt.orelse, around.at(1).under(negated(stmt.cond)))
        case Allocate():
            yield from _runs(stmt.body, around)
        case _:
            raise InternalError(f"a marker kernel holds {type(stmt).__name__}")


def _cases(store: Store, node: Expr, condition: Expr, then: Expr, orelse: Expr, around: _Context) -> Iterator[Run]:
    """The runs of a marker with a choice in its index made."""
    for test, value in ((condition, then), (negated(condition), orelse)):
        index = tuple(_taken(i, node, value) for i in store.index)
        yield from _runs(replace(store, index=index), around.under(test))


def _flat(stmt: Seq) -> list[Stmt]:
    found: list[Stmt] = []
    for child in stmt.body:
        found += _flat(child) if isinstance(child, Seq) else [child]
    return found


def _check_order(scop: Scop, runs: Sequence[Run]) -> None:
    """The dependences of the generated order, its parallel loops and lanes included."""
    width = {a.array: len(a.version) for s in scop.statements for a in (*s.writes, *s.reads)}
    arrays = tuple(replace(a, shape=(_ZERO,) * width.get(a.name, 0) + a.shape) for a in scop.arrays)
    statements = tuple(_as_run(scop.statements[r.statement], r, k) for k, r in enumerate(runs))
    unordered = frozenset(_unique(name, k) for k, r in enumerate(runs) for name in r.unordered)
    gathered = frozenset(_unique(name, k) for k, r in enumerate(runs) for name in r.gathered)
    checked = Scop(statements, arrays, scop.sizes, unordered, scop.declared, atomic=scop.atomic, gathered=gathered)
    broken = violations(checked)
    if broken:
        raise InternalError(f"the generated order breaks a {broken[0].kind} dependence through {broken[0].array}")


def _unique(name: str, run: int) -> str:
    return f"{name}#{run}"


def _as_run(statement: Statement, run: Run, number: int) -> Statement:
    """A statement with the loops, the guards and the time that it has in the generated code."""
    rename: dict[str, Expr] = {name: Var(_unique(name, number), INDEX) for name in run.loops}
    values = [substitute(v, rename) for v in run.values]
    env = dict(zip(statement.loops, values, strict=True))

    def moved(access: Access) -> Access:
        version = tuple(env[v] for v in access.version)
        index = None if access.index is None else (*version, *(substitute(i, env) for i in access.index))
        conditions = tuple(substitute(c, env) for c in access.conditions)
        origin = tuple(substitute(o, env) for o in access.origin)
        return replace(access, index=index, version=(), conditions=conditions, origin=origin)

    return Statement(
        f"{statement.name}#{number}",
        statement.stage,
        statement.role,
        tuple(_unique(name, number) for name in run.loops),
        tuple(substitute(c, rename) for c in run.conditions),
        tuple((axis, substitute(value, env)) for axis, value in statement.point),
        tuple(moved(a) for a in statement.writes),
        tuple(moved(a) for a in statement.reads),
        tuple(p if isinstance(p, int) else _unique(p, number) for p in run.time),
        tuple(_unique(name, number) for name in run.lanes),
        statement.source,
        placing=tuple(substitute(c, rename) for c in run.conditions),
    )
