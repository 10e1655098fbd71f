"""The verdict on a whole state: every read covered, every dependence forward in time, no race."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import TypeAlias

from tensorlang import config
from tensorlang.dataclass import dataclass
from tensorlang.errors import (
    BadArgument,
    IllegalOrder,
    IllegalParallel,
    OverwrittenValue,
    ScheduleError,
    TooComplex,
    UncoveredRead,
    Witness,
)
from tensorlang.ir.expr import Buffer
from tensorlang.ir.stmt import LoopKind
from tensorlang.limits import DEEPEST
from tensorlang.polyhedral import isl
from tensorlang.polyhedral.coverage import Gap, first_instance, uncovered, unwritten
from tensorlang.polyhedral.folding import Overwritten, overwritten
from tensorlang.polyhedral.legality import Violation, violations
from tensorlang.polyhedral.ordered import sources
from tensorlang.polyhedral.sizes import failing_sizes
from tensorlang.polyhedral.statement import Access, Role, Scop, Statement
from tensorlang.polyhedral.witness import Clash, smallest_clash
from tensorlang.schedule import order
from tensorlang.schedule.axis_range import constant
from tensorlang.schedule.derive import derive
from tensorlang.schedule.derive.plans import Derived
from tensorlang.schedule.numbers import where_they_run
from tensorlang.schedule.state import Annotation, Attach, ScheduleState, StageState
from tensorlang.schedule.tiles.match import Mismatch
from tensorlang.schedule.tiles.plan import tile_fault
from tensorlang.te.operation import HybridOp, buffers

MOST = 4  # other loops offered


@dataclass(frozen=True, slots=True)
class OutOfReach:
    """A read outside the loop where its producer is computed."""

    scop: Scop
    statement: Statement
    read: Access
    producer: StageState

    def error(self, state: ScheduleState) -> ScheduleError:
        """The error to raise."""
        attach = self.producer.attach
        assert attach is not None
        where = f"outside the loop {attach.axis} of {attach.stage}, where {self.producer.name} is computed"
        return UncoveredRead(
            "",
            f"{self.statement.name} reads {self.read.array} {where}",
            witness=first_instance(self.scop, self.statement, self.read),
            suggested=_searched(partial(legal_places, state, self.producer.name)),
        )


@dataclass(frozen=True, slots=True)
class Renewed:
    """An array that is updated in place, and computed anew in each iteration of a loop: updates would be lost."""

    array: str
    updater: str
    producer: StageState

    def error(self, state: ScheduleState) -> ScheduleError:
        """The error to raise."""
        attach = self.producer.attach
        assert attach is not None
        where = f"the loop {attach.axis} of {attach.stage}"
        why = f"{self.updater} updates {self.array} in place, which {where} would compute anew in each iteration"
        return BadArgument("", why, suggested=[f"s[{self.producer.name!r}].compute_root()"])


@dataclass(frozen=True, slots=True)
class Uncovered:
    """A read of an element that its producer does not compute there."""

    gap: Gap

    def error(self, state: ScheduleState) -> ScheduleError:
        """The error to raise."""
        producer = state.program.producer[self.gap.array]
        element = self.gap.witness.element
        word, legal = "compute there", _searched(partial(legal_places, state, producer))
        if state.stages[producer].predicates:
            word, legal = "store", lambda: [f"a predicate that holds for {element}"]
        why = f"{self.gap.reader} reads {element}, which {producer} does not {word}"
        return UncoveredRead("", why, witness=self.gap.witness, suggested=legal)


@dataclass(frozen=True, slots=True)
class Incomplete:
    """An element that the caller gets, and that is not written."""

    gap: Gap

    def error(self, state: ScheduleState) -> ScheduleError:
        """The error to raise."""
        element = self.gap.witness.element
        why = f"{element} would not be written, and all of {self.gap.array} is needed"
        return UncoveredRead("", why, witness=self.gap.witness, suggested=["compute and store all of it"])


@dataclass(frozen=True, slots=True)
class Broken:
    """Dependences that run backwards, or races."""

    derived: Derived
    violations: tuple[Violation, ...]

    def error(self, state: ScheduleState) -> ScheduleError:
        """The error to raise."""
        return _refusal(state, self.derived, self.violations)


@dataclass(frozen=True, slots=True)
class Untiled:
    """A tensorized stage that is not what its intrinsic computes."""

    mismatch: Mismatch

    def error(self, state: ScheduleState) -> ScheduleError:
        """The error to raise."""
        return BadArgument("", self.mismatch.why, suggested=self.mismatch.suggested)


@dataclass(frozen=True, slots=True)
class Lost:
    """A value that is overwritten in folded memory before its last use."""

    found: Overwritten

    def error(self, state: ScheduleState) -> ScheduleError:
        """The error to raise."""
        lost = self.found
        return OverwrittenValue(
            "",
            f"{lost.writer} overwrites the memory of {lost.witness.element} before {lost.reader} has read it",
            witness=lost.witness,
            suggested=["keep more of the array in memory, or leave the loop around it sequential"],
        )


Fault: TypeAlias = OutOfReach | Renewed | Lost | Uncovered | Incomplete | Broken | Untiled


def check_placed(state: ScheduleState) -> None:
    """Raise BadArgument if a stage still waits for its readers to be where it is to be computed."""
    for name, stage in state.stages.items():
        if stage.wished is not None:
            host, axis = stage.wished.stage, stage.wished.axis
            others = [reader for reader in state.program.consumers[name] if reader != host]
            readers = ", ".join(others)
            why = f"{name} is to be computed at {axis} of {host}, but {readers}, which reads it, is not computed there"
            last_first = reversed(others)
            inside = "; ".join(f"s[{r!r}].compute_at(s[{host!r}], {axis!r})" for r in last_first)
            raise BadArgument("", why, suggested=[inside, f"s[{name!r}].compute_root()"])


def verify(state: ScheduleState) -> None:
    """Prove a state legal; raise the ScheduleError that shows why it is not, and what would be."""
    _check_depth(state)
    with within_budget("the proof"):
        fault = _fault(state)
    if fault is not None:
        raise _explained(fault, state)


@contextmanager
def within_budget(what: str) -> Iterator[None]:
    """Bound an analysis, of which `what` is the name: TooComplex, or BadArgument for numbers beyond 64 bits."""
    try:
        with isl.budget(config.get("budget")):
            yield
    except isl.NumberTooLarge as error:
        raise BadArgument("", str(error)) from None
    except isl.BudgetExceeded:
        raise too_complex("", what) from None


def _check_depth(state: ScheduleState) -> None:
    for stage in state.stages.values():
        deepest = max(map(len, stage.places.values()), default=0)
        if deepest > DEEPEST:
            raise TooComplex(
                "", f"{stage.name} would run in {deepest} loops, one in the other; at most {DEEPEST} can be"
            )


def _explained(fault: Fault, state: ScheduleState) -> ScheduleError:
    """The error of a fault; looking for its smallest case has a budget of its own."""
    try:
        with isl.budget(config.get("budget")):
            return fault.error(state)
    except isl.BudgetExceeded:
        return too_complex("", "the smallest case of what is wrong")


def too_complex(asked: str, what: str) -> TooComplex:
    """The error of an analysis that ran out of its budget; `what` names it."""
    return TooComplex(
        asked,
        f"{what} needs more than {config.get('budget')} isl operations",
        suggested=["use fewer nested splits, or constant instead of symbolic sizes; or raise TENSORLANG_BUDGET"],
    )


def is_legal(state: ScheduleState) -> bool:
    """True when `verify` accepts a state; nothing is said of why."""
    try:
        _check_depth(state)
        with isl.budget(config.get("budget")):
            return _fault(state) is None
    except (isl.BudgetExceeded, ScheduleError):  # what cannot even be derived
        return False


def _fault(state: ScheduleState) -> Fault | None:
    renewed = _renewed(state)
    if renewed is not None:
        return renewed
    derived = derive(state)
    reach = _out_of_reach(state, derived)
    if reach is not None:
        return reach
    gap = uncovered(derived.scop)
    if gap is not None:
        return Uncovered(gap)
    incomplete = _incomplete(state, derived)
    if incomplete is not None:
        return incomplete
    broken = violations(derived.scop)
    if broken:
        return Broken(derived, tuple(broken))
    lost = overwritten(derived.scop)
    if lost is not None:
        return Lost(lost)
    untiled = tile_fault(state, derived)
    return None if untiled is None else Untiled(untiled)


def _renewed(state: ScheduleState) -> Renewed | None:
    """An array that is updated in place has one life: it is computed once."""
    for op in state.program.ops:
        for old in op.updates if isinstance(op, HybridOp) else ():
            if not isinstance(old, Buffer):
                continue
            producer = state.stages.get(state.program.producer[old.name])
            if producer is not None and producer.attach is not None and not producer.attach.after:
                return Renewed(old.name, op.name, producer)
    return None


def _incomplete(state: ScheduleState, derived: Derived) -> Incomplete | None:
    """The outputs, and what is updated in place, are written whole."""
    for stage in state.stages.values():
        after = stage.attach is not None and stage.attach.after
        if not after and not stage.predicates:
            continue
        plain = replace(stage, predicates=(), attach=None if after else stage.attach)
        whole = derive(state.with_stage(plain))
        for buffer in buffers(state.program[stage.name]):
            if _wanted_whole(state, buffer.name):
                gap = unwritten(derived.scop, whole.scop, buffer.name)
                if gap is not None:
                    return Incomplete(gap)
    return None


def _wanted_whole(state: ScheduleState, buffer: str) -> bool:
    roots = [root for name, (root, _) in state.program.storage.items() if name != buffer]
    return state.program.is_output(buffer) or buffer in roots


def _out_of_reach(state: ScheduleState, derived: Derived) -> OutOfReach | None:
    """A tile-local array can only be read inside the loop that owns it."""
    owner = {b.name: s for s in state.stages.values() for b in buffers(state.program[s.name])}
    for statement in derived.scop.statements:
        for read in statement.reads:
            if not set(read.version) <= set(statement.loops):
                return OutOfReach(derived.scop, statement, read, owner[read.array])
    return None


def legal_places(state: ScheduleState, stage: str) -> list[str]:
    """Where a stage may be computed, found by trying every loop of its consumers."""
    places = []
    for user in state.program.consumers[stage]:
        if user not in state.stages or user == stage:
            continue
        for axis in state.stages[user].leaves:
            moved = replace(state.stages[stage], attach=Attach(user, axis))
            if acyclic(state, stage, user) and is_legal(state.with_stage(moved)):
                places.append(f"s[{stage!r}].compute_at(s[{user!r}], {axis!r})")
    return [f"s[{stage!r}].compute_root()", *places]


def acyclic(state: ScheduleState, stage: str, host: str) -> bool:
    """True when `host` is not itself computed inside `stage`."""
    while True:
        attach = state.stages[host].attach
        if attach is None:
            return host != stage
        host = attach.stage


def _refusal(state: ScheduleState, derived: Derived, broken: Sequence[Violation]) -> ScheduleError:
    """Name the annotation that breaks a dependence, or else the order itself."""
    plain = [replace(s, lanes=()) for s in derived.scop.statements]
    serial = replace(derived.scop, statements=tuple(plain), unordered=frozenset())
    found = smallest_clash(broken)
    violation = found.violation
    witness = replace(found.witness(), sizes_text=failing_sizes(broken))
    notes = _notes(state, found)
    if violations(serial):
        why = f"{_subject(witness)} would run before what it needs"
        return IllegalOrder("", "\n".join([why, *notes]), witness=witness)
    stage, axis, note = _guilty(state, derived.scop, violation.array)
    update = violation.kind == "reduction" or _is_update(state, found)
    what = "updated" if update else "written" if violation.kind == "output" else "written and read"
    why = f"iterations of {axis} would run at the same time, but {witness.element} is {what} by two of them"
    word = {LoopKind.PARALLEL: "parallel", LoopKind.VECTORIZED: "vectorize", LoopKind.BOUND: "bind"}[note.kind]
    thread = f", {note.thread!r}" if note.thread else ""
    if note.kind is LoopKind.BOUND:
        notes.insert(0, where_they_run(derived, found))

    def others() -> list[str]:
        return [f"s[{stage!r}].{word}({a!r}{thread})" for a in _free_axes(state, stage, axis)]

    return IllegalParallel("", "\n".join([why, *notes]), witness=witness, suggested=_searched(others))


def _searched(search: Callable[[], list[str]]) -> Callable[[], list[str]]:
    """A search for alternatives that finds none when it runs out of its budget."""

    def run() -> list[str]:
        try:
            with isl.budget(config.get("budget")):
                return search()
        except isl.BudgetExceeded:
            return []

    return run


def _notes(state: ScheduleState, found: Clash) -> list[str]:
    """What a user may not expect: an order that is kept on demand, and accesses that isl cannot follow."""
    notes = []
    if state.strict and _is_update(state, found):
        notes.append("the schedule is strict: floating-point updates of one element keep the order of the program")
    for touch in found.unseen():
        why = "is not affine" if found.differs() else "depends on data"
        notes.append(f"{touch.text()} in {touch.statement.name} {why}: it counts as any element")
    notes += [f"whether {name} runs depends on data: it counts as running" for name in found.hidden_by_data()]
    return notes


def _is_update(state: ScheduleState, found: Clash) -> bool:
    """Whether two runs update one element by the same reducer."""
    a, b = found.source.statement, found.sink.statement
    op = state.program[a.stage]
    if a.stage != b.stage or not isinstance(op, HybridOp):
        return a.stage == b.stage and a.role is b.role is Role.UPDATE
    first, then = (sources(op)[s.source].reducer for s in (a, b))
    return bool(first) and first == then and all(t.is_own() for t in (found.source, found.sink))


def _subject(witness: Witness) -> str:
    return str(witness.sink)


def _guilty(state: ScheduleState, scop: Scop, array: str) -> tuple[str, str, Annotation]:
    """The annotated loop that breaks a dependence through `array`, found by trying each one alone."""
    for stage in state.stages.values():
        for axis, note in stage.annotations.items():
            if note.kind in (LoopKind.SERIAL, LoopKind.UNROLLED):
                continue
            alone = _only(scop, stage.name, axis, note.kind)
            if any(v.array == array for v in violations(alone)):
                return stage.name, axis, note
    stage = next(s for s in state.stages.values() if s.annotations)
    axis, note = next(iter(stage.annotations.items()))
    return stage.name, axis, note


def _only(scop: Scop, stage: str, axis: str, kind: LoopKind) -> Scop:
    names = frozenset({f"{stage}.{axis}", f"{stage}.{axis}.init"})

    def lanes(s: Statement) -> tuple[str, ...]:
        return tuple(n for n in s.loops if n in names) if kind is LoopKind.VECTORIZED else ()

    statements = tuple(replace(s, lanes=lanes(s)) for s in scop.statements)
    return replace(scop, statements=statements, unordered=frozenset() if kind is LoopKind.VECTORIZED else names)


def _free_axes(state: ScheduleState, stage: str, guilty: str) -> list[str]:
    """The first plain leaves of a stage that may run as `guilty` was to, those of its nest before others."""
    current = state.stages[stage]
    note = current.annotations[guilty]
    rest = {a: n for a, n in current.annotations.items() if a != guilty}
    held = {a for s in state.attached_to(stage) if s.attach for a in order.path(current.order, s.attach.axis)}
    found: list[str] = []
    near = set(order.path(current.order, guilty)) | set(order.axes(order.find(current.order, guilty).body))
    for axis in sorted(current.leaves, key=lambda a: a not in near):
        if len(found) == MOST:
            break
        lanes = constant(state.axis_ranges(stage)[axis].extent) is not None and axis not in held
        if axis in rest or axis == guilty or (note.kind is LoopKind.VECTORIZED and not lanes):
            continue
        if is_legal(state.with_stage(replace(current, annotations={**rest, axis: note}))):
            found.append(axis)
    return found
