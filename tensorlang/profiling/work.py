"""What a loop nest does, counted in its loops: operations, bytes that are loaded, and bytes that come from each cache.

Conditions count as if they held, and loops whose bounds depend on others as in the middle of those. Traffic: the
outermost loops inside of which all data fit in a cache read from beyond it once each time they run.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from math import prod

from tensorlang import dtypes
from tensorlang.dataclass import dataclass
from tensorlang.ir.affine import affine
from tensorlang.ir.expr import Buffer, Call, Const, Expr, Load, variables, walk
from tensorlang.ir.overflow import exact_value
from tensorlang.ir.stmt import AtomicUpdate, CallMachine, For, If, LoopKind, Stmt, Store, children
from tensorlang.profiling.regions import Region, middle, trips
from tensorlang.schedules.accesses import CALL_COST, operations

_FILL = 0.75
"""The share of a cache that data take before others push them out."""


@dataclass(frozen=True, slots=True)
class _Loop:
    var: str
    trips: int
    kind: LoopKind


@dataclass(frozen=True, slots=True)
class Access:
    """A load or a store, inside of some loops; `stride` is how far neighbours of a vector lie apart, None for data that
    say where they lie.
    """

    buffer: Buffer
    index: tuple[Expr, ...]
    loops: tuple[_Loop, ...]
    is_store: bool

    @property
    def bytes(self) -> int:
        return dtypes.info(self.buffer.dtype).bytes

    @property
    def lanes(self) -> _Loop | None:
        """The vectorized loop around it."""
        return next((loop for loop in self.loops if loop.kind is LoopKind.VECTORIZED), None)

    @property
    def stride(self) -> int | None:
        """Elements between neighbours of a vector; 0 outside of vectors."""
        if self.lanes is None:
            return 0
        forms = [affine(i) for i in self.index]
        if not forms or any(form is None and self.lanes.var in variables(i) for form, i in zip(forms, self.index)):
            return None if forms else 0
        steps = [0 if form is None else form.get(self.lanes.var, 0) for form in forms]
        behind = [_extent(n) for n in self.buffer.shape]
        return sum(step * prod(behind[d + 1 :]) for d, step in enumerate(steps))

    @property
    def loaded(self) -> float:
        """Bytes that instructions move: what stays the same in inner loops is moved once, and once for a vector."""
        used = set().union(*map(variables, self.index)) if self.index else set()
        deep = max((d for d, loop in enumerate(self.loops) if loop.var in used), default=-1)
        return float(prod(loop.trips for loop in self.loops[: deep + 1]) * self.bytes)

    def footprint(self, depth: int) -> float:
        """The bytes that are touched inside of the loops from a depth on."""
        inner = {loop.var: loop.trips for loop in self.loops[depth:]}
        found = 1.0
        for index, extent in zip(self.index, self.buffer.shape, strict=True):
            form, whole = affine(index), _extent(extent)
            moved = variables(index) & inner.keys()
            if form is None:
                span = float(prod(inner[v] for v in moved)) if moved else 1.0
            else:
                span = 1.0 + sum(abs(int(form.get(v, 0))) * (inner[v] - 1) for v in moved)
                span = min(span, float(prod(inner[v] for v in moved)))
            found *= min(span, whole)
        return found * self.bytes

    def moves_with(self, depth: int) -> bool:
        """Whether its place depends on the loop at a depth."""
        return depth < len(self.loops) and self.loops[depth].var in set().union(*map(variables, self.index))


@dataclass(frozen=True, slots=True)
class Work:
    """Operations, what they cost in additions, those of them in vectors, dtypes of arrays, and accesses of these.

    The arrays of registers are left out. `streamed` are arrays that are written past the caches.
    """

    operations: float
    cost: float
    in_vectors: float
    kinds: tuple[str, ...]
    accesses: tuple[Access, ...]
    streamed: tuple[str, ...] = ()

    @property
    def loaded(self) -> float:
        """Bytes that instructions load and store."""
        return sum(a.loaded for a in self.accesses)

    @property
    def touched(self) -> float:
        """Bytes of different elements."""
        return _distinct(self.accesses, 0)

    def beyond(self, cache: float, is_last: bool = False) -> float:
        """Bytes that come from beyond a cache of a size, when the work is done again and again.

        What is written to memory (`is_last`) is read before, unless it is streamed.
        """
        deepest = max((len(a.loops) for a in self.accesses), default=0)
        depth = next((d for d in range(deepest) if _distinct(self.accesses, d) <= _FILL * cache), deepest)
        if depth == 0:
            return 0.0
        total = 0.0
        for name, group in _by_place(self.accesses).items():
            twice = is_last and name not in self.streamed and any(a.is_store for a in group)
            total += _again(group, depth) * (2 if twice else 1)
        return total


def _again(group: Sequence[Access], depth: int) -> float:
    """What accesses of one array bring in, each time that the loops from a depth on run."""
    apart = {a.index: a for a in group}
    widest = max(group, key=lambda one: one.footprint(depth))
    stays = [d for d in range(depth) if not widest.moves_with(d)]
    again = prod(widest.loops[d].trips for d in stays if d < min(depth - 1, len(widest.loops)))
    moved = sum(
        a.footprint(depth) * prod(a.loops[d].trips for d in range(min(depth, len(a.loops))) if a.moves_with(d))
        for a in apart.values()
    )
    return min(moved, _whole(widest)) * again


def _whole(access: Access) -> float:
    return float(prod(_extent(n) for n in access.buffer.shape) * access.bytes)


def _by_place(accesses: Sequence[Access]) -> dict[str, list[Access]]:
    found: dict[str, list[Access]] = {}
    for access in accesses:
        found.setdefault(access.buffer.name, []).append(access)
    return found


def _distinct(accesses: Sequence[Access], depth: int) -> float:
    """Bytes that are touched inside of loops from a depth on: of each array those of its widest access, which may be
    several that lie apart.
    """
    total = 0.0
    for group in _by_place(accesses).values():
        apart = {a.index: a.footprint(depth) for a in group}
        total += min(_whole(group[0]), sum(apart.values()))
    return total


def _extent(value: Expr) -> int:
    return int(value.value) if isinstance(value, Const) else 1 << 30


def work_of(region: Region, sizes: Mapping[str, int], streamed: tuple[str, ...] = ()) -> Work:
    """What a region does in all of its runs in one call."""
    values, loops = dict(sizes), list[_Loop]()
    for loop in region.around:
        loops.append(_Loop(loop.var.name, trips(loop, values) or 1, loop.kind))
        values = middle(loop, values)
    total, cost, vectors, kinds = 0.0, 0.0, 0.0, dict[str, None]()
    accesses: dict[tuple[str, tuple[Expr, ...], bool], Access] = {}  # one load for all that read an element
    for stmt in region.body:
        for inner, around in _innermost(stmt, tuple(loops), values):
            count = float(prod(loop.trips for loop in around))
            done = count * operations(inner.value)
            total += done
            cost += done + count * (CALL_COST - 1) * sum(isinstance(node, Call) for node in walk(inner.value))
            vectors += done if any(loop.kind is LoopKind.VECTORIZED for loop in around) else 0.0
            for access in _accesses(inner, around):
                if access.buffer.scope == "global" and access.index:
                    kinds[access.buffer.dtype] = None
                    key = access.buffer.name, access.index, access.is_store
                    if key not in accesses or len(accesses[key].loops) < len(around):
                        accesses[key] = _sized(access, sizes)
    return Work(total, cost, vectors, tuple(kinds), tuple(accesses.values()), streamed)


def _innermost(
    stmt: Stmt, loops: tuple[_Loop, ...], values: Mapping[str, int]
) -> Iterator[tuple[Store | AtomicUpdate, tuple[_Loop, ...]]]:
    """Statements that compute, with the loops around them."""
    match stmt:
        case For():
            count = trips(stmt, values)
            inner = (*loops, _Loop(stmt.var.name, 1 if count is None else count, stmt.kind))
            yield from _innermost(stmt.body, inner, middle(stmt, values))
        case CallMachine(meaning=meaning):
            yield from _innermost(meaning, loops, values)
        case Store() | AtomicUpdate():
            yield stmt, loops
        case If(then=then, orelse=orelse):
            yield from _innermost(then, loops, values)
            if orelse is not None:
                yield from _innermost(orelse, loops, values)
        case _:
            for child in children(stmt):
                yield from _innermost(child, loops, values)


def _accesses(stmt: Store | AtomicUpdate, loops: tuple[_Loop, ...]) -> Iterator[Access]:
    yield Access(stmt.buffer, stmt.index, loops, True)
    for node in walk(stmt.value):
        if isinstance(node, Load):
            yield Access(node.buffer, node.index, loops, False)


def _sized(access: Access, sizes: Mapping[str, int]) -> Access:
    """The access of an array with its extents as numbers."""
    known = [exact_value(n, sizes) for n in access.buffer.shape]
    shape = tuple(n if k is None else Const(k, "int64") for n, k in zip(access.buffer.shape, known, strict=True))
    buffer = Buffer(access.buffer.name, shape, access.buffer.dtype, access.buffer.scope)
    return Access(buffer, access.index, access.loops, access.is_store)
