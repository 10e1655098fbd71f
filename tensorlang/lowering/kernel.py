"""From a derived schedule state to a kernel: scan, and build the statement bodies."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cache

from tensorlang.ir.expr import Expr, Var
from tensorlang.ir.stmt import INDEX, Kernel, Stmt
from tensorlang.lowering.asynchronous import begun
from tensorlang.lowering.bulk import box_copies
from tensorlang.lowering.leaf import build_leaf
from tensorlang.lowering.prefetch import prefetches
from tensorlang.lowering.storage import Storage
from tensorlang.lowering.tagged import tagged
from tensorlang.lowering.tensorize import Scanned, tile_calls
from tensorlang.polyhedral import isl
from tensorlang.polyhedral.scan import LeafBuilder, invisible, scan
from tensorlang.schedule.check import too_complex
from tensorlang.schedule.derive.plans import Derived
from tensorlang.schedule.state import IMPORT_LLVM, NONTEMPORAL, ScheduleState
from tensorlang.te.operation import ExternOp, PlaceholderOp, buffers


def make_kernel(state: ScheduleState, derived: Derived, scanned: Scanned, params: Sequence[str], name: str) -> Kernel:
    """Return the loops of a derived schedule state as a kernel whose parameters are the named buffers, in order."""
    storage = Storage(derived.plans, derived.repeated)
    try:
        loops = scan(scanned.tree, scanned.scop, leaf_builder(state, derived, scanned, storage), storage.owned_by)
    except isl.BudgetExceeded:
        raise too_complex(f"lower {name}", "the generation of loops") from None
    body = storage.owned_by(None, loops)
    program = state.program
    makers = [op for op in program.ops if not isinstance(op, PlaceholderOp)]
    written = {program.storage[b.name][0] for op in makers for b in buffers(op)}
    outputs = tuple(derived.plans[p].buffer.name for p in params if program.storage[p][0] in written)
    callbacks = tuple((op.name, op.function) for op in program.ops if isinstance(op, ExternOp))
    sizes = tuple(Var(v.name, INDEX) for v in program.sizes)
    arrays = tuple(derived.plans[p].buffer for p in params)
    asked = [p for s in state.stages.values() for pragmas in s.pragmas.values() for p in pragmas]
    imports = tuple(dict.fromkeys(str(text) for word, text in asked if word == IMPORT_LLVM))
    streamed = tuple(s for s in _streamed(state, derived) if s in outputs)
    return Kernel(name, arrays, sizes, outputs, body, callbacks, imports, streamed)


def _streamed(state: ScheduleState, derived: Derived) -> Iterator[str]:
    """The buffers of stages that a pragma wants written past the caches."""
    for stage in state.stages.values():
        if any((NONTEMPORAL, 1) in pragmas for pragmas in stage.pragmas.values()):
            yield from (derived.plans[b.name].buffer.name for b in buffers(state.program[stage.name]))


def leaf_builder(state: ScheduleState, derived: Derived, scanned: Scanned, storage: Storage) -> LeafBuilder:
    """What makes the body of a statement, by its number, for values of the loops around it."""
    statements = derived.scop.statements
    unseen = cache(lambda number: invisible(statements[number], state.sizes))

    def leaf(number: int, values: Mapping[str, Expr]) -> Stmt:
        if number in derived.prefetches:
            return prefetches(derived.prefetches[number], values, storage)
        if number in scanned.tiles:
            return tile_calls(scanned.tiles[number], state, derived, values, storage)
        return tagged(body(number, values), number, statements[number], values)

    def body(number: int, values: Mapping[str, Expr]) -> Stmt:
        if number in derived.waits:
            return derived.waits[number]
        if number in derived.boxes:
            return box_copies(number, derived, values, storage)
        statement = statements[number]
        op = state.program[statement.stage]
        shared = statement.stage in derived.scop.atomic and bool(derived.scop.unordered & set(statement.loops))
        made = build_leaf(op, statement, values, storage, state.sizes, unseen(number), atomic=shared)
        return begun(made) if statement.stage in derived.asynchronous else made

    return leaf
