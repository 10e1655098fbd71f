"""Runs that counting takes for the wanted instances are these; and what splitting makes, it sees."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tensorlang.errors import InternalError
from tensorlang.ir.expr import Const, Expr, Var, binary
from tensorlang.ir.stmt import INDEX
from tensorlang.lowering.read_back.boxes import are_filled
from tensorlang.lowering.read_back.instances import check_instances
from tensorlang.lowering.read_back.runs import Run
from tensorlang.polyhedral.statement import Role, Scop, Statement, constant_bounds

LOOPS = ("o", "i", "p", "q")


@dataclass(frozen=True)
class Piece:
    """A box over the loops of the statement; a dimension of one value may be a number in the code. `again`: a loop that
    stands for no dimension, of so many iterations."""

    spans: tuple[tuple[int, int], ...]
    numbers: bool
    offset: int
    again: int


def within(name: str, low: int, end: int) -> tuple[Expr, Expr]:
    return binary("ge", Var(name, INDEX), low), binary("lt", Var(name, INDEX), end)


def domain(outer: int, factor: int, size: int) -> tuple[Expr, ...]:
    """`factor * o + i < size`; `p` and `q` as in a padded window."""
    spans = zip(LOOPS, (outer, factor, 5, 3), strict=True)
    o, i, p, q = (Var(name, INDEX) for name in LOOPS)
    cuts = (factor * o + i < size, p + q >= 1, p + q < 6)
    return (*(bound for name, end in spans for bound in within(name, 0, end)), *cuts)


def run(piece: Piece, place: int) -> Run:
    names: list[str] = []
    values: list[Expr] = []
    conditions: list[Expr] = []
    for name, (low, end) in zip(LOOPS, piece.spans, strict=True):
        if piece.numbers and end == low + 1:
            values.append(Const(low, INDEX))
            continue
        names.append(f"{name}_code")
        shift = piece.offset if name == "i" else 0
        conditions += within(names[-1], low - shift, end - shift)
        values.append(binary("add", Var(names[-1], INDEX), shift))
    if piece.again:
        names.append("again")
        conditions += within("again", 0, piece.again)
    p, q = values[2:]
    conditions += [binary("add", p, q) >= 1, binary("add", p, q) < 6]
    return Run(0, tuple(values), tuple(names), tuple(conditions), (place, *names), (), ())


def instances(piece: Piece) -> Iterator[tuple[int, ...]]:
    for point in product(*(range(*span) for span in piece.spans)):
        if 1 <= point[2] + point[3] < 6:
            yield from [point] * max(1, piece.again)


def split(size: int, factor: int, cut: int) -> list[Piece]:
    """The whole iterations, in two parts of the inner loop, and the rest."""
    full, rest = divmod(size, factor)
    rows = [((0, full), (0, cut)), ((0, full), (cut, factor)), ((full, full + 1), (0, rest))]
    kept = [row for row in rows if all(low < end for low, end in row)]
    return [Piece((*row, (0, 5), (0, 3)), n % 2 == 0, n, 0) for n, row in enumerate(kept)]


@st.composite
def changed(draw: st.DrawFn, pieces: list[Piece]) -> list[Piece]:
    """Pieces of which one is lost, doubled, longer, shorter or repeated; or none."""
    k = draw(st.integers(0, len(pieces) - 1))
    piece = pieces[k]
    match draw(st.sampled_from(("none", "lost", "doubled", "span", "again"))):
        case "lost":
            return [*pieces[:k], *pieces[k + 1 :]]
        case "doubled":
            return [*pieces, piece]
        case "span":
            dim = draw(st.integers(0, 3))
            low, end = piece.spans[dim]
            span = draw(st.sampled_from([(low - 1, end), (low + 1, end), (low, end + 1), (low, end - 1)]))
            piece = replace(piece, spans=(*piece.spans[:dim], span, *piece.spans[dim + 1 :]))
        case "again":
            piece = replace(piece, again=draw(st.integers(1, 2)))
    return [*pieces[:k], piece, *pieces[k + 1 :]]


@given(data=st.data())
def test_counting_agrees_with_enumeration(data: st.DataObject) -> None:
    factor = data.draw(st.integers(1, 5))
    size = data.draw(st.integers(1, 17))
    outer = -(-size // factor)
    statement = Statement("S", "S", Role.PURE, LOOPS, domain(outer, factor, size), (), (), ())
    pieces = data.draw(changed(split(size, factor, data.draw(st.integers(0, factor)))))
    wanted = Counter(
        (o, i, p, q)
        for o, i, p, q in product(range(outer), range(factor), range(5), range(3))
        if factor * o + i < size and 1 <= p + q < 6
    )
    right = Counter(point for piece in pieces for point in instances(piece)) == wanted
    runs = [run(piece, k) for k, piece in enumerate(pieces)]
    bounds = constant_bounds(statement.domain, LOOPS)
    filled = are_filled(statement, bounds, runs)
    empty = any(low >= end for piece in pieces for low, end in piece.spans)
    assert filled == right or (right and empty)  # of a loop without an iteration isl is asked
    if right:
        check_instances(statement, runs, Scop((statement,), (), frozenset()))
    else:
        with pytest.raises(InternalError, match=r"the generated code|no code runs"):
            check_instances(statement, runs, Scop((statement,), (), frozenset()))
