"""Stages that copy boxes of an argument, as bulk tensor copies do: one thread asks for a tile, zeros where it ends.

The limits are those of the hardware of NVIDIA from compute capability 9.0 on (CUDA driver API,
`cuTensorMapEncodeTiled`; PTX ISA, "Tensors").
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from tensorlang import dtypes
from tensorlang.errors import BadArgument
from tensorlang.ir.expr import Buffer, Const, Expr, Load, Select, Var, binary, substitute, variables
from tensorlang.ir.index import to_index
from tensorlang.ir.simplify import simplify
from tensorlang.ir.stmt import INDEX
from tensorlang.ir.swizzle import ATOM_ROWS, SPANS
from tensorlang.polyhedral import isl
from tensorlang.polyhedral.affine_text import Namer, conditions_text
from tensorlang.schedule.axis_range import constant
from tensorlang.schedule.derive import derive
from tensorlang.schedule.derive.plans import BoxedTile, BufferPlan, Derived
from tensorlang.schedule.state import ScheduleState
from tensorlang.schedule.tiles.layout import leading
from tensorlang.te.operation import ComputeOp, PlaceholderOp, buffers

MOST_DIMENSIONS, MOST_SIDE, ALIGNMENT = 5, 256, 16
_MOST_BOXES = 16
_DESTINATION = 128
"""Bytes that a box in shared memory begins at a multiple of, if it is not swizzled."""


def copied_load(op: ComputeOp) -> Load | None:
    """What an operation copies, if it does nothing else; or leaves out, with zeros in its place."""
    if len(op.body) != 1:
        return None
    match op.body[0]:
        case Load() as load:
            return load
        case Select(then=Load() as load, orelse=Const(value=0)):
            return load
    return None


def boxed_tile(state: ScheduleState, derived: Derived, stage: str) -> BoxedTile:
    """Return how a stage's tile is copied in boxes.

    Raises BadArgument, with what was found and what would do, for a stage that is no such copy, for a source whose rows
    cannot be copied from, and for a tile that the hardware has no boxes for.
    """
    op = state.compute_op(stage)
    load = copied_load(op)
    if load is None or not isinstance(state.program[state.program.producer[load.buffer.name]], PlaceholderOp):
        why = f"bulk copies take elements of an argument as they are, and {stage} computes {_body(op)}"
        raise BadArgument("", why, suggested=["cache_read an argument, and bulk_copy that stage"])
    (target,) = buffers(op)
    own: dict[str, Expr] = {axis.name: Var(axis.name, INDEX) for axis in op.axes}
    index = [to_index(substitute(i, own)) for i in load.index]
    plan = derived.plans[target.name]
    _check_index(op, index, load.buffer, _sides(plan))
    _check_zeros(state, op, index, load.buffer)
    if plan.buffer.scope != "shared" or plan.is_argument:
        why = f"bulk copies go to shared memory, and {stage} is in {plan.buffer.scope} memory"
        raise BadArgument("", why, suggested=[f"s[{stage!r}].set_scope('shared'); ..."])
    sides = _known_sides(stage, plan)
    corners = {axis.name: base for axis, base in zip(op.axes, plan.base, strict=True)}
    corner = tuple(simplify(substitute(i, corners), {}) for i in index)
    return BoxedTile(target.name, load.buffer, corner, sides, _box(plan.buffer, sides[-len(index) :]))


def copies_boxes(state: ScheduleState, stage: str) -> bool:
    """Whether a stage may be copied in bulk."""
    try:
        boxed_tile(state, derive(state), stage)
    except BadArgument:
        return False
    return True


def _body(op: ComputeOp) -> str:
    return str(op.body[0]) if len(op.body) == 1 else f"{len(op.body)} values"


def _check_index(op: ComputeOp, index: Sequence[Expr], source: Buffer, sides: Sequence[int | None]) -> None:
    """The last dimensions of the stage go along those of the source, perhaps shifted; along others a tile has one."""
    names = [axis.name for axis in op.axes]
    moving = {name for name, side in zip(names, sides, strict=True) if side != 1}
    ok = len(index) <= len(names) and not moving & {*names[: -len(index)]}
    for part, name in zip(reversed(index), reversed(names)):
        shift = simplify(binary("sub", part, Var(name, INDEX)), {}) if name in moving else part
        ok = ok and not variables(shift) & moving
    if not ok:
        at = ", ".join(map(str, index))
        own = f"{op.name}[{', '.join(names)}]"
        why = f"a bulk copy keeps the dimensions in their order, and {own} is {source.name}[{at}]"
        raise BadArgument("", why, suggested=["copy without transposing, and transpose where it is read"])
    if not 1 <= len(index) <= MOST_DIMENSIONS:
        raise BadArgument("", f"a bulk copy has 1 to {MOST_DIMENSIONS} dimensions, and {source} has {len(index)}")
    size = dtypes.info(source.dtype).bytes
    for k, extent in enumerate(source.shape[1:], 1):
        row = constant(extent)
        inner = prod(constant(e) or 0 for e in source.shape[k:]) * size
        if row is not None and inner % ALIGNMENT:
            why = f"rows of {source} are {inner} bytes apart, and a bulk copy takes multiples of {ALIGNMENT}"
            raise BadArgument("", why, suggested=["pad the rows of the argument", "leave bulk_copy out"])


def _check_zeros(state: ScheduleState, op: ComputeOp, index: Sequence[Expr], source: Buffer) -> None:
    """What the stage sets to zero is what lies outside of the source, and nothing else."""
    body = op.body[0]
    if not isinstance(body, Select):
        return
    names = {axis.name: f"a{k}" for k, axis in enumerate(op.axes)}
    namer = Namer(state.sizes)
    box = [
        test
        for axis in op.axes
        for test in (binary("ge", Var(axis.name, INDEX), 0), binary("lt", Var(axis.name, INDEX), to_index(axis.extent)))
    ]
    inside = [
        test
        for part, extent in zip(index, source.shape, strict=True)
        for test in (binary("ge", part, 0), binary("lt", part, to_index(extent)))
    ]
    where, exact = conditions_text([*box, *inside], names, namer)
    own: dict[str, Expr] = {name: Var(name, INDEX) for name in names}
    taken, seen = conditions_text([substitute(body.cond, own)], names, namer)
    space = ", ".join(names.values())
    left_out = f"{namer.prefix()}{{ [{space}] : {where} and not ({taken}) }}"
    if not (exact and seen) or not isl.make_set(left_out).is_empty():
        why = f"a bulk copy has zeros outside of {source.name}, and {op.name} also where not {body.cond}"
        raise BadArgument("", why, suggested=["compute the zeros in a stage that reads the copy"])


def _sides(plan: BufferPlan) -> list[int | None]:
    """The sides of a tile in memory, None where they are not constant."""
    return [constant(extent) for extent in plan.buffer.shape[leading(plan) :]]


def _known_sides(stage: str, plan: BufferPlan) -> tuple[int, ...]:
    """The sides of a tile, in the memory that a box fills."""
    lead, sides = leading(plan), _sides(plan)
    if plan.copies or plan.lanes or any(plan.moduli[lead:]):
        why = f"the tile of {stage} is folded, or not in one piece; a bulk copy fills all of it"
        raise BadArgument(
            "", why, suggested=[f"s[{stage!r}].pipeline(stages) in place of rolling_buffer or fold_storage"]
        )
    if any(side is None for side in sides):
        shape = ", ".join(map(str, plan.buffer.shape[lead:]))
        why = f"a bulk copy has a tile of constant size, and {stage} has [{shape}]"
        raise BadArgument("", why, suggested=["compute_at first, where the tile has a constant size"])
    return tuple(side for side in sides if side is not None)


def _box(buffer: Buffer, sides: tuple[int, ...]) -> tuple[int, ...]:
    """The largest box whose copies fill a tile one after the other; BadArgument where the hardware has none."""
    size = dtypes.info(buffer.dtype).bytes
    whole = f"the tile {'x'.join(map(str, sides))} of {buffer.name}"
    inner = _inner(buffer, sides[-1], whole)
    box, cut = [inner], False
    for side in reversed(sides[:-1]):
        box.insert(0, 1 if cut else next(n for n in range(min(side, MOST_SIDE), 0, -1) if side % n == 0))
        cut = cut or box[0] < side or inner < sides[-1]
    count = prod(sides) // prod(box)
    if count > _MOST_BOXES:
        why = f"{whole} would take {count} bulk copies of {'x'.join(map(str, box))}, and at most {_MOST_BOXES} are made"
        raise BadArgument("", why, suggested=[f"sides of at most {MOST_SIDE}, or multiples of it"])
    apart = ATOM_ROWS * inner * size if buffer.swizzled else _DESTINATION
    if prod(box) * size % apart:
        wanted = f"{ATOM_ROWS} rows" if buffer.swizzled else f"{_DESTINATION} bytes"
        why = f"bulk copies of {whole} have {prod(box) * size} bytes, and must have multiples of {wanted}"
        raise BadArgument("", why, suggested=["larger tiles"])
    return tuple(box)


def _inner(buffer: Buffer, side: int, whole: str) -> int:
    """The elements of a row that one copy has: all, or those of a panel."""
    size = dtypes.info(buffer.dtype).bytes
    row = side * size
    if row % ALIGNMENT:
        raise BadArgument("", f"rows of {whole} are {row} bytes, and a bulk copy takes multiples of {ALIGNMENT}")
    if buffer.swizzled and buffer.panels and row % SPANS[-1] == 0:
        return SPANS[-1] // size
    if buffer.swizzled and row not in SPANS:
        why = f"rows of {whole} are {row} bytes, and a swizzled bulk copy takes {', '.join(map(str, SPANS))}"
        tiles = f"tiles of {SPANS[-1] // size} {buffer.dtype} along the last dimension"
        raise BadArgument("", why, suggested=[tiles, f"s[{buffer.name!r}].swizzle(panels=True); ..."])
    if side > MOST_SIDE:
        why = f"rows of {whole} are {side} elements, and a bulk copy takes at most {MOST_SIDE}"
        raise BadArgument("", why, suggested=["smaller tiles along the last dimension"])
    return side
