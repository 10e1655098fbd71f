"""The one legality check: do all dependences run forward in time?

Dependences cover all pairs of accesses to an element of which one writes, and are built directly in time space: every
statement's accesses are maps from its time vector to array elements. What comes first is decided by epochs (a value
is initialised, then updated, then read, then perhaps updated in place), and within one epoch by the order of the
program as declared. Updates of one reduction may run in either order, but must be ordered.

`before` orders time vectors; a loop whose iterations run at once (parallel, bound) proves nothing. Neither do the lanes
of a vectorised loop, but for statements that stand one after the other just inside it: the loop may run in vectors or,
where it has to, serially, and what loops inside it do across lanes is left open.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import TypeAlias

from tensorlang.dataclass import dataclass
from tensorlang.polyhedral import isl
from tensorlang.polyhedral.affine_text import Namer, conditions_text, dims, index_text, is_visible, lexicographic
from tensorlang.polyhedral.declared import Declared
from tensorlang.polyhedral.pairwise import Pairwise
from tensorlang.polyhedral.statement import Access, Array, Role, Scop, Statement

Time: TypeAlias = tuple[int | str, ...]
"""Static positions and loops, as statements have them."""


@dataclass(frozen=True, slots=True)
class Violation:
    """Pairs of time vectors that an order breaks: kind is flow or reduction; `pairs` is an isl map."""

    kind: str
    array: str
    pairs: isl.Map
    space: TimeSpace


class TimeSpace:
    """Time vectors of a scop: how each statement's loops map to dims `t0, t1, ...`."""

    def __init__(self, scop: Scop) -> None:
        self.scop = scop
        self.namer = Namer(scop.sizes)
        for _, found in scop.declared:
            self.namer.parameters.update(found.parameters)
        self.vectors = {s.name: s.time for s in scop.statements}
        self.length = max((len(v) for v in self.vectors.values()), default=0)
        self.domains = {s.name: self._domain(s) for s in scop.statements}

    def _domain(self, statement: Statement) -> str:
        text, _ = conditions_text(statement.domain, dims(statement.loops), self.namer)
        return text

    def vector(self, statement: Statement) -> str:
        """The time vector of a statement as isl text."""
        names = dims(statement.loops)
        parts = [names[p] if isinstance(p, str) else str(p) for p in self.vectors[statement.name]]
        return ", ".join(parts + ["0"] * (self.length - len(parts)))

    def text(self, pairs: Iterable[tuple[Statement, Access]], arrays: dict[str, Array], origin: int = 0) -> str:
        """`time -> element` of the accesses, as the body of an isl map over one array.

        `origin` appends that many entries of the time in the program as declared.
        """
        pieces = []
        for statement, access in pairs:
            names = dims(statement.loops)
            index, extra = self._element(access, arrays[access.array], names)
            guard, _ = conditions_text(access.conditions, names, self.namer)
            version = [names[v] for v in access.version]
            when = [index_text(o, names, self.namer) or "0" for o in access.origin[:origin]]
            when += ["0"] * (origin - len(when))
            target = f"A[{', '.join([*version, *index, *when])}]"
            where = " and ".join([self.domains[statement.name], guard, *extra])
            pieces.append(f"[{self.vector(statement)}] -> {target} : {where}")
        return "; ".join(pieces)

    def _element(self, access: Access, array: Array, names: dict[str, str]) -> tuple[list[str], list[str]]:
        """Index texts of an access; an unknown index ranges over the whole box."""
        index: list[str] = []
        extra: list[str] = []
        for k, size in enumerate(array.shape):
            text = None if access.index is None else index_text(access.index[k], names, self.namer)
            if text is None:
                text = f"x{k}"
                extra.append(f"0 <= x{k} < {index_text(size, {}, self.namer)}")
            index.append(text)
        return index, extra

    def instances(self, stage: str) -> isl.UnionMap:
        """`time -> S0[i, j]`: the statements of a hybrid stage, in the axes in which they were declared.

        The declared dependences know which instances exist; here more may appear, at times of their own.
        """
        pieces = []
        for s in self.scop.statements:
            if s.stage == stage:
                names = dims(s.loops)
                point = [index_text(value, names, self.namer) for _, value in s.point]
                at = f"{s.source}[{', '.join(str(p) for p in point)}]"
                where, _ = conditions_text(s.placing, names, self.namer)
                pieces.append(_instances(f"{self.namer.prefix()}{{ [{self.vector(s)}] -> {at} : {where} }}"))
        return isl.union(pieces)

    def aligned(self, pairs: isl.Map) -> isl.Map:
        """A map with its parameters in the order of the namer, within the context of non-negative sizes."""
        found = pairs.align_params(isl.make_set(f"{self.namer.prefix()}{{ : }}").get_space())
        context = self.namer.context()
        return found.intersect_params(isl.make_set(f"{self.namer.prefix()}{{ : {context} }}")) if context else found

    def is_exact(self, statement: Statement, access: Access) -> bool:
        """True when isl sees the element of an access, and all conditions: only such a write covers a read."""
        conditions = *statement.domain, *access.conditions
        return access.index is not None and is_visible(dims(statement.loops), self.namer, conditions, access.index)

    def is_visible(self, statement: Statement) -> bool:
        """True when isl sees every condition of a domain."""
        return is_visible(dims(statement.loops), self.namer, statement.domain)

    def make(self, body: str) -> isl.Map:
        """Build an isl map from pieces of text, within the context of non-negative sizes."""
        return _accesses(self.namer.prefix(), body, self.namer.context())


