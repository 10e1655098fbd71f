"""Pooling against its NumPy reference."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given as drawn
from hypothesis import settings
from hypothesis import strategies as st

from tensorlang import te, topi
from tensorlang.errors import DefinitionError
from tensorlang.topi.pooling import pool_reference
from tests.topi.images import blocked, check_operator, given, last, run


@pytest.mark.sampled(4)
@pytest.mark.parametrize("layout", ["NCHW", "NHWC", "NCHW4c"])
@pytest.mark.parametrize("kind", ["max", "avg"])
@pytest.mark.parametrize(
    "window",
    [
        {"kernel": 3, "stride": 2, "padding": 1},
        {"kernel": 2, "stride": 2, "ceil_mode": True},
        {"kernel": (3, 2), "padding": (1, 0, 2, 1), "dilation": 2, "count_include_pad": False},
    ],
)
def test_windows(layout: str, kind: str, window: dict[str, Any]) -> None:
    data = given("data", 2, 8, 9, 19)
    wanted = pool_reference(data[1], **window, pool_type=kind)
    if layout == "NHWC":
        data, wanted = (te.placeholder((2, 9, 19, 8), name="d"), last(data[1])), last(wanted)
    if layout == "NCHW4c":
        data, wanted = (te.placeholder((2, 2, 9, 19, 4), name="d"), blocked(data[1], 4)), blocked(wanted, 4)
    made = run(topi.pool2d(data[0], **window, pool_type=kind, layout=layout), data)
    np.testing.assert_allclose(made, wanted, rtol=1e-6)


@drawn(
    st.tuples(*(st.integers(1, n) for n in (2, 5, 12, 40))),
    st.tuples(st.integers(1, 3), st.integers(1, 4)),
    st.integers(1, 3),
    st.integers(0, 1),
    st.sampled_from(["max", "avg"]),
    st.booleans(),
)
@settings(max_examples=6)
def test_odd_shapes(
    sizes: tuple[int, int, int, int], kernel: tuple[int, int], stride: int, padding: int, kind: str, ceil: bool
) -> None:
    n, c, h, w = sizes
    data = given("data", n, c, h + 3, w + 3)
    wanted = pool_reference(data[1], kernel, stride, 1, padding, kind, ceil, False)
    made = run(topi.pool2d(data[0], kernel, stride, 1, padding, kind, ceil, "NCHW", False), data)
    np.testing.assert_allclose(made, wanted, rtol=1e-6)


@pytest.mark.parametrize("dtype", ["float64", "float16", "bfloat16", "int8", "uint8"])
def test_dtypes(dtype: str) -> None:
    data = given("data", 1, 3, 8, 20, dtype=dtype)
    wanted = pool_reference(data[1], 3, 2, 1, 1)
    np.testing.assert_array_equal(run(topi.max_pool2d(data[0], 3, 2, 1), data), wanted)


def test_the_lowest_element_is_no_less_than_padding() -> None:
    data = te.placeholder((1, 1, 3, 20), name="data")
    lowest = np.full((1, 1, 3, 20), -np.inf, "float32")
    assert np.all(run(topi.max_pool2d(data, 3, 1, 1), (data, lowest)) == -np.inf)


def test_the_mean_of_half_precision_is_made_in_single() -> None:
    """2048 and many ones: in half precision their sum would stay 2048."""
    data = te.placeholder((1, 1, 8, 8), "float16", "data")
    ones = np.ones((1, 1, 8, 8), "float16")
    ones[0, 0, 0, 0] = 2048
    assert run(topi.avg_pool2d(data, 8), (data, ones))[0, 0, 0, 0] == np.float16((2048 + 63) / 64)


@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
def test_global(layout: str) -> None:
    data = given("data", 2, 19, 7, 7)
    image = data if layout == "NCHW" else (te.placeholder((2, 7, 7, 19), name="d"), last(data[1]))
    largest = run(topi.global_pool(image[0], "max", layout), image)
    np.testing.assert_array_equal(largest.reshape(2, 19), data[1].max((2, 3)))
    mean = run(topi.global_pool(image[0], "avg", layout), image)
    np.testing.assert_allclose(mean.reshape(2, 19), data[1].mean((2, 3)), rtol=1e-6, atol=1e-7)


def test_the_row_of_the_table() -> None:
    check_operator("max_pool2d", 2, 3, 8, 19)


def test_refusals() -> None:
    data = given("data", 1, 8, 5, 5)[0]
    with pytest.raises(DefinitionError, match="pool_type is max or avg"):
        topi.pool2d(data, 2, pool_type="min")
    with pytest.raises(DefinitionError, match="means want floats"):
        topi.avg_pool2d(te.placeholder((1, 8, 5, 5), "int8", "d"), 2)
    with pytest.raises(DefinitionError, match="has 5 dimensions"):
        topi.max_pool2d(data, 2, layout="NCHW8c")
    with pytest.raises(DefinitionError, match="kernel is a whole number"):
        topi.max_pool2d(data, (2, 2, 2))


@pytest.mark.parametrize("options", ["kernel=2 padding=0", "kernel=3,2 stride=1,2 padding=1,0", "stride=3"])
def test_the_row_of_the_table_has_options(options: str) -> None:
    check_operator("max_pool2d", 2, 3, 9, 19, options=options)
