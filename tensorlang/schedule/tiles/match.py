"""Is the computation of a tile what an intrinsic declares? Expression trees and access functions are compared exactly.

A tile is what the loops at and below one loop run, for fixed values of the loops around it. Every axis of the stage is
there `base + step * t`: the base is an expression of the loops around, and `t` counts the tile along that axis.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cached_property
from itertools import permutations

from tensorlang.dataclass import dataclass
from tensorlang.errors import InternalError
from tensorlang.ir.affine import Affine
from tensorlang.ir.expr import Binary, Buffer, Call, Cast, Const, Expr, Load, Unary, Var, same, substitute, variables
from tensorlang.ir.index import to_index
from tensorlang.ir.linear import linear
from tensorlang.ir.simplify import simplify
from tensorlang.ir.simplify.forms import Range
from tensorlang.ir.stmt import INDEX
from tensorlang.ir.traverse import bounded
from tensorlang.schedule.axis_range import simple
from tensorlang.te.axis import Axis
from tensorlang.te.operation import ComputeOp, Reduce, buffers

_COMMUTATIVE = ("add", "mul", "min", "max", "and", "or", "bitand", "bitor", "bitxor", "eq", "ne")
_VERBS = {"mul": "multiplies {} by {}", "add": "adds {} and {}", "sub": "subtracts {1} from {0}", "max": "compares {} "
          "with {}", "min": "compares {} with {}"}  # fmt: skip


class Mismatch(Exception):
    """What differs between a tile and an intrinsic, and the steps that would make them agree."""

    def __init__(self, why: str, *suggested: str) -> None:
        self.why = why
        self.suggested = suggested
        super().__init__(why)


@dataclass(frozen=True, slots=True)
class TileLoop:
    """A loop of constant range at or below the tensorized one."""

    name: str
    axis: str
    lower: int
    extent: int


@dataclass(frozen=True, slots=True)
class TileAxis:
    """An axis of the stage inside a tile: `base + step * t` for `0 <= t < extent`; `parts` are the steps and extents
    of the loops that make it, inner ones first. One of these alone is a part `of` the axis.
    """

    name: str
    reduce: bool
    base: Expr
    step: int
    extent: int
    parts: tuple[tuple[int, int], ...] = ()
    of: str = ""

    @property
    def var(self) -> Var:
        """`t` in expressions."""
        return Var(f"{self.name}@tile", INDEX)

    def apart(self) -> Iterator[TileAxis]:
        """The loops of the axis as axes of their own, whose sum it is."""
        if len(self.parts) < 2:
            yield self
            return
        for number, (step, extent) in enumerate(self.parts):
            base = Const(0, INDEX) if number else self.base
            yield TileAxis(f"{self.name}.{number}", self.reduce, base, step, extent, of=self.name)


@dataclass(frozen=True, slots=True)
class TileView:
    """The tile of one array: where it begins, and for each dimension of the intrinsic's array the one it goes along."""

    array: str
    index: tuple[Expr, ...]
    dims: tuple[int, ...]
    steps: tuple[int, ...]


@dataclass(frozen=True)
class Tile:
    """A tile as the matcher sees it: the stage's operation over its axes, and the ranges of the loops around."""

    op: ComputeOp
    axes: tuple[TileAxis, ...]
    limits: Mapping[str, Range]

    def index(self, expr: Expr) -> Expr:
        """An index of the body over the loops around and the tile's own variables."""
        return simplify(to_index(substitute(expr, self._values)), self._ranges)

    @cached_property
    def apart(self) -> Tile | None:
        """The same tile, in which each loop of a sum is an axis of its own; None where all have one loop."""
        axes = tuple(part for axis in self.axes for part in (axis.apart() if axis.reduce else (axis,)))
        return None if len(axes) == len(self.axes) else Tile(self.op, axes, self.limits)

    @cached_property
    def _values(self) -> dict[str, Expr]:
        made: dict[str, Expr] = {}
        for a in self.axes:
            value = a.base if a.extent == 1 else simple(a.base + a.var * a.step)
            made[a.of or a.name] = simple(made[a.of] + value) if a.of in made else value
        return made

    @cached_property
    def _ranges(self) -> dict[str, Range]:
        return {**self.limits, **{a.var.name: (0, a.extent - 1) for a in self.axes}}


def tile_axes(op: ComputeOp, point: Mapping[str, Expr], loops: Sequence[TileLoop]) -> tuple[TileAxis, ...]:
    """The axes of a stage inside a tile, from their values over the loops; Mismatch when one is not a plain range."""
    inner = {loop.name: loop for loop in loops}
    reduce = {a.name for a in op.reduce_axes}
    return tuple(_tile_axis(a, point[a.name], inner, a.name in reduce) for a in (*op.axes, *op.reduce_axes))


