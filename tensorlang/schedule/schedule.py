"""The face that users hold: a mutable Schedule over an immutable state and its trace."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from tensorlang import config
from tensorlang.errors import BadArgument, DefinitionError, ScheduleError, TensorlangError, shown
from tensorlang.ir.foreign import is_iterable
from tensorlang.limits import check_time
from tensorlang.location import caller
from tensorlang.names import lookup
from tensorlang.polyhedral import isl
from tensorlang.polyhedral.extract import check_bounds
from tensorlang.polyhedral.written import check_written
from tensorlang.schedule import primitives as p
from tensorlang.schedule.check import is_legal, too_complex, verify, within_budget
from tensorlang.schedule.classic import Table
from tensorlang.schedule.derive import ranges_in_place
from tensorlang.schedule.examples import with_examples
from tensorlang.schedule.explain import FormNote, checked_sizes, explain
from tensorlang.schedule.explain_tree import explanation_document
from tensorlang.schedule.group import Group, members_between
from tensorlang.schedule.members import AxisLike, host_of, member_of, objects
from tensorlang.schedule.names import absent, nearest
from tensorlang.schedule.ownership import Declared, Owner, came_from, foreign, is_of, is_operation, owned, owners
from tensorlang.schedule.picture import draw
from tensorlang.schedule.primitive import Decision, Outputs, Primitive, check_numbers, whole
from tensorlang.schedule.proposals.auto_order import AutoOrder, auto_order
from tensorlang.schedule.proposals.repair import Refused, repaired
from tensorlang.schedule.proposals.replayed import Refusal
from tensorlang.schedule.stage import Stage
from tensorlang.schedule.state import ScheduleState, initial_state
from tensorlang.schedule.trace import Trace
from tensorlang.target.spec import Target
from tensorlang.te.axis import Axis, Range
from tensorlang.te.declared import declared
from tensorlang.te.operation import ComputeOp, HybridOp, Operation, PlaceholderOp, Tensor
from tensorlang.te.program import Program, canonical

_MOST_SHOWN_AGAIN = 6
_MOST_FORMS = 4
"""Steps of a call that was undone as a whole, which a line repeats."""


def create_schedule(ops: Operation | Tensor | Sequence[Operation | Tensor], strict: bool = False) -> Schedule:
    """Return the default schedule of the program that computes `ops`.

    `strict`: no step may change the order of floating-point sums; see Strict.
    Raises DefinitionError when a read leaves its array for some index and sizes, or comes before every write.

    >>> from tensorlang import te
    >>> A = te.placeholder((8,), name="A")
    >>> s = te.create_schedule(te.compute((8,), lambda i: A[i] * 2, name="B").op)
    >>> outer, inner = s["B"].split("i", factor=4)
    >>> s
    Schedule(B: 1 steps)
    """
    outputs = list(ops) if isinstance(ops, Sequence) else [ops]
    if not outputs:
        raise DefinitionError("create_schedule needs at least one operation", caller())
    program, names = canonical(outputs)
    _check_program(program)
    made = Schedule(program, names, outputs)
    if strict:
        made.strict()
    if any(stage.annotations for stage in made.state.stages.values()):
        made.require_legal("create_schedule")
    return made


def schedule_of(program: Program) -> Schedule:
    """Return the default schedule of a canonical program; raises as `create_schedule` does."""
    _check_program(program)
    return Schedule(program, {id(op): op.name for op in program.ops}, [program[name] for name in program.outputs])


def _check_program(program: Program) -> None:
    """Prove that a program reads and writes inside its arrays, and nothing before it is written."""
    try:
        with isl.budget(config.get("budget")):
            check_bounds(program)
    except isl.BudgetExceeded:
        raise too_complex("create_schedule", "the proof of bounds") from None
    check_written(program)


class _Outputs(list[Any]):
    """Operations as the steps have rewritten them; those that the schedule was made for, `asked`, are in it, too."""

    asked: Sequence[Operation] = ()

    def __contains__(self, op: object) -> bool:
        return any(op is own for own in self.asked) or super().__contains__(op)


@with_examples
class Schedule:
    """Stages of a program, transformed step by step; every step is proven legal before it counts."""

    def __init__(self, program: Program, names: dict[int, str], outputs: Sequence[Operation | Tensor]) -> None:
        self._original = program
        self._names = names
        self._keep_alive = tuple(outputs)
        self._asked = tuple(o.op if isinstance(o, Tensor) else o for o in outputs)
        self._handed_out: dict[int, Operation] = {}
        self._declared: Declared | None = None
        self._state = initial_state(program)
        self._trace = Trace()
        self.groups: list[Group] = []  # that create_group has made
        self._undone_to: tuple[ScheduleState, Trace] | None = None
        self._attempted: ScheduleState | None = None  # the last state that an attempt has proven
        self.origin = ""  # the tuned record that the first steps are from, as text
        self.forms: tuple[FormNote, ...] = ()  # of stages whose loops the library has shaped
        self.target: Target | None = None  # that the library has shaped the loops for
        self.tests_assumptions = False  # on every call: a record has stated them, and nobody answers for it
        fresh = _proven_at_the_end.get()
        self._proves_each_step = fresh is None
        self._is_part = False  # of an attempt that is proven as one
        if fresh is not None:
            fresh.append(self)

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
        """The operations that the schedule was made for; `in` also knows them as they were declared."""
        made = _Outputs(map(self.operation, self.program.outputs))
        made.asked = [o.op if isinstance(o, Tensor) else o for o in self._keep_alive]
        return made

    @property
    def stages(self) -> list[Stage]:
        """All stages in program order, inputs included."""
        return [Stage(self, op.name) for op in self.program.ops]

    @property
    def stage_map(self) -> Mapping[Any, Stage]:
        """The stages by their operations, as declared or as the steps have rewritten them."""
        return Table([stage.op for stage in self.stages], self.__getitem__)

    def declared_operation(self, name: str) -> Any:
        """The operation of a stage as it was declared, or as the steps have made it."""
        self._declared = self._declared or Declared(self._keep_alive, self._names)
        return self._declared.operations.get(name) or self.operation(name)

    def ranges(self, stage: str) -> dict[str, Range]:
        """The ranges of the axes of a stage: of its loops in the place where it is computed, of others of all of it."""
        known = self._state.axis_ranges(stage) | ranges_in_place(self._state, stage)
        return {name: Range(found.lower, found.extent) for name, found in known.items()}

    def name_of(self, key: Any) -> str:
        """Return the stage name of a tensor, operation, stage or name; BadArgument when there is none."""
        if isinstance(key, Stage):
            return key.name
        if isinstance(key, str):
            name = self.program.producer.get(key, key)
        else:
            op = key.op if isinstance(key, Tensor) else key
            name = self._names.get(id(op), getattr(op, "name", repr(key)))
            known = id(op) in self._names or not is_operation(op) or name not in self.program.by_name
            if not known and not came_from(op, self._handed_out.values()):
                why = f"this {name} is an operation of another program; {name!r} names that of this schedule"
                raise self._completed(BadArgument("", why), f"s[{name}]")
        if name not in self.program.by_name:
            name = host_of(self.program.by_name, key) or name
        if name not in self.program.by_name:  # its arrays may live on in a stage that it was fused with
            name = self.program.producer.get(name) or self.program.producer.get(f"{name}.v0", name)
        if name not in self.program.by_name:
            why = f"no stage {name!r} (inlined?); {nearest(name, self.program.by_name)}"
            scans = any(isinstance(op, HybridOp) and op.time is not None for op in self.program.ops)
            if scans and isinstance(key, Tensor) and isinstance(key.op, PlaceholderOp):
                why += "; the state of a scan is read where it lies: declare its copy as a te.compute inside the scan"
            raise self._completed(BadArgument("", why), f"s[{name!r}]")
        return name

    def buffer_of(self, key: Any) -> str:
        """Return the buffer name of a tensor or name."""
        if isinstance(key, str):
            return key
        if not isinstance(key, Tensor):
            if not hasattr(key, "output"):
                why = f"expected a tensor or its name, got {shown(key)}"
                raise BadArgument(f"s[{shown(key)}]", why, where=caller())
            key = key.output(0)
        name = self._names.get(id(key.op), key.op.name)
        buffer = name if key.op.num_outputs == 1 else f"{name}.v{key.value_index}"
        return buffer if buffer in self.program.buffers else self.name_of(key)

    def hand_out(self, stage: str, axis: str) -> Axis:
        """Return an axis of a stage, which knows whose it is."""
        return owned(self._state.axis(stage, axis), stage, self._asked)

    def require_axis(self, asked: str, axis: Axis, stage: str) -> str:
        """The name of an axis object in a stage; BadArgument unless it belongs there, or for no name anywhere."""
        self._declared = self._declared or Declared(self._keep_alive, self._names)
        found = owners(axis, self._asked, self._declared, self.program)
        if found is None or (stage and not is_of(stage, found) and not is_of(stage, found, self._fused_stages())):
            own = list(self._state.stages[stage].leaves) if stage in self._state.stages else []
            raise self._completed(foreign(axis, stage, found, own), asked)
        return axis.name if isinstance(axis.owner, Owner) else self._declared.name(axis)

    def _fused_stages(self) -> Set[str]:
        """The stages that are part of another one now."""
        fused = {n for x in self._trace.steps if isinstance(x, p.FuseWith) for n in (x.stage, x.second)}
        return fused - self.program.by_name.keys()

    def __getitem__(self, key: Any) -> Stage:
        if isinstance(key, Stage):
            if key.schedule is not self:
                why = f"{key.name} is a stage of another schedule; s[{key.name!r}] is that of this one"
                raise BadArgument(f"s[{key.name!r}]", why, where=caller())
            return key
        name = self.name_of(key)
        return Stage(self, name, None if key == name else member_of(self.program[name], key))

    def normalize(self) -> Schedule:
        """Return the schedule itself: axes start at zero already."""
        return self

    def cache_read(self, tensor: Any, scope: str, readers: Any) -> Tensor:
        """Read a tensor through a copy; see CacheRead. `readers`: one or several tensors, operations or names.

        A tensor that was inlined is computed in the copy, as in classic te: the copy comes first in the trace.
        """
        several = [self.name_of(r) for r in (readers if isinstance(readers, list | tuple) else [readers])]
        inlined = self._inlined(tensor)
        if inlined is None:
            return self._tensor(self.apply(p.CacheRead(self.buffer_of(tensor), scope, tuple(several)))[0])
        with self.proven_together(f"s.cache_read({inlined.stage!r}, {scope!r}, {several})"):
            self._undo(inlined)
            made = self.apply(p.CacheRead(self.buffer_of(tensor), scope, tuple(several)))[0]
            self.apply(inlined)
        return self._tensor(made)

    def _inlined(self, key: Any) -> p.ComputeInline | None:
        """The step that inlined a tensor; None for one that is still there."""
        op = key.op if isinstance(key, Tensor) else key
        name = key if isinstance(key, str) else self._names.get(id(op), getattr(op, "name", ""))
        gone = name not in self.program.by_name and name not in self.program.producer
        steps = (x for x in self._trace.steps if isinstance(x, p.ComputeInline) and x.stage == name)
        return next(steps, None) if gone else None

    def _undo(self, step: Primitive) -> None:
        """Take a step out: replay the others."""
        others = [x for x in self._trace.steps if x is not step]
        self._state, self._trace = initial_state(self._original), Trace()
        for other in others:
            self.advance(other, check=False)

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
            made = Group(self, members_between(self.program, ends, starts, include_inputs))
        except ScheduleError as error:
            raise self._completed(error, f"s.create_group({ends}, {starts})") from None
        self.groups.append(made)
        return made

    def rfactor(self, tensor: Any, axis: AxisLike, factor_axis: int = 0) -> Any:
        """Factor a reduction along one of its axes; see RFactor. Returns the tensor(s) of partial results.

        `factor_axis` is where the new axis stands among theirs, -1 the last place: that of an axis to be vectorized,
        whose lanes would lie apart in memory elsewhere.
        """
        name = self.name_of(tensor)
        if isinstance(factor_axis, int) and factor_axis < 0:
            dimensions = len(self.state.compute_op(name).axes) + 1
            factor_axis += dimensions if factor_axis >= -dimensions else 0
        factored = str(axis)
        for one in objects(axis):
            factored = self.require_axis(f"s.rfactor({name!r}, {str(axis)!r})", one, name)
        made = self._tensor(self.apply(p.RFactor(name, factored, factor_axis))[0])
        return [made.op.output(k) for k in range(made.op.num_outputs)] if made.op.num_outputs > 1 else made

    def assume(self, fact: str, array: Any, low: int | None = None, high: int | None = None) -> None:
        """State a fact about an index array: `injective`, `monotonic`, `range` (low <= element < high). See Assume."""
        self.apply(p.Assume(fact, self.buffer_of(array), whole(low), whole(high)))

    def strict(self) -> None:
        """Keep the order of floating-point sums, as `create_schedule(..., strict=True)` does. See Strict."""
        self.apply(p.Strict())

    def sample_choice(self, name: str, candidates: Sequence[int], decision: int | None = None) -> Decision:
        """Choose one of several whole numbers and keep the choice open for a tuner; see SampleChoice."""
        if not is_iterable(candidates):
            asked = f"s.sample_choice({name!r}, {shown(candidates)})"
            raise BadArgument(asked, f"candidates must be a list, got {shown(candidates)}", where=caller())
        values = tuple(int(c) for c in candidates)
        chosen = int(decision) if decision is not None else values[0] if values else 0
        self.apply(p.SampleChoice(name, values, chosen))
        return Decision(name, chosen)

    def sample_perfect_tile(
        self, name: str, extent: int, parts: int, max_innermost: int = 64, decision: Sequence[int] | None = None
    ) -> list[Decision]:
        """Choose `parts` - 1 inner factors of `extent`, outermost first; each divides the extent."""
        if isinstance(whole(extent), bool) or not isinstance(whole(extent), int) or extent < 1:
            asked = f"s.sample_perfect_tile({name!r}, {shown(extent)}, {parts})"
            why = f"extent must be a whole number of at least 1, got {shown(extent)}"
            raise BadArgument(asked, why, where=caller())
        divisors = [d for d in range(1, extent + 1) if extent % d == 0]
        made = []
        for k in range(parts - 1):
            limit = max_innermost if k == parts - 2 else extent
            wanted = None if decision is None else decision[k]
            made.append(self.sample_choice(f"{name}_{k}", [d for d in divisors if d <= limit], wanted))
        return made

    def apply(self, step: Primitive) -> Outputs:
        """Apply one step and prove the result legal; on a refusal the schedule stays as it was."""
        return self.advance(step, check=self._proves_each_step)

    def attempt(self, change: Callable[[], object], as_one: bool = False) -> bool:
        """Make a change that may be illegal: keep it and return True when it is legal, else undo it.

        `as_one`: what it attempts itself is not proven, but for all of it at the end. What a step refuses is undone.
        """
        before, inside = (self._state, self._trace), self._is_part
        self._is_part = inside or as_one
        try:
            change()
            legal = inside or is_legal(self._state)
        except ScheduleError:
            legal = False
        finally:
            self._is_part = inside
        if legal and not inside:
            self._attempted = self._state
        elif not legal:
            self._state, self._trace = before
        return legal

    def require_legal(self, asked: str) -> None:
        """Prove the current state legal; `asked` is what the error names when it is not."""
        try:
            verify(self._state)
        except ScheduleError as error:
            raise self._completed(error, asked) from None

    def replay(self, trace: Trace, check: str = "every") -> None:
        """Apply the steps of a trace; `check` is `every` step, or the `final` state only. All or nothing."""
        with self.all_or_none():
            for step in trace.steps:
                if not (isinstance(step, p.Strict) and self._state.strict):  # created as the trace demands
                    self.advance(step, check == "every")
            if check != "every":
                self.require_legal("s.replay(...)")

    def advance(self, step: Primitive, check: bool) -> Outputs:
        """Apply one step, proving the result only if `check` (a caller that skips it must `verify` later)."""
        try:
            check_time()
            check_numbers(step)
            with within_budget("the step"):
                state, made = step.apply(self._state)
            if check:
                verify(state)
        except ScheduleError as error:
            found = repaired(Refused(step, self._state, self._trace.steps, self._original), error)
            raise self._completed(found, step) from None
        self._state, self._trace = state, self._trace.then(step)
        return made

    def explain(
        self,
        as_: str = "text",
        sizes: Mapping[str, int] | None = None,
        statement: str | None = None,
        axes: Sequence[AxisLike] = (),
        target: str | Target | None = None,
    ) -> Any:
        """Explain the schedule: dependences with distances, what each loop may do and why, memory and recomputation,
        and what would make its kernel slow (warnings) on a `target`: that of `topi.schedule`, or this machine.

        The result (an Explanation) prints as text, and has `to_json()`. `as_="svg"` draws the iteration space of a
        statement along two axes instead, with dependence arrows and the order of visits, as SVG text, `as_="html"` is a
        page of its own: the loops as a tree, memory over time, reuse. `sizes` gives symbolic sizes numbers.
        """
        if as_ not in ("text", "svg", "html"):
            why = f"unknown form {as_!r}; there are text, svg and html; s.explain().to_json() gives data"
            raise BadArgument(f"s.explain(as_={as_!r})", why, where=caller())
        try:
            known = checked_sizes(self._state, sizes)
            if as_ != "svg":
                found = explain(self._state, repr(self), known, self.forms)
                slow = lookup(__name__, "warnings_of_schedule")(self, target or self.target, known)
                found = replace(found, warnings=slow)
                return found if as_ == "text" else explanation_document(found)
            return draw(self._state, statement, [str(a) for a in axes], known).svg()
        except ScheduleError as error:
            if error.asked:
                raise
            raise type(error)("s.explain(...)", error.why, where=caller(), suggested=error.suggested) from None

    def _repr_html_(self) -> str:
        """What a notebook shows: loops, stages and dependences."""
        return str(self.explain()._repr_html_())

    def compose(self, asked: str, plan: Callable[[ScheduleState], Sequence[Primitive]]) -> list[Outputs]:
        """Apply the steps that a plan makes of the current state, all of them or none; `asked` names the plan."""
        try:
            with self.all_or_none():
                return [self.apply(step) for step in plan(self._state)]
        except ScheduleError as error:
            raise self._completed(error, asked) from None

    @contextmanager
    def all_or_none(self) -> Iterator[None]:
        """Several steps as one: the first that is refused leaves the schedule as it was before all of them."""
        before, outermost = (self._state, self._trace), self._undone_to is None
        self._undone_to = self._undone_to or before
        try:
            yield
        except TensorlangError:
            self._state, self._trace = before
            raise
        finally:
            if outermost:
                self._undone_to = None

    def again(self, fresh: bool = False) -> Schedule:
        """A copy that goes its own way and proves each step; `fresh`: of the program as declared, without a step."""
        made = copy.copy(self)
        made._proves_each_step, made._undone_to, made._is_part = True, None, False
        made.groups = list(self.groups)
        if fresh:
            made._state, made._trace = initial_state(self._original), Trace()
        return made

    def declares(self, op: Operation) -> bool:
        """Whether an operation is one of the program as it was declared."""
        return id(op) in self._names

    def returning(self, ops: Sequence[Operation]) -> Schedule:
        """The schedule of a program that also returns some of its operations; the steps are proven for that again."""
        made = create_schedule([*self._asked, *ops])
        made.replay(self._trace, check="final")
        made.origin, made.forms, made.tests_assumptions = self.origin, self.forms, self.tests_assumptions
        return made

    def hiding(self, outputs: frozenset[str]) -> Schedule:
        """The schedule of a program that keeps some of its outputs to itself."""
        made = self.again()
        made._state = replace(made._state, program=replace(made.program, hidden=made.program.hidden | outputs))
        return made

    def _completed(self, error: ScheduleError, asked: Primitive | str) -> ScheduleError:
        """The error with what was asked, where, after which steps, and suggestions that were tried."""
        if error.asked:
            return error
        text = asked if isinstance(asked, str) else asked.text()
        return type(error)(
            text,
            error.why,
            where=caller(),
            witness=error.witness,
            schedule=self._trace.to_python().splitlines(),
            suggested=lambda: error.suggested,
            replay=self._refusal(asked).sorted,
        )

    def _refusal(self, asked: Primitive | str) -> Refusal:
        """A refused step, on the schedule that the user has afterwards.

        Of several steps as one, few are shown again; after many, lines are for the schedule that the error shows.
        """
        base = self.again()
        if self._undone_to is None:
            return Refusal(base, asked)
        state, trace = self._undone_to
        done = Trace(self._trace.steps[len(trace.steps) :]).to_python().splitlines()
        if len(done) > _MOST_SHOWN_AGAIN:
            return Refusal(base, asked)
        base._state, base._trace = state, trace
        return Refusal(base, asked, tuple(done))

    def auto_order(self, parallel: bool = False, tile: int | None = None) -> AutoOrder:
        """Bring every stage into the order that isl's scheduler proposes, by steps of the trace like any other.

        The proposal keeps dependences short and finds loops that may run in parallel or be tiled. `parallel`: run the
        outermost such loop in parallel, or a wavefront. `tile`: the size of square tiles of permutable loops. Returns
        the steps, and what of the proposal was left out and why; printing the result shows both.
        """
        if tile is not None and (isinstance(tile, bool) or not isinstance(tile, int) or tile < 1):
            raise BadArgument(
                f"s.auto_order(tile={tile!r})", f"tile must be a whole number of at least 1, got {tile!r}"
            )
        stages = [op.name for op in self.program.ops if isinstance(op, ComputeOp | HybridOp)]
        return auto_order(self, stages, parallel, tile)

    @contextmanager
    def proven_together(self, asked: str) -> Iterator[None]:
        """Many steps proven legal at once, in the state after the last; a refusal undoes them all.

        For code that applies dozens of steps; `asked` is what the error names.
        """
        outermost, self._proves_each_step = self._proves_each_step, False
        try:
            with self.all_or_none():
                yield
                if outermost and self._state is not self._attempted:
                    self.require_legal(asked)
        finally:
            self._proves_each_step = outermost

    def _tensor(self, name: str) -> Tensor:
        made: Tensor = self.operation(name).output(0)
        return made

    def operation(self, name: str) -> Any:
        """Return the operation of a stage: as it was declared, or as the steps have rewritten it."""
        op = declared(self.program, name)
        if isinstance(op, ComputeOp) and name in self._original.by_name and op is declared(self._original, name):
            self._declared = self._declared or Declared(self._keep_alive, self._names)
            return self._declared.operations.get(name, op)
        return self._handed_out.setdefault(id(op), op)

    def __str__(self) -> str:
        return self._trace.to_python()

    if not TYPE_CHECKING:  # a type checker knows what there is

        def __getattr__(self, name: str) -> Any:
            raise absent("a Schedule", name, "s[C]" if hasattr(Stage, name) else "", dir(type(self)))

    def __repr__(self) -> str:
        origin = f", from {self.origin}" if self.origin else ""
        named = [f"{note.stage} by {note.form}" for note in self.forms]
        shown = f"; {', '.join(named[:_MOST_FORMS])}{', ...' if len(named) > _MOST_FORMS else ''}" if named else ""
        return f"Schedule({', '.join(self.program.outputs)}: {len(self._trace.steps)} steps{origin}{shown})"


_proven_at_the_end: ContextVar[list[Schedule] | None] = ContextVar("tensorlang_proven_at_the_end", default=None)


@contextmanager
def proven_at_the_end(asked: str) -> Iterator[None]:
    """Schedules that are created inside are proven once, when it ends; `asked` is what the error names.

    `Schedule.proven_together` for code that creates its schedules itself.
    """
    fresh: list[Schedule] = []
    token = _proven_at_the_end.set(fresh)
    try:
        yield
    finally:
        _proven_at_the_end.reset(token)
        for schedule in fresh:
            schedule._proves_each_step = True
    for schedule in fresh:
        if schedule.trace.steps:
            schedule.require_legal(asked)
