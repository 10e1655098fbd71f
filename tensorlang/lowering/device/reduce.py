"""Reductions across threads: loops on threads whose iterations update the same elements.

Each thread combines its own updates into a value of its own, starting from the identity; all threads of the block
combine these (`ThreadReduce`); and the first of those that took part updates the element, once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from tensorlang.dataclass import dataclass
from tensorlang.errors import InternalError, TargetError
from tensorlang.ir.expr import Buffer, Const, Expr, Load, Var, binary, cast, rewrite, same, substitute, variables
from tensorlang.ir.extremes import extreme
from tensorlang.ir.loops import THREAD_REDUCE, reads_memory, with_value
from tensorlang.ir.printer import stmt_text
from tensorlang.ir.stmt import (
    INDEX,
    Allocate,
    Combiner,
    For,
    If,
    Leaf,
    Let,
    LoopKind,
    Seq,
    Stmt,
    Store,
    ThreadReduce,
    children,
    map_children,
    map_exprs,
    walk,
)
from tensorlang.ir.thread_tags import THREADS
from tensorlang.lowering.device.arrays import Element, accesses, local_arrays, written
from tensorlang.lowering.device.lanes import serial
from tensorlang.lowering.device.ranges import Ranges, inside
from tensorlang.lowering.device.threads import (
    ONE,
    ZERO,
    bound_loops,
    first_of,
    is_thread_loop,
    thread_loop,
    thread_tags,
)

_DONE = Combiner(
    (Var("a", "int32"),),
    (Var("b", "int32"),),
    (binary("max", Var("a", "int32"), Var("b", "int32")),),
    (Const(0, "int32"),),
)
"""Whether any thread has updated the element."""


def reduces(stmt: Stmt) -> bool:
    """Whether a statement holds a loop whose threads reduce together."""
    return any(is_reduction(loop) for loop in bound_loops(stmt))


def is_reduction(stmt: Stmt) -> bool:
    """Whether a statement is a loop on threads that reduce together."""
    return isinstance(stmt, For) and is_thread_loop(stmt) and (THREAD_REDUCE, 1) in stmt.pragmas


@dataclass(frozen=True, slots=True)
class _Path:
    """What is around a statement of a region: ranges, tests that not all threads of the block pass, loops on threads.

    `threads` gives the axis of each loop variable on threads, `reduced` the number of threads of each axis that is
    reduced over. `deferred` are serial loops that each thread runs before the threads combine what they have.
    """

    ranges: Ranges
    guards: tuple[Expr, ...]
    threads: Mapping[str, str]
    reduced: Mapping[str, int]
    deferred: tuple[For, ...] = ()
    own: tuple[Expr, ...] = ()

    def under(self, test: Expr, is_guard: bool) -> _Path:
        """What is around a statement behind one more test."""
        own = (*self.own, test) if is_guard else self.own
        return replace(self, guards=(*self.guards, test), own=own)

    @property
    def summed(self) -> set[str]:
        """The variables of the loops that are reduced over."""
        return {name for name, tag in self.threads.items() if tag in self.reduced}


Plain = Callable[[Stmt, Ranges, frozenset[str]], Stmt]


class Reduction:
    """The code of regions that reduce across threads."""

    def __init__(
        self,
        reducers: Mapping[str, Combiner],
        extents: Mapping[str, int],
        replicated: Mapping[str, frozenset[str]],
        plain: Plain,
    ) -> None:
        self.reducers = reducers
        self.extents = extents
        self.replicated = replicated
        self.plain = plain
        """What makes the code of the other statements of a region, inside loops on some axes."""

    def region(self, region: For, ranges: Ranges) -> Stmt:
        """Return what every thread of a block runs of a region with loops that reduce."""
        return self._visit(region, _Path(ranges, (), {}, {}))

    def _visit(self, stmt: Stmt, path: _Path) -> Stmt:
        if not reduces(stmt) and not (path.reduced and self._targets(stmt)):
            self._check_plain(stmt, path)
            done = self.plain(stmt, path.ranges, frozenset(path.threads.values()))
            return _guarded(path.guards, done, path.own)
        threaded = bool(thread_tags(stmt))
        if not threaded and self._elements(stmt) is not None:
            return self._combined(stmt, path)
        match stmt:
            case For() if is_thread_loop(stmt):
                return self._thread_loop(stmt, path)
            case For() if self.defers(stmt):
                ranges, deferred = inside(stmt, path.ranges), (*path.deferred, stmt)
                return self._visit(stmt.body, replace(path, ranges=ranges, deferred=deferred))
            case For():
                return self._serial_loop(stmt, path)
            case If(orelse=None) if self._varies(stmt.cond, path):
                return self._visit(stmt.then, path.under(stmt.cond, stmt.is_guard))
            case If() if self._varies(stmt.cond, path):
                assert stmt.orelse is not None
                orelse = path.under(~stmt.cond, stmt.is_guard)
                return Seq((self._visit(replace(stmt, orelse=None), path), self._visit(stmt.orelse, orelse)))
            case Let():
                return self._visit(with_value(stmt.body, stmt.var, stmt.value), path)
            case If() | Seq() | Allocate():
                return map_children(stmt, lambda s: self._visit(s, path))
        raise InternalError(f"threads reduce in a statement that is no update:\n{stmt_text(stmt)}")

    def _check_plain(self, stmt: Stmt, path: _Path) -> None:
        """Refuse a store of all threads that reduce into one element, which is not theirs."""
        for s in walk(stmt):
            if not isinstance(s, Store) or s.buffer.scope == "local" or not path.reduced:
                continue
            if not any(variables(i) & path.summed for i in s.index):
                raise InternalError(f"threads reduce in a statement that is no update:\n{stmt_text(stmt)}")

    def defers(self, loop: For) -> bool:
        """Whether threads that reduce inside a serial loop can do so once, after it: it holds updates of one element.

        The loops on threads inside then stand around it. They may end earlier in some iterations.
        """
        name = loop.var.name
        if is_thread_loop(loop) or loop.kind is LoopKind.VECTORIZED or not reduces(loop):
            return False
        if reads_memory(loop.lower) or reads_memory(loop.upper):
            return False
        stmt = loop.body
        while thread_tags(stmt):
            match stmt:
                case For():
                    free = (stmt.lower,) if is_thread_loop(stmt) else (stmt.lower, stmt.upper)
                    if any(name in variables(bound) for bound in free):
                        return False
                    stmt = stmt.body
                case If(orelse=None):
                    stmt = stmt.then
                case _:
                    return False
        targets = set(self._targets(stmt))
        if not self._only_updates(stmt) or not written(stmt) <= targets | local_arrays(stmt).keys():
            return False
        own = {s.var.name for s in walk(stmt) if isinstance(s, Let)} | {name}
        return not any(variables(i) & own for b, index in accesses(stmt) if b.name in targets for i in index)

    def _only_updates(self, stmt: Stmt) -> bool:
        """Whether nothing stands between updates of one element each, which would run once where they run again."""
        if self._elements(stmt) is not None:
            return True
        match stmt:
            case For() | If() | Let() | Seq() | Allocate():
                return all(map(self._only_updates, children(stmt)))
        return False

    def _thread_loop(self, loop: For, path: _Path) -> Stmt:
        bound = thread_loop(loop, path.ranges)
        if bound.tag in path.threads.values():
            raise InternalError(f"the loop {loop.axis} on {loop.thread} stands inside another one on {loop.thread}")
        more = {bound.tag: bound.extent} if is_reduction(loop) else {}
        threads = {**path.threads, loop.var.name: bound.tag}
        ranges = inside(loop, path.ranges)
        guards, reduced = (*path.guards, *bound.guards), {**path.reduced, **more}
        body = self._visit(loop.body, _Path(ranges, guards, threads, reduced, path.deferred, path.own))
        return with_value(body, loop.var, bound.value)

    def _serial_loop(self, loop: For, path: _Path) -> Stmt:
        """A loop in whose iterations all threads reduce: all of them run as many as the one that runs most."""
        guards: tuple[Expr, ...] = ()
        lower, upper = loop.lower, loop.upper
        if self._varies(lower, path) or self._varies(upper, path):
            known = {name: path.ranges[name] for name in path.threads}
            ends = {
                name: (Const(low, INDEX), Const(high, INDEX))
                for name, (low, high) in known.items()
                if low is not None and high is not None
            }
            lower, upper = extreme(lower, ends, False), extreme(upper, ends, True)
            guards = (loop.var >= loop.lower, loop.var < loop.upper)
            if self._varies(lower, path) or self._varies(upper, path):
                raise TargetError(
                    f"threads reduce together inside the loop {loop.axis or loop.var.name} from {loop.lower} to "
                    f"{loop.upper}, which is not the same for all of them; bind the reduction to the innermost loop"
                )
        within = replace(path, ranges=inside(loop, path.ranges), guards=(*path.guards, *guards))
        kind = LoopKind.UNROLLED if loop.kind is LoopKind.VECTORIZED else loop.kind
        return serial(replace(loop, lower=lower, upper=upper, kind=kind), self._visit(loop.body, within))

    def _varies(self, expr: Expr, path: _Path) -> bool:
        names = path.threads.keys() | {loop.var.name for loop in path.deferred}
        return bool(variables(expr) & names) or reads_memory(expr)

    def _targets(self, stmt: Stmt) -> list[str]:
        """The arrays that a statement updates, in the order of their reduction."""
        names = written(stmt)
        return [name for name in self.reducers if name in names]

    def _elements(self, stmt: Stmt) -> dict[str, Element] | None:
        """The one element of each array that a statement updates; None where there are several."""
        own = {s.var.name for s in walk(stmt) if isinstance(s, For | Let)}
        names = set(self._targets(stmt))
        found: dict[str, Element] = {}
        for buffer, index in accesses(stmt):
            if buffer.name not in names:
                continue
            known = found.setdefault(buffer.name, (buffer, index))[1]
            if not all(map(same, index, known)) or any(variables(i) & own for i in index):
                return None
        return found or None

    def _combined(self, stmt: Stmt, path: _Path) -> Stmt:
        """An update of one element (of each array of a reduction) by all threads."""
        found = self._elements(stmt)
        assert found is not None
        elements = [found[name] for name in self._targets(stmt)]
        combiner = self.reducers[elements[0][0].name]
        if len(elements) != len(combiner.lhs) or any(self.reducers[b.name] != combiner for b, _ in elements):
            names = ", ".join(b.name for b, _ in elements)
            raise InternalError(f"threads reduce into {names}, which are not the arrays of one reduction")
        if any(variables(i) & path.summed for _, index in elements for i in index):
            raise InternalError(f"threads that reduce update different elements:\n{stmt_text(stmt)}")
        own = all(buffer.scope == "local" for buffer, _ in elements)
        idle = frozenset(t for t, n in self.extents.items() if n > 1) - set(path.threads.values())
        idle -= {t for b, _ in elements for t in self.replicated.get(b.name, ())}
        serial_names = {loop.var.name for loop in path.deferred}
        within = tuple(g for g in path.guards if variables(g) & serial_names)
        guards = tuple(g for g in path.guards if not variables(g) & serial_names)
        guards = (*guards, *((first_of(idle),) if idle else ()))
        last = tuple(g for g in guards if not variables(g) & path.summed)
        if not own:
            last = (*last, first_of(frozenset(path.reduced)))
        taking = tuple((t, self.extents[t] if own else path.reduced[t]) for t in THREADS if t in path.reduced)
        stmt = _guarded(within, _serial(stmt), path.own)
        for loop in reversed(path.deferred):
            stmt = serial(loop, _moved(stmt))
        tell = _may_skip(stmt, path, guards, elements)
        return _updated(stmt, Update(elements, combiner, guards, last, taking, tell, path.own))


@dataclass(frozen=True, slots=True)
class Update:
    """An update of elements by threads together: `taking` part, under `guards`; the elements are stored under `last`.

    `tell`: it must be found out whether any thread updates them at all.
    """

    elements: list[Element]
    combiner: Combiner
    guards: tuple[Expr, ...]
    last: tuple[Expr, ...]
    taking: tuple[tuple[str, int], ...]
    tell: bool
    own: tuple[Expr, ...] = ()


def _updated(stmt: Stmt, update: Update) -> Stmt:
    parts = [_private(b, "part") for b, _ in update.elements]
    totals = [_private(b, "all") for b, _ in update.elements]
    names = {b.name: part for (b, _), part in zip(update.elements, parts, strict=True)}
    identity = update.combiner.identity
    is_own = all(buffer.scope == "local" for buffer, _ in update.elements)
    combined = tuple(tag for tag, _ in update.taking) if is_own else THREADS
    steps: list[Stmt] = [_set(b, e) for b, e in zip(parts, identity, strict=True)]
    done = Buffer(f"{update.elements[0][0].name}.updated", (ONE,), "int32", "local")
    any_done = Buffer(f"{update.elements[0][0].name}.any", (ONE,), "int32", "local")
    if update.tell:
        steps.append(_set(done, _DONE.identity[0]))
    parted = _accumulated(stmt, names, done if update.tell else None, combined)
    steps.append(_guarded(update.guards, parted, update.own))
    steps += [_set(b, e) for b, e in zip(totals, identity, strict=True)]
    steps.append(_reduction(totals, parts, update.combiner, update.taking))
    last = update.last
    if update.tell:
        steps += [_set(any_done, _DONE.identity[0]), _reduction([any_done], [done], _DONE, update.taking)]
        last = (*last, binary("ne", Load(any_done, (ZERO,)), _DONE.identity[0]))
    steps.append(_guarded(last, _stored(update, totals)))
    body: Stmt = Seq(tuple(steps))
    for buffer in reversed([*parts, *totals, *((done, any_done) if update.tell else ())]):
        body = Allocate(buffer, body)
    return body


def _serial(stmt: Stmt) -> Stmt:
    """What each thread runs of a statement that it runs all of."""
    if isinstance(stmt, For):
        return serial(stmt, _serial(stmt.body))
    return map_children(stmt, _serial)


def _moved(stmt: Stmt) -> Stmt:
    """Updates of one element in another order than the schedule's: threads run some loops before others combine."""
    if isinstance(stmt, Leaf):
        return replace(stmt, runs=tuple(replace(run, moved=True) for run in stmt.runs))
    return map_children(stmt, _moved)


