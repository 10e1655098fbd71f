"""Statements that only threads of a device have: barriers, atomic updates, copies under way, machine code."""

from __future__ import annotations

import numpy as np

from tensorlang.ir.device.clock import WARP, Array
from tensorlang.ir.device.copies import Copies
from tensorlang.ir.device.lanes import Code, Mask, binary_function, lanes_of
from tensorlang.ir.device.machine import compile_machine, groups_of
from tensorlang.ir.device.reduction import compile_reduction
from tensorlang.ir.device.statements import Block, Run, StatementCompiler
from tensorlang.ir.stmt import (
    AsyncCommit,
    AsyncCopy,
    AsyncWait,
    AtomicUpdate,
    Barrier,
    BoxCopy,
    CallMachine,
    MachineCommit,
    MachineWait,
    Stmt,
    ThreadReduce,
)


def device_statement(compiler: StatementCompiler, stmt: Stmt) -> Run | None:
    """The function of a statement that only threads of a device have."""
    match stmt:
        case AtomicUpdate():
            return _atomic(compiler, stmt)
        case Barrier():
            return _barrier(compiler, stmt)
        case AsyncCopy():
            return _copy(compiler, stmt)
        case BoxCopy():
            return _box(compiler, stmt)
        case AsyncCommit():
            return _commit(compiler, stmt)
        case AsyncWait():
            return lambda b, mask: _copies(b).of(stmt.barriers).wait(_numbers(b, mask), stmt.pending)
        case MachineCommit():
            return lambda b, mask: b.groups_of(stmt.group).commit(_numbers(b, mask))
        case MachineWait():
            return lambda b, mask: b.groups_of(stmt.group).wait(_numbers(b, mask), stmt.pending)
        case ThreadReduce():
            return compile_reduction(compiler.exprs, stmt)
        case CallMachine():
            return compile_machine(compiler, stmt)
    return None


def _atomic(compiler: StatementCompiler, stmt: AtomicUpdate) -> Run:
    site = compiler.sites.add(stmt)
    name, place = stmt.buffer.name, compiler.exprs.place(stmt.buffer, stmt.index, site)
    value, function = compiler.exprs.expr(stmt.value, site), binary_function(stmt.op, stmt.buffer.dtype)

    def update(b: Block, mask: Mask) -> None:
        lanes = lanes_of(mask)
        b.memories[name].update(place(b, mask, lanes), function, value(b, mask), lanes, site)

    return update


def _barrier(compiler: StatementCompiler, stmt: Barrier) -> Run:
    site, warp = compiler.sites.add(stmt), stmt.scope == "warp"

    def barrier(b: Block, mask: Mask) -> None:
        if mask is not None:
            missing = ~mask & groups_of(mask, WARP) if warp else ~mask
            if missing.any():
                who = f"{b.clock.thread(int(missing.argmax()))} of {b.clock.here}"
                compiler.sites.fault(f"{who} does not come to a barrier where others of its {stmt.scope} wait", site)
        if warp:
            b.clock.warp_barrier(lanes_of(mask))
        else:
            b.clock.barrier()

    return barrier


def _copies(b: Block) -> Copies:
    assert b.copies is not None
    return b.copies


def _numbers(b: Block, mask: Mask) -> Array:
    return b.clock.lanes if mask is None else np.flatnonzero(mask)


def _copy(compiler: StatementCompiler, stmt: AsyncCopy) -> Run:
    site, reach = compiler.sites.add(stmt), stmt.elements
    index, source_index = compiler.index(stmt.index, site), compiler.index(stmt.source_index, site)
    valid = None if stmt.valid is None else compiler.exprs.expr(stmt.valid, site)
    neighbours = np.arange(reach)

    def copy(b: Block, mask: Mask) -> None:
        lanes = _numbers(b, mask)
        to, source = b.memories[stmt.buffer.name], b.memories[stmt.source.name]
        at = np.broadcast_to(to.offset([part(b, mask) for part in index], lanes, site, reach), len(lanes))
        holds = np.broadcast_to(True if valid is None else valid(b, mask), b.clock.count)
        readers = np.flatnonzero(holds if mask is None else holds & mask)
        source_at = np.zeros(b.clock.count, np.int64)
        if len(readers):
            where = np.zeros(b.clock.count, np.bool_)
            where[readers] = True
            source_at[readers] = source.offset([part(b, where) for part in source_index], readers, site, reach)
        every = np.repeat(lanes, reach)
        from_at = (source_at[lanes][:, None] + neighbours).ravel()
        has_value = np.repeat(holds[lanes], reach)
        if has_value.any():
            source.read(from_at[has_value], every[has_value], site)
        _copies(b).begin(to, (at[:, None] + neighbours).ravel(), source, from_at, has_value, every, site)

    return copy


def _commit(compiler: StatementCompiler, stmt: AsyncCommit) -> Run:
    site = compiler.sites.add(stmt)

    def commit(b: Block, mask: Mask) -> None:
        copies = _copies(b).of(stmt.barriers)
        if not copies.has_room:
            compiler.sites.fault("a group of copies takes a barrier at which threads wait for an earlier group", site)
        copies.commit(_numbers(b, mask))

    return commit


def _box(compiler: StatementCompiler, stmt: BoxCopy) -> Run:
    site, sides = compiler.sites.add(stmt), stmt.box
    index, source_index = compiler.index(stmt.index, site), compiler.index(stmt.source_index, site)
    inside = np.indices(sides).reshape(len(sides), -1)  # places in the box, by dimension

    def copy(b: Block, mask: Mask) -> None:
        lanes = _numbers(b, mask)
        if len(lanes) != 1:
            compiler.sites.fault(f"{len(lanes)} threads begin a copy that one thread begins for its block", site)
        to, source = b.memories[stmt.buffer.name], b.memories[stmt.source.name]
        lane, count = int(lanes[0]), inside.shape[1]
        into, filled = _within(_corner(index, b, mask, lane), inside, to.shape)
        if not filled.all():
            compiler.sites.fault(f"a box {stmt.box} reaches outside of {stmt.buffer}", site)
        source_at, valid = _within(_corner(source_index, b, mask, lane), inside, source.shape)
        every = np.full(count, lane, np.int64)
        source.read(source_at[valid], every[valid], site)
        copies = _copies(b).of(stmt.barriers)
        copies.begin(to, into, source, source_at, valid, every, site)

    return copy


def _corner(index: list[Code], b: Block, mask: Mask, lane: int) -> Array:
    """The index that one thread goes to."""
    return np.array([np.broadcast_to(part(b, mask), b.clock.count)[lane] for part in index], np.int64)


def _within(corner: Array, inside: Array, shape: tuple[int, ...]) -> tuple[Array, Array]:
    """Where the elements of a box along the last dimensions lie in an array, and which of them do."""
    places = np.repeat(corner[:, None], inside.shape[1], axis=1)
    places[len(shape) - len(inside) :] += inside
    within = np.logical_and.reduce((places >= 0) & (places < np.array(shape, np.int64)[:, None]), axis=0)
    at = np.zeros(inside.shape[1], np.int64)
    if within.any():
        at[within] = np.ravel_multi_index(tuple(places[:, within]), shape)
    return at, within
