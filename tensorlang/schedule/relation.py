"""How the axes of a stage are made from each other: split, fuse, skew.

Relations are kept in the order in which they were applied. From the ranges of the stage's own axes they give
the range of every axis (forwards), and from values of the leaf axes the values of all others (backwards).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import fields, replace
from typing import Any, TypeAlias

from tensorlang.dataclass import dataclass
from tensorlang.ir.expr import Const, Expr, Var, binary
from tensorlang.ir.stmt import INDEX
from tensorlang.schedule.axis_range import ONE, ZERO, AxisRange, constant, simple


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


@dataclass(frozen=True, slots=True)
class ShiftRelation:
    """`shifted = axis + by`; a renaming where `by` is 0. `by` is an expression of the sizes.

    `within` is the range of a loop shared with other statements, or the part to which the axis is cut (`cuts`).
    """

    axis: str
    by: Expr
    shifted: str
    within: AxisRange | None = None
    cuts: bool = False


@dataclass(frozen=True, slots=True)
class ReverseRelation:
    """`reversed = first + last - axis`: the same range, backwards."""

    axis: str
    reversed: str


@dataclass(frozen=True, slots=True)
class AffineRelation:
    """`made = matrix * axes`, by a unimodular matrix; `inverse` is that of the matrix."""

    axes: tuple[str, ...]
    matrix: tuple[tuple[int, ...], ...]
    inverse: tuple[tuple[int, ...], ...]
    made: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class BandRelation:
    """Loops over the tiles that hyperplanes cut: `tile = floor((row * axes + shift) / size)`; the axes stay."""

    axes: tuple[str, ...]
    rows: tuple[tuple[int, ...], ...]
    shifts: tuple[int, ...]
    sizes: tuple[int, ...]
    tiles: tuple[str, ...]


Relation: TypeAlias = (
    SplitRelation
    | PartsRelation
    | FuseRelation
    | SkewRelation
    | ShiftRelation
    | ReverseRelation
    | AffineRelation
    | BandRelation
)


def made_by(relation: Relation) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The axes that a relation takes, and those that it makes."""
    match relation:
        case SplitRelation() | PartsRelation():
            return (relation.parent,), (relation.outer, relation.inner)
        case FuseRelation():
            return (relation.outer, relation.inner), (relation.fused,)
        case SkewRelation():
            return (relation.axis,), (relation.skewed,)
        case ShiftRelation():
            return (relation.axis,), (relation.shifted,)
        case ReverseRelation():
            return (relation.axis,), (relation.reversed,)
        case AffineRelation():
            return relation.axes, relation.made
        case BandRelation():
            return relation.axes, relation.tiles


def renamed(relation: Relation, names: Mapping[str, str]) -> Relation:
    """A relation between axes of other names."""

    def named(part: Any) -> Any:
        if isinstance(part, tuple):
            return tuple(map(named, part))
        return names.get(part, part) if isinstance(part, str) else part

    texts = [f.name for f in fields(relation) if f.name != "tail"]
    return replace(relation, **{name: named(getattr(relation, name)) for name in texts})


def implied(own: Iterable[str], relations: Sequence[Relation]) -> set[str]:
    """The axes whose range follows from the ranges of a statement's own axes, and needs no bound of its own."""
    found = set(own)
    for relation in relations:
        match relation:
            case SplitRelation() if relation.parent in found:
                found.add(relation.outer)
            case SkewRelation() if {relation.axis, relation.by} <= found:
                found.add(relation.skewed)
            case FuseRelation() | ShiftRelation() | ReverseRelation() | AffineRelation() | BandRelation():
                old, new = made_by(relation)
                found |= set(new) if set(old) <= found else set()
            case _:
                pass
    return found


def _ceildiv(a: Expr, b: int) -> Expr:
    return binary("floordiv", binary("add", a, b - 1), b)


def split_factor(relation: SplitRelation | PartsRelation, parent: AxisRange) -> Expr:
    """The factor of a split: a constant, unless a symbolic extent is cut in parts."""
    if isinstance(relation, SplitRelation):
        return Const(relation.factor, INDEX)
    factor = _ceildiv(parent.extent, relation.parts)
    return binary("max", factor, 1) if isinstance(factor, Const) else factor