def _private(buffer: Buffer, word: str) -> Buffer:
    return Buffer(f"{buffer.name}.{word}", (ONE,), buffer.dtype, "local")


def _set(buffer: Buffer, value: Expr) -> Stmt:
    return Store(buffer, (ZERO,), cast(value, buffer.dtype))


def _reduction(
    targets: list[Buffer], values: list[Buffer], combiner: Combiner, taking: tuple[tuple[str, int], ...]
) -> Stmt:
    into = tuple((b, (ZERO,)) for b in targets)
    return ThreadReduce(into, tuple(Load(b, (ZERO,)) for b in values), combiner, taking)


def _accumulated(stmt: Stmt, parts: Mapping[str, Buffer], done: Buffer | None, combined: tuple[str, ...]) -> Stmt:
    """The updates of elements as updates of a thread's own values, which those along some axes combine."""

    def load(node: Expr) -> Expr | None:
        return Load(parts[node.buffer.name], (ZERO,)) if isinstance(node, Load) and node.buffer.name in parts else None

    def visit(s: Stmt) -> Stmt:
        if not isinstance(s, Store) or s.buffer.name not in parts:
            return map_children(s, visit)
        runs = tuple(replace(run, combined=combined) for run in s.runs)
        stored = Store(parts[s.buffer.name], (ZERO,), s.value, runs)
        return stored if done is None else Seq((stored, _set(done, Const(1, "int32"))))

    return visit(map_exprs(stmt, lambda e: rewrite(e, load)))


