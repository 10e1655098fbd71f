"""Reads that a kernel checks at run time, for the steps that rewrite what is read."""

from __future__ import annotations

from functools import partial, reduce

from tensorlang.ir.expr import Const, Expr, Load, binary, to_text, walk
from tensorlang.polyhedral.extract import tested
from tensorlang.te.operation import ComputeOp


class RuntimeChecks:
    """The loads of an operation whose bounds are not proven: the index reads memory, or is not affine."""

    def __init__(self, reader: ComputeOp, sizes: frozenset[str]) -> None:
        start = () if reader.reduction is None else reader.reduction.start()
        found = (*tested(reader, sizes, reader.body), *tested(reader, sizes, start))
        self.texts = {to_text(load) for load, _ in found}

    def __contains__(self, load: Load) -> bool:
        """Whether a load is one of them. One that has been rewritten inside still reads memory there."""
        return to_text(load) in self.texts or any(
            isinstance(node, Load) for index in load.index for node in walk(index)
        )


def inside(load: Load, op: ComputeOp) -> Expr:
    """Whether an index lies within the axes of the operation that is read."""
    pairs = [(i, a.extent) for a, i in zip(op.axes, load.index, strict=True)]
    tests = [t for i, n in pairs for t in (binary("ge", i, 0), binary("lt", i, n))]
    return reduce(partial(binary, "and"), tests) if tests else Const(True, "bool")
