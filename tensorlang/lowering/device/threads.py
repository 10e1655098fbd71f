"""Which thread runs which iteration of a loop bound to `threadIdx`, and how many threads that takes."""

from __future__ import annotations

from collections.abc import Iterator

from tensorlang.dataclass import dataclass
from tensorlang.errors import TargetError
from tensorlang.ir.expr import Const, Expr, Var, binary, same
from tensorlang.ir.stmt import INDEX, For, LoopKind, Stmt, walk
from tensorlang.ir.thread_tags import THREADS, is_block, is_thread
from tensorlang.lowering.device.ranges import Ranges, range_of
from tensorlang.lowering.passes.full_tile import conjunction, operands
from tensorlang.polyhedral.numbered import MOST_THREADS

ZERO, ONE = Const(0, INDEX), Const(1, INDEX)


@dataclass(frozen=True, slots=True)
class ThreadLoop:
    """A loop on threads: the thread that runs `var` is `var - base`; `guards` tell of `var` that it is one of the loop.

    `extent` is the number of threads that the loop needs at most.
    """

    tag: str
    base: Expr
    extent: int
    guards: tuple[Expr, ...]

    @property
    def value(self) -> Expr:
        """The iteration of this thread."""
        return binary("add", Var(self.tag, INDEX), self.base)


def thread_loop(loop: For, ranges: Ranges) -> ThreadLoop:
    """Return how a loop bound to `threadIdx` runs on threads.

    Iteration i runs on thread i where the range of the loop is known to lie within a block, else on thread
    `i - lower`: so loops over parts of one range share their threads. Raises TargetError where no constant bounds the
    number of threads.
    """
    least = (loop.var >= lower for lower in operands("max", loop.lower) if not same(lower, ZERO))
    guards = (*least, *(loop.var < upper for upper in operands("min", loop.upper)))
    low, high = range_of(loop.lower, ranges)[0], range_of(loop.upper, ranges)[1]
    if low is not None and low >= 0 and high is not None and high <= MOST_THREADS:
        return ThreadLoop(loop.thread, ZERO, max(1, high), guards)
    spans = [
        range_of(upper - lower, ranges)[1]
        for upper in operands("min", loop.upper)
        for lower in operands("max", loop.lower)
    ]
    known = [span for span in spans if span is not None]
    if not known:
        raise TargetError(
            f"the loop {loop.axis or loop.var.name} on {loop.thread} runs from {loop.lower} to {loop.upper}, and no "
            "constant bounds its length; split it by a constant factor, and bind the inner loop"
        )
    return ThreadLoop(loop.thread, loop.lower, max(1, min(known)), guards)


def is_block_loop(stmt: Stmt) -> bool:
    """Whether a statement is a loop bound to `blockIdx`."""
    return isinstance(stmt, For) and stmt.kind is LoopKind.BOUND and is_block(stmt.thread)


def is_thread_loop(stmt: Stmt) -> bool:
    """Whether a statement is a loop bound to `threadIdx`."""
    return isinstance(stmt, For) and stmt.kind is LoopKind.BOUND and is_thread(stmt.thread)


def bound_loops(stmt: Stmt) -> Iterator[For]:
    """The loops bound to blocks or threads in a statement."""
    for s in walk(stmt):
        if isinstance(s, For) and (is_block_loop(s) or is_thread_loop(s)):
            yield s


def thread_tags(stmt: Stmt) -> frozenset[str]:
    """The thread axes that loops in a statement are bound to."""
    return frozenset(loop.thread for loop in bound_loops(stmt) if is_thread(loop.thread))


def first_of(tags: frozenset[str]) -> Expr:
    """Whether a thread is the first one along some axes, at least one."""
    return conjunction(tuple(binary("eq", Var(tag, INDEX), ZERO) for tag in THREADS if tag in tags))
