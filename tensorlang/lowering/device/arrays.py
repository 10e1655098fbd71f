"""Where the scratch arrays of a device kernel live: with a thread, or with the block."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import replace
from typing import TypeAlias

from tensorlang.errors import TargetError
from tensorlang.ir.expr import Buffer, Const, Expr, Load, walk
from tensorlang.ir.stmt import (
    Allocate,
    AsyncCommit,
    AsyncCopy,
    AsyncWait,
    AtomicUpdate,
    BoxCopy,
    CallMachine,
    Prefetch,
    Stmt,
    Store,
    ThreadReduce,
    map_children,
    own_exprs,
    stmt_exprs,
    with_buffers,
)
from tensorlang.ir.stmt import walk as statements
from tensorlang.lowering.device.threads import is_thread_loop, thread_tags

Element: TypeAlias = tuple[Buffer, tuple[Expr, ...]]


def place_arrays(stmt: Stmt, kernel: str) -> Stmt:
    """Give every scratch array of a device nest the scope `shared` or `local`.

    An array that is allocated by a thread, or has a copy for each thread, is local; any other is what all threads of
    a block have in common, whatever its scope was; one in the registers of a warp stays there. Raises TargetError for
    one whose shape is not constant.
    """
    threaded = bool(thread_tags(stmt))

    def visit(s: Stmt, alone: bool) -> Stmt:
        if isinstance(s, Allocate):
            scope = "local" if alone or s.threads or not _in_common(s) else "shared"
            if not all(isinstance(extent, Const) for extent in s.buffer.shape):
                raise TargetError(
                    f"the kernel {kernel} keeps {s.buffer} in {scope} memory, whose arrays need a constant shape; "
                    "compute it at a tile of constant size, or at the root"
                )
            placed = s.buffer if s.buffer.scope == "warp" else replace(s.buffer, scope=scope)
            if placed != s.buffer:
                body = with_buffers(s.body, lambda b: placed if b.name == placed.name else b)
                s = Allocate(placed, body, s.threads)
        inner = alone or is_thread_loop(s)
        return map_children(s, lambda child: visit(child, inner))

    return visit(stmt, not threaded)


def _in_common(stmt: Allocate) -> bool:
    """Whether several threads of a block use an array: some statements that do stand in loops on threads."""
    if stmt.buffer.scope in ("shared", "warp"):
        return True
    return any(uses(s, stmt.buffer.name) for s in statements(stmt.body) if is_thread_loop(s))


def accesses(stmt: Stmt) -> Iterator[Element]:
    """The elements that a statement stores to or loads, machine code aside."""
    for s in statements(stmt):
        match s:
            case Store() | AtomicUpdate():
                yield s.buffer, s.index
            case AsyncCopy() | BoxCopy():
                yield s.buffer, s.index
                yield s.source, s.source_index
            case ThreadReduce():
                yield from s.targets
    for expr in stmt_exprs(stmt):
        yield from ((node.buffer, node.index) for node in walk(expr) if isinstance(node, Load))


def written(stmt: Stmt) -> set[str]:
    """The names of the arrays that a statement writes."""
    return {name for s in statements(stmt) for name in _own_writes(s)}


def read(stmt: Stmt) -> set[str]:
    """The names of the arrays that a statement reads."""
    return {name for s in statements(stmt) for name in _own_reads(s)}


def used(stmt: Stmt) -> set[str]:
    """The names of the arrays that a statement reads, writes or prefetches."""
    return {name for s in statements(stmt) for name in _own_names(s)}


def uses(stmt: Stmt, array: str) -> bool:
    """Whether a statement reads or writes an array."""
    return any(array in _own_writes(s) or array in _own_reads(s) for s in statements(stmt))


def _own_names(stmt: Stmt) -> list[str]:
    """The names of the arrays that a statement itself names, not those in it."""
    prefetched = [stmt.buffer.name] if isinstance(stmt, Prefetch) else []
    return [*_own_writes(stmt), *_own_reads(stmt), *prefetched]


def _own_writes(stmt: Stmt) -> Collection[str]:
    """The names of the arrays that a statement itself writes, not those in it."""
    match stmt:
        case Store() | AtomicUpdate() | AsyncCopy() | BoxCopy():
            return (stmt.buffer.name,)
        case ThreadReduce():
            return [b.name for b, _ in stmt.targets]
        case CallMachine():
            return [v.buffer.name for v in stmt.views]
    return ()


def _own_reads(stmt: Stmt) -> Collection[str]:
    """The names of the arrays that a statement itself reads, not those in it."""
    found = [node.buffer.name for e in own_exprs(stmt) for node in walk(e) if isinstance(node, Load)]
    match stmt:
        case AtomicUpdate():
            found.append(stmt.buffer.name)
        case AsyncCopy() | BoxCopy():
            found.append(stmt.source.name)
        case CallMachine():
            found += [v.buffer.name for v in stmt.views]
    return found


def memory_barriers(stmt: Stmt) -> dict[str, Buffer]:
    """The arrays of memory barriers that count bulk copies in a statement, by name."""
    counting = (s.barriers for s in statements(stmt) if isinstance(s, BoxCopy | AsyncCommit | AsyncWait))
    return {barriers.name: barriers for barriers in counting if barriers is not None}


def without_unused(stmt: Stmt) -> Stmt:
    """The statement without arrays that nothing in it uses, as in iterations that only fill tiles ahead."""
    return _without_unused(stmt, set())


def _without_unused(stmt: Stmt, names: set[str]) -> Stmt:
    """Likewise; the names of what is used in it are added to some."""
    inside = set[str]()
    made = map_children(stmt, lambda s: _without_unused(s, inside))
    if isinstance(made, Allocate) and made.buffer.name not in inside:
        made = made.body
    names.update(inside, _own_names(stmt))
    return made


def local_arrays(stmt: Stmt) -> dict[str, Buffer]:
    """The arrays of scope local that are allocated in a statement, by name."""
    return {s.buffer.name: s.buffer for s in statements(stmt) if isinstance(s, Allocate) and s.buffer.scope == "local"}
