"""Buffers: from global element to local element, and the loops that own them."""

from __future__ import annotations

from collections.abc import Mapping, Set
from dataclasses import replace

from tensorlang.ir.expr import Buffer, Expr, binary, substitute
from tensorlang.ir.stmt import Allocate, Seq, Stmt, map_children, walk, with_buffers, zeros
from tensorlang.ir.thread_tags import is_thread
from tensorlang.schedule.axis_range import simple
from tensorlang.schedule.derive.plans import BufferPlan
from tensorlang.te.program import unique


class Storage:
    """Where every array of a derived schedule lives."""

    def __init__(self, plans: Mapping[str, BufferPlan], repeated: frozenset[str] = frozenset()) -> None:
        self.plans = plans
        self.repeated = repeated
        self.by_loop: dict[str | None, list[BufferPlan]] = {}
        distinct = {id(plan): plan for plan in plans.values()}  # an array updated in place has one, under several names
        for plan in distinct.values():
            if not plan.is_argument:
                self.by_loop.setdefault(plan.loop, []).append(plan)

    def place(
        self, name: str, index: tuple[Expr, ...], values: Mapping[str, Expr], axes: Mapping[str, Expr]
    ) -> tuple[Buffer, tuple[Expr, ...]]:
        """Return the buffer and the local index of a global element, at the given values of loops and own axes."""
        plan = self.plans[name]
        bases = (substitute(b, dict(values)) for b in plan.base)
        copies = (simple(binary("sub", axes[axis], substitute(low, dict(values)))) for axis, low in plan.copies)
        tile = () if plan.tile is None else (substitute(plan.tile, dict(values)),)
        local = [*copies, *tile, *(simple(binary("sub", i, b)) for i, b in zip(index, bases, strict=True))]
        lanes = [simple(binary("sub", values[lane.loop], lane.lower)) for lane in plan.lanes]
        for k, modulus in enumerate(plan.moduli):
            if modulus:
                local[k] = simple(binary("floormod", local[k], modulus))
        return plan.buffer, (*lanes, *local)

    def owned_by(self, loop: str | None, body: Stmt) -> Stmt:
        """Wrap a body in the allocations of the buffers that live as long as one iteration of `loop`.

        A loop that stands in several places has in each the buffers that are used there.
        """
        for plan in reversed(self.by_loop.get(loop, [])):
            if loop in self.repeated and not _mentions(body, plan.buffer.name):
                continue
            inside = _apart(body, plan.buffer, {other.buffer.name for other in self.plans.values()})
            threads = tuple(lane.thread for lane in plan.lanes if is_thread(lane.thread))
            made = Seq((zeros(plan.buffer), inside)) if plan.is_zeroed else inside
            body = Allocate(plan.buffer, made, threads)
        return body


def _mentions(body: Stmt, name: str) -> bool:
    """Whether a statement uses a buffer."""
    found = False

    def look(buffer: Buffer) -> Buffer:
        nonlocal found
        found = found or buffer.name == name
        return buffer

    with_buffers(body, look)
    return found


def _apart(body: Stmt, buffer: Buffer, names: Set[str]) -> Stmt:
    """Rename allocations of the same buffer further in, to what none of the `names` is.

    They belong to iterations of the loop in one branch, where isl has dropped the loop in another.
    """
    taken = {s.buffer.name for s in walk(body) if isinstance(s, Allocate)}

    def visit(stmt: Stmt) -> Stmt:
        if not isinstance(stmt, Allocate) or stmt.buffer.name != buffer.name:
            return map_children(stmt, visit)
        other = replace(stmt.buffer, name=unique(buffer.name, taken | names))
        return with_buffers(stmt, lambda b: other if b.name == buffer.name else b)

    return visit(body) if buffer.name in taken else body
