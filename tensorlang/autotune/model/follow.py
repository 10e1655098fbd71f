"""From a trace to the loops of its stages: every step, with the decisions of a whole population at once."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import replace
from typing import Any, TypeAlias

import numpy as np

from tensorlang import dtypes
from tensorlang.autotune.model.stage_loops import (
    FusedTo,
    Number,
    Part,
    Renamed,
    SplitInto,
    StageLoops,
    Step,
    TiledBy,
)
from tensorlang.dataclass import dataclass
from tensorlang.ir.expr import Binary, Const, Expr, Var, variables
from tensorlang.polyhedral.ordered import sources
from tensorlang.schedule import primitives as p
from tensorlang.schedule.axis_range import constant
from tensorlang.schedule.index_text import parse_index
from tensorlang.schedule.primitive import Decision, Primitive
from tensorlang.schedule.relation import ShiftRelation
from tensorlang.schedule.rewrites.explicit import joined
from tensorlang.schedule.state import ScheduleState
from tensorlang.schedules.accesses import Access, Array, accesses_of, cost_of_point, extent, operations
from tensorlang.te.operation import ComputeOp, HybridOp, buffers
from tensorlang.te.program import Program

Columns = Mapping[str, Array]


@dataclass(frozen=True, slots=True)
class Move:
    """A step of a trace, the names that it made, and the states before and after it."""

    step: Primitive
    made: tuple[str, ...]
    before: ScheduleState
    after: ScheduleState

    @property
    def program(self) -> Program:
        """The program after the step."""
        return self.after.program


@dataclass(slots=True)
class Follower:
    """The stages of a program on their way through a trace; `values` are the decisions of the population."""

    stages: dict[str, StageLoops]
    values: Columns

    @staticmethod
    def of(program: Program, values: Columns) -> Follower:
        """The stages as they were declared."""
        ops = [op for op in program.ops if isinstance(op, ComputeOp | HybridOp)]
        return Follower({op.name: _declared(op) for op in ops}, values)

    def take(self, move: Move) -> None:
        """Follow one step."""
        FOLLOWS[type(move.step)](self, move.step, move)

    def split(self, step: p.Split, move: Move) -> None:
        """Blocks of one size, or so many of them."""
        factor, parts = (None if given is None else self._number(given) for given in (step.factor, step.nparts))
        self._add(step.stage, SplitInto(step.axis, factor, parts, *move.made))

    def fuse(self, step: p.Fuse, move: Move) -> None:
        """One loop over all that several walk."""
        self._add(step.stage, FusedTo(step.axes, move.made[0]))

    def tile_by(self, step: p.TileBy, move: Move) -> None:
        """Loops over tiles, around those of the axes."""
        self._add(step.stage, TiledBy(step.axes, tuple(map(self._number, step.sizes)), move.made))

    def rename(self, step: p.Skew | p.Reverse, move: Move) -> None:
        """The same iterations under other numbers."""
        self._add(step.stage, Renamed(step.axis, move.made[0]))

    def affine(self, step: p.Affine, move: Move) -> None:
        """As many iterations, in other directions."""
        for axis, made in zip(step.axes, move.made, strict=True):
            self._add(step.stage, Renamed(axis, made))

    def regroup(self, step: p.Shift | p.Fission | p.Peel | p.Partition, move: Move) -> None:
        """Loops of some statements, or over some iterations, and copies of those inside: of one number or another.

        The number of iterations that is not that of the step goes with the loop that it was, whatever is decided.
        """
        stage, known = self.stages[step.stage], self._loops(step.stage)
        whole = _product(known.get(step.axis, ()))
        before = _known_extent(move.before, step.stage, step.axis)
        rest = move.made[1] if isinstance(step, p.Peel) and step.first else move.made[0]
        rest = move.made[-1] if isinstance(step, p.Partition) else rest
        for relation in _moved(move.after, step.stage, known):
            reach = None if relation.within is None else constant(relation.within.extent)
            trips = whole + (reach - before) if reach is not None and relation.shifted == rest else reach
            stage.steps.append(Renamed(relation.axis, relation.shifted, trips))

    def fuse_with(self, step: p.FuseWith, move: Move) -> None:
        """One loop for two, as long as both; of two stages after they have become one."""
        other = step.other
        if step.second:
            other = self._join(step.stage, step.second, step.other, move)
        stage, known = self.stages[step.stage], self._loops(step.stage)
        (made,) = move.made
        for relation in _moved(move.after, step.stage, known):
            if relation.shifted != made:
                stage.steps.append(Renamed(relation.axis, relation.shifted))
        relations = move.after.stages[step.stage].all_relations
        reach = next(r.within for r in relations if isinstance(r, ShiftRelation) and r.shifted == made)
        ours, theirs = (_product(known.get(axis, ())) for axis in (step.axis, other))
        longest = step.axis if np.max(ours) >= np.max(theirs) else other
        decided = isinstance(ours, np.ndarray) or isinstance(theirs, np.ndarray)
        both = np.maximum(ours, theirs) if decided or reach is None else constant(reach.extent)
        stage.steps.append(Renamed(longest, made, both))

    def _join(self, name: str, second: str, axis: str, move: Move) -> str:
        """Two stages become one; returns the name of an axis of the second in it."""
        _, names = joined(move.before, name, second)
        ours = self.stages[name].renamed(self._of_old_layouts(name, move.before))
        theirs = self.stages[second].renamed({**self._of_old_layouts(second, move.before), **names})
        both = (ours, theirs)
        del self.stages[second]
        most = max(stage.points for stage in both)
        self.stages[name] = StageLoops(
            name,
            ours.axes | theirs.axes,
            ours.reduce | theirs.reduce,
            tuple(sorted((a for stage in both for a in stage.accesses), key=lambda a: not a.write)),
            sum(stage.operations * stage.points for stage in both) / max(most, 1),
            most,
            max(stage.bits for stage in both),
            [*ours.steps, *theirs.steps],
        )
        return names.get(axis, axis)

    def _of_old_layouts(self, name: str, state: ScheduleState) -> dict[str, str]:
        """Axes that a stage has no more since it has another layout, by names that no other stage uses."""
        return {axis: f"{name}.{axis}" for axis in self._loops(name).keys() - state.axis_ranges(name).keys()}

    def pad(self, step: p.Pad, move: Move) -> None:
        """A longer axis, also in the array that readers read."""
        stage, factor = self.stages[step.stage], self._number(step.factor)
        old, place = stage.axes[step.axis], stage.spatial.index(step.axis)
        longer = np.ceil(old / factor) * factor
        written = {a.buffer for a in stage.accesses if a.write}
        stage.axes = {**stage.axes, step.axis: longer}
        stage.points *= float(np.max(longer)) / max(float(np.max(old)), 1)
        for other in self.stages.values():
            other.accesses = tuple(_longer(a, place, longer) if a.buffer in written else a for a in other.accesses)

    def cache_inplace(self, step: p.CacheInplace, move: Move) -> None:
        """Loops that copy there and back, and the stage in between, all as declared."""
        known = self.stages.keys() - {step.stage}
        fresh = [op for op in move.program.ops if isinstance(op, ComputeOp | HybridOp) and op.name not in known]
        self.stages |= {op.name: _declared(op) for op in fresh}

    def _number(self, given: int) -> Number:
        return self.values[given.name] if isinstance(given, Decision) and given.name in self.values else given

    def _add(self, stage: str, step: Step) -> None:
        self.stages[stage].steps.append(step)

    def cache_write(self, step: p.CacheWrite, move: Move) -> None:
        """The new stage computes; the old one copies."""
        old, name = self.stages[step.stage], move.made[0]
        written = [a for a in old.accesses if a.write]
        made = [b.name for b in buffers(move.program[name])]
        local = dict(zip([a.buffer for a in written], made, strict=True))
        moved = tuple(replace(a, buffer=local[a.buffer]) if a.write else a for a in old.accesses)
        layout = old.steps_to(axis.name for axis in move.program[name].axis)
        self.stages[name] = replace(old, name=name, accesses=moved, steps=layout, copies=1.0)
        spatial = {axis: old.axes[axis] for axis in old.spatial}
        copies = tuple(replace(a, buffer=local[a.buffer], write=False) for a in written)
        self.stages[old.name] = StageLoops(
            old.name, spatial, frozenset(), (*written, *copies), 0, _points(old), old.bits, old.steps, old.copies
        )

    def cache_read(self, step: p.CacheRead, move: Move) -> None:
        """A copy of an array, read in its place."""
        name, op = move.made[0], move.program[move.made[0]]
        assert isinstance(op, ComputeOp)
        made = _declared(op)
        self.stages[name] = replace(made, operations=0)
        for reader in step.readers:
            stage = self.stages[reader]
            stage.accesses = stage.reading({step.tensor: name})

    def rfactor(self, step: p.RFactor, move: Move) -> None:
        """The new stage sums parts; the old one sums those."""
        old = self.stages[step.stage]
        partial, final = move.program[move.made[0]], move.program[old.name]
        assert isinstance(partial, ComputeOp)
        assert isinstance(final, ComputeOp)
        loops = old.loops(old.axes)
        lane = partial.axes[step.factor_axis].name
        names = {leaf.name: leaf.name for leaf in partial.reduce_axes} | {step.axis: lane}
        terms: dict[str, list[tuple[str, Number]]] = {axis: [] for axis in old.reduce}
        trips: dict[str, Number] = {}
        for leaf, name in names.items():
            trips[name] = _product(loops.get(leaf, ()))
            for part in loops.get(leaf, ()):
                terms.setdefault(part.axis, []).append((name, part.stride))
        spatial = {axis: old.axes[axis] for axis in old.spatial}
        rows = [*spatial.items()]
        rows.insert(step.factor_axis, (lane, trips[lane]))
        axes = dict(rows)
        written = tuple(
            Access(b.name, dtypes.info(b.dtype).bytes, tuple(axes.values()), _own(axes), write=True)
            for b in buffers(partial)
        )
        reads = tuple(_substituted(a, terms) for a in old.accesses if not a.write)
        reduce = frozenset(leaf.name for leaf in partial.reduce_axes)
        own = {**axes, **{axis: trips[axis] for axis in reduce}}
        self.stages[partial.name] = StageLoops(
            partial.name,
            own,
            reduce,
            (*written, *reads),
            old.operations,
            old.points,
            old.bits,
            old.steps_to(axis.name for axis in partial.axes if axis.name != lane),
        )
        over = final.reduce_axes[0].name
        rename: dict[str, list[tuple[str, Number]]] = {lane: [(over, 1)]}
        parts = tuple(_substituted(replace(a, write=False), rename) for a in written)
        kept = old.steps_of_output()
        output = tuple(a for a in old.accesses if a.write)
        self.stages[old.name] = StageLoops(
            old.name,
            {**spatial, over: trips[lane]},
            frozenset({over}),
            (*output, *parts),
            1,
            _points(old),
            old.bits,
            kept,
            old.copies,
        )

    def inline(self, step: p.ComputeInline, move: Move) -> None:
        """Readers compute the stage's elements themselves; of a stage inside another one, that does."""
        if step.stage not in self.stages:
            self._redeclare(move)
            return
        gone = self.stages.pop(step.stage)
        written = {a.buffer for a in gone.accesses if a.write}
        for stage in self.stages.values():
            own = [a for a in stage.accesses if not a.write and a.buffer in written]
            if not own:
                continue
            found = [a for a in stage.accesses if a not in own]
            for access in own:
                terms: dict[str, list[tuple[str, Number]]] = {
                    axis: list(dim) for axis, dim in zip(gone.spatial, access.dims, strict=True)
                }
                found += [_substituted(a, terms) for a in gone.accesses if not a.write]
            stage.accesses = tuple({id(a): a for a in found}.values())
            stage.operations += gone.operations * len(own)

    def transform(self, step: p.TransformLayout, move: Move) -> None:
        """Axes of the new layout are the old ones, or blocks of them."""
        stage = self.stages[step.stage]
        again = {a: f"{a}.{len(stage.steps)}" for a in self._loops(step.stage) if a in move.made}  # a second layout
        stage = self.stages[step.stage] = replace(stage.renamed(again), copies=1.0)
        old = [again.get(axis.name, axis.name) for axis in move.before.program[step.stage].axis]
        axes = dict(zip(step.axes, old, strict=True))
        known = {name: Var(axis) for name, axis in axes.items()}
        layout = {axis.name: axis.extent for axis in move.program[step.stage].axis}
        for name, text in zip(move.made, step.index, strict=True):
            match parse_index(text, lambda word: known.get(word, Var(f"@{word}"))):
                case Var(name=axis):
                    stage.steps.append(Renamed(axis, name))
                case Binary(op="floordiv", a=Var(name=axis), b=size):
                    stage.steps.append(SplitInto(axis, self._size(size), None, name, f"{name}.rest"))
                case Binary(op="floormod", a=Var(name=axis), b=size):
                    stage.steps.append(SplitInto(axis, self._size(size), None, f"{name}.rest", name))
                case mixed:
                    axis = next((a for a in old if a in variables(mixed)), old[0])
                    stage.steps.append(Renamed(axis, name, extent(layout[name])))
        written = {a.buffer for a in stage.accesses if a.write}
        for other in self.stages.values():
            other.accesses = tuple(replace(a, packed=True) if a.buffer in written else a for a in other.accesses)

    def keep_copies(self, step: p.Pipeline | p.DoubleBuffer | p.RollingBuffer, move: Move) -> None:
        """The loops stay; so many tiles are kept at once."""
        kept = move.after.stages[step.stage].storage.kept
        self.stages[step.stage].copies = self._number(step.stages) if isinstance(step, p.Pipeline) else kept

    def exchange(
        self, step: p.BlockedAttention | p.NarrowProduct | p.RunningPieces | p.WindowsProduct, move: Move
    ) -> None:
        """Stages in place of one, as they are declared."""
        self.stages = {name: stage for name, stage in self.stages.items() if name in move.program.by_name}
        made = {name: move.after.looped(name) for name in (*move.made, step.stage)}
        self.stages |= {n: _ordered(op) if isinstance(op, HybridOp) else _declared(op) for n, op in made.items()}

    def _redeclare(self, move: Move) -> None:
        """Take the work of stages whose operation was rewritten, without other loops, from the program."""
        for op in move.program.ops:
            if isinstance(op, HybridOp) and op is not move.before.program[op.name]:
                self.stages[op.name] = replace(_ordered(op), steps=self.stages[op.name].steps)

    def _loops(self, stage: str) -> dict[str, tuple[Part, ...]]:
        return self.stages[stage].loops(self.stages[stage].axes)

    def _size(self, expr: Expr) -> Number:
        match expr:
            case Const():
                return float(expr.value)
            case Var() if expr.name[1:] in self.values:
                return self.values[expr.name[1:]]
        return 1.0


