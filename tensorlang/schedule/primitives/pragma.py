"""Wishes about the code of a loop: pragma."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from dataclasses import replace

from tensorlang import config, dtypes
from tensorlang.dataclass import dataclass
from tensorlang.errors import BadArgument, UnknownPragma
from tensorlang.ir.loops import BLOCKS_PER_CORE, MOST_UNROLLED, REDUCE_TREE, STRIDED, UNROLL_EXPLICIT
from tensorlang.ir.stmt import LoopKind
from tensorlang.ir.thread_tags import is_block
from tensorlang.location import caller
from tensorlang.polyhedral.ordered import sources
from tensorlang.schedule.names import nearest
from tensorlang.schedule.primitive import Outputs, Primitive, StageName, primitive, unnamed
from tensorlang.schedule.relation import PartsRelation, SplitRelation
from tensorlang.schedule.state import IMPORT_LLVM, NONTEMPORAL, PARTITION_HINT, ScheduleState
from tensorlang.te.axis import AxisKind
from tensorlang.te.operation import HybridOp

Value = int | str | None


@primitive("pragma")
@dataclass(frozen=True, slots=True)
class Pragma(Primitive):
    """Ask for something about the code of a loop. No pragma changes what the loop computes, `reduce_tree` its rounding.

    - `auto_unroll_max_step` N: copy serial loops of constant extent at and below the axis, inner ones first, while the
      copies make at most N stores.
    - `unroll_explicit` False: leave the copying of unrolled loops at and below the axis to LLVM; True: copy them here.
    - `parallel_stride_pattern`: deal the iterations of a parallel loop out in turn, for loops whose work grows.
    - `parallel_barrier_when_finish`: threads wait for each other at the end of a loop, as they always do.
    - `loop_partition_hint`: generate full and partial tiles apart, as `split(..., tail="peel")` does.
    - `reduce_tree`: combine the iterations of a serial reduction loop in any order: as vectors, then lane by lane, or
      those of all rows of a vector loop around it together.
    - `nontemporal`: write the stage's array past the caches, for an output larger than the last of them. It is done for
      whole vectors of an array that the kernel does not read.
    - `blocks_per_core` N: let one multiprocessor of a GPU hold at least N blocks of the kernel at a time, which leaves
      each thread fewer registers; on a loop bound to blocks.
    - `import_llvm` TEXT: LLVM IR whose functions the kernel may call (tir.call_extern in an intrinsic).
    Others are kept, and change no code; who writes one is warned (UnknownPragma).
    Rewrite: `for i in range(n)` -> the same loop, in other code.
    Legal when: the pragma has the value that it takes, and makes sense here.
    Example:
        >>> from tensorlang import te
        >>> A = te.placeholder((100, 4), name="A")
        >>> B = te.compute((100, 4), lambda i, j: A[i, j] + 1, name="B")
        >>> s = te.create_schedule(B.op)
        >>> s[B].pragma("i", "auto_unroll_max_step", 16)
    """

    stage: StageName
    axis: str
    pragma: str
    value: int | str | None = unnamed(None)

    def apply(self, state: ScheduleState) -> tuple[ScheduleState, Outputs]:
        state.looped(self.stage)
        axis = state.leaf(self.stage, self.axis)
        if self.pragma in _REFUSED:
            raise BadArgument("", f"{self.pragma}: {_REFUSED[self.pragma]}")
        value = _KNOWN.get(self.pragma, _kept)(state, self.stage, axis, self.value)
        current = state.stages[self.stage]
        kept = tuple(p for p in current.pragmas.get(axis, ()) if p[0] != self.pragma)
        pragmas = {**current.pragmas, axis: (*kept, (self.pragma, value))}
        is_tree = self.pragma == REDUCE_TREE and self.stage not in state.reassociated
        changed = is_tree and _sums_floats(state, self.stage, axis)
        asked = state.with_stage(replace(current, pragmas=pragmas))
        return replace(asked, reassociated=(*state.reassociated, *([self.stage] if changed else []))), ()

    @property
    def code(self) -> str:
        """Code that the step brings along: only a program that allows it may take that from a record."""
        return self.value if self.pragma == IMPORT_LLVM and isinstance(self.value, str) else ""


Check = Callable[[ScheduleState, str, str, Value], int | str]
"""(state, stage, axis, value) -> the value to record; BadArgument when it makes no sense there."""


def _step(state: ScheduleState, stage: str, axis: str, value: Value) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise BadArgument("", f"{MOST_UNROLLED} takes a number of stores, 0 or more; got {value!r}")
    most = config.get("statements")
    if value > most:
        why = (
            f"{MOST_UNROLLED} takes at most {most} stores, what a kernel may have (TENSORLANG_STATEMENTS); got {value}"
        )
        raise BadArgument("", why)
    return value


def _kept(state: ScheduleState, stage: str, axis: str, value: Value) -> int | str:
    """Whatever an unknown pragma says."""
    return 1 if value is None else value


def warn_of_unknown(pragma: str) -> None:
    """Say that nothing follows a pragma; one with a wrong letter is told the right one."""
    if pragma not in _KNOWN and pragma not in _REFUSED:
        text = f"unknown pragma {pragma!r} is kept in the trace, and changes no code; {nearest(pragma, _KNOWN)}"
        where = caller()
        warnings.warn_explicit(text, UnknownPragma, where.file, where.line)


def _flag(state: ScheduleState, stage: str, axis: str, value: Value) -> int:
    if value not in (0, 1, None):
        raise BadArgument("", f"this pragma takes True or False, got {value!r}")
    return 1 if value is None else int(value)


def _strided(state: ScheduleState, stage: str, axis: str, value: Value) -> int:
    kind = state.stages[stage].kind(axis)
    if kind is not LoopKind.PARALLEL:
        why = f"{STRIDED} says how threads share a parallel loop, and {axis} is {kind.value}"
        raise BadArgument("", why, suggested=[f"s[{stage!r}].parallel({axis!r}); ..."])
    return _flag(state, stage, axis, value)


def _blocks(state: ScheduleState, stage: str, axis: str, value: Value) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise BadArgument("", f"{BLOCKS_PER_CORE} takes a number of blocks, 1 or more; got {value!r}")
    note = state.stages[stage].annotations.get(axis)
    if note is None or not is_block(note.thread):
        why = f"{BLOCKS_PER_CORE} is for loops over the blocks of a GPU, and {axis} of {stage} is not bound to blockIdx"
        raise BadArgument("", why, suggested=[f"s[{stage!r}].bind({axis!r}, 'blockIdx.x'); ..."])
    return value


def _tree(state: ScheduleState, stage: str, axis: str, value: Value) -> int:
    op = state.program[stage]
    if isinstance(op, HybridOp):
        if not any(_summed(state, op, axis)):
            raise BadArgument("", f"{REDUCE_TREE} needs a sum, and loop {axis} of {stage} has none")
    elif state.axis_kinds(stage)[axis] is not AxisKind.REDUCE:
        raise BadArgument("", f"{REDUCE_TREE} needs a reduce axis, and {axis} of {stage} is spatial")
    if state.strict and _sums_floats(state, stage, axis):
        raise BadArgument(
            "",
            f"{REDUCE_TREE} changes the order of floating-point updates of {stage}, and the schedule is strict",
            suggested=["te.create_schedule(..., strict=False)"],
        )
    return _flag(state, stage, axis, value)


def _summed(state: ScheduleState, op: HybridOp, axis: str) -> Iterator[str]:
    """The dtypes of what the statements in a loop of a script add up, multiply, or take the least of."""
    stage, found = state.stages[op.name], sources(op)
    for name, path in stage.places.items():
        source = found[stage.strands[name].source]
        if axis in path and source.reducer:
            yield source.store.buffer.dtype


def _sums_floats(state: ScheduleState, stage: str, axis: str) -> bool:
    op = state.program[stage]
    summed = _summed(state, op, axis) if isinstance(op, HybridOp) else state.compute_op(stage).dtypes
    return any(dtypes.info(dtype).is_float for dtype in summed)


def _partition(state: ScheduleState, stage: str, axis: str, value: Value) -> int:
    splits = [r for r in state.stages[stage].all_relations if isinstance(r, SplitRelation | PartsRelation)]
    outer = [r.outer for r in splits if r.outer in state.stages[stage].leaves]
    if axis not in outer:
        legal = [f"s[{stage!r}].pragma({a!r}, {PARTITION_HINT!r})" for a in outer]
        raise BadArgument(
            "", f"no tile of {stage} that a guard may cut starts at {axis}: split makes such axes", suggested=legal
        )
    return _flag(state, stage, axis, value)


def _text(state: ScheduleState, stage: str, axis: str, value: Value) -> str:
    if not isinstance(value, str) or "define" not in value:
        shown = "nothing" if value is None else repr(value)[:40]
        raise BadArgument("", f"{IMPORT_LLVM} takes LLVM IR text that defines functions, got {shown}")
    return value


_KNOWN: dict[str, Check] = {
    MOST_UNROLLED: _step,
    UNROLL_EXPLICIT: _flag,
    STRIDED: _strided,
    "parallel_barrier_when_finish": _flag,
    PARTITION_HINT: _partition,
    IMPORT_LLVM: _text,
    NONTEMPORAL: _flag,
    REDUCE_TREE: _tree,
    BLOCKS_PER_CORE: _blocks,
}

_REFUSED = {
    "parallel_launch_point": "threads are launched at the parallel loop itself; put parallel on an outer loop",
    "import_c": "tensorlang has no C compiler; compile the file with `clang -S -emit-llvm`, and use import_llvm",
    "debug_skip_region": "a kernel always runs all of its program; schedule the part that you want to see by itself",
    "debug_keep_trivial_loop": "a loop of one iteration is never kept",
    "tensor_core": "the CPU has none; see tensorize",
}
"""Pragmas of classic te that have no meaning here -> why."""