def _tile_axis(axis: Axis, value: Expr, inner: Mapping[str, TileLoop], reduce: bool) -> TileAxis:
    found = linear(value, inner.keys())
    if found is None:
        raise Mismatch(
            f"axis {axis.name} is {value} below the loop, which is no plain range of the loops there",
            "tensorize before the axes are fused, or split instead of fusing",
        )
    base, factors = found
    inside = [(abs(f), f, inner[name]) for name, f in factors.items() if inner[name].extent > 1]
    moving = sorted(inside, key=lambda part: part[0])
    step, extent = (moving[0][0] if moving else 1), 1
    for size, factor, loop in moving:
        if factor < 0 or size != step * extent:
            raise Mismatch(f"the loops below do not run through axis {axis.name} evenly: it is {value} there")
        extent *= loop.extent
    for name, factor in factors.items():
        base = base + factor * inner[name].lower
    parts = tuple((factor, loop.extent) for _, factor, loop in moving)
    return TileAxis(axis.name, reduce, simple(base), step, extent, parts)


def match_tile(tile: Tile, declared: ComputeOp, check: Callable[[dict[str, TileView]], None]) -> dict[str, TileView]:
    """Return the tile of each array of an intrinsic's computation, by the names there; Mismatch says what differs.

    `check` raises Mismatch where the tiles do not lie in memory as they must; axes are then paired otherwise.
    """
    try:
        return _match_axes(tile, declared, check)
    except Mismatch:
        if tile.apart is not None:
            with suppress(Mismatch):
                return _match_axes(tile.apart, declared, check)
        raise


def _match_axes(tile: Tile, declared: ComputeOp, check: Callable[[dict[str, TileView]], None]) -> dict[str, TileView]:
    first: Mismatch | None = None
    for pairs in _pairings(tile.axes, declared):
        try:
            views = _match_along(tile, declared, pairs)
            check(views)
            return views
        except Mismatch as mismatch:
            first = first or mismatch
    assert first is not None
    raise first


def _pairings(axes: Sequence[TileAxis], declared: ComputeOp, spatial: bool = False) -> Iterator[dict[str, TileAxis]]:
    """Which axis of the tile may be which of the intrinsic: of one kind and extent, at least one pairing."""
    ours = [a for a in axes if a.extent > 1]
    theirs = [(a, _extent(a), False) for a in declared.axes] + [(a, _extent(a), True) for a in declared.reduce_axes]
    theirs = [t for t in theirs if t[1] > 1 and not (spatial and t[2])]
    found = False
    for order in permutations(ours) if len(ours) == len(theirs) else ():
        if all(a.extent == n and a.reduce == r for a, (_, n, r) in zip(order, theirs, strict=True)):
            found = True
            yield {axis.name: a for a, (axis, _, _) in zip(order, theirs, strict=True)}
    if not found:
        raise _sizes_differ(ours, theirs)


def _extent(axis: Axis) -> int:
    assert isinstance(axis.extent, Const)
    return int(axis.extent.value)


def _sizes_differ(ours: list[TileAxis], theirs: list[tuple[Axis, int, bool]]) -> Mismatch:
    """What to say of the first axis, spatial ones first, that has no partner of its extent."""
    for reduce in (False, True):
        kind = "reduce axis" if reduce else "axis"
        alone = [a for a in ours if a.reduce == reduce]
        wanted = []
        for axis, n, _ in (t for t in theirs if t[2] == reduce):
            partner = next((a for a in alone if a.extent == n), None)
            if partner is None:
                wanted.append((axis, n))
            else:
                alone.remove(partner)
        if alone and wanted:
            own, (axis, n) = alone[0], wanted[0]
            return Mismatch(
                f"{kind} {own.name} has extent {own.extent} below the loop, the intrinsic covers {n} "
                f"({axis.name} there)",
                f"split {own.name} by {n}, and have the other loops around the tensorized one (reorder)",
            )
        if alone:
            extra = ", ".join(a.name for a in alone)
            return Mismatch(
                f"{kind} {extra} runs below the loop too, and the intrinsic has no axis for it",
                f"put {extra} outside of the tensorized loop (reorder)",
            )
        if wanted:
            axis, n = wanted[0]
            return Mismatch(
                f"the intrinsic covers {n} of {kind} {axis.name}, and no loop below does",
                f"put a loop of {n} iterations of that axis inside the tensorized one (split, reorder)",
            )
    raise InternalError("axes of the same extents have no pairing")


