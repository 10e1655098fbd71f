"""Schedules of whole programs: every operator of the library by its rule, what follows it fused into its tile."""

from __future__ import annotations

from collections.abc import Sequence, Set
from math import prod

from tensorlang.ir.expr import Load, Var, walk
from tensorlang.schedule import Schedule, create_schedule
from tensorlang.schedule.history import best_if_any
from tensorlang.target import parse
from tensorlang.target.spec import Target
from tensorlang.te.operation import ComputeOp, Tensor
from tensorlang.te.program import Program
from tensorlang.topi.elementwise import schedule_elementwise
from tensorlang.topi.gpu import table as gpu
from tensorlang.topi.gpu.elementwise import schedule_points
from tensorlang.topi.gpu.transpose import schedule_elements
from tensorlang.topi.operator import Anchor, extent_of
from tensorlang.topi.plain import schedule_of_plain
from tensorlang.topi.table import RULES

_FEW = 2
"""As often an element may as well be computed as stored and read."""
_UNKNOWN = 64
"""Stands for an extent that is not known."""


def schedule(outputs: Tensor | Sequence[Tensor], target: str | Target | None = None, *, tuned: bool = True) -> Schedule:
    """Return a schedule for a program made of the library's operators (and of te.compute of your own).

    Every operator is scheduled by the rule of its family; elementwise stages that follow it (bias, activation,
    residual) are computed in its tile, other elementwise stages are inlined into their readers, unless a sum would then
    compute them again and again, and what is left gets parallel outer and vectorized inner loops. `target` gives vector
    width, caches and cores: this machine's by default. For a GPU (`"cuda"`, `"opencl"`) loops are bound to blocks and
    threads, by rules of their own (docs/design/022-gpu-operators.md); an operator that has none there is computed by a
    thread for each element.

    The rules give way to a tuned record of this program, or of its main group, for this target and number of threads,
    if there is one where records are in use (`autotune.apply_history_best`) or in the default store: the `origin` of
    the schedule names it. It is proven legal again, and skipped with a warning if it is not. `tuned=False` takes the
    rules in any case.

    Example:
        A, B = te.placeholder((64, 64), name="A"), te.placeholder((64, 64), name="B")
        s = topi.schedule(te.compute((64, 64), lambda i, j: te.max(topi.matmul(A, B)[i, j], 0.0), name="relu"))
    """
    wanted = list(outputs) if isinstance(outputs, Sequence) else [outputs]
    machine = parse(target)
    s = schedule_of_plain(wanted) if machine.can.device else create_schedule(wanted)
    known = best_if_any(s, machine, "topi.schedule") if tuned else None
    if known is not None:
        return known
    _apply_rules(s, machine)
    return s


def _apply_rules(s: Schedule, machine: Target) -> None:
    program, on_gpu = s.program, machine.can.device
    tags = {op.name: op.tag for op in program.ops if isinstance(op, ComputeOp) and op.tag in RULES}
    taken: set[str] = set()
    with s.proven_together("topi.schedule(...)"):
        for main, tag in tags.items():
            chain = elementwise_after(program, main, tags.keys() | taken)
            for name in chain[1:-1]:
                s[name].compute_inline()
            taken.update(chain)
            rule = gpu.RULES.get(tag, schedule_points) if on_gpu else RULES[tag]
            rule(s, Anchor(main, chain[-1], machine))
        schedule_others(s, taken, machine, program)


def schedule_others(s: Schedule, taken: Set[str], machine: Target, program: Program) -> None:
    """Inline the stages of a program that no rule has taken, or give them loops of their own."""
    for op in program.ops:
        if isinstance(op, ComputeOp) and op.name not in taken and _is_untouched(s, op.name):
            if is_elementwise(op) and op.name not in s.original.outputs and not _is_read_often(program, op):
                s[op.name].compute_inline()
            elif machine.can.device:
                schedule_elements(s, op.name, machine)
            else:
                schedule_elementwise(s, op.name, machine)


def _is_untouched(s: Schedule, name: str) -> bool:
    """Whether no rule has inlined a stage, computed it inside another, or shaped its loops."""
    stage = s.state.stages.get(name)
    return stage is not None and stage.attach is None and not stage.annotations


def _is_read_often(program: Program, op: ComputeOp) -> bool:
    """Whether a reduction reads the elements of a stage several times each."""
    readers = (program[name] for name in program.consumers[op.name])
    return any(isinstance(r, ComputeOp) and r.reduce_axes and _points(r) > _FEW * _points(op) for r in readers)


def _points(op: ComputeOp) -> int:
    return prod(extent_of(axis.extent) or _UNKNOWN for axis in (*op.axes, *op.reduce_axes))


def is_elementwise(op: ComputeOp) -> bool:
    """Whether a stage computes each element of one output without a reduction."""
    return not op.reduce_axes and op.num_outputs == 1 and not op.where


def elementwise_after(program: Program, main: str, others: Set[str]) -> list[str]:
    """A stage, and those that follow it one by one, read it at their own element only, and are none of others."""
    chain = [main]
    while chain[-1] not in program.outputs and len(program.consumers[chain[-1]]) == 1:
        (name,) = program.consumers[chain[-1]]
        op = program[name]
        if not isinstance(op, ComputeOp) or name in others or not is_elementwise(op) or not _own_element(op, chain[-1]):
            break
        chain.append(name)
    return chain


def _own_element(op: ComputeOp, producer: str) -> bool:
    """Whether a stage reads a producer of its own shape at its own element only."""
    loads = [n for n in walk(op.body[0]) if isinstance(n, Load) and n.buffer.name == producer]
    axes = [a.name for a in op.axes]
    return all([i.name if isinstance(i, Var) else "" for i in n.index] == axes for n in loads)
