"""Programs prepared for a target: what stages compute, rewritten to what it has instructions for.

Definitions say what is computed, on any machine in the same words. A layout that one of them needs is a step of the
trace, in front of all others.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from tensorlang.schedule import Schedule
from tensorlang.schedules import tags
from tensorlang.schedules.cpu.narrow_product import prepare_product
from tensorlang.schedules.gpu.convolution_tensor_cores import prepare_convolution
from tensorlang.target.spec import Target
from tensorlang.te.operation import ComputeOp

PREPARED: Mapping[str, Callable[[Schedule, str, Target], None]] = {
    "matmul": prepare_product,
    tags.CONV2D: prepare_convolution,
}
"""By tag, what rewrites a stage by a step where a target gains by it, and leaves it as it is elsewhere."""


def prepare(s: Schedule, target: Target) -> None:
    """Rewrite the stages of the library's definitions for a target, before anything else is scheduled."""
    for op in s.program.ops:
        if isinstance(op, ComputeOp) and op.tag in PREPARED:
            PREPARED[op.tag](s, op.name, target)
