"""A program, or a part of it, under the names of another one of the same form."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from tensorlang.dataclass import dataclass
from tensorlang.ir.expr import Buffer, Expr, Load, Var, rewrite
from tensorlang.ir.stmt import For, Stmt, map_children, map_exprs, with_buffers
from tensorlang.te.axis import Axis
from tensorlang.te.forms import Form, OpForm, form_of
from tensorlang.te.operation import ComputeOp, HybridOp, Operation, PlaceholderOp, Reduce, buffers
from tensorlang.te.program import Program


def under_names_of(other: Form, program: Program, pairs: Mapping[str, str]) -> Program:
    """The operations of a program that those of another stand for (`pairs`: theirs to ours), under the other's names.

    Where an input of the other stands for an operation that is computed here, it becomes an input.
    """
    theirs = {ours: other.by_name[name] for name, ours in pairs.items()}
    form, arrays = form_of(program.text), dict[str, Buffer]()
    made: list[Operation] = []
    for op in program.ops:
        if op.name in theirs:
            made.append(_renamed(op, form.by_name[op.name], theirs[op.name], arrays))
            arrays |= zip((b.name for b in buffers(op)), buffers(made[-1]), strict=True)
    whole = all(name in theirs for name in program.outputs)
    return Program(tuple(made), tuple(theirs[n].name for n in program.outputs) if whole else other.outputs)


def _renamed(op: Operation, ours: OpForm, theirs: OpForm, arrays: Mapping[str, Buffer]) -> Operation:
    if theirs.is_input:
        (made,) = buffers(op)
        return PlaceholderOp(theirs.name, made.shape, made.dtype)
    axes = dict(zip(ours.axes, theirs.axes, strict=True))
    own = dict(zip(ours.named("own"), theirs.named("own"), strict=True))
    names = _Names(axes, own, arrays)
    match op:
        case ComputeOp():
            spatial, reduced = (tuple(map(names.axis, old)) for old in (op.axes, op.reduce_axes))
            body, where = (tuple(map(names.expr, old)) for old in (op.body, op.where))
            return replace(op, name=theirs.name, axes=spatial, reduce_axes=reduced, body=body, where=where)
        case HybridOp():
            return names.hybrid(replace(op, name=theirs.name))
    return replace(op, name=theirs.name)


@dataclass(frozen=True, slots=True)
class _Names:
    """New names in one operation: of its axes, of its own arrays; and the arrays of others by their old names."""

    axes: Mapping[str, str]
    own: Mapping[str, str]
    arrays: Mapping[str, Buffer]

    def loop(self, name: str) -> str:
        return self.axes.get(name, name)

    def axis(self, old: Axis) -> Axis:
        return replace(old, name=self.loop(old.name))

    def buffer(self, old: Buffer) -> Buffer:
        return replace(old, name=self.own[old.name]) if old.name in self.own else self.arrays[old.name]

    def expr(self, old: Expr) -> Expr:
        return rewrite(old, self._node)

    def _node(self, node: Expr) -> Expr | None:
        match node:
            case Var():
                return Var(self.loop(node.name), node.dtype)
            case Load():
                return Load(self.buffer(node.buffer), node.index)
            case Reduce():
                return replace(node, axes=tuple(map(self.axis, node.axes)))
        return None

    def _stmt(self, old: Stmt) -> Stmt:
        made = map_children(old, self._stmt)
        if not isinstance(made, For):
            return made
        return replace(made, var=Var(self.loop(made.var.name), made.var.dtype), axis=self.loop(made.axis))

    def hybrid(self, op: HybridOp) -> HybridOp:
        """A hybrid operation; its array of another operation that it updates begins as what that is called now."""
        loops = map_exprs(op.body, lambda e: rewrite(e, lambda n: self._node(n) if isinstance(n, Var) else None))
        return replace(
            op,
            outputs=tuple(map(self.buffer, op.outputs)),
            updates=tuple(self.buffer(b) if isinstance(b, Buffer) else b for b in op.updates),
            body=with_buffers(self._stmt(loops), self.buffer),
            axes=tuple(map(self.axis, op.axes)),
            members=tuple(
                replace(
                    member,
                    loops={name: self.loop(loop) for name, loop in member.loops.items()},
                    arrays=tuple(self.own[array] for array in member.arrays),
                )
                for member in op.members
            ),
            time=None if op.time is None else self.axis(op.time),
        )
