"""Accesses of a canonical operation, branch by branch, and the proof that they stay in bounds."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TypeAlias

from tensorlang.errors import DefinitionError
from tensorlang.ir.expr import Expr, Load, Select, Unary, binary, to_text
from tensorlang.polyhedral import isl
from tensorlang.polyhedral.affine_text import Namer, conditions_text, dims, index_text, is_visible
from tensorlang.polyhedral.ordered import sources
from tensorlang.te.axis import Axis
from tensorlang.te.operation import ComputeOp, HybridOp, Reduce
from tensorlang.te.program import Program

GuardedLoad: TypeAlias = tuple[Load, tuple[Expr, ...]]


def guarded_loads(expr: Expr, conditions: tuple[Expr, ...] = ()) -> Iterator[GuardedLoad]:
    """Yield every load with the conditions under which it runs: a branch not taken reads nothing.

    The loads that an index or a condition needs come after the loads that need it.
    """
    match expr:
        case Select():
            yield from guarded_loads(expr.then, (*conditions, expr.cond))
            yield from guarded_loads(expr.orelse, (*conditions, Unary("not", expr.cond, "bool")))
            yield from guarded_loads(expr.cond, conditions)
        case Reduce():
            inner = conditions if expr.where is None else (*conditions, expr.where)
            for source in expr.sources:
                yield from guarded_loads(source, inner)
            if expr.where is not None:
                yield from guarded_loads(expr.where, conditions)
        case _:
            if isinstance(expr, Load):
                yield expr, conditions
            for child in expr.children():
                yield from guarded_loads(child, conditions)


def _axis_range(axis: Axis) -> tuple[Expr, Expr]:
    """The two conditions that keep an axis in its range."""
    return binary("ge", axis, axis.lower), binary("lt", axis, axis.lower + axis.extent)


def unproven(op: ComputeOp, sizes: frozenset[str], values: Sequence[Expr] | None = None) -> tuple[GuardedLoad, ...]:
    """The loads whose bounds isl cannot see (an index or a guard reads memory), with their guards.

    They are those of `values`: the operation's body (None), or what its reduction starts from. The kernel checks
    them, last first.
    """
    axes = [a.name for a in (*op.axes, *op.reduce_axes)]
    return unproven_among(op.body if values is None else values, axes, sizes)


def unproven_among(values: Sequence[Expr], axes: Sequence[str], sizes: frozenset[str]) -> tuple[GuardedLoad, ...]:
    """The loads of some values over these axes whose bounds isl cannot see, with their guards."""
    names = dims(axes)
    return tuple(
        (load, conditions)
        for load, conditions in _distinct(values)
        if not is_visible(names, Namer(sizes), conditions, load.index)
    )


def _distinct(values: Sequence[Expr]) -> tuple[GuardedLoad, ...]:
    """The loads of some values with their conditions, each pair where it comes up last."""
    found: dict[tuple[str, ...], GuardedLoad] = {}
    for value in values:
        for load, conditions in guarded_loads(value):
            key = (to_text(load), *map(to_text, conditions))
            found.pop(key, None)
            found[key] = load, conditions
    return tuple(found.values())


def check_bounds(program: Program) -> None:
    """Prove that every affine access stays inside its array; DefinitionError with the first one that does not."""
    sizes = frozenset(v.name for v in program.sizes)
    for op in program.ops:
        match op:
            case ComputeOp():
                around = [c for a in (*op.axes, *op.reduce_axes) for c in _axis_range(a)] + list(op.where)
                check = _Bounds(op, [a.name for a in (*op.axes, *op.reduce_axes)], around, sizes)
                check.all(op.body)
                if op.reduction is not None:
                    around = [c for a in op.axes for c in _axis_range(a)] + list(op.where)
                    _Bounds(op, [a.name for a in op.axes], around, sizes).all(op.reduction.start())
            case HybridOp():
                for source in sources(op).values():
                    check = _Bounds(op, source.axes, source.domain, sizes)
                    check.all((*source.store.index, source.store.value))
                    check.one(Load(source.store.buffer, source.store.index), (), "writes")
                    _Bounds(op, check.axes, source.ranges, sizes).all(source.conditions)
            case _:
                pass


def in_place(op: ComputeOp | HybridOp, array: str) -> str:
    """What to add to a message about an array that a user knows by another name: the input that it updates."""
    pairs = zip(op.outputs, op.updates, strict=True) if isinstance(op, HybridOp) else ()
    old = next((old for made, old in pairs if made.name == array and old is not None), None)
    return f"; {array} is {old.name}, updated in place" if old is not None and old.name != array else ""


@lru_cache(maxsize=1024)
def _is_empty(text: str) -> bool:
    """Whether a set has no point; a search schedules the same program many times."""
    return bool(isl.make_set(text).is_empty())


@dataclass(frozen=True)
class _Bounds:
    """The proof that accesses of an operation stay inside their arrays, over some axes in some domain."""

    op: ComputeOp | HybridOp
    axes: Sequence[str]
    domain: Sequence[Expr]
    sizes: frozenset[str]

    def all(self, values: Sequence[Expr]) -> None:
        """Every load of some values."""
        for load, conditions in _distinct(values):
            self.one(load, conditions, "reads")

    def one(self, load: Load, conditions: tuple[Expr, ...], word: str) -> None:
        """One access; DefinitionError with the first point at which it leaves its array."""
        namer = Namer(self.sizes)
        names = dims(self.axes)
        if not is_visible(names, Namer(self.sizes), conditions, load.index):
            return
        inside, _ = conditions_text([*self.domain, *conditions], names, namer)
        for index, size in zip(load.index, load.buffer.shape, strict=True):
            text, limit = index_text(index, names, namer), index_text(size, {}, namer)
            outside = f"({text} < 0 or {text} >= {limit})"
            context = namer.context()
            where = " and ".join(t for t in (inside, outside, context) if t)
            bad = f"{namer.prefix()}{{ [{', '.join(names.values())}] : {where} }}"
            if not _is_empty(bad):
                raise DefinitionError(self._complaint(load, isl.make_set(bad), namer, word), self.op.location)

    def _complaint(self, load: Load, bad: isl.Set, namer: Namer, word: str) -> str:
        count = bad.dim(isl.DIM.param)
        values = isl.lexicographic_minimum(bad.move_dims(isl.DIM.set, 0, isl.DIM.param, 0, count))
        sizes = ", ".join(f"{to_text(e)}={v}" for e, v in zip(namer.parameters.values(), values, strict=False))
        at = ", ".join(f"{a}={v}" for a, v in zip(self.axes, values[count:], strict=True))
        shape = ", ".join(map(to_text, load.buffer.shape))
        guard = "the read with te.if_then_else" if isinstance(self.op, ComputeOp) else "the access with if"
        return (
            f"{self.op.name} {word} {to_text(load)} outside {load.buffer.name} of shape ({shape}), "
            f"for instance at {at or 'its only point'}{f' with {sizes}' if sizes else ''}; "
            f"guard {guard}, or change the extents{in_place(self.op, load.buffer.name)}"
        )
