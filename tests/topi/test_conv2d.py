"""Convolutions against their NumPy reference."""

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
from tensorlang.schedules.cpu.convolution import tile_of
from tensorlang.schedules.windows import convolution
from tensorlang.target import parse
from tensorlang.te.operation import ComputeOp
from tensorlang.topi.conv2d import conv2d_reference
from tests.topi.images import blocked, check_operator, given, last, loops_of, relu_of, run

RESNET = {
    "56 * 56 * 64 -> 64, 3 * 3": (64, 56, 64, 3, 1, 1),
    "56 * 56 * 64 -> 256, 1 * 1": (64, 56, 256, 1, 1, 0),
    "28 * 28 * 128, 3 * 3": (128, 28, 128, 3, 1, 1),
    "14 * 14 * 256, 3 * 3": (256, 14, 256, 3, 1, 1),
    "7 * 7 * 512, 3 * 3": (512, 7, 512, 3, 1, 1),
    "224 * 224 * 3 -> 64, 7 * 7 by 2": (3, 224, 64, 7, 2, 3),
}


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", RESNET)
def test_residual_network(name: str) -> None:
    """At full size, with bias and relu, weights packed ahead."""
    c, size, o, k, stride, padding = RESNET[name]
    data, weight, bias = given("data", 1, c, size, size), given("weight", o, c, k, k), given("bias", o)
    packed = topi.conv2d_pack(weight[0])
    ahead = te.placeholder(packed.shape, name="ahead"), run(packed, weight)
    conv = topi.conv2d(data[0], ahead[0], stride, padding, kernel_layout="OHWI32o", channels=o)
    wanted = conv2d_reference(data[1], weight[1], stride, padding) + bias[1][:, None, None]
    made = run(relu_of(conv, bias[0]), data, ahead, bias)
    np.testing.assert_array_equal(made, np.maximum(wanted, 0))


@pytest.mark.covering(1)
@pytest.mark.parametrize("layout", ["NCHW", "NHWC", "NCHW4c"])
@pytest.mark.parametrize("window", [(1, 1, 0, 1), (3, 1, 1, 1), (3, 2, 1, 1), (3, 1, 2, 2), (5, 2, (1, 2, 0, 3), 1)])
def test_layouts(layout: str, window: tuple[int, int, int, int]) -> None:
    k, stride, padding, dilation = window
    data, weight = given("data", 2, 8, 9, 11), given("weight", 36, 8, k, k)
    wanted = conv2d_reference(data[1], weight[1], stride, padding, dilation)
    if layout == "NHWC":
        weight = te.placeholder((k, k, 8, 36), name="w"), np.ascontiguousarray(weight[1].transpose(2, 3, 1, 0))
        data, wanted = (te.placeholder((2, 9, 11, 8), name="d"), last(data[1])), last(wanted)
    if layout == "NCHW4c":
        inner = weight[1].reshape(9, 4, 2, 4, k, k).transpose(0, 2, 4, 5, 3, 1)
        weight = te.placeholder(inner.shape, name="w"), np.ascontiguousarray(inner)
        data, wanted = (te.placeholder((2, 2, 9, 11, 4), name="d"), blocked(data[1], 4)), blocked(wanted, 4)
    conv = topi.conv2d(data[0], weight[0], stride, padding, dilation, layout)
    np.testing.assert_array_equal(run(conv, data, weight), wanted)


@drawn(
    st.tuples(*(st.integers(1, n) for n in (2, 7, 12, 20, 40))),
    st.sampled_from([(1, 1), (3, 3), (2, 4), (1, 5)]),
    st.integers(1, 3),
    st.tuples(*(st.integers(0, 2),) * 4),
)
@settings(max_examples=6)
def test_odd_shapes(
    sizes: tuple[int, int, int, int, int], window: tuple[int, int], stride: int, padding: tuple[int, int, int, int]
) -> None:
    n, c, h, w, o = sizes
    data, weight = given("data", n, c, h + 3, w + 4), given("weight", o, c, *window)
    residual = given("residual", *conv2d_reference(data[1], weight[1], stride, padding).shape)
    bias = given("bias", o)
    made = relu_of(topi.conv2d_nchw(data[0], weight[0], stride, padding), bias[0], residual[0])
    wanted = conv2d_reference(data[1], weight[1], stride, padding) + bias[1][:, None, None] + residual[1]
    np.testing.assert_array_equal(run(made, data, weight, bias, residual), np.maximum(wanted, 0))


