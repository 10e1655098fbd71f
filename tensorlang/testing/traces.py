"""Hypothesis strategies for random schedules: any primitive, any stage, any axis; refused steps are left out.

@given(st.data())
def test_my_backend(data):
    case = data.draw(programs())
    schedule = data.draw(schedules(case.outputs))
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tensorlang.errors import MissingDependency, ScheduleError
from tensorlang.schedule import Schedule, create_schedule
from tensorlang.schedule import primitives as p
from tensorlang.schedule.primitive import Primitive
from tensorlang.te.operation import ComputeOp, Tensor

try:
    from hypothesis import strategies as st
except ImportError as error:
    raise MissingDependency("random schedules need hypothesis: pip install 'tensorlang[test]'") from error

Draw = Callable[[Any], Any]

LAYOUTS: dict[int, tuple[tuple[str, ...], ...]] = {
    1: (("a0 // 2", "a0 % 2"), ("a0 % 3", "a0 // 3"), ("2 * a0",)),
    2: (("a1", "a0"), ("a1 // 2", "a0", "a1 % 2"), ("a0 // 3", "a1 // 2", "a0 % 3", "a1 % 2")),
    3: (("a2", "a0", "a1"), ("a0", "a1 // 2", "a2", "a1 % 2")),
}


@st.composite
def schedules(
    draw: Draw, outputs: Sequence[Tensor], max_steps: int = 8, threads: bool = False, check: bool = True
) -> Schedule:
    """Draw a schedule of up to `max_steps` steps. `check=False` keeps illegal orders; `threads` may bind axes."""
    schedule = create_schedule([t.op for t in outputs])
    for _ in range(draw(st.integers(1, max_steps))):
        step = _step(draw, schedule, threads)
        if step is not None:
            try:
                schedule.advance(step, check)
            except ScheduleError:
                continue
    return schedule


def _step(draw: Draw, s: Schedule, threads: bool) -> Primitive | None:
    stages = [op.name for op in s.program.ops if isinstance(op, ComputeOp)]
    stage = draw(st.sampled_from(stages))
    leaves = s.state.stages[stage].leaves
    if not leaves:
        return None
    axis = draw(st.sampled_from(leaves))
    makers: dict[str, Callable[[], Primitive | None]] = {
        "split": lambda: _split(draw, stage, axis),
        "fuse": lambda: _fuse(stage, leaves, axis),
        "reorder": lambda: p.Reorder(stage, tuple(draw(st.permutations(leaves)))),
        "skew": lambda: p.Skew(stage, axis, draw(st.sampled_from(leaves)), draw(st.integers(-2, 2))),
        "vectorize": lambda: p.Vectorize(stage, axis),
        "unroll": lambda: p.Unroll(stage, axis),
        "parallel": lambda: p.Parallel(stage, axis),
        "compute_at": lambda: _compute_at(draw, s, stage),
        "compute_inline": lambda: p.ComputeInline(stage),
        "cache_read": lambda: _cache_read(draw, s, stage),
        "cache_write": lambda: p.CacheWrite(stage, draw(st.sampled_from(("global", "local")))),
        "rfactor": lambda: p.RFactor(stage, axis, draw(st.integers(0, 1))),
        "transform_layout": lambda: _layout(draw, s, stage),
    }
    if threads:
        makers["bind"] = lambda: p.Bind(stage, axis, draw(st.sampled_from(("blockIdx.x", "threadIdx.x"))))
    names = [*makers, "split", "split", "compute_at", "compute_at", "reorder"]
    return makers[draw(st.sampled_from(names))]()


def _split(draw: Draw, stage: str, axis: str) -> Primitive:
    number = draw(st.integers(1, 5))
    tail = draw(st.sampled_from(("guard", "guard", "peel", "perfect")))
    if draw(st.booleans()) and draw(st.booleans()):
        return p.Split(stage, axis, None, number, tail)
    return p.Split(stage, axis, number, None, tail)


def _fuse(stage: str, leaves: Sequence[str], axis: str) -> Primitive | None:
    at = list(leaves).index(axis)
    return p.Fuse(stage, tuple(leaves[at : at + 2])) if at + 1 < len(leaves) else None


def _compute_at(draw: Draw, s: Schedule, stage: str) -> Primitive | None:
    users = [u for u in s.program.consumers[stage] if u in s.state.stages and s.state.stages[u].leaves]
    if not users:
        return None
    user = draw(st.sampled_from(users))
    return p.ComputeAt(stage, user, draw(st.sampled_from(s.state.stages[user].leaves)))


def _cache_read(draw: Draw, s: Schedule, stage: str) -> Primitive | None:
    reads = [b for b, producer in s.program.producer.items() if stage in s.program.consumers[producer]]
    return (
        p.CacheRead(draw(st.sampled_from(reads)), draw(st.sampled_from(("global", "local"))), (stage,))
        if reads
        else None
    )


def _layout(draw: Draw, s: Schedule, stage: str) -> Primitive | None:
    rank = len(s.program[stage].axis)
    if rank not in LAYOUTS:
        return None
    return p.TransformLayout(stage, tuple(f"a{k}" for k in range(rank)), draw(st.sampled_from(LAYOUTS[rank])))
