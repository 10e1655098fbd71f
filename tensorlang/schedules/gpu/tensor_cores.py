"""Products on tensor cores: tiles of blocks and of warps, fragments in registers, operands copied ahead.

The tile of a block lies in shared memory, swizzled, and is filled by asynchronous copies of 16 bytes; ldmatrix brings
fragments of it to the registers of a warp, where mma.sync multiplies them (sm_80 and later). On Hopper (sm_90a) groups
of four warps multiply straight from shared memory, by wgmma, and one thread asks for tiles of factors that are
arguments (bulk tensor copies). What follows the product is computed in the registers that hold the sums. Where tiles
are too few for the GPU, the terms are summed in parts, by blocks of their own, which a second kernel adds.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tensorlang import dtypes, te
from tensorlang.dataclass import dataclass
from tensorlang.ir.affine import affine
from tensorlang.ir.expr import Binary, Cast, Expr, Load, variables
from tensorlang.schedule import Decision, Schedule
from tensorlang.schedule.boxes import copies_boxes
from tensorlang.schedule.stage import Stage
from tensorlang.schedules.anchor import Anchor, axes_of, compute_op
from tensorlang.schedules.gpu.block_tile import Threads, bind_together, copied_together
from tensorlang.schedules.gpu.blocks import WARP
from tensorlang.schedules.gpu.parts import schedule_in_parts
from tensorlang.schedules.gpu.warp_tile import (
    COLUMNS,
    DEPTH_BYTES,
    GROUP,
    GROUP_BYTES,
    ROWS,
    Extents,
    warp_tile,
)
from tensorlang.schedules.gpu.warp_tile import WarpTile as WarpTile
from tensorlang.schedules.product import Product, product_of
from tensorlang.target.backend import resolved
from tensorlang.target.kinds import Capabilities
from tensorlang.target.spec import Target
from tensorlang.te.axis import Axis
from tensorlang.te.operation import PRECISION, ComputeOp, Reduce

ELEMENTS = {
    ("float16", "float32"): "f16",
    ("bfloat16", "float32"): "bf16",
    ("int8", "int32"): "s8",
    ("uint8", "int32"): "u8",
    ("float8_e4m3fn", "float32"): "e4m3",
    ("float8_e5m2", "float32"): "e5m2",
}
"""The dtypes of factors and sums that have instructions -> the elements by their names there."""
TF32 = "tf32"
"""The elements of products of float32 whose program allows that precision."""
ACCESS = 16
"""Bytes of one copy to shared memory."""


def fragment_tile(s: Schedule, anchor: Anchor, by_warps: bool = False) -> WarpTile | None:
    """The tile of a product on tensor cores, `by_warps` alone or in warp groups too; None where they do not take it."""
    op = compute_op(s, anchor.main)
    product = product_of(op)
    element = element_of(op, product, anchor.target)
    if element is None:
        return None
    length = (product.depth or 0) * product.itemsize
    in_groups = not by_warps and element != TF32 and resolved(anchor.target).can.warp_groups
    extents = Extents(product.m, product.n, product.batches, length, product.itemsize)
    return warp_tile(extents, anchor.target, in_groups and length % GROUP_BYTES == 0, in_parts=not product.batch)


def multiplies(target: Target, a: str, b: str, sums: str) -> bool:
    """Whether tensor cores of a target multiply elements of dtypes with sums in another: those of `ELEMENTS`."""
    return a == b and (a, sums) in ELEMENTS and _multiplies(resolved(target).can, a)


def _multiplies(can: Capabilities, dtype: str) -> bool:
    """Whether tensor cores multiply elements of a dtype."""
    return can.float8_products if dtypes.info(dtype).bits == 8 and dtypes.info(dtype).is_float else can.tensor_cores


def _sums_products(op: ComputeOp) -> bool:
    """Whether a stage adds up products of elements, each made as wide as the sum before if it is narrower."""
    match op.reduction:
        case Reduce(sources=(Binary(op="mul", a=a, b=b),), where=None, init=()) as sums:
            factors = [x.value if isinstance(x, Cast) else x for x in (a, b)]
            return sums.reducer.text() == "sum" and all(isinstance(x, Load) for x in factors)
    return False


def element_of(op: ComputeOp, product: Product, target: Target) -> str | None:
    """What instructions call the elements of factors; None for products that tensor cores of a target do not compute.

    They compute products of one dtype of `ELEMENTS` on sm_80 and later, and of float32 where tf32 is allowed: A given
    as [m, k] and B as [n, k], or either one the other way round if its elements have 16 bits or are tf32. The number of
    terms has to be known and to fill instructions, and so do rows of A and columns of B of 16 bits that lie side by
    side. All other rows and columns are filled up with zeros, in shared memory.
    """
    a, b, size, depth = product.a, product.b, product.itemsize, product.depth or 0
    same = a.buffer.dtype == b.buffer.dtype and _multiplies(resolved(target).can, a.buffer.dtype)
    if not same or not _sums_products(op) or not depth or depth * size % DEPTH_BYTES:
        return None
    element = TF32 if op.attrs.get(PRECISION) == TF32 else ELEMENTS.get((a.buffer.dtype, op.dtype))
    rows, columns = [product.i, product.k], [product.j, product.k]
    rows = rows[::-1] if product.a_transposed else rows
    columns = columns if product.b_transposed else columns[::-1]
    across = [n for n, lies in ((product.m, product.a_transposed), (product.n, not product.b_transposed)) if lies]
    cut = element != TF32 and any(n is None or n * size % ACCESS for n in across)
    packed = size == 1 and len(across) > 0
    return element if _is_matrix(a.index, rows) and _is_matrix(b.index, columns) and not packed and not cut else None


def _is_matrix(index: Sequence[Expr], axes: Sequence[str]) -> bool:
    """Whether a matrix is read at two axes, from some place on; and one of a batch at anything else."""
    *batch, row, column = index
    for place, name in zip((row, column), axes, strict=True):
        form = affine(place.value if isinstance(place, Cast) else place)
        if form is None or form.get(name) != 1 or set(axes) & form.keys() != {name}:
            return False
    return not any(set(axes) & set(variables(i)) for i in batch)


def schedule_fragments(
    s: Schedule, anchor: Anchor, tile: WarpTile, axes: Sequence[str] = (), in_place: bool = False
) -> None:
    """Schedule a product that `element_of` knows, and what follows it, by a tile, whose numbers may be open.

    `axes`: the loops of the output over batches, rows and columns, where those are not its own axes. `in_place`: the
    factors are stages that nothing else reads, and are computed in shared memory; else they are copied there.
    """
    main = compute_op(s, anchor.main)
    product = product_of(main)
    if tile.parts > 1 and product.depth:
        part, size = replace(tile, parts=1), product.depth // tile.parts
        schedule_in_parts(s, anchor, size, lambda whole: schedule_fragments(s, whole, part, (), in_place))
        return
    element, chunk = element_of(main, product, anchor.target), ACCESS // product.itemsize
    across = (product.a_transposed and element != TF32, not product.b_transposed and element != TF32)
    sums = _in_registers(s, anchor)
    copies = _in_shared(s, None if in_place else sums, product, tile, element == TF32)
    for axis, extent in zip(s[sums].op.axis[-2:], tile.block, strict=True):
        s[sums].pad(axis, extent)
    held = [str(s.name_of(s.cache_read(copy, "warp", [sums]))) for copy in copies] if tile.lanes == WARP else []
    threads = _bind(s, anchor.output, axes or axes_of(s, anchor.output), tile)
    s[sums].compute_at(s[anchor.output], threads.loop)
    loops = by_fragments(s[sums], tile.depth, 2 * chunk) if held else in_steps(s[sums], tile.depth)
    for fragment, word in zip(held, ("at" if across[0] else "a", "b" if across[1] else "bt")):
        s[fragment].compute_at(s[sums], loops.inner)
        load_fragments(s[fragment], f"cuda.ldmatrix.{word}.{element}")
    for (copy, is_turned), lies_across in zip(copies.items(), across, strict=True):
        s[copy].compute_at(s[sums], loops.outer)
        order = s[copy].op.axis[-2:]
        copied_together(s[copy], order[::-1] if is_turned else order, threads, 1 if is_turned else chunk)
        s[copy].swizzle(panels=lies_across and not held)
        if isinstance(tile.stages, Decision) or tile.stages > 1:
            s[copy].pipeline(tile.stages, tile.ahead)
            if not held and tile.stages > 1 and copies_boxes(s.state, copy):
                s[copy].bulk_copy()
    shape = f"mma.m16n8k{2 * chunk}" if held else f"wgmma.m64n{tile.warp[1]}k{tile.depth}"
    turns = ".at" * across[0] + ".bt" * (not across[1])
    s[sums].tensorize(loops.tile, te.intrin(f"cuda.{shape}.{element}{turns}"))


def _in_registers(s: Schedule, anchor: Anchor) -> str:
    """The stage that holds the sums, in the registers of a warp."""
    if anchor.main == anchor.output:
        return str(s.name_of(s.cache_write(anchor.main, "warp")))
    s[anchor.main].set_scope("warp")
    return anchor.main


def _in_shared(s: Schedule, sums: str | None, product: Product, tile: WarpTile, by_rows: bool) -> dict[str, bool]:
    """Copies of both factors in shared memory, with zeros up to whole tiles -> whether they are turned around.

    `sums`: who reads the copies; None where the factors are stages that are computed there. `by_rows`: whether both are
    wanted with their terms side by side.
    """
    found: dict[str, bool] = {}
    turned = (product.a_transposed, not product.b_transposed)
    for read, lies_across, extent in zip((product.a, product.b), turned, tile.block, strict=True):
        if sums is None:
            copy = s.program.producer[read.buffer.name]
            s[copy].set_scope("shared")
        else:
            copy = str(s.name_of(s.cache_read(read.buffer.name, "shared", [sums])))
        s[copy].pad(s[copy].op.axis[-1 if lies_across else -2], extent)
        found[copy] = lies_across and by_rows
        if found[copy]:
            s[copy].transform_layout(lambda *index: [*index[:-2], index[-1], index[-2]])
    return found


def _bind(s: Schedule, output: str, axes: Sequence[str], tile: WarpTile) -> Threads:
    """Blocks, warps or groups along z and y, and lanes as a fragment of sums lies in them; its loop is that of y."""
    *batch, i, j = axes
    stage = s[output]
    warp_i, warp_j, row, column = stage.tile(i, j, *tile.warp)
    block_i, block_j, warp_i, warp_j = stage.tile(warp_i, warp_j, *tile.warps)
    fragment_i, row = stage.split(row, ROWS)
    half, row = stage.split(row, ROWS // 2)
    fragment_j, column = stage.split(column, COLUMNS)
    column, pair = stage.split(column, 2)
    lanes, held = ([fragment_i, row, column], []) if tile.lanes == GROUP else ([row, column], [fragment_i])
    held += [fragment_j, half]
    stage.reorder(*batch, block_i, block_j, warp_i, warp_j, *lanes, *held, pair)
    for axis, tag in ((warp_i, "threadIdx.z"), (warp_j, "threadIdx.y"), (stage.fuse(*lanes), "threadIdx.x")):
        stage.bind(axis, tag)
    bind_together(stage, block_i, block_j, tile.together)
    if batch:
        stage.bind(stage.fuse(*batch) if len(batch) > 1 else batch[0], "blockIdx.z")
    for axis in held:
        stage.unroll(axis)
    stage.vectorize(pair)
    return Threads((tile.lanes, tile.warps[1], tile.warps[0]), warp_j, {})


@dataclass(frozen=True, slots=True)
class Loops:
    """The loops of sums over tiles in shared memory, over fragments of those, and the outermost of an instruction."""

    outer: Axis
    inner: Axis
    tile: Axis


def by_fragments(stage: Stage, terms: int, depth: int) -> Loops:
    """Cut sums into steps of so many terms, and these into products of fragments of `depth` terms."""
    *batch, i, j = stage.op.axis
    outer, inner = stage.split(stage.op.reduce_axis[0], terms)
    inner, k = stage.split(inner, depth)
    fragment_i, i = stage.split(i, ROWS)
    fragment_j, j = stage.split(j, COLUMNS)
    stage.reorder(*batch, outer, inner, fragment_i, fragment_j, i, j, k)
    stage.unroll(inner)
    return Loops(outer, inner, i)


def in_steps(stage: Stage, terms: int) -> Loops:
    """Cut the sums of a warp group into steps of so many terms."""
    *batch, i, j = stage.op.axis
    step, k = stage.split(stage.op.reduce_axis[0], terms)
    stage.reorder(*batch, step, i, j, k)
    return Loops(step, step, i)


def load_fragments(stage: Stage, instruction: str) -> None:
    """Fragments of a factor from shared memory."""
    rows, columns = te.intrin(instruction).op.shape
    *_, i, j = stage.op.axis
    _, _, i, _ = stage.tile(i, j, int(rows), int(columns))
    stage.tensorize(i, te.intrin(instruction))
