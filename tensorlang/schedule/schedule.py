"""The face that users hold: a mutable Schedule over an immutable state and its trace."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from tensorlang import config
from tensorlang.errors import BadArgument, DefinitionError, ScheduleError, TensorlangError
from tensorlang.ir.expr import Expr, ExprLike, as_expr
from tensorlang.location import caller
from tensorlang.polyhedral import isl
from tensorlang.polyhedral.extract import check_bounds
from tensorlang.polyhedral.written import check_written
from tensorlang.schedule import primitives as p
from tensorlang.schedule.auto_order import AutoOrder, auto_order
from tensorlang.schedule.check import too_complex, verify
from tensorlang.schedule.explain import explain
from tensorlang.schedule.group import Group, members_between
from tensorlang.schedule.index_text import print_index
from tensorlang.schedule.members import Inside, by_own_names, host_of, leaves_of, member_of
from tensorlang.schedule.names import absent, nearest
from tensorlang.schedule.picture import draw
from tensorlang.schedule.primitive import Decision, Outputs, Primitive, whole
from tensorlang.schedule.repair import Refused, repaired
from tensorlang.schedule.state import ScheduleState, initial_state
from tensorlang.schedule.trace import Trace
from tensorlang.te.axis import Axis
from tensorlang.te.intrinsic import TensorIntrin
from tensorlang.te.operation import ComputeOp, HybridOp, Member, Operation, Tensor
from tensorlang.te.program import Program, canonical

AxisLike = Axis | str


def create_schedule(ops: Operation | Tensor | Sequence[Operation | Tensor], strict: bool = False) -> Schedule:
    """Return the default schedule of the program that computes `ops`.

    `strict`: no step may change the order of floating-point sums; see Strict.
    Raises DefinitionError when a read leaves its array for some index and sizes, or comes before every write.
    """
    outputs = list(ops) if isinstance(ops, Sequence) else [ops]
    if not outputs:
        raise DefinitionError("create_schedule needs at least one operation", caller())
    program, names = canonical(outputs)
    check_program(program)
    made = Schedule(program, names, outputs)
    if strict:
        made.strict()
    if any(stage.annotations for stage in made.state.stages.values()):
        made.require_legal("create_schedule")
    return made


def check_program(program: Program) -> None:
    """Prove that a program reads and writes inside its arrays, and nothing before it is written."""
    try:
        with isl.budget(config.get("budget")):
            check_bounds(program)
    except isl.BudgetExceeded:
        raise too_complex("create_schedule", "the proof of bounds") from None
    check_written(program)


class Schedule:
    """Stages of a program, transformed step by step; every step is proven legal before it counts."""

    def __init__(self, program: Program, names: dict[int, str], outputs: Sequence[Operation | Tensor]) -> None:
        self._original = program
        self._names = names
        self._keep_alive = tuple(outputs)
        self._state = initial_state(program)
        self._trace = Trace()

    @property
    def state(self) -> ScheduleState:
        """The current state (immutable)."""
        return self._state

    @property
    def trace(self) -> Trace:
        """The steps so far (immutable)."""
        return self._trace

    @property
    def program(self) -> Program:
        """The program as the steps have rewritten it (caches, rfactor, layouts)."""
        return self._state.program

    @property
    def original(self) -> Program:
        """The program as it was declared: the workload."""
        return self._original

    @property
    def outputs(self) -> list[Any]:
        """The operations that the schedule was made for."""
        return [self.program[name] for name in self.program.outputs]

    @property
    def stages(self) -> list[Stage]:
        """All stages in program order, inputs included."""
        return [Stage(self, op.name) for op in self.program.ops]

    def name_of(self, key: Any) -> str:
        """Return the stage name of a tensor, operation, stage or name; BadArgument when there is none."""
        if isinstance(key, Stage):
            return key.name
        if isinstance(key, str):
            name = self.program.producer.get(key, key)
        else:
            op = key.op if isinstance(key, Tensor) else key
            name = self._names.get(id(op), getattr(op, "name", repr(key)))
        if name not in self.program.by_name:
            name = host_of(self.program.by_name, key) or name
        if name not in self.program.by_name:  # its arrays may live on in a stage that it was fused with
            name = self.program.producer.get(name) or self.program.producer.get(f"{name}.v0", name)
        if name not in self.program.by_name:
            why = f"no stage {name!r} (inlined?); {nearest(name, self.program.by_name)}"
            raise _completed(BadArgument("", why), f"s[{name!r}]", self._trace)
        return name

    def buffer_of(self, key: Any) -> str:
        """Return the buffer name of a tensor or name."""
        if isinstance(key, str):
            return key
        if not isinstance(key, Tensor):
            key = key.output(0)
        name = self._names.get(id(key.op), key.op.name)
        buffer = name if key.op.num_outputs == 1 else f"{name}.v{key.value_index}"
        return buffer if buffer in self.program.buffers else self.name_of(key)

    def __getitem__(self, key: Any) -> Stage:
        if isinstance(key, Stage):
            return key
        name = self.name_of(key)
        return Stage(self, name, None if key == name else member_of(self.program[name], key))

    def normalize(self) -> Schedule:
        """Return the schedule itself: axes start at zero already."""
        return self

    def cache_read(self, tensor: Any, scope: str, readers: Any) -> Tensor:
        """Read a tensor through a copy; see CacheRead. `readers`: one or several tensors, operations or names."""
        several = readers if isinstance(readers, list | tuple) else [readers]
        step = p.CacheRead(self.buffer_of(tensor), scope, tuple(self.name_of(r) for r in several))
        return self._tensor(self.apply(step)[0])

    def cache_write(self, tensor: Any, scope: str) -> Any:
        """Compute a tensor in another scope and copy it; see CacheWrite. Returns a tensor, or one per output."""
        several = isinstance(tensor, list | tuple)
        name = self.name_of(tensor[0] if several else tensor)
        made = self._tensor(self.apply(p.CacheWrite(name, scope))[0])
        return [made.op.output(k) for k in range(made.op.num_outputs)] if several else made

    def create_group(self, outputs: Any, inputs: Any, include_inputs: bool = False) -> Group:
        """Group the stages from `inputs` (without them, unless asked) to `outputs` (with them); see Group."""
        ends = [self.name_of(o) for o in (outputs if isinstance(outputs, list | tuple) else [outputs])]
        starts = [self.name_of(i) for i in (inputs if isinstance(inputs, list | tuple) else [inputs])]
        try:
            return Group(self, members_between(self.program, ends, starts, include_inputs))
        except ScheduleError as error:
            raise _completed(error, f"s.create_group({ends}, {starts})", self._trace) from None

    def rfactor(self, tensor: Any, axis: AxisLike, factor_axis: int = 0) -> Any:
        """Factor a reduction along one of its axes; see RFactor. Returns the tensor(s) of partial results."""
        made = self._tensor(self.apply(p.RFactor(self.name_of(tensor), str(axis), factor_axis))[0])
        return [made.op.output(k) for k in range(made.op.num_outputs)] if made.op.num_outputs > 1 else made

    def assume(self, fact: str, array: Any, low: int | None = None, high: int | None = None) -> None:
        """State a fact about an index array: `injective`, `monotonic`, `range` (low <= element < high). See Assume."""
        self.apply(p.Assume(fact, self.buffer_of(array), whole(low), whole(high)))

    def strict(self) -> None:
        """Keep the order of floating-point sums, as `create_schedule(..., strict=True)` does. See Strict."""
        self.apply(p.Strict())

    def sample_choice(self, name: str, candidates: Sequence[int], decision: int | None = None) -> Decision:
        """Choose one of several whole numbers and keep the choice open for a tuner; see SampleChoice."""
        values = tuple(int(c) for c in candidates)
        chosen = int(decision) if decision is not None else values[0] if values else 0
        self.apply(p.SampleChoice(name, values, chosen))
        return Decision(name, chosen)

    def sample_perfect_tile(
        self, name: str, extent: int, parts: int, max_innermost: int = 64, decision: Sequence[int] | None = None
    ) -> list[Decision]:
        """Choose `parts` - 1 inner factors of `extent`, outermost first; each divides the extent."""
        divisors = [d for d in range(1, extent + 1) if extent % d == 0]
        made = []
        for k in range(parts - 1):
            limit = max_innermost if k == parts - 2 else extent
            wanted = None if decision is None else decision[k]
            made.append(self.sample_choice(f"{name}_{k}", [d for d in divisors if d <= limit], wanted))
        return made

    def apply(self, step: Primitive) -> Outputs:
        """Apply one step and prove the result legal; on a refusal the schedule stays as it was."""
        return self.advance(step, check=True)

    def require_legal(self, asked: str) -> None:
        """Prove the current state legal; `asked` is what the error names when it is not."""
        try:
            verify(self._state)
        except ScheduleError as error:
            raise _completed(error, asked, self._trace) from None

    def replay(self, trace: Trace, check: str = "every") -> None:
        """Apply the steps of a trace; `check` is `every` step, or the `final` state only. All or nothing."""
        before = self._state, self._trace
        try:
            for step in trace.steps:
                if not (isinstance(step, p.Strict) and self._state.strict):  # created as the trace demands
                    self.advance(step, check == "every")
            if check != "every":
                verify(self._state)
        except TensorlangError:
            self._state, self._trace = before
            raise

    def advance(self, step: Primitive, check: bool) -> Outputs:
        """Apply one step, proving the result only if `check` (a caller that skips it must `verify` later)."""
        try:
            state, made = step.apply(self._state)
            if check:
                verify(state)
        except ScheduleError as error:
            found = repaired(Refused(step, self._state, self._trace.steps, self._original), error)
            raise _completed(found, step.text(), self._trace) from None
        self._state, self._trace = state, self._trace.then(step)
        return made

    def explain(
        self,
        as_: str = "text",
        sizes: Mapping[str, int] | None = None,
        statement: str | None = None,
        axes: Sequence[AxisLike] = (),
    ) -> Any:
        """Explain the schedule: dependences with distances, what each loop may do and why, memory and recomputation.

        The result (an Explanation) prints as text, and has `to_json()`. `as_="svg"` draws the iteration space of a
        statement along two axes instead, with dependence arrows and the order of visits, as SVG text. `sizes` gives
        symbolic sizes numbers.
        """
        if as_ == "text":
            return explain(self._state, repr(self), sizes)
        if as_ != "svg":
            raise BadArgument(f"s.explain(as_={as_!r})", f"unknown form {as_!r}; there are text and svg")
        return draw(self._state, statement, [str(a) for a in axes], sizes).svg()

    def compose(self, asked: str, plan: Callable[[ScheduleState], Sequence[Primitive]]) -> list[Outputs]:
        """Apply the steps that a plan makes of the current state, all of them or none; `asked` names the plan."""
        before = self._state, self._trace
        try:
            return [self.apply(step) for step in plan(self._state)]
        except ScheduleError as error:
            self._state, self._trace = before
            raise _completed(error, asked, self._trace) from None

    def auto_order(self, parallel: bool = False, tile: int | None = None) -> AutoOrder:
        """Bring every stage into the order that isl's scheduler proposes, by steps of the trace like any other.

        The proposal keeps dependences short and finds loops that may run in parallel or be tiled. `parallel`: run the
        outermost such loop in parallel, or a wavefront. `tile`: the size of square tiles of permutable loops. Returns
        the steps, and what of the proposal was left out and why; printing the result shows both.
        """
        stages = [op.name for op in self.program.ops if isinstance(op, ComputeOp | HybridOp)]
        return auto_order(self, stages, parallel, tile)

    def _tensor(self, name: str) -> Tensor:
        return self.program[name].output(0)

    def __str__(self) -> str:
        return self._trace.to_python()

    if not TYPE_CHECKING:  # a type checker knows what there is

        def __getattr__(self, name: str) -> Any:
            raise absent("a Schedule", name)

    def __repr__(self) -> str:
        return f"Schedule({', '.join(self.program.outputs)}: {len(self._trace.steps)} steps)"


def _completed(error: ScheduleError, asked: str, trace: Trace) -> ScheduleError:
    if error.asked:
        return error
    steps = trace.to_python().splitlines()
    return type(error)(asked, error.why, where=caller(), witness=error.witness, schedule=steps, legal=lambda: error.legal)


@by_own_names
class Stage:
    """The loops of one operation in a schedule. Axes are given as Axis objects or by name.

    The stage of a `member`, an operation that runs inside a hybrid one, stands for its loops there.
    """

    def __init__(self, schedule: Schedule, name: str, member: Member | None = None) -> None:
        self.schedule = schedule
        self.name = name
        self.member = member

    @property
    def inside(self) -> Inside | None:
        """How the axes of members are named in this stage."""
        op = self.schedule.program[self.name]
        return Inside(self.member, op.members) if isinstance(op, HybridOp) and op.members else None

    @property
    def op(self) -> Any:
        """The operation, as the steps have rewritten it."""
        return self.schedule.program[self.name] if self.member is None else self.member.op

    @property
    def leaf_iter_vars(self) -> list[Axis]:
        """The loops, outermost first."""
        state = self.schedule.state
        if self.name not in state.stages:
            return []
        leaves = state.stages[self.name].leaves
        if self.member is not None:
            leaves = leaves_of(state, self.name, self.member)
        return [state.axis(self.name, a) for a in leaves]

    @property
    def all_iter_vars(self) -> list[Axis]:
        """All axes: the operation's own, and those made from them."""
        return [self.schedule.state.axis(self.name, a) for a in self.schedule.state.axis_ranges(self.name)]

    @property
    def scope(self) -> str:
        """The memory scope of the stage."""
        stage = self.schedule.state.stages.get(self.name)
        return stage.scope if stage else "global"

    def split(
        self, parent: AxisLike, factor: int | None = None, nparts: int | None = None, tail: str = "guard"
    ) -> tuple[Axis, Axis]:
        """Split an axis by factor or into nparts; returns (outer, inner). See Split."""
        outer, inner = self._axes(p.Split(self.name, str(parent), whole(factor), whole(nparts), tail))
        return outer, inner

    def fuse(self, *args: AxisLike) -> Axis:
        """Fuse consecutive axes; returns the fused axis. See Fuse."""
        return self._axes(p.Fuse(self.name, tuple(str(a) for a in _flat(args))))[0]

    def reorder(self, *args: AxisLike) -> None:
        """Put axes in the given order. See Reorder."""
        self.schedule.apply(p.Reorder(self.name, tuple(str(a) for a in _flat(args))))

    def tile(
        self, x_parent: AxisLike, y_parent: AxisLike, x_factor: int, y_factor: int, tail: str = "guard"
    ) -> tuple[Axis, Axis, Axis, Axis]:
        """Split two axes and reorder to (x_outer, y_outer, x_inner, y_inner), which it returns."""
        before = self.schedule._state, self.schedule._trace
        try:
            x_outer, x_inner = self.split(x_parent, factor=x_factor, tail=tail)
            y_outer, y_inner = self.split(y_parent, factor=y_factor, tail=tail)
            self.reorder(x_outer, y_outer, x_inner, y_inner)
        except ScheduleError:
            self.schedule._state, self.schedule._trace = before
            raise
        return x_outer, y_outer, x_inner, y_inner

    def skew(self, axis: AxisLike, by: AxisLike, factor: int = 1) -> Axis:
        """Skew an axis by an outer one; returns the skewed axis. See Skew."""
        return self._axes(p.Skew(self.name, str(axis), str(by), whole(factor)))[0]

    def shift(self, axis: AxisLike, by: ExprLike | str, statement: str | None = None) -> Axis:
        """Number an axis from `by` on, or one statement's iterations of it; returns the new axis. See Shift."""
        return self._axes(p.Shift(self.name, str(axis), _size_text(by), statement or ""))[0]

    def reverse(self, axis: AxisLike) -> Axis:
        """Run an axis backwards; returns the reversed axis. See Reverse."""
        return self._axes(p.Reverse(self.name, str(axis)))[0]

    def fission(self, axis: AxisLike, after: AxisLike | None = None) -> tuple[Axis, ...]:
        """Take a loop apart: one for each child, or in two parts after a child; returns their axes. See Fission."""
        return self._axes(p.Fission(self.name, str(axis), "" if after is None else str(after)))

    def fuse_with(self, axis: AxisLike, other: AxisLike | None = None, stage: Any = None) -> Axis:
        """Run two loops of this stage, or one here and one of another stage, as one; returns its axis. See FuseWith.

        `other` is the second loop; None: of the same name in the other stage.
        """
        second = "" if stage is None else self.schedule.name_of(stage)
        second = "" if second == self.name else second
        return self._axes(p.FuseWith(self.name, str(axis), str(axis if other is None else other), second))[0]

    def peel(self, axis: AxisLike, first: int = 0, last: int = 0) -> tuple[Axis, ...]:
        """Run the first and last iterations of an axis apart; returns the axes of all parts. See Peel."""
        return self._axes(p.Peel(self.name, str(axis), whole(first), whole(last)))

    def partition(self, axis: AxisLike, at: ExprLike | Sequence[ExprLike]) -> tuple[Axis, ...]:
        """Cut an axis at one or several points; returns the axes of the parts. See Partition."""
        points = at if isinstance(at, list | tuple) else [at]
        return self._axes(p.Partition(self.name, str(axis), tuple(map(_size_text, points))))

    def decompose_reduction(self, axis: AxisLike) -> None:
        """Initialise the reduction in loops of its own before `axis`. See DecomposeReduction."""
        self.schedule.apply(p.DecomposeReduction(self.name, str(axis)))

    def affine(self, axes: Sequence[AxisLike], matrix: Sequence[Sequence[int]]) -> tuple[Axis, ...]:
        """Replace neighbouring axes by combinations of them, a row of a unimodular matrix each. See Affine."""
        return self._axes(p.Affine(self.name, tuple(map(str, axes)), _rows(matrix)))

    def tile_by(
        self,
        axes: Sequence[AxisLike],
        rows: Sequence[Sequence[int]],
        sizes: Sequence[int],
        shifts: Sequence[int] | None = None,
    ) -> tuple[Axis, ...]:
        """Tile neighbouring axes by the hyperplanes of `rows`; returns the tile axes. See TileBy."""
        names, by = tuple(map(str, axes)), shifts if shifts is not None else (0,) * len(rows)
        return self._axes(p.TileBy(self.name, names, _rows(rows), *_rows([sizes, by])))

    def time_tile(
        self,
        time: AxisLike,
        space_axes: Sequence[AxisLike],
        time_size: int,
        space_sizes: Sequence[int],
        shape: str = "rectangular",
    ) -> tuple[Axis, ...]:
        """Tile a time axis and the space axes inside it; returns the tile axes, then the axes themselves.

        The tiles are cut by hyperplanes, found from the dependences: each axis skewed by those around it as little as
        they allow (`rectangular` after that skew), or, of time and the first space axis, two that lean to both sides
        (`diamond`). Recorded as a tile_by.
        """
        names, sizes = (str(time), *map(str, space_axes)), (whole(time_size), *map(whole, space_sizes))
        asked = f"s[{self.name!r}].time_tile({names[0]!r}, {list(names[1:])}, {sizes[0]}, {list(sizes[1:])}, {shape!r})"
        (tiles,) = self.schedule.compose(
            asked, lambda state: p.plan_time_tile(state, self.name, names[0], names[1:], sizes, shape)
        )
        return tuple(self.schedule.state.axis(self.name, name) for name in (*tiles, *names))

    def wavefront(self, *axes: AxisLike) -> tuple[Axis, ...]:
        """Run nested axes in wavefronts, so that the outermost of them becomes parallel inside a wavefront.

        The last axis is skewed by the others, as little as the dependences allow, and put outside. Recorded as skew,
        reorder, parallel; returns the new order of the axes.
        """
        names = tuple(str(a) for a in _flat(axes))
        asked = f"s[{self.name!r}].wavefront({', '.join(map(repr, names))})"
        made = self.schedule.compose(asked, lambda state: p.plan_wavefront(state, self.name, names))
        (wave,) = made[-3]
        return tuple(self.schedule.state.axis(self.name, name) for name in (wave, *names[:-1]))

    def vectorize(self, var: AxisLike) -> None:
        """Run an axis as vector lanes. See Vectorize."""
        self.schedule.apply(p.Vectorize(self.name, str(var)))

    def unroll(self, var: AxisLike) -> None:
        """Copy the loop body per iteration. See Unroll."""
        self.schedule.apply(p.Unroll(self.name, str(var)))

    def parallel(self, var: AxisLike) -> None:
        """Share an axis among CPU threads. See Parallel."""
        self.schedule.apply(p.Parallel(self.name, str(var)))

    def set_store_predicate(self, predicate: ExprLike | str) -> None:
        """Store only the elements for which a condition holds. See SetStorePredicate."""
        self.schedule.apply(p.SetStorePredicate(self.name, _size_text(predicate)))

    def pragma(self, var: AxisLike, pragma_type: str, pragma_value: Any = None) -> None:
        """Ask for something about the code of a loop. See Pragma."""
        value = int(pragma_value) if isinstance(pragma_value, bool) else whole(pragma_value)
        self.schedule.apply(p.Pragma(self.name, str(var), pragma_type, value))

    def prefetch(self, tensor: Any, var: AxisLike, offset: int) -> None:
        """Prefetch what the iteration `offset` later of a loop reads of a tensor. See Prefetch."""
        self.schedule.apply(p.Prefetch(self.name, self.schedule.buffer_of(tensor), str(var), whole(offset)))

    def atomic(self) -> None:
        """Update elements atomically, so that threads may share a reduction. See Atomic."""
        self.schedule.apply(p.Atomic(self.name))

    def tensorize(self, var: AxisLike, tensor_intrin: TensorIntrin) -> None:
        """Run the loops at and below an axis as an intrinsic. See Tensorize."""
        self.schedule.apply(p.Tensorize(self.name, str(var), tensor_intrin.name, tensor_intrin.key))

    def bind(self, ivar: AxisLike, thread_ivar: AxisLike) -> None:
        """Bind an axis to a thread axis (te.thread_axis or its tag). See Bind."""
        self.schedule.apply(p.Bind(self.name, str(ivar), _thread(thread_ivar)))

    def env_threads(self, threads: Any) -> None:
        """Launch threads once around the time loop of a scan. See EnvThreads."""
        several = threads if isinstance(threads, list | tuple) else [threads]
        self.schedule.apply(p.EnvThreads(self.name, tuple(map(_thread, several))))

    def compute_at(self, parent: Any, scope: AxisLike) -> None:
        """Compute the stage inside the loop `scope` of `parent`. See ComputeAt.

        Two stages of one scan get common loops instead, by steps of the trace like any other.
        """
        host = self.schedule[parent]
        loop = str(scope if host.inside is None else host.inside.loop(scope))
        if self.member is None or host.member is None or host.name != self.name:
            self.schedule.apply(p.ComputeAt(self.name, host.name, loop))
            return
        producer, consumer = self.member, host.member
        asked = f"s[{self._stored!r}].compute_at(s[{host._stored!r}], {loop!r})"
        self.schedule.compose(asked, lambda state: p.plan_gather(state, self.name, producer, consumer, loop))

    def reverse_compute_at(self, parent: Any, scope: AxisLike) -> None:
        """Compute the stage inside the loop `scope` of its producer `parent`. See ReverseComputeAt."""
        self.schedule.apply(p.ReverseComputeAt(self.name, self.schedule.name_of(parent), str(scope)))

    def compute_inline(self) -> None:
        """Compute elements where they are read. See ComputeInline."""
        self.schedule.apply(p.ComputeInline(self._stored))

    def compute_root(self) -> None:
        """Compute the stage as a whole, before its consumers. See ComputeRoot."""
        self.schedule.apply(p.ComputeRoot(self.name))

    def set_scope(self, scope: str) -> None:
        """Choose the memory of the stage. See SetScope."""
        self.schedule.apply(p.SetScope(self._stored, scope))

    def rolling_buffer(self) -> None:
        """Keep what neighbouring tiles share. See RollingBuffer."""
        self.schedule.apply(p.RollingBuffer(self.name))

    def double_buffer(self) -> None:
        """Compute each tile one iteration ahead. See DoubleBuffer."""
        self.schedule.apply(p.DoubleBuffer(self.name))

    def fold_storage(self, array: Any, dim: int, factor: int | None = None) -> int:
        """Let elements of an intermediate array share memory; returns the modulus. See FoldStorage.

        `array`: a tensor, its name, or the name of a local array of a hybrid stage.
        """
        name = array if isinstance(array, str) else self.schedule.buffer_of(array)
        return int(self.schedule.apply(p.FoldStorage(self.name, name, dim, whole(factor)))[0])

    def storage_align(self, axis: AxisLike, factor: int, offset: int) -> None:
        """Pad the array of the stage to a stride of `k * factor + offset`. See StorageAlign."""
        self.schedule.apply(p.StorageAlign(self.name, str(axis), whole(factor), whole(offset)))

    def transform_layout(self, mapping_function: Callable[..., Any]) -> list[Axis]:
        """Store the stage under other indices; returns its new axes. See TransformLayout."""
        axes = self.op.axis
        names = _parameters(mapping_function, [a.name for a in axes])
        index: list[Expr] = []
        if len(names) == len(axes):  # if not, the step itself refuses
            results = mapping_function(*(Axis(n, a.extent) for n, a in zip(names, axes, strict=True)))
            index = [as_expr(r) for r in (results if isinstance(results, list | tuple) else [results])]
        return list(self._axes(p.TransformLayout(self.name, names, tuple(_texts(index)))))

    @property
    def _stored(self) -> str:
        """What steps about memory name: a stage, or the array of a member."""
        return self.name if self.member is None else self.member.arrays[0]

    def _axes(self, step: Primitive) -> tuple[Axis, ...]:
        made = self.schedule.apply(step)
        return tuple(self.schedule.state.axis(self.name, name) for name in made)

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            raise absent("a Stage", name)

    def __repr__(self) -> str:
        return f"Stage({self.name}: {', '.join(str(a) for a in self.leaf_iter_vars)})"


def _thread(axis: AxisLike) -> str:
    """The tag of a thread axis."""
    return axis.thread or axis.name if isinstance(axis, Axis) else str(axis)


def _parameters(function: Callable[..., Any], wanted: Sequence[str]) -> tuple[str, ...]:
    """The names of a function's parameters, `*indices` standing for as many as are wanted."""
    found: list[str] = []
    for parameter in inspect.signature(function).parameters.values():
        several = parameter.kind is parameter.VAR_POSITIONAL
        found += wanted[len(found) :] if several else [parameter.name]
    return tuple(found)


def _texts(index: Sequence[Expr]) -> Iterator[str]:
    for expr in index:
        yield print_index(expr)


def _size_text(value: ExprLike | str) -> str:
    return value if isinstance(value, str) else print_index(as_expr(value))


def _rows(matrix: Sequence[Sequence[int]]) -> tuple[tuple[int, ...], ...]:
    return tuple(tuple(map(whole, row)) for row in matrix)


def _flat(args: Sequence[Any]) -> list[AxisLike]:
    return [a for arg in args for a in (arg if isinstance(arg, list | tuple) else [arg])]
