"""The verdict on a whole state: every read covered, every dependence forward in time, no race."""

from __future__ import annotations

from dataclasses import replace

from tensorlang.errors import IllegalOrder, IllegalParallel, ScheduleError, TooComplex, UncoveredRead, Witness
from tensorlang.ir.stmt import LoopKind
from tensorlang.polyhedral import isl
from tensorlang.polyhedral.coverage import first_instance, uncovered
from tensorlang.polyhedral.legality import Violation, violations
from tensorlang.polyhedral.statement import Scop, Statement
from tensorlang.polyhedral.witness import explain
from tensorlang.schedule.derive import Derived, derive
from tensorlang.schedule.state import Annotation, Attach, ScheduleState
from tensorlang.te.operation import buffers


def verify(state: ScheduleState) -> None:
    """Prove a state legal; raise the ScheduleError that shows why it is not."""
    try:
        with isl.budget(isl.LEGALITY_BUDGET):
            derived = derive(state)
            _check_reach(state, derived)
            _check_coverage(state, derived)
            broken = violations(derived.scop)
            if broken:
                raise _refusal(state, derived, broken[0])
    except isl.BudgetExceeded:
        raise TooComplex(
            "",
            f"the proof needs more than {isl.LEGALITY_BUDGET} isl operations",
            legal=["use fewer nested splits, or constant instead of symbolic sizes"],
        ) from None


def is_legal(state: ScheduleState) -> bool:
    """True when `verify` accepts a state."""
    try:
        verify(state)
    except ScheduleError:
        return False
    return True


def _check_reach(state: ScheduleState, derived: Derived) -> None:
    """A tile-local array can only be read inside the loop that owns it."""
    owner = {b.name: s for s in state.stages.values() for b in buffers(state.program[s.name])}
    for statement in derived.scop.statements:
        for read in statement.reads:
            if not set(read.version) <= set(statement.loops):
                stage = owner[read.array]
                assert stage.attach is not None
                witness = Witness("coverage", *first_instance(derived.scop, statement, read))
                raise UncoveredRead(
                    "",
                    f"{statement.name} reads {read.array} outside the loop {stage.attach.axis} "
                    f"of {stage.attach.stage}, where {stage.name} is computed",
                    witness=witness,
                    legal=legal_places(state, stage.name),
                )


def _check_coverage(state: ScheduleState, derived: Derived) -> None:
    gap = uncovered(derived.scop)
    if gap is not None:
        producer = state.program.producer[gap.array]
        raise UncoveredRead(
            "",
            f"{gap.reader} reads {gap.witness.element}, which {producer} does not compute there",
            witness=gap.witness,
            legal=legal_places(state, producer),
        )


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


def _refusal(state: ScheduleState, derived: Derived, violation: Violation) -> ScheduleError:
    """Name the annotation that breaks a dependence, or else the order itself."""
    plain = [replace(s, lanes=()) for s in derived.scop.statements]
    serial = replace(derived.scop, statements=tuple(plain), unordered=frozenset())
    witness = explain(violation)
    if violations(serial):
        why = f"{_subject(witness)} would run before what it needs"
        return IllegalOrder("", why, witness=witness, legal=["keep the order of the loops as it is"])
    stage, axis, kind = _guilty(state, derived.scop, violation.array)
    words = {LoopKind.PARALLEL: "parallel", LoopKind.VECTORIZED: "vectorize", LoopKind.BOUND: "bind"}
    what = "updated" if violation.kind == "reduction" else "written and read"
    why = f"iterations of {axis} would run at the same time, but {witness.element} is {what} by two of them"
    free = free_axes(state, stage, kind)
    legal = [f"s[{stage!r}].{words[kind]}({a!r})" for a in free]
    if violation.kind == "reduction":
        legal.append(
            f"s.rfactor({violation.array!r}, {axis!r}) for partial results, then {words[kind]} its factor axis"
        )
    return IllegalParallel("", why, witness=witness, legal=legal)


def _subject(witness: Witness) -> str:
    return str(witness.sink)


def _guilty(state: ScheduleState, scop: Scop, array: str) -> tuple[str, str, LoopKind]:
    """The annotated loop that breaks a dependence through `array`, found by trying each one alone."""
    for stage in state.stages.values():
        for axis, note in stage.annotations.items():
            if note.kind in (LoopKind.SERIAL, LoopKind.UNROLLED):
                continue
            alone = _only(scop, stage.name, axis, note.kind)
            if any(v.array == array for v in violations(alone)):
                return stage.name, axis, note.kind
    stage = next(s for s in state.stages.values() if s.annotations)
    axis, note = next(iter(stage.annotations.items()))
    return stage.name, axis, note.kind


def _only(scop: Scop, stage: str, axis: str, kind: LoopKind) -> Scop:
    names = frozenset({f"{stage}.{axis}", f"{stage}.{axis}.init"})

    def lanes(s: Statement) -> tuple[str, ...]:
        return tuple(n for n in s.loops if n in names) if kind is LoopKind.VECTORIZED else ()

    statements = tuple(replace(s, lanes=lanes(s)) for s in scop.statements)
    return replace(scop, statements=statements, unordered=frozenset() if kind is LoopKind.VECTORIZED else names)


def free_axes(state: ScheduleState, stage: str, kind: LoopKind) -> list[str]:
    """The leaves of a stage that may run in the given way, found by trying them."""
    clean = replace(state.stages[stage], annotations={})
    scop_free = []
    for axis in clean.leaves:
        tried = replace(clean, annotations={axis: Annotation(kind)})
        if not violations(derive(state.with_stage(tried)).scop):
            scop_free.append(axis)
    return scop_free
