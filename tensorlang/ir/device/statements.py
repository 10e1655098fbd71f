"""Statements of loop IR as Python functions that all threads of a block run together.

A thread waits wherever others go elsewhere: both branches of an If run one after the other, a loop goes on until the
last thread is through. What a statement does to memory is checked by epochs, so that this order hides nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import field
from typing import Any, TypeAlias

import numpy as np

from tensorlang.dataclass import dataclass
from tensorlang.errors import InternalError
from tensorlang.ir.device.copies import Copies
from tensorlang.ir.device.groups import Groups
from tensorlang.ir.device.lanes import Code, Compiler, Mask, State, lanes_of, narrowed
from tensorlang.ir.device.memory import Memory, Storage
from tensorlang.ir.device.sites import Sites
from tensorlang.ir.expr import Buffer
from tensorlang.ir.stmt import (
    Allocate,
    Fail,
    For,
    If,
    Let,
    LoopKind,
    Prefetch,
    Seq,
    Stmt,
    Store,
)
from tensorlang.ir.warp_arrays import WARP as WARP_SCOPE
from tensorlang.ir.warp_arrays import fragments


@dataclass(slots=True)
class Block(State):
    """What statements work on: also the copies under way, faults recorded, and whether to check."""

    copies: Copies | None = None
    faults: list[str] = field(default_factory=list)
    check: bool = True
    groups: dict[str, Groups] = field(default_factory=dict)

    def groups_of(self, name: str) -> Groups:
        """The machine code under way in groups of a name."""
        if name not in self.groups:
            self.groups[name] = Groups(self.clock)
        return self.groups[name]

    def scratch(self, buffer: Buffer, shape: tuple[int, ...], sites: Sites, lanes: int = 1) -> Memory:
        """An array that each thread, or each group of `lanes` threads, has an own one of."""
        if buffer.scope not in ("local", WARP_SCOPE):
            raise InternalError(f"kernel {sites.kernel} allocates {buffer} in {buffer.scope} memory in a thread's code")
        fresh = Storage.fresh(buffer, shape, (-(-self.clock.count // lanes),))
        return Memory(buffer, fresh, self.clock, sites, self.check, lanes)


Run: TypeAlias = Callable[[Block, Mask], None]
Other: TypeAlias = Callable[["StatementCompiler", Stmt], Run | None]


class StatementCompiler:
    """Turns statements into functions. `other` compiles what only one side has: of the host, or of the device."""

    def __init__(self, compiler: Compiler, other: Other) -> None:
        self.exprs = compiler
        self.sites = compiler.sites
        self._other = other

    def stmt(self, stmt: Stmt) -> Run:
        """The function of a statement."""
        match stmt:
            case For():
                return self._for(stmt)
            case Store():
                return self._store(stmt)
            case If():
                return self._if(stmt)
            case Seq():
                body = [self.stmt(s) for s in stmt.body]
                return lambda b, mask: _each(body, b, mask)
            case Allocate():
                return self._allocate(stmt)
            case Let():
                return self._let(stmt)
            case Fail():
                return lambda b, mask: b.faults.append(stmt.message)
            case Prefetch():
                return lambda b, mask: None
        found = self._other(self, stmt)
        if found is None:
            raise InternalError(f"kernel {self.sites.kernel}: {type(stmt).__name__} cannot stand here")
        return found

    def index(self, index: tuple[Any, ...], site: int) -> list[Code]:
        """Functions of indices."""
        return [self.exprs.expr(i, site) for i in index]

    def _store(self, stmt: Store) -> Run:
        site = self.sites.add(stmt)
        name, place = stmt.buffer.name, self.exprs.place(stmt.buffer, stmt.index, site)
        value = self.exprs.expr(stmt.value, site)

        def store(b: Block, mask: Mask) -> None:
            lanes = lanes_of(mask)
            b.memories[name].write(place(b, mask, lanes), value(b, mask), lanes, site)

        return store

    def _if(self, stmt: If) -> Run:
        cond = self.exprs.expr(stmt.cond, self.sites.add(stmt))
        then = self.stmt(stmt.then)
        orelse = self.stmt(stmt.orelse) if stmt.orelse is not None else None

        def branch(b: Block, mask: Mask) -> None:
            test = cond(b, mask)
            if not isinstance(test, np.ndarray):
                if test:
                    then(b, mask)
                elif orelse is not None:
                    orelse(b, mask)
                return
            (some, yes), (others, no) = narrowed(test, mask), narrowed(~test, mask)
            if some:
                then(b, yes)
            if orelse is not None and others:
                orelse(b, no)

        return branch

    def _let(self, stmt: Let) -> Run:
        value, name = self.exprs.expr(stmt.value, self.sites.add(stmt)), stmt.var.name
        body = self.stmt(stmt.body)

        def let(b: Block, mask: Mask) -> None:
            b.values[name] = value(b, mask)
            body(b, mask)
            del b.values[name]

        return let

    def _for(self, stmt: For) -> Run:
        if stmt.kind is LoopKind.BOUND:
            raise InternalError(
                f"kernel {self.sites.kernel}: a loop over {stmt.thread} is left in the code of a thread"
            )
        site, name = self.sites.add(stmt), stmt.var.name
        lower, upper = (self.exprs.expr(e, site) for e in (stmt.lower, stmt.upper))
        body = self.stmt(stmt.body)

        def loop(b: Block, mask: Mask) -> None:
            low, high = _together(lower(b, mask), mask), _together(upper(b, mask), mask)
            if isinstance(low, np.ndarray) or isinstance(high, np.ndarray):
                _loop_apart(b, name, body, mask, (low, high))
            else:
                for value in range(int(low), int(high)):
                    b.values[name] = np.int64(value)
                    body(b, mask)
            b.values.pop(name, None)

        return loop

    def _allocate(self, stmt: Allocate) -> Run:
        buffer, body = stmt.buffer, self.stmt(stmt.body)
        if stmt.threads:
            raise InternalError(f"kernel {self.sites.kernel}: {buffer} still has a dimension of threads")
        shape = self.index(buffer.shape, self.sites.add(stmt))
        lanes = fragments(stmt.body)[buffer.name].lanes if buffer.scope == WARP_SCOPE else 1

        def allocate(b: Block, mask: Mask) -> None:
            b.memories[buffer.name] = b.scratch(
                buffer, tuple(max(0, int(e(b, None))) for e in shape), self.sites, lanes
            )
            body(b, mask)
            del b.memories[buffer.name]

        return allocate


def _each(body: list[Run], b: Block, mask: Mask) -> None:
    for run in body:
        run(b, mask)


def _loop_apart(b: Block, name: str, body: Run, mask: Mask, bounds: tuple[Any, Any]) -> None:
    """Run a loop whose bounds differ between threads: a thread that is through waits for the others."""
    value = np.broadcast_to(bounds[0], b.clock.count)
    anyone, active = narrowed(value < bounds[1], mask)
    while anyone:
        b.values[name] = value
        body(b, active)
        value = value + 1
        anyone, active = narrowed(value < bounds[1], mask)


def _together(bound: Any, mask: Mask) -> Any:
    """A bound as one number where all threads at work have the same."""
    if not isinstance(bound, np.ndarray):
        return bound
    found = bound if mask is None else bound[mask]
    return found[0] if (found == found[0]).all() else bound
