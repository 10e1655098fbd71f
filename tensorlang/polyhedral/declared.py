"""Dependences of a hybrid operation, in the axes in which it was declared: computed once, whatever the schedule."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from itertools import product
from typing import TypeAlias

from tensorlang import dtypes
from tensorlang.dataclass import dataclass
from tensorlang.ir.expr import Expr, Load, same
from tensorlang.ir.index import to_index
from tensorlang.polyhedral import isl
from tensorlang.polyhedral.affine_text import Namer, conditions_text, dims, index_text, lexicographic
from tensorlang.polyhedral.extract import guarded_loads
from tensorlang.polyhedral.facts import Fact, Gather, bounds, gather, when_equal
from tensorlang.polyhedral.ordered import Source, sources
from tensorlang.te.operation import HybridOp, buffers
from tensorlang.te.program import local_arrays

JOINTS = 20_000
"""Up to so many compositions of two dependences, those that follow from others are left out."""
DETOURS = 2_000_000
"""The isl operations spent on that."""


@dataclass(frozen=True, slots=True)
class Pair:
    """Pairs of instances of two statements, as an isl map."""

    source: str
    sink: str
    pairs: isl.Map


def _by_statements(pairs: isl.UnionMap) -> tuple[Pair, ...]:
    """Pairs of instances, those of the same two statements together."""
    return tuple(Pair(*isl.names_of(found), found) for found in isl.maps_of(pairs))


@dataclass(frozen=True, slots=True)
class Family:
    """Pairs of instances `S0[i, j] -> S1[i, k]` (an isl union map) that meet in one array, the first one first.

    Kind `reduction`: both update an element by the same operator; either order will do, but not the same time. `parts`
    are its pairs by statements.
    """

    kind: str
    array: str
    pairs: isl.UnionMap
    parts: tuple[Pair, ...] = ()


@dataclass(frozen=True, slots=True)
class Declared:
    """All dependences of one operation. `parts` holds those of all families but the reductions, by statements, without
    pairs that follow from two others (unless these are too many to look for): an order that keeps these keeps all."""

    families: tuple[Family, ...]
    parts: tuple[Pair, ...]
    parameters: Mapping[str, Expr]
    op: HybridOp
    strict: bool
    facts: tuple[Fact, ...]


@dataclass(frozen=True, slots=True)
class _Touch:
    """An access of a statement, and what it does.

    `text` is isl text of the element, then the places of `gathers` (the forms of indices about which facts are known,
    by dimension), then the time as declared.
    """

    source: Source
    array: str
    text: str
    writes: bool
    reducer: str
    gathers: tuple[tuple[str, int] | None, ...]
    places: tuple[int, ...]


@lru_cache(maxsize=256)
def declared(op: HybridOp, sizes: frozenset[str], strict: bool, facts: tuple[Fact, ...] = ()) -> Declared:
    """Return the dependences of a canonical hybrid operation.

    `strict`: floating-point updates keep their order. `facts`: what is known about index arrays.
    """
    reader = _Reader(op, sizes, strict, facts)
    touches = [t for s in sources(op).values() for t in reader.touches(s)]
    families: list[Family] = []
    for array in dict.fromkeys(t.array for t in touches if t.writes):
        families += reader.families(array, [t for t in touches if t.array == array])
    ordered = isl.coalesced(isl.union([f.pairs for f in families if f.kind != "reduction"]))
    direct = _without_detours(ordered)
    return Declared(tuple(families), _by_statements(direct), reader.namer.parameters, op, strict, facts)


def _without_detours(pairs: isl.UnionMap) -> isl.UnionMap:
    """The pairs that no two others of them imply; all pairs when finding those takes long."""
    if _joints(pairs) > JOINTS:
        return pairs
    direct = isl.attempt(DETOURS, lambda: isl.coalesced(pairs.subtract(pairs.apply_range(pairs))))
    return pairs if direct is None else direct


def _joints(pairs: isl.UnionMap) -> int:
    """How many two maps of a union map there are of which one ends where the other begins."""
    ends = [isl.names_of(found) for found in isl.maps_of(pairs)]
    into, out = Counter(b for _, b in ends), Counter(a for a, _ in ends)
    return sum(count * out[name] for name, count in into.items())


@lru_cache(maxsize=64)
def nearest(op: HybridOp, sizes: frozenset[str], strict: bool, facts: tuple[Fact, ...]) -> tuple[Family, ...]:
    """Return the dependences access by access, each source with the first of its sinks only: what a reader expects.

    A flow through `A[i - 1, j]` is one family, `(0, 1, 0)`, and not the closure of it.
    """
    reader = _Reader(op, sizes, strict, facts)
    touches = [t for s in sources(op).values() for t in reader.touches(s)]
    found = []
    for a, b in product(touches, touches):
        if a.array == b.array and (a.writes or b.writes):
            same_reducer = a.writes and b.writes and bool(a.reducer) and a.reducer == b.reducer
            kind = "reduction" if same_reducer else "anti" if not a.writes else "output" if b.writes else "flow"
            for family in reader.family(kind, a.array, [a], [b], later=True):
                found.append(replace(family, pairs=family.pairs.lexmin()))
    return tuple(found)


class _Reader:
    def __init__(self, op: HybridOp, sizes: frozenset[str], strict: bool, facts: tuple[Fact, ...]) -> None:
        self.op = op
        self.strict = strict
        self.facts = facts
        self.namer = Namer(sizes)
        self.shapes = {b.name: b.shape for b in (*buffers(op), *local_arrays(op))}
        self.length = max((len(s.position) for s in sources(op).values()), default=0)
        self._maps: dict[str, isl.UnionMap] = {}

    def touches(self, source: Source) -> Iterator[_Touch]:
        store, reducer = source.store, source.reducer
        if self.strict and dtypes.info(store.buffer.dtype).is_float:
            reducer = ""
        own = Load(store.buffer, store.index)
        yield self._touch(source, own, (), True, reducer)
        for expr in (*source.conditions, *store.index, store.value):
            for load, conditions in guarded_loads(expr):
                updated = reducer and load.buffer.name == own.buffer.name and _same_index(load, own)
                if load.buffer.name in self.shapes and not updated:
                    yield self._touch(source, load, conditions, False, "")

    def _touch(self, source: Source, load: Load, conditions: tuple[Expr, ...], writes: bool, reducer: str) -> _Touch:
        names = dims(source.axes)
        index: list[str] = [names[n] for n in source.scopes.get(load.buffer.name, ())]
        extra: list[str] = []
        gathers: list[Gather | None] = []
        for k, (part, size) in enumerate(zip(load.index, load.buffer.shape, strict=True)):
            text, known = index_text(to_index(part), names, self.namer), None
            if text is None:
                text, known = f"x{k}", self._gather(part, names)
                extra += [f"0 <= x{k} < {index_text(size, {}, self.namer)}", *bounds(known, self.facts, text)]
            index.append(text)
            gathers.append(known)
        at = [place for found in gathers if found is not None for place in found.at]
        when = [str(p) if isinstance(p, int) else names[p] for p in source.position]
        when += ["0"] * (self.length - len(when))
        where, _ = conditions_text([*source.domain, *conditions], names, self.namer)
        instance = f"{source.name}[{', '.join(names.values())}]"
        text = f"{instance} -> A[{', '.join([*index, *at, *when])}] : {' and '.join([where, *extra])}"
        forms = tuple(None if found is None else found.form for found in gathers)
        ranks = tuple(0 if found is None else len(found.at) for found in gathers)
        return _Touch(source, load.buffer.name, text, writes, reducer, forms, ranks)

    def _gather(self, index: Expr, names: Mapping[str, str]) -> Gather | None:
        """An index that is read from an array about which a fact is known, and which the operation leaves alone."""
        found = gather(index, names, self.namer) if self.facts else None
        known = found is not None and found.array not in self.shapes and any(f.array == found.array for f in self.facts)
        return found if known else None

    def families(self, array: str, touches: Sequence[_Touch]) -> Iterator[Family]:
        writes, reads = [t for t in touches if t.writes], [t for t in touches if not t.writes]
        for reducer in dict.fromkeys(t.reducer for t in writes):
            mine = [t for t in writes if t.reducer == reducer]
            others = [t for t in writes if not reducer or t.reducer != reducer]
            yield from self.family("flow", array, mine, reads, later=True)
            yield from self.family("anti", array, reads, mine, later=True)
            yield from self.family("output", array, mine, others, later=True)
            if reducer:
                yield from self.family("reduction", array, mine, mine, later=False)

    def family(
        self, kind: str, array: str, first: Sequence[_Touch], then: Sequence[_Touch], later: bool
    ) -> Iterator[Family]:
        parts = [self._meet(array, a, b, later) for a in _alike(first) for b in _alike(then)]
        pairs = isl.union(parts)
        if not pairs.is_empty():
            pairs = isl.coalesced(pairs)
            yield Family(kind, array, pairs, _by_statements(pairs))

    def _meet(self, array: str, first: Sequence[_Touch], then: Sequence[_Touch], later: bool) -> isl.UnionMap:
        """The pairs of two groups of accesses, each alike in its gathers, that meet in an element."""
        a, b = first[0], then[0]
        rank = len(self.shapes[array]) + len(a.source.scopes.get(array, ()))
        same = _same_element(rank, (a.gathers, a.places), (b.gathers, b.places), self.facts, self.length, later)
        return self._map(first).apply_range(same).apply_range(self._map(then).reverse())

    def _map(self, touches: Sequence[_Touch]) -> isl.UnionMap:
        text = f"{self.namer.prefix()}{{ {'; '.join(t.text for t in touches)} }}"
        if text not in self._maps:
            made, context = isl.make_union_map(text), self.namer.context()
            sizes = isl.make_set(f"{self.namer.prefix()}{{ : {context} }}") if context else None
            self._maps[text] = made if sizes is None else made.intersect_params(sizes)
        return self._maps[text]


def _same_index(a: Load, b: Load) -> bool:
    return all(same(x, y) for x, y in zip(a.index, b.index, strict=True))


def _alike(touches: Sequence[_Touch]) -> list[list[_Touch]]:
    """Accesses in groups that have the same gathers."""
    groups: dict[object, list[_Touch]] = {}
    for touch in touches:
        groups.setdefault((touch.gathers, touch.places), []).append(touch)
    return list(groups.values())


Gathers: TypeAlias = tuple[tuple[tuple[str, int] | None, ...], tuple[int, ...]]


@lru_cache(maxsize=64)
def _same_element(
    rank: int, first: Gathers, then: Gathers, facts: tuple[Fact, ...], length: int, later: bool
) -> isl.UnionMap:
    """An element with a time -> the same element with a later time, or with any; facts tell some elements apart."""
    element = [f"e{k}" for k in range(rank)]
    a, b = [f"a{k}" for k in range(length)], [f"b{k}" for k in range(length)]
    (forms_a, at_a), (forms_b, at_b) = (_places(first, "p"), _places(then, "q"))
    conditions = [f"({lexicographic(a, b)})"] if later else []
    for form, other, x, y in zip(forms_a, forms_b, at_a, at_b, strict=True):
        if form is not None and other is not None:
            conditions += when_equal(form, other, x, y, facts)
    left = ", ".join([*element, *(p for places in at_a for p in places), *a])
    right = ", ".join([*element, *(p for places in at_b for p in places), *b])
    return isl.make_union_map(f"{{ A[{left}] -> A[{right}] : {' and '.join(conditions) or '0 = 0'} }}")


def _places(gathers: Gathers, prefix: str) -> tuple[tuple[tuple[str, int] | None, ...], list[list[str]]]:
    """The forms of gathers, and names for the dims of their places."""
    forms, ranks = gathers
    return forms, [[f"{prefix}{k}_{d}" for d in range(rank)] for k, rank in enumerate(ranks)]
