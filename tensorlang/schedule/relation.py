"""How the axes of a stage are made from each other: split, fuse, skew.

Relations are kept in the order in which they were applied. From the ranges of the stage's own axes they give
the range of every axis (forwards), and from values of the leaf axes the values of all others (backwards).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from tensorlang.ir.expr import Binary, Const, Expr, binary, rewrite
from tensorlang.ir.expr import fold_integers as fold
from tensorlang.ir.index import to_index
from tensorlang.ir.stmt import INDEX

ZERO = Const(0, INDEX)
ONE = Const(1, INDEX)


@dataclass(frozen=True, slots=True)
class SplitRelation:
    """`parent = outer * factor + inner`; `tail` is guard, peel or perfect."""

    parent: str
    outer: str
    inner: str
    factor: int
    tail: str


@dataclass(frozen=True, slots=True)
class PartsRelation:
    """A split into `parts` pieces: the factor is ceil(extent / parts), whatever the extent turns out to be."""

    parent: str
    outer: str
    inner: str
    parts: int
    tail: str


@dataclass(frozen=True, slots=True)
class FuseRelation:
    """`fused = outer * extent(inner) + inner`."""

    outer: str
    inner: str
    fused: str


@dataclass(frozen=True, slots=True)
class SkewRelation:
    """`skewed = axis + factor * by`."""

    axis: str
    by: str
    factor: int
    skewed: str


Relation: TypeAlias = SplitRelation | PartsRelation | FuseRelation | SkewRelation


@dataclass(frozen=True, slots=True)
class AxisRange:
    """`lower <= axis < lower + extent`, int64."""

    lower: Expr
    extent: Expr

    @property
    def upper(self) -> Expr:
        return simple(binary("add", self.lower, self.extent))


def simple(expr: Expr) -> Expr:
    """Fold integer constants."""
    return rewrite(expr, lambda e: fold(e.op, e.a, e.b) if isinstance(e, Binary) else None)


def constant(expr: Expr) -> int | None:
    """The value of a constant expression, else None."""
    folded = simple(expr)
    return int(folded.value) if isinstance(folded, Const) else None


def _ceildiv(a: Expr, b: int) -> Expr:
    return simple(binary("floordiv", binary("add", a, b - 1), b))


def split_factor(relation: SplitRelation | PartsRelation, parent: AxisRange) -> Expr:
    """The factor of a split: a constant, unless a symbolic extent is cut in parts."""
    if isinstance(relation, SplitRelation):
        return Const(relation.factor, INDEX)
    factor = _ceildiv(parent.extent, relation.parts)
    return simple(binary("max", factor, 1)) if isinstance(factor, Const) else factor


def forward(relation: Relation, known: Mapping[str, AxisRange]) -> dict[str, AxisRange]:
    """Return the ranges of the axes that a relation makes."""
    match relation:
        case SplitRelation() | PartsRelation():
            parent = known[relation.parent]
            factor = split_factor(relation, parent)
            inner = AxisRange(ZERO, factor)
            if isinstance(relation, PartsRelation):
                return {relation.outer: AxisRange(ZERO, Const(relation.parts, INDEX)), relation.inner: inner}
            first = simple(binary("floordiv", parent.lower, factor))
            after = _ceildiv(parent.upper, relation.factor)
            return {relation.outer: AxisRange(first, simple(binary("sub", after, first))), relation.inner: inner}
        case FuseRelation():
            a, b = known[relation.outer], known[relation.inner]
            return {relation.fused: AxisRange(ZERO, simple(binary("mul", a.extent, b.extent)))}
        case SkewRelation():
            a, b = known[relation.axis], known[relation.by]
            low, high = binary("mul", b.lower, relation.factor), binary("mul", b.upper - 1, relation.factor)
            if relation.factor < 0:
                low, high = high, low
            lower = simple(binary("add", a.lower, low))
            upper = simple(binary("add", a.upper, high))
            return {relation.skewed: AxisRange(lower, simple(binary("sub", upper, lower)))}


def ranges(roots: Mapping[str, AxisRange], relations: Sequence[Relation]) -> dict[str, AxisRange]:
    """Return the range of every axis, from those of the stage's own axes."""
    known = dict(roots)
    for relation in relations:
        known.update(forward(relation, known))
    return known


def backward(
    relations: Sequence[Relation], known: Mapping[str, AxisRange], leaf: Mapping[str, Expr]
) -> tuple[dict[str, Expr], list[Expr]]:
    """Return the value of every axis from the leaves, and the conditions that keep parents in their range."""
    value, guards = dict(leaf), list[Expr]()
    for relation in reversed(relations):
        match relation:
            case SplitRelation() | PartsRelation():
                parent = known[relation.parent]
                factor = split_factor(relation, parent)
                whole = binary("add", binary("mul", value[relation.outer], factor), value[relation.inner])
                if isinstance(relation, PartsRelation):
                    whole = binary("add", whole, parent.lower)
                value[relation.parent] = simple(whole)
                guards += _split_guards(relation, parent, constant(factor), value[relation.parent])
            case FuseRelation():
                fused, inner = value[relation.fused], known[relation.inner]
                a = binary("add", binary("floordiv", fused, inner.extent), known[relation.outer].lower)
                b = binary("add", binary("floormod", fused, inner.extent), inner.lower)
                value[relation.outer], value[relation.inner] = simple(a), simple(b)
            case SkewRelation():
                axis = known[relation.axis]
                at = binary("sub", value[relation.skewed], binary("mul", value[relation.by], relation.factor))
                value[relation.axis] = simple(at)
                guards += [binary("ge", at, axis.lower), binary("lt", at, axis.upper)]
    return value, guards


def _split_guards(
    relation: SplitRelation | PartsRelation, parent: AxisRange, factor: int | None, whole: Expr
) -> list[Expr]:
    low, extent = constant(parent.lower), constant(parent.extent)
    if isinstance(relation, PartsRelation):
        perfect = factor is not None and extent == relation.parts * factor
        return [] if perfect else [binary("lt", whole, parent.upper)]
    assert factor is not None
    guards: list[Expr] = []
    if low is None or low % factor:
        guards.append(binary("ge", whole, parent.lower))
    if low is None or extent is None or (low + extent) % factor:
        guards.append(binary("lt", whole, parent.upper))
    return guards


def symbolic(expr: Expr) -> Expr:
    """An extent of a te axis as an int64 expression of the sizes."""
    return simple(to_index(expr))
