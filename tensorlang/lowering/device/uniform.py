"""Arrays of a thread whose elements are all equal along a dimension: one of them is kept.

A reduction of tuples has all its arrays along all its axes, also along those that only some parts depend on: greatest
score and sum of weights of a row are the same for every column of the values that are merged with them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from tensorlang.dataclass import dataclass
from tensorlang.ir.expr import Buffer, Const, Expr, Load, Var, rewrite, same, substitute, substitution, variables
from tensorlang.ir.expr import walk as nodes
from tensorlang.ir.instance import map_runs
from tensorlang.ir.loops import constant_extent, uses, with_value
from tensorlang.ir.stmt import (
    INDEX,
    Allocate,
    AtomicUpdate,
    CallMachine,
    For,
    Let,
    Seq,
    Stmt,
    Store,
    ThreadReduce,
    children,
    map_children,
    map_exprs,
    stmt_exprs,
    walk,
    with_buffers,
)
from tensorlang.lowering.device.arrays import local_arrays, used, written
from tensorlang.lowering.device.threads import ONE, ZERO

Dims = Mapping[str, frozenset[int]]
"""The dimensions along which the elements of arrays are equal, by name."""
_EMPTY = Seq(())


def kept_once(stmt: Stmt) -> Stmt:
    """Keep one element of those that are equal: all loops that store them give them one value."""
    groups = tuple(_groups(stmt, ()))
    dims = _uniform(stmt, groups)
    if not dims:
        return stmt
    return _narrowed(_stored_once(stmt, [group for group in groups if group.over(dims)], dims), dims)


@dataclass(frozen=True, slots=True)
class _Group:
    """Stores that stand together, with the loops around and the values, none of which reads what they wrote before."""

    stmt: Stmt
    loops: tuple[For, ...]
    stores: tuple[Store, ...]
    values: tuple[Expr, ...]

    def over(self, dims: Dims) -> frozenset[str]:
        """The loops along which equal elements are stored."""
        return frozenset(i for s in self.stores for d in dims.get(s.buffer.name, ()) for i in variables(s.index[d]))

    def changing(self, value: Expr) -> set[str]:
        """The loops in which something else writes what a value reads."""
        read = _loaded([value]) - {store.buffer.name for store in self.stores}
        return {loop.var.name for loop in self.loops if read & written(loop)}

    def outermost(self, dims: Dims) -> For:
        """The first of these."""
        return next(loop for loop in self.loops if loop.var.name in self.over(dims))


def _groups(stmt: Stmt, loops: tuple[For, ...]) -> Iterator[_Group]:
    """All stores of a statement; a test ends the loops that are looked at."""
    group = _group(stmt, loops)
    if group is not None:
        yield group
        return
    if isinstance(stmt, For | Seq | Allocate):
        loops = (*loops, stmt) if isinstance(stmt, For) else loops
    else:
        loops = ()
    for child in children(stmt):
        yield from _groups(child, loops)


def _group(stmt: Stmt, loops: tuple[For, ...]) -> _Group | None:
    """Names of values, and stores; None for any other statement."""
    inner, known = stmt, dict[str, Expr]()
    while isinstance(inner, Let):
        known[inner.var.name] = substitute(inner.value, known)
        inner = inner.body
    parts = inner.body if isinstance(inner, Seq) else (inner,)
    stores = tuple(s for s in parts if isinstance(s, Store))
    if not stores or len(stores) < len(parts):
        return None
    before: set[str] = set()
    for store in stores:
        if _loaded((store.value, *store.index)) & before:
            return None
        before.add(store.buffer.name)
    return _Group(stmt, loops, stores, tuple(substitute(store.value, known) for store in stores))


def _loaded(exprs: Sequence[Expr]) -> set[str]:
    return {node.buffer.name for e in exprs for node in nodes(e) if isinstance(node, Load)}


def _uniform(stmt: Stmt, groups: Sequence[_Group]) -> dict[str, frozenset[int]]:
    """Strike out dimensions along which elements may differ, until none is left to strike out."""
    local = local_arrays(stmt)
    for s in walk(stmt):
        match s:
            case AtomicUpdate():
                local.pop(s.buffer.name, None)
            case CallMachine():
                for view in s.views:
                    local.pop(view.buffer.name, None)
            case ThreadReduce():
                for buffer, _ in s.targets:
                    local.pop(buffer.name, None)
    left = {name: frozenset(_wide(buffer)) for name, buffer in local.items()}
    dims: dict[str, frozenset[int]] = {}
    while left != dims:
        dims, left = left, dict(left)
        for group in groups:
            _strike_out(group, left)
    return {name: kept for name, kept in dims.items() if kept}


def _wide(buffer: Buffer) -> Iterator[int]:
    return (d for d, extent in enumerate(buffer.shape) if isinstance(extent, Const) and extent.value != 1)


def _strike_out(group: _Group, dims: dict[str, frozenset[int]]) -> None:
    """Strike out the dimensions along which stores do not give all elements of an array one value."""
    whole = {loop.var.name: constant_extent(loop) for loop in group.loops if same(loop.lower, ZERO)}
    for store, value in zip(group.stores, group.values, strict=True):
        name, varying = store.buffer.name, variables(_narrowed_value(value, dims)) | group.changing(value)
        dims[name] = frozenset(d for d in dims.get(name, ()) if _along(store, d, whole) - varying)
    names = [s.buffer.name for s in group.stores if dims[s.buffer.name]]
    common = [frozenset(i for d in dims[s.buffer.name] for i in variables(s.index[d])) for s in group.stores]
    shared = frozenset.intersection(*(c for c in common if c)) if names else frozenset[str]()
    for store in group.stores:
        name = store.buffer.name
        dims[name] = frozenset(d for d in dims[name] if variables(store.index[d]) <= shared)
    if shared and not _can_follow(group, dims):
        dims |= dict.fromkeys(names, frozenset[int]())


def _along(store: Store, d: int, whole: Mapping[str, int | None]) -> set[str]:
    """The loop that goes along a dimension of an array, over all of it, and along no other one; empty if none does."""
    index, extent = store.index[d], store.buffer.shape[d]
    if not isinstance(index, Var) or not isinstance(extent, Const) or whole.get(index.name) != extent.value:
        return set()
    return {index.name} - {name for k, i in enumerate(store.index) if k != d for name in variables(i)}


def _can_follow(group: _Group, dims: Dims) -> bool:
    """Whether the stores of equal elements may come after the loops along them.

    Nothing else in these may use the arrays, nor write what the values are made of, and other loops inside them have to
    go along the arrays, as far in every iteration, so that an iteration finds what it found before.
    """
    over, outer = group.over(dims), group.outermost(dims)
    inside = group.loops[group.loops.index(outer) :]
    kept = [(s, v) for s, v in zip(group.stores, group.values, strict=True) if dims[s.buffer.name]]
    names = {store.buffer.name for store, _ in kept}
    others = {loop.var.name for loop in inside} - over
    injective = all(others <= {i.name for i in store.index if isinstance(i, Var)} for store, _ in kept)
    unchanged = not _loaded([value for _, value in kept]) & (written(outer) - names)
    straight = not any(variables(bound) & over for loop in inside for bound in (loop.lower, loop.upper))
    return injective and straight and unchanged and not used(_replaced(outer, group.stmt, _EMPTY)) & names


def _replaced(stmt: Stmt, old: Stmt, new: Stmt) -> Stmt:
    return new if stmt is old else map_children(stmt, lambda s: _replaced(s, old, new))


def _narrowed_value(value: Expr, dims: Dims) -> Expr:
    """A value that reads the one element of those that are equal."""

    def load(node: Expr) -> Expr | None:
        if not isinstance(node, Load) or not dims.get(node.buffer.name):
            return None
        own = dims[node.buffer.name]
        index = (ZERO if d in own else _narrowed_value(i, dims) for d, i in enumerate(node.index))
        return Load(node.buffer, tuple(index))

    return rewrite(value, load)


def _stored_once(stmt: Stmt, groups: Sequence[_Group], dims: Dims) -> Stmt:
    """Take stores of equal elements out of the loops along them, behind all that read the values before."""
    after = list[Stmt]()
    for group in groups:
        if stmt is not group.outermost(dims):
            continue
        once = _stores(group.stmt, dims, True)
        for loop in reversed(group.loops[group.loops.index(stmt) :]):
            over = loop.var.name in group.over(dims)
            once = with_value(_for_all(once, loop), loop.var, ZERO) if over else replace(loop, body=once)
        after.append(once)
    for group in groups:
        if stmt is group.stmt:
            return _stores(stmt, dims, False)
    made = map_children(stmt, lambda s: _stored_once(s, groups, dims))
    return Seq((made, *after)) if after else made


def _for_all(stmt: Stmt, loop: For) -> Stmt:
    """A statement that does once what all iterations of a loop would do."""
    every = Var(f"{loop.var.name}.all", INDEX)

    def visit(s: Stmt) -> Stmt:
        if not isinstance(s, Store) or not s.runs:
            return map_children(s, visit)
        moved = map_runs(s.runs, substitution({loop.var.name: every}))
        count = constant_extent(loop) or 0
        return replace(s, runs=tuple(replace(r, over=(*r.over, (every.name, 0, count)), moved=True) for r in moved))

    return visit(stmt)


def _stores(stmt: Stmt, dims: Dims, once: bool) -> Stmt:
    """A group with those stores only that are, or are not, of equal elements."""
    match stmt:
        case Let():
            body = _stores(stmt.body, dims, once)
            return replace(stmt, body=body) if any(uses(e, stmt.var.name) for e in stmt_exprs(body)) else body
        case Seq():
            return Seq(tuple(s for s in stmt.body if isinstance(s, Store) and (s.buffer.name in dims) == once))
        case Store() if (stmt.buffer.name in dims) != once:
            return _EMPTY
    return stmt


def _narrowed(stmt: Stmt, dims: Dims) -> Stmt:
    """The statement over arrays that have one element along these dimensions."""

    def visit(s: Stmt) -> Stmt:
        s = map_children(s, visit)
        if isinstance(s, Store) and s.buffer.name in dims:
            own = dims[s.buffer.name]
            return replace(s, index=tuple(ZERO if d in own else i for d, i in enumerate(s.index)))
        return s

    def smaller(buffer: Buffer) -> Buffer:
        own = dims.get(buffer.name, ())
        return replace(buffer, shape=tuple(ONE if d in own else e for d, e in enumerate(buffer.shape)))

    return with_buffers(map_exprs(visit(stmt), lambda e: _narrowed_value(e, dims)), smaller)
