"""Every element that is read has been produced: the check that placement (compute_at, caches) needs."""

from __future__ import annotations

from dataclasses import replace

from tensorlang.dataclass import dataclass
from tensorlang.errors import Witness
from tensorlang.polyhedral import isl
from tensorlang.polyhedral.legality import TimeSpace
from tensorlang.polyhedral.pairwise import Pairwise
from tensorlang.polyhedral.sizes import failing_text, sizes_text
from tensorlang.polyhedral.statement import Access, Array, Role, Scop, Statement
from tensorlang.polyhedral.witness import element_text, instance, locate, smallest_that_runs


@dataclass(frozen=True, slots=True)
class Gap:
    """A read that no instance writes."""

    array: str
    reader: str
    witness: Witness


def uncovered(scop: Scop) -> Gap | None:
    """Return the first read of a tile-local array that its producer does not write; None when all are covered."""
    produced: dict[str, list[tuple[Statement, Access]]] = {}
    partial = {a.name for a in scop.arrays if a.is_partial}
    for s in scop.statements:
        for w in s.writes:
            if w.version or w.array in partial:
                produced.setdefault(w.array, []).append((s, w))
    if not produced:
        return None
    space, quick = TimeSpace(scop), Pairwise(scop)
    produced = {name: [p for p in pairs if space.is_exact(*p)] for name, pairs in produced.items()}
    arrays = {a.name: a for a in scop.arrays}
    for name, writers in produced.items():
        for s in scop.statements:
            for r in s.reads:
                if r.array == name and not quick.covers(writers, (s, r)):
                    gap = _gap(space, s, r, writers, arrays)
                    if gap is not None:
                        return gap
    return None


def unwritten(scop: Scop, whole: Scop, array: str) -> Gap | None:
    """Return the first element of an array that `whole` writes and a scop does not; None when it writes all of them."""
    space, full = TimeSpace(scop), TimeSpace(whole)
    arrays = {a.name: a for a in whole.arrays}
    made = [t for t in _first_writes(scop, array) if space.is_exact(*t)]
    for s, w in _first_writes(whole, array):
        gap = _missing(full, s, w, space.make(space.text(made, arrays)) if made else None, arrays)
        if gap is not None:
            return gap
    return None


def _first_writes(scop: Scop, array: str) -> list[tuple[Statement, Access]]:
    """The writes of an array, but for updates of what others wrote."""
    found = [(s, w) for s in scop.statements for w in s.writes if w.array == array]
    return [t for t in found if t[0].role is not Role.UPDATE]


def _gap(
    space: TimeSpace,
    s: Statement,
    r: Access,
    writers: list[tuple[Statement, Access]],
    arrays: dict[str, Array],
) -> Gap | None:
    return _missing(space, s, r, space.make(space.text(writers, arrays)) if writers else None, arrays)


def _missing(
    space: TimeSpace, s: Statement, access: Access, written: isl.Map | None, arrays: dict[str, Array]
) -> Gap | None:
    """The first run of an access to an element that nothing writes."""
    touched = space.make(space.text([(s, access)], arrays))
    missing = touched if written is None else touched.subtract_range(written.range())
    return None if missing.is_empty() else Gap(access.array, s.name, _witness(space, missing, access))


def first_instance(scop: Scop, statement: Statement, read: Access) -> Witness | None:
    """The first run of a read, as the witness of a read that nobody serves; None when it never runs."""
    alone = replace(scop, statements=(replace(statement, lanes=()),))
    space = TimeSpace(alone)
    arrays = {a.name: a for a in scop.arrays}
    plain = replace(read, version=())
    runs = space.make(space.text([(alone.statements[0], plain)], arrays))
    return None if runs.is_empty() else _witness(space, runs, plain)


def _witness(space: TimeSpace, unserved: isl.Map, read: Access) -> Witness:
    """The smallest run of a read, out of a map `time -> element` of runs that nobody serves."""
    bound, time, _ = smallest_that_runs(unserved, space, to_time=False)
    touches = [(s, a) for s in space.scop.statements for a in (*s.writes, *s.reads) if a.array == read.array]
    seen = bound and all(space.is_exact(*t) for t in touches)
    told = failing_text(sizes_text([unserved.params()], space)) if seen else ""
    statement, values = locate(space, time, bound)
    reader = instance(statement, values, space)
    return Witness("coverage", element_text(read, values), None, reader, (), tuple(sorted(bound.items())), told)
