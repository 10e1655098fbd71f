"""The passes from a device nest to the kernel that every thread of a grid runs.

`lowering.pipeline` has them in a row. Each takes a `Nest` and returns one; a check returns what it was given.
"""

from __future__ import annotations

from dataclasses import replace

from tensorlang.ir.expr import Var, cast, walk
from tensorlang.ir.loops import BLOCKS_PER_CORE
from tensorlang.ir.simplify import simplify_stmt
from tensorlang.ir.stmt import INDEX, DeviceKernel, For, Kernel, stmt_exprs
from tensorlang.ir.stmt import walk as statements
from tensorlang.ir.verify import verify
from tensorlang.ir.verify_device import verify_device
from tensorlang.lowering.device import arrays, invariants, lanes, private, regions, shuffles, uniform, warps
from tensorlang.lowering.device.blocks import blocks
from tensorlang.lowering.device.indices import index_dtype
from tensorlang.lowering.device.nest import Form, Nest


def place_arrays(nest: Nest) -> Nest:
    """Give every scratch array the scope `shared` or `local`; see `arrays.place_arrays`."""
    return replace(nest, body=arrays.place_arrays(nest.body, nest.name))


def count_threads(nest: Nest) -> Nest:
    """Note how many threads a block has along each axis, and how many blocks a multiprocessor should hold."""
    loops = [s for s in statements(nest.body) if isinstance(s, For)]
    wishes = [int(value) for loop in loops for word, value in loop.pragmas if word == BLOCKS_PER_CORE]
    return replace(nest, threads=regions.block_extents(nest.body, nest.host), blocks_per_core=max(wishes, default=0))


def check_groups(nest: Nest) -> Nest:
    """Refuse threads that do not fit the machine code which several of them run together."""
    warps.check_groups(nest.body, nest.threads)
    return nest


def to_threads(nest: Nest) -> Nest:
    """Take the loops on blocks off, and make of the regions inside what each thread runs."""
    inner = regions.Regions(nest.body, nest.threads, nest.reducers)
    taken = blocks(nest.body, nest.host, nest.host, inner.visit)
    return replace(nest, body=taken.body, grid=taken.grid, form=Form.THREADS)


def own_arrays(nest: Nest) -> Nest:
    """Leave each thread its copy of arrays that have one for each; move those of the block out."""
    placed = private.own_arrays(nest.body, nest.ranges, nest.name)
    return replace(nest, body=placed.body, shared=placed.shared, form=Form.OWN)


def simplify(nest: Nest) -> Nest:
    """Simplify expressions by the numbers that threads and blocks have, and drop tests that these decide."""
    body = simplify_stmt(nest.body, nest.ranges)
    return replace(nest, body=body, form=max(nest.form, Form.UNIFORM))


def drop_unused(nest: Nest) -> Nest:
    """Drop arrays that nothing uses."""
    return replace(nest, body=arrays.without_unused(nest.body))


def keep_once(nest: Nest) -> Nest:
    """Keep one element of those of a thread that are equal."""
    return replace(nest, body=uniform.kept_once(nest.body))


def legal_kinds(nest: Nest) -> Nest:
    """Cut vectorized loops into vectors that devices have."""
    return replace(nest, body=lanes.legal_kinds(nest.body), form=Form.LANES)


def shuffle(nest: Nest) -> Nest:
    """Spread arrays of scope `warp` over the registers of lanes, which read each other's by shuffles."""
    return replace(nest, body=shuffles.shuffled(nest.body, nest.threads, nest.ranges))


def call_once(nest: Nest) -> Nest:
    """Call functions in front of unrolled loops in which they have one value."""
    return replace(nest, body=invariants.called_once(nest.body))


def check_own(nest: Nest) -> Nest:
    """Refuse a thread that uses an element which another lane holds."""
    warps.check_own(nest.body, nest.threads, nest.ranges)
    return nest


def narrow_indices(nest: Nest) -> Nest:
    """Have indices of 32 bits where all offsets fit."""
    return replace(nest, indices=index_dtype(declared(nest)))


def declared(nest: Nest) -> DeviceKernel:
    """The kernel of a nest, with the arrays and scalars that its body uses; a draft of it before the last pass."""
    names = arrays.used(nest.body)
    params = tuple(b for name, b in nest.arrays.items() if name in names)
    counting = arrays.memory_barriers(nest.body)
    shared = (*(b for b in nest.shared if b.name in names), *counting.values())
    wanted: set[str] = set()
    for expr in (*stmt_exprs(nest.body), *nest.grid, *(extent for b in params for extent in b.shape)):
        wanted |= {node.name for node in walk(expr) if isinstance(node, Var)}
    scalars = tuple(Var(name, INDEX) for name in nest.host if name in wanted)
    x, y, z = (cast(extent, INDEX) for extent in nest.grid)
    return DeviceKernel(
        nest.name, params, scalars, (x, y, z), nest.block, shared, nest.body, nest.indices, nest.blocks_per_core
    )


def verify_nest(nest: Nest) -> None:
    """Raise InternalError, with the place printed, unless a nest is well formed, as far as its form goes."""
    if nest.form is Form.REGIONS:
        verify(_in_series(nest))
        return
    done = nest.form
    own, together, lanes = done >= Form.OWN, done >= Form.UNIFORM, done >= Form.LANES
    verify_device(declared(nest), own=own, together=together, lanes=lanes)


def _in_series(nest: Nest) -> Kernel:
    """A nest in region form as a kernel of its own, over variables of the host as sizes."""
    sizes = tuple(Var(name, INDEX) for name in nest.host)
    return Kernel(nest.name, tuple(nest.arrays.values()), sizes, tuple(nest.arrays), nest.body)
