"""The way back through a program, as a program: te.gradient, scheduled and tuned like any other."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import reduce
from typing import Any, TypeAlias

from tensorlang.dataclass import dataclass
from tensorlang.driver import build
from tensorlang.errors import DefinitionError
from tensorlang.frameworks.program import Argument, Program, differentiable, program
from tensorlang.ir.expr import Expr, Var, rewrite, variables
from tensorlang.runtime.executable import Executable
from tensorlang.target.spec import Target
from tensorlang.te.autodiff import gradient
from tensorlang.te.define import compute, placeholder
from tensorlang.te.operation import ComputeOp, Operation, PlaceholderOp, Read, Tensor
from tensorlang.te.program import unique


@dataclass(frozen=True, eq=False)
class Backward:
    """A program of gradients: what it reads of the inputs, of the outputs and of the heads, by their numbers.

    `wanted`: the inputs that it has a gradient for, in the order of its outputs. What goes in are the sizes, what is
    `saved`, as (whether it is an output, its number), and the heads. Without a program all gradients are 0.
    """

    wanted: tuple[int, ...]
    sizes: tuple[str, ...] = ()
    saved: tuple[tuple[bool, int], ...] = ()
    heads: tuple[int, ...] = ()
    program: Program | None = None


Way: TypeAlias = Callable[[tuple[int, ...]], Backward]
"""The way back to the inputs of these numbers."""


def way_back(forward: Program, target: Target, tried: bool = True) -> Way | None:
    """The generated way back, None where there are no floats. `tried`: with all inputs, so that errors come early."""
    check_pure(forward)
    if not forward.floats or not differentiable(forward.made):
        return None
    made = {forward.floats: backward(forward, forward.floats, target)} if tried else {}

    def way(asked: tuple[int, ...]) -> Backward:
        if asked not in made:
            made[asked] = backward(forward, asked, target)
        return made[asked]

    return way


def backward(forward: Program, wanted: tuple[int, ...], target: Target) -> Backward:
    """The gradients of a program for some of its inputs; DefinitionError for what te.gradient does not take.

    Outputs are read where they are at hand, instead of computed again.
    """
    outs = differentiable(forward.made)
    taken = {a.name for a in forward.arguments}
    heads = [_like(forward.made[n], f"head{n}", taken) for n in outs]
    inputs = [_tensor(forward.given[n]) for n in wanted]
    parts = [gradient(forward.made[n], inputs, head) for n, head in zip(outs, heads, strict=True)]
    grads = [reduce(_sum, terms) for terms in zip(*parts, strict=True)]
    kept = {forward.made[n]: _like(forward.made[n], f"{forward.made[n].name}_saved", taken) for n in outs}
    grads = [_called(t, f"{inputs[k].name}_gradient") for k, t in enumerate(_reading(kept, grads))]
    read = {t for op in _operations(grads) if isinstance(op, PlaceholderOp) for t in [op.output()]}
    if not read:
        return Backward(wanted)
    saved = [(False, n, t) for n, t in enumerate(forward.given) if t in read]
    saved += [(True, n, kept[forward.made[n]]) for n in outs if kept[forward.made[n]] in read]
    used = [(n, head) for n, head in zip(outs, heads, strict=True) if head in read]
    arrays: list[Argument] = [*(t for _, _, t in saved), *(head for _, head in used)]
    sizes = _missing_sizes(arrays, grads)
    arguments = (*(Var(n, "int64") for n in sizes), *arrays, *grads)
    name = f"{forward.name}_backward"

    def make() -> Executable:
        tensors = [a for a in arguments if isinstance(a, Tensor)]
        return build(tensors, list(arguments), target, name=name, schedule="auto")

    outputs = frozenset(range(len(arguments) - len(grads), len(arguments)))
    made = program(name, arguments, outputs, make)
    return Backward(wanted, sizes, tuple((o, n) for o, n, _ in saved), tuple(n for n, _ in used), made)


def check_pure(forward: Program) -> None:
    """Refuse a program that changes what a way back would read."""
    if forward.written:
        raise DefinitionError(f"{forward.name} updates an input in place: it has no gradient, pass backward=False")


def given_backward(forward: Program, own: Program) -> Backward:
    """A program that a user wrote for the way back: of all inputs, and of a head for each output of floats."""
    heads, wanted = differentiable(forward.made), forward.floats
    takes = [*forward.given, *(forward.made[n] for n in heads)]
    makes = [forward.given[n] for n in wanted]
    if list(map(_kind, own.given)) != list(map(_kind, takes)) or list(map(_kind, own.made)) != list(map(_kind, makes)):
        text = f"the backward of {forward.name} takes {_kinds(takes)} and makes {_kinds(makes)}"
        raise DefinitionError(f"{text}; {own.name} takes {_kinds(own.given)} and makes {_kinds(own.made)}")
    return Backward(wanted, (), tuple((False, n) for n in range(len(forward.given))), heads, own)


def _kind(argument: Argument) -> str:
    if isinstance(argument, Var):
        return "a size"
    return f"{argument.dtype}[{', '.join(map(str, argument.shape))}]"


def _kinds(arguments: Sequence[Argument]) -> str:
    return ", ".join(map(_kind, arguments))


def _tensor(argument: Argument) -> Tensor:
    assert isinstance(argument, Tensor)
    return argument


def _like(tensor: Tensor, wish: str, taken: set[str]) -> Tensor:
    name = unique(wish.replace(".", "_"), taken)
    taken.add(name)
    return placeholder(tensor.shape, tensor.dtype, name)


def _sum(a: Tensor, b: Tensor) -> Tensor:
    made: Tensor = compute(a.shape, lambda *i: a(*i) + b(*i), name=f"{a.op.name}_total")
    return made


def _called(tensor: Tensor, name: str) -> Tensor:
    """A tensor that is an output of its own: the head itself, where it is the gradient, has to be copied."""
    if isinstance(tensor.op, PlaceholderOp):
        made: Tensor = compute(tensor.shape, tensor, name=name)
        return made
    return tensor


def _operations(tensors: Sequence[Tensor]) -> Iterator[Operation]:
    """The operations that tensors are made by and from, producers first."""
    done: set[Operation] = set()
    pending = [(t.op, False) for t in reversed(tensors)]
    while pending:
        op, ready = pending.pop()
        if ready and op not in done:
            done.add(op)
            yield op
        elif op not in done:
            pending += [(op, True), *((t.op, False) for t in reversed(op.input_tensors))]


def _reading(kept: Mapping[Tensor, Tensor], tensors: Sequence[Tensor]) -> list[Tensor]:
    """The tensors, made from others that stand for some of those they are made from, where they are only read."""
    now: dict[Tensor, Tensor] = dict(kept)

    def rule(node: Expr) -> Expr | None:
        if isinstance(node, Read) and node.tensor in now:
            return Read(now[node.tensor], node.index)
        return None

    for op in _operations(tensors):
        if not any(t in now for t in op.input_tensors):
            continue
        if not isinstance(op, ComputeOp):
            return list(tensors)
        body, where = (tuple(rewrite(e, rule) for e in old) for old in (op.body, op.where))
        made = replace(op, body=body, where=where)
        now |= {op.output(k): made.output(k) for k in range(op.num_outputs) if op.output(k) not in kept}
    return [now.get(t, t) for t in tensors]


def _missing_sizes(arrays: Sequence[Argument], made: Sequence[Tensor]) -> tuple[str, ...]:
    """Sizes that no array that is read has as a dimension."""
    own = {e.name for t in arrays if isinstance(t, Tensor) for e in t.shape if isinstance(e, Var)}
    everything: list[Any] = [*arrays, *made]
    return tuple(sorted({n for t in everything for extent in t.shape for n in variables(extent)} - own))
