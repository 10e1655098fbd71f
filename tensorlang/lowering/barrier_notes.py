"""Why each barrier of a schedule is there: two threads that it keeps apart, and the cell of memory they meet in."""

from __future__ import annotations

from collections.abc import Sequence

from tensorlang.dataclass import dataclass
from tensorlang.ir.expr import Expr, to_text
from tensorlang.lowering.barriers import Placed
from tensorlang.polyhedral import isl
from tensorlang.polyhedral.affine_text import evaluate
from tensorlang.polyhedral.barriers import Cells, Join
from tensorlang.polyhedral.witness import smallest


@dataclass(frozen=True, slots=True)
class BarrierNote:
    """A barrier: the loops in whose iterations it stands, the stage that follows, and a pair of accesses it orders.

    `first` and `then` say which thread touches what; `carried` is the loop of which `then` is in a later iteration,
    and empty if both are in the same one. `sizes` are those of the example.
    """

    loops: tuple[str, ...]
    before: str
    first: str
    then: str
    carried: str
    sizes: tuple[tuple[str, int], ...] = ()

    def __str__(self) -> str:
        where = f"in {', '.join(self.loops)}" if self.loops else "in the kernel"
        later = f", in a later iteration of {self.carried}" if self.carried else ""
        sizes = f" ({', '.join(f'{name} = {value}' for name, value in self.sizes)})" if self.sizes else ""
        place = f", before {self.before}" if self.before else ", at the end"
        return f"barrier {where}{place}: {self.first}; {self.then}{later}{sizes}"


def barrier_notes(placed: Sequence[Placed]) -> tuple[BarrierNote, ...]:
    """A note for every barrier, with the smallest pair of accesses that needs it most: one that it alone orders."""
    notes = []
    for barrier in placed:
        others = {p.place for p in placed if p is not barrier}
        here = [join for join in barrier.joins if others.isdisjoint(join.places)] or list(barrier.joins)
        notes.append(_note(barrier, here[0]))
    return tuple(notes)


def _note(barrier: Placed, join: Join) -> BarrierNote:
    sizes, first, then = smallest(join.pairs)
    names = [to_text(join.namer.parameters[name]) for name in isl.parameter_names(join.pairs)]
    known = dict(zip(names, sizes, strict=True))
    return BarrierNote(
        barrier.loops,
        barrier.before,
        _touch(join.source, first, known),
        _touch(join.sink, then, known),
        join.carried,
        tuple(known.items()),
    )


def _touch(access: Cells, values: Sequence[int], sizes: dict[str, int]) -> str:
    """`thread (0, 1, 0) writes A.shared[0, 3]`."""
    at = {**dict(zip(access.statement.loops, values, strict=True)), **sizes}

    def number(expr: Expr | None) -> str:
        if expr is None:
            return "any"
        try:
            return str(evaluate(expr, at))
        except KeyError:
            return to_text(expr)

    thread = ", ".join(number(t) for t in access.threads)
    cell = ", ".join(number(i) for i in access.cell)
    return f"thread ({thread}) {'writes' if access.is_write else 'reads'} {access.array}[{cell}]"
