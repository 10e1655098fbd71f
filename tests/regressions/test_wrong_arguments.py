"""Arguments of a wrong kind are refused in words: what was got, what is wanted; and hints promise nothing unproven."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tensorlang
from tensorlang import lower, te
from tensorlang.errors import BadArgument, DefinitionError
from tensorlang.schedule import Schedule
from tensorlang.testing import check_schedule


@te.hybrid.script
def triangle(n: Any, A: Any) -> Any:
    for k in range(n):
        for i in range(k + 1, n):
            A[i, k] = A[i, k] / A[k, k]
            for j in range(k + 1, n):
                A[i, j] = A[i, j] - A[i, k] * A[k, j]
    return A


def ordered() -> Schedule:
    n = te.var("n")
    op = triangle(n, te.placeholder((n, n), "float64", name="A")).op
    made: Schedule = te.create_schedule(op)
    return made


STEPS: dict[str, tuple[Callable[[Any], Any], str]] = {
    "sizes of tiles": (lambda s: s["triangle"].time_tile("k", ["i"], 4, 8), "space_sizes must be a list, got 8"),
    "axes of tiles": (lambda s: s["triangle"].tile_by(3, [[1]], [4]), "axes must be a list, got 3"),
    "rows of tiles": (lambda s: s["triangle"].tile_by(["k", "i"], [1, 0], [4, 4]), r"rows\[0\] must be a list, got 1"),
    "a matrix": (lambda s: s["triangle"].affine(["k", "i"], 5), "matrix must be a list, got 5"),
    "an intrinsic": (lambda s: s["triangle"].tensorize("j", "fma.f32x16"), "te.intrin, got 'fma.f32x16'"),
    "a layout": (lambda s: s["triangle"].transform_layout(3), "expected a function .* got 3"),
    "one loop": (lambda s: s["triangle"].fuse_with("k"), "needs two loops"),
    "a tensor": (lambda s: s["triangle"].prefetch(None, "k", 1), "expected a tensor or its name, got None"),
    "an array": (lambda s: s.assume("injective", 3), "expected a tensor or its name, got 3"),
    "candidates": (lambda s: s.sample_choice("x", 5), "candidates must be a list, got 5"),
    "an extent": (lambda s: s.sample_perfect_tile("x", "a", 2), "extent must be a whole number .* got 'a'"),
    "a form": (lambda s: s.explain(as_="json"), r"there are text, svg and html; s.explain\(\).to_json\(\) gives data"),
    "sizes": (lambda s: s.explain(sizes=[3]), r"sizes are numbers by name, as in {'n': 100}, got \[3\]"),
    "a size": (lambda s: s.explain(sizes={"n": -3}), "size n must be a whole number of at least 0, got -3"),
    "another size": (lambda s: s.explain(as_="svg", sizes={"m": 3}), "m is no size of the program; there are n"),
    "a statement": (lambda s: s.explain(as_="svg", statement="S9"), "no statement 'S9' with two axes"),
}


@pytest.mark.parametrize("case", STEPS)
def test_a_step_names_what_it_got(case: str) -> None:
    s = ordered()
    wrong, why = STEPS[case]
    with pytest.raises(BadArgument, match=why) as caught:
        wrong(s)
    assert caught.value.asked
    assert str(s) == ""


def test_loops_that_hold_several_are_no_promise() -> None:
    """Taking such a loop apart may be illegal, so that it is no legal alternative."""
    s = ordered()
    for wrong in (lambda: s["triangle"].tile("i", "j", 8, 8), lambda: s["triangle"].reorder("j", "i")):
        with pytest.raises(BadArgument, match="fission would take it apart, if the dependences allow") as caught:
            wrong()
        assert caught.value.legal == ()


def test_a_picture_needs_two_axes() -> None:
    A = te.placeholder((8,), name="A")
    s = te.create_schedule(te.compute((8,), lambda i: A[i] + 1, name="B").op)
    with pytest.raises(BadArgument, match="a picture needs a statement with two axes, and there is none"):
        s.explain(as_="svg")


def test_an_empty_range_is_no_fact() -> None:
    """From a fact that cannot be true everything would follow."""
    where, x = te.placeholder((8,), "int32", name="where"), te.placeholder((8,), name="x")
    s = te.create_schedule(te.compute((8,), lambda i: x[where[i]], name="C").op)
    for low, high in ((8, 0), (3, 3)):
        with pytest.raises(BadArgument, match=f"no whole number is at least {low} and below {high}; low comes first"):
            s.assume("range", where, low, high)


def test_a_reader_in_between_is_named() -> None:
    A = te.placeholder((8,), name="A")
    B = te.compute((8,), lambda i: A[i] + 1, name="B")
    C = te.compute((8,), lambda i: B[i] + 1, name="C")
    D = te.compute((8,), lambda i: C[i] + 1, name="D")
    s = te.create_schedule(D.op)
    s[B].compute_at(s[D], "i")
    with pytest.raises(BadArgument, match="B is to be computed at i of D, but C, which reads it, is not") as caught:
        lower(s, [A, D])
    assert caught.value.legal == ("s['C'].compute_at(s['D'], 'i')", "s['B'].compute_root()")
    s[C].compute_at(s[D], "i")
    check_schedule(s, [A, D])


def test_scripts_say_what_they_got() -> None:
    n = te.var("n")
    with pytest.raises(DefinitionError, match="triangle got the size n and the array A"):
        triangle(n, np.zeros((3, 3)))
    with pytest.raises(DefinitionError, match=r"for A; it takes .*te.placeholder.*np.asarray") as caught:
        triangle(100, [[1.0] * 100] * 100)
    assert len(str(caught.value)) < 400


def test_arrays_updated_in_place_go_by_the_name_of_the_input() -> None:
    @te.hybrid.script
    def beyond(A: Any) -> Any:
        for i in range(9):
            A[i] = A[i] + 1.0
        return A

    A = te.placeholder((8,), name="A")
    with pytest.raises(DefinitionError, match="beyond is A, updated in place"):
        te.create_schedule(beyond(A).op)
    with pytest.raises(DefinitionError, match="args lack A: every input"):
        tensorlang.build(ordered(), [])


def test_functions_of_other_modules_have_a_name_in_te() -> None:
    @te.hybrid.script
    def root(A: Any) -> Any:
        for i in range(8):
            A[i] = np.sqrt(A[i])
        return A

    with pytest.raises(DefinitionError, match=r"np\.sqrt is not a function that scripts know; .* or use te\.sqrt"):
        root(te.placeholder((8,), name="A"))


def test_gradients_name_a_recurrence_and_cut_long_values() -> None:
    X = te.placeholder((8,), name="X")
    Y = te.recurrence(
        (8, 8), lambda Y, i, j: te.if_then_else(te.all(i > 0, j > 0), Y[i - 1, j] + Y[i, j - 1], X[i]), name="Y"
    )
    with pytest.raises(DefinitionError, match=r"te\.recurrence"):
        te.gradient(Y, [X])
    Z = te.compute((8,), lambda i: X[i] * X[i], name="Z")
    head: Any = [1.0] * 1000
    with pytest.raises(DefinitionError, match=r"the head of te\.gradient must be a tensor, got") as caught:
        te.gradient(Z, [X], head)
    assert len(str(caught.value)) < 300


def test_args_of_build_that_are_none() -> None:
    X = te.placeholder((8,), name="X")
    B = te.compute((8,), lambda i: X[i] + 1, name="B")
    C = te.compute((8,), lambda i: B[i] + 1, name="C")
    s = te.create_schedule(C.op)
    s[B].compute_inline()
    with pytest.raises(DefinitionError, match=r"B is not in the program: .* or it was inlined"):
        tensorlang.lower(s, [X, B, C])
    alone: Any = X
    with pytest.raises(DefinitionError, match="args are a list of tensors and sizes, got Tensor"):
        tensorlang.build(s, alone)
    with pytest.raises(DefinitionError, match=r"expected a schedule \(te\.create_schedule\), got Tensor"):
        tensorlang.build(alone, [X, C])


def test_other_loops_are_few_and_those_of_the_nest_come_first() -> None:
    @te.hybrid.script
    def many(A: Any) -> Any:
        for a in range(8):
            A[a, 0] = 1.0
        for b in range(8):
            A[b, 1] = 1.0
        for c in range(8):
            A[c, 2] = 1.0
        for d in range(8):
            A[d, 3] = 1.0
        for t in range(1, 8):
            for i in range(8):
                A[t, i] = A[t - 1, i]
        return A

    s = te.create_schedule(many(te.placeholder((8, 8), name="A")).op)
    with pytest.raises(tensorlang.errors.IllegalParallel) as caught:
        s["many"].parallel("t")
    assert caught.value.legal[0] == "s['many'].parallel('i')"
    assert len([text for text in caught.value.legal if text.count(";") == 0]) == 4


def test_another_parallel_loop_is_no_way_to_roll_a_buffer() -> None:
    A = te.placeholder((34, 32), name="A")
    B = te.compute((34, 32), lambda i, j: A[i, j] * 2, name="B")
    C = te.compute((32, 32), lambda i, j: B[i, j] + B[i + 2, j], name="C")
    s = te.create_schedule(C.op)
    s[B].compute_at(s[C], "i")
    s[C].parallel("i")
    with pytest.raises(tensorlang.errors.IllegalParallel) as caught:
        s[B].rolling_buffer()
    assert caught.value.legal == ()


def test_the_case_shown_is_the_smallest_of_all_that_fail() -> None:
    @te.hybrid.script
    def factor(n: Any, A: Any) -> Any:
        for j in range(n):
            for k in range(j):
                A[j, j] = A[j, j] - A[j, k] * A[j, k]
            for i in range(j + 1, n):
                for k in range(j):
                    A[i, j] = A[i, j] - A[i, k] * A[j, k]
                A[i, j] = A[i, j] / A[j, j]
        return A

    n = te.var("n")
    s = te.create_schedule(factor(n, te.placeholder((n, n), "float64", name="A")).op)
    with pytest.raises(tensorlang.errors.IllegalParallel) as caught:
        s["factor"].vectorize("j")
    witness = caught.value.witness
    assert witness is not None
    assert (witness.sizes, witness.sizes_text) == ((("n", 2),), "fails exactly when n >= 2")


def test_a_step_of_the_other_kind_is_found() -> None:
    s: Any = ordered()
    with pytest.raises(AttributeError, match=r"a Stage has no 'rfactor'; there is s\.rfactor"):
        s["triangle"].rfactor("k")
    with pytest.raises(AttributeError, match=r"a Schedule has no 'split'; there is s\[C\]\.split"):
        s.split("k", 4)
    with pytest.raises(AttributeError, match=r"a Schedule has no 'spilt'$"):
        s.spilt("k", 4)
    wrong: Any = 3
    with pytest.raises(tensorlang.errors.TargetError, match=r"a target is text, as in .*, got 3"):
        tensorlang.target.Target(wrong)


def test_an_index_that_is_not_affine_names_no_element() -> None:
    """Two instances that isl cannot tell apart need not meet: `A[0]` and `A[2]` would be no counter-example."""

    @te.hybrid.script
    def flat(n: Any, A: Any) -> Any:
        for i in range(n):
            for j in range(n):
                A[i * n + j] = A[i * n + j] + 1.0
        return A

    n = te.var("n")
    s = te.create_schedule(flat(n, te.placeholder((n * n,), name="A")).op)
    with pytest.raises(tensorlang.errors.IllegalParallel, match=r"A\[\.\.\.\] is updated by two") as caught:
        s["flat"].parallel("i")
    assert "A[i * n + j] in flat.S0 is not affine: it counts as any element" in caught.value.why
    assert caught.value.witness is not None
    assert [name for name, _ in caught.value.witness.sizes] == ["n"]


def test_an_explanation_has_one_name_for_an_array_that_is_updated() -> None:
    text = str(ordered().explain())
    assert "flow      triangle.S0 -> triangle.S1 through A  distance" in text
    assert "through triangle" not in text
