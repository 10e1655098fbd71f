"""The one check of order: dependences by role, over all pairs, against what a time space proves."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import pytest

from tensorlang.ir.expr import Const, Expr, Var, binary
from tensorlang.ir.stmt import INDEX
from tensorlang.polyhedral import isl
from tensorlang.polyhedral.legality import TimeSpace, Violation, before, before_among, violations
from tensorlang.polyhedral.statement import Access, Array, Role, Scop, Statement
from tensorlang.polyhedral.witness import explain, smallest

i, j, k, n = (Var(name, INDEX) for name in "ijkn")


def number(value: int) -> Expr:
    return Const(value, INDEX)


def within(**extents: int | Expr) -> tuple[Expr, ...]:
    bounds: list[Expr] = []
    for name, extent in extents.items():
        upper = number(extent) if isinstance(extent, int) else extent
        bounds += [binary("ge", Var(name, INDEX), 0), binary("lt", Var(name, INDEX), upper)]
    return tuple(bounds)


def statement(
    name: str, role: Role, time: tuple[int | str, ...], domain: tuple[Expr, ...], writes: tuple[Expr, ...] | None,
    reads: tuple[Access, ...] = (), array: str = "S",
) -> Statement:  # fmt: skip
    loops = tuple(part for part in time if isinstance(part, str))
    point = tuple((loop, Var(loop, INDEX)) for loop in loops)
    return Statement(name, name, role, loops, domain, point, (Access(array, writes),), reads, time)


S, T = Array("S", (number(8), number(8))), Array("T", (number(8), number(8)))


def recurrence(first: str, second: str, di: int, dj: int) -> Scop:
    """S[i, j] reads S[i + di, j + dj] where that exists, under the loops (first, second)."""
    read = Access("S", (i + di, j + dj), (), within_box(i + di, j + dj))
    one = statement("S", Role.PURE, (0, first, 0, second, 0), within(i=8, j=8), (i, j), (read,))
    return Scop((one,), (S,), frozenset())


def within_box(*indices: Expr) -> tuple[Expr, ...]:
    return tuple(c for e in indices for c in (binary("ge", e, 0), binary("lt", e, 8)))


@pytest.mark.parametrize(
    ("order", "distance", "legal"),
    [
        ("ij", (-1, 0), True), ("ij", (0, -1), True), ("ij", (-1, 1), True), ("ij", (-1, -1), True),
        ("ij", (1, 0), False), ("ij", (0, 1), False), ("ij", (1, -1), False),
        ("ji", (-1, 0), True), ("ji", (0, -1), True), ("ji", (-1, 1), False), ("ji", (1, -1), True),
    ],
)  # fmt: skip
def test_a_recurrence_runs_forward_or_is_refused(order: str, distance: tuple[int, int], legal: bool) -> None:
    scop = recurrence(order[0], order[1], *distance)
    assert (violations(scop) == []) == legal
    outer = distance[0] if order[0] == "i" else distance[1]
    carrier = order[0] if outer else order[1]
    for unordered in ({"i"}, {"j"}, {"i", "j"}):
        shared = replace(scop, unordered=frozenset(unordered))
        assert (violations(shared) == []) == (legal and carrier not in unordered), unordered


def test_interchange_of_a_stencil_names_the_smallest_pair() -> None:
    (found,) = violations(recurrence("j", "i", -1, 1))
    witness = explain(found)
    assert (str(witness.source), str(witness.sink), witness.element) == ("S[1, 0]", "S[0, 1]", "S[0, 1]")
    assert witness.source is not None and witness.source.time > witness.sink.time
    assert (found.kind, found.array, witness.distance) == ("flow", "S", (-1, 1))


def reduction(time: tuple[int | str, ...], start: tuple[int | str, ...], role: Role = Role.UPDATE) -> Scop:
    """S[i, 0] = 0; S[i, 0] += ... over k."""
    init = statement("S.init", Role.INIT, start, within(i=8), (i, number(0)))
    update = statement("S", role, time, within(i=8, k=8), (i, number(0)))
    return Scop((init, update), (S,), frozenset())


def test_updates_may_come_in_any_order_but_one_after_the_other() -> None:
    inside = reduction((0, "i", 1, "k", 0), (0, "i", 0))
    outside = reduction((1, "k", 0, "i", 0), (0, "i", 0))
    assert violations(inside) == violations(outside) == []
    for scop in (inside, outside):
        assert violations(replace(scop, unordered=frozenset({"i"}))) == []
        (race,) = violations(replace(scop, unordered=frozenset({"k"})))
        assert race.kind == "reduction" and sorted(explain(race).distance) == [0, 1]


def test_the_start_comes_before_every_update() -> None:
    (late,) = violations(reduction((0, "i", 0, "k", 0), (0, "i", 1)))
    assert late.kind == "flow" and [str(x) for x in (explain(late).source, explain(late).sink)] == [
        "S.init[0]",
        "S[0, 0]",
    ]
    (between,) = violations(reduction((0, "k", 0, "i", 0), (0, "i", 1)))
    assert between.kind == "flow"


def test_lanes_prove_no_order_between_themselves() -> None:
    scop = reduction((0, "i", 1, "k", 0), (0, "i", 0))
    init, update = scop.statements
    lanes_of_k = replace(scop, statements=(init, replace(update, lanes=("k",))))
    assert [v.kind for v in violations(lanes_of_k)] == ["reduction"]
    lanes_of_i = replace(scop, statements=(replace(init, lanes=("i",)), replace(update, lanes=("i",))))
    assert violations(lanes_of_i) == []


def test_statements_run_one_after_the_other_in_all_lanes() -> None:
    """T reads what S wrote in the lane before: fine as lanes, a race between threads."""
    write = statement("S", Role.PURE, (0, "i", 0), within(i=8), (i, number(0)))
    read = Access("S", (i - 1, number(0)), (), (binary("ge", i - 1, 0),))
    use = statement("T", Role.PURE, (0, "i", 1), within(i=8), (i, number(0)), (read,), "T")
    serial = Scop((write, use), (S, T), frozenset())
    assert violations(serial) == []
    assert violations(in_lanes(serial, "i")) == []
    assert [v.kind for v in violations(replace(serial, unordered=frozenset({"i"})))] == ["flow"]


def test_lanes_that_have_to_run_serially_keep_the_order() -> None:
    """T reads what S writes in a later lane: a loop whose lanes cannot run side by side would be too late."""
    write = statement("S", Role.PURE, (0, "i", 0), within(i=8), (i, number(0)))
    use = statement(
        "T", Role.PURE, (0, "i", 1), within(i=8), (i, number(0)), (Access("S", (number(7) - i, number(0))),), "T"
    )
    assert [v.kind for v in violations(in_lanes(Scop((write, use), (S, T), frozenset()), "i"))] == ["flow"]


def test_loops_inside_lanes_prove_no_order_between_them() -> None:
    """T reads what S wrote in the lane before, in an earlier iteration of j: lanes need not be in the same one."""
    write = statement("S", Role.PURE, (0, "i", 0, "j", 0), within(i=8, j=8), (i, j))
    read = Access("S", (i - 1, j - 1), (), (binary("ge", i - 1, 0), binary("ge", j - 1, 0)))
    use = statement("T", Role.PURE, (0, "i", 0, "j", 1), within(i=8, j=8), (i, j), (read,), "T")
    serial = Scop((write, use), (S, T), frozenset())
    assert violations(serial) == []
    assert [v.kind for v in violations(in_lanes(serial, "i"))] == ["flow"]
    assert violations(in_lanes(serial, "j")) == []


def in_lanes(scop: Scop, loop: str) -> Scop:
    return replace(scop, statements=tuple(replace(s, lanes=(loop,)) for s in scop.statements))


def test_an_unknown_element_may_be_any() -> None:
    write = statement("S", Role.PURE, (0, "i", 0), within(i=8), (i, number(0)))
    anything = Access("S", None)
    after = statement("T", Role.PURE, (1, "i", 0), within(i=8), (i, number(0)), (anything,), "T")
    beside = replace(after, time=(0, "i", 1))
    assert violations(Scop((write, after), (S, T), frozenset())) == []
    assert len(violations(Scop((write, beside), (S, T), frozenset()))) == 1


def test_copies_of_a_tile_are_apart() -> None:
    """Each iteration of i has an S of its own (version i), so that i may be parallel."""

    def scop(version: tuple[str, ...]) -> Scop:
        write = statement("S", Role.PURE, (0, "i", 0, "j", 0), within(i=8, j=8), (number(0), j))
        read = Access("S", (number(0), j), version)
        use = statement("T", Role.PURE, (0, "i", 1, "j", 0), within(i=8, j=8), (i, j), (read,), "T")
        return Scop((replace(write, writes=(Access("S", (number(0), j), version),)), use), (S, T), frozenset({"i"}))

    assert violations(scop(("i",))) == []
    assert [v.array for v in violations(scop(()))] == ["S"]


def test_any_size() -> None:
    read = Access("S", (i - 1, number(0)), (), (binary("ge", i - 1, 0),))
    one = statement("S", Role.PURE, (0, "i", 0), within(i=n), (i, number(0)), (read,))
    scop = Scop((one,), (Array("S", (n, number(8))),), frozenset({"n"}))
    assert violations(scop) == []
    (race,) = violations(replace(scop, unordered=frozenset({"i"})))
    witness = explain(race)
    assert dict(witness.sizes) == {"n": 2} and [str(witness.source), str(witness.sink)] == ["S[0]", "S[1]"]
    assert witness.distance == (1,)


def pairs_of(violation: Violation) -> tuple[list[int], list[int], list[int]]:
    return smallest(violation.pairs)


def test_before_is_lexicographic_order_of_what_is_ordered() -> None:
    scop = recurrence("i", "j", -1, 0)
    space = TimeSpace(scop)
    assert space.length == 5
    order = before(space)
    assert order.is_equal(order.transitive_closure()[0]) and order.intersect(order.reverse()).is_empty()
    threads = before(TimeSpace(replace(scop, unordered=frozenset({"i"}))))
    assert threads.is_strict_subset(order)
    (race,) = violations(replace(scop, unordered=frozenset({"i"})))
    assert pairs_of(race) == ([], [0, 0, 0, 0, 0], [0, 1, 0, 0, 0])


TREE = [(0, "i", 0, "j", 0), (0, "i", 0, "j", 1, "k", 0), (0, "i", 0, "j", 2), (0, "i", 1), (1, "i", 0, "j", 1)]
"""Statements that stand beside, inside and after one another; a loop has its name in two places."""


@pytest.mark.parametrize("kinds", list(product("sul", repeat=3)))
def test_before_among_some_statements_is_before_at_their_times(kinds: tuple[str, ...]) -> None:
    """Loops in series, unordered, and lanes."""
    lanes, unordered = (frozenset(x for x, kind in zip("ijk", kinds, strict=True) if kind == k) for k in "lu")
    made = [statement(f"S{n}", Role.PURE, time, (), (i, j)) for n, time in enumerate(TREE)]
    made = [replace(s, lanes=tuple(x for x in s.loops if x in lanes)) for s in made]
    space = TimeSpace(Scop(tuple(made), (S,), frozenset(), unordered))
    times = isl.union_of([isl.make_set(f"{{ [{space.vector(s)}] }}") for s in made])
    assert before_among(space, made, made).is_equal(before(space).intersect_domain(times).intersect_range(times))
