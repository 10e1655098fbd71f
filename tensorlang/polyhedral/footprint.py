"""What one tile of consumers needs of an array: the base and the size of a box, in the tile's own coordinates."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache

from tensorlang.dataclass import dataclass
from tensorlang.ir.expr import Expr, Var, binary, cast, variables
from tensorlang.ir.stmt import INDEX
from tensorlang.polyhedral import isl
from tensorlang.polyhedral.affine_text import Namer
from tensorlang.polyhedral.ast_expr import from_pw_aff
from tensorlang.polyhedral.rows import Rows

_VALUE = "the value"


@dataclass(frozen=True, slots=True)
class Reader:
    """One read of an array inside a tile: its index, and the ranges (lower, upper) of the loops inside the tile.

    `index` None: any element.
    """

    index: tuple[Expr, ...] | None
    inner: tuple[tuple[str, Expr, Expr], ...]


@dataclass(frozen=True, slots=True)
class Box:
    """`base[d] <= x[d] < base[d] + size[d]`; None where the whole dimension is needed."""

    base: Expr
    size: Expr


def needed(
    readers: Sequence[Reader],
    prefix: Sequence[tuple[str, Expr, Expr]],
    rank: int,
    sizes: frozenset[str],
) -> list[Box | None]:
    """Return, per dimension, the smallest box that holds every read of the tile at `prefix`.

    Domains are not used, so that border tiles have the size of the others; the producer clips the box.
    """
    return list(_boxes(tuple(dict.fromkeys(readers)), tuple(prefix), rank, sizes))


@lru_cache(maxsize=2048)
def _boxes(
    readers: tuple[Reader, ...], prefix: tuple[tuple[str, Expr, Expr], ...], rank: int, sizes: frozenset[str]
) -> tuple[Box | None, ...]:
    """A step of a schedule changes the tiles of few stages, and each step asks for all."""
    return tuple(_dimension(readers, d, prefix, sizes) for d in range(rank))


def _dimension(
    readers: Sequence[Reader], d: int, prefix: Sequence[tuple[str, Expr, Expr]], sizes: frozenset[str]
) -> Box | None:
    namer = Namer(sizes | {name for name, _, _ in prefix})
    for name, _, _ in prefix:
        namer.parameter(Var(name, INDEX))
    pieces = []
    for index, inner in ((reader.index, reader.inner) for reader in readers):
        bounds = _within(((Var(name, INDEX), lower, upper) for name, lower, upper in inner))
        rows = None if index is None else _values(index[d], [name for name, _, _ in inner], bounds, namer)
        if rows is None or not rows.exact:
            return None
        pieces.append(rows.points(len(inner)))
    return _box(isl.union_of(pieces), prefix, namer)


def placed(
    axes: Sequence[str],
    placement: Sequence[tuple[str, Expr]],
    prefix: Sequence[tuple[str, Expr, Expr]],
    sizes: frozenset[str],
) -> list[Box | None]:
    """Return, per axis, the smallest box that holds every point which belongs to the tile at `prefix`.

    `placement` gives loops of the tile as expressions of the axes. The ranges of the axes are not used.
    """
    namer = Namer(sizes | {name for name, _, _ in prefix})
    tests = [binary("eq", value, Var(loop, INDEX)) for loop, value in placement]
    made = (_values(Var(name, INDEX), axes, tests, namer).points(len(axes)) for name in axes)
    return [_box(points, prefix, namer) for points in made]


def _box(need: isl.Set, prefix: Sequence[tuple[str, Expr, Expr]], namer: Namer) -> Box | None:
    """The box around a set of integers, where it moves with the tile and its size does not depend on it."""
    hull = isl.as_set(isl.coalesced(need).simple_hull())
    if not hull.is_bounded():
        return None
    low, high = hull.dim_min(0), hull.dim_max(0)
    if low.n_piece() != 1 or high.n_piece() != 1:
        return None
    span = high.sub(low)
    if prefix:
        tile = Rows({}, namer)
        tile.require(_within((Var(name, INDEX), lower, upper) for name, lower, upper in prefix))
        span = isl.coalesced(span.intersect_params(tile.points().params()))
    if not span.n_piece():  # the tile never runs
        return None
    span = span.gist_params(span.domain().params()) if prefix else span
    size = from_pw_aff(isl.plus(span, 1), namer.parameters)
    if {name for name, _, _ in prefix} & variables(size):
        return None
    return Box(from_pw_aff(low, namer.parameters), cast(size, INDEX))


def _within(ranges: Iterable[tuple[Expr, Expr, Expr]]) -> list[Expr]:
    """The conditions that keep values in ranges."""
    return [c for value, low, end in ranges for c in (binary("ge", value, low), binary("lt", value, end))]


def _values(expr: Expr, loops: Sequence[str], conditions: Iterable[Expr], namer: Namer) -> Rows:
    """The values of an expression over loops where conditions hold, as the first dim."""
    rows = Rows({_VALUE: "x"} | {name: f"l{k}" for k, name in enumerate(loops)}, namer)
    rows.require((binary("eq", Var(_VALUE, INDEX), expr), *conditions))
    return rows
