"""A program cut into kernels: groups of stages that are scheduled together, each a program of its own."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from tensorlang import dtypes, te
from tensorlang.dataclass import dataclass
from tensorlang.errors import InternalError
from tensorlang.ir.expr import Expr, Load, rewrite
from tensorlang.ir.stmt import map_exprs
from tensorlang.schedules.chains import chains_of
from tensorlang.schedules.default import is_elementwise
from tensorlang.schedules.recognise import groups_of
from tensorlang.target.spec import Target
from tensorlang.te.branches import Guard, Guards, needed_under, turns_of
from tensorlang.te.operation import (
    ComputeOp,
    ExternOp,
    HybridOp,
    Operation,
    PlaceholderOp,
    Read,
    Tensor,
    buffers,
    loads,
)
from tensorlang.te.program import Program, read_buffers
from tensorlang.te.tags import ATTENTION


@dataclass(frozen=True, slots=True)
class Part:
    """Stages of a program that become one kernel: `inputs` are the arrays it reads, `outputs` those it makes.

    It is needed where all `guards` are as they say.
    """

    ops: tuple[Operation, ...]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    guards: tuple[Guard, ...] = ()

    @property
    def needed(self) -> tuple[str, ...]:
        """The arrays that are there before it runs."""
        return (*self.inputs, *(guard.array for guard in self.guards))

    @property
    def main(self) -> str:
        """The stage by which the kernel is called."""
        return self.mains[-1]

    @property
    def mains(self) -> tuple[str, ...]:
        """The stages with most to do: the sums, or the last stage."""
        sums = [op.name for op in self.ops if isinstance(op, ComputeOp) and op.reduce_axes]
        return tuple(sums) or (self.ops[-1].name,)


def parts_of(program: Program, machine: Target | None = None) -> tuple[Part, ...]:
    """The kernels of a program in an order in which they can run: on a target, or with one group of stages each.

    What is needed under other conditions is apart, and so is what comes behind a choice, or behind a loop, from what
    comes before it.
    """
    needed, turns = needed_under(program), turns_of(program)
    scopes: dict[tuple[Guards, int], list[Operation]] = {}
    for op in program.ops:
        if not isinstance(op, PlaceholderOp):
            scopes.setdefault((needed[op.name], turns[op.name]), []).append(op)
    parts = []
    for (guards, _), ops in scopes.items():
        scope = program if len(scopes) == 1 else _scope(program, ops)
        parts += [replace(_part(program, own), guards=tuple(sorted(guards))) for own in _members(scope, machine)]
    return _ordered(program, parts)


def _scope(program: Program, ops: Sequence[Operation]) -> Program:
    """Some stages as a program of their own."""
    part = _part(program, ops)
    arrays = program.buffers
    given = [PlaceholderOp(name, arrays[name].shape, arrays[name].dtype) for name in part.inputs]
    return Program((*given, *ops), tuple(dict.fromkeys(program.producer[name] for name in part.outputs)))


def _members(program: Program, machine: Target | None) -> list[list[Operation]]:
    """The stages of each kernel of a program."""
    home: dict[str, int] = {}
    groups = groups_of(program, words=True)
    chains = [(group,) for group in groups] if machine is None else chains_of(program, groups, machine)
    for number, chain in enumerate(chains):
        for group in chain:
            for stage in (group.main, group.output, *group.between, *group.parts, *group.producers):
                home[stage.name] = number
    for name, parts in _attentions(program):
        home |= dict.fromkeys(parts, home[name])
    _read_narrow(program, home)
    others = [op.name for op in program.ops if not isinstance(op, PlaceholderOp) and op.name not in home]
    home |= {name: len(chains) + k for k, name in enumerate(others)}
    members: dict[int, list[Operation]] = {}
    for op in program.ops:
        if op.name in home:
            members.setdefault(home[op.name], []).append(op)
    return list(members.values())


def _read_narrow(program: Program, home: dict[str, int]) -> None:
    """Move stages that only make wider numbers of one array, bytes floats, to the kernel that reads these: the narrow
    array lies between.
    """
    for op in program.ops:
        if not isinstance(op, ComputeOp) or op.name not in home or not is_elementwise(op) or op.name in program.outputs:
            continue
        sources, readers = {load.buffer.name for load in loads(op)}, program.consumers[op.name]
        if len(sources) != 1 or len(readers) != 1 or home.get(*sources) != home[op.name]:
            continue
        source, reader = program[program.producer[sources.pop()]], program[readers[0]]
        narrow = isinstance(source, ComputeOp) and dtypes.info(source.dtype).bits < dtypes.info(op.dtype).bits
        if narrow and isinstance(reader, ComputeOp) and is_elementwise(reader) and reader.name in home:
            home[op.name] = home[reader.name]


def _attentions(program: Program) -> Iterator[tuple[str, list[str]]]:
    """Attentions, and the stages that they are made of, which are scheduled together."""
    for op in program.ops:
        if isinstance(op, ComputeOp) and op.tag == ATTENTION:
            found = {op.name}
            for part in reversed(program.ops):
                if isinstance(part, ComputeOp) and part.tag.startswith(f"{ATTENTION}."):
                    found |= {part.name} if found & set(program.consumers[part.name]) else set()
            yield op.name, sorted(found)


def _part(program: Program, ops: Sequence[Operation]) -> Part:
    own = {op.name for op in ops}
    read = dict.fromkeys(name for op in ops for name in read_buffers(op))
    inputs = tuple(name for name in read if program.producer[name] not in own)
    outputs = [
        b.name
        for op in ops
        if op.name in program.outputs or any(reader not in own for reader in program.consumers[op.name])
        for b in buffers(op)
    ]
    return Part(tuple(ops), inputs, tuple(outputs))


def _ordered(program: Program, parts: Sequence[Part]) -> tuple[Part, ...]:
    """Parts behind all that they read."""
    made: set[str] = {b.name for op in program.ops if isinstance(op, PlaceholderOp) for b in buffers(op)}
    waiting, done = list(parts), list[Part]()
    while waiting:
        ready = next((part for part in waiting if made.issuperset(part.needed)), None)
        if ready is None:
            raise InternalError("the kernels of a network wait for each other")
        waiting.remove(ready)
        done.append(ready)
        made.update(ready.outputs)
    return tuple(done)


def tensors_of(program: Program, part: Part) -> tuple[list[Tensor], list[Tensor]]:
    """The inputs and the outputs of a part as a program of its own, under names that tell nothing of the network."""
    made: dict[str, Tensor] = {}
    for number, name in enumerate(part.inputs):
        array = program.buffers[name]
        made[name] = te.placeholder(array.shape, array.dtype, f"x{number}")
    for number, op in enumerate(part.ops):
        stage = _named(op, f"y{number}", made)
        for k, buffer in enumerate(buffers(op)):
            made[buffer.name] = stage.output(k)
    return [made[name] for name in part.inputs], [made[name] for name in part.outputs]


def _named(op: Operation, name: str, made: Mapping[str, Tensor]) -> Operation:
    """An operation of a canonical program as one of a user's, by another name, over tensors."""

    def rule(node: Expr) -> Expr | None:
        if isinstance(node, Load) and node.buffer.name in made:
            return Read(made[node.buffer.name], node.index)
        return None

    match op:
        case ComputeOp():
            body = tuple(rewrite(b, rule) for b in op.body)
            return ComputeOp(name, op.axes, op.reduce_axes, body, op.where, op.tag, op.attrs)
        case ExternOp():
            return replace(op, name=name, inputs=tuple(made[t.name] for t in op.inputs))
        case HybridOp() if not any(op.updates):
            return replace(op, name=name, body=map_exprs(op.body, lambda e: rewrite(e, rule)))
    raise InternalError(f"{op.name} is no stage that a kernel of a network can be made of")