def _match_along(tile: Tile, declared: ComputeOp, pairs: Mapping[str, TileAxis]) -> dict[str, TileView]:
    env: dict[str, Expr] = {a.name: Const(0, INDEX) for a in (*declared.axes, *declared.reduce_axes)}
    env |= {name: axis.var for name, axis in pairs.items()}
    matcher = _Matcher(tile, env)
    ours, theirs = tile.op.reduction, declared.reduction
    if tile.op.num_outputs != declared.num_outputs:
        raise Mismatch(f"the stage has {tile.op.num_outputs} outputs, the intrinsic {declared.num_outputs}")
    if (ours is None) != (theirs is None):
        kinds = ("a reduction", "none") if theirs is not None else ("no reduction", "one")
        raise Mismatch(f"the intrinsic computes {kinds[0]}, the stage {kinds[1]}")
    if ours is None or theirs is None:
        for mine, wanted in zip(tile.op.body, declared.body, strict=True):
            matcher.match(mine, wanted)
    else:
        _match_reductions(matcher, ours, theirs)
    _match_outputs(matcher, declared)
    return matcher.views


def match_outputs(tile: Tile, declared: ComputeOp, like: Mapping[str, TileView]) -> dict[str, TileView]:
    """Return the tile of each output alone, going along the dimensions as in `like`: where a reduction starts."""
    first: Mismatch | None = None
    for pairs in _pairings([a for a in tile.axes if not a.reduce], declared, spatial=True):
        env: dict[str, Expr] = {a.name: Const(0, INDEX) for a in declared.axes}
        matcher = _Matcher(tile, env | {name: axis.var for name, axis in pairs.items()})
        try:
            _match_outputs(matcher, declared)
        except Mismatch as mismatch:
            first = first or mismatch
        else:
            if all((v.dims, v.steps) == (like[n].dims, like[n].steps) for n, v in matcher.views.items()):
                return matcher.views
    assert first is not None
    raise first


def _match_outputs(matcher: _Matcher, declared: ComputeOp) -> None:
    op = matcher.tile.op
    axes, wanted_axes = tuple(Var(a.name) for a in op.axes), tuple(Var(a.name) for a in declared.axes)
    for written, made in zip(buffers(op), buffers(declared), strict=True):
        matcher.access(written, axes, made, wanted_axes)


def _match_reductions(matcher: _Matcher, ours: Reduce, theirs: Reduce) -> None:
    if ours.reducer.text() != theirs.reducer.text():
        raise Mismatch(f"the intrinsic reduces by {theirs.reducer.name}, the stage by {ours.reducer.name}")
    for mine, wanted in zip(ours.sources, theirs.sources, strict=True):
        if mine.dtype != wanted.dtype:
            raise Mismatch(f"the intrinsic accumulates {wanted.dtype}, the stage {mine.dtype}")
        matcher.match(mine, wanted)


