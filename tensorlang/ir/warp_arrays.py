"""Arrays of scope `warp`: which lane holds an element, in which of its registers, and who runs code of several lanes.

Such an array keeps its logical shape in loop IR. Its fragment is that of the machine code which touches it.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import prod

from tensorlang.dataclass import dataclass
from tensorlang.errors import TargetError
from tensorlang.ir.expr import Buffer, Const, Expr, Var, as_expr
from tensorlang.ir.flat import divides, flat_offset
from tensorlang.ir.fragment import Fragment
from tensorlang.ir.simplify import simplify
from tensorlang.ir.simplify.forms import Range
from tensorlang.ir.stmt import INDEX, CallMachine, MachineCode, Stmt, walk
from tensorlang.ir.thread_tags import THREADS

WARP = "warp"


@dataclass(frozen=True, slots=True)
class Held:
    """Where an element is: the lane, the number of the register in the array of that lane, the element in it."""

    lane: Expr
    register: Expr
    element: Expr


def fragments(stmt: Stmt) -> dict[str, Fragment]:
    """The arrays of a statement that lanes hold in registers, by name, as machine code says."""
    found: dict[str, Fragment] = {}
    for s in walk(stmt):
        if isinstance(s, CallMachine):
            for param, view in zip(s.code.params, s.views, strict=True):
                if param.fragment is not None and view.buffer.scope == WARP:
                    found[view.buffer.name] = param.fragment
    return found


def held(buffer: Buffer, fragment: Fragment, index: tuple[Expr, ...], ranges: Mapping[str, Range]) -> Held:
    """Where an element of an array is; the dimensions in front of the last two count whole arrays of fragments."""
    extents = _extents(buffer)
    *lead, row, column = (as_expr(i) for i in index)
    *more, rows, columns = extents
    number = fragment.number(row, column, (rows, columns))
    whole, size = as_expr(Const(0, INDEX)), (rows // fragment.rows) * (columns // fragment.columns)
    for part, extent in zip(lead, more, strict=True):
        whole = whole * extent + part
    lane, register, element = fragment.holder(row, column)
    place = (whole * size + number) * fragment.registers + register
    simple = simplify(lane, ranges)
    if divides(simple):
        flat = flat_offset((simple,), (1,), ranges)  # digits of one number may be all of it
        simple = simple if divides(flat) else flat
    return Held(simple, *(simplify(e, ranges) for e in (place, element)))


def registers(buffer: Buffer, fragment: Fragment) -> int:
    """How many registers of a thread an array takes."""
    return prod(_extents(buffer)) // (fragment.rows * fragment.columns) * fragment.registers


def lane_axes(block: Mapping[str, int], lanes: int) -> tuple[str, ...] | None:
    """The axes along which neighbouring threads are lanes; None if no group of them has that many."""
    count, taken = 1, list[str]()
    for tag in THREADS:
        count *= block.get(tag, 1)
        taken.append(tag)
        if count >= lanes:
            break
    return tuple(taken) if count == lanes else None


def lane_of(block: Mapping[str, int], code: MachineCode) -> Expr:
    """The number of a thread among those that run machine code together; TargetError where there are not as many."""
    axes = lane_axes(block, code.lanes)
    if axes is None:
        extents = ", ".join(f"{block.get(tag, 1)} along {tag}" for tag in THREADS)
        raise TargetError(
            f"{code.name} is run by {code.lanes} neighbouring threads together, and the block has {extents}; bind a "
            f"loop of {code.lanes} iterations to threadIdx.x, or loops whose extents multiply to that to threadIdx.x "
            "and threadIdx.y, and the loops of warps to the axes after"
        )
    lane: Expr = Const(0, INDEX)
    for tag in reversed(axes):
        lane = lane * block.get(tag, 1) + Var(tag, INDEX)
    return simplify(lane)


def _extents(buffer: Buffer) -> list[int]:
    return [int(extent.value) for extent in buffer.shape if isinstance(extent, Const)]
