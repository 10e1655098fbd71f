"""The statements of a scan: its first values, then in every time step its operations, producers first."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from tensorlang.dataclass import dataclass
from tensorlang.errors import DefinitionError
from tensorlang.ir.affine import add, affine, is_constant
from tensorlang.ir.construct import block
from tensorlang.ir.expr import Buffer, Const, Expr, Load, Select, Var, binary, same, to_text, walk
from tensorlang.ir.index import to_index
from tensorlang.ir.stmt import Allocate, Stmt
from tensorlang.location import Location
from tensorlang.te.axis import Axis
from tensorlang.te.define import known_sizes
from tensorlang.te.nests import Nests, Over, Place, guarded
from tensorlang.te.operation import ComputeOp, HybridOp, Member, Operation, Read, Reduce, Tensor
from tensorlang.te.program import producers_first, unique
from tensorlang.te.recurrence import check_one_value


@dataclass(frozen=True, slots=True)
class State:
    """One state of a scan: its first values, its later ones, and the placeholder that stands for it."""

    init: Tensor
    update: Tensor
    placeholder: Tensor


def scan_operation(
    name: str,
    states: tuple[State, ...],
    inputs: Sequence[Tensor],
    tag: str,
    attrs: Mapping[str, Any],
    where: Location,
) -> HybridOp:
    """Return the operation of a scan whose states fit together."""
    steps = _steps(name, states, {id(t.op) for t in inputs}, where)
    starts = _starts(states)
    _check_times(name, states, steps)
    return _Writer(name, states, starts, steps).operation(tag, attrs, where)


def _steps(name: str, states: Sequence[State], inputs: set[int], where: Location) -> list[ComputeOp]:
    """The operations of a time step: the updates, and what they need that depends on a state, or on earlier times."""
    held = {s.placeholder for s in states}
    dependent = _dependent([s.update.op for s in states], held, inputs)
    for s in states:
        if _dependent([s.init.op], held):
            raise DefinitionError(
                f"the init {s.init.name} of {name} depends on a state; it comes before all of them", where
            )
    updates = {id(s.update.op) for s in states}
    steps: list[ComputeOp] = []
    for op in producers_first([s.update.op for s in states]).values():
        if id(op) not in updates and id(op) not in dependent:
            continue
        if not isinstance(op, ComputeOp):
            raise DefinitionError(f"{op.name} depends on a state of {name}, so it must be a te.compute", where)
        if op.reduction is not None:
            check_one_value(op.reduction, op.name, op.location)
        time = states[0].placeholder.shape[0]
        if not op.axes or not same(to_index(op.axes[0].extent), to_index(time)):
            shape = ", ".join(to_text(e) for e in op.shape)
            raise DefinitionError(
                f"{op.name} depends on a state of {name}, so it runs in every time step: its first axis must be time, "
                f"of extent {to_text(time)}; its shape is ({shape})",
                op.location,
            )
        steps.append(op)
    return steps


def _dependent(roots: Sequence[Operation], held: set[Tensor], inputs: set[int] | None = None) -> set[int]:
    """Which of the operations that the roots need depend on one of these tensors, by id.

    Where `inputs` are given, one that is none of them and reads earlier times counts, too: it has no value at first.
    """
    found: set[int] = set()
    for key, op in producers_first(roots).items():
        early = inputs is not None and key not in inputs and isinstance(op, ComputeOp) and _looks_back(op)
        if early or any(t in held or id(t.op) in found for t in op.input_tensors):
            found.add(key)
    return found


def _looks_back(op: ComputeOp) -> bool:
    """Whether an operation over time reads what comes before it, whatever the time."""
    pending = list(op.body)
    while pending:
        node = pending.pop()
        if isinstance(node, Read) and node.index and op.axes:
            form = affine(node.index[0])
            behind = None if form is None else add(form, {op.axes[0].name: 1}, -1)
            if behind is not None and is_constant(behind) and behind.get("", 0) < 0:
                return True
        pending += [] if isinstance(node, Select) else node.children()
    return False


def _starts(states: Sequence[State]) -> list[ComputeOp]:
    """The inits that are computed inside the scan; others (inputs, reductions of tuples) are copied."""
    ops = {id(s.init.op): s.init.op for s in states}.values()
    return [op for op in ops if isinstance(op, ComputeOp) and (op.reduction is None or len(op.reduction.sources) == 1)]


def _reads(op: ComputeOp) -> Iterator[Read]:
    return (node for body in op.body for node in walk(body) if isinstance(node, Read))


def _check_times(name: str, states: Sequence[State], steps: Sequence[ComputeOp]) -> None:
    """Refuse a read of a state at the time that is being computed, or later."""
    update = {s.placeholder: s.update for s in states}
    for op in steps:
        for read in _reads(op):
            if read.tensor not in update:
                continue
            form = affine(read.index[0])
            ahead = None if form is None else add(form, {op.axes[0].name: 1}, -1)
            if ahead is not None and is_constant(ahead) and ahead.get("", 0) >= 0:
                raise DefinitionError(
                    f"{op.name} reads the state {read} of {name}, which is not computed before it; "
                    f"read an earlier time, or {update[read.tensor].name} instead of the state",
                    op.location,
                )


class _Writer:
    def __init__(
        self, name: str, states: tuple[State, ...], starts: Sequence[ComputeOp], steps: Sequence[ComputeOp]
    ) -> None:
        self.name = name
        self.states = states
        self.starts = starts
        self.steps = steps
        self.members: list[Member] = []
        self.computed = {s.init: k for k, s in reversed(list(enumerate(states))) if s.init.op in starts}
        members = [*starts, *steps]
        shape = states[0].placeholder.shape
        inner = {a.name for op in members for a in (*op.axes[1:], *op.reduce_axes)}
        sizes = {n for op in (*members, *(s.placeholder.op for s in states)) for n in known_sizes(op)}
        self.first = states[0].init.shape[0]
        time = unique(states[0].update.op.axis[0].name, {*inner, *sizes})
        self.time = Axis(time, binary("sub", shape[0], self.first), lower=self.first)
        names = [name] if len(states) == 1 else [f"{name}.v{k}" for k in range(len(states))]
        self.outputs = tuple(
            Buffer(n, s.placeholder.shape, s.placeholder.dtype) for n, s in zip(names, states, strict=True)
        )
        own = frozenset({*inner, *(op.axes[0].name for op in members)})
        self.nests = Nests({*sizes, time, *names}, reserved=own)
        self.kept: dict[Tensor, Buffer] = {}
        self.passing: dict[Tensor, Buffer] = {}
        self._declare()

    def operation(self, tag: str, attrs: Mapping[str, Any], where: Location) -> HybridOp:
        """All statements: arrays that only serve one time step are new in each."""
        step: Stmt = block([self._nest(op, self.time.name, self.nests.places) for op in self.steps])
        first = [self._start(op) for op in self.starts]
        copied = [self._copy(k) for k in range(len(self.states)) if k not in self.computed.values()]
        for buffer in reversed(self.passing.values()):
            step = Allocate(buffer, step)
        over = Over((self.time,), {self.time.name: self.time.name})
        body: Stmt = block([*first, *copied, self.nests.around([self.time], over, step)])
        for buffer in reversed(self.kept.values()):
            body = Allocate(buffer, body)
        return HybridOp(
            self.name, self.outputs, body, (None,) * len(self.outputs), tag, where, attrs,
            members=tuple(self.members), time=self.time,
        )  # fmt: skip

    def _declare(self) -> None:
        """Where every tensor of a time step is: in a state, in an array of the step, or in one over all times."""
        places: dict[Tensor, Place] = {}
        for s, output in zip(self.states, self.outputs, strict=True):
            places[s.placeholder] = places[s.update] = _whole(output)
        elsewhere = {t for op in self.steps for read in _reads(op) if not _now(op, read) for t in (read.tensor,)}
        made = {id(op) for op in self.steps}
        for tensor in dict.fromkeys(read.tensor for op in self.steps for read in _reads(op)):
            if tensor in places or id(tensor.op) not in made:
                continue
            name = self.nests.fresh(tensor.name)
            if tensor in elsewhere:
                self.kept[tensor] = Buffer(name, tensor.shape, tensor.dtype)
                places[tensor] = _whole(self.kept[tensor])
            else:
                self.passing[tensor] = Buffer(name, tensor.shape[1:], tensor.dtype)
                places[tensor] = _one_step(self.passing[tensor])
        self.nests.places = places

    def _start(self, op: ComputeOp) -> Stmt:
        """The first values that one operation computes, as far as there are time steps."""
        axis, time = op.axes[0], self.nests.fresh(op.axes[0].name)
        over = Over((axis,), {axis.name: time})
        targets = {init: _whole(self.outputs[k]) for init, k in self.computed.items()}
        return self.nests.around([axis], over, self._nest(op, time, targets, self._in_time(over.index(axis))))

    def _in_time(self, time: Var) -> tuple[Expr, ...]:
        steps = self.states[0].placeholder.shape[0]
        known = isinstance(self.first, Const) and isinstance(steps, Const)
        return () if known else (binary("lt", time, to_index(steps)),)

    def _copy(self, k: int) -> Stmt:
        """The first values of a state, from an array."""
        state, output = self.states[k], self.outputs[k]
        names = (a.name for a in state.update.op.axis)
        axes = tuple(Axis(n, e) for n, e in zip(names, state.init.shape, strict=True))
        over = self.nests.inside(Over((), {}), axes)
        at = tuple(over.index(a) for a in axes)
        store = self.nests.pointwise(Read(state.init, tuple(a.var for a in axes)), over, Load(output, at))
        return self.nests.around(axes, over, guarded(self._in_time(at[0]), store))

    def _nest(
        self, op: ComputeOp, time: str, targets: Mapping[Tensor, Place], conditions: tuple[Expr, ...] = ()
    ) -> Stmt:
        """The loops of one operation inside a loop over time."""
        over = self.nests.inside(Over(op.axes[:1], {op.axes[0].name: time}), op.axes[1:])
        inner = self.nests.inside(over, op.reduce_axes)
        at = tuple(over.index(a) for a in op.axes)
        places = [targets.get(op.output(k)) for k in range(op.num_outputs)]
        made = [(place(at), part) for place, part in zip(places, op.body, strict=True) if place is not None]
        stores = [
            self.nests.reduction(part, over, inner, target)
            if isinstance(part, Reduce)
            else self.nests.pointwise(part, over, target)
            for target, part in made
        ]
        self.members.append(Member(op, dict(inner.loops), tuple(target.buffer.name for target, _ in made)))
        return self.nests.around(op.axes[1:], over, guarded(conditions, block(stores)))


def _now(op: ComputeOp, read: Read) -> bool:
    """Whether a read is of the time step that is being computed."""
    first = read.index[0] if read.index else None
    return isinstance(first, Var) and first.name == op.axes[0].name


def _whole(buffer: Buffer) -> Place:
    return lambda index: Load(buffer, index)


def _one_step(buffer: Buffer) -> Place:
    return lambda index: Load(buffer, index[1:])
