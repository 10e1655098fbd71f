"""The loops that isl makes run every instance once, in the order of the time vectors."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import pytest
from hypothesis import given, note, settings
from hypothesis import strategies as st

from tensorlang import te
from tensorlang.ir.construct import array
from tensorlang.ir.expr import Const, Expr, substitute
from tensorlang.ir.stmt import For, If, Seq, Stmt, Store
from tensorlang.polyhedral.affine_text import evaluate
from tensorlang.polyhedral.scan import invisible, scan
from tensorlang.polyhedral.schedule_text import schedule_text
from tensorlang.schedule import Schedule
from tensorlang.schedule.derive import derive
from tensorlang.schedule.derive.plans import Derived
from tensorlang.testing.strategies import programs
from tensorlang.testing.traces import schedules
from tests.programs import Case, chain, matmul, row_sum, stencil
from tests.property.enumeration import Event, events, holds, time_of

LOG = array("log", (1,), "int64")
Run = tuple[int, tuple[int, ...]]


def loops_of(derived: Derived) -> Stmt:
    """The loops that isl makes; each statement notes its number and the values of its loops, where its tests hold."""

    def leaf(number: int, values: Mapping[str, Expr]) -> Stmt:
        body: Stmt = Store(LOG, (Const(number, "int64"), *values.values()), Const(0, "int64"))
        for condition in invisible(derived.scop.statements[number], derived.scop.sizes):
            body = If(substitute(condition, dict(values)), body)
        return body

    return scan(derived.tree, derived.scop, leaf, lambda loop, body: body)


def scanned(derived: Derived) -> list[Run]:
    """The instances (statement, loop values) in the order in which the loops run them."""
    return list(run(loops_of(derived), {}))


def run(stmt: Stmt, values: dict[str, int]) -> Iterator[Run]:
    """Run loops for the given sizes."""
    match stmt:
        case For():
            for at in range(evaluate(stmt.lower, values), evaluate(stmt.upper, values)):
                yield from run(stmt.body, {**values, stmt.var.name: at})
        case If():
            if holds(stmt.cond, values):
                yield from run(stmt.then, values)
            elif stmt.orelse is not None:
                yield from run(stmt.orelse, values)
        case Seq():
            for child in stmt.body:
                yield from run(child, values)
        case Store():
            number, *loops = (evaluate(i, values) for i in stmt.index)
            yield number, tuple(loops)
        case _:
            raise AssertionError(stmt)


def wanted(derived: Derived) -> list[Run]:
    """The instances by brute force, sorted by time (whatever runs at once counts as one after the other)."""

    def key(event: Event) -> list[Any]:
        statement, values = event
        return [values[p] if isinstance(p, str) else p for p in statement.time]

    numbers = {s.name: n for n, s in enumerate(derived.scop.statements)}
    return [(numbers[s.name], tuple(values[p] for p in s.loops)) for s, values in sorted(events(derived), key=key)]


def check(s: Schedule) -> None:
    derived = derive(s.state)
    assert scanned(derived) == wanted(derived)


def test_default_loops() -> None:
    check(matmul(3, 4, 5).s)


def test_tiles_with_tails() -> None:
    for tail in ("guard", "peel"):
        s = matmul(5, 7, 6).s
        i_o, j_o, i_i, j_i = s["C"].tile("i", "j", 2, 3, tail=tail)
        k_o, k_i = s["C"].split("k", factor=4, tail=tail)
        s["C"].reorder(i_o, j_o, k_o, i_i, k_i, j_i)
        check(s)


def test_a_stage_inside_another() -> None:
    s = stencil(11).s
    s["C"].split("i", factor=4, tail="peel")
    s["B"].compute_at(s["C"], "i_o")
    s["B"].split("i", factor=3)
    check(s)


def test_skewed_loops() -> None:
    s = matmul(4, 5, 3).s
    s["C"].skew("j", by="i", factor=2)
    s["C"].reorder("j_s", "i")
    check(s)


def test_strided_instances() -> None:
    """A layout with holes: only every second place holds an element."""
    s = chain(7).s
    s["B"].transform_layout(lambda i: 2 * i)
    check(s)


@pytest.mark.parametrize("depth", [3, 4, 5])
def test_remainders_of_quotients(depth: int) -> None:
    """isl's own loops miss instances here, such as i = 2, k = 2 after fusing; they are tested one by one."""
    k = te.reduce_axis((0, depth), "k")
    C = te.compute((3, 3), lambda i, j: te.sum(i + k, axis=k, where=te.any(i != k, (i + k) % 2 == 0)), name="C")
    s = te.create_schedule(C.op)
    s[C].fuse("i", "j")
    check(s)
    derived = derive(s.state)
    assert [len(invisible(x, frozenset())) for x in derived.scop.statements] == [0, 1]


def test_plain_remainders_are_left_to_isl() -> None:
    k = te.reduce_axis((0, 9), "k")
    C = te.compute((5,), lambda i: te.sum(i * k, axis=k, where=(i + k) % 3 == 0), name="C")
    s = te.create_schedule(C.op)
    check(s)
    assert not any(invisible(x, frozenset()) for x in derive(s.state).scop.statements)


def test_no_instances() -> None:
    s = chain(0).s
    check(s)
    assert scanned(derive(s.state)) == []


def test_any_size() -> None:
    n, m = te.var("n"), te.var("m")
    s = row_sum(n, m).s
    s["B"].tile("i", "k", 3, 4, tail="peel")
    body = loops_of(derive(s.state))
    for rows in range(5):
        for columns in range(6):
            runs = list(run(body, {"n": rows, "m": columns}))
            updates = [loops for number, loops in runs if number == 1]
            points = {(3 * a + c, 4 * b + d) for a, b, c, d in updates}
            assert len(runs) == rows + rows * columns
            assert points == {(i, k) for i in range(rows) for k in range(columns)} and len(points) == len(updates)


@settings(max_examples=60)
@given(data=st.data())
def test_random_schedules(data: st.DataObject) -> None:
    case = data.draw(programs(max_stages=2, max_extent=5))
    s = data.draw(schedules(case.outputs, threads=True))
    note(f"{case.program.text}{s.trace.to_python()}")
    check(s)


def test_time_vectors_tell_all_instances_apart() -> None:
    s = stencil(9).s
    s["C"].split("i", factor=4)
    s["B"].compute_at(s["C"], "i_o")
    derived = derive(s.state)
    vectors = [tuple(value for value, _ in time_of(event)) for event in events(derived)]
    assert len(set(vectors)) == len(vectors) == len(scanned(derived))


def test_the_schedule_tree_has_one_mark_per_loop() -> None:
    s: Schedule = Case(*matmul()).s
    s["C"].tile("i", "j", 2, 2)
    derived = derive(s.state)
    text, _ = schedule_text(derived.tree, derived.scop)
    loops = {loop for statement in derived.scop.statements for loop in statement.loops}
    assert {name: text.count(f'mark: "{name}"') for name in loops} == dict.fromkeys(loops, 1)
