"""What a schedule must look like to run on the threads of a GPU, beyond being legal."""

from __future__ import annotations

from collections.abc import Collection

from tensorlang.errors import BadArgument
from tensorlang.ir.stmt import Combiner, LoopKind
from tensorlang.ir.thread_tags import VIRTUAL, is_block, is_thread
from tensorlang.polyhedral.nest import Loop, Tree, leaves, loops, paths
from tensorlang.schedule.derive.plans import BufferPlan, Derived
from tensorlang.schedule.state import ScheduleState
from tensorlang.te.operation import ComputeOp, buffers


def has_threads(tree: Tree) -> bool:
    """Whether a loop is bound to blocks or threads."""
    return any(loop.kind is LoopKind.BOUND for loop in loops(tree))


def check_structure(state: ScheduleState, derived: Derived) -> None:
    """Raise BadArgument for threads inside themselves, and for memory that is not where its users are."""
    for _, path in paths(derived.tree):
        _check_path(path)
    bound = {loop.name: loop for loop in loops(derived.tree) if loop.kind is LoopKind.BOUND}
    for name, stage in state.stages.items():
        for buffer in buffers(state.program[name]):
            plan = derived.plans[buffer.name]
            if plan.is_argument or stage.attach is None:
                continue
            if stage.storage.is_shared and bound:
                _check_shared(name, plan, bound)
            if stage.storage.scope == "local":
                _check_local(name, derived, plan, bound)
            if not stage.storage.is_shared:
                _check_own(name, plan, bound, derived.scop.gathered)


def _check_path(path: tuple[Loop, ...]) -> None:
    """One thread axis runs one loop at a time."""
    seen: dict[str, Loop] = {}
    for loop in path:
        if loop.kind is not LoopKind.BOUND or loop.thread == VIRTUAL:
            continue
        outer = seen.setdefault(loop.thread, loop)
        if outer is not loop:
            why = f"{loop.thread} runs {outer.axis} of {outer.stage} and, inside it, {loop.axis} of {loop.stage}"
            if outer.stage == loop.stage:
                raise BadArgument("", why)
            legal = [f"leave {loop.axis} of {loop.stage} unbound: each computes its own part"]
            if not is_block(loop.thread):  # the threads of a block compute it together
                legal.insert(0, f"s[{loop.stage!r}].set_scope('shared')")
            raise BadArgument("", why, suggested=legal)


def _check_shared(stage: str, plan: BufferPlan, bound: dict[str, Loop]) -> None:
    """Shared memory belongs to a block."""
    if any(name in bound and is_block(bound[name].thread) for name in plan.home):
        return
    scope = plan.buffer.scope
    why = f"{stage} is in {scope} memory, which a block of threads has, and no loop around it is bound to blockIdx"
    raise BadArgument("", why, suggested=["bind a loop around the place where it is computed to 'blockIdx.x'"])


def _check_local(stage: str, derived: Derived, plan: BufferPlan, bound: dict[str, Loop]) -> None:
    """Local memory belongs to a thread: what is computed by several threads would be in several places."""
    own = [bound[n] for n in bound if bound[n].stage == stage and is_thread(bound[n].thread)]
    around = [n for n in plan.home if n in bound]
    if own and around:
        why = (
            f"{stage} is in local memory, which each thread has for itself, but its loop {own[0].axis} is bound to "
            f"{own[0].thread}: other threads would not find its elements"
        )
        raise BadArgument("", why, suggested=[f"s[{stage!r}].set_scope('shared')", f"leave {own[0].axis} unbound"])
    readers = [loop for loop in loops(derived.tree) if loop.name in bound and _reads(loop, derived, plan)]
    threads = [loop for loop in readers if is_thread(loop.thread) and loop.name not in plan.home]
    if around and threads:
        why = (
            f"{stage} is in local memory, which each thread has for itself, but it is computed outside of "
            f"{threads[0].axis} of {threads[0].stage}, whose threads read it"
        )
        inside = f"s[{stage!r}].compute_at(s[{threads[-1].stage!r}], {threads[-1].axis!r})"
        raise BadArgument("", why, suggested=[inside, f"s[{stage!r}].set_scope('shared')"])


def _check_own(stage: str, plan: BufferPlan, bound: dict[str, Loop], combined: Collection[str]) -> None:
    """What is computed inside a loop on threads belongs to one of them, whatever its scope: others do not see it.

    Of a reduction over the loops `combined` each thread has the result.
    """
    around = [bound[n] for n in plan.home if n in bound and is_thread(bound[n].thread)]
    own = [loop for loop in bound.values() if loop.stage == stage and is_thread(loop.thread)]
    own = [loop for loop in own if loop.name not in combined]
    if around and own:
        why = (
            f"each thread of {around[-1].axis} of {around[-1].stage} on {around[-1].thread} computes {stage} for "
            f"itself, but its loop {own[0].axis} is bound to {own[0].thread}: other threads would not find its elements"
        )
        raise BadArgument("", why, suggested=[f"s[{stage!r}].set_scope('shared')", f"leave {own[0].axis} unbound"])


def _reads(loop: Loop, derived: Derived, plan: BufferPlan) -> bool:
    found = (derived.scop.statements[k] for k in leaves(loop))
    return any(r.array == plan.buffer.name for s in found for r in s.reads)


def reducers(state: ScheduleState, gathered: frozenset[str]) -> dict[str, Combiner]:
    """How updates combine that threads make together, by the name of the array; in the loops `gathered` they do."""
    found: dict[str, Combiner] = {}
    for op in state.program.ops:
        if not isinstance(op, ComputeOp) or op.reduction is None:
            continue
        if any(f"{op.name}.{axis}" in gathered for axis in state.stages[op.name].leaves):
            reducer = op.reduction.reducer
            combiner = Combiner(reducer.lhs, reducer.rhs, reducer.result, reducer.identity)
            found |= {b.name: combiner for b in buffers(op)}
    return found
