"""Vectorized loops: neighbouring elements in one access where that can be, arithmetic lane by lane.

The iterations of such a loop do not depend on each other, so what one statement reads for all lanes is read before it
writes for any.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from functools import reduce
from typing import TypeAlias

from tensorlang.dataclass import dataclass
from tensorlang.ir.affine import add, affine
from tensorlang.ir.expr import (
    Binary,
    Const,
    Expr,
    Load,
    Select,
    Unary,
    Var,
    binary,
    rewrite,
    same,
    substitute,
    substitution,
)
from tensorlang.ir.loops import constant_extent, reads_memory, uses
from tensorlang.ir.simplify import simplify
from tensorlang.ir.stmt import INDEX, For, If, Let, LoopKind, Seq, Stmt, Store, map_exprs
from tensorlang.target.c_source import arithmetic
from tensorlang.target.c_source import code as c
from tensorlang.target.c_source.code import Code
from tensorlang.target.c_source.expressions import (
    declared_type,
    element,
    factor,
    index,
    loaded,
    offset,
    offset_code,
    stored,
    value,
)
from tensorlang.target.c_source.memory import copy, lane_array, pieces
from tensorlang.target.c_source.scope import Scope

Emit: TypeAlias = Callable[[Scope, Stmt], None]

_WIDTHS = (2, 4, 8, 16)


@dataclass(frozen=True, slots=True)
class Lanes:
    """The loop whose iterations are lanes: its variable, where it starts, how many there are.

    `own`: variables that each lane has of its own, and their dtypes.
    """

    var: Var
    lower: Expr
    count: int
    own: Mapping[str, str]

    def varies(self, expr: Expr) -> bool:
        """Whether lanes may see different values."""
        return any(uses(expr, name) for name in (self.var.name, *self.own))

    def at(self, lane: int) -> Mapping[str, Expr]:
        """What variables are in one lane."""
        first = binary("add", self.lower, Const(lane, INDEX))
        return {self.var.name: first, **{n: Var(f"{n}@{lane}", dtype) for n, dtype in self.own.items()}}


@dataclass(frozen=True, slots=True)
class _Read:
    """An element that lanes read, with the conditions, the same in all lanes, under which they do."""

    load: Load
    guards: tuple[Expr, ...]


def vector_loop(scope: Scope, loop: For, emit: Emit) -> bool:
    """Append a loop whose iterations are lanes; False if its extent is none of 2, 4, 8 and 16."""
    count = constant_extent(loop)
    if count not in _WIDTHS:
        return False
    _emit(scope, Lanes(loop.var, loop.lower, count, {}), loop.body, emit)
    return True


def _emit(scope: Scope, lanes: Lanes, stmt: Stmt, emit: Emit) -> None:
    match stmt:
        case Store():
            _store(scope, lanes, stmt)
        case Seq():
            for part in stmt.body:
                _emit(scope, lanes, part, emit)
        case If() if not lanes.varies(stmt.cond):
            scope.line(f"if ({value(scope, stmt.cond).text}) {{")
            _emit(scope.deeper, lanes, stmt.then, emit)
            if stmt.orelse is not None:
                scope.line("} else {")
                _emit(scope.deeper, lanes, stmt.orelse, emit)
            scope.line("}")
        case Let():
            _let(scope, lanes, stmt, emit)
        case For(kind=LoopKind.SERIAL | LoopKind.UNROLLED) if not (
            lanes.varies(stmt.lower) or lanes.varies(stmt.upper)
        ):
            _inner_loop(scope, lanes, stmt, emit)
        case _:
            for lane in range(lanes.count):
                emit(scope, map_exprs(stmt, substitution(lanes.at(lane))))


def _inner_loop(scope: Scope, lanes: Lanes, loop: For, emit: Emit) -> None:
    """A loop inside of the lanes: all of them take its steps together."""
    lower, upper = index(scope, loop.lower), index(scope, loop.upper)
    name = scope.fresh(loop.var.name, kept=False)
    last = max(upper.interval[1] - 1, lower.interval[0])
    var = scope.index_code(name, (lower.interval[0], last), lower.unknown or upper.unknown)
    if constant_extent(loop) is not None and loop.kind is LoopKind.UNROLLED:
        scope.pragma("unroll")
    end = upper.at(c.LESS + 1)
    scope.line(f"for ({declared_type(scope, var)} {name} = {lower.text}; {name} < {end}; ++{name}) {{")
    _emit(scope.deeper.bind(loop.var.name, var), lanes, loop.body, emit)
    scope.line("}")


def _let(scope: Scope, lanes: Lanes, stmt: Let, emit: Emit) -> None:
    """A variable of all lanes, or one for each."""
    name, dtype = stmt.var.name, stmt.var.dtype
    if not lanes.varies(stmt.value):
        made = arithmetic.cast(scope.text, value(scope, stmt.value), dtype)
        _emit(_declared(scope, name, name, made), lanes, stmt.body, emit)
        return
    inner, one = _preloaded(scope, lanes, stmt.value)
    for lane in range(lanes.count):
        made = arithmetic.cast(scope.text, value(inner, one(lane)), dtype)
        inner = _declared(inner, f"{name}@{lane}", f"{name}_{lane}", made)
    _emit(inner, replace(lanes, own={**lanes.own, name: dtype}), stmt.body, emit)


def _declared(scope: Scope, name: str, wanted: str, made: Code) -> Scope:
    fresh = scope.fresh(wanted)
    scope.line(f"const {declared_type(scope, made)} {fresh} = {made.text};")
    return scope.bind(name, replace(made, text=fresh, rank=c.ATOM, bits="", unrounded="", stored=""))


def _store(scope: Scope, lanes: Lanes, stmt: Store) -> None:
    """One statement for all lanes: read, compute, write."""
    width = _width(scope, lanes, stmt.buffer.name, Load(stmt.buffer, stmt.index))
    if width > 1 and isinstance(stmt.value, Load) and _copied(scope, lanes, stmt, width):
        return
    inner, one = _preloaded(scope, lanes, stmt.value)
    if width == 1:
        for lane in range(lanes.count):
            values = lanes.at(lane)
            where = [substitute(i, values) for i in stmt.index]
            scope.line(f"{element(scope, stmt.buffer, where)} = {stored(inner, value(inner, one(lane)))};")
        return
    held = scope.fresh(f"{scope.storage(stmt.buffer).name}_out")
    scope.line(lane_array(scope, stmt.buffer.dtype, held, lanes.count))
    for lane in range(lanes.count):
        scope.line(f"{held}[{lane}] = {stored(inner, value(inner, one(lane)))};")
    space = scope.storage(stmt.buffer).space
    for lane, pointer in _pointers(scope, lanes, Load(stmt.buffer, stmt.index), width):
        source = f"{held} + {lane}" if lane else held
        scope.line(copy(scope, pointer, source, stmt.buffer.dtype, width, (space, "local")))


def _copied(scope: Scope, lanes: Lanes, stmt: Store, width: int) -> bool:
    """Copy memory to memory, as it is, if both sides have wide accesses."""
    load = stmt.value
    assert isinstance(load, Load)
    if load.buffer.dtype != stmt.buffer.dtype:
        return False
    width = min(width, _width(scope, lanes, load.buffer.name, load))
    if width == 1:
        return False
    spaces = scope.storage(stmt.buffer).space, scope.storage(load.buffer).space
    targets, sources = (
        _pointers(scope, lanes, Load(stmt.buffer, stmt.index), width),
        _pointers(scope, lanes, load, width),
    )
    for (_, target), (_, source) in zip(targets, sources, strict=True):
        scope.line(copy(scope, target, source, stmt.buffer.dtype, width, spaces))
    return True


def _preloaded(scope: Scope, lanes: Lanes, expr: Expr) -> tuple[Scope, Callable[[int], Expr]]:
    """Read what lanes read side by side, and once what they share; the scope that has it, and the value of a lane."""
    held: list[tuple[_Read, str, bool]] = []
    inner = scope
    for read in _once(_reads(lanes, expr, ())):
        known = next((h for h in held if _covers(h[0], read)), None)
        if known is not None:
            held.append((read, *known[1:]))
            continue
        made = _shared(inner, lanes, read) if not lanes.varies(read.load) else _row(inner, lanes, read)
        if made is not None:
            inner, key = made
            held.append((read, key, lanes.varies(read.load)))

    def one(lane: int) -> Expr:
        def rule(node: Expr) -> Expr | None:
            for read, key, own in held:
                if node is read.load:
                    return Var(f"{key}@{lane}" if own else key, node.dtype)
            return None

        return substitute(rewrite(expr, rule), lanes.at(lane))

    return inner, one


def _once(reads: Iterable[_Read]) -> Iterable[_Read]:
    """Each load but once: one that stands in several branches is read where any of them is taken."""
    found: dict[int, _Read] = {}
    for read in reads:
        known = found.get(id(read.load))
        found[id(read.load)] = read if known is None else _Read(read.load, _either(known.guards, read.guards))
    return found.values()


def _either(one: tuple[Expr, ...], other: tuple[Expr, ...]) -> tuple[Expr, ...]:
    """Guards that hold where one or the other guards do; none where one of both are none."""
    return (Binary("or", _all_of(one), _all_of(other), "bool"),) if one and other else ()


def _all_of(guards: tuple[Expr, ...]) -> Expr:
    return reduce(lambda test, guard: Binary("and", test, guard, "bool"), guards)


def _covers(known: _Read, read: _Read) -> bool:
    """Whether what was read for one is there for the other, too."""
    return same(known.load, read.load) and (not known.guards or known.guards == read.guards)


def _reads(lanes: Lanes, expr: Expr, guards: tuple[Expr, ...]) -> Iterator[_Read]:
    """The elements that an expression reads, but those read under a condition that lanes see differently."""
    match expr:
        case Load():
            for part in expr.index:
                yield from _reads(lanes, part, guards)
            yield _Read(expr, guards)
        case Select():
            yield from _reads(lanes, expr.cond, guards)
            if not lanes.varies(expr.cond):
                yield from _reads(lanes, expr.then, (*guards, expr.cond))
                yield from _reads(lanes, expr.orelse, (*guards, Unary("not", expr.cond, "bool")))
        case Binary(op="and" | "or"):
            yield from _reads(lanes, expr.a, guards)
            if not lanes.varies(expr.a):
                test = expr.a if expr.op == "and" else Unary("not", expr.a, "bool")
                yield from _reads(lanes, expr.b, (*guards, test))
        case _:
            for child in expr.children():
                yield from _reads(lanes, child, guards)


def _shared(scope: Scope, lanes: Lanes, read: _Read) -> tuple[Scope, str] | None:
    """Read once what all lanes read."""
    if read.guards or scope.storage(read.load.buffer).space == "local":
        return None
    made = value(scope, read.load)
    key = scope.fresh(f"{scope.storage(read.load.buffer).name}_all")
    return _declared(scope, key, key, made), key


def _row(scope: Scope, lanes: Lanes, read: _Read) -> tuple[Scope, str] | None:
    """Read neighbouring elements, one a lane, into an array, if that is a wide access."""
    load = read.load
    width = _width(scope, lanes, load.buffer.name, load)
    if width == 1:
        return None
    space, name = scope.storage(load.buffer).space, scope.storage(load.buffer).name
    held = scope.fresh(f"{name}_in")
    scope.line(lane_array(scope, load.dtype, held, lanes.count))
    inside = scope
    if read.guards:
        scope.line(f"if ({value(scope, _all_of(read.guards)).text}) {{")
        inside = scope.deeper
    for lane, pointer in _pointers(inside, lanes, load, width):
        target = f"{held} + {lane}" if lane else held
        inside.line(copy(inside, target, pointer, load.dtype, width, ("local", space)))
    if read.guards:
        scope.line("}")
    for lane in range(lanes.count):
        scope = scope.bind(f"{held}@{lane}", loaded(scope, load.dtype, f"{held}[{lane}]"))
    return scope, held


def _pointers(scope: Scope, lanes: Lanes, load: Load, width: int) -> Iterator[tuple[int, str]]:
    """The first lane of each wide access, and where it begins."""
    name = scope.storage(load.buffer).name
    for lane in range(0, lanes.count, width):
        where = [substitute(i, lanes.at(lane)) for i in load.index]
        at = offset_code(scope, load.buffer, where)
        yield lane, name if at.constant == 0 else f"{name} + {at.at(c.SUM + 1)}"


def _width(scope: Scope, lanes: Lanes, name: str, load: Load) -> int:
    """How many elements one access to those of the lanes can have; 1 where they are not side by side."""
    if any(uses(part, own) for own in lanes.own for part in load.index) or name not in scope.buffers:
        return 1
    if any(map(reads_memory, load.index)):
        return 1
    affine_ = all(affine(part) is not None for part in load.index)
    tried = (0, 1) if affine_ else range(lanes.count)
    places = [offset(scope, load.buffer, [substitute(i, lanes.at(lane)) for i in load.index]) for lane in tried]
    if any(_distance(places[0], place) != lane for lane, place in enumerate(places)):
        return 1
    return pieces(scope, scope.storage(load.buffer), lanes.count, (factor(places[0], dict(scope.factors)),))


def _distance(start: Expr, end: Expr) -> int | None:
    """`end - start`, if it is a constant."""
    a, b = affine(start), affine(end)
    if a is not None and b is not None:
        form = add(b, a, -1)
        return form.get("", 0) if not form.keys() - {""} else None
    difference = simplify(binary("sub", end, start))
    return int(difference.value) if isinstance(difference, Const) else None
