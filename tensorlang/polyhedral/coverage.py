"""Every element that is read has been produced: the check that placement (compute_at, caches) needs."""

from __future__ import annotations

from dataclasses import dataclass, replace

from tensorlang.errors import Instance, Witness
from tensorlang.polyhedral.legality import TimeSpace
from tensorlang.polyhedral.statement import Access, Array, Scop, Statement
from tensorlang.polyhedral.witness import element_text, instance, locate, sizes_of, smallest


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
    written, read = space.text(writers, arrays), space.text([(s, r)], arrays)
    missing = space.make(read).subtract_range(space.make(written).range())
    if missing.is_empty():
        return None
    sizes, time, _ = smallest(missing)
    bound = sizes_of(space, sizes)
    statement, values = locate(space, time, bound)
    found = instance(statement, values, space)
    witness = Witness("coverage", element_text(r, values), None, found, (), tuple(sorted(bound.items())))
    return Gap(r.array, s.name, witness)


def first_instance(scop: Scop, statement: Statement, read: Access) -> tuple[str, None, Instance]:
    """The element and the instance of the first run of a read: the witness of a read nobody can serve."""
    alone = replace(scop, statements=(replace(statement, lanes=()),))
    space = TimeSpace(alone)
    arrays = {a.name: a for a in scop.arrays}
    plain = replace(read, version=())
    sizes, time, _ = smallest(space.make(space.text([(alone.statements[0], plain)], arrays)))
    found, values = locate(space, time, sizes_of(space, sizes))
    return element_text(plain, values), None, instance(found, values, space)
