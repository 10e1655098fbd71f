"""What a loop nest does, counted in its loops: operations, bytes that are loaded, and bytes that come from each cache.

All of it is the least that a machine can do with: sums of a tile stay in registers, and loads and stores run side by
side. Traffic: the outermost loops inside of which all data fit in a cache bring in from beyond it once each time they
run. What is written goes back on its own: it counts as it is brought in before, or where it goes past the caches.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from math import exp, prod
from typing import TypeAlias

from tensorlang import dtypes
from tensorlang.dataclass import dataclass
from tensorlang.ir.affine import affine
from tensorlang.ir.expr import Binary, Buffer, Call, Const, Expr, Load, Unary, variables, walk
from tensorlang.ir.flat import flat_offset, row_major
from tensorlang.ir.intrinsics import TABLE
from tensorlang.ir.loops import REDUCE_TREE
from tensorlang.ir.overflow import exact_value
from tensorlang.ir.stmt import AtomicUpdate, CallMachine, For, If, Let, LoopKind, Stmt, Store, children
from tensorlang.ir.traverse import distinct
from tensorlang.profiling.regions import Region
from tensorlang.profiling.runs import Around, Condition, Runs, tuple_stores, wanted_by
from tensorlang.schedules.accesses import CALL_COST, operations

_FILL = 0.75
"""The share of a cache that data take before others push them out."""
_STEPS = 32
"""Of a sequence that converges."""
_INSTRUCTIONS = {row.name for row in TABLE.values() if row.family != "float"}
_INSTRUCTIONS |= {"fma", "floor", "ceil", "round", "trunc", "copysign", "sqrt"}
"""Functions of math that are about one instruction each; others are polynomials."""
_IN_REGISTERS = {LoopKind.VECTORIZED, LoopKind.UNROLLED}


@dataclass(frozen=True, slots=True)
class _Loop:
    var: str
    trips: float
    kind: LoopKind


_Loops: TypeAlias = tuple[_Loop, ...]
_Innermost: TypeAlias = tuple[Store | AtomicUpdate, _Loops, float]
"""A statement that computes, the loops around it, and how often it runs."""


@dataclass(frozen=True, slots=True)
class Access:
    """A load or a store, inside of some loops, in a `share` of their iterations; `stride` is how far neighbours of a
    vector lie apart, None where that changes.
    """

    buffer: Buffer
    index: tuple[Expr, ...]
    loops: _Loops
    is_store: bool
    share: float = 1.0

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
        if self.lanes is None or not self.index:
            return 0
        behind = row_major([_extent(n) for n in self.buffer.shape])
        forms = [affine(i) for i in self.index]
        if any(form is None and self.lanes.var in variables(i) for form, i in zip(forms, self.index, strict=True)):
            ranges = {loop.var: (0, max(0, int(loop.trips) - 1)) for loop in self.loops}
            return _step(flat_offset(self.index, behind, ranges), self.lanes.var)  # those of fused loops cancel
        return sum((form or {}).get(self.lanes.var, 0) * n for form, n in zip(forms, behind, strict=True))

    @property
    def follows_data(self) -> bool:
        """Whether data say where it is."""
        return any(isinstance(node, Load) for i in self.index for node in walk(i))

    def loaded(self, registers: float) -> float:
        """Bytes that instructions move: once for inner loops in which the place stays the same, also where it is one of
        a tile (vectors, and loops that are written out) that so many bytes of registers hold.
        """
        depth = len(self.loops)
        while depth and (not self.moves_with(depth - 1) or self._is_tile(depth - 1, registers)):
            depth -= 1
        return prod(loop.trips for loop in self.loops[:depth]) * self.footprint(depth) * self.share

    def _is_tile(self, depth: int, registers: float) -> bool:
        return self.loops[depth].kind in _IN_REGISTERS and self.footprint(depth) <= registers

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


def _step(place: Expr, var: str) -> int | None:
    """How far a place moves with a variable; None where that changes."""
    if var not in variables(place):
        return 0
    match place:
        case Binary(op="add", a=a, b=b) if (one := _step(a, var)) is not None and (other := _step(b, var)) is not None:
            return one + other
    form = affine(place)
    return None if form is None else form.get(var, 0)


@dataclass(frozen=True, slots=True)
class Work:
    """Operations, what they cost, those of them in vectors, dtypes of arrays, and accesses of these.

    A multiply-add costs 2, and so does a multiplication alone. Additions, which cost 1, have units of their own on some
    CPUs: they count where there are more of them. The arrays of registers are left out. `streamed` are arrays that are
    written past the caches.
    """

    operations: float
    cost: float
    in_vectors: float
    kinds: tuple[str, ...]
    accesses: tuple[Access, ...]
    streamed: tuple[str, ...] = ()

    def loaded(self, registers: float) -> float:
        """Bytes that instructions load, or store if these are more: they do both at once."""
        moved = {False: 0.0, True: 0.0}
        for a in self.accesses:
            moved[a.is_store] += a.loaded(registers)
        return max(moved.values())

    @property
    def touched(self) -> float:
        """Bytes of different elements."""
        return _distinct(self.accesses, 0)

    def beyond(self, cache: float) -> float:
        """Bytes that come from beyond a cache of a size, when the work is done again and again, or go past it if these
        are more: what is written comes from there before, unless it is streamed.
        """
        deepest = max((len(a.loops) for a in self.accesses), default=0)
        depth = next((d for d in range(deepest) if _distinct(self.accesses, d) <= _FILL * cache), deepest)
        if depth == 0:
            return 0.0
        moved = {False: 0.0, True: 0.0}
        for name, group in _by_place(self.accesses).items():
            widest = max(group, key=lambda one: one.footprint(depth))
            repeats = [d for d in range(min(depth - 1, len(widest.loops))) if not widest.moves_with(d)]
            between = _distinct(self.accesses, max(repeats, default=-1) + 1)
            runs = max(1.0, prod(widest.loops[d].trips for d in repeats) * widest.share)
            again = runs * _missed(between / (_FILL * cache))
            moved[name in self.streamed and any(a.is_store for a in group)] += _once(group, depth) * again
        return max(moved.values())


def _missed(times: float) -> float:
    """The share of data that a cache has not kept, when so many times its size was touched since they were.

    Of a cache that replaces at random, as last ones do more or less: of n lines that are missed one survives with
    exp(-n / lines). One that replaces the oldest keeps none.
    """
    missed = 1.0
    for _ in range(_STEPS):
        missed = 1 - exp(-times * missed)
    return missed


def _once(group: Sequence[Access], depth: int) -> float:
    """What accesses of one array bring in, when the loops from a depth on run for all of its elements."""
    apart = {a.index: a for a in group}
    moved = sum(
        a.footprint(depth)
        * prod(a.loops[d].trips for d in range(min(depth, len(a.loops))) if a.moves_with(d))
        * a.share
        for a in apart.values()
    )
    return min(moved, _whole(group[0]))


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
    loops: _Loops = ()
    runs = Runs.of(sizes, wanted_by(region.body, region.around))
    for around in region.around:
        runs, loops = _inside(around, runs, loops)
    found = [one for stmt in region.body for one in _innermost(stmt, runs, loops)]
    done = [count * operations(stmt.value) for stmt, _, count in found]
    vectors = sum(
        amount
        for amount, (_, within, _) in zip(done, found, strict=True)
        if any(loop.kind is LoopKind.VECTORIZED for loop in within)
    )
    accesses: dict[tuple[str, tuple[Expr, ...], bool], Access] = {}  # one load for all that read an element
    for access in (access for one in found for access in _accesses(*one)):
        key = access.buffer.name, access.index, access.is_store
        if key not in accesses or len(accesses[key].loops) < len(access.loops):
            accesses[key] = _sized(access, sizes)
    kinds = tuple(dict.fromkeys(access.buffer.dtype for access in accesses.values()))
    return Work(sum(done), _cost(found), vectors, kinds, tuple(accesses.values()), streamed)


def _inside(around: Around, runs: Runs, loops: _Loops) -> tuple[Runs, _Loops]:
    """The runs of what is inside, and the loops around that."""
    inner = runs.inside(around)
    if not isinstance(around, For):
        return inner, loops
    in_vectors = around.kind is LoopKind.SERIAL and (REDUCE_TREE, 1) in around.pragmas
    kind = LoopKind.VECTORIZED if in_vectors else around.kind
    return inner, (*loops, _Loop(around.var.name, inner.count / runs.count if runs.count else 0.0, kind))


def _innermost(stmt: Stmt, runs: Runs, loops: _Loops) -> Iterator[_Innermost]:
    """Statements that compute, with the loops around them, and how often they run."""
    if not runs.points:
        return
    if stores := tuple_stores(stmt):
        yield from ((store, loops, runs.count) for store in stores)
        return
    match stmt:
        case For() | Let():
            yield from _innermost(stmt.body, *_inside(stmt, runs, loops))
        case CallMachine(meaning=meaning):
            yield from _innermost(meaning, runs, loops)
        case Store() | AtomicUpdate():
            yield stmt, loops, runs.count
        case If(cond=cond, then=then, orelse=orelse):
            yield from _innermost(then, runs.inside(Condition(cond)), loops)
            if orelse is not None:
                yield from _innermost(orelse, runs.inside(Condition(cond, holds=False)), loops)
        case _:
            for child in children(stmt):
                yield from _innermost(child, runs, loops)


def _cost(found: Sequence[_Innermost]) -> float:
    """What the operations of statements cost; one that a value has several times is done once."""
    products, others, calls = 0.0, 0.0, 0.0
    for stmt, _, count in found:
        for node in {*distinct(stmt.value)}:
            match node:
                case Call(name=name) if name not in _INSTRUCTIONS and operations(node):
                    calls += count
                case Binary(op="mul" | "div") | Call(name="fma") if operations(node):
                    products += count
                case Binary() | Unary() | Call() if operations(node):
                    others += count
    return max(2 * products, others) + CALL_COST * calls


def _accesses(stmt: Store | AtomicUpdate, loops: _Loops, count: float) -> Iterator[Access]:
    """The accesses of a statement, but for those of registers."""
    share = count / prod(loop.trips for loop in loops)
    found = [Access(stmt.buffer, stmt.index, loops, True, share)]
    found += [
        Access(node.buffer, node.index, loops, False, share) for node in walk(stmt.value) if isinstance(node, Load)
    ]
    yield from (access for access in found if access.buffer.scope == "global" and access.index)


def _sized(access: Access, sizes: Mapping[str, int]) -> Access:
    """The access of an array with its extents as numbers."""
    known = [exact_value(n, sizes) for n in access.buffer.shape]
    shape = tuple(n if k is None else Const(k, "int64") for n, k in zip(access.buffer.shape, known, strict=True))
    buffer = Buffer(access.buffer.name, shape, access.buffer.dtype, access.buffer.scope)
    return replace(access, buffer=buffer)
