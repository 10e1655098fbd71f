"""Operations of a canonical program as users declare them: they read tensors of each other, not buffers."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache

from tensorlang.ir.expr import Expr, Load, rewrite
from tensorlang.ir.stmt import map_exprs
from tensorlang.te.operation import ComputeOp, ExternOp, HybridOp, Operation, PlaceholderOp, Read, Tensor, buffers
from tensorlang.te.program import Program, canonical_op, producers_first, read_buffers, unique


def declared(program: Program, name: str) -> Operation:
    """Return an operation whose `input_tensors` are tensors of the program's others, as these are now."""
    needed, pending = {name}, [name]
    while pending:
        new = {program.producer[b] for b in read_buffers(program[pending.pop()])} - needed
        needed |= new
        pending += new
    made: dict[str, Operation] = {}
    for op in program.ops:  # producers first: chains may be thousands long
        if op.name in needed:
            producers = dict.fromkeys(program.producer[b] for b in read_buffers(op))
            made[op.name] = _declared(op, tuple(made[p] for p in producers))
    return made[name]


def exchanged(program: Program, old: Operation, new: Operation) -> Program:
    """Return the program in which an operation of `declared` has given way to another one, which takes its name.

    What the new one reads besides the tensors that `old` does is put in front of it, under names that are free. What
    nobody needs any more is left out.
    """
    known = producers_first([tensor.op for tensor in old.input_tensors])
    made = {key: program[op.name] for key, op in known.items()}
    before: list[Operation] = []
    for key, op in producers_first([new]).items():
        if key in made:
            continue
        name = old.name if op is new else unique(op.name, {*program.by_name, *(b.name for b in before)})
        made[key] = canonical_op(op, name, made)
        before += [] if op is new else [made[key]]
    return program.replacing({old.name: made[id(new)]}, {old.name: before}).needed()


@lru_cache(maxsize=1024)
def _declared(op: Operation, producers: tuple[Operation, ...]) -> Operation:
    """One operation over its producers: the same object each time, as long as none of them is rewritten."""
    tensors = {b.name: Tensor(source, k) for source in producers for k, b in enumerate(buffers(source))}

    def rule(node: Expr) -> Expr | None:
        match node:
            case Load() if node.buffer.name in tensors:
                return Read(tensors[node.buffer.name], node.index)
            case _:
                return None

    def read(expr: Expr) -> Expr:
        return rewrite(expr, rule)

    match op:
        case PlaceholderOp():
            return op
        case ComputeOp():
            return replace(op, body=tuple(map(read, op.body)))
        case ExternOp():
            return replace(op, inputs=tuple(tensors.get(b.name, b) for b in op.inputs))
        case HybridOp():
            updates = tuple(None if old is None else tensors[old.name] for old in op.updates)
            return replace(op, updates=updates, body=map_exprs(op.body, read))
