"""Parts of a loop as loops of their own: peel, partition."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from tensorlang.errors import BadArgument
from tensorlang.ir.expr import Binary, Const, Expr, Var, binary, variables
from tensorlang.ir.index import to_index
from tensorlang.ir.simplify import proves, simplify
from tensorlang.polyhedral.ordered import sources
from tensorlang.schedule import order
from tensorlang.schedule.explicit import explicit
from tensorlang.schedule.primitive import Outputs, argument_text, primitive, value_of
from tensorlang.schedule.primitives.loops import require_plain
from tensorlang.schedule.primitives.shift import size_expr
from tensorlang.schedule.relation import ZERO, AxisRange, ShiftRelation, constant
from tensorlang.schedule.state import Annotation, ScheduleState, StageState
from tensorlang.te.operation import HybridOp
from tensorlang.te.program import unique


@dataclass(frozen=True, slots=True)
class Part:
    """Some iterations of a loop: the wish for its axis, its range (None: as it was), and further conditions."""

    wish: str
    reach: AxisRange | None = None
    where: tuple[Expr, ...] = ()


@dataclass(slots=True)
class _Cut:
    """A loop in parts: what the stage becomes, and the names given."""

    state: ScheduleState
    stage: StageState
    axis: str
    taken: set[str]
    strands: dict[str, object] = field(default_factory=dict)