@lru_cache(maxsize=4096)
def _accesses(prefix: str, body: str, context: str) -> isl.Map:
    """A map from text: most steps leave most accesses as they are."""
    made = isl.make_map(f"{prefix}{{ {body} }}")
    return made.intersect_params(isl.make_set(f"{prefix}{{ : {context} }}")) if context else made


@lru_cache(maxsize=4096)
def _instances(text: str) -> isl.UnionMap:
    """The instances of one statement; a step changes few of them."""
    return isl.make_union_map(text)


def before(space: TimeSpace) -> isl.Map:
    """Time -> later time, for pairs whose order is certain."""
    return _before(space.length, _at_once_dims(space, space.scop.unordered))


def before_among(space: TimeSpace, sources: Iterable[Statement], sinks: Iterable[Statement]) -> isl.Map:
    """`before` for the times of some statements alone: a few pieces, where that of all has hundreds."""
    loops = space.scop.unordered
    lanes = frozenset(n for s in space.scop.statements for n in s.lanes) - loops
    later = tuple(dict.fromkeys(b.time for b in sinks))
    found = [_ordered(space.length, a, b, loops, lanes) for a in dict.fromkeys(a.time for a in sources) for b in later]
    return isl.union_of(found) if found else _pairs(space.length, "0 = 1")


@lru_cache(maxsize=1024)
def _ordered(n: int, source: Time, sink: Time, loops: frozenset[str], lanes: frozenset[str]) -> isl.Map:
    """Pairs of times of two statements whose order is certain."""
    source, sink = (time + (0,) * (n - len(time)) for time in (source, sink))
    a, b = _dims_of(source, "a"), _dims_of(sink, "b")
    cases: list[list[str]] = []
    same: list[str] = []
    for k, (p, q) in enumerate(zip(source, sink, strict=True)):
        if isinstance(p, int) and isinstance(q, int):
            if p < q:
                cases.append([*same])
            if p != q:
                break
            continue
        in_lanes = not lanes.isdisjoint((p, q)) and not _in_turn(source[k + 1 :], sink[k + 1 :])
        if loops.isdisjoint((p, q)) and not in_lanes:
            cases.append([*same, f"{a[k]} < {b[k]}"])
        same.append(f"{a[k]} = {b[k]}")
    where = " or ".join(" and ".join(case) or "0 = 0" for case in cases) or "0 = 1"
    return isl.make_map(f"{{ [{', '.join(a)}] -> [{', '.join(b)}] : {where} }}")


def _dims_of(time: Time, name: str) -> list[str]:
    return [str(part) if isinstance(part, int) else f"{name}{k}" for k, part in enumerate(time)]


