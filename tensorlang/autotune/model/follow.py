"""From a trace to the loops of its stages: every step, with the decisions of a whole population at once."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from tensorlang import dtypes
from tensorlang.autotune.model.stage_loops import FusedTo, Number, Part, Renamed, SplitInto, StageLoops, TiledBy
from tensorlang.ir.expr import Binary, Const, Expr, Var
from tensorlang.polyhedral.ordered import sources
from tensorlang.schedule import primitives as p
from tensorlang.schedule.index_text import parse_index
from tensorlang.schedule.primitive import Decision, Primitive
from tensorlang.schedules.accesses import Access, Array, accesses_of, cost_of_point, extent, operations
from tensorlang.te.operation import ComputeOp, HybridOp, buffers
from tensorlang.te.program import Program

Columns = Mapping[str, Array]


@dataclass(frozen=True, slots=True)
class Move:
    """A step of a trace, the names that it made, and the program after it."""

    step: Primitive
    made: tuple[str, ...]
    program: Program


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
        """Follow one step; what does not change the loops is read off the final state."""
        match move.step:
            case p.Split():
                factor = None if move.step.factor is None else self._number(move.step.factor)
                parts = None if move.step.nparts is None else self._number(move.step.nparts)
                self._add(move.step.stage, SplitInto(move.step.axis, factor, parts, *move.made))
            case p.Fuse():
                self._add(move.step.stage, FusedTo(move.step.axes, move.made[0]))
            case p.TileBy():
                sizes = tuple(map(self._number, move.step.sizes))
                self._add(move.step.stage, TiledBy(move.step.axes, sizes, move.made))
            case p.Skew() | p.Shift() | p.Reverse():
                if move.made:
                    self._add(move.step.stage, Renamed(move.step.axis, move.made[0]))
            case p.Affine():
                for axis, made in zip(move.step.axes, move.made, strict=True):
                    self._add(move.step.stage, Renamed(axis, made))
            case p.CacheWrite():
                self._cache_write(move)
            case p.CacheRead():
                self._cache_read(move)
            case p.RFactor():
                self._rfactor(move)
            case p.ComputeInline():
                self._inline(move.step.stage)
            case p.TransformLayout():
                self._transform(move.step, move.made)
            case p.Pipeline() | p.DoubleBuffer():
                self._keep_copies(move.step)

    def _number(self, given: int) -> Number:
        return self.values[given.name] if isinstance(given, Decision) and given.name in self.values else given

    def _add(self, stage: str, step: SplitInto | FusedTo | TiledBy | Renamed) -> None:
        self.stages[stage].steps.append(step)

    def _cache_write(self, move: Move) -> None:
        """The new stage computes; the old one copies."""
        assert isinstance(move.step, p.CacheWrite)
        old, name = self.stages[move.step.stage], move.made[0]
        written = [a for a in old.accesses if a.write]
        made = [b.name for b in buffers(move.program[name])]
        local = dict(zip([a.buffer for a in written], made, strict=True))
        moved = tuple(replace(a, buffer=local[a.buffer]) if a.write else a for a in old.accesses)
        self.stages[name] = replace(old, name=name, accesses=moved, steps=[])
        spatial = {axis: old.axes[axis] for axis in old.spatial}
        copies = tuple(replace(a, buffer=local[a.buffer], write=False) for a in written)
        self.stages[old.name] = StageLoops(
            old.name, spatial, frozenset(), (*written, *copies), 0, _points(old), old.bits, old.steps
        )

    def _cache_read(self, move: Move) -> None:
        """A copy of an array, read in its place."""
        assert isinstance(move.step, p.CacheRead)
        name, op = move.made[0], move.program[move.made[0]]
        assert isinstance(op, ComputeOp)
        made = _declared(op)
        self.stages[name] = replace(made, operations=0)
        for reader in move.step.readers:
            stage = self.stages[reader]
            stage.accesses = stage.reading({move.step.tensor: name})

    def _rfactor(self, move: Move) -> None:
        """The new stage sums parts; the old one sums those."""
        assert isinstance(move.step, p.RFactor)
        old = self.stages[move.step.stage]
        partial, final = move.program[move.made[0]], move.program[old.name]
        assert isinstance(partial, ComputeOp)
        assert isinstance(final, ComputeOp)
        loops = old.loops(old.axes)
        lane = partial.axes[move.step.factor_axis].name
        names = {leaf.name: leaf.name for leaf in partial.reduce_axes} | {move.step.axis: lane}
        terms: dict[str, list[tuple[str, Number]]] = {axis: [] for axis in old.reduce}
        trips: dict[str, Number] = {}
        for leaf, name in names.items():
            trips[name] = _product(loops.get(leaf, ()))
            for part in loops.get(leaf, ()):
                terms.setdefault(part.axis, []).append((name, part.stride))
        spatial = {axis: old.axes[axis] for axis in old.spatial}
        rows = [*spatial.items()]
        rows.insert(move.step.factor_axis, (lane, trips[lane]))
        axes = dict(rows)
        written = tuple(
            Access(b.name, dtypes.info(b.dtype).bytes, tuple(axes.values()), _own(axes), write=True)
            for b in buffers(partial)
        )
        reads = tuple(_substituted(a, terms) for a in old.accesses if not a.write)
        reduce = frozenset(leaf.name for leaf in partial.reduce_axes)
        own = {**axes, **{axis: trips[axis] for axis in reduce}}
        self.stages[partial.name] = StageLoops(
            partial.name, own, reduce, (*written, *reads), old.operations, old.points, old.bits
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
        )

    def _inline(self, name: str) -> None:
        """Readers compute the stage's elements themselves."""
        gone = self.stages.pop(name)
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

    def _transform(self, step: p.TransformLayout, made: tuple[str, ...]) -> None:
        """Axes of the new layout are the old ones, or blocks of them."""
        stage = self.stages[step.stage]
        axes = dict(zip(step.axes, stage.spatial, strict=True))
        known = {name: Var(axis) for name, axis in axes.items()}
        for name, text in zip(made, step.index, strict=True):
            match parse_index(text, lambda word: known.get(word, Var(f"@{word}"))):
                case Var(name=axis):
                    stage.steps.append(Renamed(axis, name))
                case Binary(op="floordiv", a=Var(name=axis), b=size):
                    stage.steps.append(SplitInto(axis, self._size(size), None, name, f"{name}.rest"))
                case Binary(op="floormod", a=Var(name=axis), b=size):
                    stage.steps.append(SplitInto(axis, self._size(size), None, f"{name}.rest", name))
        written = {a.buffer for a in stage.accesses if a.write}
        for other in self.stages.values():
            other.accesses = tuple(replace(a, packed=True) if a.buffer in written else a for a in other.accesses)

    def _keep_copies(self, step: p.Pipeline | p.DoubleBuffer) -> None:
        self.stages[step.stage].copies = self._number(step.stages) if isinstance(step, p.Pipeline) else 2.0

    def _size(self, expr: Expr) -> Number:
        match expr:
            case Const():
                return float(expr.value)
            case Var() if expr.name[1:] in self.values:
                return self.values[expr.name[1:]]
        return 1.0


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
    most = max(points)
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
