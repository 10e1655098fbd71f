"""Schedules in auto_scheduler's words: the program of a task as a ComputeDAG, and states of its loops.

A state holds a schedule: each of its steps is one of the schedule's, proven legal like any other.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

from tensorlang.autotune.apply import replay
from tensorlang.autotune.records.record import TuningRecord
from tensorlang.autotune.task import Task, arguments_of, task_of
from tensorlang.dataclass import dataclass
from tensorlang.errors import BadArgument, DefinitionError, shown
from tensorlang.location import caller
from tensorlang.schedule import Schedule, Stage, create_schedule
from tensorlang.schedule.primitive import Primitive
from tensorlang.te.axis import Range
from tensorlang.te.operation import PlaceholderOp, Tensor


@dataclass(frozen=True, slots=True)
class _Split:
    """The steps of a split, from `first` to before `end`, and its lengths."""

    first: int
    end: int
    lengths: tuple[int, ...]


StageLike: TypeAlias = Any
"""A stage by its number in `state.stages`, its operation, tensor, or name."""


@dataclass(frozen=True, slots=True)
class Iterator:
    """A loop of a stage, and its range."""

    name: str
    range: Range | None

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True, slots=True)
class StateStage:
    """A stage of a state: its operation, and its loops, outermost first."""

    op: Any
    iters: tuple[Iterator, ...]


class State:
    """Loops of a program, as steps have shaped them. Steps return the loops that they make; `copy` goes its own way.

    A step that would change what the program computes raises a ScheduleError, and the state stays as it was.
    """

    def __init__(self, schedule: Schedule | State, compute_dag: ComputeDAG | None = None) -> None:
        """The state of a schedule. Of another state: its own, with the same steps; `compute_dag` is its program."""
        del compute_dag  # a schedule knows it
        self._splits: list[_Split] = []
        if isinstance(schedule, State):
            self._splits = [*schedule._splits]
        self.schedule: Schedule = schedule.schedule.again() if isinstance(schedule, State) else schedule

    def copy(self) -> State:
        """A state of its own with the same steps."""
        return State(self)

    @property
    def state_object(self) -> State:
        """The state itself, which sketch rules return."""
        return self

    @property
    def transform_steps(self) -> tuple[Primitive, ...]:
        """The steps so far."""
        return self.schedule.trace.steps

    @property
    def stages(self) -> list[StateStage]:
        """The stages, producers first."""
        return [self._described(stage) for stage in self.schedule.stages]

    @property
    def stage_ops(self) -> list[Any]:
        """The operations of the stages."""
        return [stage.op for stage in self.schedule.stages]

    def __getitem__(self, stage: StageLike) -> StateStage:
        return self._described(self._stage(stage))

    def __str__(self) -> str:
        return str(self.schedule)

    def __repr__(self) -> str:
        return f"State of {len(self.transform_steps)} steps\n{self.schedule}"

    def split(
        self, stage: StageLike, iterator: Any, lengths: Sequence[int | None], inner_to_outer: bool = True
    ) -> list[Iterator]:
        """Split a loop into one more than there are lengths: those of inner loops, or, the other way, of outer ones.

        None is a length that a tuner decides, a divisor of the extent; DefinitionError where that is not known.
        """
        own, first = self._stage(stage), len(self.transform_steps)
        with self.schedule.all_or_none():
            known = self._decided(own, str(iterator), lengths)
            made = self._split(own, str(iterator), known, inner_to_outer)
        self._splits.append(_Split(first, len(self.transform_steps), tuple(known)))
        return made

    def follow_split(self, stage: StageLike, iterator: Any, src_step_id: int, n_split: int) -> list[Iterator]:
        """Split a loop as another one was by an earlier step, into `n_split` inner loops; the last is all that is left.

        BadArgument where that step was no split.
        """
        source = next((s for s in self._splits if s.first <= src_step_id < s.end), None)
        if source is None or not 1 <= n_split <= len(source.lengths):
            why = f"follow_split wants a step of a split into as many loops, got step {src_step_id} for {n_split}"
            raise BadArgument("state", why, where=caller())
        own, lengths = self._stage(stage), source.lengths
        with self.schedule.all_or_none():
            made = self._split(own, str(iterator), lengths, True)
            outer, inner = made[:n_split], made[n_split:]
            return [*outer, self.fuse(stage, inner) if len(inner) > 1 else inner[0]]

    def _decided(self, own: Stage, axis: str, lengths: Sequence[int | None]) -> list[int]:
        """The lengths, with decisions in place of None."""
        if None not in lengths:
            return [length for length in lengths if length is not None]
        extent = getattr(self.schedule.ranges(own.name)[axis].extent, "value", None)
        if not isinstance(extent, int):
            raise DefinitionError(f"the extent of {axis} is not known: give split the lengths of its parts", caller())
        name = f"split_{len(self._splits)}"
        drawn = iter(self.schedule.sample_perfect_tile(name, extent, lengths.count(None) + 1))
        return [next(drawn) if length is None else length for length in lengths]

    def _split(self, own: Stage, rest: str, lengths: Sequence[int], inner_to_outer: bool) -> list[Iterator]:
        made: list[str] = []
        with self.schedule.all_or_none():
            for length in reversed(lengths) if inner_to_outer else lengths:
                if inner_to_outer:
                    outer, inner = own.split(rest, factor=length)
                    rest, made = outer.name, [inner.name, *made]
                else:
                    outer, inner = own.split(rest, nparts=length)
                    rest, made = inner.name, [*made, outer.name]
        return self._iterators(own, [rest, *made] if inner_to_outer else [*made, rest])

    def fuse(self, stage: StageLike, iters: Sequence[Any]) -> Iterator:
        """Make one loop of several that are next to each other."""
        own = self._stage(stage)
        return self._iterator(own, own.fuse(*map(str, iters)).name)

    def reorder(self, stage: StageLike, order: Sequence[Any]) -> None:
        """Put loops in an order."""
        self._stage(stage).reorder(*map(str, order))

    def parallel(self, stage: StageLike, iterator: Any) -> Iterator:
        """Share the iterations of a loop between threads."""
        return self._annotated("parallel", stage, iterator)

    def vectorize(self, stage: StageLike, iterator: Any) -> Iterator:
        """Run the iterations of a loop in vectors."""
        return self._annotated("vectorize", stage, iterator)

    def unroll(self, stage: StageLike, iterator: Any, max_unroll: int | None = None) -> Iterator:
        """Write the iterations of a loop out, if it has at most `max_unroll`."""
        found = self._iterator(self._stage(stage), str(iterator))
        extent = getattr(found.range.extent, "value", None) if found.range is not None else None
        if max_unroll is not None and (extent is None or extent > max_unroll):
            return found
        return self._annotated("unroll", stage, iterator)

    def bind(self, stage: StageLike, iterator: Any, thread_name: str) -> Iterator:
        """Run the iterations of a loop on a thread axis: blockIdx.x, threadIdx.x, vthread, ..."""
        own = self._stage(stage)
        own.bind(str(iterator), thread_name)
        return self._iterator(own, str(iterator))

    def pragma(self, stage: StageLike, iterator: Any, pragma_type: str) -> None:
        """Give a hint for a loop: `auto_unroll_max_step$16`, as auto_scheduler writes it, or a word alone."""
        word, _, value = pragma_type.partition("$")
        self._stage(stage).pragma(str(iterator), word, int(value) if value.isdigit() else value or None)

    def storage_align(self, stage: StageLike, iterator: Any, factor: int, offset: int) -> None:
        """Have rows of a dimension begin at a multiple of `factor` elements plus `offset`."""
        self._stage(stage).storage_align(str(iterator), factor, offset)

    def tensorize(self, stage: StageLike, iterator: Any, ti_intrin: Any) -> Iterator:
        """Compute a loop and those inside it by an instruction."""
        own = self._stage(stage)
        own.tensorize(str(iterator), ti_intrin)
        return Iterator(str(iterator), None)

    def compute_at(self, stage: StageLike, target_stage: StageLike, target_iter: Any) -> None:
        """Compute a stage inside a loop of another one."""
        self._stage(stage).compute_at(self._stage(target_stage).name, str(target_iter))

    def compute_inline(self, stage: StageLike) -> None:
        """Compute the elements of a stage where they are read."""
        self._stage(stage).compute_inline()

    def compute_root(self, stage: StageLike) -> None:
        """Compute a stage outside of all others."""
        self._stage(stage).compute_root()

    def cache_read(self, stage: StageLike, scope_name: str, reader_stages: Sequence[StageLike]) -> Any:
        """Have stages read a copy of what a stage makes; returns the operation of the copy."""
        readers = [self._stage(reader).name for reader in reader_stages]
        return self.schedule.cache_read(self._name(stage), scope_name, readers).op

    def cache_write(self, stage: StageLike, scope_name: str) -> Any:
        """Compute a stage in another scope, and copy it; returns the operation that computes."""
        return self.schedule.cache_write(self._stage(stage).name, scope_name).op

    def rfactor(self, stage: StageLike, iterator: Any, factor_iter_id: int) -> Any:
        """Reduce each iteration of a loop by itself first, in a new dimension; returns the operation that does it."""
        made = self.schedule.rfactor(self._stage(stage).name, str(iterator), factor_iter_id)
        return (made[0] if isinstance(made, list) else made).op

    def _annotated(self, how: str, stage: StageLike, iterator: Any) -> Iterator:
        own = self._stage(stage)
        getattr(own, how)(str(iterator))
        return self._iterator(own, str(iterator))

    def _name(self, stage: StageLike) -> Any:
        """A stage, or an input, which has no loops, as a schedule takes it."""
        if isinstance(stage, int) and not isinstance(stage, bool):
            stages = self.schedule.stages
            if not 0 <= stage < len(stages):
                raise BadArgument("state", f"there are {len(stages)} stages, so none of number {stage}", where=caller())
            return stages[stage].name
        return self.schedule.name_of(stage) if not isinstance(stage, Stage) else stage.name

    def _stage(self, stage: StageLike) -> Stage:
        return self.schedule[self._name(stage)]

    def _described(self, stage: Stage) -> StateStage:
        return StateStage(stage.op, tuple(self._iterators(stage, [axis.name for axis in stage.leaf_iter_vars])))

    def _iterators(self, stage: Stage, names: Sequence[str]) -> list[Iterator]:
        known = stage.name in self.schedule.state.stages
        ranges = self.schedule.ranges(stage.name) if known else {}
        return [Iterator(name, ranges.get(name)) for name in names]

    def _iterator(self, stage: Stage, name: str) -> Iterator:
        return self._iterators(stage, [name])[0]


class ComputeDAG:
    """The program of some tensors, inputs first, of a schedule, or of a task: what states are states of.

    >>> from tensorlang import autotune, te
    >>> A = te.placeholder((8, 4), name="A")
    >>> dag = autotune.ComputeDAG([A, te.compute((8, 4), lambda i, j: A[i, j] + 1, name="B")])
    >>> state = dag.get_init_state()
    >>> [str(i) for i in state.split("B", "i", [2, 2])]
    ['i_o_o', 'i_o_i', 'i_i']
    >>> print(dag.print_python_code_from_state(state))
    s['B'].split('i', factor=2)
    s['B'].split('i_o', factor=2)
    """

    def __init__(self, compute: Sequence[Tensor] | Schedule | Task) -> None:
        """DefinitionError for anything else, and for programs that cannot be tuned."""
        if isinstance(compute, Task):
            self.task = compute
        elif isinstance(compute, Schedule):
            self.task = task_of(_arguments(compute))
        elif isinstance(compute, list | tuple) and all(isinstance(t, Tensor) for t in compute):
            self.task = task_of(compute)
        else:
            raise DefinitionError(
                f"a ComputeDAG is made of tensors, inputs first, a schedule or a task, got {shown(compute)}", caller()
            )
        self.init_state = State(create_schedule([t.op for t in self.task.outputs]))

    @property
    def tensors(self) -> list[Tensor]:
        """The arguments of the kernel, inputs first."""
        return arguments_of(self.task.tensors)

    @property
    def ops(self) -> list[Any]:
        """The operations, producers first."""
        return self.init_state.stage_ops

    @property
    def flop_ct(self) -> float:
        """Operations of one run."""
        return self.task.workload.flops

    def hash_key(self) -> str:
        """The hash of the program's canonical text: by it records find their programs."""
        return self.task.workload.key

    def get_init_state(self) -> State:
        """A state without steps."""
        return self.init_state.copy()

    def state_of(self, record: TuningRecord) -> State:
        """The state of a record of this program, proven again; RecordError for one of another program."""
        return State(replay(record, self.task))

    def apply_steps_from_state(
        self, state: State | TuningRecord, layout_rewrite: Any = None
    ) -> tuple[Schedule, list[Tensor]]:
        """Return the schedule of a state, or of a record, and the tensors: what `tensorlang.build` takes.

        `layout_rewrite` is accepted for auto_scheduler's sake: a layout is a step, `transform_layout`.
        """
        del layout_rewrite
        return self._own(state).schedule.again(), self.tensors

    def infer_bound_from_state(self, state: State | TuningRecord) -> State:
        """Return the state; the ranges of its loops are always known."""
        return self._own(state).copy()

    def print_python_code_from_state(self, state: State | TuningRecord) -> str:
        """Return the steps of a state as Python."""
        return str(self._own(state).schedule).rstrip("\n")

    def print_dag(self) -> str:
        """Return the program as text."""
        return str(self)

    def _own(self, state: State | TuningRecord) -> State:
        found = self.state_of(state) if isinstance(state, TuningRecord) else state
        if not isinstance(found, State) or found.schedule.original.key not in self.task.program.keys:
            raise DefinitionError(f"this is no state of the program: {shown(state)}", caller())
        return found

    def __str__(self) -> str:
        return self.task.program.text

    def __repr__(self) -> str:
        return f"ComputeDAG({self.task.workload}, key={self.hash_key()})"


def _arguments(s: Schedule) -> list[Tensor]:
    """The tensors that a schedule's program reads, and those that it makes, as they were declared."""
    program = s.original
    inputs = [op.name for op in program.ops if isinstance(op, PlaceholderOp)]
    made = [s.declared_operation(name) for name in dict.fromkeys([*inputs, *program.outputs])]
    return [op.output(k) for op in made for k in range(op.num_outputs)]
