"""The scratch memory of a kernel, from the same plans by which its functions take it."""

from __future__ import annotations

from tensorlang.ir.stmt import For, Kernel, LoopKind, Stmt, children
from tensorlang.runtime.memory import Memory
from tensorlang.target.llvm.storage.frame import plan_frame
from tensorlang.target.llvm.threads.balance import iterations


def scratch_memory(kernel: Kernel, sizes: dict[str, int], cores: int) -> Memory:
    """What a call has in use at most if it gets all the threads it asks for."""
    shared = plan_frame(kernel.body, in_parallel=False).scratch_bytes(sizes)
    regions = [_region(shared, loop, sizes, cores) for loop in _parallel(kernel.body)]
    return max(regions, key=lambda memory: memory.total, default=Memory(shared))


def _region(shared: int, loop: For, sizes: dict[str, int], cores: int) -> Memory:
    each = plan_frame(loop.body, in_parallel=True).scratch_bytes(sizes)
    count = iterations(loop, sizes)
    team = cores if count is None else min(cores, count)
    return Memory(shared, each, team) if each and team else Memory(shared)


def _parallel(stmt: Stmt) -> list[For]:
    """The outermost parallel loops."""
    if isinstance(stmt, For) and stmt.kind is LoopKind.PARALLEL:
        return [stmt]
    return [loop for child in children(stmt) for loop in _parallel(child)]
