"""The prefetches of one iteration: one for every cache line of the box that a later iteration reads."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tensorlang import dtypes
from tensorlang.ir.expr import Buffer, Const, Expr, Var, binary, same, substitute
from tensorlang.ir.stmt import INDEX, For, LoopKind, Prefetch, Stmt
from tensorlang.lowering.leaf import loads_of
from tensorlang.lowering.storage import Storage
from tensorlang.schedule.axis_range import ZERO, simple
from tensorlang.schedule.derive.plans import PrefetchPlan

_CACHE_LINE = 64  # bytes, of all CPUs that we generate code for


def prefetches(plan: PrefetchPlan, values: Mapping[str, Expr], storage: Storage) -> Stmt:
    """Return the prefetches for given values of the loops around."""
    buffer = storage.plans[plan.array].buffer
    index: list[Expr] = []
    loops: list[tuple[Var, Expr]] = []
    sizes = [shape if box is None else box.size for shape, box in zip(buffer.shape, plan.boxes, strict=True)]
    steps = _steps(buffer, sizes)
    for k, (box, size, step) in enumerate(zip(plan.boxes, sizes, steps, strict=True)):
        base = ZERO if box is None else loads_of(substitute(box.base, dict(values)), values, storage, {})
        var = Var(f"{plan.array}.p{k}", INDEX)
        loops.append((var, simple(binary("floordiv", binary("add", size, step - 1), step))))
        index.append(simple(binary("add", base, binary("mul", var, step))))
    place, local = storage.place(plan.array, tuple(index), values, {})
    body: Stmt = Prefetch(place, local, plan.level)
    for var, count in reversed(loops):
        body = For(var, Const(0, INDEX), count, LoopKind.SERIAL, body)
    return body


def _steps(buffer: Buffer, sizes: Sequence[Expr]) -> list[int]:
    """How far apart the prefetches are in each dimension: a line may hold whole rows of the last ones."""
    left, steps = max(1, _CACHE_LINE // dtypes.info(buffer.dtype).bytes), list[int]()
    for shape, size in zip(reversed(buffer.shape), reversed(sizes), strict=True):
        whole = isinstance(shape, Const) and same(shape, size) and left % max(1, int(shape.value)) == 0
        steps.append(int(shape) if whole and isinstance(shape, Const) else left)
        left = left // steps[-1] if whole else 1
    return steps[::-1]
