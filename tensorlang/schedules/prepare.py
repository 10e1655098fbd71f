"""Programs prepared for a target: what stages compute, rewritten to what it has instructions for.

Definitions say what is computed, on any machine in the same words. A layout that one of them needs is a step of the
trace, in front of all others.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeAlias

from tensorlang.schedule import Schedule
from tensorlang.schedules.cpu.narrow_product import prepare_product
from tensorlang.schedules.gpu.attention_tensor_cores import prepare_attention
from tensorlang.schedules.gpu.convolution_tensor_cores import prepare_convolution
from tensorlang.schedules.running import prepare_running
from tensorlang.target.spec import Target
from tensorlang.te import tags
from tensorlang.te.operation import ComputeOp, HybridOp

Preparation: TypeAlias = Callable[[Schedule, str, Target], None]
"""Rewrites a stage by a step where a target gains by it, and leaves it as it is elsewhere."""

WINDOWS: Mapping[str, Preparation] = {tags.CONV2D: prepare_convolution}
"""By tag, what makes products of windows, which any rule schedules."""
PREPARED: Mapping[str, Preparation] = {**WINDOWS, tags.ATTENTION: prepare_attention}
"""The same, and what the library's own rules alone schedule as it is meant."""


def prepare(s: Schedule, target: Target, rewrites: Mapping[str, Preparation] = PREPARED) -> None:
    """Rewrite stages for a target before anything is scheduled.

    Products of narrow numbers, what has a tag, and running reductions of few long rows.
    """
    for op in s.program.ops:
        if isinstance(op, ComputeOp) and op.tag in rewrites:
            rewrites[op.tag](s, op.name, target)
        elif isinstance(op, ComputeOp) and op.reduce_axes and len(op.body) == 1:
            prepare_product(s, op.name, target)
        elif isinstance(op, HybridOp):
            prepare_running(s, op.name, target)
