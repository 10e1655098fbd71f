"""Seeded inputs of a task and the outputs that they must give."""

from __future__ import annotations

import math
import os
import pickle
from typing import Any

import numpy as np

from tensorlang import dtypes
from tensorlang.autotune.devices import is_device
from tensorlang.autotune.measuring.arrays import Array, Arrays
from tensorlang.autotune.measuring.jobs import in_program_order, run_reference
from tensorlang.autotune.measuring.pool import Worker
from tensorlang.autotune.records.record import Status
from tensorlang.autotune.task import Task, extent, operator_of
from tensorlang.errors import DefinitionError, InternalError, TargetError
from tensorlang.ir.expr import Load, walk
from tensorlang.schedules.accesses import reads_of
from tensorlang.target import parse
from tensorlang.te.operation import ComputeOp, HybridOp, Tensor
from tensorlang.te.reference import evaluate, tolerance

# Above this many operations the reference is the program compiled, not NumPy.
LARGEST_EVALUATION = 1e8
LARGEST_ORDERED_EVALUATION = 1e6  # ordered statements run one by one
REFERENCE_LIMIT = 300.0
_DRAWN = {"float": (-1, 1), "bool": (0, 2), "uint": (0, 8), "int": (-8, 8)}
_DRAWN_AT_ONCE = 1 << 18


def seeded_inputs(task: Task, seed: int) -> tuple[Array, ...]:
    """Make the inputs: floats in [-1, 1), small integers, and indices within the arrays that they index."""
    rng = np.random.default_rng(seed)
    bounds = _index_bounds(task)
    drawn = tuple(_array(tensor, bounds.get(tensor.name), rng) for tensor in task.inputs)
    return tuple(task.given.get(t.name, array) for t, array in zip(task.inputs, drawn, strict=True))


def arguments_drawn(task: Task, seed: int) -> list[Array]:
    """Arguments of a kernel of the task: seeded inputs, and outputs that hold nothing yet."""
    outputs = tuple(np.empty(tuple(map(extent, t.shape)), dtypes.info(t.dtype).numpy) for t in task.outputs)
    return Arrays(seeded_inputs(task, seed), outputs, 0, 0, task.in_place, task.overwritten).fresh()[0]


def _array(tensor: Tensor, bound: int | None, rng: np.random.Generator) -> Array:
    d = dtypes.info(tensor.dtype)
    low, high = (0, bound) if bound is not None else _DRAWN[d.kind]
    draw: Any = rng.uniform if d.kind == "float" and bound is None else rng.integers
    made = np.empty(tuple(extent(n) for n in tensor.shape), d.numpy)
    flat = made.reshape(-1)
    for begin in range(0, flat.size, _DRAWN_AT_ONCE):  # the generator's numbers are wider than most dtypes
        piece = flat[begin : begin + _DRAWN_AT_ONCE]
        piece[:] = draw(low, high, piece.size).astype(d.numpy)
    return made


def require_room(task: Task, memory: int) -> None:
    """Raise TargetError when the arrays of a run alone take more than so many bytes; 0: as many as there are.

    A run holds the inputs, what they were where it overwrites them, and of each output what it shall be, what it was
    before and what it becomes.
    """
    overwritten = {*task.in_place, *task.overwritten}
    held = sum(_bytes(tensor) * (2 if n in overwritten else 1) for n, tensor in enumerate(task.inputs))
    held += sum(3 * _bytes(tensor) for tensor in task.outputs)
    if memory and held > memory:
        raise TargetError(
            f"a run of {task.workload} holds arrays of {held / 1e9:.1f} GB, and may take {memory / 1e9:.1f} GB; "
            "tune it with smaller sizes"
        )


def memory_limit() -> int:
    """Three quarters of this machine's memory in bytes; 0 (no limit) where it is unknown."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") * 3 // 4
    except (ValueError, OSError):
        return 0


def _bytes(tensor: Tensor) -> int:
    return math.prod(extent(n) for n in tensor.shape) * np.dtype(dtypes.info(tensor.dtype).numpy).itemsize


def _index_bounds(task: Task) -> dict[str, int]:
    """For each buffer whose elements are indices: the smallest dimension that they index."""
    found: dict[str, int] = {}
    for op in task.program.ops:
        for load in reads_of(op) if isinstance(op, ComputeOp | HybridOp) else ():
            for size, index in zip(load.buffer.shape, load.index, strict=True):
                for node in walk(index):
                    if isinstance(node, Load):
                        name = node.buffer.name
                        found[name] = min(found.get(name, extent(size)), extent(size))
    return found


def reference_arrays(task: Task, seed: int, worker: Worker) -> Arrays:
    """Seeded inputs with their outputs; `worker` runs the reference of programs too large for NumPy.

    For a device's programs it should have all CPUs.
    """
    inputs = seeded_inputs(task, seed)
    rtol, atol = tolerance(task.program)
    return Arrays(inputs, _outputs(task, inputs, worker), rtol, atol, task.in_place, task.overwritten)


def _outputs(task: Task, inputs: tuple[Array, ...], worker: Worker) -> tuple[Array, ...]:
    if (operator := operator_of(task)) is not None:
        return tuple(operator.reference(*inputs))
    ordered = any(isinstance(op, HybridOp) for op in task.program.ops)
    if task.workload.flops <= (LARGEST_ORDERED_EVALUATION if ordered else LARGEST_EVALUATION):
        values = evaluate(task.program, in_program_order(task.program, task.inputs, inputs))
        return tuple(values[t.name] for t in task.outputs)
    on_device = is_device(task.target)
    target = parse("llvm") if on_device else task.target
    reply = worker.run(REFERENCE_LIMIT, run_reference, pickle.dumps(task.tensors), target, inputs, on_device)
    user, _, wrong = reply.error.partition(": ")
    if reply.status is Status.BUILD_ERROR and user == DefinitionError.__name__:
        raise DefinitionError(f"{task.workload.name} does not build as it is declared: {wrong}")
    if reply.status is not Status.OK:
        raise InternalError(f"the reference of {task.workload} did not run: {reply.status}: {reply.error}")
    outputs: tuple[Array, ...] = reply.value
    return outputs
