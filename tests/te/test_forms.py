"""Forms of programs: equal whatever names are, and however they are declared; of other programs they differ."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tensorlang import te
from tensorlang.te.forms import form_of, matched
from tensorlang.te.program import Program, canonical
from tensorlang.te.renamed import under_names_of
from tensorlang.testing.ordered_programs import OrderedCase, ordered_programs
from tensorlang.testing.strategies import ProgramCase, programs
from tests.programs import Case, argmax, diamond, matmul, plane_sum, two_consumers, with_extern
from tests.renaming import renamed, respelt
from tests.schedule.primitive_uses import USES

ODD = ("sum", "float32", "max", "t0", "i0", "n0", "x", "T0", "A0", "k0", "return_", "e5", "a.b", "inf_", "v0")
"""Names that look like other words of a text."""


def assert_same_up_to_names(one: Program, other: Program) -> None:
    """Under the names of the other, one program is the other, but for the order."""
    ours, theirs = form_of(one.text), form_of(other.text)
    pairs = {b.name: a.name for a, b in zip(ours.ops, theirs.ops, strict=True)}
    made = under_names_of(theirs, one, pairs)
    assert sorted(made.text.splitlines()[:-1]) == sorted(other.text.splitlines()[:-1])
    assert set(made.outputs) == set(other.outputs)


@st.composite
def spellings(draw: Any, program: Program) -> tuple[dict[str, str], dict[str, str]]:
    """Other names of the operations and the axes of a program."""
    axes = sorted({axis for op in form_of(program.text).ops for axis in op.axes})
    ops, choices = [op.name for op in program.ops], st.permutations(ODD)
    stages, loops = (dict(zip(names, [*draw(choices), *names], strict=False)) for names in (ops, axes))
    return stages, {old: new.replace(".", "_") for old, new in loops.items()}


@settings(max_examples=40)
@given(data=st.data())
def test_names_and_the_order_of_declaration_do_not_count(data: st.DataObject) -> None:
    case: ProgramCase = data.draw(programs())
    stages, axes = data.draw(spellings(case.program))
    other = renamed(case.program, stages.__getitem__, axes.__getitem__)
    assert other.text == respelt(case.program, stages.__getitem__, axes.__getitem__)
    assert other.key == case.program.key
    assert_same_up_to_names(case.program, other)
    turned, _ = canonical(list(data.draw(st.permutations(case.outputs))))
    assert turned.key == case.program.key
    assert_same_up_to_names(case.program, turned)


@settings(max_examples=30)
@given(data=st.data())
def test_names_in_hybrid_programs_do_not_count(data: st.DataObject) -> None:
    case: OrderedCase = data.draw(ordered_programs())
    program, _ = canonical(case.outputs)
    other = renamed(program, lambda name: f"{name}x", lambda name: f"{name}y")
    assert other.text == respelt(program, lambda name: f"{name}x", lambda name: f"{name}y")
    assert other.key == program.key


@settings(max_examples=60)
@given(one=programs(max_stages=1, max_rank=1, max_extent=2), other=programs(max_stages=1, max_rank=1, max_extent=2))
def test_programs_of_equal_forms_differ_in_names_only(one: ProgramCase, other: ProgramCase) -> None:
    if one.program.key == other.program.key:
        assert_same_up_to_names(one.program, other.program)
    else:
        assert one.program.text != other.program.text


@pytest.mark.parametrize("key", USES)
def test_every_kind_of_program_has_a_form(key: str) -> None:
    program = USES[key].program().s.original
    form = form_of(program.text)
    assert form.by_name.keys() == program.by_name.keys()
    assert sum(len(op.arrays) for op in form.ops) == len(program.buffers)
    assert renamed(program, lambda name: f"{name}x", lambda name: f"{name}y").key == program.key


def test_a_form_as_text() -> None:
    program = matmul().s.original
    assert form_of(program.text).text == (
        "input t0: float32[6, 8]\n"
        "input t1: float32[8, 7]\n"
        "t2: float32[6, 7] [i0 < 6, i1 < 7] = sum(t0[i0, i2] * t1[i2, i1]; i2 in [0, 8))\n"
        "return t2\n"
    )
    assert form_of(form_of(program.text).text).text == form_of(program.text).text


def body_of(make: Any, **other: Any) -> str:
    """The key of a small program."""
    A, B = te.placeholder((8, 8), other.get("dtype", "float32"), name="A"), te.placeholder((8, 8), name="B")
    C = te.compute((8, 8), lambda i, j: make(A, B, i, j), name="C")
    return canonical([C])[0].key


def test_what_is_computed_counts() -> None:
    keys = [
        body_of(lambda A, B, i, j: A[i, j] + B[i, j]),
        body_of(lambda A, B, i, j: A[i, j] + A[i, j]),
        body_of(lambda A, B, i, j: A[i, j] - B[i, j]),
        body_of(lambda A, B, i, j: A[i, j] + B[j, i]),
        body_of(lambda A, B, i, j: A[j, i] + B[i, j]),
        body_of(lambda A, B, i, j: te.exp(A[i, j]) + B[i, j]),
        body_of(lambda A, B, i, j: te.log(A[i, j]) + B[i, j]),
        body_of(lambda A, B, i, j: A[i, j] + 1.0),
        body_of(lambda A, B, i, j: A[i, j] + 2.0),
        body_of(lambda A, B, i, j: A[i, j] + B[i, j].astype("float32"), dtype="float16"),
        *(case().s.original.key for case in (matmul, diamond, two_consumers, argmax, plane_sum, with_extern)),
        matmul(6, 7, 9).s.original.key,
        matmul(dtype="float64").s.original.key,
    ]
    assert len(set(keys)) == len(keys)


def test_which_input_is_read_where_counts() -> None:
    def made(turned: bool) -> str:
        A, B = te.placeholder((4, 4), name="A"), te.placeholder((4, 4), name="B")
        X = te.compute((4, 4), lambda i, j: A[i, j] * 2.0, name="X")
        Y = te.compute((4, 4), lambda i, j: B[i, j] * 3.0, name="Y")
        first, second = (Y, X) if turned else (X, Y)
        Z = te.compute((4, 4), lambda i, j: first[i, j] - second[i, j], name="Z")
        return canonical([Z])[0].key

    assert made(False) != made(True)


def test_outputs_that_are_told_apart_by_their_readers_only() -> None:
    def made(order: tuple[int, ...]) -> str:
        A, B = te.placeholder((4,), name="A"), te.placeholder((4,), name="B")
        X = te.compute((4,), lambda i: A[i] + 1.0, name="X")
        Y = te.compute((4,), lambda i: B[i] + 1.0, name="Y")
        Z = te.compute((4,), lambda i: A[i] - B[i], name="Z")
        return canonical([(X, Y, Z)[k] for k in order])[0].key

    assert len({made(order) for order in ((0, 1, 2), (1, 0, 2), (2, 1, 0), (1, 2, 0))}) == 1


def test_sizes_are_told_apart_by_their_places() -> None:
    def made(rows: str, columns: str, turned: bool = False) -> str:
        n, m = te.var(rows), te.var(columns)
        A = te.placeholder((n, m), name="A")
        return canonical([te.compute((m, n) if turned else (n, m), lambda i, j: A[i, j] + 1.0, name="B")])[0].key

    assert made("n", "m") == made("m", "n") == made("rows", "columns")
    assert made("n", "m") != made("n", "m", turned=True)


NO_PROGRAMS = [
    "",
    "return A\n",
    "input Z: int8[3]\n",
    "A: f\nreturn A\n",
    "\n\n",
    "x" * 99,
    "return \n",
    "B: i[1] [i < 1] = A[i]\nA: i[1] [i < 1] = B[i]\nreturn A\n",
    "input A: i[1]\ninput A: i[1]\nreturn A\n",
    " A\nreturn A",
]


@pytest.mark.parametrize("text", NO_PROGRAMS)
def test_what_is_no_program_has_a_form_of_its_own(text: str) -> None:
    assert form_of(text).key != matmul().s.original.key
    assert matched(form_of(text), form_of(matmul().s.original.text), "C") is None


def case_of_relu() -> Case:
    """The larger of zero and C = A B."""
    _, (A, B, C) = matmul()
    D = te.compute((6, 7), lambda a, b: te.max(C[a, b], 0.0), name="D")
    return Case(te.create_schedule(D.op), (A, B, D))


def test_a_part_of_a_program_is_found() -> None:
    whole, part = form_of(case_of_relu().s.original.text), form_of(matmul().s.original.text)
    assert matched(part, whole, "C") == {"A": "A", "B": "B", "C": "C"}
    assert matched(part, whole, "D") is None
    assert matched(form_of(matmul(6, 7, 9).s.original.text), whole, "C") is None
    assert matched(form_of(matmul(dtype="float64").s.original.text), whole, "C") is None
