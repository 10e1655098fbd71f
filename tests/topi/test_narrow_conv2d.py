"""Convolutions of bytes and of bfloat16, summed in 32 bits by dot instructions where there are some."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given as drawn
from hypothesis import settings
from hypothesis import strategies as st

import tensorlang
from tensorlang import dtypes, te, topi
from tensorlang.errors import DefinitionError
from tensorlang.target.detect import parse, runs_here
from tensorlang.te.operation import Tensor
from tensorlang.topi.conv2d import conv2d_reference
from tests.topi.images import last
from tests.topi.programs import Given, run, shape_of
from tests.topi.test_quantized import PAIRS, PLAIN, VNNI, factor

Array = npt.NDArray[Any]


@dataclass(frozen=True)
class Case:
    """A convolution of n images of c channels, h by w, to o channels by windows of k."""

    n: int
    c: int
    h: int
    w: int
    o: int
    k: int
    stride: int = 1
    padding: int | tuple[int, ...] = 0
    dilation: int = 1
    groups: int = 1

    def operands(self, dtype: str) -> tuple[Given, Given]:
        """Data in NCHW, and weights."""
        weight = "bfloat16" if dtype == "bfloat16" else "int8"
        data = factor("data", self.n, self.c, self.h, self.w, dtype=dtype)
        return data, factor("weight", self.o, self.c // self.groups, self.k, self.k, dtype=weight)

    def exact(self, x: Array, w: Array) -> Array:
        """The convolution in whole numbers."""
        wide = x.astype(np.int64), w.astype(np.int64)
        return conv2d_reference(*wide, self.stride, self.padding, self.dilation, self.groups)

    def narrow(self, data: Tensor, packed: Tensor, layout: str, **more: Any) -> Tensor:
        """The program."""
        return topi.conv2d_narrow(
            data, packed, self.o, self.k, self.stride, self.padding, self.dilation, layout, **more
        )

    def check(self, layout: str, dtype: str, zero: int = 0, weight_zero: int = 0, target: str | None = None) -> None:
        """Compare with the exact sums."""
        (_, x), (W, w) = self.operands(dtype)
        placed = last(x) if layout == "NHWC" else x
        D = te.placeholder(placed.shape, dtype, "D")
        packed = topi.pack_narrow_conv2d(W, self.dilation, self.groups, target=target)
        made = self.narrow(D, packed, layout, zero_point=zero, weight_zero_point=weight_zero, target=target)
        wanted = self.exact(x.astype(np.int64) - zero, w.astype(np.int64) - weight_zero)
        result = run(made, (D, placed), (W, w), target=target)
        np.testing.assert_array_equal(result, last(wanted) if layout == "NHWC" else wanted)


RESNET = [
    Case(1, 64, 14, 14, 64, 3, padding=1),
    Case(1, 64, 14, 14, 256, 1),
    Case(1, 128, 28, 28, 128, 3, padding=1),
    Case(1, 256, 14, 14, 256, 3, padding=1),
    Case(1, 512, 7, 7, 96, 3, padding=1),
    Case(1, 3, 56, 56, 64, 7, stride=2, padding=3),
]
OTHERS = [
    Case(2, 20, 13, 11, 24, 3, stride=2, padding=(0, 1, 2, 1)),
    Case(1, 6, 17, 19, 37, 3, padding=2, dilation=2),
    Case(1, 10, 9, 9, 5, 1, stride=2),
    Case(1, 24, 9, 10, 40, 3, padding=1, groups=2),
    Case(1, 1, 12, 30, 33, 5, padding=2),
    Case(1, 3, 1, 1, 4, 1, stride=4, padding=(3, 3, 0, 0)),
]


@pytest.mark.sampled(2)
@pytest.mark.covering(1)
@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
@pytest.mark.parametrize("case", RESNET, ids=str)
def test_shapes_of_resnet(case: Case, layout: str) -> None:
    case.check(layout, "int8" if layout == "NCHW" else "uint8")


@pytest.mark.sampled(2)
@pytest.mark.covering(1)
@pytest.mark.parametrize(("dtype", "layout"), [("int8", "NCHW"), ("uint8", "NHWC"), ("bfloat16", "NHWC")])
@pytest.mark.parametrize("case", OTHERS, ids=str)
def test_strides_dilations_and_groups(case: Case, dtype: str, layout: str) -> None:
    case.check(layout, dtype)


@pytest.mark.sampled(2)
@pytest.mark.covering(1)
@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
@pytest.mark.parametrize(
    ("dtype", "zero", "weight_zero"), [("int8", -128, 3), ("int8", 5, 0), ("uint8", 0, 3), ("uint8", 128, -7)]
)
def test_zero_points(dtype: str, zero: int, weight_zero: int, layout: str) -> None:
    Case(2, 7, 9, 8, 12, 3, stride=2, padding=(1, 0, 2, 1)).check(layout, dtype, zero, weight_zero)


def test_a_zero_point_for_each_channel_of_weights() -> None:
    case = Case(1, 8, 9, 8, 12, 3, padding=1)
    (D, x), (W, w) = case.operands("uint8")
    Z, z = te.placeholder((12,), "int8", "Z"), np.arange(-6, 6, dtype="int8")
    made = case.narrow(D, topi.pack_narrow_conv2d(W), "NCHW", zero_point=7, weight_zero_point=Z)
    wanted = case.exact(x.astype(np.int64) - 7, w.astype(np.int64) - z[:, None, None, None])
    np.testing.assert_array_equal(run(made, (D, x), (W, w), (Z, z)), wanted)


@settings(max_examples=5)
@drawn(st.data())
def test_odd_shapes(data: st.DataObject) -> None:
    def number(low: int, high: int) -> int:
        return data.draw(st.integers(low, high))

    k, dilation, groups = number(1, 4), number(1, 2), number(1, 3)
    least = (k - 1) * dilation + 1
    padding = tuple(number(0, 2) for _ in range(4))
    image = number(least, 19), number(least, 19)
    case = Case(number(1, 2), groups * number(1, 9), *image, groups * number(1, 40), k, number(1, 3), padding)
    case = Case(case.n, case.c, case.h, case.w, case.o, k, case.stride, padding, dilation, groups)
    dtype, layout = data.draw(st.sampled_from(["int8", "uint8"])), data.draw(st.sampled_from(["NCHW", "NHWC"]))
    case.check(layout, dtype, number(0, 100), data.draw(st.sampled_from([0, -2])))


@pytest.mark.parametrize(("d", "w"), [(-128, -128), (-128, 127), (127, -128), (127, 127)])
def test_extremes(d: int, w: int) -> None:
    """As many terms as a byte can be added up over in 32 bits, and more than 16 bits hold."""
    D, W = te.placeholder((1, 2, 2, 500), "int8", "D"), te.placeholder((9, 500, 2, 2), "int8", "W")
    x, y = np.full((1, 2, 2, 500), d, "int8"), np.full((9, 500, 2, 2), w, "int8")
    made = run(topi.conv2d_narrow(D, topi.pack_narrow_conv2d(W), 9, 2, data_layout="NHWC"), (D, x), (W, y))
    assert (made == 2000 * d * w).all()


@pytest.mark.sampled(2)
@pytest.mark.covering(1)
@pytest.mark.parametrize("case", [RESNET[0], Case(3, 5, 30, 30, 30, 3), Case(1, 512, 7, 7, 64, 3), OTHERS[3]], ids=str)
@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
def test_threads(case: Case, layout: str) -> None:
    """Shared out by rows, images, panels of channels."""
    case.check(layout, "int8", target="llvm -num-cores=2")


@pytest.mark.sampled(3)
@pytest.mark.covering(1)
@pytest.mark.parametrize("target", ["interpreter", *PLAIN])
@pytest.mark.parametrize(("dtype", "weight"), PAIRS)
def test_other_machines(dtype: str, weight: str, target: str) -> None:
    case = Case(1, 5, 6, 7, 9, 3, padding=1)
    if target == "interpreter" or runs_here(parse(target)):
        case.check("NHWC", dtype, target=target)
        return
    D, W = te.placeholder((1, 6, 7, 5), dtype, "D"), te.placeholder((9, 5, 3, 3), weight, "W")
    made = case.narrow(D, topi.pack_narrow_conv2d(W, target=target), "NHWC", target=target)
    asm = tensorlang.build(topi.schedule(made, target), [D, W, made], target).source("asm")
    has = {("llvm -mcpu=neoverse-n1", "int8"): "sdot", ("llvm -mcpu=alderlake", "int8"): "vpdpbusd"}
    assert has.get((target, dtype), "") in asm


def packed_ahead(
    case: Case, layout: str, dtype: str = "int8", target: str | None = None
) -> tuple[list[Tensor], Tensor]:
    """Inputs and output of a quantized layer: laid out weights, offsets, bias, relu, and a scale for each channel."""
    shape = (case.n, case.h, case.w, case.c) if layout == "NHWC" else (case.n, case.c, case.h, case.w)
    W = te.placeholder((case.o, case.c // case.groups, case.k, case.k), "int8", "W")
    laid = topi.pack_narrow_conv2d(W, case.dilation, case.groups, target=target)
    offsets = topi.narrow_conv2d_offsets(laid, dtype, 3, target)
    D, P = te.placeholder(shape, dtype, "D"), te.placeholder(laid.shape, "int8", "P")
    F, B = te.placeholder(offsets.shape, "int32", "F"), te.placeholder((case.o,), "int32", "B")
    S = te.placeholder((case.o,), "float32", "S")
    sums = case.narrow(D, P, layout, bias=B, offsets=F, zero_point=3, target=target)
    return [D, P, F, B, S], topi.requantize(topi.relu(sums), S, 2, "uint8", axis=layout.index("C"))


@pytest.mark.parametrize(("layout", "o"), [("NCHW", 37), ("NHWC", 37), ("NHWC", 64)])
def test_what_follows_is_computed_in_the_tile(layout: str, o: int) -> None:
    """Or whole panels of sums in the tile of what follows."""
    case = Case(1, 12, 10, 9, o, 3, padding=1)
    (_, x), (W, w) = case.operands("int8")
    inputs, made = packed_ahead(case, layout)
    laid = topi.pack_narrow_conv2d(W)
    panels = run(laid, (W, w))
    offsets = run(topi.narrow_conv2d_offsets(inputs[1], "int8", 3), (inputs[1], panels))
    bias, scale = np.arange(o, dtype="int32") * 100, np.linspace(1e-4, 1e-2, o, dtype="float32")
    arrays = [x if layout == "NCHW" else last(x), panels, offsets, bias, scale]
    sums = np.maximum(last(case.exact(x.astype(np.int64) - 3, w)) + bias, 0).astype("float32")
    wanted = np.clip(np.rint(sums * scale) + 2, 0, 255).astype("uint8")
    result = run(made, *zip(inputs, arrays, strict=True))
    np.testing.assert_array_equal(result if layout == "NHWC" else last(result), wanted)
    s = topi.schedule(made)
    attached = made.op.name if o == 37 else "conv2d_sums"
    assert s.state.stages[attached].attach is not None
    assert not {"conv2d", "conv2d_product", "relu"} & set(s.state.stages)


@pytest.mark.parametrize("case", [Case(1, 64, 28, 28, 64, 3, padding=1), Case(1, 130, 13, 13, 100, 1)], ids=str)
def test_sums_stay_in_registers(case: Case) -> None:
    inputs, made = packed_ahead(case, "NHWC", "uint8", VNNI)
    asm = tensorlang.build(topi.schedule(made, VNNI), [*inputs, made], VNNI).source("asm")
    loops = [part for part in re.split(r"\n\.LBB\w+:", asm) if part.count("vpdpbusd") >= 16]
    assert loops
    for body in loops:
        inside = body[body.index("vpdpbusd") : body.rindex("vpdpbusd")]
        assert not re.search(r"zmm.*%rsp|%rsp.*zmm", inside)
    assert "vcvttss2si" not in asm


def test_zeros_around_the_image_are_not_multiplied() -> None:
    """Tiles at the border have copies of the loop without the pixels that lie outside."""
    case = Case(1, 64, 14, 14, 64, 3, padding=1)
    D, W = te.placeholder((1, 14, 14, 64), "uint8", "D"), te.placeholder((64, 64, 3, 3), "int8", "W")
    P = te.placeholder(topi.pack_narrow_conv2d(W, target=VNNI).shape, "int8", "P")
    made = topi.requantize(topi.relu(case.narrow(D, P, "NHWC", target=VNNI)), 0.01, 0, "uint8")
    asm = tensorlang.build(topi.schedule(made, VNNI), [D, P, made], VNNI).source("asm")
    dots = [part.count("vpdpbusd") for part in re.split(r"\n\.LBB\w+:", asm)]
    assert {count for count in dots if count} == {26, 28}


def test_single_pixels_of_whole_words_are_read_as_they_are() -> None:
    """No copy of the data is made, and whole panels of sums stay in registers."""
    inputs, made = packed_ahead(Case(1, 64, 14, 14, 64, 1), "NHWC", "uint8", VNNI)
    kernel = tensorlang.build(topi.schedule(made, VNNI), [*inputs, made], VNNI)
    assert kernel.memory().total == 0


@pytest.mark.covering(1)
@pytest.mark.parametrize("sizes", [(1, 12, 9, 10, 20, 3), (2, 8, 6, 7, 40, 1)])
@pytest.mark.parametrize("name", ["conv2d_int8", "conv2d_int8_packed"])
def test_the_named_operators(name: str, sizes: tuple[int, ...]) -> None:
    row = topi.operator(name)
    *inputs, output = row.tensors(sizes, "int8")
    arrays = [factor(t.name, *shape_of(t), dtype=t.dtype)[1] for t in inputs[:2]]
    arrays += [np.arange(sizes[4], dtype="int32") * 90, np.linspace(1e-4, 2e-2, sizes[4], dtype="float32")]
    (wanted,) = row.reference(*arrays)
    np.testing.assert_array_equal(run(output, *zip(inputs, arrays, strict=True)), wanted)
    made = np.empty_like(wanted)
    row.numpy(*arrays, made)
    assert np.abs(made.astype(int) - wanted).max() <= 1  # sums beyond 2^24 are rounded in float32


@pytest.mark.parametrize("sizes", [(20, 12, 3), (40, 3, 7), (5, 1, 1)])
@pytest.mark.parametrize("dtype", ["int8", "bfloat16"])
def test_the_named_layout(sizes: tuple[int, ...], dtype: str) -> None:
    row = topi.operator("pack_conv2d_int8")
    weight, output = row.tensors(sizes, dtype)
    _, values = factor("weight", *shape_of(weight), dtype=dtype)
    (wanted,) = row.reference(values)
    np.testing.assert_array_equal(run(output, (weight, values)), wanted)
    made = np.empty_like(wanted)
    row.numpy(values, made)
    np.testing.assert_array_equal(made, wanted)


def refused(what: str) -> Tensor:
    """Uses that do not fit."""
    D, W = te.placeholder((1, 12, 8, 8), "int8", "D"), te.placeholder((20, 12, 3, 3), "int8", "W")
    P, m = topi.pack_narrow_conv2d(W), te.var("m")
    match what:
        case "float32":
            return topi.pack_narrow_conv2d(te.placeholder((4, 4, 3, 3), "float32", "W"))
        case "groups":
            return topi.pack_narrow_conv2d(W, groups=3)
        case "dtypes":
            return topi.conv2d_narrow(te.placeholder((1, 12, 8, 8), "float32", "D"), P, 20, 3)
        case "kernel":
            return topi.conv2d_narrow(D, P, 20, 5)
        case "channels":
            return topi.conv2d_narrow(D, P, 999, 3)
        case "dilation":
            return topi.conv2d_narrow(D, P, 20, 3, dilation=2)
        case "bias":
            return topi.conv2d_narrow(D, P, 20, 3, bias=te.placeholder((21,), "int32", "bias"))
        case "offsets":
            return topi.conv2d_narrow(D, P, 20, 3, offsets=te.placeholder((20,), "int32", "offsets"))
        case "zero":
            return topi.conv2d_narrow(D, P, 20, 3, zero_point=128)
        case "unknown":
            return topi.conv2d_narrow(te.placeholder((m, 12, 8, 8), "int8", "D"), P, 20, 3)
        case "uint16":
            return topi.narrow_conv2d_offsets(P, "uint16")
        case "words":
            return topi.operator("conv2d_int8_packed").tensors((1, 3, 8, 8, 4, 3), "int8")[-1]
    B = te.placeholder((1, 12, 8, 8), "bfloat16", "D")
    V = te.placeholder((20, 12, 3, 3), "bfloat16", "W")
    return topi.conv2d_narrow(B, topi.pack_narrow_conv2d(V), 20, 3, weight_zero_point=1)


@pytest.mark.parametrize(
    ("what", "message"),
    [
        ("float32", "pack_narrow_conv2d wants OIHW of bfloat16 or int8"),
        ("groups", "3 groups do not divide 20 output channels"),
        ("dtypes", "of bfloat16 by bfloat16, int8 by int8, uint8 by int8; got"),
        ("kernel", "does not hold 20 channels of 5 by 5 weights"),
        ("channels", "does not hold 999 channels of 3 by 3 weights"),
        ("dilation", "it needs"),
        ("bias", "the bias of conv2d has 20 elements"),
        ("offsets", r"the offsets are those of narrow_conv2d_offsets\(packed\)"),
        ("zero", "has to be a value of their dtype, got 128"),
        ("unknown", "has known sizes"),
        ("uint16", "wanted int8 or uint8 data and int8 weights of pack_narrow_conv2d, got uint16"),
        ("words", "wants rows of windows of whole words, got C \\* K = 9"),
        ("bfloat16", "bfloat16 has no zero point"),
    ],
)
def test_refusals(what: str, message: str) -> None:
    with pytest.raises(DefinitionError, match=message):
        refused(what)


def test_bfloat16_sums_are_those_of_float32() -> None:
    """Products are exact in float32, so 108 of them are off by at most 108 roundings of 2^-24 of their sizes."""
    rng = np.random.default_rng(0)
    numpy = dtypes.info("bfloat16").numpy
    x, w = (rng.standard_normal(shape).astype(numpy) for shape in ((1, 12, 9, 9), (20, 12, 3, 3)))
    D, W = te.placeholder(x.shape, "bfloat16", "D"), te.placeholder(w.shape, "bfloat16", "W")
    made = run(topi.conv2d_narrow(D, topi.pack_narrow_conv2d(W), 20, 3, 1, 1), (D, x), (W, w))
    wide, sizes = (conv2d_reference(f(x.astype(float)), f(w.astype(float)), 1, 1) for f in (np.positive, np.abs))
    assert (np.abs(made - wide) <= 108 * 2.0**-24 * sizes).all()