class _Matcher:
    """Walks two expressions side by side, and notes which array is which."""

    def __init__(self, tile: Tile, env: dict[str, Expr]) -> None:
        self.tile = tile
        self.env = env
        self.views: dict[str, TileView] = {}

    def match(self, mine: Expr, wanted: Expr) -> None:
        """Compare two bodies; Mismatch says what each computes."""
        try:
            self._node(mine, wanted)
        except Mismatch as mismatch:
            if _describe(mine) != _describe(wanted):
                raise Mismatch(f"the intrinsic {_describe(wanted)}, the stage {_describe(mine)}") from None
            raise mismatch from None

    def _node(self, mine: Expr, wanted: Expr) -> None:
        if isinstance(wanted, Load) and isinstance(mine, Load):
            self.access(mine.buffer, mine.index, wanted.buffer, wanted.index)
            return
        if not any(isinstance(e, Load) for e in (mine, wanted)) and self._same_number(mine, wanted):
            return
        children = mine.children(), wanted.children()
        alike = type(mine) is type(wanted) and mine.dtype == wanted.dtype and mine.label() == wanted.label()
        if not alike or not children[0] or len(children[0]) != len(children[1]):
            raise Mismatch(f"the stage computes {mine} where the intrinsic has {wanted}")
        before = dict(self.views)
        try:
            self._all(*children)
        except Mismatch as mismatch:
            if not (isinstance(mine, Binary) and mine.op in _COMMUTATIVE):
                raise
            self.views = before
            try:
                self._all((mine.b, mine.a), children[1])
            except Mismatch:
                raise mismatch from None

    def _all(self, mine: Sequence[Expr], wanted: Sequence[Expr]) -> None:
        for a, b in zip(mine, wanted, strict=True):
            self._node(a, b)

    def _same_number(self, mine: Expr, wanted: Expr) -> bool:
        """Whether two expressions that read no memory have one value all over the tile."""
        if mine.dtype != wanted.dtype:
            return False
        if mine.dtype not in ("int32", "int64"):
            return same(mine, wanted) and not variables(mine)
        return same(self.tile.index(mine), to_index(substitute(wanted, self.env)))

    def access(self, mine: Buffer, index: Sequence[Expr], wanted: Buffer, declared: Sequence[Expr]) -> None:
        """Compare two accesses, and note the tile of the array; Mismatch unless both run through it alike."""
        if mine.dtype != wanted.dtype:
            raise Mismatch(f"{wanted.name} of the intrinsic is {wanted.dtype}, {mine.name} is {mine.dtype}")
        names = {a.var.name for a in self.tile.axes}
        ours = [linear(self.tile.index(i), names) for i in index]
        theirs = [linear(simplify(to_index(substitute(i, self.env))), names) for i in declared]
        assert all(part is not None for part in theirs), "te.decl_tensor_intrin takes linear indices only"
        if any(part is None for part in ours):
            text = ", ".join(str(self.tile.index(i)) for i in index)
            raise Mismatch(f"the tile reads {mine.name}[{text}], which is no plain box of it")
        view = self._view(mine, [p for p in ours if p], wanted, [p for p in theirs if p])
        known = self.views.setdefault(wanted.name, view)
        if known is not view and not _equal(known, view):
            two = f"{known.array} and {view.array}" if known.array != view.array else f"two places of {view.array}"
            raise Mismatch(f"{wanted.name} of the intrinsic is one tile, the stage reads {two}")

    def _view(
        self, mine: Buffer, ours: list[tuple[Expr, Affine]], wanted: Buffer, theirs: list[tuple[Expr, Affine]]
    ) -> TileView:
        start = [base for base, _ in ours]
        free = {d for d, (_, factors) in enumerate(ours) if factors}
        dims, steps = [], []
        for k, (offset, factors) in enumerate(theirs):
            found = [(d, n) for d in sorted(free) if (n := _multiple(ours[d][1], factors))] if factors else []
            if factors and not found:
                raise self._other_shape(mine, ours, wanted, theirs)
            if not factors and int(wanted.shape[k].value) > 1:  # type: ignore[attr-defined]
                raise Mismatch(f"the intrinsic declares {wanted}, and does not run through dimension {k} of it")
            dim, step = found[0] if found else (-1, 1)
            dims.append(dim)
            steps.append(step)
            if found:
                free.discard(dim)
                start[dim] = simple(start[dim] - offset * step)
        if free:
            raise self._other_shape(mine, ours, wanted, theirs)
        return TileView(mine.name, tuple(start), tuple(dims), tuple(steps))

    def _other_shape(
        self, mine: Buffer, ours: list[tuple[Expr, Affine]], wanted: Buffer, theirs: list[tuple[Expr, Affine]]
    ) -> Mismatch:
        back = {axis.var.name: axis.name for axis in self.tile.axes}
        forth = {value.name: name for name, value in self.env.items() if isinstance(value, Var)}
        here = ", ".join(_factors_text(f, back) for _, f in ours)
        there = ", ".join(_factors_text(f, forth) for _, f in theirs)
        there = f"the intrinsic through {wanted.name} by [{there}]"
        return Mismatch(f"the tile runs through {mine.name} by [{here}], {there}")


def _equal(a: TileView, b: TileView) -> bool:
    same_start = all(same(simplify(x), simplify(y)) for x, y in zip(a.index, b.index))
    return a.array == b.array and a.dims == b.dims and a.steps == b.steps and same_start


def _multiple(factors: Affine, by: Affine) -> int:
    """The n > 0 with `factors = n * by`, or 0."""
    name = next(iter(by))
    n, rest = divmod(factors.get(name, 0), by[name])
    return n if not rest and n > 0 and factors == {k: n * v for k, v in by.items()} else 0


def _factors_text(factors: Affine, names: Mapping[str, str]) -> str:
    parts = [names.get(n, n) if f == 1 else f"{f} * {names.get(n, n)}" for n, f in factors.items()]
    return " + ".join(parts) or "."


def _describe(expr: Expr) -> str:
    """What an expression does, in words: `multiplies uint8 by int8`."""
    plain = _uncast(expr)
    match plain:
        case Binary() if plain.op in _VERBS:
            return _VERBS[plain.op].format(_uncast(plain.a).dtype, _uncast(plain.b).dtype)
        case Binary() | Unary():
            return f"computes {plain.op} of {', '.join(_uncast(c).dtype for c in plain.children())}"
        case Call():
            return f"computes {plain.name} of {plain.args[0].dtype}"
    return f"takes {plain.dtype}"


@bounded
def _uncast(expr: Expr) -> Expr:
    return _uncast(expr.value) if isinstance(expr, Cast) else expr
