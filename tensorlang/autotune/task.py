"""A task: one program to tune for one target and one number of threads."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from tensorlang import topi
from tensorlang.autotune.files import load_function
from tensorlang.autotune.records.record import TuningRecord, WorkloadId
from tensorlang.errors import DefinitionError
from tensorlang.ir.expr import Binary, Call, Const, Expr, Load, Unary
from tensorlang.target import parse
from tensorlang.target.spec import Target
from tensorlang.te.operation import ComputeOp, ExternOp, HybridOp, PlaceholderOp, Reduce, Tensor
from tensorlang.te.program import Program, canonical

Argument = int | float | str


@dataclass(frozen=True, slots=True)
class Task:
    """What is tuned. `tensors` are the kernel's arguments, inputs first; `program` their canonical form."""

    workload: WorkloadId
    tensors: tuple[Tensor, ...]
    program: Program
    target: Target
    threads: int

    @property
    def outputs(self) -> tuple[Tensor, ...]:
        """The tensors that the kernel writes."""
        return tuple(t for t in self.tensors if not isinstance(t.op, PlaceholderOp))

    @property
    def inputs(self) -> tuple[Tensor, ...]:
        """The tensors that the kernel reads."""
        return tuple(t for t in self.tensors if isinstance(t.op, PlaceholderOp))

    def accepts(self, record: TuningRecord) -> bool:
        """True when a record measured this program on this machine's target with this many threads."""
        return (
            record.workload.key == self.workload.key
            and record.target == self.target.to_json()
            and record.threads == self.threads
        )


def create_task(
    name: str, args: Sequence[Argument], target: str | Target | None = None, threads: int | None = None
) -> Task:
    """Make a task by name.

    `name` is an operator of tensorlang.topi (`args`: its sizes, then optionally its dtype) or
    `path/to/file.py:function`, whose function is called with `args` and returns its tensors, inputs first.
    Raises DefinitionError for an unknown name, wrong sizes, or a program that cannot be tuned.
    """
    if ":" in name or name.endswith(".py"):
        tensors = load_function(name)(*args)
    else:
        sizes = [a for a in args if isinstance(a, int)]
        rest = [a for a in args if not isinstance(a, int)] or ["float32"]
        if len(rest) > 1 or not isinstance(rest[0], str):
            raise DefinitionError(f"{name} takes integer sizes and one dtype, got {tuple(args)}")
        tensors = topi.operator(name).tensors(sizes, rest[0])
        args = (*sizes, rest[0])
    return task_of(tensors, name, args, target, threads)


def task_of(
    tensors: Sequence[Tensor],
    name: str = "program",
    args: Sequence[Argument] = (),
    target: str | Target | None = None,
    threads: int | None = None,
) -> Task:
    """Make a task of tensors (inputs first, then outputs). Threads default to the target's cores."""
    checked = _check_tensors(tensors, name)
    program, _ = canonical([t for t in checked if not isinstance(t.op, PlaceholderOp)])
    _check_program(program, checked, name)
    machine = parse(target)
    team = machine.cores if threads is None else threads
    if team < 1:
        raise DefinitionError(f"threads must be at least 1, got {team}")
    machine = replace(machine, cores=team)
    workload = WorkloadId(
        name,
        tuple(args),
        program.key,
        tuple(f"{t.name}: {t.dtype}[{', '.join(map(str, t.shape))}]" for t in checked),
        checked[-1].dtype,
        count_operations(program),
    )
    return Task(workload, checked, program, machine, team)


def _check_tensors(tensors: Any, name: str) -> tuple[Tensor, ...]:
    if not isinstance(tensors, list | tuple) or not all(isinstance(t, Tensor) for t in tensors):
        raise DefinitionError(f"{name} must return a list of tensors (inputs, then outputs), got {tensors!r}")
    if all(isinstance(t.op, PlaceholderOp) for t in tensors):
        raise DefinitionError(f"{name} returned no computed tensor; return the inputs and then the outputs")
    return tuple(tensors)


def _check_program(program: Program, tensors: tuple[Tensor, ...], name: str) -> None:
    listed = {t.name for t in tensors}
    missing = [op.name for op in program.ops if isinstance(op, PlaceholderOp) and op.name not in listed]
    if missing:
        raise DefinitionError(f"{name} reads {', '.join(missing)} but does not return it among its tensors")
    if program.sizes:
        sizes = ", ".join(v.name for v in program.sizes)
        raise DefinitionError(f"{name} has symbolic sizes ({sizes}); tuning measures, so give it numbers")
    for op in program.ops:
        if isinstance(op, ExternOp):
            raise DefinitionError(f"{name} calls Python in {op.name}; an extern stage has no schedule to tune")
        if isinstance(op, HybridOp):
            raise DefinitionError(
                f"{name} has ordered statements in {op.name}; the tuner takes programs of te.compute only: schedule it "
                "by hand, or with s.auto_order()"
            )


def count_operations(program: Program) -> float:
    """Arithmetic operations of one run of the unscheduled program: operators, intrinsics, reduction steps.

    A program that only moves data counts the elements that it writes.
    """
    computed = [op for op in program.ops if isinstance(op, ComputeOp)]
    total = sum(_points(op) * _operations_of_point(op) for op in computed)
    return total or sum(_points(op) for op in computed)


def _points(op: ComputeOp) -> float:
    """Iterations of an operation, its reduction included."""
    reduce_axes = () if op.reduction is None else op.reduction.axes
    return float(math.prod(extent(a.extent) for a in (*op.axes, *reduce_axes)))


def _operations_of_point(op: ComputeOp) -> int:
    if op.reduction is None:
        return sum(map(_operations, op.body))
    return sum(map(_operations, (*op.reduction.sources, *op.reduction.reducer.result)))


def _operations(expr: Expr) -> int:
    """Arithmetic nodes of a value; index arithmetic inside loads does not count."""
    match expr:
        case Load():
            return 0
        case Reduce():
            return sum(map(_operations, expr.sources))
    return int(isinstance(expr, Binary | Unary | Call)) + sum(map(_operations, expr.children()))


def extent(expr: Expr) -> int:
    """The value of a constant extent."""
    if not isinstance(expr, Const):
        raise DefinitionError(f"tuning needs constant extents, got {expr}")
    return int(expr.value)
