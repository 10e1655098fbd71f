"""The way back through a recurrence: its adjoint is a recurrence too, from the end to the beginning."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tensorlang.dataclass import dataclass
from tensorlang.ir.affine import affine
from tensorlang.ir.expr import Expr, Load, Var, const, rewrite, select, substitute, walk
from tensorlang.te.autodiff.space import Space
from tensorlang.te.autodiff.terms import terms
from tensorlang.te.axis import Axis
from tensorlang.te.operation import ComputeOp, HybridOp, Read, Tensor
from tensorlang.te.recurrence import only_store, recurrence


@dataclass(frozen=True, slots=True)
class Recurrent:
    """A recurrence along one dimension of its result, as a compute that reads this result."""

    result: Tensor
    op: ComputeOp
    dimension: int

    @property
    def axis(self) -> Axis:
        """The axis along which it runs."""
        return self.op.axes[self.dimension]


def recurrent_of(op: HybridOp) -> Recurrent | None:
    """A recurrence of one value that reads itself at constant distances along one axis; None for anything else."""
    store = only_store(op)
    if store is None or len(op.outputs) > 1 or op.updates[0] is not None:
        return None
    result = op.output(0)

    def own(node: Expr) -> Expr | None:
        return Read(result, node.index) if isinstance(node, Load) and node.buffer.name == store.buffer.name else None

    body = rewrite(store.value, own)
    reads = [node for node in walk(body) if isinstance(node, Read) and node.tensor == result]
    along = {d for read in reads for d, _ in distances(read, op.axes)}
    if len(along) != 1 or any(len(distances(read, op.axes)) != 1 for read in reads):
        return None
    compute = ComputeOp(op.name, op.axes, (), (body,), tag="", attrs={}, location=op.location)
    return Recurrent(result, compute, along.pop())


def distances(read: Read, axes: Sequence[Axis]) -> list[tuple[int, int]]:
    """The dimensions in which a read lies before the axes of its own, and how far; none where it is not constant."""
    found = list[tuple[int, int]]()
    for d, (index, axis) in enumerate(zip(read.index, axes, strict=True)):
        form = affine(index)
        if form is None or {**form, "": 0} != {axis.name: 1, "": 0}:
            return []
        if before := -form.get("", 0):
            found.append((d, before))
    return found


def adjoint_from_the_end(recurrent: Recurrent, prefix: Sequence[Axis], given: Expr, name: str) -> Tensor:
    """The adjoints of a recurrence's elements, the last one first: what readers give, and what later elements do.

    `given` is the former over the prefix and the axes of the recurrence.
    """
    op, result, place = recurrent.op, recurrent.result, len(prefix) + recurrent.dimension
    own = Var("@adjoint", result.dtype)
    later = terms(op.body[0], own, (), result.__eq__)
    axes, space = (*prefix, *op.axes), Space()
    for axis in axes:
        space.declare(axis.name, axis.lower, axis.extent)

    def element(self: Any, *index: Expr) -> Expr:
        turned, here = index[place], dict(zip((axis.name for axis in axes), index, strict=True))
        last = recurrent.axis.extent - 1 - turned
        total = substitute(given, {**here, recurrent.axis.name: last})
        for term in later:
            ((_, before),) = distances(term.read, op.axes)
            there = {**here, recurrent.axis.name: last + before}
            other = self[(*index[:place], turned - before, *index[place + 1 :])]
            value = substitute(term.adjoint, {**there, own.name: other})
            held = [c for c in (substitute(c, there) for c in term.conditions) if space.decide(c) is not True]
            for condition in reversed(held):
                value = select(condition, value, const(0, value.dtype))
            total = select(turned >= before, total + value, total)  # a running sum is one again
        return total

    made = recurrence(
        [axis.extent for axis in axes],
        element,
        name=name,
        dtype=result.dtype,
        varargs_names=[axis.name for axis in axes],
    )
    assert isinstance(made, Tensor)
    return made
