"""Store predicates: only wanted elements are computed, and every element that is needed still is."""

from __future__ import annotations

from typing import Any

import pytest

from tensorlang import lower, te
from tensorlang.errors import BadArgument, UncoveredRead
from tensorlang.schedule import Schedule
from tensorlang.schedule.trace import Trace
from tensorlang.testing.check import check_schedule


def every_second(extent: Any = 10) -> tuple[Schedule, list[te.Tensor], te.Tensor, te.Tensor]:
    a = te.placeholder((2 * extent,), name="A")
    b = te.compute((2 * extent,), lambda i: a[i] + 1, name="B")
    c = te.compute((extent,), lambda i: b[2 * i] * 2, name="C")
    return te.create_schedule(c.op), [a, c], b, c


def test_only_what_is_read_is_computed() -> None:
    s, args, b, _ = every_second(te.var("n"))
    s[b].set_store_predicate(b.op.axis[0] % 2 == 0)
    assert "for i in range(n):\n    B[2 * i] = A[2 * i] + 1.0" in str(lower(s, args))
    for size in (0, 1, 7):
        check_schedule(s, args, sizes={"n": size})


def test_over_loops_that_are_split_afterwards() -> None:
    s, args, b, _ = every_second()
    s[b].set_store_predicate(te.all(b.op.axis[0] % 2 == 0, b.op.axis[0] >= 0))
    _, inner = s[b].split("i", factor=8)
    s[b].set_store_predicate(f"not {inner} % 2 == 1")
    s[b].split(inner, factor=2)
    check_schedule(s, args)


def test_a_reduction_starts_and_updates_the_same_elements() -> None:
    a = te.placeholder((16, 8), name="A")
    k = te.reduce_axis((0, 8), "k")
    b = te.compute((16,), lambda i: te.sum(a[i, k], axis=k), name="B")
    c = te.compute((8,), lambda i: b[2 * i] * 2, name="C")
    s = te.create_schedule(c.op)
    s[b].reorder("k", "i")
    s[b].set_store_predicate("i % 2 == 0")
    assert str(lower(s, [a, c])).count("for i in range(8)") == 3
    check_schedule(s, [a, c])


def test_in_a_tile() -> None:
    s, args, b, c = every_second()
    i_o, _ = s[c].split("i", factor=4)
    s[b].compute_at(s[c], i_o)
    s[b].set_store_predicate("i % 2 == 0")
    check_schedule(s, args)
    with pytest.raises(UncoveredRead, match=r"C reads B\[8\], which B does not store"):
        s[b].set_store_predicate("i < 8")


def test_an_element_that_is_read_must_be_stored() -> None:
    s, args, b, _ = every_second(te.var("n"))
    with pytest.raises(UncoveredRead, match=r"C reads B\[4\], which B does not store") as caught:
        s[b].set_store_predicate("i < 4")
    error = caught.value
    assert error.witness is not None and error.witness.element == "B[4]" and dict(error.witness.sizes) == {"n": 3}
    assert error.advice == ("a predicate that holds for B[4]",)
    check_schedule(s, args, sizes={"n": 9})


def test_an_output_is_stored_whole() -> None:
    s, args, _, c = every_second(te.var("n"))
    with pytest.raises(UncoveredRead, match=r"C\[0\] would not be written, and all of C is needed"):
        s[c].set_store_predicate("i > 0")
    with pytest.raises(UncoveredRead):
        s[c].set_store_predicate("i * i < n * n - 1")
    s[c].set_store_predicate("i < n")
    check_schedule(s, args, sizes={"n": 9})


def test_what_is_read_at_unknown_places_is_stored_whole() -> None:
    a, x = te.placeholder((16,), name="A"), te.placeholder((16,), "int32", name="x")
    b = te.compute((16,), lambda i: a[i] + 1, name="B")
    c = te.compute((16,), lambda i: b[x[i]], name="C")
    s = te.create_schedule(c.op)
    with pytest.raises(UncoveredRead):
        s[b].set_store_predicate("i < 15")


def test_refusals() -> None:
    a = te.placeholder((16, 8), name="A")
    k = te.reduce_axis((0, 8), "k")
    b = te.compute((16,), lambda i: te.sum(a[i, k], axis=k), name="B")
    s = te.create_schedule(b.op)
    k_o, _ = s[b].split("k", factor=2)
    with pytest.raises(BadArgument, match="k_o is a reduce axis of B") as caught:
        s[b].set_store_predicate(k_o == 0)
    assert "te.sum(..., where=...)" in caught.value.advice[0]
    for text, why in (
        ("j < 3", "'j' is neither an axis of B nor a size; there are i, k"),
        ("i <", "cannot read the condition 'i <'"),
        ("i + 1", "i \\+ 1 is not made of comparisons"),
        ("A[i] < 1", "A\\[i\\] is not made of names"),
    ):
        with pytest.raises(BadArgument, match=why):
            s[b].set_store_predicate(text)


def test_it_replays() -> None:
    s, args, b, _ = every_second()
    s[b].set_store_predicate(b.op.axis[0] % 2 == 0)
    again = every_second()[0]
    Trace.from_json(s.trace.to_json()).apply(again)
    assert str(lower(again, args)) == str(lower(s, args))
    assert s.trace.to_python() == "s['B'].set_store_predicate('i % 2 == 0')\n"


def test_the_first_of_the_threads_that_reduce_stores() -> None:
    a = te.placeholder((5, 40), name="A")
    k = te.reduce_axis((0, 40), "k")
    b = te.compute((5,), lambda i: te.sum(a[i, k], axis=k), name="B")
    s = te.create_schedule(b.op)
    _, k_i = s[b].split("k", factor=16)
    parts = s.rfactor(b, k_i)
    x, y = te.thread_axis("threadIdx.x"), te.thread_axis("threadIdx.y")
    i_o, i_i = s[b].split("i", factor=2)
    s[b].bind(i_o, "blockIdx.x")
    s[b].bind(i_i, "threadIdx.z")
    (reduced,) = s[b].op.reduce_axis
    s[b].bind(reduced, x)
    s[parts].compute_at(s[b], reduced)
    s[b].set_store_predicate(x.var.equal(0))
    for predicate, why in (
        (x.var.equal(1), "does not hold for the thread that stores"),
        (y.var.equal(1), "does not hold for the thread that stores"),
        (te.thread_axis("threadIdx.z").var.equal(0), "threads of threadIdx.z store elements of B of their own"),
    ):
        with pytest.raises(BadArgument, match=why):
            s[b].set_store_predicate(predicate)
    s[b].set_store_predicate(y.var.equal(0))
    check_schedule(s, [a, b], targets=["interpreter"])


def test_in_some_iterations_of_the_loops_around() -> None:
    """A stage is left out where nothing reads it: the rows from the diagonal on need no later column."""
    a = te.placeholder((8, 8), name="A")
    doubled = te.compute((8, 8), lambda i, j: a[i, j] * 2, name="doubled")
    k = te.reduce_axis((0, 8), "k")
    c = te.compute((8,), lambda i: te.sum(doubled[i, k], axis=k, where=k <= i), name="C")
    s = te.create_schedule(c.op)
    s[doubled].compute_at(s[c], k)
    s[doubled].set_store_predicate("C.k <= C.i")
    assert "for k in range(i + 1)" in str(lower(s, [a, c]))
    check_schedule(s, [a, c])
    with pytest.raises(UncoveredRead):
        s[doubled].set_store_predicate("C.k < C.i")
    with pytest.raises(BadArgument, match="is neither an axis of doubled nor a size"):
        s[doubled].set_store_predicate("C.j <= C.i")
