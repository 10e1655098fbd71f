"""Where a stage is computed: compute_at, compute_root, compute_inline, set_scope."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from tensorlang.dataclass import dataclass
from tensorlang.errors import BadArgument
from tensorlang.ir.expr import Expr, Load, Select, cast, const, rewrite, select, substitute, walk
from tensorlang.ir.stmt import LoopKind
from tensorlang.schedule import order
from tensorlang.schedule.check import acyclic, legal_places
from tensorlang.schedule.members import host_of
from tensorlang.schedule.names import nearest
from tensorlang.schedule.primitive import Outputs, Primitive, StageName, primitive
from tensorlang.schedule.rewrites.bounds import RuntimeChecks, inside
from tensorlang.schedule.rewrites.inline import check_growth, inline_member, member_in_scope, within_bounds
from tensorlang.schedule.state import Attach, ScheduleState
from tensorlang.te.operation import ComputeOp, Operation, buffers

SCOPES = ("global", "local", "shared", "warp")


def on_copy(stage: str, text: str) -> str:
    """A step on an output, as one line that takes it on the stage from which the output becomes a copy."""
    return f"T = s.cache_write({stage!r}, 'global'); {text.replace(f's[{stage!r}]', 's[T]', 1)}"


def require_internal(state: ScheduleState, stage: str, word: str, text: str) -> None:
    """Refuse to move or remove an output, by the step of a text: the caller needs all of it."""
    if stage in state.program.outputs:
        why = f"{stage} is an output; {word} would leave it incomplete"
        raise BadArgument("", why, suggested=[on_copy(stage, text)])


def _require_movable(state: ScheduleState, step: ComputeAt) -> None:
    """Refuse to compute an output inside another stage; where that one is an input of it, the roles were swapped."""
    if step.stage not in state.program.outputs:
        return
    why = f"{step.stage} is an output; compute_at would leave it incomplete"
    if step.stage not in users(state, step.parent):
        copy = [on_copy(step.stage, ComputeAt(step.stage, step.stage, a).text()) for a in _spatial(state, step.stage)]
        raise BadArgument("", why, suggested=[on_copy(step.stage, step.text()), *copy[:1]])
    why += f"; {step.stage} reads {step.parent}, so did you mean s[{step.parent!r}].compute_at(s[{step.stage!r}], ...)?"

    def swapped() -> list[str]:
        places = [p for p in legal_places(state, step.parent) if f"compute_at(s[{step.stage!r}]" in p]
        return sorted(places, key=lambda place: not place.endswith(f", {step.axis!r})"))

    raise BadArgument("", why, suggested=swapped)


def _spatial(state: ScheduleState, stage: str) -> list[str]:
    """The loops of the copy that an output becomes: its axes as declared."""
    return [axis.name for axis in state.compute_op(stage).axes]


@primitive("compute_at")
@dataclass(frozen=True, slots=True)
class ComputeAt(Primitive):
    """Compute a stage inside a loop of a consumer: just the region that each iteration needs.

    Rewrite: `P; for i_o: C` -> `for i_o: P[region of i_o]; C`. The region, with halo, comes from the reads.
    A stage that the consumer reads through others, be it besides, takes its place once these are computed there, too.
    Legal when: every read of the stage finds its element computed before, in the same iteration of that loop.
    Example:
        >>> from tensorlang import te
        >>> A = te.placeholder((100,), name="A")
        >>> B = te.compute((100,), lambda i: A[i] + 1, name="B")
        >>> C = te.compute((100,), lambda i: B[i] * 2, name="C")
        >>> s = te.create_schedule(C.op)
        >>> i_o, i_i = s[C].split("i", factor=16)
        >>> s[B].compute_at(s[C], i_o)
    """

    stage: StageName
    parent: StageName
    axis: str

    def apply(self, state: ScheduleState) -> tuple[ScheduleState, Outputs]:
        state.compute_op(self.stage)
        state.looped(self.parent)
        _require_movable(state, self)
        axis = state.leaf(self.parent, self.axis)
        if self.stage == self.parent:
            raise BadArgument(
                "", f"{self.stage} cannot be computed inside itself", suggested=legal_places(state, self.stage)
            )
        if not acyclic(state, self.stage, self.parent):
            raise BadArgument("", f"{self.parent} is itself computed inside {self.stage}")
        host = state.stages[self.parent]
        lanes = [a for a in order.path(host.order, axis) if host.kind(a) is LoopKind.VECTORIZED]
        if lanes:
            where = "is vectorised" if lanes[0] == axis else f"is inside the vectorised axis {lanes[0]}"
            raise BadArgument("", f"{axis} {where}: a buffer there has no lanes")
        place = Attach(self.parent, axis)
        if self.parent not in users(state, self.stage):
            if self.parent not in _later(state, self.stage):
                readers = ", ".join(state.program.consumers[self.stage])
                why = f"{self.parent} does not read {self.stage}" + (f"; who does: {readers}" if readers else "")
                raise BadArgument("", why, suggested=legal_places(state, self.stage))
            return state.with_stage(replace(state.stages[self.stage], attach=None, wished=place)), ()
        if _waits(state, self.stage, self.parent):
            return state.with_stage(replace(state.stages[self.stage], attach=None, wished=place)), ()
        moved = replace(state.stages[self.stage], attach=place, wished=None)
        return settled(state.with_stage(moved)), ()


def users(state: ScheduleState, stage: str) -> set[str]:
    """Stages that read a stage, or that hold one that does (directly or further in)."""
    found = set(state.program.consumers[stage])
    grown = True
    while grown:
        hosts = {s.attach.stage for n, s in state.stages.items() if n in found and s.attach is not None}
        grown = not hosts <= found
        found |= hosts
    return found


def _later(state: ScheduleState, stage: str) -> set[str]:
    """The stages that read a stage through others which can all be computed somewhere else."""
    found: set[str] = set()
    left = [stage]
    while left:
        readers = state.program.consumers[left.pop()]
        if not all(isinstance(state.program[n], ComputeOp) for n in readers):
            return set()
        left += [n for n in readers if n not in found and n not in state.program.outputs]
        found.update(readers)
    return found - set(state.program.consumers[stage])


def _waits(state: ScheduleState, stage: str, parent: str) -> bool:
    """Whether a reader of a stage may still be computed where the parent is, and is not."""
    outside = [n for n in state.program.consumers[stage] if not _is_inside(state, n, parent)]
    return bool(outside) and all(_may_go_inside(state, n, parent) for n in outside)


def _may_go_inside(state: ScheduleState, stage: str, host: str) -> bool:
    """Whether a stage at the root is read by nobody but a host, and by what is inside it or may go there."""
    return (
        isinstance(state.program[stage], ComputeOp)
        and stage not in state.program.outputs
        and state.stages[stage].attach is None
        and all(_is_inside(state, n, host) or _may_go_inside(state, n, host) for n in state.program.consumers[stage])
    )


def settled(state: ScheduleState) -> ScheduleState:
    """The state with stages in the places that they wait for, as far as their readers are there."""
    for name, stage in state.stages.items():
        place = stage.wished
        readers = state.program.consumers[name]
        if place is not None and all(_is_inside(state, reader, place.stage) for reader in readers):
            state.leaf(place.stage, place.axis)
            return settled(state.with_stage(replace(stage, attach=place, wished=None)))
    return state


def _is_inside(state: ScheduleState, stage: str, host: str) -> bool:
    """Whether a stage is another one, or computed in its loops."""
    while stage != host:
        attach = state.stages[stage].attach if stage in state.stages else None
        if attach is None:
            return False
        stage = attach.stage
    return True


@primitive("compute_root")
@dataclass(frozen=True, slots=True)
class ComputeRoot(Primitive):
    """Compute a stage as a whole before its consumers: the default place.

    Rewrite: `for i_o: P[region of i_o]; C` -> `P; for i_o: C`.
    Legal when: always.
    Example:
        >>> from tensorlang import te
        >>> A = te.placeholder((100,), name="A")
        >>> B = te.compute((100,), lambda i: A[i] + 1, name="B")
        >>> C = te.compute((100,), lambda i: B[i] * 2, name="C")
        >>> s = te.create_schedule(C.op)
        >>> s[B].compute_at(s[C], "i")
        >>> s[B].compute_root()
    """

    stage: StageName

    def apply(self, state: ScheduleState) -> tuple[ScheduleState, Outputs]:
        return state.with_stage(replace(state.stage(self.stage), attach=None, wished=None)), ()


@primitive("set_scope")
@dataclass(frozen=True, slots=True)
class SetScope(Primitive):
    """Choose the memory that holds a stage: global, local (registers or stack), shared, or warp (registers of lanes).

    Rewrite: `allocate T in global` -> `allocate T in local`.
    Legal when: the stage is not an output; nor a state, if it is inside a scan.
    Example:
        >>> from tensorlang import te
        >>> A = te.placeholder((8,), name="A")
        >>> B = te.compute((8,), lambda i: A[i] + 1, name="B")
        >>> C = te.compute((8,), lambda i: B[i] * 2, name="C")
        >>> s = te.create_schedule(C.op)
        >>> s[B].set_scope("local")
    """

    stage: StageName
    scope: str

    def apply(self, state: ScheduleState) -> tuple[ScheduleState, Outputs]:
        require_scope(self.scope)
        host = None if self.stage in state.program.by_name else host_of(state.program.by_name, self.stage)
        if host is not None:
            return member_in_scope(state, host, self.stage, self.scope), ()
        require_internal(state, self.stage, "set_scope", self.text())
        return state.stored(self.stage, replace(state.stage(self.stage).storage, scope=self.scope)), ()


def require_scope(scope: str) -> None:
    """Refuse an unknown memory scope."""
    if scope not in SCOPES:
        raise BadArgument("", f"unknown scope {scope!r}; {nearest(str(scope), SCOPES)}")


@primitive("compute_inline")
@dataclass(frozen=True, slots=True)
class ComputeInline(Primitive):
    """Compute the elements of a stage where they are read, and store none of them.

    Rewrite: `P[i] = f(i); C[i] = g(P[i])` -> `C[i] = g(f(i))`.
    Legal when: the stage is no output, has no reduction, and has one value per element. A stage inside a scan is
    inlined there, if it is no state.
    Example:
        >>> from tensorlang import te
        >>> A = te.placeholder((100,), name="A")
        >>> B = te.compute((100,), lambda i: A[i] + 1, name="B")
        >>> C = te.compute((100,), lambda i: B[i] * 2, name="C")
        >>> s = te.create_schedule(C.op)
        >>> s[B].compute_inline()
    """

    stage: StageName

    def apply(self, state: ScheduleState) -> tuple[ScheduleState, Outputs]:
        host = None if self.stage in state.program.by_name else host_of(state.program.by_name, self.stage)
        if host is not None:
            return inline_member(state, host, self.stage), ()
        op = state.compute_op(self.stage)
        require_internal(state, self.stage, "compute_inline", self.text())
        if op.reduction is not None:
            raise BadArgument(
                "", f"{self.stage} is a reduction and must be stored", suggested=legal_places(state, self.stage)
            )
        if state.attached_to(self.stage):
            raise BadArgument("", f"{state.attached_to(self.stage)[0].name} is computed inside {self.stage}")
        changed: dict[str, Operation] = {}
        for user in state.program.consumers[self.stage]:
            consumer = state.program[user]
            if not isinstance(consumer, ComputeOp):
                raise BadArgument("", f"{user} is an extern stage and needs {self.stage} in memory")
            changed[user] = inline(consumer, op, state.sizes)
        program = state.program.replacing(changed).without(self.stage)
        stages = {name: s for name, s in state.stages.items() if name != self.stage}
        return settled(replace(state, program=program, stages=stages)), ()


def inline(reader: ComputeOp, op: ComputeOp, sizes: frozenset[str]) -> ComputeOp:
    """Replace every load of an operation's outputs by its body at that element.

    An index that is checked at run time must stay within the operation's axes: outside them a read that fails the
    check takes the place of the body.
    """
    check_growth(reader, op)
    names = {b.name: k for k, b in enumerate(buffers(op))}
    checks = RuntimeChecks(reader, sizes)

    def rule(node: Expr) -> Expr | None:
        if not isinstance(node, Load) or node.buffer.name not in names:
            return None
        at = {a.name: i for a, i in zip(op.axes, node.index, strict=True)}
        value = substitute(op.body[names[node.buffer.name]], at)
        for condition in op.where:
            value = Select(substitute(condition, at), value, _zero(value), value.dtype)
        outside = _failing(node, reader, names) if node in checks else None
        return value if outside is None else select(inside(node, op), value, cast(outside, value.dtype))

    return replace(reader, body=within_bounds(reader, op.name, tuple(rewrite(b, rule) for b in reader.body)))


def _failing(load: Load, reader: ComputeOp, inlined: Mapping[str, int]) -> Expr | None:
    """A read out of bounds of an array that a reader goes on reading, preferably one that the index depends on."""
    found = [n for e in (*load.index, *reader.body) for n in walk(e) if isinstance(n, Load)]
    other = next((n.buffer for n in found if n.index and n.buffer.name not in inlined), None)
    return None if other is None else Load(other, (const(-1),) * len(other.shape))


def _zero(value: Expr) -> Expr:
    return const(0, value.dtype)
