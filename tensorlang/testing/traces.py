"""Hypothesis strategies for random schedules: any primitive, any stage, any axis; refused steps are left out.

@given(st.data())
def test_my_backend(data):
    case = data.draw(programs())
    schedule = data.draw(schedules(case.outputs))
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

from tensorlang.dataclass import dataclass
from tensorlang.errors import MissingDependency, ScheduleError
from tensorlang.schedule import Schedule, create_schedule, order
from tensorlang.schedule import primitives as p
from tensorlang.schedule.primitive import Decision, Primitive
from tensorlang.schedule.primitives.placement import users
from tensorlang.te.axis import AxisKind
from tensorlang.te.operation import ComputeOp, HybridOp, Tensor, buffers
from tensorlang.testing.tiles import intrinsic_of

try:
    from hypothesis import strategies as st
except ImportError as error:
    raise MissingDependency("random schedules need hypothesis: pip install 'tensorlang[test]'") from error

Draw = Callable[[Any], Any]
Steps = Sequence[Primitive]

LAYOUTS: dict[int, tuple[tuple[str, ...], ...]] = {
    1: (("a0 // 2", "a0 % 2"), ("a0 % 3", "a0 // 3"), ("2 * a0",)),
    2: (("a1", "a0"), ("a0 + a1", "a0"), ("a1 // 2", "a0", "a1 % 2"), ("a0 // 3", "a1 // 2", "a0 % 3", "a1 % 2")),
    3: (("a2", "a0", "a1"), ("a0", "a1 // 2", "a2", "a1 % 2")),
}
MATRICES = (
    ((1, 0), (1, 1)),
    ((1, 1), (0, 1)),
    ((0, 1), (1, 0)),
    ((1, 1), (1, 2)),
    ((1, 0), (0, -1)),
    ((-1, 0), (2, 1)),
)
"""Unimodular."""
ROWS = (((1, 0), (0, 1)), ((1, 0), (1, 1)), ((1, 1), (1, -1)), ((1, 1), (0, 1)), ((1, 0), (2, 1)))
"""Hyperplanes that cut tiles."""
_TAILS = ("guard", "guard", "peel", "perfect")
_SCOPES = ("global", "local")
_THREADS = ("blockIdx.x", "threadIdx.x")


@st.composite
def schedules(
    draw: Draw,
    outputs: Sequence[Tensor],
    max_steps: int = 8,
    threads: bool = False,
    check: bool = True,
    favoured: Sequence[str] = (),
    first: Steps = (),
) -> Schedule:
    """Draw a schedule of up to `max_steps` steps after those of `first`.

    `threads` may bind axes; `favoured` primitives are tried most.

    `check=False` keeps steps that only the analysis would refuse, and asks for more of them: reduce axes in parallel,
    stages inside loops that not all of their readers share. About a quarter of such schedules are illegal. What waits
    at the end for its readers to be where it is to be computed is computed at the root.
    """
    schedule = create_schedule(list(dict.fromkeys(t.op for t in outputs)))
    for step in first:
        schedule.advance(step, check)
    for _ in range(draw(st.integers(1 if check else (max_steps + 1) // 2, max_steps))):
        for step in _Drawing(draw, schedule, check, favoured).steps(threads):
            try:
                schedule.advance(step, check)
            except ScheduleError:
                break
    for name in [name for name, stage in schedule.state.stages.items() if stage.wished is not None]:
        schedule.advance(p.ComputeRoot(name), check)
    return schedule


def step_of(draw: Draw, schedule: Schedule, kind: str) -> Steps:
    """Draw a step of one kind for any stage, or two that belong together; none where there is nothing to do."""
    drawing = _Drawing(draw, schedule, True, ())
    stage = drawing.stage(bold=False)
    leaves = schedule.state.stages[stage].leaves
    return MAKERS[kind](drawing, stage, leaves) if leaves else ()


def _names(rank: int) -> tuple[str, ...]:
    """The names of dimensions in LAYOUTS."""
    return tuple(f"a{k}" for k in range(rank))


@dataclass(frozen=True)
class _Drawing:
    """One random step (or two that belong together) of a schedule."""

    draw: Draw
    schedule: Schedule
    check: bool
    favoured: Sequence[str]

    def steps(self, threads: bool) -> Steps:
        """The steps of one kind at one place; none where there is nothing to do."""
        weights = WEIGHTS if self.check else WEIGHTS | BOLD
        kinds = [k for k, weight in weights.items() for _ in range(weight) if threads or k != "bind"]
        kind = self.pick([*list(self.favoured) * FAVOUR, *kinds])
        stage = self.stage(bold=not self.check and kind in BOLD)
        leaves = self.schedule.state.stages[stage].leaves
        return MAKERS[kind](self, stage, leaves) if leaves else ()

    def pick(self, options: Sequence[Any]) -> Any:
        return self.draw(st.sampled_from(list(options)))

    def below(self, high: int) -> int:
        return int(self.draw(st.integers(0, high - 1)))

    def stage(self, bold: bool) -> str:
        """A stage; a bold choice is one that has a reduction or a reader, if there is any."""
        state = self.schedule.state
        ordered = [op.name for op in state.program.ops if isinstance(op, HybridOp)]
        names = [op.name for op in state.program.ops if isinstance(op, ComputeOp)] + ordered * 3
        fragile = [n for n in names if state.program.consumers[n] or self.reduced(n, state.stages[n].leaves)] + ordered
        return str(self.pick((bold and fragile) or names))

    def reduced(self, stage: str, leaves: Sequence[str]) -> list[str]:
        kinds = self.schedule.state.axis_kinds(stage)
        return [a for a in leaves if kinds[a] is AxisKind.REDUCE]

    def shared(self, stage: str, leaves: Sequence[str]) -> str:
        """An axis to share among threads or lanes: without a check often a reduce axis."""
        bold = self.reduced(stage, leaves) if not self.check and self.below(4) else []
        return str(self.pick(bold or leaves))

    def split(self, stage: str, leaves: Sequence[str]) -> Steps:
        axis, number, tail = self.pick(leaves), 1 + self.below(5), self.pick(_TAILS)
        if self.below(4) == 0:
            return (p.Split(stage, axis, None, number, tail),)
        if self.below(4) == 0:
            name = f"d{len(self.schedule.state.decisions)}"
            choice = p.SampleChoice(name, (1, 2, 3, 4, 5), number)
            return choice, p.Split(stage, axis, Decision(name, number), None, tail)
        return (p.Split(stage, axis, number, None, tail),)

    def band(self, stage: str, leaves: Sequence[str]) -> tuple[str, ...]:
        """Loops that hold nothing but each other, from one of them inwards; all those of a compute stage."""
        tree = self.schedule.state.stages[stage].order
        if isinstance(self.schedule.program[stage], ComputeOp):
            return tuple(leaves)
        axis = self.pick(leaves)
        chain, body = [axis], order.find(tree, axis).body
        while len(body) == 1 and isinstance(body[0], order.LoopNode):
            chain.append(body[0].axis)
            body = body[0].body
        return tuple(chain)

    def fuse(self, stage: str, leaves: Sequence[str]) -> Steps:
        band = self.band(stage, leaves)
        at = self.below(len(band))
        return (p.Fuse(stage, band[at : at + 2]),) if at + 1 < len(band) else ()

    def reorder(self, stage: str, leaves: Sequence[str]) -> Steps:
        return (p.Reorder(stage, tuple(self.draw(st.permutations(self.band(stage, leaves))))),)

    def skew(self, stage: str, leaves: Sequence[str]) -> Steps:
        axis = self.pick(leaves)
        around = order.path(self.schedule.state.stages[stage].order, axis)
        return (p.Skew(stage, axis, self.pick(around), self.below(5) - 2),)

    def affine(self, stage: str, leaves: Sequence[str]) -> Steps:
        band = self.band(stage, leaves)
        at = self.below(len(band))
        return (p.Affine(stage, band[at : at + 2], self.pick(MATRICES)),) if at + 1 < len(band) else ()

    def tile_by(self, stage: str, leaves: Sequence[str]) -> Steps:
        band = self.band(stage, leaves)
        at = self.below(len(band))
        if at + 1 >= len(band):
            return ()
        sizes = (1 + self.below(3), 1 + self.below(3))
        return (p.TileBy(stage, band[at : at + 2], self.pick(ROWS), sizes, (self.below(3), 0)),)

    def compute_at(self, stage: str, leaves: Sequence[str]) -> Steps:
        state = self.schedule.state
        hosts = sorted(u for u in users(state, stage) if state.stages[u].leaves)
        if not hosts:
            return ()
        host = self.pick(hosts)
        return (p.ComputeAt(stage, host, self.pick(state.stages[host].leaves)),)

    def cache_read(self, stage: str, leaves: Sequence[str]) -> Steps:
        program = self.schedule.program
        reads = [b for b, producer in program.producer.items() if stage in program.consumers[producer]]
        return (p.CacheRead(self.pick(reads), self.pick(_SCOPES), (stage,)),) if reads else ()

    def shift(self, stage: str, leaves: Sequence[str]) -> Steps:
        axis, by = self.pick(leaves), str(self.below(6) - 2)
        tree = self.schedule.state.stages[stage].order
        statements = list(order.statements(order.find(tree, axis).body))
        alone = isinstance(self.schedule.program[stage], HybridOp) and self.below(3)
        return (p.Shift(stage, axis, by, self.pick(statements) if alone else ""),)

    def fission(self, stage: str, leaves: Sequence[str]) -> Steps:
        loops = list(order.loops(self.schedule.state.stages[stage].order))
        loop = self.pick([loop for loop in loops if len(loop.body) > 1] or loops)
        children = [n if isinstance(n, str) else n.axis for n in loop.body]
        return (p.Fission(stage, loop.axis, self.pick(["", *children])),)

    def fuse_with(self, stage: str, leaves: Sequence[str]) -> Steps:
        state = self.schedule.state
        pairs = [
            p.FuseWith(stage, a, b, "")
            for axis in leaves
            for around in [[loop.axis for loop in order.loops_at(order.siblings(state.stages[stage].order, axis))]]
            for a, b in pairwise(around)
        ]
        if pairs and self.below(4):
            return (self.pick(pairs),)
        others = [s.name for s in state.stages.values() if s.leaves and s.name != stage]
        if not others:
            return ()
        other = self.pick(others)
        return (p.FuseWith(stage, leaves[0], state.stages[other].leaves[0], other),)

    def rfactor(self, stage: str, leaves: Sequence[str]) -> Steps:
        reduced = self.reduced(stage, leaves)
        return (p.RFactor(stage, self.pick(reduced), self.below(2)),) if reduced else ()

    def tensorize(self, stage: str, leaves: Sequence[str]) -> Steps:
        axis = self.pick(leaves)
        fits = intrinsic_of(self.schedule, stage, axis) if isinstance(self.schedule.program[stage], ComputeOp) else None
        return () if fits is None else (p.Tensorize(stage, axis, fits.name, fits.key),)

    def layout(self, stage: str, leaves: Sequence[str]) -> Steps:
        """Another layout of a stage; those of outputs are left to callers, whose arrays would have them."""
        rank = len(self.schedule.program[stage].axis)
        if rank not in LAYOUTS or stage in self.schedule.program.outputs:
            return ()
        return (p.TransformLayout(stage, _names(rank), self.pick(LAYOUTS[rank])),)

    def layout_in_place(self, stage: str, leaves: Sequence[str]) -> Steps:
        op = self.schedule.program[stage]
        rank = len(buffers(op)[0].shape)
        if not isinstance(op, HybridOp) or rank not in LAYOUTS:
            return ()
        return (p.CacheInplace(stage, _names(rank), self.pick(LAYOUTS[rank])),)

    def reverse_compute_at(self, stage: str, leaves: Sequence[str]) -> Steps:
        program, stages = self.schedule.program, self.schedule.state.stages
        hosts = [n for n in stages if stage in program.consumers[n] and stages[n].leaves]
        if not hosts:
            return ()
        host = self.pick(hosts)
        return (p.ReverseComputeAt(stage, host, self.pick(stages[host].leaves)),)

    def prefetch(self, stage: str, leaves: Sequence[str]) -> Steps:
        program = self.schedule.program
        reads = [b for b, producer in program.producer.items() if stage in program.consumers[producer]]
        if not reads:
            return ()
        along, shared = self.pick(["", *leaves]), self.pick(["", "", *leaves])
        return (
            p.Prefetch(
                stage, self.pick(reads), self.pick(leaves), self.below(4) - 1, along, shared, self.pick((1, 1, 2))
            ),
        )

    def pragma(self, stage: str, leaves: Sequence[str]) -> Steps:
        word, value = self.pick(PRAGMAS)
        return (p.Pragma(stage, self.pick(leaves), word, value),)

    def set_store_predicate(self, stage: str, leaves: Sequence[str]) -> Steps:
        axis, number = self.pick(leaves), self.below(3)
        return (p.SetStorePredicate(stage, self.pick([f"{axis} % 2 == {number}", f"{axis} >= {number}"])),)


Maker = Callable[[_Drawing, str, Sequence[str]], Steps]
PRAGMAS = (
    ("auto_unroll_max_step", 4),
    ("auto_unroll_max_step", 64),
    ("unroll_explicit", 0),
    ("loop_partition_hint", None),
    ("parallel_stride_pattern", None),
    ("reduce_tree", None),
    ("nontemporal", None),
)
MAKERS: dict[str, Maker] = {
    "split": _Drawing.split,
    "fuse": _Drawing.fuse,
    "reorder": _Drawing.reorder,
    "skew": _Drawing.skew,
    "vectorize": lambda d, stage, leaves: (p.Vectorize(stage, d.shared(stage, leaves)),),
    "unroll": lambda d, stage, leaves: (p.Unroll(stage, d.pick(leaves)),),
    "parallel": lambda d, stage, leaves: (p.Parallel(stage, d.shared(stage, leaves)),),
    "bind": lambda d, stage, leaves: (p.Bind(stage, d.shared(stage, leaves), d.pick(_THREADS)),),
    "compute_at": _Drawing.compute_at,
    "compute_root": lambda d, stage, leaves: (p.ComputeRoot(stage),),
    "compute_inline": lambda d, stage, leaves: (p.ComputeInline(stage),),
    "set_scope": lambda d, stage, leaves: (p.SetScope(stage, d.pick(_SCOPES)),),
    "cache_read": _Drawing.cache_read,
    "cache_write": lambda d, stage, leaves: (p.CacheWrite(stage, d.pick(_SCOPES)),),
    "rfactor": _Drawing.rfactor,
    "affine": _Drawing.affine,
    "tile_by": _Drawing.tile_by,
    "shift": _Drawing.shift,
    "reverse": lambda d, stage, leaves: (p.Reverse(stage, d.pick(leaves)),),
    "fission": _Drawing.fission,
    "fuse_with": _Drawing.fuse_with,
    "peel": lambda d, stage, leaves: (p.Peel(stage, d.pick(leaves), d.below(3), d.below(3)),),
    "partition": lambda d, stage, leaves: (p.Partition(stage, d.pick(leaves), (str(1 + d.below(4)),)),),
    "decompose_reduction": lambda d, stage, leaves: (p.DecomposeReduction(stage, d.pick(leaves)),),
    "transform_layout": _Drawing.layout,
    "cache_inplace": _Drawing.layout_in_place,
    "tensorize": _Drawing.tensorize,
    "reverse_compute_at": _Drawing.reverse_compute_at,
    "prefetch": _Drawing.prefetch,
    "pragma": _Drawing.pragma,
    "set_store_predicate": _Drawing.set_store_predicate,
    "atomic": lambda d, stage, leaves: (p.Atomic(stage), p.Parallel(stage, d.pick(d.reduced(stage, leaves) or leaves))),
}
"""Name of a primitive in traces -> the steps to try on a stage with these leaves."""

WEIGHTS: dict[str, int] = {
    "split": 5, "fuse": 2, "reorder": 3, "skew": 1, "vectorize": 3, "unroll": 1, "parallel": 3, "bind": 3,
    "compute_at": 6, "compute_root": 1, "compute_inline": 1, "set_scope": 1, "cache_read": 2, "cache_write": 2,
    "rfactor": 2, "transform_layout": 2, "cache_inplace": 1, "shift": 2, "reverse": 1, "fission": 1, "fuse_with": 2,
    "peel": 1, "partition": 1, "decompose_reduction": 1, "affine": 1, "tile_by": 1, "tensorize": 2,
    "reverse_compute_at": 2, "prefetch": 1, "pragma": 1, "set_store_predicate": 1, "atomic": 1,
}  # fmt: skip
"""How often each is tried."""

FAVOUR = 10
"""How often those are tried that a test is about."""

BOLD: dict[str, int] = {
    "vectorize": 6,
    "parallel": 6,
    "bind": 6,
    "compute_at": 12,
    "compute_root": 2,
    "compute_inline": 1,
    "tensorize": 0,
    "reverse_compute_at": 0,
    "set_store_predicate": 0,
    "atomic": 0,
    "prefetch": 0,
}
"""How often those are tried that may be illegal, when nothing checks them."""
