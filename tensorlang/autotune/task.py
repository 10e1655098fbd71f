"""A task: one program to tune for one target and one number of threads."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from tensorlang import dtypes, topi
from tensorlang.autotune.arguments import Argument, meant, with_tensors
from tensorlang.autotune.devices import named_device
from tensorlang.autotune.files import load_function
from tensorlang.autotune.records.record import TuningRecord, WorkloadId
from tensorlang.dataclass import dataclass
from tensorlang.errors import DefinitionError, TensorlangError, shown
from tensorlang.ir.expr import Expr
from tensorlang.location import caller
from tensorlang.names import lookup
from tensorlang.polyhedral import ordered
from tensorlang.schedule import Schedule
from tensorlang.schedules.accesses import extent as extent
from tensorlang.schedules.accesses import operations, operations_of_point
from tensorlang.target import parse
from tensorlang.target.spec import Target
from tensorlang.te.declared import all_declared
from tensorlang.te.operation import ComputeOp, ExternOp, HybridOp, PlaceholderOp, Tensor
from tensorlang.te.program import Program, canonical
from tensorlang.topi.operator import Operator, Option


@dataclass(frozen=True, slots=True, repr=False)
class Task:
    """What is tuned. `tensors` are the kernel's arguments, inputs first; `program` their canonical form.

    `given` are the arrays of inputs that candidates are measured on, by their names; the others are drawn.
    """

    workload: WorkloadId
    tensors: tuple[Tensor, ...]
    program: Program
    target: Target
    threads: int
    given: Mapping[str, npt.NDArray[Any]] = field(default_factory=dict, compare=False)

    def __repr__(self) -> str:
        return f"Task({self.workload}, key={self.workload.key}, target={str(self.target)!r}, threads={self.threads})"

    @property
    def outputs(self) -> tuple[Tensor, ...]:
        """The tensors that the kernel writes."""
        return tuple(t for t in self.tensors if not isinstance(t.op, PlaceholderOp))

    @property
    def inputs(self) -> tuple[Tensor, ...]:
        """The tensors that the kernel reads."""
        return tuple(t for t in self.tensors if isinstance(t.op, PlaceholderOp))

    @property
    def in_place(self) -> tuple[int, ...]:
        """For each output the number of the input whose place in memory it takes; -1 for an array of its own."""
        return places_of(self.tensors)

    @property
    def overwritten(self) -> tuple[int, ...]:
        """The numbers of the inputs that a kernel changes: something takes their place in memory, an output or not."""
        roots = {root for name, (root, _) in self.program.storage.items() if root != name}
        return tuple(n for n, tensor in enumerate(self.inputs) if tensor.name in roots)

    def accepts(self, record: TuningRecord) -> bool:
        """True when a record measured this program, under these names, for this target with this many threads."""
        return (
            record.workload.key in self.program.keys
            and record.workload.program in ("", self.program.text)
            and record.target == self.target.to_json()
            and record.threads == self.threads
        )


def create_task(
    name: str, args: Sequence[Argument], target: str | Target | None = None, threads: int | None = None
) -> Task:
    """Make a task by name.

    `name` is an operator of tensorlang.topi (`args`: its sizes, then optionally its dtype and its options as text, such
    as `"stride=2"`) or `path/to/file.py:function`, whose function is called with `args` and returns its tensors, inputs
    first (a template returns a schedule and its tensors: the program alone counts here).
    Raises DefinitionError for an unknown name, wrong sizes, or a program that cannot be tuned.

        >>> from tensorlang import autotune
        >>> autotune.create_task("matmul", (64, 32, 16), threads=1).workload.args
        (64, 32, 16, 'float32')
    """
    if ":" in name or name.endswith(".py"):
        function = load_function(name)
        tensors = _without_schedule(function(*with_tensors(function, meant(args))))
    else:
        operator = topi.operator(name)
        sizes, dtype, options = _library_call(operator, args)
        tensors = operator.tensors(sizes, dtype, **options)
        args = (*sizes, dtype, *operator.write_options(options))
    return task_of(tensors, name, args, target, threads)


def task_of(
    tensors: Sequence[Tensor],
    name: str = "program",
    args: Sequence[Argument] = (),
    target: str | Target | None = None,
    threads: int | None = None,
) -> Task:
    """Make a task of tensors (inputs first, then outputs). Threads default to the target's cores.

    A target of a GPU names the device of this machine from then on, where it is here.

        >>> from tensorlang import autotune, te
        >>> x = te.placeholder((128,), name="x")
        >>> y = te.compute((128,), lambda i: x[i] * 2, name="y")
        >>> autotune.task_of([x, y], threads=1).inputs
        (Tensor(shape=[128], dtype=float32, name=x),)
    """
    checked, program = _named_apart(_check_tensors(tensors, name))
    _check_program(program, checked, name)
    machine = named_device(parse(target))
    team = machine.cores if threads is None else threads
    if not isinstance(team, int) or team < 1:
        raise DefinitionError(f"threads must be at least 1, got {shown(team)}")
    machine = replace(machine, cores=team)
    workload = WorkloadId(
        name,
        tuple(args),
        program.key,
        tuple(f"{t.name}: {t.dtype}[{', '.join(map(str, t.shape))}]" for t in checked),
        checked[-1].dtype,
        count_operations(program),
        program.text,
    )
    return Task(workload, checked, program, machine, team)


def given_inputs(task: Task, arrays: Mapping[str, Any]) -> dict[str, npt.NDArray[Any]]:
    """Arrays by the names of the inputs that they are for: those that their names end with, else those that they fit.

    DefinitionError for an array that is for no input.
    """
    found: dict[str, npt.NDArray[Any]] = {}
    for name, value in arrays.items():
        array = np.asarray(value.numpy() if hasattr(value, "numpy") else value)
        fits = [t for t in task.inputs if t.name not in found and _fits(t, array)]
        if not fits:
            inputs = ", ".join(f"{t.name}: {t.dtype}{list(map(extent, t.shape))}" for t in task.inputs)
            got = f"{name!r}, {array.dtype.name}{list(array.shape)}"
            raise DefinitionError(f"task_inputs: {got}, is none of the inputs {inputs}", caller())
        found[max(fits, key=lambda t: (name.endswith(t.name), name == t.name)).name] = array
    return found


def _fits(tensor: Tensor, array: npt.NDArray[Any]) -> bool:
    return array.dtype == dtypes.info(tensor.dtype).numpy and array.shape == tuple(map(extent, tensor.shape))


def operator_of(task: Task) -> Operator | None:
    """The operator of the library that a task is, its options set; None for any other program, whatever its name."""
    operator = topi.OPERATORS.get(task.workload.name)
    if operator is None:
        return None
    try:
        sizes, dtype, options = _library_call(operator, task.workload.args)
        tensors = operator.tensors(sizes, dtype, **options)
    except TensorlangError:
        return None
    program, _ = canonical([t for t in tensors if not isinstance(t.op, PlaceholderOp)])
    return operator.with_options(options) if program.text == task.program.text else None


def _library_call(operator: Operator, args: Sequence[Argument]) -> tuple[list[int], str, dict[str, Option]]:
    """The sizes, the dtype and the options of a library operator, as tasks and records spell them."""
    sizes = [a for a in args if isinstance(a, int)]
    options = options_of(args)
    rest = [a for a in args if not isinstance(a, int) and a not in options] or ["float32"]
    if len(rest) > 1 or not isinstance(rest[0], str):
        also = " (and options, as 'stride=2')" if operator.options else ""
        raise DefinitionError(f"{operator.name} takes integer sizes and one dtype{also}, got {tuple(args)}")
    return sizes, rest[0], operator.read_options(options)


def options_of(args: Iterable[Argument]) -> list[str]:
    """The options among the arguments of a library operator."""
    return [a for a in args if isinstance(a, str) and "=" in a]


def _without_schedule(made: Any) -> Any:
    """The tensors of what a function of the user returns; a template returns a schedule before them."""
    return made[1] if isinstance(made, tuple) and len(made) == 2 and isinstance(made[0], Schedule) else made


def updated(tensor: Tensor) -> Tensor:
    """The tensor whose place in memory another one takes; itself when it has its own."""
    op = tensor.op
    while isinstance(op, HybridOp) and isinstance(before := op.updates[tensor.value_index], Tensor):
        tensor, op = before, before.op
    return tensor


def arguments_of(tensors: Sequence[Tensor]) -> list[Tensor]:
    """The arguments of a kernel: tensors less those that take the place of an earlier one."""
    return [t for n, t in enumerate(tensors) if updated(t) is t or updated(t) not in tensors[:n]]


def places_of(tensors: Sequence[Tensor]) -> tuple[int, ...]:
    """For each computed tensor the number of the input whose place it takes, or -1."""
    inputs = [t for t in tensors if isinstance(t.op, PlaceholderOp)]
    roots = [updated(t) for t in tensors if not isinstance(t.op, PlaceholderOp)]
    return tuple(inputs.index(root) if root in inputs else -1 for root in roots)


def _check_tensors(tensors: Any, name: str) -> tuple[Tensor, ...]:
    if not isinstance(tensors, list | tuple) or not all(isinstance(t, Tensor) for t in tensors):
        raise DefinitionError(f"{name} must return a list of tensors (inputs, then outputs), got {tensors!r}")
    if all(isinstance(t.op, PlaceholderOp) for t in tensors):
        raise DefinitionError(f"{name} returned no computed tensor; return the inputs and then the outputs")
    twice = [t.name for n, t in enumerate(tensors) if t in tensors[:n]]
    if twice:
        raise DefinitionError(f"{name} returned {twice[0]} twice; each tensor is one argument of the kernel")
    return tuple(tensors)


def _named_apart(tensors: tuple[Tensor, ...]) -> tuple[tuple[Tensor, ...], Program]:
    """The tensors and their program; inputs of one name get those that they have in the program."""
    outputs = [t for t in tensors if not isinstance(t.op, PlaceholderOp)]
    program, names = canonical(outputs)
    if all(names.get(id(t.op), t.op.name) == t.op.name for t in tensors if isinstance(t.op, PlaceholderOp)):
        return tensors, program
    made = all_declared(program)
    apart = tuple(made[names[id(t.op)]].output(t.value_index) if id(t.op) in names else t for t in tensors)
    return apart, canonical([t for t in apart if not isinstance(t.op, PlaceholderOp)])[0]


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


def count_operations(program: Program) -> float:
    """Arithmetic operations of one run of the unscheduled program: operators, intrinsics, reduction steps.

    A program that only moves data counts the elements that it writes. Loops of ordered statements count as boxes.
    """
    computed = [op for op in program.ops if isinstance(op, ComputeOp | HybridOp)]
    total = sum(points * work for op in computed for points, work in _work(op))
    return total or sum(points for op in computed for points, _ in _work(op))


def _work(op: ComputeOp | HybridOp) -> list[tuple[float, int]]:
    """Of every statement of an operation the iterations, those of a reduction included, and operations of one."""
    if isinstance(op, HybridOp):
        found = ordered.sources(op).values()
        return [(_volume(reach[1] for reach in s.hull.values()), operations(s.store.value)) for s in found]
    reduce_axes = () if op.reduction is None else op.reduction.axes
    return [(_volume(a.extent for a in (*op.axes, *reduce_axes)), operations_of_point(op))]


def _volume(extents: Iterable[Expr]) -> float:
    return float(math.prod(map(extent, extents)))


if TYPE_CHECKING:  # what the package offers here, for type checkers and editors
    from tensorlang.autotune.templates.contexts import ApplyConfig as ApplyConfig
    from tensorlang.autotune.templates.contexts import ApplyFixedConfig as ApplyFixedConfig
    from tensorlang.autotune.templates.contexts import FallbackContext as FallbackContext
    from tensorlang.autotune.templates.operators import register_topi_compute as register_topi_compute
    from tensorlang.autotune.templates.operators import register_topi_schedule as register_topi_schedule
    from tensorlang.autotune.templates.registry import get_config as get_config
    from tensorlang.autotune.templates.registry import template as template
    from tensorlang.autotune.templates.task import create as create
else:
    __path__ = []  # its files are imported under the names that TVM's have

    def __getattr__(name: str) -> Any:
        return lookup(__name__, name)
