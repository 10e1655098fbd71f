"""Depthwise convolutions against their NumPy reference."""

from __future__ import annotations

import re

import numpy as np
import pytest
from hypothesis import given as drawn
from hypothesis import settings
from hypothesis import strategies as st

import tensorlang
from tensorlang import dtypes, te, topi
from tensorlang.errors import DefinitionError
from tensorlang.topi.depthwise import depthwise_reference
from tests.topi.images import check_operator, given, last, relu_of, run

VNNI = "llvm -mcpu=cooperlake"


@pytest.mark.parametrize(("channels", "size"), [(32, 112), (512, 14)])
def test_mobile_network(channels: int, size: int) -> None:
    """At full size, with bias and relu."""
    data, weight = given("data", 1, channels, size, size), given("weight", channels, 1, 3, 3)
    bias = given("bias", channels)
    conv = topi.depthwise_conv2d_nchw(data[0], weight[0], 1, 1)
    wanted = depthwise_reference(data[1], weight[1], 1, 1) + bias[1][:, None, None]
    np.testing.assert_array_equal(run(relu_of(conv, bias[0]), data, weight, bias), np.maximum(wanted, 0))


@drawn(
    st.tuples(*(st.integers(1, n) for n in (2, 40, 9, 40))),
    st.sampled_from([(1, 1), (3, 3), (2, 5), (7, 7)]),
    st.integers(1, 2),
    st.tuples(st.integers(0, 3), st.integers(0, 3)),
    st.booleans(),
)
@settings(max_examples=8)
def test_odd_shapes(
    sizes: tuple[int, int, int, int], window: tuple[int, int], stride: int, padding: tuple[int, int], by_pixel: bool
) -> None:
    n, c, h, w = sizes
    data, weight = given("data", n, c, h + 6, w + 6), given("weight", c, 1, *window)
    wanted = depthwise_reference(data[1], weight[1], stride, padding)
    if by_pixel:
        data = te.placeholder((n, h + 6, w + 6, c), name="d"), last(data[1])
        weight = te.placeholder((*window, c, 1), name="w"), np.ascontiguousarray(weight[1].transpose(2, 3, 0, 1))
        conv, wanted = topi.depthwise_conv2d_nhwc(data[0], weight[0], stride, padding), last(wanted)
    else:
        conv = topi.depthwise_conv2d_nchw(data[0], weight[0], stride, padding)
    np.testing.assert_array_equal(run(conv, data, weight), wanted)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "int32"])
def test_several_outputs_of_a_channel(dtype: str) -> None:
    data, weight = given("data", 1, 3, 8, 21, dtype=dtype), given("weight", 3, 4, 3, 3, dtype=dtype)
    wanted = depthwise_reference(data[1], weight[1], 1, 2, 2)
    conv = topi.depthwise_conv2d_nchw(data[0], weight[0], 1, 2, 2)
    np.testing.assert_array_equal(run(conv, data, weight), wanted)
    pixels = te.placeholder((1, 8, 21, 3), dtype, "d"), last(data[1])
    factors = te.placeholder((3, 3, 3, 4), dtype, "w"), np.ascontiguousarray(weight[1].transpose(2, 3, 0, 1))
    conv = topi.depthwise_conv2d_nhwc(pixels[0], factors[0], 1, 2, 2)
    np.testing.assert_array_equal(run(conv, pixels, factors), last(wanted))


def test_the_row_of_the_table() -> None:
    check_operator("depthwise_conv2d", 2, 3, 8, 9, 3)


def test_refusals() -> None:
    data = given("data", 1, 8, 5, 5)[0]
    with pytest.raises(DefinitionError, match="weights for each channel"):
        topi.depthwise_conv2d_nchw(data, given("weight", 4, 1, 3, 3)[0])
    with pytest.raises(DefinitionError, match="given in numbers"):
        topi.depthwise_conv2d_nchw(data, te.placeholder((8, 1, te.var("k"), 3), name="w"))
    with pytest.raises(DefinitionError, match="zero points are subtracted in int32, got the dtype float32"):
        topi.depthwise_conv2d_nchw(data, given("weight", 8, 1, 3, 3)[0], zero_point=3)


@pytest.mark.sampled(2)
@pytest.mark.parametrize(("dtype", "zero", "weight_zero"), [("int8", 0, 0), ("int8", -9, 0), ("uint8", 128, 4)])
@pytest.mark.parametrize("by_pixel", [False, True])
def test_bytes(dtype: str, zero: int, weight_zero: int, by_pixel: bool) -> None:
    """With bias and the way back to bytes in the tile; padding is the zero point."""
    rng = np.random.default_rng(1)
    low, high = (int(limit) for limit in dtypes.limits(dtype))
    x = rng.integers(low, high + 1, (2, 20, 9, 11)).astype(dtype)
    w = rng.integers(-128, 128, (20, 1, 3, 3)).astype("int8")
    exact = depthwise_reference(x.astype("int64") - zero, w.astype("int64") - weight_zero, 2, 1)
    wanted = np.clip(np.rint(exact.astype("float32") * np.float32(1e-3)), -128, 127)
    conv = topi.depthwise_conv2d_nhwc if by_pixel else topi.depthwise_conv2d_nchw
    if by_pixel:
        x, w, wanted = last(x), np.ascontiguousarray(w.transpose(2, 3, 0, 1)), last(wanted)
    D, W = te.placeholder(x.shape, dtype, "D"), te.placeholder(w.shape, "int8", "W")
    sums = conv(D, W, 2, 1, out_dtype="int32", zero_point=zero, weight_zero_point=weight_zero)
    made = topi.requantize(sums, 1e-3)
    np.testing.assert_array_equal(run(made, (D, x), (W, w)), wanted)
    asm = tensorlang.build(topi.schedule(made, VNNI), [D, W, made], VNNI).source("asm")
    assert re.search(r"vpmulld\s.*[yz]mm", asm)


@pytest.mark.parametrize("options", ["stride=2", "stride=2,1 padding=0,2,1,0", "dilation=2 padding=VALID"])
def test_the_row_of_the_table_has_options(options: str) -> None:
    check_operator("depthwise_conv2d", 2, 3, 9, 11, 3, options=options)
