"""The prefetches of one iteration: one for every cache line of the box that a later iteration reads."""

from __future__ import annotations

from collections.abc import Mapping

from tensorlang import dtypes
from tensorlang.ir.expr import Const, Expr, Var, binary, substitute
from tensorlang.ir.stmt import INDEX, For, LoopKind, Prefetch, Stmt
from tensorlang.lowering.storage import Storage
from tensorlang.schedule.axis_range import ZERO, simple
from tensorlang.schedule.derive.plans import PrefetchPlan

_CACHE_LINE = 64  # bytes, of all CPUs that we generate code for


def prefetches(plan: PrefetchPlan, values: Mapping[str, Expr], storage: Storage) -> Stmt:
    """Return the prefetches for given values of the loops around."""
    buffer = storage.plans[plan.array].buffer
    index: list[Expr] = []
    loops: list[tuple[Var, Expr]] = []
    for k, box in enumerate(plan.boxes):
        base = ZERO if box is None else substitute(box.base, dict(values))
        size = buffer.shape[k] if box is None else box.size
        step = max(1, _CACHE_LINE // dtypes.info(buffer.dtype).bytes) if k == len(plan.boxes) - 1 else 1
        var = Var(f"{plan.array}.p{k}", INDEX)
        loops.append((var, simple(binary("floordiv", binary("add", size, step - 1), step))))
        index.append(simple(binary("add", base, binary("mul", var, step))))
    place, local = storage.place(plan.array, tuple(index), values, {})
    body: Stmt = Prefetch(place, local)
    for var, count in reversed(loops):
        body = For(var, Const(0, INDEX), count, LoopKind.SERIAL, body)
    return body
