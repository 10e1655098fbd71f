"""Operators beside the reference of the onnx package: one by one here, and all of that package's own tests by night."""

from __future__ import annotations

import warnings
from functools import cache
from typing import Any

import numpy as np
import pytest

from tensorlang.networks.compiling import compile_network
from tensorlang.networks.onnx.reading import from_onnx
from tensorlang.networks.refusal import UnsupportedModel
from tests.networks.models import drawn, model, node, onnx, reference
from tests.thoroughness import NIGHTLY

UNARY = [
    "Abs", "Asin", "Atan", "Ceil", "Celu", "Cos", "Elu", "Erf", "Exp", "Floor", "Gelu", "HardSigmoid", "HardSwish",
    "Identity", "LeakyRelu", "Neg", "Reciprocal", "Relu", "Round", "Selu", "Sigmoid", "Sign", "Sin", "Softplus",
    "Softsign", "Tan", "Tanh", "ThresholdedRelu",
]  # fmt: skip
BINARY = ["Add", "Div", "Max", "Mean", "Min", "Mul", "Pow", "PRelu", "Sub", "Sum"]
REDUCED = ["L1", "L2", "LogSum", "LogSumExp", "Max", "Mean", "Min", "Prod", "Sum", "SumSquare"]
_NEWEST = 26
ROUNDED_LESS: frozenset[str] = frozenset()
"""Programs in half precision that the reference rounds after each of many small steps."""
_ROUNDED = {"float16": 2e-2, "bfloat16": 5e-2}
KNOWN_AHEAD = {
    "Reshape", "Slice", "Pad", "Unsqueeze", "Squeeze", "Expand", "Tile", "Split", "Resize", "Trilu", "OneHot",
    "BatchNormalization", "Upsample", "LSTM", "GRU",
}  # fmt: skip
"""Operators of which models know all inputs but the first before they run."""


@cache
def cases() -> list[Any]:
    """Tests of one of many operators, by name; those of types that no program has are left out."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from onnx.backend.test.case.node import collect_testcases

        return [c for c in collect_testcases(None) if c.model.opset_import[0].version <= _NEWEST and _has_tensors(c)]


def _has_tensors(case: Any) -> bool:
    types = [i.type for i in (*case.model.graph.input, *case.model.graph.output)]
    elements = {t.tensor_type.elem_type for t in types if t.HasField("tensor_type")}
    return all(t.HasField("tensor_type") for t in types) and elements <= {*range(1, 8), 9, 10, 11, 12, 13, 16}


def _as_models_are(case: Any) -> tuple[Any, list[Any], list[Any]]:
    """The model with what models know ahead as weights, the other inputs, and the outputs."""
    inputs, outputs = ([_array(a) for a in arrays] for arrays in case.data_sets[0])
    proto, given = onnx.ModelProto(), []
    proto.CopyFrom(case.model)
    graph = proto.graph
    ops = {n.op_type for n in graph.node}
    ahead = bool(ops & KNOWN_AHEAD) or any(op.startswith("Reduce") for op in ops)
    for number, (info, array) in enumerate(zip(list(graph.input), inputs, strict=True)):
        if ahead and number:
            graph.initializer.append(onnx.numpy_helper.from_array(array, info.name))
            graph.input.remove(info)
        else:
            given.append(array)
    return proto, given, outputs


def _array(value: Any) -> Any:
    return np.asarray(onnx.numpy_helper.to_array(value)) if hasattr(value, "SerializeToString") else np.asarray(value)


def wrong(case: Any) -> str | None:
    """What is wrong with the outputs of a test; "" where they are right, None where the model is not taken."""
    proto, given, wanted = _as_models_are(case)
    try:
        network = from_onnx(proto)
    except UnsupportedModel:
        return None
    made = compile_network(network)(*given)
    for got, want in zip(made if isinstance(made, tuple) else (made,), wanted, strict=True):
        if got.shape != want.shape or got.dtype != want.dtype:
            return f"{got.dtype}{got.shape} for {want.dtype}{want.shape}"
        near = max(_ROUNDED.get(str(want.dtype), 1e-3), case.rtol)
        alike = want.dtype != bool and np.allclose(got.astype(float), want.astype(float), near, 1e-5, equal_nan=True)
        if not alike and not np.array_equal(got, want):
            return f"{got.ravel()[:6]} for {want.ravel()[:6]}"
    return ""


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


@pytest.mark.skipif(not NIGHTLY, reason="two thousand programs take minutes")
def test_operators_are_those_of_onnx() -> None:
    found = {case.name: wrong(case) for case in cases()}
    assert not {name: text for name, text in found.items() if text and name not in ROUNDED_LESS}
    assert sum(text == "" for text in found.values()) >= 700