def _in_turn(first: Time, then: Time) -> bool:
    """Whether static positions just inside of lanes tell that one statement comes before another one."""
    for p, q in zip(first, then, strict=True):
        if isinstance(p, str) or isinstance(q, str):
            return False
        if p != q:
            return p < q
    return False


@dataclass(frozen=True, slots=True)
class _AtOnce:
    """A time dim whose iterations may run at once: that of a parallel or bound loop, or of the lanes of a vector.

    `above`: the static positions above the loop, as conditions. `inside`, for lanes: the static positions of statements
    just inside, down to the next loop. What stands before another one there runs before it in the same lane and in
    later ones, whether all lanes run it first or the loop is serial.
    """

    dim: int
    above: str
    inside: tuple[tuple[int, ...], ...]

    def apart(self, sign: str) -> str:
        """The pairs that differ first in this dim, `<` or `!=`."""
        equal = [f"a{k} = b{k}" for k in range(self.dim)]
        return " and ".join([*equal, f"a{self.dim} {sign} b{self.dim}", self.above])

    def told_apart(self, sign: str) -> Iterator[str]:
        """The pairs that a static position inside tells apart as well."""
        first = self.dim + 1
        for run in self.inside:
            for k in range(len(run)):
                same = [f"a{first + m} = {run[m]} and b{first + m} = {run[m]}" for m in range(k)]
                yield " and ".join([*same, f"a{first + k} {sign} b{first + k}"])


@lru_cache(maxsize=256)
def _before(n: int, at_once: tuple[_AtOnce, ...]) -> isl.Map:
    """Lexicographic order, without the cases that an unordered dim decides."""
    order = isl.lex_lt(n)
    for found in at_once:
        order = order.subtract(_decided(n, found, "<"))
    return order


def _at_once(space: TimeSpace, atomic: bool = False) -> isl.Map:
    """Pairs of updates that may run at the same time: an unordered dim is the first in which they differ.

    `atomic`: only lanes of one vector count.
    """
    return _first_apart(space.length, _at_once_dims(space, frozenset() if atomic else meeting(space.scop)), "!=")


@lru_cache(maxsize=256)
def _first_apart(n: int, at_once: tuple[_AtOnce, ...], sign: str) -> isl.Map:
    """Pairs that differ first in one of some dims, `<` or `!=`, and that no position inside tells apart alike."""
    found = _pairs(n, "0 = 1")
    for dim in at_once:
        found = found.union(_decided(n, dim, sign))
    return found


def _decided(n: int, dim: _AtOnce, sign: str) -> isl.Map:
    """Pairs that differ first in a dim, and that no position inside tells apart."""
    pairs = _pairs(n, dim.apart(sign))
    for case in dict.fromkeys(dim.told_apart(sign)):
        pairs = pairs.subtract(_pairs(n, case))
    return pairs


def _pairs(n: int, where: str) -> isl.Map:
    a, b = [f"a{k}" for k in range(n)], [f"b{k}" for k in range(n)]
    return isl.make_map(f"{{ [{', '.join(a)}] -> [{', '.join(b)}] : {where} }}")


def _at_once_dims(space: TimeSpace, loops: frozenset[str]) -> tuple[_AtOnce, ...]:
    """The dims of unordered loops, and of lanes."""
    found: dict[tuple[int, str], dict[tuple[int, ...], None]] = {}
    for statement in space.scop.statements:
        vector = statement.time
        for d, part in enumerate(vector):
            if isinstance(part, str) and (part in loops or part in statement.lanes):
                above = [f"a{k} = {p}" for k, p in enumerate(vector[:d]) if isinstance(p, int)]
                runs = found.setdefault((d, " and ".join(above) or "0 = 0"), {})
                if part not in loops:
                    rest = vector[d + 1 :]
                    end = next((k for k, p in enumerate(rest) if isinstance(p, str)), len(rest))
                    runs[tuple(p for p in rest[:end] if isinstance(p, int))] = None
    return tuple(_AtOnce(d, above, tuple(runs)) for (d, above), runs in sorted(found.items()))


