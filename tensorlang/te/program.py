"""A program in canonical form: operations in order, keyed by unique names, bodies over buffers.

Canonical programs are what schedules transform and what logs name: equal text is equal meaning.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from tensorlang.errors import DefinitionError
from tensorlang.ir.expr import Buffer, Expr, Load, Var, rewrite, to_text, walk
from tensorlang.location import caller
from tensorlang.te.exact import exact
from tensorlang.te.operation import ComputeOp, ExternOp, Operation, PlaceholderOp, Read, Tensor, buffers


@dataclass(frozen=True)
class Program:
    """Operations, producers first, and the names of those that are outputs."""

    ops: tuple[Operation, ...]
    outputs: tuple[str, ...]

    def __getitem__(self, name: str) -> Operation:
        return self.by_name[name]

    @cached_property
    def by_name(self) -> dict[str, Operation]:
        """Operations by name."""
        return {op.name: op for op in self.ops}

    @cached_property
    def buffers(self) -> dict[str, Buffer]:
        """Buffers by name."""
        return {b.name: b for op in self.ops for b in buffers(op)}

    @cached_property
    def producer(self) -> dict[str, str]:
        """Buffer name -> name of the operation that writes it."""
        return {b.name: op.name for op in self.ops for b in buffers(op)}

    @cached_property
    def consumers(self) -> dict[str, tuple[str, ...]]:
        """Operation name -> names of the operations that read it, in program order."""
        found: dict[str, list[str]] = {op.name: [] for op in self.ops}
        for op in self.ops:
            for name in dict.fromkeys(self.producer[b] for b in read_buffers(op)):
                found[name].append(op.name)
        return {name: tuple(users) for name, users in found.items()}

    @cached_property
    def sizes(self) -> tuple[Var, ...]:
        """The symbolic sizes, in order of first use in shapes and bounds."""
        found: dict[str, Var] = {}
        for op in self.ops:
            bounds = [e for b in buffers(op) for e in b.shape]
            if isinstance(op, ComputeOp):
                bounds += [e for a in (*op.axes, *op.reduce_axes) for e in (a.lower, a.extent)]
            for expr in bounds:
                for node in walk(expr):
                    if isinstance(node, Var):
                        found.setdefault(node.name, node)
        return tuple(found.values())

    @cached_property
    def text(self) -> str:
        """The program as text: one line per operation. Equal text, equal program."""
        return "".join(f"{op_text(op)}\n" for op in self.ops) + f"return {', '.join(self.outputs)}\n"

    @cached_property
    def key(self) -> str:
        """A stable hash of the program: the workload key of tuning logs."""
        return hashlib.sha256(self.text.encode()).hexdigest()[:16]

    def replacing(self, changed: dict[str, Operation], before: dict[str, Sequence[Operation]] | None = None) -> Program:
        """Return the program with operations replaced by name, and new ones put in front of named ones."""
        ops: list[Operation] = []
        for op in self.ops:
            ops += (before or {}).get(op.name, ())
            ops.append(changed.get(op.name, op))
        return Program(tuple(ops), self.outputs)

    def without(self, name: str) -> Program:
        """Return the program without one operation (which nobody reads any more)."""
        return Program(tuple(op for op in self.ops if op.name != name), self.outputs)

    def fresh_name(self, wish: str) -> str:
        """Return `wish`, or `wish_1`, ... so that no operation has that name yet."""
        return unique(wish, self.by_name)


def unique(wish: str, taken: Iterable[str]) -> str:
    """Return `wish`, or `wish_1`, `wish_2`, ... whichever is not taken yet."""
    names, name, n = taken if isinstance(taken, set | dict) else set(taken), wish, 0
    while name in names:
        n += 1
        name = f"{wish}_{n}"
    return name


def read_buffers(op: Operation) -> tuple[str, ...]:
    """Names of the buffers that a canonical operation reads."""
    match op:
        case ComputeOp():
            names = [n.buffer.name for body in op.body for n in walk(body) if isinstance(n, Load)]
        case ExternOp():
            names = [b.name for b in op.inputs if isinstance(b, Buffer)]
        case PlaceholderOp():
            names = []
    return tuple(dict.fromkeys(names))


def op_text(op: Operation) -> str:
    """Return a canonical operation as one line of text."""
    match op:
        case PlaceholderOp():
            return f"input {buffers(op)[0]}"
        case ExternOp():
            inputs = ", ".join(b.name for b in op.inputs)
            return f"extern {', '.join(map(str, buffers(op)))} = {op.function.__qualname__}({inputs})"
        case ComputeOp():
            axes = ", ".join(f"{a.name} < {to_text(a.extent)}" for a in op.axes)
            where = "".join(f" where {to_text(w)}" for w in op.where)
            return f"{', '.join(map(str, buffers(op)))} [{axes}]{where} = {', '.join(to_text(b) for b in op.body)}"


def canonical(outputs: Sequence[Tensor | Operation]) -> tuple[Program, dict[int, str]]:
    """Return the program that computes `outputs`, and the name given to each user operation by its id."""
    for output in outputs:
        if not isinstance(output, Tensor | PlaceholderOp | ComputeOp | ExternOp):
            raise DefinitionError(f"expected tensors or their operations, got {output!r}", caller())
    roots: list[Operation] = [o.op if isinstance(o, Tensor) else o for o in outputs]
    ordered = _producers_first(roots)
    names: dict[int, str] = {}
    taken: set[str] = set()
    for key, op in ordered.items():
        names[key] = unique(op.name, taken)
        taken.add(names[key])
    made: dict[int, Operation] = {}
    for key, op in ordered.items():
        made[key] = _canonical_op(op, names[key], made)
    program = Program(tuple(made.values()), tuple(dict.fromkeys(names[id(op)] for op in roots)))
    _check_sizes(program)
    return program, names


def _producers_first(roots: Sequence[Operation]) -> dict[int, Operation]:
    """Every operation that the roots need, by its id, in depth-first order (chains may be thousands long)."""
    ordered: dict[int, Operation] = {}
    pending: list[tuple[Operation, bool]] = [(op, False) for op in reversed(roots)]
    while pending:
        op, inputs_done = pending.pop()
        if id(op) in ordered:
            continue
        if inputs_done:
            ordered[id(op)] = op
        else:
            pending.append((op, True))
            pending += [(t.op, False) for t in reversed(op.input_tensors)]
    return ordered


def _canonical_op(op: Operation, name: str, made: dict[int, Operation]) -> Operation:
    def buffer(tensor: Tensor) -> Buffer:
        return buffers(made[id(tensor.op)])[tensor.value_index]

    def rule(node: Expr) -> Expr | None:
        return Load(buffer(node.tensor), node.index) if isinstance(node, Read) else None

    match op:
        case PlaceholderOp():
            return replace(op, name=name)
        case ExternOp():
            return replace(op, name=name, inputs=tuple(buffer(t) if isinstance(t, Tensor) else t for t in op.inputs))
        case ComputeOp():
            axes = (*op.axes, *op.reduce_axes)
            return replace(op, name=name, body=tuple(exact(rewrite(b, rule), axes) for b in op.body))


def _check_sizes(program: Program) -> None:
    """Refuse an axis that has the name of a symbolic size: it would shadow it."""
    sizes = {v.name for v in program.sizes}
    for op in program.ops:
        if isinstance(op, ComputeOp):
            for axis in (*op.axes, *op.reduce_axes):
                if axis.name in sizes:
                    raise DefinitionError(
                        f"axis {axis.name} of {op.name} has the name of a symbolic size; rename one of them",
                        op.location,
                    )
