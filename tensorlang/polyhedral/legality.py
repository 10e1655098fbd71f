"""The one legality check: do all dependences run forward in time?

Dependences are between values, by role, over all pairs, and are built directly in time space: every
statement's accesses are maps from its time vector to array elements. `before` orders time vectors; a loop
whose iterations run at once (parallel, bound) proves nothing, and a vectorised loop is moved last and proves
nothing there. Pairs of updates of one reduction may run in either order, but must be ordered.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache

from tensorlang.polyhedral import isl
from tensorlang.polyhedral.affine_text import Namer, conditions_text, dims, index_text
from tensorlang.polyhedral.statement import Access, Array, Role, Scop, Statement


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
        self.vectors = {s.name: _lanes_last(s) for s in scop.statements}
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

    def text(self, pairs: Iterable[tuple[Statement, Access]], arrays: dict[str, Array]) -> str:
        """`time -> element` of the accesses, as the body of an isl map over one array."""
        pieces = []
        for statement, access in pairs:
            names = dims(statement.loops)
            index, extra = self._element(access, arrays[access.array], names)
            guard, _ = conditions_text(access.conditions, names, self.namer)
            version = [names[v] for v in access.version]
            target = f"A[{', '.join(version + index)}]"
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

    def is_exact(self, statement: Statement, access: Access) -> bool:
        """True when isl sees the element of an access and the whole domain: only such a write covers a read."""
        names, index = dims(statement.loops), access.index
        return self.is_visible(statement) and index is not None and all(index_text(i, names, self.namer) for i in index)

    def is_visible(self, statement: Statement) -> bool:
        """True when isl sees every condition of a domain."""
        _, exact = conditions_text(statement.domain, dims(statement.loops), self.namer)
        return exact

    def make(self, body: str) -> isl.Map:
        """Build an isl map from pieces of text, within the context of non-negative sizes."""
        made = isl.make_map(f"{self.namer.prefix()}{{ {body} }}")
        context = self.namer.context()
        return made.intersect_params(isl.make_set(f"{self.namer.prefix()}{{ : {context} }}")) if context else made


def _lanes_last(statement: Statement) -> tuple[int | str, ...]:
    """The time vector with vectorised loops moved to the end: lanes run in lockstep."""
    if not statement.lanes:
        return statement.time
    rest = tuple(0 if p in statement.lanes else p for p in statement.time)
    return rest + statement.lanes


def before(space: TimeSpace) -> isl.Map:
    """Time -> later time, for pairs whose order is certain."""
    blocked = _unordered_prefixes(space)
    return _before(space.length, tuple((d, tuple(texts)) for d, texts in sorted(blocked.items())))


@lru_cache(maxsize=256)
def _before(n: int, blocked: tuple[tuple[int, tuple[str, ...]], ...]) -> isl.Map:
    """Lexicographic order, without the cases that an unordered dim decides (below the given static positions)."""
    a, b = [f"a{k}" for k in range(n)], [f"b{k}" for k in range(n)]
    order = isl.lex_lt(n)
    for d, prefixes in blocked:
        equal = [f"a{k} = b{k}" for k in range(d)]
        for prefix in prefixes:
            decided = " and ".join([*equal, f"a{d} < b{d}", prefix])
            order = order.subtract(isl.make_map(f"{{ [{', '.join(a)}] -> [{', '.join(b)}] : {decided} }}"))
    return order


def _unordered_prefixes(space: TimeSpace) -> dict[int, list[str]]:
    """Per time dim: the static positions above each unordered loop at that dim, as conditions on `a`."""
    found: dict[int, list[str]] = {}
    for statement in space.scop.statements:
        vector = space.vectors[statement.name]
        unordered = space.scop.unordered | set(statement.lanes)
        for d, part in enumerate(vector):
            if isinstance(part, str) and part in unordered:
                statics = [f"a{k} = {p}" for k, p in enumerate(vector[:d]) if isinstance(p, int)]
                text = " and ".join(statics) or "0 = 0"
                if text not in found.setdefault(d, []):
                    found[d].append(text)
    return found


def violations(scop: Scop) -> list[Violation]:
    """Return the broken dependences of a scheduled program; empty: legal, and free of races."""
    space = TimeSpace(scop)
    arrays = {a.name: a for a in scop.arrays}
    written: dict[str, dict[Role, list[tuple[Statement, Access]]]] = {}
    read: dict[str, list[tuple[Statement, Access]]] = {}
    for s in scop.statements:
        for w in s.writes:
            written.setdefault(w.array, {}).setdefault(s.role, []).append((s, w))
        for r in s.reads:
            read.setdefault(r.array, []).append((s, r))
    texts = []
    for name, by_role in written.items():
        texts += _dependences(name, by_role, read.get(name, []), space, arrays)
    if not texts:
        return []
    order = before(space)
    found = []
    for kind, name, source, sink in texts:
        pairs = space.make(source).apply_range(space.make(sink).reverse())
        bad = pairs.subtract(order)
        if kind == "reduction":
            bad = bad.subtract(order.reverse()).subtract(_same_time(space.length))
        if not bad.is_empty():
            found.append(Violation(kind, name, bad, space))
    return found


def _dependences(
    name: str,
    by_role: dict[Role, list[tuple[Statement, Access]]],
    readers: Sequence[tuple[Statement, Access]],
    space: TimeSpace,
    arrays: dict[str, Array],
) -> list[tuple[str, str, str, str]]:
    """(kind, array, source text, sink text) of each family of dependences through one array."""
    found = []
    everything = [pair for pairs in by_role.values() for pair in pairs]
    if readers:
        found.append(("flow", name, space.text(everything, arrays), space.text(readers, arrays)))
    updates = by_role.get(Role.UPDATE, [])
    if updates and by_role.get(Role.INIT):
        found.append(("flow", name, space.text(by_role[Role.INIT], arrays), space.text(updates, arrays)))
    concurrent = [(s, a) for s, a in updates if space.scop.unordered & set(s.loops) or s.lanes]
    if concurrent:
        found.append(("reduction", name, space.text(concurrent, arrays), space.text(concurrent, arrays)))
    return found


def _same_time(n: int) -> isl.Map:
    dims_text = ", ".join(f"t{k}" for k in range(n))
    return isl.make_map(f"{{ [{dims_text}] -> [{dims_text}] }}")