@dataclass(frozen=True, slots=True)
class Dependences:
    """Accesses through one array that must keep an order: every pair of a source and a sink that meet in an element.

    `ordered`: only pairs whose source comes first in the program as declared. Kind `reduction`: either order will do,
    and if they are `atomic` no order.
    """

    kind: str
    array: str
    sources: tuple[tuple[Statement, Access], ...]
    sinks: tuple[tuple[Statement, Access], ...]
    ordered: bool = False
    atomic: bool = False

    def pairs(self, space: TimeSpace, arrays: dict[str, Array]) -> isl.Map:
        """The pairs of time vectors."""
        length = max((len(a.origin) for _, a in (*self.sources, *self.sinks)), default=0) if self.ordered else 0
        source = space.make(space.text(self.sources, arrays, length))
        sink = space.make(space.text(self.sinks, arrays, length))
        if length:
            rank = source.dim(isl.DIM.out) - length
            source = source.apply_range(_declared_before(rank, length))
        return source.apply_range(sink.reverse())


@lru_cache(maxsize=64)
def _declared_before(rank: int, length: int) -> isl.Map:
    """An element with a time -> the same element with a later time."""
    same = [f"e{k}" for k in range(rank)]
    a, b = [f"a{k}" for k in range(length)], [f"b{k}" for k in range(length)]
    return isl.make_map(f"{{ A[{', '.join(same + a)}] -> A[{', '.join(same + b)}] : {lexicographic(a, b)} }}")


def violations(scop: Scop) -> list[Violation]:
    """Return the broken dependences of a scheduled program; empty: legal, and free of races."""
    families, quick = list(dependences(scop)), Pairwise(scop)
    declared = [(stage, known) for stage, known in scop.declared if not _is_kept(stage, known, quick)]
    families = [f for f in families if not _is_proven(f, quick)]
    if not families and not declared:
        return []
    space = TimeSpace(scop)
    arrays = {a.name: a for a in scop.arrays}
    found = [v for stage, known in declared for v in _disordered(stage, known, space, quick)]
    for family in families:
        pairs = family.pairs(space, arrays)
        if family.kind == "reduction":
            bad = pairs.intersect(_at_once(space, family.atomic))
        elif _in_order(pairs, space):
            continue
        else:
            bad = pairs.subtract(before(space))
        if not bad.is_empty():
            found.append(Violation(family.kind, family.array, bad, space))
    return found


def _is_proven(family: Dependences, quick: Pairwise) -> bool:
    """Whether accesses are in order, told by two statements at a time: the quick way to a yes."""
    if family.ordered:
        return False
    return quick.keeps_accesses(family.sources, family.sinks, family.kind == "reduction", family.atomic)


def _is_kept(stage: str, known: Declared, quick: Pairwise) -> bool:
    """Whether the dependences of a hybrid operation are in order, told by two statements at a time."""
    updates = [f for f in known.families if f.kind == "reduction"] if _has_concurrent(stage, quick.scop) else []
    ordered = quick.keeps(stage, known.parts, either=False)
    return ordered and all(quick.keeps(stage, family.parts, either=True) for family in updates)


def _has_concurrent(stage: str, scop: Scop) -> bool:
    return any(_may_meet(s, scop) for s in scop.statements if s.stage == stage)


def _in_order(pairs: isl.Map, space: TimeSpace) -> bool:
    """Whether all pairs are in `before`: cheaper than to build what is not."""
    unsure = _first_apart(space.length, _at_once_dims(space, space.scop.unordered), "<")
    return bool(pairs.is_subset(isl.lex_lt(space.length)) and pairs.is_disjoint(unsure))


def _disordered(stage: str, known: Declared, space: TimeSpace, quick: Pairwise) -> Iterator[Violation]:
    """What a schedule breaks of the dependences of a hybrid operation."""
    time = space.instances(stage)
    back = time.reverse()
    concurrent = _has_concurrent(stage, space.scop)
    for family in known.families:
        either = family.kind == "reduction"
        unsure = (
            [isl.as_union(p.pairs) for p in quick.unsure(stage, family.parts, either)]
            if concurrent or not either
            else []
        )
        pairs = isl.one_map(time.apply_range(isl.union(unsure)).apply_range(back)) if unsure else None
        if pairs is not None:
            at_once = _at_once(space, stage in space.scop.atomic) if either else None
            bad = pairs.subtract(before(space)) if at_once is None else pairs.intersect(at_once)
            if not bad.is_empty():
                yield Violation(family.kind, family.array, space.aligned(bad), space)


