"""One device nest as the kernel that every thread of a grid runs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from tensorlang.ir.expr import Buffer, Const, Var, cast, walk
from tensorlang.ir.loops import BLOCKS_PER_CORE
from tensorlang.ir.simplify import simplify_stmt
from tensorlang.ir.simplify.forms import Range
from tensorlang.ir.stmt import INDEX, Combiner, DeviceKernel, For, Stmt, stmt_exprs
from tensorlang.ir.stmt import walk as statements
from tensorlang.ir.thread_tags import BLOCKS, THREADS
from tensorlang.ir.verify_device import verify_device
from tensorlang.lowering.device.arrays import memory_barriers, place_arrays, used, without_unused
from tensorlang.lowering.device.blocks import Blocks, blocks
from tensorlang.lowering.device.indices import index_dtype
from tensorlang.lowering.device.lanes import legal_kinds
from tensorlang.lowering.device.private import Placed, own_arrays
from tensorlang.lowering.device.ranges import Ranges
from tensorlang.lowering.device.regions import Regions, block_extents
from tensorlang.lowering.device.shuffles import shuffled
from tensorlang.lowering.device.uniform import kept_once
from tensorlang.lowering.device.warps import check_groups, check_own


@dataclass(frozen=True, slots=True)
class Nest:
    """A device nest in region form: the arrays of the host by name, and the ranges of its variables."""

    name: str
    body: Stmt
    arrays: Mapping[str, Buffer]
    host: Ranges


def device_kernel(nest: Nest, reducers: Mapping[str, Combiner]) -> DeviceKernel:
    """Return the kernel of a device nest (see `to_device` for what is refused)."""
    body = place_arrays(nest.body, nest.name)
    extents = block_extents(body, nest.host)
    check_groups(body, extents)
    regions = Regions(body, extents, reducers)
    taken = blocks(body, nest.host, nest.host, regions.visit)
    block = (extents.get(THREADS[0], 1), extents.get(THREADS[1], 1), extents.get(THREADS[2], 1))
    ranges = {**nest.host, **_thread_ranges(taken, block)}
    placed = own_arrays(taken.body, ranges, nest.name)
    own = kept_once(without_unused(simplify_stmt(placed.body, ranges)))
    code = shuffled(simplify_stmt(legal_kinds(own), ranges), extents, ranges)
    check_own(code, extents, ranges)
    kernel = _declared(nest, taken, placed, code, block)
    verify_device(kernel)
    return kernel


def _thread_ranges(taken: Blocks, block: tuple[int, int, int]) -> dict[str, Range]:
    ranges: dict[str, Range] = {}
    for tag, blocks_along in zip(BLOCKS, taken.grid, strict=True):
        ranges[tag] = (0, max(0, int(blocks_along.value) - 1) if isinstance(blocks_along, Const) else None)
    for tag, threads in zip(THREADS, block, strict=True):
        ranges[tag] = (0, threads - 1)
    return ranges


def _declared(nest: Nest, taken: Blocks, placed: Placed, code: Stmt, block: tuple[int, int, int]) -> DeviceKernel:
    """The kernel with the arrays and scalars that its code uses."""
    names = used(code)
    params = tuple(b for name, b in nest.arrays.items() if name in names)
    shared = (*(b for b in placed.shared if b.name in names), *memory_barriers(code).values())
    wanted: set[str] = set()
    for expr in (*stmt_exprs(code), *taken.grid, *(extent for b in params for extent in b.shape)):
        wanted |= {node.name for node in walk(expr) if isinstance(node, Var)}
    scalars = tuple(Var(name, INDEX) for name in nest.host if name in wanted)
    x, y, z = (cast(extent, INDEX) for extent in taken.grid)
    asked = [
        int(value)
        for s in statements(nest.body)
        if isinstance(s, For)
        for word, value in s.pragmas
        if word == BLOCKS_PER_CORE
    ]
    wish = max(asked, default=0)
    made = DeviceKernel(nest.name, params, scalars, (x, y, z), block, shared, code, blocks_per_core=wish)
    return replace(made, indices=index_dtype(made))
