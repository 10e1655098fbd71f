"""Functions of elements, broadcast as NumPy does, run along memory in vectors."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
from hypothesis import given as drawn
from hypothesis import settings
from hypothesis import strategies as st

import tensorlang
from tensorlang import te, topi
from tensorlang.errors import DefinitionError
from tensorlang.schedules.cpu.points import contiguous_axes
from tensorlang.te.operation import ComputeOp
from tensorlang.te.program import canonical
from tensorlang.topi import activation, broadcast, mathematics
from tests.topi.programs import close, given, run, run_all, tensors_of

DOMAINS = {"log": 1e-3, "log2": 1e-3, "log10": 1e-3, "sqrt": 0.0, "rsqrt": 1e-3, "acosh": 1.0}
"""Operators -> the least number that they take."""
ANGLES = ("asin", "acos", "atanh")


@pytest.mark.sampled(12)
@pytest.mark.parametrize("row", (*activation.OPERATORS, *mathematics.OPERATORS), ids=lambda row: row.name)
def test_functions_of_one_element(row: Any) -> None:
    x, out = tensors_of(row, 7, 45)
    values = given("x", 7, 45, dtype=x.dtype)[1] * 3
    if row.name in DOMAINS:
        values = np.abs(values) + np.float32(DOMAINS[row.name])
    elif row.name in ANGLES:
        values = np.tanh(values).clip(-0.99, 0.99)
    made, wanted = run(out, (x, values)), row.reference(values)[0]
    if made.dtype == np.float32:
        np.testing.assert_allclose(made, wanted, rtol=3e-6, atol=1e-6)
    else:
        np.testing.assert_array_equal(made, wanted)


@pytest.mark.sampled(10)
@pytest.mark.parametrize("row", broadcast.OPERATORS, ids=lambda row: row.name)
def test_functions_of_two_elements(row: Any) -> None:
    a, b, out = tensors_of(row, 7, 45)
    x, y = (given(name, 7, 45, dtype=a.dtype)[1] for name in "ab")
    y[y == 0] = 1
    x = np.abs(x) if row.name == "power" else x
    np.testing.assert_allclose(run(out, (a, x), (b, y)), row.reference(x, y)[0], rtol=1e-5, atol=1e-6)
    whole = getattr(topi, row.name)(a, 2)
    np.testing.assert_allclose(run(whole, (a, x)), row.reference(x, np.full_like(x, 2))[0], rtol=1e-5, atol=1e-6)


def test_functions_that_another_one_says() -> None:
    x, i = given("x", 5, 9), given("i", 40, dtype="int32")
    for name in ("exp", "tanh", "erf"):
        fast, known = (run(getattr(topi, word)(x[0]), x) for word in (f"fast_{name}", name))
        np.testing.assert_array_equal(fast, known)
    np.testing.assert_array_equal(run(topi.reinterpret(x[0], "uint32"), x), x[1].view(np.uint32))
    numbers = np.arange(1, 41, dtype=np.int32)
    wanted = np.ceil(np.log2(numbers)).astype(np.int32)
    np.testing.assert_array_equal(run(topi.ceil_log2(i[0]), (i[0], numbers)), wanted)
    close(run(topi.elemwise_sum([x[0], x[0], x[0]]), x), x[1] * np.float64(3))


def test_what_is_no_number() -> None:
    x = te.placeholder((5,), name="x")
    values = np.array([np.nan, np.inf, -np.inf, -0.0, 2], np.float32)
    for name in ("isnan", "isinf", "isfinite", "sign", "floor", "abs"):
        np.testing.assert_array_equal(run(getattr(topi, name)(x), (x, values)), getattr(np, name)(values))


def test_functions_with_parameters() -> None:
    x = given("x", 5, 33)
    close(run(topi.leaky_relu(x[0], 0.1), x), np.where(x[1] > 0, x[1], 0.1 * x[1].astype(np.float64)))
    close(run(topi.clip(x[0], -0.5, 0.25), x), np.clip(x[1], -0.5, 0.25))
    np.testing.assert_array_equal(run(topi.cast(x[0], "int32"), x), x[1].astype(np.int32))


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float64"])
def test_dtypes(dtype: str) -> None:
    x = given("x", 5, 33, dtype=dtype)
    close(run(topi.tanh(x[0]), x), np.tanh(x[1].astype(np.float64)))
    close(run(topi.relu(x[0]), x), np.maximum(x[1], 0))


@drawn(st.lists(st.integers(1, 9), min_size=1, max_size=4), st.integers(0, 15), st.integers(0, 3))
@settings(max_examples=10)
def test_shapes_are_broadcast(shape: list[int], ones: int, dropped: int) -> None:
    thin = [1 if ones >> place & 1 else n for place, n in enumerate(shape)][min(dropped, len(shape) - 1) :]
    a, b = given("a", *shape), given("b", *thin)
    np.testing.assert_array_equal(run(topi.subtract(a[0], b[0]), a, b), a[1] - b[1])
    wide = topi.broadcast_to(b[0], shape)
    np.testing.assert_array_equal(run(wide, b), np.broadcast_to(b[1], shape))


def test_where() -> None:
    test, x, y = given("test", 4, 1, dtype="int32"), given("x", 4, 9), given("y", 9)
    made = run(topi.where(test[0], x[0], y[0]), test, x, y)
    np.testing.assert_array_equal(made, np.where(test[1], x[1], y[1]))


def contiguous(shape: tuple[int, ...], other: tuple[int, ...]) -> int:
    """How many axes the sum of two tensors runs along at once."""
    a, b = te.placeholder(shape, name="a"), te.placeholder(other, name="b")
    program, _ = canonical([topi.add(a, b)])
    op = program.ops[-1]
    assert isinstance(op, ComputeOp)
    return contiguous_axes(op)


def test_dimensions_side_by_side_are_one_row() -> None:
    assert contiguous((2, 3, 4, 5), (2, 3, 4, 5)) == 4
    assert contiguous((2, 3, 4, 5), (3, 1, 1)) == 2
    assert contiguous((2, 3, 4, 5), (4, 5)) == 2
    assert contiguous((2, 3, 4, 5), (5,)) == 1


@pytest.mark.parametrize(
    ("shape", "together"), [((4, 5, 100), 1), ((4, 50, 3), 1), ((4, 50, 4), 2), ((4, 5, 1), 2), ((4, 5, 5, 20), 2)]
)
def test_rows_that_a_choice_tells_apart_are_one_row_only_where_they_are_short(
    shape: tuple[int, ...], together: int
) -> None:
    a, x = given("a", *shape)
    made = te.compute(shape, lambda *axes: te.if_then_else(axes[1] > 1, a[axes], 1.0), name="made")
    program, _ = canonical([made])
    op = program.ops[-1]
    assert isinstance(op, ComputeOp) and contiguous_axes(op) == together
    wanted = np.where(np.arange(shape[1]).reshape(-1, *[1] * (len(shape) - 2)) > 1, x, np.float32(1))
    np.testing.assert_array_equal(run(made, (a, x)), wanted)


def test_rows_of_fused_axes_are_read_as_vectors() -> None:
    x = te.placeholder((64, 48, 3), name="x")
    out = topi.relu(x)
    kernel = tensorlang.build(topi.schedule(out, "llvm -num-cores=1"), [x, out], "llvm -num-cores=1")
    assert not re.search("div|mulx|vgather|vpinsr|vinsertps", kernel.source("asm"))


def test_a_long_vector_is_shared_out() -> None:
    x = given("x", 100001)
    s = topi.schedule(topi.relu(x[0]), "llvm -num-cores=2")
    assert "parallel" in str(s)
    np.testing.assert_array_equal(run(topi.relu(x[0]), x), np.maximum(x[1], 0))


def test_refusals() -> None:
    a, b = te.placeholder((3, 4), name="a"), te.placeholder((3, 5), name="b")
    with pytest.raises(DefinitionError, match="do not fit together"):
        topi.add(a, b)
    with pytest.raises(DefinitionError, match="does not fit the shape"):
        topi.broadcast_to(a, (2, 4))
    with pytest.raises(DefinitionError, match="gelu wants floats"):
        topi.gelu(te.placeholder((3,), "int32", "x"))
    with pytest.raises(DefinitionError, match=r"sin wants floats, got int32; topi\.cast"):
        topi.sin(te.placeholder((3,), "int32", "x"))
    with pytest.raises(DefinitionError, match="left_shift wants integers, got float32"):
        topi.left_shift(a, 2)


def test_quotients_with_rests_and_shifts_of_numbers_are_tensors() -> None:
    x: Any = te.placeholder((4,), "int32", name="x")
    quotient, rest = divmod(x, 3)
    made = [quotient, rest, 1 << x, 99 >> x]
    arrays = [np.arange(4, dtype=np.int32), *(np.zeros(4, np.int32) for _ in made)]
    tensorlang.build(topi.schedule(made, tuned=False), [x, *made])(*arrays)
    numbers = arrays[0]
    for got, wanted in zip(arrays[1:], [*np.divmod(numbers, 3), 1 << numbers, 99 >> numbers], strict=True):
        assert np.array_equal(got, wanted)


def test_elements_of_several_values_are_outputs() -> None:
    """Each value is an array of its own, none has the name of the stage."""
    a, x = given("A", 6, 21)
    both = te.compute((6, 21), lambda i, j: (a[i, j] + 1.0, a[i, j] * 2.0), name="both")
    plus, twice = run_all(both, (a, x))
    np.testing.assert_array_equal(plus, x + 1)
    np.testing.assert_array_equal(twice, x * 2)


def test_arrays_take_no_part_in_expressions_of_tensors() -> None:
    x: Any = te.placeholder((4,), name="x")
    with pytest.raises(
        DefinitionError, match=r"x is a tensor of a program; declare te\.placeholder\(\(4,\), \"float64\"\)"
    ):
        np.ones(4) * x
    assert (np.float32(2) * x).shape == x.shape
    with pytest.raises(TypeError, match="a loop goes over elements"):
        list(x)