Touch: TypeAlias = tuple[Statement, Access]


def dependences(scop: Scop) -> Iterator[Dependences]:
    """Yield the dependences of a scop in families, those through one array together."""
    writes: dict[str, dict[int, list[Touch]]] = {}
    reads: dict[str, dict[int, list[Touch]]] = {}
    for s in scop.statements:
        for w in s.writes:
            writes.setdefault(w.array, {}).setdefault(3 * w.updates + (s.role is Role.UPDATE), []).append((s, w))
        for r in s.reads:
            reads.setdefault(r.array, {}).setdefault(3 * r.updates + (0 if r.origin else 2), []).append((s, r))
    for name, written in writes.items():
        yield from _between_epochs(name, written, reads.get(name, {}))
        for epoch, touches in written.items():
            known = {stage for stage, _ in scop.declared}
            free = [t for t in touches if t[0].stage not in known]
            yield from _within_epoch(name, free, reads.get(name, {}).get(epoch, []), scop)


def _between_epochs(name: str, writes: dict[int, list[Touch]], reads: dict[int, list[Touch]]) -> Iterator[Dependences]:
    """What was written before an epoch comes before it; and what was read, before the writes of it."""
    for epoch in sorted({*writes, *reads}):
        written = tuple(t for e, touches in writes.items() if e < epoch for t in touches)
        read = tuple(t for e, touches in reads.items() if e < epoch for t in touches)
        now, then = tuple(writes.get(epoch, ())), tuple(reads.get(epoch, ()))
        if written and then:
            yield Dependences("flow", name, written, then)
        if written and now:
            kind = "flow" if any(s.role is Role.UPDATE or w.reducer for s, w in now) else "output"
            yield Dependences(kind, name, written, now)
        if read and now:
            yield Dependences("anti", name, read, now)


def _within_epoch(name: str, writes: list[Touch], reads: list[Touch], scop: Scop) -> Iterator[Dependences]:
    """The order of the program as declared, and the one freedom in it: updates by one reducer may change places."""
    declared = [t for t in writes if t[1].origin]
    for reducer in dict.fromkeys(w.reducer for _, w in declared):
        mine = tuple(t for t in declared if t[1].reducer == reducer)
        others = tuple(t for t in declared if not reducer or t[1].reducer != reducer)
        if reads:
            yield Dependences("flow", name, mine, tuple(reads), ordered=True)
            yield Dependences("anti", name, tuple(reads), mine, ordered=True)
        if others:
            yield Dependences("output", name, mine, others, ordered=True)
    for family in {t[1].reducer: None for t in declared if t[1].reducer}:
        yield from _reduction(name, [t for t in declared if t[1].reducer == family], scop)
    yield from _reduction(name, [t for t in writes if t[0].role is Role.UPDATE and not t[1].origin], scop)


def _reduction(name: str, updates: list[Touch], scop: Scop) -> Iterator[Dependences]:
    """Updates that may run at the same time; all others are ordered by the loops, one way or the other."""
    concurrent = tuple((s, a) for s, a in updates if _may_meet(s, scop))
    if concurrent:
        atomic = all(s.stage in scop.atomic for s, _ in concurrent)
        yield Dependences("reduction", name, concurrent, concurrent, atomic=atomic)


def _may_meet(statement: Statement, scop: Scop) -> bool:
    """Whether two updates by a statement may run at once, and must not."""
    return bool(statement.lanes or (meeting(scop) & set(statement.loops) and statement.stage not in scop.atomic))


def meeting(scop: Scop) -> frozenset[str]:
    """The loops in whose iterations two updates by one reducer must not meet."""
    return scop.unordered - scop.gathered