Follow: TypeAlias = Callable[[Follower, Any, Move], None]


def _no_effect(follower: Follower, step: Primitive, move: Move) -> None:
    """A step that changes no loops: what it does is read off the final state."""


NO_EFFECT: tuple[type[Primitive], ...] = (
    p.Assume, p.Atomic, p.Bind, p.BulkCopy, p.ComputeAt, p.ComputeRoot, p.DecomposeReduction, p.EnvThreads,
    p.FoldStorage, p.Parallel, p.Pragma, p.Prefetch, p.Reorder, p.ReverseComputeAt, p.SampleChoice, p.SetScope,
    p.SetStorePredicate, p.StorageAlign, p.Strict, p.Swizzle, p.Tensorize, p.Unroll, p.Vectorize,
)  # fmt: skip
FOLLOWS: Mapping[type[Primitive], Follow] = {
    **dict.fromkeys(NO_EFFECT, _no_effect),
    p.Affine: Follower.affine,
    p.BlockedAttention: Follower.exchange,
    p.CacheInplace: Follower.cache_inplace,
    p.CacheRead: Follower.cache_read,
    p.CacheWrite: Follower.cache_write,
    p.ComputeInline: Follower.inline,
    p.DoubleBuffer: Follower.keep_copies,
    p.Fission: Follower.regroup,
    p.Fuse: Follower.fuse,
    p.FuseWith: Follower.fuse_with,
    p.NarrowProduct: Follower.exchange,
    p.RunningPieces: Follower.exchange,
    p.Pad: Follower.pad,
    p.Partition: Follower.regroup,
    p.Peel: Follower.regroup,
    p.Pipeline: Follower.keep_copies,
    p.RFactor: Follower.rfactor,
    p.Reverse: Follower.rename,
    p.RollingBuffer: Follower.keep_copies,
    p.Shift: Follower.regroup,
    p.Skew: Follower.rename,
    p.Split: Follower.split,
    p.TileBy: Follower.tile_by,
    p.TransformLayout: Follower.transform,
    p.WindowsProduct: Follower.exchange,
}
"""Every primitive -> how the loops of a population follow it."""


