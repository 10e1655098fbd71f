"""Operators beside the reference of the onnx package: one by one here, and all of that package's own tests by night."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest

from benchmarks.zoo.backend_tests import FAILED, PASSED, cases, ending, reason
from tensorlang.errors import ArgumentError, DefinitionError
from tensorlang.networks.compiling import compile_network
from tensorlang.networks.onnx.reading import from_onnx
from tensorlang.networks.refusal import UnsupportedModel
from tests.networks.models import calling, drawn, model, node, onnx, reference
from tests.profiles import NIGHTLY

UNARY = [
    "Abs", "Asin", "Atan", "Ceil", "Celu", "Cos", "Elu", "Erf", "Exp", "Floor", "Gelu", "HardSigmoid", "HardSwish",
    "Identity", "LeakyRelu", "Neg", "Reciprocal", "Relu", "Round", "Selu", "Sigmoid", "Sign", "Sin", "Softplus",
    "Softsign", "Tan", "Tanh", "ThresholdedRelu",
]  # fmt: skip
BINARY = ["Add", "Div", "Max", "Mean", "Min", "Mul", "Pow", "PRelu", "Sub", "Sum"]
REDUCED = ["L1", "L2", "LogSum", "LogSumExp", "Max", "Mean", "Min", "Prod", "Sum", "SumSquare"]


def test_operators_one_by_one() -> None:
    x, y = np.abs(drawn(2, 3, 4)) / 4 + 0.1, drawn(3, 1, seed=2)
    x[0] *= -1.0
    weights = {"axes": np.array([1]), "slope": drawn(3, 1, seed=3), "square": np.float32(2)}
    nodes = [node(op, "x", op) for op in UNARY]
    nodes += [node("Abs", "x", "positive"), node("Sqrt", "positive", "Sqrt"), node("Mish", "positive", "Mish")]
    second = {"Pow": "square", "PRelu": "slope"}
    nodes += [node(op, f"x {second.get(op, 'y')}", op) for op in BINARY]
    nodes += [node(f"Reduce{op}", "positive axes", f"Reduce{op}") for op in REDUCED]
    outputs = [n.output[0] for n in nodes if n.output[0] != "positive"]
    proto = model(nodes, {"x": x.shape, "y": y.shape}, " ".join(outputs), weights, opset=20)
    made = compile_network(from_onnx(proto), "interpreter")(x, y)
    for name, got, want in zip(outputs, made, reference(proto, x, y), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5, err_msg=name)


PLACES = {
    "x": drawn(2, 4, 5),
    "image": drawn(1, 2, 5, 4, seed=1),
    "volume": drawn(1, 2, 4, 5, 4, seed=2),
    "grid": drawn(1, 3, 3, 2, seed=3) * 0.8,
    "n": np.random.default_rng(4).integers(-90, 90, (2, 4, 5)).astype(np.int32),
    "at": np.array([[[0, 1, -1, 2, 1]], [[3, 0, 0, 1, 2]]]),
    "pairs": np.array([[0, 3], [1, 0], [0, -1]]),
    "rows": drawn(3, 5, seed=5),
    "few": drawn(2, 1, 5, seed=6),
    "columns": drawn(2, 12, 12, seed=7),
}
"""Inputs: numbers, images, places in them."""
HELD = {
    "k": np.array([3]),
    "axis": np.array(1),
    "filter": drawn(4, 1, 2, 3, 2, seed=7),
    "turned": drawn(2, 1, 3, 2, seed=8),
    "wide": np.array([1, 2, 7, 3]),
    "small": np.array([1, 2, 2, 3]),
    "lengths": np.array([2, 5]),
    "w": drawn(1, 3, 5, seed=11),
    "r": drawn(1, 3, 3, seed=12),
    "b": drawn(1, 6, seed=13),
    "seven": np.array(7, np.int32),
    "wanted": np.array([5, 6]),
    "pieces": np.array([2, 3]),
    "held": np.array([0, 1, 2, 3, 5], np.uint32),
}
"""Weights."""
USES: list[Any] = [
    node("GatherND", "x pairs", "GatherND"),
    node("ScatterElements", "x at few", "ScatterElements", axis=1),
    node("ScatterElements", "x at few", "Scatter_max", axis=1, reduction="max"),
    node("ScatterND", "x pairs rows", "ScatterND"),
    node("ScatterND", "x pairs rows", "ScatterND_add", reduction="add"),
    node("TopK", "x k", "TopK places", axis=-1),
    node("TopK", "n k", "TopK_least places_least", axis=1, largest=0),
    node("CumSum", "x axis", "CumSum", reverse=1, exclusive=1),
    node("ReverseSequence", "x lengths", "ReverseSequence", batch_axis=0, time_axis=2),
    node("Einsum", "x rows", "Einsum", equation="bij,kj->bik"),
    node("Einsum", "x few", "Einsum_sums", equation="b...j,bij->j"),
    node("BitShift", "unsigned held", "BitShift", direction="RIGHT"),
    node("Mod", "n seven", "Mod"),
    node("Hardmax", "x", "Hardmax", axis=1),
    node("ArgMax", "x", "ArgMax", axis=2, select_last_index=1),
    node("EyeLike", "rows", "EyeLike", k=1),
    node("LpPool", "image", "LpPool", kernel_shape=[2, 2], strides=[2, 1]),
    node("AveragePool", "image", "counted", kernel_shape=[2, 2], strides=[2, 2], pads=[1, 1, 0, 0], ceil_mode=1,
         count_include_pad=1),
    node("MaxPool", "volume", "MaxPool", kernel_shape=[2, 2, 3], strides=[1, 2, 1], pads=[1, 0, 1, 0, 1, 1]),
    node("AveragePool", "volume", "AveragePool", kernel_shape=[2, 3, 2], pads=[1, 1, 0, 0, 1, 1]),
    node("Conv", "volume filter", "Conv", group=2, strides=[2, 1, 1], pads=[1, 1, 0, 0, 1, 1], dilations=[1, 2, 1]),
    node("ConvTranspose", "image turned", "ConvTranspose", strides=[2, 2], auto_pad="SAME_UPPER"),
    node("Resize", "image - - wide", "Resize_cubic", mode="cubic"),
    node("Resize", "image - - small", "Resize_small", mode="linear", antialias=1),
    node("GridSample", "image grid", "GridSample", padding_mode="reflection"),
    node("GridSample", "image grid", "GridSample_cubic", mode="cubic", align_corners=1),
    node("RNN", "rows3 w r b", "RNN last", hidden_size=3, direction="reverse"),
    node("Col2Im", "columns wanted pieces", "Col2Im", strides=[2, 1], pads=[1, 0, 0, 2], dilations=[1, 2]),
]  # fmt: skip
"""Operators for places, orders and volumes."""


def test_operators_that_move_and_order() -> None:
    given = dict(PLACES)
    given["unsigned"] = np.abs(PLACES["n"]).astype(np.uint32)
    given["rows3"] = PLACES["rows"][:, None]
    outputs = [name for use in USES for name in use.output]
    shapes = {name: array.shape for name, array in given.items()}
    kinds = {name: array.dtype for name, array in given.items()}
    proto = model(USES, shapes, " ".join(outputs), HELD, opset=20, dtypes=kinds)
    network = from_onnx(proto)
    made = compile_network(network, "interpreter")(*(given[name] for name in network.input_names))
    for name, got, want in zip(outputs, made, reference(proto, *given.values()), strict=True):
        assert (got.shape, got.dtype) == (want.shape, want.dtype), name
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5, err_msg=name)


def test_bits_as_another_type() -> None:
    given = {"x": drawn(2, 3), "i": np.array([[-1, 7]], np.int8), "t": np.array([True, False])}
    number = onnx.TensorProto
    to = {"a": ("x", number.INT32), "b": ("i", number.UINT8), "c": ("t", number.UINT8), "d": ("i", number.BOOL)}
    nodes = [node("BitCast", name, out, to=kind) for out, (name, kind) in to.items()]
    shapes, kinds = ({name: getattr(v, what) for name, v in given.items()} for what in ("shape", "dtype"))
    made = compile_network(from_onnx(model(nodes, shapes, "a b c d", opset=26, dtypes=kinds)), "interpreter")
    wanted = given["x"].view(np.int32), given["i"].view(np.uint8), given["t"].view(np.uint8), given["i"] != 0
    for got, want in zip(made(*given.values()), wanted, strict=True):
        assert got.dtype == want.dtype
        np.testing.assert_array_equal(got, want)
    with pytest.raises(UnsupportedModel, match="BitCast of float32 to int8, which has other bits"):
        from_onnx(model([node("BitCast", "x", "y", to=number.INT8)], {"x": (2,)}, "y", opset=26))


def test_floats_of_8_bits_keep_within_these() -> None:
    """A product of weights that are floats of 8 bits is one of numbers, and no sum of integers."""
    kinds = {"e4m3": onnx.TensorProto.FLOAT8E4M3FN, "e5m2": onnx.TensorProto.FLOAT8E5M2}
    x = np.array([[1.3, -2e5, np.inf, 0.07, np.nan, 440.0]], np.float32)
    weights: dict[str, Any] = {"scale": np.float32(0.5), "w": drawn(6, 4)}
    nodes, outputs = [], []
    for name, kind in kinds.items():
        nodes += [node("Cast", "x", f"{name}_in", to=kind), node("Cast", f"{name}_in", f"{name}_out", to=1)]
        nodes += [
            node("Cast", "x", f"{name}_far", to=kind, saturate=0),
            node("Cast", f"{name}_far", f"{name}_all", to=1),
        ]
        nodes += [
            node("QuantizeLinear", "w scale", f"{name}_w", output_dtype=kind),
            node("DequantizeLinear", f"{name}_w scale", f"{name}_held"),
            node("MatMul", f"y {name}_held", f"{name}_product"),
        ]
        outputs += [f"{name}_out", f"{name}_all", f"{name}_product"]
    proto, y = model(nodes, {"x": (1, 6), "y": (2, 6)}, " ".join(outputs), weights, opset=23), drawn(2, 6)
    made = compile_network(from_onnx(proto), "interpreter")(x, y)
    for name, got, want in zip(outputs, made, reference(proto, x, y), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-5, err_msg=name)


def test_functions_of_onnx_and_of_the_model() -> None:
    """ONNX defines MeanVarianceNormalization and others by others, and models bring functions of their own."""
    proto, given = calling(), [drawn(2, 3), drawn(3, seed=1), drawn(1, 2, 3, 4, seed=2)]
    made = compile_network(from_onnx(proto), "interpreter")(*given)
    for output, got, want in zip(proto.graph.output, made, reference(proto, *given), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5, err_msg=output.name)


def test_functions_that_cannot_be_read() -> None:
    helper = onnx.helper
    circle = [
        helper.make_function("here", a, ["a"], ["b"], [helper.make_node(b, ["a"], ["b"], domain="here")], [])
        for a, b in (("First", "Second"), ("Second", "First"))
    ]
    call = node("First", "x", "y")
    call.domain = "here"
    proto = model([call], {"x": (2,)}, "y")
    proto.functions.extend(circle)
    with pytest.raises(DefinitionError, match="calls itself"):
        from_onnx(proto)
    del proto.functions[:]
    proto.functions.append(
        helper.make_function("here", "First", ["a"], ["b"], [helper.make_node("NonZero", ["a"], ["b"])], [])
    )
    with pytest.raises(UnsupportedModel, match=r"NonZero\): this operator is not known yet"):
        from_onnx(proto)


def test_a_backend_of_the_onnx_package() -> None:
    from tensorlang.networks.onnx import backend

    nodes = [node("Relu", "x", "positive"), node("Reshape", "positive shape", "y")]
    proto = model(nodes, {"x": ("n", 4), "shape": (2,)}, "y", dtypes={"shape": np.int64})
    proto.graph.output[0].CopyFrom(onnx.helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, ("a", "b")))
    assert backend.supports_device("CPU") and not backend.supports_device("CUDA:0")
    assert backend.is_compatible(model([node("Relu", "x", "y")], {"x": (2,)}, "y"))
    assert not backend.is_compatible(model([node("NonZero", "x", "y")], {"x": (2,)}, "y"))
    prepared = backend.prepare(proto, target="interpreter")
    for rows, shape in ((2, (8, 1)), (3, (4, 3)), (2, (8, 1)), (2, (1, 8))):
        x = drawn(rows, 4, seed=rows)
        for given in ([x, np.array(shape)], {"shape": np.array(shape), "x": x}):
            np.testing.assert_array_equal(prepared.run(given)[0], np.maximum(x, 0).reshape(shape))
    with pytest.raises(ArgumentError, match="has the inputs x, shape, got 1"):
        prepared.run([drawn(2, 4)])
    with pytest.raises(ArgumentError, match="on the device CPU"):
        backend.prepare(proto, "CUDA")
    (made,) = backend.run_node(node("Add", "a b", "c"), [drawn(3), drawn(3, seed=1)], target="interpreter")
    np.testing.assert_array_equal(made, drawn(3) + drawn(3, seed=1))
    ahead = model([node("Reshape", "x shape", "y")], {"x": (4,), "shape": (2,)}, "y", dtypes={"shape": np.int64})
    with pytest.raises(UnsupportedModel, match=r"tell it ahead: known=\{'shape': value\}"):
        from_onnx(ahead)


def test_old_and_strange_models() -> None:
    cut = node("ConvTranspose", "x w", "y", pads=[3, 3])
    with pytest.raises(DefinitionError, match=r"the padding leaves no result of .*, \(0\) along its axes"):
        from_onnx(model([cut], {"x": (1, 1, 4)}, "y", {"w": drawn(1, 1, 3)}))
    old = model([node("Add", "x y", "z", axis=0, broadcast=1)], {"x": (2, 3), "y": (2,)}, "z", opset=6)
    made = compile_network(from_onnx(old), "interpreter")(drawn(2, 3), drawn(2, seed=1))
    np.testing.assert_array_equal(made, drawn(2, 3) + drawn(2, seed=1)[:, None])
    slopes = {"s": drawn(2)}
    with pytest.raises(DefinitionError, match="PRelu of opset 6 with slopes of channels"):
        from_onnx(model([node("PRelu", "x s", "y")], {"x": (1, 2, 3)}, "y", slopes, opset=6))
    with pytest.raises(UnsupportedModel, match="cannot be broadcast to one shape"):
        from_onnx(model([node("Add", "x y", "z")], {"x": (2, 3), "y": (2,)}, "z"))
    bools = model([node("ReduceMax", "x axes", "y")], {"x": (2, 3, 4)}, "y", {"axes": np.array([1])}, 20, {"x": bool})
    x = drawn(2, 3, 4) > 1
    np.testing.assert_array_equal(compile_network(from_onnx(bools))(x), x.max(1, keepdims=True))


@pytest.mark.skipif(not NIGHTLY, reason="two thousand programs take minutes")
def test_operators_are_those_of_onnx() -> None:
    found = [ending(case) for case in cases()]
    assert not {e.name: e.why for e in found if e.state == FAILED}
    counts = Counter(e.state for e in found)
    assert counts[PASSED] >= 1600, Counter(reason(why) for e in found for why in e.why).most_common(20)
