"""Reduce axes that end where data say so."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

import tensorlang
from tensorlang import te
from tensorlang.errors import DefinitionError, KernelError
from tensorlang.ir.idle_rounds import without_idle_rounds
from tensorlang.ir.loops import reads_memory
from tensorlang.ir.stmt import For, LoopKind, Store
from tensorlang.ir.stmt import walk as statements
from tensorlang.schedule import Schedule
from tensorlang.te.operation import Tensor

ROWS, STORED, COLUMNS = 5, 9, 7
BEGINS = np.array([0, 2, 2, 6, 7, 9], np.int32)


def product(reducer: Any = te.sum) -> list[Tensor]:
    """Rows of a sparse matrix by a vector."""
    data, at = te.placeholder((STORED,), name="data"), te.placeholder((STORED,), "int32", name="at")
    begins, x = te.placeholder((ROWS + 1,), "int32", name="begins"), te.placeholder((COLUMNS,), name="x")

    def element(row: Any) -> Any:
        k = te.reduce_axis((0, begins[row + 1] - begins[row]), "k")
        return reducer(data[begins[row] + k] * x[at[begins[row] + k]], axis=k)

    return [data, at, begins, x, te.compute((ROWS,), element, name="y")]


def arrays() -> list[Any]:
    rng = np.random.default_rng(0)
    values = [rng.integers(1, 9, n).astype(np.float32) for n in (STORED, COLUMNS)]
    return [values[0], rng.integers(0, COLUMNS, STORED).astype(np.int32), BEGINS.copy(), values[1]]


def wanted(data: Any, at: Any, begins: Any, x: Any) -> Any:
    return np.array([np.dot(data[a:b], x[at[a:b]]) for a, b in itertools.pairwise(begins)], np.float32)


def _split(s: Schedule) -> None:
    s["y"].split("row", factor=2)
    s["y"].split("k", factor=4)


def _in_vectors(s: Schedule) -> None:
    _, inner = s["y"].split("row", factor=4)
    s["y"].vectorize(inner)


def _outside(s: Schedule) -> None:
    s["y"].reorder("k", "row")


def _parallel(s: Schedule) -> None:
    s["y"].parallel("row")


@pytest.mark.parametrize("target", ["llvm", "interpreter"])
@pytest.mark.parametrize("change", [_split, _in_vectors, _outside, _parallel, lambda s: None])
def test_rows_of_any_length(change: Any, target: str) -> None:
    tensors = product()
    s = te.create_schedule(tensors[-1].op)
    change(s)
    kernel, given, made = tensorlang.build(s, tensors, target=target), arrays(), np.zeros(ROWS, np.float32)
    kernel(*given, made)
    np.testing.assert_array_equal(made, wanted(*given))


def test_other_reducers_and_an_own_condition() -> None:
    tensors = product(lambda value, axis: te.max(value, axis=axis, where=axis.var >= 1))
    given, made = arrays(), np.zeros(ROWS, np.float32)
    tensorlang.build(te.create_schedule(tensors[-1].op), tensors)(*given, made)
    data, at, begins, x = given
    rows = [data[a + 1 : b] * x[at[a + 1 : b]] for a, b in itertools.pairwise(begins)]
    lowest = np.finfo(np.float32).min
    expected = [row.max() if len(row) else lowest for row in rows]
    np.testing.assert_array_equal(np.maximum(made, lowest), expected)


def test_the_loop_ends_with_its_row() -> None:
    tensors = product()
    s = te.create_schedule(tensors[-1].op)
    _in_vectors(s)
    loops = [x for x in statements(without_idle_rounds(tensorlang.lower(s, tensors).kernel.body)) if isinstance(x, For)]
    assert all(reads_memory(loop.upper) == (loop.var.name == "k") for loop in loops)
    assert LoopKind.VECTORIZED not in {loop.kind for loop in loops}  # each row ends elsewhere


def test_tiles_end_with_their_row() -> None:
    """Whose tests are of the first element, of the second, and so on."""
    tensors = product()
    s = te.create_schedule(tensors[-1].op)
    outer, inner = s["y"].split("k", factor=4, tail="peel")
    s["y"].unroll(inner)
    body = without_idle_rounds(tensorlang.lower(s, tensors).kernel.body)
    (loop,) = [x for x in statements(body) if isinstance(x, For) and x.var.name == str(outer)]
    assert reads_memory(loop.upper)


def counted() -> list[Tensor]:
    """Of each row the elements up to a limit, as many of them as data say."""

    def below(rows, ends, limit):  # type: ignore[no-untyped-def]
        made = te.output_tensor((ROWS,), "int32")
        for r in range(ROWS):
            made[r] = 0
            for k in range(40):
                if k < ends[r]:
                    made[r] = made[r] + te.cast(rows[r, k] < limit[0], "int32")
        return made

    rows, ends = te.placeholder((ROWS, 40), name="rows"), te.placeholder((ROWS,), "int32", name="ends")
    limit = te.placeholder((1,), name="limit")
    return [rows, ends, limit, te.hybrid.script(name="made")(below)(rows, ends, limit)]


@pytest.mark.parametrize("target", ["llvm", "interpreter"])
@pytest.mark.parametrize("pragma", [False, True])
def test_loops_of_scripts_end_where_data_say_so(pragma: bool, target: str) -> None:
    tensors = counted()
    s = te.create_schedule(tensors[-1].op)
    if pragma:
        s["made"].pragma("k", "reduce_tree")
    (loop,) = [
        x
        for x in statements(without_idle_rounds(tensorlang.lower(s, tensors).kernel.body))
        if isinstance(x, For) and x.var.name == "k"
    ]
    assert reads_memory(loop.upper)
    assert isinstance(loop.body, Store), "the test is gone, and with it the flag"
    rows = np.random.default_rng(1).random((ROWS, 40), np.float32)
    ends, made = np.array([-3, 0, 17, 40, 99], np.int32), np.full(ROWS, 7, np.int32)
    tensorlang.build(s, tensors, target=target)(rows, ends, np.array([0.5], np.float32), made)
    np.testing.assert_array_equal(made, [(row[: max(n, 0)] < 0.5).sum() for row, n in zip(rows, ends, strict=True)])


def test_a_loop_that_changes_its_own_end_runs_to_it() -> None:
    def grown(first):  # type: ignore[no-untyped-def]
        made = te.output_tensor((1,), "int32")
        made[0] = first[0]
        for k in range(40):
            if k < made[0]:
                made[0] = made[0] + te.cast(k < 9, "int32")
        return made

    first = te.placeholder((1,), "int32", name="first")
    tensors = [first, te.hybrid.script(name="made")(grown)(first)]
    made = np.zeros(1, np.int32)
    tensorlang.build(te.create_schedule(tensors[-1].op), tensors)(np.array([3], np.int32), made)
    assert made[0] == 12


def test_a_row_that_is_longer_than_the_array_is_told() -> None:
    tensors, given = product(), arrays()
    given[2][-1] = STORED + 1
    kernel = tensorlang.build(te.create_schedule(tensors[-1].op), tensors)
    with pytest.raises(KernelError, match="out of bounds"):
        kernel(*given, np.zeros(ROWS, np.float32))


def test_a_difference_that_wraps_in_32_bits_is_told() -> None:
    tensors, given = product(), arrays()
    kernel = tensorlang.build(te.create_schedule(tensors[-1].op), tensors)
    given[2][:2] = 2**31 - 1, -(2**31)  # in 32 bits, one element
    with pytest.raises(KernelError, match="out of bounds"):
        kernel(*given, np.zeros(ROWS, np.float32))


@pytest.mark.parametrize("target", ["llvm", "interpreter"])
def test_a_row_that_begins_below_zero_is_told_although_a_condition_leaves_those_elements_out(target: str) -> None:
    """Its last elements were cut off: the axis has as many rounds as the array has elements, and one."""
    begin, x = te.placeholder((1,), "int32", name="begin"), te.placeholder((4,), name="x")
    end = te.placeholder((1,), "int32", name="end")

    def element(i: Any) -> Any:
        k = te.reduce_axis((0, end[0] - begin[0]), "k")
        return te.sum(x[begin[0] + k], axis=k, where=begin[0] + k.var >= 0)

    y = te.compute((1,), element, name="y")
    kernel = tensorlang.build(te.create_schedule(y.op), [begin, end, x, y], target=target)
    values, made = np.arange(1, 5, dtype=np.float32), np.zeros(1, np.float32)
    kernel(np.array([1], np.int32), np.array([4], np.int32), values, made)
    assert made[0] == 9
    with pytest.raises(KernelError, match="out of bounds"):
        kernel(np.array([-3], np.int32), np.array([4], np.int32), values, made)


@pytest.mark.parametrize("target", ["llvm", "interpreter"])
def test_a_row_that_ends_behind_the_array_is_told_although_a_condition_leaves_that_round_out(target: str) -> None:
    """The round behind the last element is left out by the condition: the sum of what is there came out in silence."""
    begin, x = te.placeholder((4,), "int32", name="begin"), te.placeholder((5,), name="x")

    def element(i: Any) -> Any:
        k = te.reduce_axis((0, begin[i + 1] - begin[i]), "k")
        return te.sum(x[begin[i] + k], axis=k, where=k.var % 2 == 0)

    y = te.compute((3,), element, name="y")
    kernel = tensorlang.build(te.create_schedule(y.op), [begin, x, y], target=target)
    values, made = np.arange(1, 6, dtype=np.float32), np.zeros(3, np.float32)
    kernel(np.array([0, 0, 4, 5], np.int32), values, made)
    np.testing.assert_array_equal(made, [0, 4, 5])
    for last in (6, 2147483647):
        with pytest.raises(KernelError, match="out of bounds"):
            kernel(np.array([0, 0, last, 1], np.int32), values, made)


def test_an_axis_that_no_array_limits_is_refused() -> None:
    n, x = te.placeholder((ROWS,), "int32", name="n"), te.placeholder((COLUMNS,), name="x")

    def element(i: Any) -> Any:
        k = te.reduce_axis((0, n[i]), "k")
        return te.sum(x[(k * 2) % COLUMNS], axis=k)

    with pytest.raises(DefinitionError, match=r"must not read a tensor, got n\[i\], unless .* A\[begin \+ k\]"):
        te.compute((ROWS,), element, name="y")


@pytest.mark.parametrize(
    "element",
    [
        lambda n, x, k: te.sum(te.if_then_else(k < 3, x[k], 1.0), axis=k),
        lambda n, x, k: te.sum(te.if_then_else(te.all(k < 3, x[k] > 0.0), 1.0, 2.0), axis=k),
        lambda n, x, k: te.sum(x[k - 3], axis=k, where=k >= 3),
        lambda n, x, k: te.sum(x[k + (2 - n[0])], axis=k, where=k >= n[0]),
        lambda n, x, k: te.sum(x[te.cast(te.cast(k, "uint8"), "int32")], axis=k),
    ],
)
def test_an_array_that_some_rounds_do_not_read_limits_no_axis(element: Any) -> None:
    """A longer row was cut off, and its sum was wrong: nothing told so."""
    n, x = te.placeholder((ROWS,), "int32", name="n"), te.placeholder((COLUMNS,), name="x")
    with pytest.raises(DefinitionError, match=r"what every round reads, as in A\[begin \+ k\]"):
        te.compute((ROWS,), lambda i: element(n, x, te.reduce_axis((0, n[i]), "k")), name="y")
