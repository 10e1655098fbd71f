"""The loops of one operation, as users hold them: every primitive is a method."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, Protocol, overload

from tensorlang.errors import BadArgument, shown
from tensorlang.ir.expr import Expr, ExprLike, as_expr
from tensorlang.ir.foreign import is_iterable
from tensorlang.location import caller
from tensorlang.schedule import primitives as p
from tensorlang.schedule.classic import ClassicStage
from tensorlang.schedule.examples import with_examples
from tensorlang.schedule.index_text import print_index
from tensorlang.schedule.members import AxisLike, Inside, by_own_names, leaves_of
from tensorlang.schedule.names import absent
from tensorlang.schedule.primitive import Outputs, Primitive, whole
from tensorlang.schedule.primitives.buffering import StorageSteps
from tensorlang.schedule.relation import ShiftRelation
from tensorlang.schedule.state import ScheduleState
from tensorlang.te.axis import Axis
from tensorlang.te.intrinsic import TensorIntrin
from tensorlang.te.operation import HybridOp, Member, PlaceholderOp
from tensorlang.te.program import Program


class Scheduled(Protocol):
    """What a stage asks of the schedule that it belongs to."""

    @property
    def state(self) -> ScheduleState: ...

    @property
    def program(self) -> Program: ...

    def apply(self, step: Primitive) -> Outputs: ...

    def compose(self, asked: str, plan: Callable[[ScheduleState], Sequence[Primitive]]) -> list[Outputs]: ...

    def all_or_none(self) -> AbstractContextManager[None]: ...

    def name_of(self, key: Any) -> str: ...

    def operation(self, name: str) -> Any: ...

    def hand_out(self, stage: str, axis: str) -> Axis: ...

    def require_axis(self, asked: str, axis: Axis, stage: str) -> str: ...

    def buffer_of(self, key: Any) -> str: ...

    def __getitem__(self, key: Any) -> Stage: ...


@with_examples
@by_own_names
class Stage(ClassicStage, StorageSteps):
    """The loops of one operation in a schedule. Axes are given as Axis objects or by name.

    The stage of a `member`, an operation that runs inside a hybrid one, stands for its loops there.
    """

    schedule: Scheduled

    def __init__(self, schedule: Scheduled, name: str, member: Member | None = None) -> None:
        self.schedule = schedule
        self.name = name
        self.member = member

    @property
    def inside(self) -> Inside | None:
        """How the axes of members are named in this stage."""
        op = self.schedule.program[self.name]
        if not isinstance(op, HybridOp) or not op.members:
            return None
        relations = self.schedule.state.stages[self.name].all_relations
        shared = (r for r in relations if isinstance(r, ShiftRelation) and r.within is not None and not r.cuts)
        return Inside(self.member, op.members, {r.axis: r.shifted for r in shared})

    @property
    def op(self) -> Any:
        """The operation, as the steps have rewritten it; its input tensors are those of other stages."""
        return self.schedule.operation(self.name) if self.member is None else self.member.op

    @property
    def leaf_iter_vars(self) -> list[Axis]:
        """The loops, outermost first."""
        state = self.schedule.state
        if self.name not in state.stages:
            return []
        leaves = state.stages[self.name].leaves
        if self.member is not None:
            leaves = leaves_of(state, self.name, self.member)
        return [self._axis(a) for a in leaves]

    @property
    def all_iter_vars(self) -> list[Axis]:
        """All axes: the operation's own, and those made from them."""
        return [self._axis(a) for a in self.schedule.state.axis_ranges(self.name)]

    @property
    def scope(self) -> str:
        """The memory scope of the stage."""
        stage = self.schedule.state.stages.get(self.name)
        return stage.storage.scope if stage else "global"

    def split(
        self, parent: AxisLike, factor: int | None = None, nparts: int | None = None, tail: str = "guard"
    ) -> tuple[Axis, Axis]:
        """Split an axis by factor or into nparts; returns (outer, inner). See Split."""
        outer, inner = self._axes(p.Split(self.name, str(parent), whole(factor), whole(nparts), tail))
        return outer, inner

    def fuse(self, *args: AxisLike) -> Axis:
        """Fuse consecutive axes; returns the fused axis. See Fuse."""
        return self._axes(p.Fuse(self.name, tuple(str(a) for a in _flat(args))))[0]

    def reorder(self, *args: AxisLike) -> None:
        """Put axes in the given order. See Reorder."""
        self.schedule.apply(p.Reorder(self.name, tuple(str(a) for a in _flat(args))))

    @overload
    def tile(
        self, x_parent: AxisLike, y_parent: AxisLike, x_factor: int, y_factor: int, tail: str = "guard"
    ) -> tuple[Axis, Axis, Axis, Axis]: ...
    @overload  # as in tile(*C.op.axis, 8, 8), of which type checkers do not know how many axes there are
    def tile(self, *axes_and_factors: AxisLike | int, tail: str = "guard") -> tuple[Axis, Axis, Axis, Axis]: ...
    def tile(  # type: ignore[misc]  # it takes four, however they are passed
        self, x_parent: AxisLike, y_parent: AxisLike, x_factor: int, y_factor: int, tail: str = "guard"
    ) -> tuple[Axis, Axis, Axis, Axis]:
        """Split two axes and reorder to (x_outer, y_outer, x_inner, y_inner), which it returns."""
        with self.schedule.all_or_none():
            x_outer, x_inner = self.split(x_parent, factor=x_factor, tail=tail)
            y_outer, y_inner = self.split(y_parent, factor=y_factor, tail=tail)
            self.reorder(x_outer, y_outer, x_inner, y_inner)
        return x_outer, y_outer, x_inner, y_inner

    def skew(self, axis: AxisLike, by: AxisLike, factor: int = 1) -> Axis:
        """Skew an axis by an outer one; returns the skewed axis. See Skew."""
        return self._axes(p.Skew(self.name, str(axis), str(by), whole(factor)))[0]

    def shift(self, axis: AxisLike, by: ExprLike | str, statement: str | None = None) -> Axis:
        """Number an axis from `by` on, or one statement's iterations of it; returns the new axis. See Shift."""
        return self._axes(p.Shift(self.name, str(axis), _size_text(by), statement or ""))[0]

    def reverse(self, axis: AxisLike) -> Axis:
        """Run an axis backwards; returns the reversed axis. See Reverse."""
        return self._axes(p.Reverse(self.name, str(axis)))[0]

    def fission(self, axis: AxisLike, after: AxisLike | None = None) -> tuple[Axis, ...]:
        """Take a loop apart: one for each child, or in two parts after a child; returns their axes. See Fission."""
        return self._axes(p.Fission(self.name, str(axis), "" if after is None else str(after)))

    def fuse_with(self, axis: AxisLike, other: AxisLike | None = None, stage: Any = None) -> Axis:
        """Run two loops of this stage, or one here and one of another stage, as one; returns its axis. See FuseWith.

        `other` is the second loop; None: of the same name in the other stage.
        """
        second = "" if stage is None else self.schedule.name_of(stage)
        second = "" if second == self.name else second
        return self._axes(p.FuseWith(self.name, str(axis), str(axis if other is None else other), second))[0]

    def peel(self, axis: AxisLike, first: int = 0, last: int = 0) -> tuple[Axis, ...]:
        """Run the first and last iterations of an axis apart; returns the axes of all parts. See Peel."""
        return self._axes(p.Peel(self.name, str(axis), whole(first), whole(last)))

    def partition(self, axis: AxisLike, at: ExprLike | Sequence[ExprLike]) -> tuple[Axis, ...]:
        """Cut an axis at one or several points; returns the axes of the parts. See Partition."""
        points = at if isinstance(at, list | tuple) else [at]
        return self._axes(p.Partition(self.name, str(axis), tuple(map(_size_text, points))))

    def decompose_reduction(self, axis: AxisLike) -> None:
        """Initialise the reduction in loops of its own before `axis`. See DecomposeReduction."""
        self.schedule.apply(p.DecomposeReduction(self.name, str(axis)))

    def narrow_product(self, width: int, data: str) -> tuple[str, ...]:
        """Lay out a product of narrow numbers for dot instructions; returns the names of its stages.

        See NarrowProduct.
        """
        return self.schedule.apply(p.NarrowProduct(self.name, whole(width), data))

    def windows_product(self, rows: Sequence[AxisLike], terms: Sequence[AxisLike], groups: int = 1) -> tuple[str, ...]:
        """Compute a convolution as a product of matrices; returns the names of its stages. See WindowsProduct."""
        self._lists("windows_product", rows=rows, terms=terms)
        names = tuple(map(str, rows)), tuple(map(str, terms))
        return self.schedule.apply(p.WindowsProduct(self.name, *names, whole(groups)))

    def running_pieces(self, axis: AxisLike, size: int) -> tuple[str, ...]:
        """Compute a running reduction in pieces; returns the names of the stages of these. See RunningPieces."""
        return self.schedule.apply(p.RunningPieces(self.name, str(axis), whole(size)))

    def blocked_attention(self, keys: int, rows: int) -> tuple[str, ...]:
        """Compute an attention as tensor cores want it; returns the names of its stages. See BlockedAttention."""
        return self.schedule.apply(p.BlockedAttention(self.name, whole(keys), whole(rows)))

    def affine(self, axes: Sequence[AxisLike], matrix: Sequence[Sequence[int]]) -> tuple[Axis, ...]:
        """Replace neighbouring axes by combinations of them, a row of a unimodular matrix each. See Affine."""
        self._lists("affine", axes=axes, matrix=matrix)
        self._lists("affine", **{f"matrix[{k}]": row for k, row in enumerate(matrix)})
        return self._axes(p.Affine(self.name, tuple(map(str, axes)), _rows(matrix)))

    def tile_by(
        self,
        axes: Sequence[AxisLike],
        rows: Sequence[Sequence[int]],
        sizes: Sequence[int],
        shifts: Sequence[int] | None = None,
    ) -> tuple[Axis, ...]:
        """Tile neighbouring axes by the hyperplanes of `rows`; returns the tile axes. See TileBy."""
        self._lists("tile_by", axes=axes, rows=rows, sizes=sizes, shifts=() if shifts is None else shifts)
        self._lists("tile_by", **{f"rows[{k}]": row for k, row in enumerate(rows)})
        names, by = tuple(map(str, axes)), shifts if shifts is not None else (0,) * len(rows)
        return self._axes(p.TileBy(self.name, names, _rows(rows), *_rows([sizes, by])))

    def time_tile(
        self,
        time: AxisLike,
        space_axes: Sequence[AxisLike],
        time_size: int,
        space_sizes: Sequence[int],
        shape: str = "rectangular",
    ) -> tuple[Axis, ...]:
        """Tile a time axis and the space axes inside it; returns the tile axes, then the axes themselves.

        The tiles are cut by hyperplanes, found from the dependences: each axis skewed by those around it as little as
        they allow (`rectangular` after that skew), or, of time and the first space axis, two that lean to both sides
        (`diamond`). Recorded as a tile_by.
        """
        self._lists("time_tile", space_axes=space_axes, space_sizes=space_sizes)
        names, sizes = (str(time), *map(str, space_axes)), (whole(time_size), *map(whole, space_sizes))
        asked = f"s[{self.name!r}].time_tile({names[0]!r}, {list(names[1:])}, {sizes[0]}, {list(sizes[1:])}, {shape!r})"
        (tiles,) = self.schedule.compose(
            asked, lambda state: p.plan_time_tile(state, self.name, names[0], names[1:], sizes, shape)
        )
        return tuple(map(self._axis, (*tiles, *names)))

    def wavefront(self, *axes: AxisLike) -> tuple[Axis, ...]:
        """Run nested axes in wavefronts, so that the outermost of them becomes parallel inside a wavefront.

        The last axis is skewed by the others, as little as the dependences allow, and put outside. Recorded as skew,
        reorder, parallel; returns the new order of the axes.
        """
        names = tuple(str(a) for a in _flat(axes))
        asked = f"s[{self.name!r}].wavefront({', '.join(map(repr, names))})"
        made = self.schedule.compose(asked, lambda state: p.plan_wavefront(state, self.name, names))
        (wave,) = made[-3]
        return tuple(map(self._axis, (wave, *names[:-1])))

    def vectorize(self, var: AxisLike) -> None:
        """Run an axis as vector lanes. See Vectorize."""
        if inside := p.computed_inside(self.schedule.state, self.name, str(var)):
            p.warn_of_no_lanes(self.name, str(var), inside)
            return
        self.schedule.apply(p.Vectorize(self.name, str(var)))

    def unroll(self, var: AxisLike) -> None:
        """Copy the loop body per iteration. See Unroll."""
        self.schedule.apply(p.Unroll(self.name, str(var)))

    def parallel(self, var: AxisLike) -> None:
        """Share an axis among CPU threads. See Parallel."""
        self.schedule.apply(p.Parallel(self.name, str(var)))

    def set_store_predicate(self, predicate: ExprLike | str) -> None:
        """Store only the elements for which a condition holds. See SetStorePredicate."""
        self.schedule.apply(p.SetStorePredicate(self.name, _size_text(predicate)))

    def pragma(self, var: AxisLike, pragma_type: str, pragma_value: Any = None) -> None:
        """Ask for something about the code of a loop. See Pragma."""
        value = int(pragma_value) if isinstance(pragma_value, bool) else whole(pragma_value)
        self.schedule.apply(p.Pragma(self.name, str(var), pragma_type, value))
        p.warn_of_unknown(pragma_type)

    def prefetch(
        self,
        tensor: Any,
        var: AxisLike,
        offset: int,
        along: AxisLike | None = None,
        shared: AxisLike | None = None,
        level: int = 1,
    ) -> None:
        """Prefetch what the iteration `offset` later of a loop reads of a tensor. See Prefetch."""
        array, loops = self.schedule.buffer_of(tensor), ["" if loop is None else str(loop) for loop in (along, shared)]
        self.schedule.apply(p.Prefetch(self.name, array, str(var), whole(offset), loops[0], loops[1], level))

    def atomic(self) -> None:
        """Update elements atomically, so that threads may share a reduction. See Atomic."""
        self.schedule.apply(p.Atomic(self.name))

    def tensorize(self, var: AxisLike, tensor_intrin: TensorIntrin) -> None:
        """Run the loops at and below an axis as an intrinsic. See Tensorize."""
        if not isinstance(tensor_intrin, TensorIntrin):
            asked = f"s[{self.name!r}].tensorize({str(var)!r}, {shown(tensor_intrin)})"
            why = f"an intrinsic is made by te.decl_tensor_intrin or te.intrin, got {shown(tensor_intrin)}"
            raise BadArgument(asked, why, where=caller())
        self.schedule.apply(p.Tensorize(self.name, str(var), tensor_intrin.name, tensor_intrin.key))

    def bind(self, ivar: AxisLike, thread_ivar: AxisLike) -> None:
        """Bind an axis to a thread axis (te.thread_axis or its tag). See Bind."""
        self.schedule.apply(p.Bind(self.name, str(ivar), _thread(thread_ivar)))

    def env_threads(self, threads: Any) -> None:
        """Launch threads once around the time loop of a scan. See EnvThreads."""
        several = threads if isinstance(threads, list | tuple) else [threads]
        self.schedule.apply(p.EnvThreads(self.name, tuple(map(_thread, several))))

    def compute_at(self, parent: Any, scope: AxisLike) -> None:
        """Compute the stage inside the loop `scope` of `parent`. See ComputeAt.

        Two stages of one scan get common loops instead, by steps of the trace like any other.
        """
        host = self.schedule[parent]
        loop = str(scope if host.inside is None else host.inside.loop(scope))
        if self.member is None or host.member is None or host.name != self.name:
            self.schedule.apply(p.ComputeAt(self.name, host.name, loop))
            return
        producer, consumer = self.member, host.member
        asked = f"s[{self._stored!r}].compute_at(s[{host._stored!r}], {loop!r})"
        self.schedule.compose(asked, lambda state: p.plan_gather(state, self.name, producer, consumer, loop))

    def reverse_compute_at(self, parent: Any, scope: AxisLike) -> None:
        """Compute the stage inside the loop `scope` of its producer `parent`. See ReverseComputeAt."""
        self.schedule.apply(p.ReverseComputeAt(self.name, self.schedule.name_of(parent), str(scope)))

    def compute_inline(self) -> None:
        """Compute elements where they are read. See ComputeInline. Those of an input are there already."""
        if isinstance(self.op, PlaceholderOp):
            return
        self.schedule.apply(p.ComputeInline(self._stored))

    def compute_root(self) -> None:
        """Compute the stage as a whole, before its consumers. See ComputeRoot."""
        self.schedule.apply(p.ComputeRoot(self.name))

    def set_scope(self, scope: str) -> None:
        """Choose the memory of the stage. See SetScope."""
        self.schedule.apply(p.SetScope(self._stored, scope))

    def pad(self, axis: AxisLike, factor: int) -> None:
        """Extend an axis to a multiple of a factor. See Pad."""
        self.schedule.apply(p.Pad(self.name, str(axis), whole(factor)))

    def transform_layout(self, mapping_function: Callable[..., Any]) -> list[Axis]:
        """Store the stage under other indices; returns its new axes. See TransformLayout.

        Of an input or an output: the array that the caller passes has the new shape.
        """
        names, index = self._mapped("transform_layout", mapping_function, p.array_axes(self.op))
        return list(self._axes(p.TransformLayout(self.name, names, index)))

    def cache_inplace(self, mapping_function: Callable[..., Any]) -> Stage:
        """Update arrays in copies under other indices; returns the stage that does so. See CacheInplace."""
        names, index = self._mapped("cache_inplace", mapping_function, p.indices_of(self.op.shape))
        made = self.schedule.apply(p.CacheInplace(self.name, names, index))
        return self.schedule[made[0]]

    def _mapped(
        self, step: str, function: Callable[..., Any], old: Sequence[Axis]
    ) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """The parameters of an index map, and its results as text; none when their number is not the wanted one."""
        if not callable(function):
            why = f"expected a function from the old indices to the new ones, got {shown(function)}"
            raise BadArgument(f"s[{self.name!r}].{step}(...)", why, where=caller())
        names = _parameters(function, [a.name for a in old])
        if len(names) != len(old):  # the step itself refuses
            return names, ()
        results = function(*(Axis(n, a.extent) for n, a in zip(names, old, strict=True)))
        return names, tuple(_texts([as_expr(r) for r in (results if isinstance(results, list | tuple) else [results])]))

    @property
    def _stored(self) -> str:
        """What steps about memory name: a stage, or the array of a member."""
        return self.name if self.member is None else self.member.arrays[0]

    def _lists(self, step: str, **given: Any) -> None:
        """Refuse arguments of a step that are to be lists, and are not."""
        for name, value in given.items():
            if not is_iterable(value):
                why = f"{name} must be a list, got {shown(value)}"
                raise BadArgument(f"s[{self.name!r}].{step}(...)", why, where=caller())

    def _axes(self, step: Primitive) -> tuple[Axis, ...]:
        made = self.schedule.apply(step)
        return tuple(map(self._axis, made))

    def _axis(self, name: str) -> Axis:
        return self.schedule.hand_out(self.name, name)

    def require_own(self, method: str, axis: Axis, other: Any, anywhere: bool) -> str:
        """Refuse an axis object that is not of this stage, or of the `other` one, or `anywhere` in the schedule."""
        stage = self.name if other is None else self.schedule[other].name
        return self.schedule.require_axis(f"s[{self.name!r}].{method}(...)", axis, "" if anywhere else stage)

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            on_schedule = name != "schedule" and hasattr(type(self.schedule), name)
            raise absent("a Stage", name, "s" if on_schedule else "", dir(type(self)))

    def __repr__(self) -> str:
        return f"Stage({self.name}: {', '.join(str(a) for a in self.leaf_iter_vars)})"


def _thread(axis: AxisLike) -> str:
    """The tag of a thread axis."""
    return axis.thread or axis.name if isinstance(axis, Axis) else str(axis)


def _parameters(function: Callable[..., Any], wanted: Sequence[str]) -> tuple[str, ...]:
    """The names of a function's parameters, `*indices` standing for as many as are wanted."""
    found: list[str] = []
    for parameter in inspect.signature(function).parameters.values():
        several = parameter.kind is parameter.VAR_POSITIONAL
        found += wanted[len(found) :] if several else [parameter.name]
    return tuple(found)


def _texts(index: Sequence[Expr]) -> Iterator[str]:
    for expr in index:
        yield print_index(expr)


def _size_text(value: ExprLike | str) -> str:
    return value if isinstance(value, str) else print_index(as_expr(value))


def _rows(matrix: Sequence[Sequence[int]]) -> tuple[tuple[int, ...], ...]:
    return tuple(tuple(map(whole, row)) for row in matrix)


def _flat(args: Sequence[Any]) -> list[AxisLike]:
    return [a for arg in args for a in (arg if isinstance(arg, list | tuple) else [arg])]
