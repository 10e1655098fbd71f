"""Schedules: traces of primitives over an immutable state, each step proven legal."""

from tensorlang.schedule.classic import Fuse, InferBound, IterVarAttr, Split
from tensorlang.schedule.primitive import Decision
from tensorlang.schedule.schedule import Schedule, create_schedule
from tensorlang.schedule.stage import Stage
from tensorlang.schedule.trace import Trace

__all__ = ["Decision", "Fuse", "InferBound", "IterVarAttr", "Schedule", "Split", "Stage", "Trace", "create_schedule"]
