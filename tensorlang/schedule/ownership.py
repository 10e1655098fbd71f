"""Which stage an axis object belongs to: a name means an axis of the stage that is asked, an object only itself."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence

from tensorlang.dataclass import dataclass
from tensorlang.errors import BadArgument
from tensorlang.te.axis import Axis
from tensorlang.te.operation import ComputeOp, ExternOp, HybridOp, Operation, PlaceholderOp, Tensor
from tensorlang.te.program import Program


@dataclass(frozen=True, slots=True)
class Owner:
    """The stage whose loop an axis is, and the operations that its schedule was made for."""

    stage: str
    asked: tuple[Operation, ...]


def owned(axis: Axis, stage: str, asked: tuple[Operation, ...]) -> Axis:
    """An axis as the stage of a schedule hands it out."""
    return Axis(axis.name, axis.extent, axis.kind, axis.lower, axis.thread, Owner(stage, asked))


class Declared:
    """The axes of operations as users declare them, by identity: one may stand in several operations."""

    def __init__(self, ends: Iterable[Operation | Tensor], names: dict[int, str]) -> None:
        self._found: dict[int, set[str]] = {}
        self._renamed: dict[int, str] = {}
        self.operations: dict[str, Operation] = {}  # by the names of their stages
        seen: set[int] = set()
        pending = [end.op if isinstance(end, Tensor) else end for end in ends]
        while pending:
            op = pending.pop()
            if id(op) not in seen:
                seen.add(id(op))
                name = names.get(id(op), op.name)
                self.operations[name] = op
                self._note(op, name)
                pending += [tensor.op for tensor in op.input_tensors if isinstance(tensor, Tensor)]

    def _note(self, op: Operation, stage: str) -> None:
        for axis in _axes(op):
            self._found.setdefault(id(axis), set()).add(stage)
            if axis.declared is not None:
                self._found.setdefault(id(axis.declared), set()).add(stage)
                self._renamed[id(axis.declared)] = axis.name

    def name(self, axis: Axis) -> str:
        """The name that an axis has in its operation: another one where two were declared with one name."""
        return self._renamed.get(id(axis), axis.name)

    def stages(self, axis: Axis) -> set[str]:
        """The stages whose operations have the axis."""
        return self._found.get(id(axis), set())


def owners(axis: Axis, asked: tuple[Operation, ...], declared: Declared, program: Program) -> set[str] | None:
    """The stages that an axis object belongs to; None when it is of another program or schedule."""
    if isinstance(axis.owner, Owner):
        other = axis.owner.asked
        same = len(other) == len(asked) and all(a is b for a, b in zip(asked, other, strict=True))
        return {axis.owner.stage} if same else None
    now = {op.name for op in program.ops if any(a is axis for a in _axes(op))}
    return declared.stages(axis) | now or None


def _axes(op: Operation) -> Iterator[Axis]:
    """The axes of an operation, and of those that run inside it; of a scan also time."""
    several: tuple[Operation, ...] = (op, *(m.op for m in op.members)) if isinstance(op, HybridOp) else (op,)
    for own in several:
        yield from (*own.axis, *own.reduce_axis)
    if isinstance(op, HybridOp) and op.time is not None:
        yield op.time


def is_of(stage: str, found: Iterable[str], merged: Collection[str] = ()) -> bool:
    """Whether one of some stages is this one, or one that it was made from, by cache_write or rfactor, or `merged`."""
    return any(o == stage or stage.startswith(f"{o}.") or o in merged for o in found)


def foreign(axis: Axis, stage: str, found: Iterable[str] | None, own: Sequence[str]) -> BadArgument:
    """The error for an axis object of somebody else."""
    whose = f"{axis.name} is an axis of {', '.join(sorted(found))}" if found else f"{axis.name} is no axis of s"
    wanted = (
        f", and one of {stage} is wanted: {', '.join(own)}, as an object of s[{stage!r}], or by name" if stage else ""
    )
    return BadArgument("", f"{whose}{wanted}")


def is_operation(key: object) -> bool:
    """Whether a key of a schedule is an operation."""
    return isinstance(key, PlaceholderOp | ComputeOp | ExternOp | HybridOp)


def came_from(op: Operation, known: Iterable[Operation]) -> bool:
    """Whether an operation is one of some, or one that they read."""
    seen: set[int] = set()
    pending = list(known)
    while pending:
        one = pending.pop()
        if one is op:
            return True
        if id(one) not in seen:
            seen.add(id(one))
            pending += [tensor.op for tensor in one.input_tensors if isinstance(tensor, Tensor)]
    return False
