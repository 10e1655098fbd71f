"""Programs as they were before products in them were laid out for a CPU: what a GPU is given.

`topi.matmul` of narrow elements declares a product for the dot instructions of the target in use, this machine's CPU
outside of one. Its last stage keeps the product as it is, as its attribute `PLAIN`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tensorlang.ir.expr import Expr, rewrite
from tensorlang.schedule import Schedule, create_schedule
from tensorlang.te.operation import ComputeOp, Operation, Read, Tensor
from tensorlang.te.program import producers_first

PLAIN = "plain"
"""The attribute of a product that was laid out: its operation with factors as they were given."""


def schedule_of_plain(outputs: Sequence[Tensor]) -> Schedule:
    """The default schedule of a program whose products are as they were given, under the names that they have.

    Tensors of the program that was declared name the stages that took their place. A product stays laid out where
    something else than te.compute reads it.
    """
    roots = [tensor.op for tensor in outputs]
    made: dict[int, Operation] = {}
    ordered = producers_first(roots)
    for key, op in ordered.items():
        new = _without_layout(op, made)
        if new is None:
            return create_schedule(list(outputs))
        made[key] = new
    s = create_schedule([Tensor(made[id(t.op)], t.value_index) for t in outputs])
    taken = [(op, made[key]) for key, op in ordered.items() if made[key] is not op]
    s.stand_for([(old, new) for old, new in taken if new.name in s.program.by_name], roots)
    return s


def _without_layout(op: Operation, made: dict[int, Operation]) -> Operation | None:
    """An operation over the new ones of those that it reads; None where that cannot be said."""
    given = op.attrs.get(PLAIN, op) if isinstance(op, ComputeOp) else op
    if all(made.get(id(tensor.op), tensor.op) is tensor.op for tensor in given.input_tensors):
        return given
    if not isinstance(given, ComputeOp):
        return None

    def rule(node: Expr) -> Expr | None:
        if not isinstance(node, Read):
            return None
        return Read(Tensor(made.get(id(node.tensor.op), node.tensor.op), node.tensor.value_index), node.index)

    return replace(given, body=tuple(rewrite(body, rule) for body in given.body))