@pytest.mark.parametrize(
    ("channels", "features", "groups"), [(8, 8, 2), (6, 36, 3), (8, 64, 4), (12, 12, 4), (6, 5, 1)]
)
def test_groups(channels: int, features: int, groups: int) -> None:
    data, weight = given("data", 1, channels, 9, 18), given("weight", features, channels // groups, 3, 3)
    conv = topi.group_conv2d_nchw(data[0], weight[0], 1, 1, 1, groups)
    wanted = conv2d_reference(data[1], weight[1], 1, 1, 1, groups)
    np.testing.assert_array_equal(run(conv, data, weight), wanted)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("dtype", ["float64", "float16", "bfloat16", "int32", "int8"])
def test_dtypes(dtype: str) -> None:
    data, weight = given("data", 1, 5, 7, 9, dtype=dtype), given("weight", 33, 5, 3, 3, dtype=dtype)
    conv = topi.conv2d_nchw(data[0], weight[0], 1, "SAME")
    np.testing.assert_array_equal(run(conv, data, weight), conv2d_reference(data[1], weight[1], 1, "SAME"))


def test_sums_in_a_wider_dtype() -> None:
    data, weight = given("data", 1, 40, 5, 5, dtype="int8"), given("weight", 8, 40, 3, 3, dtype="int8")
    conv = topi.conv2d_nhwc(
        te.placeholder((1, 5, 5, 40), "int8", "d"), te.placeholder((3, 3, 40, 8), "int8", "w"), 1, 0, 1, "int32"
    )
    arrays = last(data[1]), np.ascontiguousarray(weight[1].transpose(2, 3, 1, 0))
    wanted = conv2d_reference(data[1].astype("int32"), weight[1].astype("int32"))
    made = run(conv, *zip(conv.op.input_tensors, arrays, strict=True))
    np.testing.assert_array_equal(made, last(wanted))


def test_blocked_data_without_packing_between_layers() -> None:
    """Two layers in NCHW8c; the first one's activation is computed in its tile."""
    data, first, second = (
        given("data", 1, 2, 6, 7, 8),
        given("first", 3, 2, 3, 3, 8, 8),
        given("second", 2, 3, 1, 1, 8, 8),
    )
    hidden = topi.conv2d_NCHWc(data[0], first[0], 1, 1, 1, "NCHW8c", "NCHW8c")
    relu = te.compute(hidden.shape, lambda *i: te.max(hidden(*i), 0.0), name="relu")
    made = run(topi.conv2d_NCHWc(relu, second[0]), data, first, second)

    def plain(weight: np.ndarray) -> np.ndarray:
        o, c, h, w, i, p = weight.shape
        return weight.transpose(0, 5, 1, 4, 2, 3).reshape(o * p, c * i, h, w)

    image = data[1].transpose(0, 1, 4, 2, 3).reshape(1, 16, 6, 7)
    between = np.maximum(conv2d_reference(image, plain(first[1]), 1, 1), 0)
    np.testing.assert_array_equal(made, blocked(conv2d_reference(between, plain(second[1])), 8))


def test_what_comes_before_is_computed_once() -> None:
    """A padding of its own is not inlined into the sum, which would test it for each product."""
    data, weight = given("data", 1, 8, 9, 9), given("weight", 40, 8, 3, 3)
    high = te.compute(
        (1, 8, 11, 11),
        lambda n, c, h, w: te.if_then_else(
            te.all(h >= 1, h < 10, w >= 1, w < 10), data[0][n, c, h - 1, w - 1], te.const(0, "float32")
        ),
        name="padded",
    )
    conv = topi.conv2d_nchw(high, weight[0])
    text = loops_of(conv, (data, weight))
    assert "allocate padded" in text
    assert not any("if " in line for line in text[text.index("conv2d.local") :].splitlines())
    np.testing.assert_array_equal(run(conv, data, weight), conv2d_reference(data[1], weight[1], 1, 1))


@pytest.mark.sampled(1)
@pytest.mark.covering(1)
@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
@pytest.mark.parametrize("symbol", ["images", "channels"])
def test_symbolic_sizes(layout: str, symbol: str) -> None:
    """Kernels for any batch, height and width, or for any number of output channels."""
    sizes: list[Any] = [te.var("n"), te.var("h"), te.var("w"), 40] if symbol == "images" else [2, 6, 20, te.var("o")]
    n, h, w, o = sizes
    shape, window = ((n, 4, h, w), (o, 4, 3, 3)) if layout == "NCHW" else ((n, h, w, 4), (3, 3, 4, o))
    data, weight = te.placeholder(shape, name="data"), te.placeholder(window, name="weight")
    conv = topi.conv2d(data, weight, 1, 1, data_layout=layout)
    kernel = tensorlang.build(topi.schedule(conv), [data, weight, conv])
    for features in (40,) if symbol == "images" else (5, 33):
        images, factors = given("images", 2, 4, 6, 20)[1], given("factors", features, 4, 3, 3)[1]
        wanted = conv2d_reference(images, factors, 1, 1)
        if layout == "NHWC":
            images, wanted = last(images), last(wanted)
            factors = np.ascontiguousarray(factors.transpose(2, 3, 1, 0))
        made = np.empty(wanted.shape, "float32")
        kernel(images, factors, made)
        np.testing.assert_array_equal(made, wanted)


@pytest.mark.parametrize(
    ("image", "window", "stride", "padding"),
    [
        ((3, 5, 1, 1), (40, 5, 1, 1), 1, 0),
        ((1, 4, 30, 1), (33, 4, 3, 1), 1, (1, 0)),
        ((1, 3, 2, 2), (9, 3, 5, 5), 1, 2),
        ((2, 6, 7, 7), (64, 6, 1, 1), 3, 0),
        ((1, 2, 40, 40), (16, 2, 11, 11), 4, 2),
    ],
)
def test_edges(image: tuple[int, ...], window: tuple[int, ...], stride: int, padding: int | tuple[int, int]) -> None:
    """Images of one pixel or column, windows larger than the image, strides larger than the window."""
    data, weight = given("data", *image), given("weight", *window)
    made = run(topi.conv2d_nchw(data[0], weight[0], stride, padding), data, weight)
    np.testing.assert_array_equal(made, conv2d_reference(data[1], weight[1], stride, padding))


def test_packing_fills_the_last_block_with_zeros() -> None:
    weight = given("weight", 40, 3, 2, 2)
    packed = run(topi.conv2d_pack(weight[0], 16), weight)
    assert packed.shape == (3, 2, 2, 3, 16)
    flat = packed.transpose(0, 4, 3, 1, 2).reshape(48, 3, 2, 2)
    np.testing.assert_array_equal(flat[:40], weight[1])
    assert not flat[40:].any()


@pytest.mark.covering(1)
@pytest.mark.parametrize("cores", [1, 2])
@pytest.mark.parametrize(("size", "features"), [(28, 64), (7, 2048)])
def test_the_inner_loop_has_no_conditions(size: int, features: int, cores: int) -> None:
    """Padding is cut off outside of the loop over input channels, whose bounds and tile are constant."""
    data, weight = given("data", 1, 64, size, size), given("weight", features, 64, 3, 3)
    conv = topi.conv2d_nchw(data[0], weight[0], 1, 1)
    lines = loops_of(conv, (data, weight), f"llvm -num-cores={cores}").splitlines()
    inner = [k for k, line in enumerate(lines) if re.search(r"for rc(_o)? in range\((64|8)\):", line)]
    assert inner
    for start in inner:
        depth = len(lines[start]) - len(lines[start].lstrip())
        body = lines[start + 1 :]
        end = next((k for k, line in enumerate(body) if len(line) - len(line.lstrip()) <= depth), len(body))
        assert not any("if " in line or " in range(max" in line for line in body[:end])


@pytest.mark.parametrize(
    ("target", "operation"),
    [
        ("llvm -mtriple=x86_64-linux-gnu -mcpu=znver5", "vfmadd"),
        ("llvm -mtriple=x86_64-linux-gnu -mcpu=haswell", "vfmadd"),
        ("llvm -mtriple=aarch64-linux-gnu -mcpu=neoverse-n1", "fmla"),
    ],
)
def test_the_tile_stays_in_registers(target: str, operation: str) -> None:
    """The loops over input channels move no vector to memory, and none from the stack."""
    data, weight = given("data", 1, 64, 14, 14), given("weight", 2, 3, 3, 64, 32)
    conv = topi.conv2d(data[0], weight[0], 1, 1, kernel_layout="OHWI32o")
    kernel = tensorlang.build(topi.schedule(conv, target), [data[0], weight[0], conv], target=target)
    loops = inner_loops(kernel.source("asm"), operation)
    assert loops
    spill = re.compile(r"%[xyz]mm\d+, *[-\d]*\(|[xyz]mm.*\(%rsp|\bst[rp]\s+q|\bq\d+.*\[sp")
    for loop in loops:
        assert not [line for line in loop if spill.search(line)]


def inner_loops(assembly: str, operation: str) -> list[list[str]]:
    """The innermost loops that use an operation: from a label to the jump back to it."""
    lines, found = assembly.splitlines(), []
    labels = {line.split(":")[0]: k for k, line in enumerate(lines) if line.startswith(".L") and ":" in line}
    for k, line in enumerate(lines):
        words = line.split()
        start = labels.get(words[-1], k) if words and words[0][:1] in "jb" else k
        inside = lines[start:k]
        jumps = [w for w in inside if w.split() and w.split()[0][:1] in "jb" and labels.get(w.split()[-1], k) < k]
        if inside and not jumps and any(operation in w for w in inside):
            found.append(inside)
    return found


def test_tiles_follow_the_machine() -> None:
    def tile(size: int, features: int, cpu: str) -> tuple[int, int, int]:
        data, weight = given("data", 1, 8, size, size), given("weight", features, 8, 3, 3)
        op = topi.conv2d_nchw(data[0], weight[0], 1, 1).op
        s = te.create_schedule(op)
        target = parse(f"llvm -mtriple=x86_64-linux-gnu -mcpu={cpu}")
        main = s.program[op.name]
        assert isinstance(main, ComputeOp)
        found = tile_of(convolution(main), target)
        return found.block, found.rows, found.columns

    assert tile(56, 64, "znver5") == (32, 1, 14)
    assert tile(17, 64, "znver5") == (32, 1, 9)
    assert tile(48, 64, "haswell") == (16, 1, 6)
    assert tile(56, 12, "znver5")[0] == 12
    assert tile(7, 64, "znver5") == (32, 1, 7)
    assert tile(7, 8192, "znver5") == (32, 2, 7)


@pytest.mark.parametrize(("channels", "stride", "columns"), [(256, 1, 14), (512, 2, 7), (1024, 1, 7), (1040, 1, 14)])
def test_no_more_pixels_than_stay_in_the_sets_that_they_share(channels: int, stride: int, columns: int) -> None:
    data, weight = given("data", 1, 14 * stride, 14 * stride, channels), given("weight", 1, 1, channels, 64)
    op = topi.conv2d(data[0], weight[0], stride, 0, data_layout="NHWC").op
    main = te.create_schedule(op).program[op.name]
    assert isinstance(main, ComputeOp)
    assert tile_of(convolution(main), parse("llvm -mtriple=x86_64-linux-gnu -mcpu=znver4")).columns == columns


def test_the_row_of_the_table() -> None:
    check_operator("conv2d", 2, 3, 8, 9, 5, 4)


def test_refusals() -> None:
    data, weight = given("data", 1, 8, 5, 5)[0], given("weight", 4, 6, 3, 3)[0]
    with pytest.raises(DefinitionError, match="wants weights of 8 input channels"):
        topi.conv2d_nchw(data, weight)
    with pytest.raises(DefinitionError, match="no layout 'NCWH8x'"):
        topi.conv2d(data, weight, data_layout="NCWH8x")
    with pytest.raises(DefinitionError, match="has 5 dimensions"):
        topi.conv2d(data, weight, data_layout="NCHW4c")
    with pytest.raises(DefinitionError, match="padding is"):
        topi.conv2d_nchw(data, given("weight", 4, 8, 3, 3)[0], 1, (1, 2, 3))
    with pytest.raises(DefinitionError, match="at least 1"):
        topi.conv2d_nchw(data, given("weight", 4, 8, 3, 3)[0], 0)
    with pytest.raises(DefinitionError, match="conv2d of 8 channels in 2 groups"):
        topi.group_conv2d_nchw(data, given("weight", 5, 4, 3, 3)[0], groups=2)
    with pytest.raises(DefinitionError, match="4 output channels, and 5 of them"):
        topi.conv2d(data, given("weight", 4, 8, 3, 3)[0], channels=5)
    with pytest.raises(DefinitionError, match="data of 5 and weights of 6"):
        topi.conv2d_NCHWc(data, weight)


@pytest.mark.parametrize(
    "options", ["stride=2 padding=1", "stride=2,1 padding=(0,1) dilation=2", "groups=2 padding=VALID"]
)
def test_the_row_of_the_table_has_options(options: str) -> None:
    check_operator("conv2d", 2, 4, 9, 11, 6, 3, options=options)


@pytest.mark.parametrize(
    ("option", "why"),
    [
        ("groups=3", "groups of equally many channels, got groups=3 for C = 4"),
        ("groups=two", "got groups=two"),
        ("stride=0", "at least 1"),
        ("stride=two", "a whole number or a sequence of whole numbers for strides?, got str .two.; call"),
        ("padding=most", "VALID, SAME or numbers"),
    ],
)
def test_options_that_make_no_convolution_are_refused(option: str, why: str) -> None:
    row = topi.operator("conv2d")
    with pytest.raises(DefinitionError, match=why):
        row.tensors((1, 4, 8, 8, 6, 3), "float32", **row.read_options([option]))
