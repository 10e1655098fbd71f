"""Every element read from a tile has been computed in that tile."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tensorlang import te
from tensorlang.ir.expr import Const, Var, binary
from tensorlang.ir.stmt import INDEX
from tensorlang.polyhedral.coverage import first_instance, uncovered
from tensorlang.polyhedral.statement import Scop, Statement
from tensorlang.schedule.check import Uncovered
from tensorlang.schedule.derive import derive
from tests.programs import chain, stencil


def tiled() -> tuple[Scop, Statement, Statement]:
    """B in tiles of C with a halo: the scop, and the statements of B and C."""
    s = stencil(18).s
    s["C"].split("i", factor=6)
    s["B"].compute_at(s["C"], "i_o")
    scop = derive(s.state).scop
    by_name = {x.name: x for x in scop.statements}
    return scop, by_name["B"], by_name["C"]


def with_statement(scop: Scop, changed: Statement) -> Scop:
    return replace(scop, statements=tuple(changed if x.name == changed.name else x for x in scop.statements))


def test_derived_tiles_are_covered() -> None:
    scop, _, _ = tiled()
    assert uncovered(scop) is None


@pytest.mark.parametrize(("first", "last", "missing"), [(0, 7, "B[7]"), (1, 8, "B[0]"), (0, 1, "B[1]")])
def test_a_tile_too_small_names_the_first_element_missing(first: int, last: int, missing: str) -> None:
    scop, producer, _ = tiled()
    at = Var("B.i", INDEX)
    cut = (binary("ge", at, first), binary("lt", at, last))
    gap = uncovered(with_statement(scop, replace(producer, domain=(*producer.domain, *cut))))
    assert gap is not None and (gap.array, gap.reader, gap.witness.element) == ("B", "C", missing)
    assert gap.witness.source is None and gap.witness.sink.statement == "C"


def test_a_gap_becomes_an_error_with_places() -> None:
    scop, producer, _ = tiled()
    none = replace(producer, domain=(*producer.domain, Const(False, "bool")))
    gap = uncovered(with_statement(scop, none))
    assert gap is not None
    s = stencil(18).s
    error = Uncovered(gap).error(s.state)
    assert "C reads B[0], which B does not compute there" in error.why
    assert error.suggested == ("s['B'].compute_root()", "s['B'].compute_at(s['C'], 'i')")


def test_a_write_that_isl_cannot_see_covers_nothing() -> None:
    scop, producer, _ = tiled()
    i = Var("B.i", INDEX)
    unknown = binary("ge", binary("mul", i, i), 0)
    assert uncovered(with_statement(scop, replace(producer, domain=(*producer.domain, unknown)))) is not None


def test_whole_arrays_need_no_check() -> None:
    s = chain().s
    scop = derive(s.state).scop
    producer = scop.statements[0]
    assert uncovered(with_statement(scop, replace(producer, domain=(Const(False, "bool"),)))) is None


def test_the_first_run_of_a_read() -> None:
    scop, _, consumer = tiled()
    witness = first_instance(scop, consumer, consumer.reads[2])
    assert witness is not None and witness.element == "B[2]" and str(witness.sink) == "C[0]" and witness.source is None
    never = replace(consumer, domain=(*consumer.domain, Const(False, "bool")))
    assert first_instance(scop, never, never.reads[0]) is None


def test_tiles_of_any_size_are_covered() -> None:
    n, m = te.var("n"), te.var("m")
    A = te.placeholder((n + 2, m + 1), name="A")
    B = te.compute((n + 2, m + 1), lambda i, j: A[i, j] + 1, name="B")
    C = te.compute((n, m), lambda i, j: B[i, j] + B[i + 2, j + 1], name="C")
    s = te.create_schedule(C.op)
    s[C].tile("i", "j", 8, 5)
    s[B].compute_at(s[C], "j_o")
    scop = derive(s.state).scop
    assert uncovered(scop) is None
    producer = next(x for x in scop.statements if x.name == "B")
    cut = binary("lt", Var("B.i", INDEX), 9)
    gap = uncovered(with_statement(scop, replace(producer, domain=(*producer.domain, cut))))
    assert gap is not None and gap.witness.element == "B[9, 1]" and dict(gap.witness.sizes) == {"n": 8, "m": 1}
