"""A warning about stages that a single thread of a GPU runs: right, and slow."""

from __future__ import annotations

import warnings
from dataclasses import replace

from tensorlang.errors import OneThread
from tensorlang.ir.stmt import LoopKind
from tensorlang.location import caller
from tensorlang.lowering.device.structure import has_threads
from tensorlang.polyhedral.nest import Loop
from tensorlang.polyhedral.nest import Sequence as Branches
from tensorlang.schedule.check import is_legal
from tensorlang.schedule.derive.plans import Derived
from tensorlang.schedule.state import Annotation, ScheduleState

_warned: dict[str | tuple[str, type[Warning], int], int] = {}


def warn_of_one_thread(state: ScheduleState, derived: Derived) -> None:
    """Warn, once at a place, of stages none of whose loops is bound: a single thread of the GPU runs them."""
    nests = derived.tree.children if isinstance(derived.tree, Branches) else (derived.tree,)
    alone = [nest for nest in nests if isinstance(nest, Loop) and not has_threads(nest)]
    stages = list(dict.fromkeys(nest.stage for nest in alone))
    if not stages:
        return
    axis = next((a for a in state.stages[stages[0]].leaves if _may_bind(state, stages[0], a)), None)
    stage = f"s[{stages[0]!r}]"
    advice = ""
    if axis is not None:
        threads = f"{stage}.bind({axis + '_o'!r}, 'blockIdx.x'); {stage}.bind({axis + '_i'!r}, 'threadIdx.x')"
        advice = f"; what would help: {stage}.split({axis!r}, factor=64); {threads}"
    text = f"a single thread runs {', '.join(stages)}: no loop is bound to blocks or threads{advice}"
    where = caller()
    warnings.warn_explicit(text, OneThread, where.file, where.line, registry=_warned)


def _may_bind(state: ScheduleState, stage: str, axis: str) -> bool:
    """Whether an axis is free, and its iterations may run at once."""
    current = state.stages[stage]
    if axis in current.annotations:
        return False
    bound = {**current.annotations, axis: Annotation(LoopKind.BOUND, "threadIdx.x")}
    return is_legal(state.with_stage(replace(current, annotations=bound)))
