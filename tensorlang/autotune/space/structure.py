"""What the rules of a search space see of a program: its stages as axes, extents and accesses."""

from __future__ import annotations

from dataclasses import dataclass

from tensorlang import dtypes
from tensorlang.autotune.model.nest import Access
from tensorlang.autotune.task import Task, count_operations, extent
from tensorlang.ir.affine import affine
from tensorlang.ir.expr import Buffer, Expr, Var, walk
from tensorlang.te.operation import ComputeOp, buffers, loads
from tensorlang.te.program import Program


@dataclass(frozen=True, slots=True)
class Stage:
    """One compute operation: spatial and reduce axes with constant extents, and its accesses, output first."""

    op: ComputeOp
    spatial: tuple[str, ...]
    reduce: tuple[str, ...]
    extents: dict[str, int]
    accesses: tuple[Access, ...]
    operations: float
    bits: int

    @property
    def output(self) -> Access:
        return self.accesses[0]

    @property
    def reads(self) -> tuple[Access, ...]:
        """Accesses that read, each array and index once."""
        return tuple(a for a in self.accesses if not a.write)


def stages_of(task: Task) -> tuple[Stage, ...]:
    """The compute stages of a task's program, producers first."""
    return tuple(_stage(op) for op in task.program.ops if isinstance(op, ComputeOp))


def heaviest(stages: tuple[Stage, ...]) -> Stage:
    """The stage with the most operations; the last of equals."""
    return max(reversed(stages), key=lambda s: s.operations)


def _stage(op: ComputeOp) -> Stage:
    reduction = op.reduction
    reduce_axes = () if reduction is None else reduction.axes
    extents = {a.name: extent(a.extent) for a in (*op.axes, *reduce_axes)}
    written = buffers(op)[0]
    own = tuple(Var(a.name) for a in op.axes)
    accesses = [_access(written, own, extents, write=True)]
    for load in loads(op):
        access = _access(load.buffer, load.index, extents)
        if access not in accesses:
            accesses.append(access)
    operations = count_operations(Program((op,), (op.name,)))
    spatial = tuple(a.name for a in op.axes)
    bits = dtypes.info(op.dtype).bits
    return Stage(op, spatial, tuple(a.name for a in reduce_axes), extents, tuple(accesses), operations, max(8, bits))


def _access(buffer: Buffer, index: tuple[Expr, ...], extents: dict[str, int], write: bool = False) -> Access:
    dims = tuple(_terms(i, extents) for i in index)
    shape = tuple(extent(n) for n in buffer.shape)
    return Access(buffer.name, dtypes.info(buffer.dtype).bytes, shape, dims, write)


def _terms(index: Expr, extents: dict[str, int]) -> tuple[tuple[str, int], ...]:
    """The axes of an index with their coefficients; of a quasi-affine or data-dependent one, with one each."""
    form = affine(index)
    if form is None:
        names = dict.fromkeys(n.name for n in walk(index) if isinstance(n, Var))
        return tuple((name, 1) for name in names if name in extents)
    return tuple((name, coefficient) for name, coefficient in form.items() if name in extents)
