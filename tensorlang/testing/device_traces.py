"""Hypothesis strategies for random schedules on blocks and threads, as a GPU runs them.

    @given(st.data())
    def test_my_device(data):
        case = data.draw(programs())
        schedule = data.draw(device_schedules(case.outputs))

Stages at the root are tiled, and their tiles bound to blocks, threads and virtual threads; producers and copies go into
shared or local memory inside of them, some ahead of their readers, in pipelines of up to five tiles. Reduce axes run on
threads, too. Refused steps are left out. A schedule may still ask for what no GPU runs, such as threads inside
themselves: then `build` says so, with a ScheduleError or a TargetError.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from hypothesis import strategies as st

from tensorlang.dataclass import dataclass
from tensorlang.errors import ScheduleError
from tensorlang.ir.thread_tags import BLOCKS, THREADS
from tensorlang.schedule import Schedule, create_schedule
from tensorlang.schedule import primitives as p
from tensorlang.schedule.primitive import Primitive
from tensorlang.schedule.primitives.placement import users
from tensorlang.te.axis import AxisKind
from tensorlang.te.operation import ComputeOp, Tensor
from tensorlang.testing.traces import Draw, step_of

_MEMORIES = ("shared", "shared", "shared", "local", "global")
_BEFORE = ("cache_write", "rfactor", "compute_inline", "fuse", "split", "skew")
_AFTER = ("vectorize", "unroll", "split", "reorder", "bind", "shift", "peel", "set_scope", "compute_at", "fuse")


@st.composite
def device_schedules(draw: Draw, outputs: Sequence[Tensor]) -> Schedule:
    """Draw a schedule whose stages run on blocks and threads."""
    schedule = create_schedule(list(dict.fromkeys(t.op for t in outputs)))
    making = _Making(draw, schedule)
    making.some(_BEFORE, 2)
    making.copies()
    for stage in reversed([op.name for op in schedule.program.ops if isinstance(op, ComputeOp)]):
        if stage in schedule.state.stages:
            making.place(stage)
    making.some(_AFTER, 3)
    return schedule


@dataclass(frozen=True)
class _Making:
    """A schedule that grows by the steps that are legal."""

    draw: Draw
    schedule: Schedule

    def pick(self, options: Sequence[Any]) -> Any:
        return self.draw(st.sampled_from(list(options)))

    def once_in(self, count: int) -> bool:
        return int(self.draw(st.integers(1, count))) == count

    def tried(self, step: Primitive) -> bool:
        """Take a step, if it is legal."""
        try:
            self.schedule.advance(step, True)
        except ScheduleError:
            return False
        return True

    def some(self, kinds: Sequence[str], most: int) -> None:
        """Up to `most` steps of some kinds, anywhere."""
        for _ in range(self.draw(st.integers(0, most))):
            for step in step_of(self.draw, self.schedule, self.pick(kinds)):
                if not self.tried(step):
                    break

    def copies(self) -> None:
        """Copies of what stages read, for a while."""
        for _ in range(self.pick((0, 1, 1, 2))):
            program = self.schedule.program
            stage = self.pick([op.name for op in program.ops if isinstance(op, ComputeOp)])
            reads = [b for b, producer in program.producer.items() if stage in program.consumers[producer]]
            if reads:
                self.tried(p.CacheRead(self.pick(reads), self.pick(_MEMORIES[1:]), (stage,)))

    def leaves(self, stage: str, kind: AxisKind) -> list[str]:
        kinds = self.schedule.state.axis_kinds(stage)
        return [a for a in self.schedule.state.stages[stage].leaves if kinds[a] is kind]

    def cut(self, stage: str, axis: str) -> tuple[str, str] | None:
        """The two loops that an axis is split into."""
        factor, tail = self.pick((1, 2, 3, 4, 5, 8)), self.pick(("guard", "guard", "peel"))
        return (f"{axis}_o", f"{axis}_i") if self.tried(p.Split(stage, axis, factor, None, tail)) else None

    def place(self, stage: str) -> None:
        """Put a stage somewhere, and its loops on threads."""
        state = self.schedule.state
        hosts = sorted(u for u in users(state, stage) if state.stages[u].leaves)
        if stage not in state.program.outputs and hosts and not self.once_in(4):
            host = self.pick(hosts)
            if self.tried(p.ComputeAt(stage, host, self.pick(state.stages[host].leaves))):
                return self.inside(stage)
        self.root(stage)
        return None

    def root(self, stage: str) -> None:
        """Tiles on blocks, elements on threads; what is left of them inside the loops of a reduction, or not."""
        blocks, threads, rest = [], [], []
        tags = list(zip(BLOCKS[:2], self.draw(st.permutations(THREADS)), strict=False))
        for axis in self.leaves(stage, AxisKind.SPATIAL):
            parts = self.cut(stage, axis) if tags and not self.once_in(6) else None
            if parts is None:
                rest.append(axis)
                continue
            block, thread = tags.pop(0)
            blocks.append((parts[0], block))
            if self.once_in(4) and (inner := self.cut(stage, parts[1])):
                virtual = self.once_in(2)
                threads.append((inner[virtual], thread))
                rest.append(inner[not virtual])
                if virtual:
                    self.tried(p.Bind(stage, inner[0], "vthread"))
            else:
                threads.append((parts[1], thread))
        used = {tag for _, tag in (*blocks, *threads)}
        shared = self.once_in(4) and self.tried(p.Atomic(stage))  # blocks can then reduce together, too
        reduced = list(self.reduction(stage, [t for t in (*THREADS, *(BLOCKS if shared else ())) if t not in used]))
        order = [a for a, _ in (*blocks, *threads)]
        order += [*rest, *reduced] if self.once_in(2) else [*reduced, *rest]
        self.tried(p.Reorder(stage, tuple(order)))
        for axis, tag in (*blocks, *threads):
            if not self.once_in(12):
                self.tried(p.Bind(stage, axis, tag))

    def reduction(self, stage: str, tags: Sequence[str]) -> Iterator[str]:
        """The loops of a reduction, some of them split, one perhaps on threads."""
        for axis in self.leaves(stage, AxisKind.REDUCE):
            parts = (axis,) if self.once_in(3) else self.cut(stage, axis) or (axis,)
            yield from parts
            if tags and self.once_in(3):
                self.tried(p.Bind(stage, self.pick(parts), self.pick(tags)))

    def inside(self, stage: str) -> None:
        """A part of an array, computed by the threads of a block together, or by each for itself."""
        memory = self.pick(_MEMORIES)
        self.tried(p.SetScope(stage, memory))
        axes = self.leaves(stage, AxisKind.SPATIAL)
        if memory != "local":
            if self.once_in(2) and len(axes) > 1 and self.tried(p.Fuse(stage, tuple(axes[:2]))):
                axes = self.leaves(stage, AxisKind.SPATIAL)
            for axis, tag in zip(axes, self.draw(st.permutations(THREADS)), strict=False):
                whole = self.once_in(2)
                parts = None if whole else self.cut(stage, axis)
                self.tried(p.Bind(stage, axis if parts is None else self.pick(parts), tag))
            if self.once_in(3):
                list(self.reduction(stage, THREADS))
        match self.pick(("tile", "tile", "double", "pipeline", "pipeline", "rolling")):
            case "double":
                self.tried(p.DoubleBuffer(stage))
            case "pipeline":
                self.tried(p.Pipeline(stage, self.pick((2, 3, 4, 5))))
            case "rolling":
                self.tried(p.RollingBuffer(stage))