def forward(relation: Relation, known: Mapping[str, AxisRange]) -> dict[str, AxisRange]:
    """Return the ranges of the axes that a relation makes."""
    match relation:
        case SplitRelation() | PartsRelation():
            parent = known[relation.parent]
            factor = split_factor(relation, parent)
            inner = AxisRange(ZERO, factor)
            if isinstance(relation, PartsRelation):
                return {relation.outer: AxisRange(ZERO, Const(relation.parts, INDEX)), relation.inner: inner}
            first = binary("floordiv", parent.lower, factor)
            after = _ceildiv(parent.upper, relation.factor)
            return {relation.outer: AxisRange(first, binary("sub", after, first)), relation.inner: inner}
        case FuseRelation():
            a, b = known[relation.outer], known[relation.inner]
            return {relation.fused: AxisRange(ZERO, binary("mul", a.extent, b.extent))}
        case SkewRelation():
            a, b = known[relation.axis], known[relation.by]
            low, high = binary("mul", b.lower, relation.factor), binary("mul", b.upper - 1, relation.factor)
            if relation.factor < 0:
                low, high = high, low
            lower = binary("add", a.lower, low)
            upper = binary("add", a.upper, high)
            return {relation.skewed: AxisRange(lower, binary("sub", upper, lower))}
        case ShiftRelation():
            old = known[relation.axis]
            moved = AxisRange(simple(binary("add", old.lower, relation.by)), old.extent)
            return {relation.shifted: relation.within or moved}
        case ReverseRelation():
            return {relation.reversed: known[relation.axis]}
        case AffineRelation():
            old_ranges = [known[a] for a in relation.axes]
            return {name: _row_range(row, old_ranges) for name, row in zip(relation.made, relation.matrix, strict=True)}
        case BandRelation():
            old_ranges = [known[a] for a in relation.axes]
            rows = zip(relation.tiles, relation.rows, relation.shifts, relation.sizes, strict=True)
            return {name: _tile_range(_row_range(row, old_ranges), by, size) for name, row, by, size in rows}


def _row_range(row: Sequence[int], ranges: Sequence[AxisRange]) -> AxisRange:
    """The range of a sum of multiples of axes."""
    lower: Expr = ZERO
    upper: Expr = ZERO  # inclusive
    for factor, axis in zip(row, ranges, strict=True):
        if factor:
            by = Const(factor, INDEX)
            ends = [binary("mul", axis.lower, by), binary("mul", binary("sub", axis.upper, ONE), by)]
            low, high = ends if factor > 0 else reversed(ends)
            lower, upper = binary("add", lower, low), binary("add", upper, high)
    return AxisRange(lower, binary("add", binary("sub", upper, lower), ONE))


def _tile_range(row: AxisRange, shift: int, size: int) -> AxisRange:
    edge = Const(size, INDEX)
    first = binary("floordiv", binary("add", row.lower, Const(shift, INDEX)), edge)
    last = binary("floordiv", binary("add", row.upper, Const(shift - 1, INDEX)), edge)
    return AxisRange(first, binary("add", binary("sub", last, first), ONE))


def made_values(relations: Sequence[Relation], known: Mapping[str, AxisRange]) -> dict[str, Expr]:
    """The value of every made axis from those of the stage's own, each a variable of its name."""
    value: dict[str, Expr] = {}

    def of(axis: str) -> Expr:
        return value.get(axis, Var(axis, INDEX))

    for relation in relations:
        match relation:
            case SplitRelation() | PartsRelation():
                parent = known[relation.parent]
                factor, at = split_factor(relation, parent), of(relation.parent)
                if isinstance(relation, PartsRelation):
                    at = binary("sub", at, parent.lower)
                value[relation.outer] = binary("floordiv", at, factor)
                value[relation.inner] = binary("floormod", at, factor)
            case FuseRelation():
                outer, inner = known[relation.outer], known[relation.inner]
                a = binary("mul", binary("sub", of(relation.outer), outer.lower), inner.extent)
                value[relation.fused] = binary("add", a, binary("sub", of(relation.inner), inner.lower))
            case SkewRelation():
                value[relation.skewed] = _combination((1, relation.factor), (of(relation.axis), of(relation.by)))
            case ShiftRelation():
                value[relation.shifted] = simple(binary("add", of(relation.axis), relation.by))
            case ReverseRelation():
                value[relation.reversed] = binary("sub", _ends(known[relation.axis]), of(relation.axis))
            case AffineRelation():
                old = [of(a) for a in relation.axes]
                value |= {n: _combination(row, old) for n, row in zip(relation.made, relation.matrix, strict=True)}
            case BandRelation():
                old = [of(a) for a in relation.axes]
                for tile, (row, size) in zip(relation.tiles, _tile_rows(relation, old), strict=True):
                    value[tile] = binary("floordiv", row, size)
    return value


def _ends(reach: AxisRange) -> Expr:
    """The sum of the first and the last value of an axis."""
    return binary("add", reach.lower, binary("sub", reach.upper, 1))


