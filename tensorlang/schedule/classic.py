"""What classic te's schedules say of themselves: where stages are, how axes are made, and their ranges."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from tensorlang.dataclass import dataclass
from tensorlang.errors import BadArgument
from tensorlang.ir.stmt import LoopKind
from tensorlang.location import caller
from tensorlang.schedule.relation import FuseRelation, PartsRelation, SplitRelation
from tensorlang.te.axis import Axis, Range

if TYPE_CHECKING:
    from tensorlang.schedule.group import Group
    from tensorlang.schedule.schedule import Schedule
    from tensorlang.schedule.stage import Stage

AT_ROOT, IN_A_LOOP = 1, 4
_KINDS = {LoopKind.UNROLLED: 5, LoopKind.VECTORIZED: 6, LoopKind.PARALLEL: 7}


@dataclass(frozen=True)
class Split:
    """`parent = outer * factor + inner`, with `factor` or `nparts` as it was asked for."""

    parent: Axis
    outer: Axis
    inner: Axis
    factor: int | None
    nparts: int | None


@dataclass(frozen=True)
class Fuse:
    """`fused = outer * extent(inner) + inner`."""

    outer: Axis
    inner: Axis
    fused: Axis


@dataclass(frozen=True)
class IterVarAttr:
    """How an axis runs: TVM's number of its kind, and the thread axis that it is bound to."""

    iter_type: int
    bind_thread: str | None


class ClassicStage:
    """The attributes of a stage by their names in classic te."""

    schedule: Any
    name: str

    @property
    def origin_op(self) -> Any:
        """The operation as it was declared; that of a stage that a step has made is its own."""
        return self.schedule.declared_operation(self.name)

    @property
    def is_output(self) -> bool:
        """Whether the caller gets what the stage makes."""
        return self.name in self.schedule.program.outputs

    @property
    def group(self) -> Group | None:
        """The last group with this stage that `create_group` has made."""
        groups: list[Group] = self.schedule.groups
        return next((g for g in reversed(groups) if self.name in g.names), None)

    @property
    def num_child_stages(self) -> int:
        """0: a group knows its members (`len(group.stages)`)."""
        return 0

    @property
    def _attach(self) -> Any:
        stage = self.schedule.state.stages.get(self.name)
        return None if stage is None else stage.attach

    @property
    def attach_type(self) -> int:
        """4 where the stage is computed inside a loop of another one, else 1; a stage that is inlined is gone."""
        return AT_ROOT if self._attach is None else IN_A_LOOP

    @property
    def attach_stage(self) -> Stage | None:
        """The stage inside whose loop this one is computed."""
        found: Stage | None = None if self._attach is None else self.schedule[self._attach.stage]
        return found

    @property
    def attach_ivar(self) -> Axis | None:
        """The loop inside which the stage is computed."""
        attach = self._attach
        found: Axis | None = None if attach is None else self.schedule.hand_out(attach.stage, attach.axis)
        return found

    @property
    def store_predicate(self) -> str | None:
        """The condition, as text, under which elements are stored."""
        stage = self.schedule.state.stages.get(self.name)
        return " and ".join(stage.predicates) or None if stage is not None else None

    @property
    def iter_var_attrs(self) -> dict[Axis, IterVarAttr]:
        """How the axes run that do not just run in order."""
        notes = self.schedule.state.stages[self.name].annotations
        return {
            self.schedule.hand_out(self.name, axis): IterVarAttr(_KINDS.get(note.kind, 0), note.thread or None)
            for axis, note in notes.items()
        }

    @property
    def relations(self) -> list[Any]:
        """How axes were split and fused, in order; steps that classic te lacks are there as the schedule knows them."""
        stage = self.schedule.state.stages.get(self.name)
        return [self._told(r) for r in (stage.all_relations if stage is not None else ())]

    def _told(self, relation: Any) -> Any:
        def axis(name: str) -> Axis:
            found: Axis = self.schedule.hand_out(self.name, name)
            return found

        match relation:
            case SplitRelation(parent, outer, inner, factor, _):
                return Split(axis(parent), axis(outer), axis(inner), factor, None)
            case PartsRelation(parent, outer, inner, parts, _):
                return Split(axis(parent), axis(outer), axis(inner), None, parts)
            case FuseRelation(outer, inner, fused):
                return Fuse(axis(outer), axis(inner), axis(fused))
        return relation


class Table(Mapping[Any, Any]):
    """A mapping whose keys are looked up as the schedule looks up what it is given."""

    def __init__(self, keys: list[Any], find: Callable[[Any], Any]) -> None:
        self._keys, self._find = keys, find

    def __getitem__(self, key: Any) -> Any:
        try:
            return self._find(key)
        except BadArgument as error:
            raise KeyError(str(error)) from None

    def __iter__(self) -> Iterator[Any]:
        return iter(self._keys)

    def __len__(self) -> int:
        return len(self._keys)


def InferBound(sch: Schedule) -> Mapping[Axis, Range]:
    """The ranges of all axes: axis -> `te.Range`, for the axes of stages as declared and for those that steps made.

    Where a stage is computed inside a loop of another, its loops have the ranges that are needed there.
    """
    stages = [stage for stage in sch.stages if stage.name in sch.state.stages]
    places = {stage.name: sch.ranges(stage.name) for stage in stages}
    keys = [axis for stage in stages for axis in stage.all_iter_vars if axis.name in places[stage.name]]

    def find(axis: Axis) -> Range:
        for stage in places:
            try:
                name = sch.require_axis("InferBound", axis, stage)
            except BadArgument:
                continue
            if name in places[stage]:
                return places[stage][name]
        raise BadArgument("InferBound", f"{axis.name} is no axis of this schedule", where=caller())

    return Table(keys, find)
