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


def all_declared(program: Program) -> dict[str, Operation]:
    """Return every operation of a program by name, as operations over tensors of each other."""
    made: dict[str, Operation] = {}
    for op in program.ops:
        producers = dict.fromkeys(program.producer[b] for b in read_buffers(op))
        made[op.name] = _declared(op, tuple(made[p] for p in producers))
    return made


def exchanged(program: Program, old: Operation, new: Operation) -> Program:
    """Return the program in which an operation of `declared` has given way to another one, which takes its name.

    What the new one reads besides the tensors that `old` does is put in front of it, under names that are free. What
    nobody needs any more is left out.
    """
    known = {key: program[op.name] for key, op in producers_first([x.op for x in old.input_tensors]).items()}
    fresh = [op for key, op in producers_first([new]).items() if key not in known]
    read = {known[id(x.op)].name for op in fresh for x in op.input_tensors if id(x.op) in known}
    rest = program.needed({*program.outputs, *read} - {old.name}, without=old.name)
    made, taken = dict(known), {old.name, *rest}
    before: list[Operation] = []
    for op in fresh:
        name = old.name if op is new else unique(op.name, taken)
        taken.add(name)
        before.append(canonical_op(op, name, made))
        made[id(op)] = before[-1]
    ops = [op for was in program.ops for op in (before if was.name == old.name else [was] if was.name in rest else [])]
    return replace(program, ops=tuple(ops))


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
