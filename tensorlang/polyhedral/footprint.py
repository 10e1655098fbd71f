"""What one tile of consumers needs of an array: the base and the size of a box, in the tile's own coordinates."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from tensorlang.ir.expr import Expr, Var, cast, variables
from tensorlang.ir.stmt import INDEX
from tensorlang.polyhedral import isl
from tensorlang.polyhedral.affine_text import Namer, index_text
from tensorlang.polyhedral.ast_expr import from_pw_aff


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
    for reader in readers:
        piece = None if reader.index is None else _interval(reader.index[d], reader.inner, namer)
        if piece is None:
            return None
        pieces.append(piece)
    return _box(pieces, prefix, namer, sizes)


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
    names = {name: f"l{k}" for k, name in enumerate(axes)}
    tests = []
    for loop, value in placement:
        text = index_text(value, names, namer)
        if text is not None:
            tests.append(f"{text} = {namer.parameter(Var(loop, INDEX))}")
    found = []
    for name in axes:
        where = " and ".join([f"x = {names[name]}", *tests])
        found.append(_box([f"[x] : exists {', '.join(names.values())} : {where}"], prefix, namer, sizes))
    return found


def _box(
    pieces: Sequence[str], prefix: Sequence[tuple[str, Expr, Expr]], namer: Namer, sizes: frozenset[str]
) -> Box | None:
    """The box around sets of integers, where it moves with the tile and its size does not depend on it."""
    tile = [f"{index_text(lo, {}, namer)} <= {namer.parameter(Var(n, INDEX))} < {index_text(hi, {}, namer)}"
            for n, lo, hi in prefix]  # fmt: skip
    need = isl.make_set(f"{namer.prefix()}{{ {'; '.join(pieces)} }}")
    hull = isl.as_set(need.coalesce().simple_hull())
    if not hull.is_bounded():
        return None
    low, high = hull.dim_min(0), hull.dim_max(0)
    if low.n_piece() != 1 or high.n_piece() != 1:
        return None
    span = high.sub(low)
    if tile:
        span = span.intersect_params(isl.make_set(f"{namer.prefix()}{{ : {' and '.join(tile)} }}")).coalesce()
    if not span.n_piece():  # the tile never runs
        return None
    span = span.gist_params(span.domain().params()) if tile else span
    size = from_pw_aff(isl.plus(span, 1), namer.parameters)
    if {name for name, _, _ in prefix} & variables(size):
        return None
    return Box(from_pw_aff(low, namer.parameters), cast(size, INDEX))


def _interval(index: Expr, inner: Sequence[tuple[str, Expr, Expr]], namer: Namer) -> str | None:
    names = {name: f"l{k}" for k, (name, _, _) in enumerate(inner)}
    text = index_text(index, names, namer)
    if text is None:
        return None
    bounds = []
    for name, lower, upper in inner:
        lo, hi = index_text(lower, names, namer), index_text(upper, names, namer)
        if lo is None or hi is None:
            return None
        bounds.append(f"{lo} <= {names[name]} < {hi}")
    exists = f"exists {', '.join(names.values())} : " if names else ""
    return f"[x] : {exists}{' and '.join([f'x = {text}', *bounds])}"
