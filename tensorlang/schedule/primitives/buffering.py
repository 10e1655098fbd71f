"""How arrays use memory: rolling_buffer, double_buffer, pipeline, fold_storage, storage_align, swizzle, bulk_copy."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Protocol

from tensorlang.dataclass import dataclass
from tensorlang.errors import BadArgument
from tensorlang.ir.expr import Expr, to_text
from tensorlang.ir.swizzle import ATOM_ROWS, can_swizzle, panel_rows, row_bytes
from tensorlang.polyhedral.folding import window
from tensorlang.polyhedral.zeros import begins_as_zeros
from tensorlang.schedule.axis_range import constant
from tensorlang.schedule.boxes import boxed_tile
from tensorlang.schedule.check import legal_places
from tensorlang.schedule.derive import derive
from tensorlang.schedule.derive.derivation import memory_of
from tensorlang.schedule.members import AxisLike, by_own_names
from tensorlang.schedule.names import nearest
from tensorlang.schedule.primitive import Decision, Outputs, Primitive, StageName, primitive, unnamed, value_of, whole
from tensorlang.schedule.primitives.placement import on_copy
from tensorlang.schedule.state import ScheduleState
from tensorlang.schedule.storage import Storage
from tensorlang.te.operation import HybridOp, PlaceholderOp, buffers
from tensorlang.te.program import local_arrays

_MOST = 64  # the largest modulus that fold_storage looks for


def _attached(state: ScheduleState, stage: str, word: str) -> Storage:
    """The storage of a stage that is computed inside a loop; BadArgument where it is not."""
    state.compute_op(stage)
    current = state.stages[stage]
    if current.attach is None or current.attach.after:
        places = [p for p in legal_places(state, stage) if "compute_at" in p]
        why = f"{word} needs a stage that is computed inside a loop, and {stage} is not"
        raise BadArgument("", why, suggested=[f"{place}; ..." for place in places])
    return current.storage


@primitive("rolling_buffer")
@dataclass(frozen=True, slots=True)
class RollingBuffer(Primitive):
    """Keep what neighbouring tiles share: compute only the new part of each tile, in memory that is used in turn.

    Rewrite: `for i: P[i:i+3]; C` -> `for i: if i == 0: P[0:3] else: P[i+2]; C`, P in three rows taken modulo 3.
    Legal when: the stage is computed inside a loop along which its tile moves evenly; the loop stays sequential; no
    value is overwritten before its last use.
    Example:
        >>> from tensorlang import te
        >>> A = te.placeholder((34, 32), name="A")
        >>> B = te.compute((34, 32), lambda i, j: A[i, j] * 2, name="B")
        >>> C = te.compute((32, 32), lambda i, j: B[i, j] + B[i + 1, j] + B[i + 2, j], name="C")
        >>> s = te.create_schedule(C.op)
        >>> s[B].compute_at(s[C], "i")
        >>> s[B].rolling_buffer()
    """

    stage: StageName

    def apply(self, state: ScheduleState) -> tuple[ScheduleState, Outputs]:
        storage = _attached(state, self.stage, "rolling_buffer")
        return state.stored(self.stage, replace(storage, rolling=True, ahead=0, kept=1)), ()


@primitive("double_buffer")
@dataclass(frozen=True, slots=True)
class DoubleBuffer(Primitive):
    """Compute each tile one iteration before it is read, in two buffers used in turn.

    Rewrite: `for k: P[k]; C[k]` -> `P[0]; for k: P[k + 1] into the other half; C[k]`.
    Legal when: the stage is computed inside a sequential loop, and what it reads is there one iteration earlier.
    Example:
        >>> from tensorlang import te
        >>> A = te.placeholder((64,), name="A")
        >>> B = te.compute((64,), lambda i: A[i] * 2, name="B")
        >>> C = te.compute((64,), lambda i: B[i] + 1, name="C")
        >>> s = te.create_schedule(C.op)
        >>> i_o, i_i = s[C].split("i", factor=16)
        >>> s[B].compute_at(s[C], i_o)
        >>> s[B].double_buffer()
    """

    stage: StageName

    def apply(self, state: ScheduleState) -> tuple[ScheduleState, Outputs]:
        storage = _attached(state, self.stage, "double_buffer")
        return state.stored(self.stage, replace(storage, rolling=False, ahead=1, kept=2)), ()


@primitive("pipeline")
@dataclass(frozen=True, slots=True)
class Pipeline(Primitive):
    """Keep `stages` tiles at once: each is computed `ahead` iterations before it is read, `stages - 1` if not given.

    With two stages it is double_buffer. On a GPU, tiles in shared memory that are plain copies of global memory are
    copied asynchronously, where the architecture can (cp.async, sm_80 and later). With fewer tiles ahead the memory of
    one that was read is not written again at once: machine code that still reads it (wgmma) can go on for longer.
    Rewrite: `for k: P[k]; C[k]` -> `P[0]; P[1]; for k: P[k + 2] into the part of tile k - 1; C[k]`, for three stages.
    Legal when: the stage is computed inside a sequential loop, and what it reads is there that many iterations earlier.
    A sampled decision may be 1: the stage is not pipelined.
    Example:
        >>> from tensorlang import te
        >>> A = te.placeholder((64,), name="A")
        >>> B = te.compute((64,), lambda i: A[i] * 2, name="B")
        >>> C = te.compute((64,), lambda i: B[i] + 1, name="C")
        >>> s = te.create_schedule(C.op)
        >>> i_o, i_i = s[C].split("i", factor=16)
        >>> s[B].compute_at(s[C], i_o)
        >>> s[B].pipeline(3)
    """

    stage: StageName
    stages: int
    ahead: int | None = None

    def apply(self, state: ScheduleState) -> tuple[ScheduleState, Outputs]:
        stages = value_of(self.stages, state)
        if stages == 1 and isinstance(self.stages, Decision):
            return state, ()
        if stages < 2:
            raise BadArgument("", f"a pipeline has at least 2 stages, got {stages}")
        ahead = stages - 1 if self.ahead is None else self.ahead
        if not 1 <= ahead < stages:
            raise BadArgument("", f"of {stages} stages 1 to {stages - 1} are computed ahead, got ahead={ahead}")
        storage = _attached(state, self.stage, "pipeline")
        return state.stored(self.stage, replace(storage, rolling=False, ahead=ahead, kept=stages)), ()


@primitive("fold_storage")
@dataclass(frozen=True, slots=True)
class FoldStorage(Primitive):
    """Let elements of an intermediate array share memory: the index of a dimension is taken modulo `factor`.

    Without a factor, the smallest one is chosen that loses no value.
    Rewrite: `T[i]` -> `T[i % factor]`.
    Legal when: no element is overwritten before its last use, proven from the order of all its writes and reads.
    Example:
        >>> from tensorlang import te
        >>> @te.hybrid.script
        ... def smooth(A):
        ...     out = output_tensor((30,), "float32")
        ...     t = allocate((32,), "float32")
        ...     for i in range(32):
        ...         t[i] = A[i] * 2.0
        ...         if i >= 2:
        ...             out[i - 2] = t[i] + t[i - 2]
        ...     return out
        >>> A = te.placeholder((32,), name="A")
        >>> s = te.create_schedule(smooth(A).op)
        >>> s["smooth"].fold_storage("t", 0)
        3
    """

    stage: StageName
    array: str
    dim: int
    factor: int | None = unnamed(None)

    def apply(self, state: ScheduleState) -> tuple[ScheduleState, Outputs]:
        op = state.looped(self.stage)
        known = {b.name: b for b in (*buffers(op), *(local_arrays(op) if isinstance(op, HybridOp) else ()))}
        name = self.array if self.array in known else f"{self.stage}.{self.array}"
        if name not in known:
            raise BadArgument("", f"{self.stage} makes no array {self.array!r}; {nearest(self.array, known)}")
        if name in state.program.storage and _is_argument(state, name):
            raise BadArgument("", f"{name} belongs to the caller; only intermediate arrays can be folded")
        root, updates = state.program.storage.get(name, (name, 0))
        if updates:
            repair = f"s[{state.program.producer[root]!r}].fold_storage({root!r}, {self.dim})"
            why = f"{name} is {root}, updated in place: it has no memory of its own"
            raise BadArgument("", why, suggested=[repair])
        rank = len(known[name].shape)
        if not 0 <= self.dim < rank:
            raise BadArgument("", f"dim must be between 0 and {rank - 1}, got {self.dim}")
        if self.factor is not None and self.factor < 1:
            raise BadArgument("", f"factor must be at least 1, got {self.factor}")
        if isinstance(op, HybridOp) and name in begins_as_zeros(op, state.sizes):
            raise BadArgument("", f"elements of {name} may be read that nothing wrote, and are zero then: no folding")
        storage = state.stages[self.stage].storage
        factor = value_of(self.factor, state) if self.factor is not None else self._smallest(state, name)
        moduli = list(storage.folds.get(name, (0,) * rank))
        moduli[self.dim] = factor
        return state.stored(self.stage, replace(storage, folds={**storage.folds, name: tuple(moduli)})), (str(factor),)

    def _smallest(self, state: ScheduleState, name: str) -> int:
        scop = derive(state).scop
        shape = next(a.shape for a in scop.arrays if a.name == name)
        own = len(state.program.buffers[name].shape) if name in state.program.buffers else len(shape)
        found = window(scop, name, len(shape) - own + self.dim if own != len(shape) else self.dim, _MOST)
        if found is None:
            raise BadArgument("", f"no factor up to {_MOST} keeps every value of {name} until its last use")
        return found


@primitive("storage_align")
@dataclass(frozen=True, slots=True)
class StorageAlign(Primitive):
    """Pad an intermediate array so that the stride of a dimension is `k * factor + offset`.

    Rewrite: `T: float32[16, 100]` -> storage_align(axis 0, 16, 8) -> `T: float32[16, 100 + 4]`, of stride 6 * 16 + 8.
    Legal when: the stage is no output, its tile has a constant size, and padding the next dimension can reach the
    stride.
    Example:
        >>> from tensorlang import te
        >>> A = te.placeholder((16, 100), name="A")
        >>> B = te.compute((16, 100), lambda i, j: A[i, j] * 2, name="B")
        >>> C = te.compute((16, 100), lambda i, j: B[i, j] + 1, name="C")
        >>> s = te.create_schedule(C.op)
        >>> s[B].storage_align(B.op.axis[0], 16, 8)
    """

    stage: StageName
    axis: str
    factor: int
    offset: int

    def apply(self, state: ScheduleState) -> tuple[ScheduleState, Outputs]:
        op = state.compute_op(self.stage)
        if self.stage in state.program.outputs:
            why = f"{self.stage} is an output, whose layout is the caller's"
            raise BadArgument("", why, suggested=[on_copy(self.stage, self.text())])
        names = [a.name for a in op.axes]
        if self.axis not in names:
            raise BadArgument("", f"{self.axis} is no axis of {self.stage}; {nearest(self.axis, names)}")
        if self.factor < 1:
            raise BadArgument("", f"factor must be at least 1, got {self.factor}")
        place = names.index(self.axis)
        storage = state.stages[self.stage].storage
        strides = {b.name: (place, self.factor, self.offset) for b in buffers(op)}
        made = state.stored(self.stage, replace(storage, aligned={**storage.aligned, **strides}))
        plans, inside = memory_of(made, op), len(op.axes) - place - 1
        for b in buffers(op):
            shape = plans[b.name].buffer.shape
            self._check(shape[len(shape) - inside :])
        return made, ()

    def _check(self, inside: tuple[Expr, ...]) -> None:
        stride = 1
        for extent in inside:
            size = constant(extent)
            if size is None:
                raise BadArgument("", f"storage_align needs constant sizes inside {self.axis}, got {to_text(extent)}")
            stride *= size
        if stride % self.factor != self.offset % self.factor:
            raise BadArgument("", f"no padding inside {self.axis} gives a stride of {self.factor} * k + {self.offset}")


@primitive("swizzle")
@dataclass(frozen=True, slots=True)
class Swizzle(Primitive):
    """Store the chunks of 16 bytes of each row in turned order, so that threads read a column of them at once.

    Chunk c of row r lies at chunk `c ^ f(r)`: eight neighbouring rows have one each in all banks of shared memory. Only
    the place in memory changes, on GPUs, and nothing else has to know; elsewhere it is left out.
    With `panels`, rows of more than 128 bytes are cut in panels of 128, which lie one behind the other: for products of
    warp groups that take an operand along its rows (wgmma of B as [k, n], or of A as [k, m]).
    Rewrite: `T[r, 8 * c + i]`, of float16 in rows of 128 bytes -> `T[r, 8 * (c ^ r % 8) + i]`.
    Legal when: the stage is no output, has two dimensions or more, and rows of 32, 64 or a multiple of 128 bytes; with
    panels a multiple of 8 of them.
    Example:
        >>> from tensorlang import te
        >>> A = te.placeholder((64, 64), "float16", name="A")
        >>> C = te.compute((64, 64), lambda i, j: A[j, i] * 2, name="C")
        >>> s = te.create_schedule(C.op)
        >>> S = s.cache_read(A, "shared", [C])
        >>> s[S].swizzle()
    """

    stage: StageName
    panels: bool = False

    def apply(self, state: ScheduleState) -> tuple[ScheduleState, Outputs]:
        op = state.compute_op(self.stage)
        if self.stage in state.program.outputs:
            why = f"{self.stage} is an output, whose layout is the caller's"
            raise BadArgument("", why, suggested=[on_copy(self.stage, self.text())])
        storage = replace(state.stages[self.stage].storage, swizzled=True, panels=self.panels)
        made = state.stored(self.stage, storage)
        plans = derive(made).plans
        for b in buffers(op):
            size = row_bytes(plans[b.name].buffer)
            if len(op.axes) < 2 or size is None or not can_swizzle(size):
                rows = "no rows" if len(op.axes) < 2 else f"rows of {plans[b.name].buffer.shape[-1]} {b.dtype}"
                why = f"swizzle takes rows of 32, 64 or a multiple of 128 bytes, and {b.name} has {rows}"
                raise BadArgument("", why, suggested=["compute_at first, where the tile has rows of such a length"])
            deep = panel_rows(plans[b.name].buffer) if self.panels else ATOM_ROWS
            if deep is None or deep % ATOM_ROWS:
                why = f"panels have a multiple of {ATOM_ROWS} rows of 128 bytes, and {plans[b.name].buffer} has not"
                raise BadArgument("", why, suggested=["compute_at first, where the tile has rows of such a number"])
        return made, ()


@primitive("bulk_copy")
@dataclass(frozen=True, slots=True)
class BulkCopy(Primitive):
    """Let one thread ask for each tile of a stage, and the hardware copy it (TMA): no thread computes addresses.

    For tiles in shared memory of a pipeline, on NVIDIA GPUs from sm_90 on, and under the interpreter; on other targets
    the loops of the stage run as they are scheduled. The copy has zeros where the tile reaches outside of the argument.
    Rewrite: `for k: copy P[k + 2], all threads; wait for P[k]; C[k]` -> `for k: one thread begins the copy of the box
    P[k + 2]; all wait for the memory barrier of P[k]; C[k]`.
    Legal when: the stage copies an argument as it is, its dimensions in their order (zeros outside), in tiles of
    constant size with rows of at most 256 elements, a multiple of 16 bytes, and at most 128 bytes if they are swizzled.
    Example:
        >>> from tensorlang import te
        >>> A = te.placeholder((64, 256), name="A")
        >>> C = te.compute((64, 256), lambda i, j: A[i, j] * 2, name="C")
        >>> s = te.create_schedule(C.op)
        >>> S = s.cache_read(A, "shared", [C])
        >>> j_o, j_i = s[C].split("j", 64)
        >>> s[C].reorder(j_o, "i", j_i)
        >>> s[S].compute_at(s[C], j_o)
        >>> s[S].pipeline(3)
        >>> s[S].bulk_copy()
    """

    stage: StageName

    def apply(self, state: ScheduleState) -> tuple[ScheduleState, Outputs]:
        boxed_tile(state, derive(state), self.stage)
        return state.stored(self.stage, replace(state.stages[self.stage].storage, in_bulk=True)), ()


def _is_argument(state: ScheduleState, buffer: str) -> bool:
    """Whether an array is in the memory of an input or an output, under its own name or another."""
    storage = state.program.storage
    held = [name for name, (root, _) in storage.items() if root == storage[buffer][0]]
    made = (state.program[state.program.producer[name]] for name in held)
    return any(isinstance(op, PlaceholderOp) for op in made) or any(map(state.program.is_output, held))


class Steps(Protocol):
    """What these methods ask of the schedule of a stage."""

    def apply(self, step: Primitive) -> Outputs: ...

    def buffer_of(self, key: Any) -> str: ...


@by_own_names
class StorageSteps:
    """The methods of a stage by which users change how its arrays use memory."""

    schedule: Steps
    name: str

    def rolling_buffer(self) -> None:
        """Keep what neighbouring tiles share. See RollingBuffer."""
        self.schedule.apply(RollingBuffer(self.name))

    def double_buffer(self) -> None:
        """Compute each tile one iteration ahead. See DoubleBuffer."""
        self.schedule.apply(DoubleBuffer(self.name))

    def pipeline(self, stages: int, ahead: int | None = None) -> None:
        """Keep several tiles at once, each computed some iterations ahead. See Pipeline."""
        self.schedule.apply(Pipeline(self.name, whole(stages), whole(ahead)))

    def fold_storage(self, array: Any, dim: int, factor: int | None = None) -> int:
        """Let elements of an intermediate array share memory; returns the modulus. See FoldStorage.

        `array`: a tensor, its name, or the name of a local array of a hybrid stage.
        """
        name = array if isinstance(array, str) else self.schedule.buffer_of(array)
        return int(self.schedule.apply(FoldStorage(self.name, name, dim, whole(factor)))[0])

    def storage_align(self, axis: AxisLike, factor: int, offset: int) -> None:
        """Pad the array of the stage to a stride of `k * factor + offset`. See StorageAlign."""
        self.schedule.apply(StorageAlign(self.name, str(axis), whole(factor), whole(offset)))

    def swizzle(self, panels: bool = False) -> None:
        """Turn the order of chunks in the rows of the stage's array. See Swizzle."""
        self.schedule.apply(Swizzle(self.name, panels))

    def bulk_copy(self) -> None:
        """Let one thread of a block copy the tiles of the stage, where the GPU can. See BulkCopy."""
        self.schedule.apply(BulkCopy(self.name))