def _moved(state: ScheduleState, stage: str, known: Collection[str]) -> Iterator[ShiftRelation]:
    """The relations by which loops of a stage have got names that are not known yet, each name once."""
    found = set(known)
    for relation in state.stages[stage].all_relations:
        if isinstance(relation, ShiftRelation) and relation.shifted not in found:
            found.add(relation.shifted)
            yield relation


def _known_extent(state: ScheduleState, stage: str, axis: str) -> int:
    return extent(state.axis_ranges(stage)[axis].extent)


def _longer(access: Access, place: int, size: Number) -> Access:
    return replace(access, shape=(*access.shape[:place], size, *access.shape[place + 1 :]))


def _declared(op: ComputeOp | HybridOp) -> StageLoops:
    if isinstance(op, HybridOp):
        return _ordered(op)
    reduce_axes = () if op.reduction is None else op.reduction.axes
    axes = {a.name: extent(a.extent) for a in (*op.axes, *reduce_axes)}
    bits = max(dtypes.info(d).bits for d in op.dtypes)
    reduce = frozenset(a.name for a in reduce_axes)
    accesses = accesses_of(op, axes)
    return StageLoops(op.name, dict(axes), reduce, accesses, cost_of_point(op), math.prod(axes.values()), max(8, bits))


def _ordered(op: HybridOp) -> StageLoops:
    """A hybrid operation as one statement that does the work of all."""
    found = sources(op).values()
    axes = {name: extent(reach[1]) for source in found for name, reach in source.hull.items()}
    points = [math.prod(extent(reach[1]) for reach in source.hull.values()) for source in found]
    work = sum(n * operations(source.store.value) for n, source in zip(points, found, strict=True))
    bits = max(dtypes.info(source.store.buffer.dtype).bits for source in found)
    most = max(1, *points)
    return StageLoops(op.name, dict(axes), frozenset(), accesses_of(op, axes), work / most, most, max(8, bits))


def _points(stage: StageLoops) -> float:
    """Elements of the output of a stage."""
    return math.prod(float(np.max(stage.axes[axis])) for axis in stage.spatial)


def _own(axes: Mapping[str, Number]) -> tuple[tuple[tuple[str, int | Array], ...], ...]:
    return tuple(((axis, 1),) for axis in axes)


def _substituted(access: Access, terms: Mapping[str, list[tuple[str, Number]]]) -> Access:
    """An access in terms of other axes: each of the old ones is a sum of new ones."""
    dims = tuple(
        tuple(
            (name, np.asarray(factor * coefficient) if isinstance(factor, np.ndarray) else int(factor) * coefficient)
            for axis, coefficient in dim
            for name, factor in terms.get(axis, [(axis, 1)])
        )
        for dim in access.dims
    )
    return replace(access, dims=dims)


def _product(parts: tuple[Part, ...]) -> Number:
    total: Number = 1.0
    for part in parts:
        total = total * part.trips
    return total
