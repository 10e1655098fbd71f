"""What a rule that schedules is given: a stage with those that follow it, and what it asks of them."""

from __future__ import annotations

from tensorlang.dataclass import dataclass
from tensorlang.errors import InternalError
from tensorlang.ir.expr import Call, walk
from tensorlang.schedule import Schedule
from tensorlang.schedule.stage import Stage
from tensorlang.target.spec import Target
from tensorlang.te.operation import ComputeOp


@dataclass(frozen=True, slots=True)
class Anchor:
    """An operator in a program that is scheduled as a whole.

    `main` is the stage of its sum or its values; `output` the last of the elementwise stages that follow it
    (`main` itself when none does): those between the two are inlined already, so that `output` reads `main` directly,
    element by element, and `main` can be computed in a tile of it.
    """

    main: str
    output: str
    target: Target


def compute_op(s: Schedule, stage: str) -> ComputeOp:
    """The operation of a stage of te.compute, as the program holds it: with loads from buffers."""
    op = s.program[stage]
    if not isinstance(op, ComputeOp):
        raise InternalError(f"{stage} is no stage of te.compute")
    return op


def axes_of(s: Schedule, stage: str) -> list[str]:
    """The names of the axes of a stage's output, as declared."""
    return [axis.name for axis in compute_op(s, stage).axes]


def calls(stage: Stage) -> bool:
    """Whether a stage calls mathematical functions, as its trace has inlined them."""
    return any(isinstance(node, Call) for body in stage.op.body for node in walk(body))


def accumulator(s: Schedule, anchor: Anchor) -> str:
    """The stage that holds the results of an anchor while they are made, in local memory: its `main`, or a cache."""
    if anchor.main == anchor.output:
        return str(s.name_of(s.cache_write(anchor.main, "local")))
    s[anchor.main].set_scope("local")
    return anchor.main
