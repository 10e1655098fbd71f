"""The statements of a hybrid operation: what each stores, under which loops and conditions, and when."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field, replace
from functools import lru_cache
from itertools import count

from tensorlang.dataclass import dataclass
from tensorlang.errors import DefinitionError, InternalError
from tensorlang.ir.expr import Binary, Expr, Load, Unary, Var, binary, rewrite, same, walk
from tensorlang.ir.extremes import extreme
from tensorlang.ir.index import to_index
from tensorlang.ir.simplify import simplify
from tensorlang.ir.stmt import Allocate, For, If, Seq, Stmt, Store
from tensorlang.polyhedral.affine_text import Namer, index_text
from tensorlang.te.operation import HybridOp

REDUCERS = {
    "add": "add", "sub": "add", "mul": "mul", "div": "mul", "min": "min", "max": "max", "and": "and", "or": "or",
    "bitand": "bitand", "bitor": "bitor", "bitxor": "bitxor",
}  # fmt: skip
"""Operator of an update -> the family of updates that may change places with it."""
_RIGHT_ONLY = ("sub", "div")  # the element is their left operand


@dataclass(frozen=True, slots=True)
class Source:
    """One store of a hybrid operation.

    `loops` are around it, outermost first; `hull` gives the box (lower, extent) of each over the sizes alone.
    `position` is its time in the program: static positions and loop names in turn. `reducer` names the family of
    operators by which the store combines the element with a value. `scopes` names the loops around the declaration of
    each local array that may be used here.
    """

    name: str
    store: Store
    loops: tuple[For, ...]
    hull: Mapping[str, tuple[Expr, Expr]]
    position: tuple[int | str, ...]
    conditions: tuple[Expr, ...]
    reducer: str
    scopes: Mapping[str, tuple[str, ...]]

    @property
    def axes(self) -> tuple[str, ...]:
        """The names of the loops."""
        return tuple(loop.var.name for loop in self.loops)

    @property
    def ranges(self) -> list[Expr]:
        """The conditions that keep the loops in their bounds."""
        pairs = [(loop.var, loop.lower, loop.upper) for loop in self.loops]
        return [c for v, low, up in pairs for c in (binary("ge", v, to_index(low)), binary("lt", v, to_index(up)))]

    @property
    def domain(self) -> list[Expr]:
        """All conditions under which the statement runs."""
        return [*self.ranges, *self.conditions]


@dataclass(frozen=True, slots=True)
class _Place:
    loops: tuple[For, ...] = ()
    conditions: tuple[Expr, ...] = ()
    scopes: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


@lru_cache(maxsize=512)
def sources(op: HybridOp) -> Mapping[str, Source]:
    """Return the statements of a canonical hybrid operation by name: S0, S1, ... in program order."""
    numbers = count()

    def visit(stmt: Stmt, place: _Place) -> Iterator[Source]:
        match stmt:
            case Store():
                yield _source(f"S{next(numbers)}", stmt, place)
            case For():
                _require_affine(op, stmt, place)
                inner = replace(place, loops=(*place.loops, stmt))
                yield from children_of(stmt.body, inner)
            case If():
                yield from children_of(stmt.then, replace(place, conditions=(*place.conditions, stmt.cond)))
                if stmt.orelse is not None:
                    no = Unary("not", stmt.cond, "bool")
                    yield from children_of(stmt.orelse, replace(place, conditions=(*place.conditions, no)))
            case Allocate():
                here = tuple(loop.var.name for loop in place.loops)
                scopes = {**place.scopes, stmt.buffer.name: here}
                yield from children_of(stmt.body, replace(place, scopes=scopes))
            case Seq():
                yield from children_of(stmt, place)
            case _:
                raise InternalError(f"a hybrid operation holds {type(stmt).__name__}")

    def children_of(stmt: Stmt, place: _Place) -> Iterator[Source]:
        for child in stmt.body if isinstance(stmt, Seq) else (stmt,):
            yield from visit(child, place)

    return _timed(list(children_of(op.body, _Place())))


@lru_cache(maxsize=512)
def first_inside(op: HybridOp) -> Mapping[str, str]:
    """For each statement, the first one inside the same loops: what depends on the loops alone is computed for that."""
    first: dict[tuple[str, ...], str] = {}
    return {name: first.setdefault(source.axes, name) for name, source in sources(op).items()}


@lru_cache(maxsize=512)
def touching(op: HybridOp) -> Mapping[str, frozenset[str]]:
    """The names of the statements that touch each array."""
    found: dict[str, set[str]] = {}
    for source in sources(op).values():
        for expr in (*source.conditions, *source.store.index, source.store.value):
            for node in walk(expr):
                if isinstance(node, Load):
                    found.setdefault(node.buffer.name, set()).add(source.name)
        found.setdefault(source.store.buffer.name, set()).add(source.name)
    return {array: frozenset(names) for array, names in found.items()}


def _timed(found: list[Source]) -> dict[str, Source]:
    """Give each statement its static positions: the number of the child that it lies in, at every depth."""
    done: dict[str, Source] = {}
    counters: dict[tuple[str, ...], int] = {}
    last: tuple[str, ...] = ()
    for source in found:
        names = source.axes
        for depth in range(len(shared_prefix(names, last)), len(names) + 1):
            counters[names[:depth]] = counters.get(names[:depth], -1) + 1
        position: list[int | str] = []
        for depth, name in enumerate(names):
            position += [counters[names[:depth]], name]
        done[source.name] = replace(source, position=(*position, counters[names]))
        last = names
    return done


def shared_prefix(*paths: Sequence[str]) -> tuple[str, ...]:
    """The loops or axes that all paths begin with, outermost first."""
    shared: list[str] = []
    for first, *others in zip(*paths, strict=False):
        if any(name != first for name in others):
            break
        shared.append(first)
    return tuple(shared)


def _source(name: str, store: Store, place: _Place) -> Source:
    hull: dict[str, tuple[Expr, Expr]] = {}
    ends: dict[str, tuple[Expr, Expr]] = {}
    for loop in place.loops:
        low = extreme(to_index(loop.lower), ends, False)
        last = extreme(binary("sub", to_index(loop.upper), 1), ends, True)
        ends[loop.var.name] = low, last
        extent = simplify(binary("add", binary("sub", last, low), 1))
        hull[loop.var.name] = simplify(low), simplify(extent)
    return Source(name, store, place.loops, hull, (), place.conditions, _reducer(store, place.conditions), place.scopes)


def _require_affine(op: HybridOp, loop: For, place: _Place) -> None:
    """Bounds must be affine in the loops around and the sizes: the analysis counts iterations by them."""
    names = {outer.var.name: f"d{k}" for k, outer in enumerate(place.loops)}
    for bound in (loop.lower, loop.upper):
        if index_text(to_index(bound), names, Namer(frozenset(_sizes(bound, names)))) is None:
            raise DefinitionError(
                f"the bounds of loop {loop.var.name} of {op.name} must be affine in the loops around it and the sizes, "
                f"got {bound}",
                op.location,
            )


def _sizes(bound: Expr, loops: Mapping[str, str]) -> set[str]:
    found: set[str] = set()

    def collect(node: Expr) -> None:
        if isinstance(node, Var) and node.name not in loops:
            found.add(node.name)

    rewrite(bound, collect)
    return found


def _reducer(store: Store, conditions: Sequence[Expr]) -> str:
    """The family of `A[x] = A[x] op value`; empty when the store is no such update, or needs the element elsewhere.

    The value may read other elements of A: those reads keep their order with every update.
    """
    own = own_element(store)
    update = updated(store.value, own)
    if update is None:
        return ""
    op, rest = update
    needed = (n for e in (*conditions, *store.index, rest) for n in walk(e))
    return "" if any(same(n, own) for n in needed) else REDUCERS[op]


def own_element(store: Store) -> Load:
    """The element that a store writes, as a read."""
    return Load(store.buffer, store.index)


def updated(value: Expr, element: Expr) -> tuple[str, Expr] | None:
    """The operator and the operand of `element op operand`; None when a value is not of that form."""
    if not isinstance(value, Binary) or value.op not in REDUCERS:
        return None
    if same(value.a, element):
        return value.op, value.b
    if value.op not in _RIGHT_ONLY and same(value.b, element):
        return value.op, value.a
    return None
