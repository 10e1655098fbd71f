"""Loop transformations: split, fuse, reorder, skew."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from tensorlang.dataclass import dataclass
from tensorlang.errors import BadArgument
from tensorlang.schedule import order
from tensorlang.schedule.axis_range import constant
from tensorlang.schedule.names import nearest
from tensorlang.schedule.primitive import Arguments, Outputs, Primitive, StageName, named, positive, primitive, value_of
from tensorlang.schedule.relation import (
    BandRelation,
    FuseRelation,
    PartsRelation,
    Relation,
    SkewRelation,
    SplitRelation,
)
from tensorlang.schedule.state import ScheduleState, StageState
from tensorlang.te.axis import AxisKind
from tensorlang.te.operation import HybridOp
from tensorlang.te.program import unique

TAILS = ("guard", "peel", "perfect")


def fresh(state: ScheduleState, stage: str, wish: str) -> str:
    """Return an axis name that neither the stage nor a symbolic size has yet."""
    return unique(wish, {*state.axis_ranges(stage), *state.sizes})


def require_plain(state: ScheduleState, stage: str, axes: Iterable[str]) -> None:
    """Refuse to transform an axis that is annotated, or that holds other stages."""
    current = state.stage(stage)
    for axis in axes:
        note = current.annotations.get(axis)
        if note is not None:
            raise BadArgument("", f"axis {axis} of {stage} is {note.kind.value}; transform it before annotating it")
        asked = [word for word, _ in current.pragmas.get(axis, ())]
        asked += ["prefetch" for wish in current.prefetched if axis in (wish.axis, wish.along, wish.shared)]
        if asked:
            raise BadArgument("", f"axis {axis} of {stage} has a {asked[0]}; transform the axis before asking for that")
        for other in state.attached_to(stage):
            assert other.attach is not None
            if other.attach.axis == axis:
                raise BadArgument(
                    "",
                    f"{other.name} is computed at axis {axis} of {stage}; transform the axis before compute_at",
                    suggested=[f"s[{other.name!r}].compute_root(); ...", "compute_at again afterwards"],
                )


def hosting(state: ScheduleState, stage: str, axis: str, made: str) -> ScheduleState:
    """The state in which what is computed at an axis is computed at the one that takes its place in the loops."""
    for other in state.attached_to(stage):
        assert other.attach is not None
        if other.attach.axis == axis:
            state = state.with_stage(replace(other, attach=replace(other.attach, axis=made)))
    return state


def _require_opaque(state: ScheduleState, stage: str, axis: str, word: str, repair: str) -> None:
    """Refuse products of axes and symbolic sizes where the analysis needs to see the element written."""
    op = state.looped(stage)
    spatial = state.axis_kinds(stage)[axis] is not AxisKind.REDUCE
    if isinstance(op, HybridOp) or (op.reduction is not None and spatial):
        raise BadArgument(
            "",
            f"{axis} has a symbolic extent: after {word}, the element that {stage} updates would not be affine",
            suggested=[repair],
        )


def made_from(state: ScheduleState, stage: str, axis: str, made: tuple[str, ...], relation: Relation) -> ScheduleState:
    """Return the state in which the loop over an axis has become loops over the axes that a relation makes of it."""
    current = state.stages[stage]
    below = order.statements(order.find(current.order, axis).body)
    tree = order.rebuild(current.order, axis, lambda loop: order.chain(made, loop.body))
    init_at = made[0] if current.init_at == axis else current.init_at
    return state.with_stage(replace(current.related(below, relation), order=tree, init_at=init_at))


def _neighbours(stage: StageState, outer: str, inner: str) -> list[str]:
    """How to bring two loops together: the reorder that puts one inside the other, and then what was asked."""
    chain = [a for a in nested(stage, (outer, inner)) if a != inner]
    chain.insert(chain.index(outer) + 1, inner)
    return [f"s[{stage.name!r}].reorder({', '.join(map(repr, chain))}); ..."]


def nested(stage: StageState, axes: Sequence[str]) -> tuple[str, ...]:
    """The loops from the outermost to the innermost of some axes; BadArgument unless they are perfectly nested."""
    for axis in axes:
        path = order.path(stage.order, axis)
        if set(axes) <= set(path):
            chain = path[min(path.index(a) for a in axes) :]
            break
    else:
        raise BadArgument("", f"the loops {', '.join(axes)} of {stage.name} are not inside one another")
    for axis in chain[:-1]:
        body = order.find(stage.order, axis).body
        if len(body) != 1:
            raise BadArgument(
                "",
                f"loop {axis} of {stage.name} holds more than one loop or statement: the loops {', '.join(chain)} "
                "are not perfectly nested; fission would take it apart, if the dependences allow that",
            )
    return chain


_USUAL = 8
"""A factor for an example of a split."""


@primitive("split")
@dataclass(frozen=True, slots=True)
class Split(Primitive):
    """Split an axis in two: blocks of `factor` iterations, or `nparts` blocks.

    Rewrite: `for i in range(n)` -> `for i_o in range(ceil(n / factor)): for i_i in range(factor)`.
    Tails, when the factor does not divide the extent: `guard` cuts the inner loop short, `peel` generates the
    full tiles and the remainder apart, `perfect` refuses.
    Legal when: always, in a dependence sense; the factor is at least 1. What is computed at the axis is computed at
    the inner one from then on. `nparts` of a symbolic extent is not affine:
    it is allowed on reduce axes and on stages without a reduction, and analysed conservatively.
    Example:
        >>> from tensorlang import te
        >>> A = te.placeholder((100,), name="A")
        >>> B = te.compute((100,), lambda i: A[i] + 1, name="B")
        >>> s = te.create_schedule(B.op)
        >>> [str(a) for a in s[B].split(B.op.axis[0], factor=32)]
        ['i_o', 'i_i']
    """

    stage: StageName
    axis: str
    factor: int | None = None
    nparts: int | None = None
    tail: str = "guard"

    def apply(self, state: ScheduleState) -> tuple[ScheduleState, Outputs]:
        if (self.factor is None) == (self.nparts is None):
            got = "neither" if self.factor is None else f"factor {self.factor} and nparts {self.nparts}"
            repair = f"s[{self.stage!r}].split({self.axis!r}, factor={self.factor or _USUAL})"
            raise BadArgument("", f"split needs exactly one of factor and nparts, got {got}", suggested=[repair])
        if self.tail not in TAILS:
            raise BadArgument("", f"unknown tail {self.tail!r}; {nearest(str(self.tail), TAILS)}")
        state.looped(self.stage)
        axis = state.leaf(self.stage, self.axis)
        outer, inner = fresh(state, self.stage, f"{axis}_o"), fresh(state, self.stage, f"{axis}_i")
        relation = self._relation(state, axis, outer, inner)
        state = hosting(state, self.stage, axis, inner)
        require_plain(state, self.stage, [axis])
        return made_from(state, self.stage, axis, (outer, inner), relation), (outer, inner)

    def _relation(self, state: ScheduleState, axis: str, outer: str, inner: str) -> Relation:
        extent = constant(state.axis_ranges(self.stage)[axis].extent)
        if self.nparts is not None:
            parts = positive(self.nparts, state, "nparts")
            if extent is None:
                _require_opaque(state, self.stage, axis, "nparts", f"s[{self.stage!r}].split({axis!r}, factor=4)")
            self._check_perfect(axis, extent, parts)
            return PartsRelation(axis, outer, inner, parts, self.tail)
        assert self.factor is not None
        factor = positive(self.factor, state, "factor")
        self._check_perfect(axis, extent, factor)
        return SplitRelation(axis, outer, inner, factor, self.tail)

    def _check_perfect(self, axis: str, extent: int | None, number: int) -> None:
        if self.tail == "perfect" and (extent is None or extent % number):
            shown = "symbolic" if extent is None else str(extent)
            raise BadArgument(
                "",
                f"tail='perfect' needs {number} to divide the extent of {axis}, which is {shown}",
                suggested=[replace(self, tail=tail).text() for tail in ("guard", "peel")],
            )


@primitive("fuse")
@dataclass(frozen=True, slots=True)
class Fuse(Primitive):
    """Fuse consecutive axes into one that runs through all their iterations in order.

    Rewrite: `for i: for j in range(m)` -> `for f in range(n * m)` with `i = f // m`, `j = f % m`.
    Legal when: the axes are neighbours, all spatial or all reduce. What is computed at the last of them is computed
    at the fused one from then on; nothing is computed at the others. Inner axes of symbolic extent are allowed as
    reduce axes and on stages without a reduction, and analysed conservatively. Of no axes: a loop of one iteration
    around all others, to bind or to compute at where a stage has no axes.
    Example:
        >>> from tensorlang import te
        >>> A = te.placeholder((6, 7), name="A")
        >>> B = te.compute((6, 7), lambda i, j: A[i, j] + 1, name="B")
        >>> s = te.create_schedule(B.op)
        >>> str(s[B].fuse(*B.op.axis))
        'i_j_fused'
    """

    stage: StageName
    axes: Arguments

    def apply(self, state: ScheduleState) -> tuple[ScheduleState, Outputs]:
        state.looped(self.stage)
        if not self.axes:
            return self._once(state)
        axes = [state.leaf(self.stage, a) for a in self.axes]
        if twice := [a for n, a in enumerate(axes) if a in axes[:n]]:
            raise BadArgument(
                "", f"axis {twice[0]} appears twice; name each once, of {', '.join(state.stages[self.stage].leaves)}"
            )
        require_plain(state, self.stage, axes[:-1])
        fused = axes[0]
        for axis in axes[1:]:
            state, fused = self._pair(state, fused, axis)
        return state, (fused,)

    def _once(self, state: ScheduleState) -> tuple[ScheduleState, Outputs]:
        stage, once = state.stages[self.stage], fresh(state, self.stage, "fused")
        made = stage.related(stage.strands, BandRelation((), ((),), (0,), (1,), (once,)))
        return state.with_stage(replace(made, order=order.chain((once,), stage.order))), (once,)

    def _pair(self, state: ScheduleState, outer: str, inner: str) -> tuple[ScheduleState, str]:
        stage = state.stages[self.stage]
        if nested(stage, (outer, inner)) != (outer, inner):
            raise BadArgument(
                "",
                f"only neighbours can be fused, outer first; the loops are {', '.join(stage.leaves)}",
                suggested=_neighbours(stage, outer, inner),
            )
        kinds = state.axis_kinds(self.stage)
        if kinds[outer] is not kinds[inner]:
            raise BadArgument("", f"{outer} is a {kinds[outer].value} axis and {inner} a {kinds[inner].value} axis")
        if constant(state.axis_ranges(self.stage)[inner].extent) is None:
            repair = f"split {inner} by a constant factor, and fuse {outer} with a part of constant extent"
            _require_opaque(state, self.stage, inner, "fuse", repair)
        fused = fresh(state, self.stage, f"{outer.removesuffix('_fused')}_{inner}_fused")
        state = hosting(state, self.stage, inner, fused)
        require_plain(state, self.stage, (outer, inner))
        stage = state.stages[self.stage]
        relation = FuseRelation(outer, inner, fused)
        below = order.statements(order.find(stage.order, inner).body)
        body = order.find(stage.order, inner).body
        tree = order.rebuild(stage.order, outer, lambda _: (order.LoopNode(fused, body),))
        init_at = fused if stage.init_at in (outer, inner) else stage.init_at
        return state.with_stage(replace(stage.related(below, relation), order=tree, init_at=init_at)), fused


@primitive("reorder")
@dataclass(frozen=True, slots=True)
class Reorder(Primitive):
    """Put the named axes in the given order, in the places that they hold now.

    Rewrite: `for i: for j: for k` -> reorder(k, i) -> `for k: for j: for i`.
    Legal when: no dependence is reversed; updates of one reduction may change places.
    Example:
        >>> from tensorlang import te
        >>> A = te.placeholder((6, 7), name="A")
        >>> B = te.compute((6, 7), lambda i, j: A[i, j] + 1, name="B")
        >>> s = te.create_schedule(B.op)
        >>> s[B].reorder("j", "i")
        >>> [str(a) for a in s[B].leaf_iter_vars]
        ['j', 'i']
    """

    stage: StageName
    axes: Arguments

    def apply(self, state: ScheduleState) -> tuple[ScheduleState, Outputs]:
        state.looped(self.stage)
        axes = [state.leaf(self.stage, a) for a in self.axes]
        twice = [a for a in dict.fromkeys(axes) if axes.count(a) > 1]
        if twice:
            raise BadArgument(
                "", f"axis {twice[0]} appears twice; name each once, of {', '.join(state.stages[self.stage].leaves)}"
            )
        stage = state.stages[self.stage]
        if not axes:
            return state, ()
        old = nested(stage, axes)
        wanted = iter(axes)
        new = tuple(next(wanted) if a in axes else a for a in old)
        inner = order.find(stage.order, old[-1]).body
        tree = order.rebuild(stage.order, old[0], lambda _: order.chain(new, inner))
        return state.with_stage(replace(stage, order=tree)), ()


@primitive("skew")
@dataclass(frozen=True, slots=True)
class Skew(Primitive):
    """Skew an axis by an outer one, so that their dependences point forward in both.

    Rewrite: `for t: for i in range(n)` -> `for t: for i_s in range(f * t, n + f * t)` with `i = i_s - f * t`.
    Legal when: `by` is outside the axis, and both are spatial or both reduce axes.
    Example:
        >>> from tensorlang import te
        >>> A = te.placeholder((6, 7), name="A")
        >>> B = te.compute((6, 7), lambda i, j: A[i, j] + 1, name="B")
        >>> s = te.create_schedule(B.op)
        >>> str(s[B].skew("j", by="i", factor=1))
        'j_s'
    """

    stage: StageName
    axis: str
    by: str = named()
    factor: int = named()

    def apply(self, state: ScheduleState) -> tuple[ScheduleState, Outputs]:
        state.looped(self.stage)
        axis, by = state.leaf(self.stage, self.axis), state.leaf(self.stage, self.by)
        require_plain(state, self.stage, [axis])
        stage = state.stages[self.stage]
        kinds = state.axis_kinds(self.stage)
        if isinstance(self.factor, bool) or not isinstance(self.factor, int):
            raise BadArgument("", f"factor must be a whole number, got {self.factor!r}")
        if axis == by or kinds[axis] is not kinds[by]:
            raise BadArgument("", f"{axis} can only be skewed by another axis of its kind ({kinds[axis].value})")
        if axis in order.path(stage.order, by):
            raise BadArgument("", f"{by} is inside {axis}", suggested=[Skew(self.stage, by, axis, self.factor).text()])
        if by not in order.path(stage.order, axis):
            raise BadArgument("", f"{by} is not around {axis}")
        skewed = fresh(state, self.stage, f"{axis}_s")
        relation = SkewRelation(axis, by, value_of(self.factor, state), skewed)
        return made_from(state, self.stage, axis, (skewed,), relation), (skewed,)
