"""Models in 8 bits, as tools write them: operators beside the reference of ONNX, whole models beside onnxruntime."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tensorlang
from tensorlang.networks.network import Network
from tensorlang.networks.onnx.reading import from_onnx
from tensorlang.networks.refusal import UnsupportedModel
from tensorlang.te.operation import ComputeOp
from tests.networks.models import drawn, model, node, reference

SCALES = np.array([0.05, 0.1, 0.02], np.float32)
ZEROS = np.array([3, 128, 250], np.uint8)


def check(proto: Any, *inputs: Any, steps: int = 0) -> None:
    """Outputs are those of the reference; integers that were rounded may differ by so many steps."""
    made = tensorlang.compile(from_onnx(proto))(*inputs)
    for got, want in zip(made if isinstance(made, tuple) else (made,), reference(proto, *inputs), strict=True):
        assert got.dtype == want.dtype
        assert got.shape == want.shape
        np.testing.assert_allclose(got.astype(np.float64), want.astype(np.float64), rtol=1e-6, atol=steps or 1e-6)


@pytest.mark.parametrize(
    ("dtype", "how"),
    [("uint8", "no zero"), *((d, h) for d in ("uint8", "int8", "uint16", "int16") for h in ("one", "channels"))],
)
def test_numbers_go_and_come_back(dtype: str, how: str) -> None:
    scale, zero = (SCALES, ZEROS.astype(dtype)) if how == "channels" else (SCALES[:1].reshape(()), np.array(7, dtype))
    names, weights = ("x s", {"s": scale}) if how == "no zero" else ("x s z", {"s": scale, "z": zero})
    nodes = [node("QuantizeLinear", names, "q"), node("DequantizeLinear", names.replace("x", "q"), "y")]
    x = drawn(2, 3, 5) * 20
    x[0, 0, :2] = 1e5, -1e5
    check(model(nodes, {"x": (2, 3, 5)}, "q y", weights, opset=21), x)


def test_scales_of_blocks() -> None:
    weights = {"s": np.abs(drawn(2, 3)) + 0.1, "z": np.arange(6, dtype=np.int8).reshape(2, 3)}
    nodes = [
        node("QuantizeLinear", "x s z", "q", axis=0, block_size=2),
        node("DequantizeLinear", "q s z", "y", axis=0, block_size=2),
    ]
    check(model(nodes, {"x": (4, 3)}, "q y", weights, opset=21), drawn(4, 3) * 5)


def test_data_that_are_all_zero_are_quantized() -> None:
    proto = model([node("DynamicQuantizeLinear", "x", "y s z")], {"x": (3, 4)}, "y z")
    y, z = tensorlang.compile(from_onnx(proto))(np.zeros((3, 4), np.float32))
    assert not y.any()
    assert z == 0


@pytest.mark.covering(1)
@pytest.mark.parametrize("weight_zero", [0, 128, 5])
@pytest.mark.parametrize("attrs", [{}, {"pads": [1, 0, 1, 2], "strides": [2, 1]}, {"pads": [1] * 4, "group": 4}])
def test_convolutions_of_integers(attrs: dict[str, Any], weight_zero: int) -> None:
    """With padding the zero of the data lies around them; weights about 128 are signed ones moved."""
    rng = np.random.default_rng(1)
    weights = {
        "w": rng.integers(0, 256, (8, 4 // attrs.get("group", 1), 3, 3)).astype(np.uint8),
        "zx": np.array(9, np.uint8),
        "zw": np.array(weight_zero, np.uint8),
    }
    proto = model(
        [node("ConvInteger", "x w zx zw", "y", **attrs)], {"x": (1, 4, 6, 7)}, "y", weights, dtypes={"x": "u1"}
    )
    x = rng.integers(0, 256, (1, 4, 6, 7)).astype(np.uint8)
    made = tensorlang.compile(from_onnx(proto))(x)
    plain = model(
        [node("Conv", "x w", "y", **attrs)], {"x": x.shape}, "y", {"w": weights["w"] - np.float32(weight_zero)}
    )
    np.testing.assert_array_equal(made, reference(plain, x.astype(np.float32) - 9)[0].astype(np.int32))


@pytest.mark.parametrize(("left", "right"), [((5, 16), (16, 9)), ((2, 3, 5, 16), (16, 9)), ((2, 5, 16), (2, 16, 9))])
def test_products_of_integers(left: tuple[int, ...], right: tuple[int, ...]) -> None:
    rng = np.random.default_rng(2)
    a, b = rng.integers(0, 256, left).astype(np.uint8), rng.integers(-128, 128, right).astype(np.int8)
    weights = {"b": b, "za": np.array(17, np.uint8), "zb": np.array(0, np.int8)}
    check(model([node("MatMulInteger", "a b za zb", "y")], {"a": left}, "y", weights, dtypes={"a": "u1"}), a)


def test_weights_of_columns_with_zeros_of_their_own() -> None:
    rng = np.random.default_rng(3)
    a, b = rng.integers(0, 256, (4, 8)).astype(np.uint8), rng.integers(0, 256, (8, 3)).astype(np.uint8)
    weights = {"b": b, "za": np.array(200, np.uint8), "zb": ZEROS}
    check(model([node("MatMulInteger", "a b za zb", "y")], {"a": (4, 8)}, "y", weights, dtypes={"a": "u1"}), a)


@pytest.mark.parametrize("pads", [0, 1])
def test_data_whose_zero_is_computed_are_multiplied_as_bytes(pads: int) -> None:
    """As models quantized without examples have it."""
    rng = np.random.default_rng(6)
    weights = {
        "w": rng.integers(-128, 128, (5, 4, 3, 3)).astype(np.int8),
        "v": rng.integers(-128, 128, (9, 7)).astype(np.int8),
    }
    nodes = [
        node("DynamicQuantizeLinear", "x", "q s z"),
        node("ConvInteger", "q w z", "c", pads=[pads] * 4),
        node("MatMulInteger", "q v z", "m"),
    ]
    network, x = from_onnx(model(nodes, {"x": (1, 4, 9, 9)}, "c m s z", weights)), drawn(1, 4, 9, 9) + 1
    assert len(_sums_of_bytes(network)) == 2
    c, m, s, z = tensorlang.compile(network)(x)
    whole = np.rint(x / s).clip(-int(z), 255 - int(z)).astype(np.float32)
    plain = model([node("Conv", "x w", "y", pads=[pads] * 4)], {"x": x.shape}, "y", {"w": np.float32(weights["w"])})
    np.testing.assert_array_equal(c, reference(plain, whole)[0])
    np.testing.assert_array_equal(m, whole.astype(np.int32) @ weights["v"].astype(np.int32))


def _sums_of_bytes(network: Network) -> list[ComputeOp]:
    """Sums in 32 bits of numbers that lie in 8."""
    ops = [op for t in network.outputs for op in _above(t.op) if isinstance(op, ComputeOp)]
    sums = {id(op): op for op in ops if op.dtype == "int32" and op.reduce_axes}
    return [op for op in sums.values() if {t.dtype for t in op.input_tensors} <= {"int8", "uint8"}]


def qdq(transposed: bool, opset: int) -> Any:
    """A convolution, a pool and a classifier, each between quantizing nodes."""
    weights = {
        "s": np.float32(0.04),
        "z": np.uint8(120),
        "w": np.random.default_rng(4).integers(-127, 128, (16, 6, 3, 3)).astype(np.int8),
        "sw": np.linspace(0.001, 0.004, 16).astype(np.float32),
        "zw": np.zeros(16, np.int8),
        "b": np.arange(-8, 8).astype(np.int32) * 400,
        "sb": np.linspace(0.001, 0.004, 16).astype(np.float32) * np.float32(0.04),
        "s2": np.float32(0.06),
        "z2": np.uint8(0),
        "v": np.random.default_rng(5).integers(-127, 128, (10, 256) if transposed else (256, 10)).astype(np.int8),
        "sv": np.float32(0.01),
        "zv": np.int8(0),
    }
    nodes = [
        node("QuantizeLinear", "x s z", "q"),
        node("DequantizeLinear", "q s z", "d"),
        node("DequantizeLinear", "w sw zw", "dw", axis=0),
        node("DequantizeLinear", "b sb", "db", axis=0),
        node("Conv", "d dw db", "c", pads=[1, 1, 1, 1]),
        node("Relu", "c", "r"),
        node("QuantizeLinear", "r s2 z2", "q2"),
        node("DequantizeLinear", "q2 s2 z2", "d2"),
        node("MaxPool", "d2", "p", kernel_shape=[2, 2], strides=[2, 2]),
        node("QuantizeLinear", "p s2 z2", "q3"),
        node("DequantizeLinear", "q3 s2 z2", "d3"),
        node("Flatten", "d3", "f"),
        node("QuantizeLinear", "f s2 z2", "q4"),
        node("DequantizeLinear", "q4 s2 z2", "d4"),
        node("DequantizeLinear", "v sv zv", "dv"),
        node("Gemm", "d4 dv", "y", transB=int(transposed)),
    ]
    return model(nodes, {"x": (1, 6, 8, 8)}, "y", weights, opset)


@pytest.mark.parametrize(("transposed", "opset"), [(False, 13), (True, 21)])
def test_products_between_quantizing_nodes_are_made_of_bytes(transposed: bool, opset: int) -> None:
    """The reference knows these operators in new opsets only."""
    network, x = from_onnx(qdq(transposed, opset)), drawn(1, 6, 8, 8)
    assert len(_sums_of_bytes(network)) == 2
    made, (want,) = tensorlang.compile(network)(x), reference(qdq(transposed, 21), x)
    assert np.abs(made - want).max() < 0.02 * np.abs(want).max()


def _above(op: Any) -> set[Any]:
    found, waiting = {op}, [op]
    while waiting:
        for tensor in waiting.pop().input_tensors:
            if tensor.op not in found:
                found.add(tensor.op)
                waiting.append(tensor.op)
    return found


def test_other_widths_are_refused() -> None:
    onnx = pytest.importorskip("onnx")
    nodes = [node("QuantizeLinear", "x s", "y", output_dtype=onnx.TensorProto.INT4)]
    with pytest.raises(UnsupportedModel, match="elements of the ONNX type int4"):
        from_onnx(model(nodes, {"x": (3,)}, "y", {"s": np.float32(1)}, opset=21))
