"""The arguments of a kernel: from what a user lists to the buffers of a program that the caller passes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tensorlang.errors import BadArgument, DefinitionError, ScheduleError, shown
from tensorlang.ir.expr import Buffer, Var
from tensorlang.ir.stmt import INDEX
from tensorlang.location import caller
from tensorlang.schedule.schedule import Schedule
from tensorlang.te.operation import PlaceholderOp, Tensor
from tensorlang.te.program import Program, read_buffers, unique


def with_outputs(s: Schedule, args: Sequence[Any]) -> Schedule:
    """The schedule for these arguments: what is computed on the way and listed is an output.

    The steps are proven for that again; DefinitionError where they leave an array incomplete.
    """
    tensors = [a for a in args if isinstance(a, Tensor)] if isinstance(args, list | tuple) else []
    inside = [t for t in tensors if _is_inside(s, t)]
    return _returning(s, inside) if inside else s


def without_others(s: Schedule, args: Sequence[Any]) -> Schedule:
    """The schedule that keeps to itself the outputs which are not among the arguments."""
    names = [_name(s, a) for a in args if isinstance(a, Tensor)] if isinstance(args, list | tuple) else []
    given = {s.program.storage[name][0] for name in names if name is not None}
    outputs = [name for name in s.program.buffers if s.program.is_output(name)]
    kept = frozenset(name for name in outputs if s.program.storage[name][0] not in given)
    return s.hiding(kept) if kept and given else s


def without_some(s: Schedule, args: Sequence[Any]) -> Schedule:
    """The same, where some output is among the arguments: without any, they were forgotten."""
    made = without_others(s, args)
    return made if any(made.program.is_output(name) for name in made.program.buffers) else s


def _name(s: Schedule, tensor: Tensor) -> str | None:
    """The buffer of a tensor; None where the program has none."""
    try:
        return held(s.program, s.buffer_of(tensor))
    except BadArgument:
        return None


def _is_inside(s: Schedule, tensor: Tensor) -> bool:
    """Whether a tensor of the program as it was declared is neither an input nor an output."""
    name = None if isinstance(tensor.op, PlaceholderOp) else _name(s, tensor)
    return name is not None and s.declares(tensor.op) and not s.program.is_output(name)


def _returning(s: Schedule, tensors: Sequence[Tensor]) -> Schedule:
    names = ", ".join(t.name for t in tensors)
    try:
        return s.returning([t.op for t in tensors])
    except ScheduleError as error:
        raise DefinitionError(
            f"{names} is computed on the way; as an argument it would be an output, and is not computed whole: "
            f"{error.asked}: {error.why}; leave it out of args, or compute it at the root",
            caller(),
        ) from None


def parameters(s: Schedule, args: Sequence[Any]) -> tuple[list[str], tuple[Buffer | Var, ...]]:
    """Buffer names of the parameters in order, and what the caller passes: with sizes, and inputs that are not read.

    DefinitionError for what is no argument, is there twice, or is missing.
    """
    if not isinstance(args, list | tuple):
        raise DefinitionError(f"args are a list of tensors and sizes, got {shown(args)}", caller())
    program = s.program
    params: list[str] = []
    signature: list[Buffer | Var] = []
    for arg in args:
        if isinstance(arg, Var):
            signature.append(Var(arg.name, INDEX))
            continue
        if not isinstance(arg, Tensor):
            raise DefinitionError(f"args are tensors and sizes, got {type(arg).__name__} {arg!r}", caller())
        name = _name(s, arg)
        if name is None or (name in params and isinstance(arg.op, PlaceholderOp) and not s.declares(arg.op)):
            signature.append(_not_read(program, arg, signature))
            continue
        twice = [p for p in params if program.storage[p][0] == program.storage[name][0]]
        if twice:
            where = "" if str(arg.name) == twice[0] else f": it is {twice[0]}, updated in place"
            raise DefinitionError(f"tensor {arg.name} appears twice in args{where}", caller())
        op = program[program.producer[name]]
        if not isinstance(op, PlaceholderOp) and not program.is_output(name):
            raise DefinitionError(
                f"{name} is made by a step of the schedule and has no array of its own; args are the inputs and the "
                f"outputs ({', '.join(program.outputs)})",
                caller(),
            )
        params.append(name)
        signature.append(program.buffers[name])
    _check_complete(program, params)
    return params, tuple(signature)


def _not_read(program: Program, tensor: Tensor, before: Sequence[Buffer | Var]) -> Buffer:
    """An input that nobody reads: the caller passes an array, and the kernel does without."""
    if not isinstance(tensor.op, PlaceholderOp):
        why = "no output needs it, or it was inlined; leave it out of args"
        raise DefinitionError(f"{tensor.name} is not in the program: {why}", caller())
    name = unique(tensor.name, {*program.buffers, *(p.name for p in before)})
    return Buffer(name, tensor.shape, tensor.dtype)


def held(program: Program, buffer: str) -> str:
    """The buffer itself, or the input that it is after an update in place."""
    root, _ = program.storage[buffer]
    return root if isinstance(program[program.producer[root]], PlaceholderOp) else buffer


def needed(program: Program) -> list[str]:
    """The buffers that arguments have to hold: the inputs that are read, and the outputs; one of those in one place."""
    used = {b for op in program.ops for b in read_buffers(op)}
    inputs = {n for n in used if isinstance(program[program.producer[n]], PlaceholderOp)}
    found = {program.storage[n][0]: held(program, n) for n in program.buffers if program.is_output(n) or n in inputs}
    return list(found.values())


def _check_complete(program: Program, params: list[str]) -> None:
    given = {program.storage[p][0] for p in params}
    missing = [name for name in needed(program) if program.storage[name][0] not in given]
    if missing:
        raise DefinitionError(f"args lack {', '.join(missing)}: every input and every output is an argument", caller())
