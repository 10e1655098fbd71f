"""Memory that several elements share in turn: is a value ever overwritten before its last use?"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tensorlang.dataclass import dataclass
from tensorlang.errors import Witness
from tensorlang.polyhedral import isl
from tensorlang.polyhedral.affine_text import evaluate
from tensorlang.polyhedral.legality import TimeSpace, Touch, before_among
from tensorlang.polyhedral.statement import Access, Array, Fold, Scop
from tensorlang.polyhedral.witness import element_text, instance, locate, smallest_that_runs


@dataclass(frozen=True, slots=True)
class Overwritten:
    """A read whose value is lost: `witness` names the write that takes its cell (source), and the read (sink)."""

    writer: str
    reader: str
    witness: Witness


def overwritten(scop: Scop) -> Overwritten | None:
    """Return the first read of a folded array that finds another element in its cell; None when there is none.

    A write of another element to the same cell must come before the value is written, or after it is read.
    """
    if not scop.folds:
        return None
    space = TimeSpace(scop)
    arrays = {a.name: a for a in scop.arrays}
    for fold in scop.folds:
        writes = [(s, w) for s in scop.statements for w in s.writes if w.array == fold.array]
        reads = [(s, r) for s in scop.statements for r in s.reads if r.array == fold.array]
        lost = _lost(fold, writes, reads, space, arrays[fold.array]) if reads else None
        if lost is not None:
            return lost
    return None


def _lost(
    fold: Fold, writes: Sequence[Touch], reads: Sequence[Touch], space: TimeSpace, array: Array
) -> Overwritten | None:
    arrays = {array.name: array}
    written, read = space.make(space.text(writes, arrays)), space.make(space.text(reads, arrays))
    writers, readers = written.reverse(), read.reverse()
    rank = written.dim(isl.DIM.out)
    others = _same_cell(fold, rank - len(array.shape), rank).apply_range(writers)  # element -> write to its cell
    writing, reading = [s for s, _ in writes], [s for s, _ in reads]
    in_time, gone = before_among(space, writing, writing).reverse(), before_among(space, reading, writing)
    not_before = writers.range_product(others).subtract_range(in_time.wrap()).range_factor_range()
    not_after = readers.range_product(others).subtract_range(gone.wrap())
    both = not_after.range_factor_range().intersect(not_before)
    if both.is_empty():
        return None
    lost = readers.range_product(both).intersect(not_after).range().unwrap()
    return _overwritten(fold, lost.reverse(), space)


def _same_cell(fold: Fold, versions: int, rank: int) -> isl.Map:
    """An element -> another of the same version in the same cell."""
    a, b = [f"a{k}" for k in range(rank)], [f"b{k}" for k in range(rank)]
    same = [f"a{k} = b{k}" for k in range(versions)]
    for k, modulus in enumerate(fold.moduli, start=versions):
        if modulus:
            same.append(f"a{k} mod {modulus} = b{k} mod {modulus}")
        elif not fold.anywhere:
            same.append(f"a{k} = b{k}")
    told_apart = range(versions, versions + 1 if fold.anywhere else rank)
    other = " or ".join(f"a{k} != b{k}" for k in told_apart)
    where = " and ".join([*same, f"({other})"])
    return isl.make_map(f"{{ A[{', '.join(a)}] -> A[{', '.join(b)}] : {where} }}")


def _overwritten(fold: Fold, pairs: isl.Map, space: TimeSpace) -> Overwritten:
    """The smallest pair of a write and a later read that finds its element gone."""
    bound, writing, reading = smallest_that_runs(space.aligned(pairs), space)
    first, at = locate(space, writing, bound)
    then, when = locate(space, reading, bound)
    a, b = instance(first, at, space), instance(then, when, space)
    write = next(w for w in first.writes if w.array == fold.array)
    reads = [r for r in then.reads if r.array == fold.array]
    lost = [r for r in reads if _clashes(fold, write, at, r, when)] or reads
    witness = Witness("storage", element_text(lost[0], when), a, b, (), tuple(sorted(bound.items())))
    return Overwritten(first.name, then.name, witness)


def _clashes(fold: Fold, write: Access, at: dict[str, int], read: Access, when: dict[str, int]) -> bool:
    """Whether a write and a read touch different elements of one cell, as far as their indices are known."""
    if write.index is None or read.index is None:
        return True
    try:
        pairs = [(evaluate(w, at), evaluate(r, when)) for w, r in zip(write.index, read.index, strict=True)]
    except KeyError:
        return True
    same_cell = all((w - r) % m == 0 for (w, r), m in zip(pairs, fold.moduli, strict=True) if m)
    return same_cell and any(w != r for w, r in pairs)


def window(scop: Scop, array: str, dim: int, most: int) -> int | None:
    """The smallest modulus up to `most` that loses no value when a dimension of an array is folded, if there is one.

    Other folds of the array stay: those of other dimensions, and its tiles that lie over one another.
    """
    rank = len(next(a.shape for a in scop.arrays if a.name == array))
    own = next((f for f in scop.folds if f.array == array and not f.anywhere), None)
    others = tuple(f for f in scop.folds if f is not own)
    known = own.moduli if own is not None else (0,) * rank
    for modulus in range(1, most + 1):
        moduli = (*known[:dim], modulus, *known[dim + 1 :])
        if overwritten(replace(scop, folds=(*others, Fold(array, moduli)))) is None:
            return modulus
    return None
