"""Every element that is read has been produced: the check that placement (compute_at, caches) needs."""

from __future__ import annotations

from dataclasses import dataclass, replace

from tensorlang.errors import Witness
from tensorlang.polyhedral.legality import TimeSpace
from tensorlang.polyhedral.statement import Access, Array, Scop, Statement
from tensorlang.polyhedral.witness import element_text, instance, locate, sizes_of, smallest_that_runs


@dataclass(frozen=True, slots=True)
class Gap:
    """A read that no instance writes."""

    array: str
    reader: str
    witness: Witness


def uncovered(scop: Scop) -> Gap | None:
    """Return the first read of a tile-local array that its producer does not write; None when all are covered."""
    produced: dict[str, list[tuple[Statement, Access]]] = {}
    for s in scop.statements:
        for w in s.writes:
            if w.version:
                produced.setdefault(w.array, []).append((s, w))
    if not produced:
        return None
    space = TimeSpace(scop)
    produced = {name: [p for p in pairs if space.is_exact(*p)] for name, pairs in produced.items()}
    arrays = {a.name: a for a in scop.arrays}
    for name, writers in produced.items():
        for s in scop.statements:
            for r in s.reads:
                if r.array == name:
                    gap = _gap(space, s, r, writers, arrays)
                    if gap is not None:
                        return gap
    return None


def _gap(
    space: TimeSpace,
    s: Statement,
    r: Access,
    writers: list[tuple[Statement, Access]],
    arrays: dict[str, Array],
) -> Gap | None:
    read = space.make(space.text([(s, r)], arrays))
    missing = read.subtract_range(space.make(space.text(writers, arrays)).range()) if writers else read
    if missing.is_empty():
        return None
    sizes, time, _ = smallest_that_runs(missing, space, to_time=False)
    bound = sizes_of(space, sizes)
    statement, values = locate(space, time, bound)
    found = instance(statement, values, space)
    witness = Witness("coverage", element_text(r, values), None, found, (), tuple(sorted(bound.items())))
    return Gap(r.array, s.name, witness)


def first_instance(scop: Scop, statement: Statement, read: Access) -> Witness | None:
    """The first run of a read, as the witness of a read that nobody serves; None when it never runs."""
    alone = replace(scop, statements=(replace(statement, lanes=()),))
    space = TimeSpace(alone)
    arrays = {a.name: a for a in scop.arrays}
    plain = replace(read, version=())
    runs = space.make(space.text([(alone.statements[0], plain)], arrays))
    if runs.is_empty():
        return None
    sizes, time, _ = smallest_that_runs(runs, space, to_time=False)
    bound = sizes_of(space, sizes)
    found, values = locate(space, time, bound)
    at = instance(found, values, space)
    return Witness("coverage", element_text(plain, values), None, at, (), tuple(sorted(bound.items())))
