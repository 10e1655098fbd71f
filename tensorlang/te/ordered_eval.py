"""The reference of hybrid operations: their loops are run as they are declared, and counted."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from tensorlang import dtypes
from tensorlang.ir.expr import Call, Load, Var, walk
from tensorlang.ir.extremes import extreme
from tensorlang.ir.interpret import run
from tensorlang.ir.stmt import INDEX, Allocate, For, Kernel, Seq, Stmt, Store, children, map_children, stmt_exprs, zeros
from tensorlang.te.numpy_eval import extent
from tensorlang.te.operation import HybridOp, buffers, constant
from tensorlang.te.program import read_buffers

Array = npt.NDArray[Any]


def run_hybrid(op: HybridOp, arrays: Mapping[str, Array], sizes: Mapping[str, int]) -> dict[str, Array]:
    """Return the outputs of a canonical hybrid operation by buffer name.

    An output that updates an array begins as a copy of it; any other as zeros.
    """
    made: dict[str, Array] = {}
    for buffer, old in zip(buffers(op), op.updates, strict=True):
        shape = [max(0, extent(e, sizes)) for e in buffer.shape]
        made[buffer.name] = np.zeros(shape, dtypes.info(buffer.dtype).numpy) if old is None else arrays[old.name].copy()
    replaced = {b.name for b in op.updates if b is not None}
    inputs = [n for n in read_buffers(op) if n not in replaced or _is_read(op, n)]
    from_outside = {n.buffer.name: n.buffer for n in _loads(op)}
    params = tuple(from_outside[n] for n in inputs) + buffers(op)
    held = {n: arrays[n] for n in inputs} | made
    kernel = Kernel(op.name, params, tuple(Var(n, INDEX) for n in sizes), tuple(made), _from_zeros(op.body))
    run(kernel, held, sizes)
    return made


def _from_zeros(stmt: Stmt) -> Stmt:
    """The statement with every array that it allocates beginning as zeros, as in plain Python."""
    stmt = map_children(stmt, _from_zeros)
    return Allocate(stmt.buffer, Seq((zeros(stmt.buffer), stmt.body))) if isinstance(stmt, Allocate) else stmt


def _loads(op: HybridOp) -> Iterator[Load]:
    for expr in stmt_exprs(op.body):
        yield from (n for n in walk(expr) if isinstance(n, Load))


def _is_read(op: HybridOp, name: str) -> bool:
    return any(n.buffer.name == name for n in _loads(op))


def longest_chain(op: HybridOp, sizes: Mapping[str, int]) -> tuple[int, float]:
    """The largest number of runs of a statement, and the roundings of one run, for sizes given as numbers."""
    runs, inside = 1, 1.0

    def visit(stmt: Stmt, around: dict[str, tuple[int, int]], count: int) -> None:
        nonlocal runs, inside
        match stmt:
            case For():
                lows, highs = _ends(stmt, around, sizes)
                trip = max(0, highs - lows)
                visit(stmt.body, {**around, stmt.var.name: (lows, max(lows, highs - 1))}, count * trip)
            case Store():
                runs = max(runs, count)
                nodes = [n for n in walk(stmt.value) if n.children()]
                inside = max(inside, sum(8.0 if isinstance(n, Call) else 1.0 for n in nodes))
            case _:
                for child in children(stmt):
                    visit(child, around, count)

    visit(op.body, {}, 1)
    return runs, inside


def _ends(loop: For, around: Mapping[str, tuple[int, int]], sizes: Mapping[str, int]) -> tuple[int, int]:
    """The least lower and the greatest upper bound of a loop."""
    ends = {name: (constant(low), constant(high)) for name, (low, high) in around.items()}
    low, high = extreme(loop.lower, ends, False), extreme(loop.upper, ends, True)
    return extent(low, sizes), extent(high, sizes)
