"""The loops bound to `blockIdx` around the code of a block: what a grid is made of."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import replace

from tensorlang.dataclass import dataclass
from tensorlang.errors import TargetError
from tensorlang.ir.expr import Const, Expr, Var, binary, same, variables
from tensorlang.ir.extremes import extreme
from tensorlang.ir.loops import reads_memory, with_value
from tensorlang.ir.simplify import simplify
from tensorlang.ir.stmt import INDEX, Allocate, Barrier, For, If, Let, LoopKind, Seq, Stmt
from tensorlang.ir.thread_tags import BLOCKS
from tensorlang.lowering.device.ranges import Ranges, inside, range_of
from tensorlang.lowering.device.threads import ONE, ZERO, bound_loops, is_block_loop
from tensorlang.lowering.passes.full_tile import operands

_LIMITS = {"blockIdx.x": 2**31 - 1, "blockIdx.y": 65535, "blockIdx.z": 65535}
"""Blocks along an axis that every device can launch (CUDA C++ Programming Guide, technical specifications)."""

Inner = Callable[[Stmt, Ranges], Stmt]


@dataclass(frozen=True, slots=True)
class Blocks:
    """The code of a block, and how many there are along x, y, z."""

    grid: tuple[Expr, Expr, Expr]
    body: Stmt


@dataclass(frozen=True, slots=True)
class _Around:
    """What is around a place between block loops: host variables, ends of block loops, and ranges of all."""

    host: Collection[str]
    ends: Mapping[str, tuple[Expr, Expr]]
    ranges: Ranges


def blocks(stmt: Stmt, host: Collection[str], ranges: Ranges, inner: Inner) -> Blocks:
    """Take the block loops off a device nest; `inner` makes what each block runs of what is inside of them.

    `host` names the variables that extents may be made of, `ranges` gives their values. An axis that may have more
    blocks than a device launches has fewer, each of which runs several in turn. Raises TargetError for a block loop
    inside a serial loop, a region of threads, or beside other statements.
    """
    grid: dict[str, Expr] = {}
    body = _visit(stmt, _Around(host, {}, ranges), grid, inner)
    x, y, z = (grid.get(tag, ONE) for tag in BLOCKS)
    return Blocks((x, y, z), body)


def _visit(stmt: Stmt, around: _Around, grid: dict[str, Expr], inner: Inner) -> Stmt:
    if is_block_loop(stmt):
        assert isinstance(stmt, For)
        return _block_loop(stmt, around, grid, inner)
    loop = next((s for s in bound_loops(stmt) if is_block_loop(s)), None)
    if loop is None:
        return inner(stmt, around.ranges)
    match stmt:
        case If(orelse=None):
            return replace(stmt, then=_visit(stmt.then, around, grid, inner))
        case If():
            return _either(stmt, around, grid, inner)
        case Let():
            return Let(stmt.var, stmt.value, _visit(stmt.body, around, grid, inner))
        case Allocate():
            return Allocate(stmt.buffer, _visit(stmt.body, around, grid, inner), stmt.threads)
    raise TargetError(
        f"the loop {loop.axis or loop.var.name} on {loop.thread} stands {_where(stmt)}; blocks run independently: "
        "reorder so that the loops on blocks are the outermost ones, each around the next"
    )


def _where(stmt: Stmt) -> str:
    match stmt:
        case For():
            kind = f"on {stmt.thread}" if stmt.kind is LoopKind.BOUND else f"of kind {stmt.kind.value}"
            return f"inside the loop {stmt.axis or stmt.var.name} {kind}"
        case Seq():
            return "beside other statements of the same block"
    return "inside another statement"


def _either(stmt: If, around: _Around, grid: dict[str, Expr], inner: Inner) -> Stmt:
    """Two branches of which a block runs one: the grid has as many blocks as either asks for, the others do nothing."""
    assert stmt.orelse is not None
    grids = [dict(grid), dict(grid)]
    bodies = [_visit(body, around, own, inner) for body, own in zip((stmt.then, stmt.orelse), grids, strict=True)]
    for tag in BLOCKS:
        if tag in grid or not any(tag in own for own in grids):
            continue
        counts = [own.get(tag, ONE) for own in grids]
        grid[tag] = simplify(binary("max", *counts), around.ranges)
        for k, count in enumerate(counts):
            if not same(grid[tag], count):
                bodies[k] = If(Var(tag, INDEX) < count, bodies[k])
    return replace(stmt, then=bodies[0], orelse=bodies[1])


def _block_loop(loop: For, around: _Around, grid: dict[str, Expr], inner: Inner) -> Stmt:
    tag = loop.thread
    if tag in grid:
        raise TargetError(
            f"the loop {loop.axis or loop.var.name} is bound to {tag}, and so is a loop around it; bind it to another "
            f"axis of {', '.join(BLOCKS)}, or fuse the two"
        )
    extent, exact = _extent(loop, around)
    grid[tag] = extent
    ends = {n: (extreme(low, around.ends, False), extreme(high, around.ends, True)) for n, (low, high) in _own(loop)}
    body = _visit(loop.body, _Around(around.host, {**around.ends, **ends}, inside(loop, around.ranges)), grid, inner)
    if not exact:
        body = If(loop.var < loop.upper, body)
    return _strips(tag, loop, body, extent, grid, around.ranges)


def _own(loop: For) -> list[tuple[str, tuple[Expr, Expr]]]:
    return [(loop.var.name, (loop.lower, loop.upper - 1))]


def _strips(tag: str, loop: For, body: Stmt, extent: Expr, grid: dict[str, Expr], ranges: Ranges) -> Stmt:
    """The code of one block; it runs every `limit`-th iteration where there may be more of them than blocks."""
    limit, most = _LIMITS[tag], range_of(extent, ranges)[1]
    block = Var(tag, INDEX)
    if (most is None and tag == BLOCKS[0]) or (most is not None and most <= limit):
        return with_value(body, loop.var, simplify(binary("add", block, loop.lower)))
    grid[tag] = simplify(binary("min", extent, Const(limit, INDEX)))
    strip = Var(f"{loop.var.name}.strip", INDEX)
    count = binary("floordiv", binary("add", binary("sub", extent, block), limit - 1), Const(limit, INDEX))
    value = binary("add", binary("add", block, loop.lower), binary("mul", strip, Const(limit, INDEX)))
    # What the threads of a block share is written again in the next strip.
    each = Seq((with_value(body, loop.var, value), Barrier()))
    return For(strip, ZERO, count, LoopKind.SERIAL, each, loop.axis)


def _extent(loop: For, around: _Around) -> tuple[Expr, bool]:
    """The number of blocks along an axis in terms of host variables, and whether all of them have an iteration."""

    def known(expr: Expr) -> bool:
        return variables(expr) <= set(around.host) and not reads_memory(expr)

    exact = simplify(loop.upper - loop.lower, around.ranges)
    if known(exact):
        return _positive(exact, around.ranges), True
    found: list[Expr] = []
    for upper in operands("min", loop.upper):
        for lower in operands("max", loop.lower):
            span = simplify(upper - lower, around.ranges)
            span = span if known(span) else extreme(span, around.ends, True)
            if known(span) and not any(same(span, f) for f in found):
                found.append(span)
    if not found:
        raise TargetError(
            f"the loop {loop.axis or loop.var.name} on {loop.thread} runs from {loop.lower} to {loop.upper}; the "
            "number of blocks must be known before they run: bind a loop whose bounds are made of sizes only"
        )
    total = found[0]
    for span in found[1:]:
        total = binary("min", total, span)
    return _positive(simplify(total, around.ranges), around.ranges), False


def _positive(extent: Expr, ranges: Ranges) -> Expr:
    return simplify(binary("max", extent, ZERO), ranges)