def _stored(update: Update, totals: list[Buffer]) -> Stmt:
    """The elements combined with what the threads have together."""
    combiner = update.combiner
    values: dict[str, Expr] = {}
    for var, (buffer, index) in zip(combiner.lhs, update.elements, strict=True):
        values[var.name] = Load(buffer, index)
    for var, total in zip(combiner.rhs, totals, strict=True):
        values[var.name] = Load(total, (ZERO,))
    results = [substitute(e, values) for e in combiner.results]
    if len(results) == 1:
        ((buffer, index),) = update.elements
        return Store(buffer, index, cast(results[0], buffer.dtype))
    new = [Var(f"{buffer.name}.new", e.dtype) for (buffer, _), e in zip(update.elements, results, strict=True)]
    body: Stmt = Seq(tuple(Store(b, index, var) for (b, index), var in zip(update.elements, new, strict=True)))
    for var, result in reversed(list(zip(new, results, strict=True))):
        body = Let(var, result, body)
    return body


def _may_skip(stmt: Stmt, path: _Path, guards: tuple[Expr, ...], elements: list[Element]) -> bool:
    """Whether threads that pass all tests of the elements alone may still have no update of them.

    They must not touch them then: the elements may lie outside of the array, or be another thread's.
    """
    of_elements = {name for _, index in elements for i in index for name in variables(i)}
    fixing = (of_elements | path.threads.keys()) - path.summed
    mixed = [g for g in guards if variables(g) & path.summed]
    tests = [s.cond for s in walk(stmt) if isinstance(s, If)]
    tests += [bound for s in walk(stmt) if isinstance(s, For) for bound in (s.lower, s.upper)]
    return any(variables(test) & fixing or reads_memory(test) for test in (*mixed, *tests))


def _guarded(guards: tuple[Expr, ...], stmt: Stmt, own: tuple[Expr, ...] = ()) -> Stmt:
    """A statement under tests, each of which may rely on those before; `own` are part of it (`If.is_guard`)."""
    for guard in reversed(guards):
        stmt = If(guard, stmt, is_guard=any(guard is test for test in own))
    return stmt
