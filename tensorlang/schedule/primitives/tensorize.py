"""Run tiles of a stage as an intrinsic: tensorize."""

from __future__ import annotations

from dataclasses import replace

from tensorlang.dataclass import dataclass
from tensorlang.errors import BadArgument
from tensorlang.schedule.primitive import Outputs, Primitive, StageName, primitive
from tensorlang.schedule.state import ScheduleState, Tensorized
from tensorlang.schedule.tiles.plan import unknown_intrinsic
from tensorlang.te.tensor_intrin import find_intrin


@primitive("tensorize")
@dataclass(frozen=True, slots=True)
class Tensorize(Primitive):
    """Run all loops at and below an axis by an intrinsic (te.decl_tensor_intrin, te.intrin).

    Rewrite: `for i_i in range(16): C[16 * i_o + i_i] += ...` -> `machine fma.f32x16(...)`.
    Legal when: the loops at and below the axis compute what the intrinsic declares, on whole tiles with its extents,
    dtypes and strides; tiles that a tail cuts stay ordinary code after `split(..., tail="peel")`.
    Example:
        >>> from tensorlang import te
        >>> A, B = te.placeholder((64, 32), name="A"), te.placeholder((32, 64), name="B")
        >>> k = te.reduce_axis((0, 32), "k")
        >>> C = te.compute((64, 64), lambda i, j: te.sum(A[i, k] * B[k, j], axis=k), name="C")
        >>> s = te.create_schedule(C.op)
        >>> j_o, j_i = s[C].split("j", factor=16)
        >>> s[C].reorder("i", j_o, "k", j_i)
        >>> s[C].tensorize(j_i, te.intrin("fma.f32x16"))
    """

    stage: StageName
    axis: str
    intrinsic: str
    key: str

    def apply(self, state: ScheduleState) -> tuple[ScheduleState, Outputs]:
        state.compute_op(self.stage)
        leaf = state.leaf(self.stage, self.axis)
        current = state.stages[self.stage]
        if current.tensorized is not None:
            before = current.tensorized
            raise BadArgument("", f"{self.stage} runs as {before.intrinsic} from its loop {before.axis} on already")
        if find_intrin(self.intrinsic, self.key) is None:
            why, legal = unknown_intrinsic(self.intrinsic, self.key)
            raise BadArgument("", why, suggested=legal)
        chosen = Tensorized(leaf, self.intrinsic, self.key)
        return state.with_stage(replace(current, tensorized=chosen)), ()

    def text(self) -> str:
        return f"s[{self.stage!r}].tensorize({self.axis!r}, te.intrin({self.intrinsic!r}))"
