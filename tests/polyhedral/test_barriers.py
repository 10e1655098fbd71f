"""Barriers: which accesses meet in a cell across threads, as enumeration finds them, and the cheapest places."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import combinations, product

from hypothesis import given
from hypothesis import strategies as st

from tensorlang.ir.expr import Const, Expr, Var, binary
from tensorlang.ir.stmt import INDEX, LoopKind
from tensorlang.polyhedral import isl
from tensorlang.polyhedral.affine_text import evaluate
from tensorlang.polyhedral.barriers import Address, Cells, Join, Joins, Place, chosen
from tensorlang.polyhedral.nest import Leaf, Loop
from tensorlang.polyhedral.statement import Role, Statement

EXTENTS = {"b": 2, "t": 3, "x": 4}
B, T, X = (Var(name, INDEX) for name in "btx")


def bounds(name: str, ahead: int) -> tuple[Expr, Expr]:
    var = Var(name, INDEX)
    return binary("ge", binary("add", var, ahead), Const(0, INDEX)), binary("lt", var, EXTENTS[name])


def loop(name: str, thread: str = "") -> Loop:
    kind = LoopKind.BOUND if thread else LoopKind.SERIAL
    return Loop(name, name, "S", Const(0, INDEX), Const(EXTENTS[name], INDEX), kind, thread, (), Leaf(0))


BLOCKS, TIME = loop("b", "blockIdx.x"), loop("t")


def access(name: str, cell: Expr | None, thread: Expr | None, is_write: bool) -> Cells:
    domain = tuple(c for n in EXTENTS for c in bounds(n, 0))
    statement = Statement(name, name, Role.UPDATE, tuple(EXTENTS), domain, (), (), ())
    return Cells(statement, "M", (cell,), (Const(12, INDEX),), (), (thread,), ("b",), is_write)


cells = st.sampled_from([X, X + 1, 3 - X, T + X, 2 * X, X // 2, (T + X) % 3, Const(0, INDEX), B + X, None])
numbers = st.sampled_from([X, X // 2, Const(0, INDEX), 3 - X, None])


def events(made: Cells) -> Iterator[dict[str, int]]:
    for point in product(*(range(extent) for extent in EXTENTS.values())):
        yield dict(zip(EXTENTS, point, strict=True))


def meet(source: Cells, sink: Cells, p: Mapping[str, int], q: Mapping[str, int]) -> bool:
    """Whether two runs touch one cell in one block, from threads that may differ."""
    (a,), (b,), (who,), (whom,) = source.cell, sink.cell, source.threads, sink.threads
    touched = a is None or b is None or evaluate(a, dict(p)) == evaluate(b, dict(q))
    apart = who is None or whom is None or evaluate(who, dict(p)) != evaluate(whom, dict(q))
    inside = all(c is None or 0 <= evaluate(c, dict(v)) < 12 for c, v in ((a, p), (b, q)))
    return touched and apart and inside and p["b"] == q["b"]


def enumerated(source: Cells, sink: Cells, carried: str) -> set[tuple[int, ...]]:
    """The pairs of runs, the first one in an earlier iteration of the time loop, or in the same one."""
    found = set()
    for p, q in product(events(source), events(sink)):
        if (p["t"] < q["t"] if carried else p["t"] == q["t"]) and meet(source, sink, p, q):
            found.add((*p.values(), *q.values()))
    return found


@given(cells, cells, numbers, numbers, st.sampled_from([(True, False), (False, True), (True, True)]))
def test_joined_pairs_are_those_that_enumeration_finds(
    a: Expr | None, b: Expr | None, who: Expr | None, whom: Expr | None, writes: tuple[bool, bool]
) -> None:
    first, then = access("P", a, who, writes[0]), access("Q", b, whom, writes[1])
    places = [Place((0, 0, 0), (BLOCKS, TIME), (first,)), Place((0, 0, 1), (BLOCKS, TIME), (then,))]
    found = {
        (j.source.statement.name, j.sink.statement.name, j.carried): j for j in Joins(frozenset()).all(places, LEVELS)
    }
    by_name = {"P": first, "Q": then}
    for source, sink, carried in (("P", "Q", ""), ("P", "Q", "t"), ("Q", "P", "t"), ("P", "P", "t"), ("Q", "Q", "t")):
        either = by_name[source].is_write or by_name[sink].is_write
        wanted = enumerated(by_name[source], by_name[sink], carried) if either else set()
        join = found.pop((source, sink, carried), None)
        assert (0 if join is None else isl.number(join.pairs.wrap().count_val())) == len(wanted)
    assert not found


LEVELS: dict[Address, int] = {(): 1, (0,): 1, (0, 0): 2}


def test_places_between_two_accesses() -> None:
    write, read = access("P", X, X, True), access("Q", 3 - X, X, False)
    places = [Place((0, 0, 0), (BLOCKS, TIME), (write,)), Place((0, 0, 1), (BLOCKS, TIME), (read,))]
    found = {(j.source.statement.name, j.carried): j.places for j in Joins(frozenset()).all(places, LEVELS)}
    assert found == {
        ("P", ""): {(0, 0, 1)},
        ("P", "t"): {(0, 0, 0), (0, 0, 1), (0, 0, 2)},
        ("Q", "t"): {(0, 0, 0), (0, 0, 2)},
    }


ADDRESSES: list[Address] = [(0, k) for k in range(5)] + [(0, 2, k) for k in range(3)]


@given(
    st.lists(st.sets(st.sampled_from(ADDRESSES), min_size=1), max_size=5),
    st.lists(st.integers(1, 9), min_size=len(ADDRESSES), max_size=len(ADDRESSES)),
)
def test_no_choice_of_places_is_cheaper(needs: list[set[Address]], values: list[int]) -> None:
    write = access("P", X, X, True)
    joins = [Join(write, write, "", frozenset(need), isl.make_map("{ [] -> [] }")) for need in needs]
    costs = dict(zip(ADDRESSES, values, strict=True))
    made = chosen(joins, costs)
    assert all(need & set(made) for need in needs)
    every = (c for n in range(len(ADDRESSES) + 1) for c in combinations(ADDRESSES, n))
    best = min(sum(costs[p] for p in c) for c in every if all(need & set(c) for need in needs))
    assert sum(costs[p] for p in made) == best
