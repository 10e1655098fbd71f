"""The arrays of a state: where each lives, how large it is, and which of its elements share memory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field, replace

from tensorlang.dataclass import dataclass
from tensorlang.ir.expr import Buffer, Const, Var, binary
from tensorlang.ir.stmt import INDEX
from tensorlang.polyhedral.footprint import Box
from tensorlang.polyhedral.ordered import sources, touching
from tensorlang.polyhedral.statement import Fold, Statement
from tensorlang.polyhedral.zeros import begins_as_zeros
from tensorlang.schedule.axis_range import ZERO, symbolic
from tensorlang.schedule.derive.plans import BufferPlan, StagePlan
from tensorlang.schedule.derive.scopes import copies, loops_of_scope
from tensorlang.schedule.state import ScheduleState
from tensorlang.schedule.storage import Storage
from tensorlang.te.operation import HybridOp, Operation, PlaceholderOp, buffers


@dataclass(frozen=True, slots=True)
class Memory:
    """The plans of arrays by name, and the folds of their indices."""

    plans: Mapping[str, BufferPlan] = field(default_factory=dict)
    folds: tuple[Fold, ...] = ()

    def then(self, name: str, plan: BufferPlan, *folds: Fold) -> Memory:
        """With one more array, or with another plan for it."""
        return Memory({**self.plans, name: plan}, (*self.folds, *folds))

    def stored(self, storage: Storage, plan: BufferPlan, apart: int) -> Memory:
        """With an array as its stage stores it.

        `apart`: how many numbers in front of its index tell copies of the array apart: iterations of loops, tiles.
        """
        name, buffer = plan.buffer.name, plan.buffer
        moduli = storage.folds.get(name)
        if moduli is None:
            return self.then(name, replace(plan, buffer=replace(buffer, shape=storage.padded(name, buffer.shape))))
        lead = len(buffer.shape) - len(moduli)
        own = [Const(m, INDEX) if m else e for m, e in zip(moduli, buffer.shape[lead:], strict=True)]
        shape = storage.padded(name, (*buffer.shape[:lead], *own))
        base = tuple(ZERO if m else b for m, b in zip(moduli, plan.base, strict=True))
        folded = replace(plan, buffer=replace(buffer, shape=shape), base=base, moduli=((0,) * lead + moduli))
        return self.then(name, folded, Fold(name, (0,) * apart + moduli))


def with_arrays(
    memory: Memory,
    state: ScheduleState,
    op: Operation,
    plan: StagePlan | None = None,
    boxes: Sequence[Box | None] | None = None,
) -> Memory:
    """The memory with the arrays of an operation: whole, or the `boxes` that its stage computes in one iteration."""
    stage = state.stages.get(op.name)
    storage = Storage() if stage is None else stage.storage
    home = () if plan is None or boxes is None else tuple(loop.name for loop in plan.home)
    base = () if boxes is None else tuple(ZERO if box is None else box.base for box in boxes)
    for buffer in buffers(op):
        is_argument = isinstance(op, PlaceholderOp) or state.program.is_output(buffer.name)
        shape = tuple(symbolic(e) for e in buffer.shape)
        if boxes is not None and not is_argument:
            shape = tuple(s if b is None else b.size for s, b in zip(shape, boxes, strict=True))
        held = storage.holding(replace(buffer, shape=shape))
        zeroed = not is_argument and isinstance(op, HybridOp) and _is_zeroed(op, state, buffer.name)
        owner = home[-1] if home else None
        made = BufferPlan(held, base or (ZERO,) * len(shape), owner, is_argument, is_zeroed=zeroed, home=home)
        memory = memory.stored(storage, made, int(plan is not None and plan.is_ahead))
    return memory


def with_local(
    memory: Memory, state: ScheduleState, op: HybridOp, local: Buffer, plan: StagePlan, statements: Sequence[Statement]
) -> Memory:
    """The memory with a local array, inside the innermost loop of which one iteration holds all its uses.

    Copies for the iterations that this loop does not tell apart are kept side by side.
    """
    found = sources(op)
    touch = touching(op).get(local.name, frozenset())
    users = [n for n, s in plan.stage.strands.items() if s.source in touch]
    first = found[plan.stage.strands[users[0]].source] if users else None
    scope = first.scopes[local.name] if first else ()
    shared = loops_of_scope(op, state, plan.stage, users, scope)
    hulls = {name: first.hull[name] for name in scope} if first else {}
    known = {loop.name: loop.range for loop in plan.own}
    around = [f"{plan.stage.name}.{a}" for a in shared]
    kept = copies([statements[plan.by_strand[n]] for n in users], around, hulls, known, state.sizes)
    shape = (*(extent for _, extent in kept.values()), *(symbolic(e) for e in local.shape))
    owner = around[-1] if around else None
    base = (ZERO,) * len(local.shape)
    firsts = tuple((name, low) for name, (low, _) in kept.items())
    zeroed = _is_zeroed(op, state, local.name)
    made = BufferPlan(replace(local, shape=shape), base, owner, False, firsts, zeroed)
    return memory.stored(plan.stage.storage, made, len(scope))


def _is_zeroed(op: HybridOp, state: ScheduleState, array: str) -> bool:
    return array in begins_as_zeros(op, state.sizes)


def rolled(memory: Memory, op: Operation, moduli: Sequence[int]) -> Memory:
    """The memory with the arrays of an operation used in turn, where nothing else was asked for."""
    for b in buffers(op):
        held = memory.plans[b.name]
        turns = tuple(asked or turn for asked, turn in zip(held.moduli or moduli, moduli, strict=True))
        base = tuple(ZERO if m else old for m, old in zip(turns, held.base, strict=True))
        memory = memory.then(b.name, replace(held, base=base, moduli=turns), Fold(b.name, turns))
    return memory


def tiled(memory: Memory, op: Operation, plan: StagePlan) -> Memory:
    """The memory with the arrays of a stage that is computed ahead in two parts or more, by the number of the tile."""
    loop, kept = plan.prefix[-1], plan.stage.storage.kept
    tile = binary("sub", Var(loop.name, INDEX), loop.range.lower)
    for b in buffers(op):
        held = memory.plans[b.name]
        shape = (Const(kept, INDEX), *held.buffer.shape)
        rest = (0,) * len(held.buffer.shape)
        moduli = (kept, *(held.moduli or rest))
        parts = replace(held, buffer=replace(held.buffer, shape=shape), tile=tile, moduli=moduli)
        memory = memory.then(b.name, parts, Fold(b.name, (kept, *rest), anywhere=True))
    return memory


def with_updates(plans: Mapping[str, BufferPlan], state: ScheduleState) -> dict[str, BufferPlan]:
    """An array updated in place lives where it did before; an output, or an input, in the caller's array."""
    holder: dict[str, BufferPlan] = {}
    for name, (root, _) in state.program.storage.items():
        if root not in holder or (plans[name].is_argument and not holder[root].is_argument):
            holder[root] = plans[name]
    return {**plans, **{name: holder[root] for name, (root, _) in state.program.storage.items()}}
