"""A device nest on its way to a kernel: one immutable value, which every pass takes and returns."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from enum import IntEnum

from tensorlang.dataclass import dataclass
from tensorlang.ir.expr import Buffer, Const, Expr
from tensorlang.ir.simplify.forms import Range
from tensorlang.ir.stmt import INDEX, Combiner, Stmt
from tensorlang.ir.thread_tags import BLOCKS, THREADS
from tensorlang.lowering.device.ranges import Ranges
from tensorlang.lowering.device.threads import ONE


class Form(IntEnum):
    """What holds of the body of a nest, from each pass that makes it so on."""

    REGIONS = 0
    """Loops are bound to blocks and threads; read one iteration after the other, the body means what it computes."""
    THREADS = 1
    """What each thread runs. Arrays of all threads of a block, or with a copy for each, are allocated in it."""
    OWN = 2
    """Arrays that are allocated in it are the thread's own; those that a block has in common are `shared`."""
    UNIFORM = 3
    """Tests and bounds around what all threads of a block come to do not name the thread."""
    LANES = 4
    """Vectors are of lengths that devices have."""


@dataclass(frozen=True, slots=True)
class Nest:
    """A device nest: what it is, and what its passes have found out so far.

    `arrays` are those of the host by name, `host` the ranges of its variables; `reducers` tells by the names of arrays
    how updates of their elements combine. `threads`: how many a block has along each axis that a loop is bound to.
    `grid`: blocks along x, y, z, in variables of the host; they are taken off the body as it becomes that of a thread.
    `shared` are the arrays that the threads of a block have together, `indices` is the dtype that holds every offset,
    and `blocks_per_core` is how many blocks a multiprocessor is wished to hold, 0 for no wish.
    """

    name: str
    body: Stmt
    arrays: Mapping[str, Buffer]
    host: Ranges
    reducers: Mapping[str, Combiner]
    form: Form = Form.REGIONS
    threads: Mapping[str, int] = field(default_factory=dict)
    grid: tuple[Expr, Expr, Expr] = (ONE, ONE, ONE)
    shared: tuple[Buffer, ...] = ()
    blocks_per_core: int = 0
    indices: str = INDEX

    @property
    def block(self) -> tuple[int, int, int]:
        """Threads of a block along x, y, z."""
        x, y, z = (self.threads.get(tag, 1) for tag in THREADS)
        return x, y, z

    @property
    def ranges(self) -> Ranges:
        """The ranges of all variables that are free in the body: of the host's, and of the numbers of a thread."""
        if self.form is Form.REGIONS:
            return self.host
        found: dict[str, Range] = {**self.host}
        for tag, blocks in zip(BLOCKS, self.grid, strict=True):
            found[tag] = (0, max(0, int(blocks.value) - 1) if isinstance(blocks, Const) else None)
        for tag, threads in zip(THREADS, self.block, strict=True):
            found[tag] = (0, threads - 1)
        return found