def ranges(roots: Mapping[str, AxisRange], relations: Sequence[Relation], tight: bool = False) -> dict[str, AxisRange]:
    """Return the range of every axis, from those of the stage's own axes.

    `tight`: a loop over a tile that is larger than what is cut has no more iterations than that.
    """
    known = dict(roots)
    for relation in relations:
        known.update(forward(relation, known))
        if tight and isinstance(relation, SplitRelation | PartsRelation) and relation.tail == "guard":
            known.update(_tight(relation, known))
    return known


def _tight(relation: SplitRelation | PartsRelation, known: Mapping[str, AxisRange]) -> dict[str, AxisRange]:
    """The ranges of the two loops of a split without iterations that are surely empty."""
    parent = known[relation.parent]
    factor, extent = constant(split_factor(relation, parent)), constant(parent.extent)
    if factor is None or extent is None or extent < 1 or constant(parent.lower) != 0:
        return {}
    tiles = Const(-(-extent // factor), INDEX)
    inner = Const(min(factor, extent), INDEX)
    return {relation.outer: AxisRange(ZERO, tiles), relation.inner: AxisRange(ZERO, inner)}


def backward(
    relations: Sequence[Relation],
    known: Mapping[str, AxisRange],
    leaf: Mapping[str, Expr],
    free: Collection[str] = (),
) -> tuple[dict[str, Expr], list[Expr]]:
    """Return the value of every axis from the leaves, and the conditions that keep parents in their range.

    Axes in `free` need no condition: their range follows from one that the caller adds.
    """
    value, guards = dict(leaf), list[Expr]()
    for relation in reversed(relations):
        match relation:
            case SplitRelation() | PartsRelation():
                parent = known[relation.parent]
                factor = split_factor(relation, parent)
                whole = binary("add", binary("mul", value[relation.outer], factor), value[relation.inner])
                if isinstance(relation, PartsRelation):
                    whole = binary("add", whole, parent.lower)
                value[relation.parent] = whole
                if relation.parent not in free:
                    guards += _split_guards(relation, parent, constant(factor), value[relation.parent])
            case FuseRelation():
                fused, inner = value[relation.fused], known[relation.inner]
                run = ONE if constant(inner.extent) == 0 else inner.extent  # of no iterations none is ever divided
                a = binary("add", binary("floordiv", fused, run), known[relation.outer].lower)
                b = binary("add", binary("floormod", fused, run), inner.lower)
                value[relation.outer], value[relation.inner] = a, b
            case SkewRelation():
                at = binary("sub", value[relation.skewed], binary("mul", value[relation.by], relation.factor))
                value[relation.axis] = at
                guards += _held(relation.axis, at, known, free)
            case ShiftRelation():
                at = value[relation.shifted]
                value[relation.axis] = simple(binary("sub", at, relation.by))
                if relation.within is not None:
                    guards += _held(relation.axis, value[relation.axis], known, free)
                    guards += relation.within.holds(at) if relation.cuts else ()
            case ReverseRelation():
                value[relation.axis] = binary("sub", _ends(known[relation.axis]), value[relation.reversed])
            case AffineRelation():
                made = [value[name] for name in relation.made]
                for name, row in zip(relation.axes, relation.inverse, strict=True):
                    value[name] = _combination(row, made)
                    guards += _held(name, value[name], known, free)
            case BandRelation():
                points = [value[a] for a in relation.axes]
                for tile, (at, size) in zip(relation.tiles, _tile_rows(relation, points), strict=True):
                    guards += AxisRange(binary("mul", value[tile], size), Const(size, INDEX)).holds(at)
    return value, guards


def _held(axis: str, value: Expr, known: Mapping[str, AxisRange], free: Collection[str]) -> Sequence[Expr]:
    """The conditions that keep an axis in its range; none if that follows from the range of others."""
    return () if axis in free else known[axis].holds(value)


def _tile_rows(relation: BandRelation, values: Sequence[Expr]) -> list[tuple[Expr, int]]:
    """What the hyperplanes of tiles give at the values of axes, each with the size of a tile."""
    rows = zip(relation.rows, relation.shifts, relation.sizes, strict=True)
    return [(binary("add", _combination(row, values), by), size) for row, by, size in rows]


def _combination(row: Sequence[int], values: Sequence[Expr]) -> Expr:
    """The sum of multiples of values."""
    total: Expr = ZERO
    for factor, value in zip(row, values, strict=True):
        if factor:
            total = binary("add", total, value if factor == 1 else binary("mul", value, Const(factor, INDEX)))
    return total


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
