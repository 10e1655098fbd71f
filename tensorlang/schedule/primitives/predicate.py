"""Which elements a stage stores: set_store_predicate."""

from __future__ import annotations

from dataclasses import replace

from tensorlang.dataclass import dataclass
from tensorlang.errors import BadArgument
from tensorlang.ir.expr import Const, Expr, Var, const
from tensorlang.ir.simplify import simplify
from tensorlang.ir.thread_tags import is_in_block
from tensorlang.schedule import order
from tensorlang.schedule.index_text import parse_condition
from tensorlang.schedule.names import nearest
from tensorlang.schedule.primitive import Outputs, Primitive, StageName, primitive
from tensorlang.schedule.state import ScheduleState
from tensorlang.te.axis import AxisKind


@primitive("set_store_predicate")
@dataclass(frozen=True, slots=True)
class SetStorePredicate(Primitive):
    """Compute and store only the elements for which a condition on axes and sizes holds.

    A stage that is computed inside loops of others may name these, as `stage.axis`: it is left out where they fail.

    Rewrite: `for i: B[i] = f(i)` -> `for i: if i % 2 == 0: B[i] = f(i)`.
    Legal when: every element that is read, or that the caller gets, is still written; the condition uses no reduce
    axis, since that would leave terms out of the sum. Of threads that have no elements of their own (they combine a
    reduction) the first one stores the result in any case: `threadIdx.x == 0`, as classic schedules have it, is
    accepted there and changes nothing.
    Example:
        >>> from tensorlang import te
        >>> A = te.placeholder((32,), name="A")
        >>> B = te.compute((32,), lambda i: A[i] + 1, name="B")
        >>> C = te.compute((16,), lambda i: B[2 * i], name="C")
        >>> s = te.create_schedule(C.op)
        >>> s[B].set_store_predicate(B.op.axis[0] % 2 == 0)
    """

    stage: StageName
    predicate: str

    def apply(self, state: ScheduleState) -> tuple[ScheduleState, Outputs]:
        state.compute_op(self.stage)
        kinds, used = state.axis_kinds(self.stage), set[str]()

        spatial, around = _threads_of_elements(state, self.stage), _loops_around(state, self.stage)

        def lookup(name: str) -> Expr:
            if name.startswith("threadIdx."):
                if name in spatial:
                    raise BadArgument("", f"the threads of {name} store elements of {self.stage} of their own")
                return const(0)
            if name not in kinds and name not in state.sizes and name not in around:
                raise BadArgument("", f"{name!r} is neither an axis of {self.stage} nor a size; {nearest(name, kinds)}")
            used.add(name)
            return Var(name)

        condition = simplify(parse_condition(self.predicate, lookup))
        if not used:
            if isinstance(condition, Const) and condition.value:
                return state, ()
            raise BadArgument("", f"{self.predicate} does not hold for the thread that stores the elements")
        reduced = sorted(n for n in used if kinds.get(n) is AxisKind.REDUCE)
        if reduced:
            raise BadArgument(
                "",
                f"{reduced[0]} is a reduce axis of {self.stage}: without some of its iterations the values change",
                suggested=["put the condition into the definition: te.sum(..., where=...)"],
            )
        current = state.stages[self.stage]
        return state.with_stage(replace(current, predicates=(*current.predicates, self.predicate))), ()


def _threads_of_elements(state: ScheduleState, stage: str) -> set[str]:
    """The thread axes whose threads compute different elements of a stage, by its own loops and those around it."""
    found = {n.thread for a, n in state.stages[stage].annotations.items() if _spatial(state, stage, a)}
    place = state.stages[stage].attach
    while place is not None:
        host = state.stages[place.stage]
        path = order.path(host.order, place.axis)
        found |= {n.thread for a, n in host.annotations.items() if a in path and _spatial(state, place.stage, a)}
        place = host.attach
    return found


def _loops_around(state: ScheduleState, stage: str) -> set[str]:
    """The loops of other stages in whose iterations a stage is computed, but those over threads of a block."""
    found, place = set[str](), state.stages[stage].attach
    while place is not None:
        host = state.stages[place.stage]
        for axis in order.path(host.order, place.axis):
            note = host.annotations.get(axis)
            if note is None or not is_in_block(note.thread):
                found.add(f"{place.stage}.{axis}")
        place = host.attach
    return found


def _spatial(state: ScheduleState, stage: str, axis: str) -> bool:
    return state.axis_kinds(stage)[axis] is not AxisKind.REDUCE
