"""Choices between results: what is needed for one of them alone, and under which conditions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TypeAlias, TypeGuard

from tensorlang.dataclass import dataclass
from tensorlang.ir.expr import Buffer, Const, Expr, Load, Select, walk
from tensorlang.te.axis import extent_of
from tensorlang.te.operation import ComputeOp, Operation, PlaceholderOp
from tensorlang.te.program import Program, read_buffers

BRANCH = "branch"
"""The tag of a stage `select(c[...], a, b)`: where `c` holds, nobody needs what is for `b` alone, and else for `a`."""


@dataclass(frozen=True, slots=True, order=True)
class Guard:
    """A condition: the element of an array at a place, counted in the order of memory, holds, or does not."""

    array: str
    at: int
    holds: bool


Guards: TypeAlias = frozenset[Guard]


def needed_under(program: Program) -> dict[str, Guards]:
    """By operation the conditions that hold, all of them, wherever its result is needed; none for outputs.

    What an operation reads is needed under its own conditions or fewer of them, so that it is there where that runs.
    """
    found: dict[str, Guards] = dict.fromkeys(program.outputs, frozenset())
    for op in reversed(program.ops):
        own = found.setdefault(op.name, frozenset())
        for buffer, more in _reads(op):
            name = program.producer[buffer]
            found[name] = found.get(name, own | more) & (own | more)
    return found


def turns_of(program: Program) -> dict[str, int]:
    """By operation how many choices and kernels of other kinds follow each other up to it, itself included.

    What such a one stands between is no kernel together.
    """
    found: dict[str, int] = {}
    for op in program.ops:
        before = max((found[program.producer[buffer]] for buffer in read_buffers(op)), default=0)
        is_turn = op.tag == BRANCH if isinstance(op, ComputeOp) else not isinstance(op, PlaceholderOp)
        found[op.name] = before + is_turn
    return found


def _reads(op: Operation) -> Iterator[tuple[str, Guards]]:
    """The arrays that an operation reads, and the conditions under which it needs each."""
    match op:
        case ComputeOp(tag=tag, body=(Select(Load(test, index), then, other),)) if tag == BRANCH and _is_fixed(index):
            yield test.name, frozenset()
            for arm, holds in ((then, True), (other, False)):
                guard = Guard(test.name, _place(test, index), holds)
                yield from ((array, frozenset({guard})) for array in _arrays(arm))
        case _:
            yield from ((array, frozenset()) for array in read_buffers(op))


def _arrays(expr: Expr) -> Sequence[str]:
    return list(dict.fromkeys(node.buffer.name for node in walk(expr) if isinstance(node, Load)))


def _is_fixed(index: Sequence[Expr]) -> TypeGuard[Sequence[Const]]:
    return all(isinstance(i, Const) for i in index)


def _place(buffer: Buffer, index: Sequence[Const]) -> int:
    """Where in memory an element is."""
    at = 0
    for i, extent in zip(index, buffer.shape, strict=True):
        at = at * (extent_of(extent) or 1) + int(i)
    return at
