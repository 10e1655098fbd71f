"""Hyperplanes of a band of loops: the combinations of its loops along which no dependence points backwards."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from tensorlang.dataclass import dataclass
from tensorlang.polyhedral import isl
from tensorlang.polyhedral.legality import TimeSpace, dependences
from tensorlang.polyhedral.statement import Scop


@dataclass(frozen=True, slots=True)
class BandDependence:
    """The pairs of one dependence that a band must order: those in the same iteration of the loops around it.

    `pairs` relates time vectors, `distances` are the differences in the loops of the band.
    """

    kind: str
    array: str
    pairs: isl.Map
    distances: isl.Set
    space: TimeSpace
    columns: tuple[int, ...]

    def backwards(self, row: Sequence[int]) -> isl.Map:
        """The pairs whose distance along a row is negative."""
        a, b = ([f"{side}{k}" for k in range(self.space.length)] for side in "ab")
        along = " + ".join(f"{f}*({b[c]} - {a[c]})" for f, c in zip(row, self.columns, strict=True))
        return self.pairs.intersect(isl.make_map(f"{{ [{', '.join(a)}] -> [{', '.join(b)}] : {along} < 0 }}"))


def band_dependences(scop: Scop, loops: Sequence[str], reductions: bool = False) -> Iterator[BandDependence]:
    """Yield the dependences between iterations of perfectly nested loops (names in the scop, outermost first).

    `reductions`: also the pairs of updates that may run in either order, but not at once.
    """
    plain = tuple(replace(s, lanes=()) for s in scop.statements)
    scop = replace(scop, statements=plain, unordered=frozenset(loops) if reductions else frozenset())
    vector = next((s.time for s in scop.statements if set(loops) <= set(s.loops)), None)
    if vector is None:
        return
    space = TimeSpace(scop)
    columns = tuple(vector.index(loop) for loop in loops)
    inside = _inside(space.length, vector[: min(columns)])
    for kind, array, pairs in time_pairs(scop, space, reductions):
        here = pairs.intersect(inside)
        if kind == "reduction":
            here = here.intersect(isl.lex_lt(space.length))
        if not here.is_empty():
            distances = here.deltas().apply(_columns(space.length, columns))
            yield BandDependence(kind, array, here, distances, space, columns)


def time_pairs(scop: Scop, space: TimeSpace, reductions: bool) -> Iterator[tuple[str, str, isl.Map]]:
    """Kind, array and pairs of time vectors of all dependences."""
    for stage, known in scop.declared:
        time = space.instances(stage)
        for declared in known.families:
            pairs = isl.one_map(time.apply_range(declared.pairs).apply_range(time.reverse()))
            if pairs is not None and (reductions or declared.kind != "reduction"):
                yield declared.kind, declared.array, space.aligned(pairs)
    arrays = {a.name: a for a in scop.arrays}
    for family in dependences(scop):
        yield family.kind, family.array, family.pairs(space, arrays)


def nonnegative_row(found: Iterable[BandDependence], axis: int, width: int) -> tuple[int, ...] | None:
    """The smallest row, with 1 for `axis` and 0 for those after it, along which no distance is negative."""
    where = [f"c{axis} = 1", *(f"c{k} = 0" for k in range(axis + 1, width)), *(f"c{k} >= 0" for k in range(axis))]
    return _smallest([isl.nonnegative_rows(d.distances) for d in found], where, width)


def two_sided_row(found: Iterable[BandDependence], time: int, axis: int, width: int) -> tuple[int, ...] | None:
    """The smallest row `f * time + axis` such that no distance is negative along it, nor along `f * time - axis`."""
    sets = [d.distances for d in found]
    mirror = isl.make_map(_mirror_text(axis, width))
    others = [f"c{k} = 0" for k in range(width) if k not in (time, axis)]
    both = [*sets, *(s.apply(mirror) for s in sets)]
    return _smallest([isl.nonnegative_rows(s) for s in both], [f"c{axis} = 1", f"c{time} >= 0", *others], width)


def most_negative(found: Iterable[BandDependence], axis: int) -> int | None:
    """The smallest distance along one loop of a band, at most 0; None when there is no smallest."""
    least = 0
    for dependence in found:
        bound = dependence.distances.dim_min_val(axis)
        if not bound.is_int():
            return None
        least = min(least, isl.number(bound))
    return least


def _mirror_text(axis: int, width: int) -> str:
    dims = [f"d{k}" for k in range(width)]
    out = [f"-{d}" if k == axis else d for k, d in enumerate(dims)]
    return f"{{ [{', '.join(dims)}] -> [{', '.join(out)}] }}"


def _inside(length: int, prefix: Sequence[int | str]) -> isl.Map:
    """Pairs of time vectors in the same iteration of the loops around a band."""
    a, b = [f"a{k}" for k in range(length)], [f"b{k}" for k in range(length)]
    same = [f"a{k} = b{k}" for k in range(len(prefix))]
    same += [f"a{k} = {p}" for k, p in enumerate(prefix) if isinstance(p, int)]
    return isl.make_map(f"{{ [{', '.join(a)}] -> [{', '.join(b)}] : {' and '.join(same) or '0 = 0'} }}")


def _columns(length: int, columns: Sequence[int]) -> isl.Map:
    dims = [f"t{k}" for k in range(length)]
    return isl.make_map(f"{{ [{', '.join(dims)}] -> [{', '.join(dims[c] for c in columns)}] }}")


def _smallest(allowed: Sequence[isl.Set], where: Sequence[str], width: int) -> tuple[int, ...] | None:
    """The row of least sum (then lexicographically least) in all sets and conditions."""
    names = [f"c{k}" for k in range(width)]
    rows = isl.make_set(f"{{ [{', '.join(names)}] : {' and '.join(where)} }}")
    for some in allowed:
        rows = rows.intersect(some)
    if rows.is_empty():
        return None
    key = isl.make_map(f"{{ [{', '.join(names)}] -> [{' + '.join(names)}, {', '.join(names)}] }}")
    return tuple(isl.lexicographic_minimum(rows.apply(key))[1:])
