"""Bulk tensor copies in CUDA C: tensor maps as parameters, barriers in shared memory, and the threads' count of both.

Each group of copies has a barrier, in turn; its phase ends when the thread that begins copies has arrived, and all
their bytes have. Every thread counts the groups that were closed and those that it has waited for, from which follow
the barrier and the parity.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import prod

from tensorlang import dtypes
from tensorlang.errors import InternalError
from tensorlang.ir.expr import Buffer, Const
from tensorlang.ir.stmt import AsyncCommit, AsyncWait, BoxCopy, DeviceKernel, Stmt, walk
from tensorlang.ir.thread_tags import THREADS
from tensorlang.lowering.device.arrays import memory_barriers
from tensorlang.lowering.device.threads import first_of
from tensorlang.target.c_source import code as c
from tensorlang.target.c_source.expressions import index, offset_code, value
from tensorlang.target.c_source.scope import Counters, Scope
from tensorlang.target.c_source.source import BoxMap
from tensorlang.target.c_source.tensor_copies import TENSOR_MAP


def box_map(kernel: DeviceKernel, stmt: BoxCopy) -> BoxMap:
    """The tensor map of a copy."""
    param = next(k for k, p in enumerate(kernel.params) if p.name == stmt.source.name)
    span = stmt.box[-1] * dtypes.info(stmt.source.dtype).bytes if stmt.buffer.swizzled else 0
    return BoxMap(param, stmt.source.dtype, stmt.box, span)


def box_copies(stmt: Stmt) -> list[BoxCopy]:
    """The bulk copies in a statement."""
    return [s for s in walk(stmt) if isinstance(s, BoxCopy)]


def declare_maps(scope: Scope, kernel: DeviceKernel) -> tuple[Scope, list[str], tuple[BoxMap, ...]]:
    """The scope with the tensor maps of a kernel, their declarations as parameters, and what each maps."""
    found = {box_map(kernel, stmt): stmt for stmt in box_copies(kernel.body)}
    if found and not scope.dialect.bulk_copies:
        raise InternalError(f"{kernel.name} has bulk copies, which {scope.dialect.name} does not know")
    names = {made: scope.fresh(f"{stmt.source.name}_map") for made, stmt in found.items()}
    maps = {(stmt.source.name, stmt.buffer.name): names[box_map(kernel, stmt)] for stmt in box_copies(kernel.body)}
    if found:
        scope.text.call(TENSOR_MAP)
    listed = [f"const __grid_constant__ {TENSOR_MAP} {name}" for name in names.values()]
    return replace(scope, maps=maps), listed, tuple(names)


def open_barriers(scope: Scope, kernel: DeviceKernel) -> Scope:
    """Begin the barriers of bulk copies, and the counts; the scope that has these."""
    barriers = memory_barriers(kernel.body)
    if not barriers:
        return scope
    first = _first(scope)
    scope.line(f"if ({first}) {{" if first else "{")
    inside = scope.deeper
    for name in dict.fromkeys(scope.maps.values()):
        inside.line(f"{scope.text.call('tl_tma_prefetch')}(&{name});")
    for buffer in barriers.values():
        k, place = scope.fresh("k", kept=False), scope.storage(buffer).name
        begin = f"{scope.text.call('tl_mbarrier_init')}({place} + {k}, 1);"
        inside.line(f"for (int {k} = 0; {k} < {_count(buffer)}; ++{k}) {begin}")
    inside.line(f"{scope.text.call('tl_mbarrier_fence_init')}();")
    scope.line("}")
    scope.line(scope.dialect.barrier)
    counters = {}
    for name, buffer in barriers.items():
        begun, seen = scope.fresh(f"{name}_begun"), scope.fresh(f"{name}_seen")
        scope.line(f"unsigned {begun} = 0, {seen} = 0;")
        counters[name] = Counters(scope.storage(buffer).name, _count(buffer), begun, seen)
    return replace(scope, counters=counters)


def emit_box(scope: Scope, stmt: BoxCopy) -> None:
    """Append the lines that begin a bulk copy."""
    counters = scope.counters[stmt.barriers.name]
    amount = prod(stmt.box) * dtypes.info(stmt.buffer.dtype).bytes
    scope.text.wide_accesses = True
    # A box begins at a multiple of eight rows: there nothing is turned.
    at = offset_code(scope, stmt.buffer if stmt.buffer.panels else replace(stmt.buffer, swizzled=False), stmt.index)
    name = scope.storage(stmt.buffer).name
    to = name if at.constant == 0 else f"{name} + {at.at(c.SUM + 1)}"
    places = [index(scope, part) for part in reversed(stmt.source_index)]
    coordinates = ", ".join(p.text if p.narrow else f"(int){p.at(c.PREFIX)}" for p in places)
    barrier = f"{counters.place} + {counters.begun} % {counters.count}"
    image = scope.maps[stmt.source.name, stmt.buffer.name]
    load = scope.text.call(f"tl_tma_load_{len(stmt.box)}d")
    scope.line(f"{scope.text.call('tl_mbarrier_expect_tx')}({barrier}, {amount});")
    scope.line(f"{load}({to}, &{image}, {coordinates}, {barrier});")


def emit_group(scope: Scope, stmt: AsyncCommit | AsyncWait) -> None:
    """Append the lines that close a group of bulk copies, or wait for groups."""
    assert stmt.barriers is not None
    counters = scope.counters[stmt.barriers.name]
    begun, seen, count = counters.begun, counters.seen, counters.count
    if isinstance(stmt, AsyncCommit):
        first = _first(scope)
        arrive = f"{scope.text.call('tl_mbarrier_arrive')}({counters.place} + {begun} % {count});"
        scope.line(f"if ({first}) {arrive}" if first else arrive)
        scope.line(f"++{begun};")
        return
    pending = f"{seen} + {stmt.pending}" if stmt.pending else seen
    wait = f"{scope.text.call('tl_mbarrier_wait')}({counters.place} + {seen} % {count}, {seen} / {count} & 1);"
    scope.pragma("unroll 1")
    scope.line(f"for (; {pending} < {begun}; ++{seen}) {wait}")


def alignments(boxes: Sequence[BoxCopy]) -> dict[str, int]:
    """Bytes that the arrays which boxes fill begin at a multiple of, unless they are swizzled."""
    return {stmt.buffer.name: 128 for stmt in boxes}


def _first(scope: Scope) -> str:
    """The test whether a thread is the first of its block; empty where a block has one."""
    tags = frozenset(tag for tag, extent in zip(THREADS, scope.block, strict=True) if extent > 1)
    return value(scope, first_of(tags)).text if tags else ""


def _count(barriers: Buffer) -> int:
    (extent,) = barriers.shape
    assert isinstance(extent, Const)
    return int(extent.value)
