"""Where instances of a statement run on a device: the numbers of their threads and blocks, as text."""

from __future__ import annotations

from collections.abc import Mapping

from tensorlang.ir.stmt import LoopKind
from tensorlang.ir.thread_tags import VIRTUAL, is_thread
from tensorlang.polyhedral.nest import Loop, loops
from tensorlang.polyhedral.numbered import first_thread
from tensorlang.polyhedral.witness import Clash, Touch
from tensorlang.schedule.axis_range import constant
from tensorlang.schedule.derive.plans import Derived

_KINDS = ((VIRTUAL, "virtual thread"), ("threadIdx", "thread"), ("blockIdx", "block"))


def where_they_run(derived: Derived, clash: Clash) -> str:
    """`C[0] runs on thread 0 of block 0, and C[1] on thread 1 of block 0`; numbers along x, y, z, as far as bound."""
    bound = {loop.name: loop for loop in loops(derived.tree) if loop.kind is LoopKind.BOUND}
    witness = clash.witness()
    first, then = _place(clash.source, bound), _place(clash.sink, bound)
    return f"{witness.source} runs on {first}, and {witness.sink} on {then}"


def _place(touch: Touch, bound: Mapping[str, Loop]) -> str:
    """The numbers of a touch's threads and blocks; one that no loop numbers is the first."""
    numbers: dict[str, int] = {}
    for name in touch.statement.loops:
        loop = bound.get(name)
        if loop is not None:
            first = first_thread(loop) if is_thread(loop.thread) else constant(loop.lower)
            numbers[loop.thread] = touch.values[name] - (first or 0)
    used = {loop.thread for loop in bound.values()}
    found = []
    for kind, word in _KINDS:
        tags = [kind] if kind == VIRTUAL else [f"{kind}.{axis}" for axis in "xyz"]
        while tags and tags[-1] not in used:
            tags.pop()
        if tags:
            values = [str(numbers.get(tag, 0)) for tag in tags]
            found.append(f"{word} {values[0]}" if len(values) == 1 else f"{word} ({', '.join(values)})")
    return " of ".join(found)
