"""Dependences of a hybrid operation, in the axes in which it was declared: computed once, whatever the schedule."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

from tensorlang import dtypes
from tensorlang.ir.expr import Expr, Load, same
from tensorlang.ir.index import to_index
from tensorlang.polyhedral import isl
from tensorlang.polyhedral.affine_text import Namer, conditions_text, dims, index_text
from tensorlang.polyhedral.extract import guarded_loads
from tensorlang.polyhedral.ordered import Source, sources
from tensorlang.te.operation import HybridOp, buffers
from tensorlang.te.program import local_arrays


@dataclass(frozen=True, slots=True)
class Family:
    """Pairs of instances `S0[i, j] -> S1[i, k]` (an isl union map) that meet in one array, the first one first.

    Kind `reduction`: both update an element by the same operator; either order will do, but not the same time.
    """

    kind: str
    array: str
    pairs: isl.UnionMap


@dataclass(frozen=True, slots=True)
class Declared:
    """All dependences of one operation. `ordered` holds those of all families but the reductions together."""

    families: tuple[Family, ...]
    ordered: isl.UnionMap
    parameters: Mapping[str, Expr]


@dataclass(frozen=True, slots=True)
class _Touch:
    """An access of a statement: isl text of the element with the declared time behind it, and what it does."""

    source: Source
    array: str
    text: str
    writes: bool
    reducer: str


@lru_cache(maxsize=256)
def declared(op: HybridOp, sizes: frozenset[str], strict: bool) -> Declared:
    """Return the dependences of a canonical hybrid operation; `strict`: floating-point updates keep their order."""
    reader = _Reader(op, sizes, strict)
    touches = [t for s in sources(op).values() for t in reader.touches(s)]
    families: list[Family] = []
    for array in dict.fromkeys(t.array for t in touches if t.writes):
        families += reader.families(array, [t for t in touches if t.array == array])
    ordered = [f.pairs for f in families if f.kind != "reduction"]
    return Declared(tuple(families), isl.union(ordered).coalesce(), reader.namer.parameters)


class _Reader:
    def __init__(self, op: HybridOp, sizes: frozenset[str], strict: bool) -> None:
        self.op = op
        self.strict = strict
        self.namer = Namer(sizes)
        self.shapes = {b.name: b.shape for b in (*buffers(op), *local_arrays(op))}
        self.length = max((len(s.position) for s in sources(op).values()), default=0)

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
        names = dims([loop.var.name for loop in source.loops])
        index: list[str] = [names[n] for n in source.scopes.get(load.buffer.name, ())]
        extra: list[str] = []
        for k, (part, size) in enumerate(zip(load.index, load.buffer.shape, strict=True)):
            text = index_text(to_index(part), names, self.namer)
            if text is None:
                text = f"x{k}"
                extra.append(f"0 <= x{k} < {index_text(size, {}, self.namer)}")
            index.append(text)
        when = [str(p) if isinstance(p, int) else names[p] for p in source.position]
        when += ["0"] * (self.length - len(when))
        where, _ = conditions_text([*source.domain, *conditions], names, self.namer)
        instance = f"{source.name}[{', '.join(names.values())}]"
        text = f"{instance} -> A[{', '.join([*index, *when])}] : {' and '.join([where, *extra])}"
        return _Touch(source, load.buffer.name, text, writes, reducer)

    def families(self, array: str, touches: Sequence[_Touch]) -> Iterator[Family]:
        writes, reads = [t for t in touches if t.writes], [t for t in touches if not t.writes]
        for reducer in dict.fromkeys(t.reducer for t in writes):
            mine = [t for t in writes if t.reducer == reducer]
            others = [t for t in writes if not reducer or t.reducer != reducer]
            yield from self._family("flow", array, mine, reads, later=True)
            yield from self._family("anti", array, reads, mine, later=True)
            yield from self._family("output", array, mine, others, later=True)
            if reducer:
                yield from self._family("reduction", array, mine, mine, later=False)

    def _family(
        self, kind: str, array: str, first: Sequence[_Touch], then: Sequence[_Touch], later: bool
    ) -> Iterator[Family]:
        if not first or not then:
            return
        a, b = self._map(first), self._map(then)
        rank = len(self.shapes[array]) + len(first[0].source.scopes.get(array, ()))
        pairs = a.apply_range(_same_element(rank, self.length, later)).apply_range(b.reverse())
        if not pairs.is_empty():
            yield Family(kind, array, pairs.coalesce())

    def _map(self, touches: Sequence[_Touch]) -> isl.UnionMap:
        made = isl.make_union_map(f"{self.namer.prefix()}{{ {'; '.join(t.text for t in touches)} }}")
        context = self.namer.context()
        return made.intersect_params(isl.make_set(f"{self.namer.prefix()}{{ : {context} }}")) if context else made


def _same_index(a: Load, b: Load) -> bool:
    return all(same(x, y) for x, y in zip(a.index, b.index, strict=True))


@lru_cache(maxsize=64)
def _same_element(rank: int, length: int, later: bool) -> isl.UnionMap:
    """An element with a time -> the same element with a later time, or with any."""
    element = [f"e{k}" for k in range(rank)]
    a, b = [f"a{k}" for k in range(length)], [f"b{k}" for k in range(length)]
    cases = [" and ".join([f"a{k} = b{k}" for k in range(d)] + [f"a{d} < b{d}"]) for d in range(length)]
    order = " or ".join(f"({c})" for c in cases) if later else "0 = 0"
    return isl.make_union_map(f"{{ A[{', '.join(element + a)}] -> A[{', '.join(element + b)}] : {order} }}")
