"""Nodes that are not taken run in onnxruntime: equal results, few calls, with reasons; what cannot be is refused."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tensorlang
from tensorlang import config
from tensorlang.errors import ArgumentError, KernelError, MissingDependency, TargetError
from tensorlang.networks import from_onnx
from tensorlang.networks.network import Network
from tensorlang.networks.onnx.rules import RULES
from tensorlang.networks.refusal import UnsupportedModel
from tensorlang.te.operation import ExternOp
from tensorlang.te.program import canonical
from tensorlang.te.reference import evaluate
from tests.cli.test_cli import run
from tests.networks.models import drawn, model, node, onnx
from tests.thoroughness import draws

onnxruntime: Any = pytest.importorskip("onnxruntime")

COUNTED = [
    node("MatMul", "x w", "a"),
    node("Relu", "a", "b"),
    node("Det", "b", "c"),
    node("NonZero", "b", "nz"),
    node("Cast", "nz", "numbers", to=1),
    node("ReduceSum", "numbers", "count", keepdims=0),
    node("Add", "count c", "s"),
    node("Mul", "b s", "y"),
]
"""A determinant, and a sum of places whose number nobody knows."""
X = drawn(4, 4, seed=3)


def counted() -> Any:
    return model(COUNTED, {"x": (4, 4)}, "y count", {"w": drawn(4, 4)})


def wanted(proto: Any, **inputs: Any) -> list[Any]:
    found: list[Any] = onnxruntime.InferenceSession(proto.SerializeToString()).run(None, inputs)
    return found


def evaluated(network: Network, **inputs: Any) -> list[Any]:
    """What a network makes by the reference of programs: no kernel is built."""
    program, names = canonical([*network.outputs, *network.inputs])
    held = {names[id(t.op)]: inputs[word] for word, t in zip(network.input_names, network.inputs, strict=True)}
    values = evaluate(program, held | {n: a for n, a in network.weights.items() if n in program.buffers})
    return [values[names[id(t.op)]] for t in network.outputs]


def parts(network: Network) -> list[ExternOp]:
    program, _ = canonical([*network.outputs, *network.inputs])
    return [op for op in program.ops if isinstance(op, ExternOp)]


def test_nodes_run_in_onnxruntime_and_the_report_says_why(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with config.override(log="networks"):
        network = from_onnx(counted(), fallback="onnxruntime")
    assert "onnxruntime runs 4 nodes of small:\n  the c (Det): this operator" in capsys.readouterr().err
    assert [(r.node, r.op) for r in network.fallback] == [
        ("the c", "Det"),
        ("the nz", "NonZero"),
        ("the numbers", "Cast"),
        ("the count", "ReduceSum"),
    ]
    assert network.fallback[2].why == "the shape of its input nz is known only when the network runs"
    compiled = tensorlang.compile(network)
    assert "4 nodes by onnxruntime" in repr(compiled) and compiled.fallback == network.fallback
    for _ in range(2):
        for got, want in zip(compiled(X), wanted(counted(), x=X), strict=True):
            np.testing.assert_allclose(got, want, rtol=1e-5)
    assert [row.limit for row in compiled.profile(X, repeat=1) if row.op == "onnxruntime"] == [None]
    with pytest.raises(TargetError, match=r"nodes that run in onnxruntime(.|\n)*the nz \(NonZero\)"):
        compiled.export(tmp_path / "net")
    result = compiled.tune(X, trials=0, log=tmp_path / "log")
    assert ["calls Python" in why for why in result.left.values()] == [True]


def test_on_the_command_line_and_never_from_the_cache(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "counted.onnx"
    onnx.save(counted(), path)
    with config.override(cache_dir=tmp_path / "cache", store=tmp_path / "store"):
        for _ in range(2):
            assert run(["run", str(path), "--fallback", "onnxruntime", "--check"]) == 0
            assert "by onnxruntime: the nz (NonZero): this operator is not known yet" in capsys.readouterr().out
        with pytest.raises(UnsupportedModel, match='onnxruntime may run them: fallback="onnxruntime"'):
            tensorlang.compile(path)


def test_what_lies_between_values_without_a_shape_runs_there_too() -> None:
    nodes = [
        node("NonZero", "x", "nz"),
        node("Det", "x", "d"),
        node("Relu", "d", "r"),
        node("Cast", "nz", "numbers", to=1),
        node("Mul", "numbers r", "m"),
        node("ReduceSum", "m", "y", keepdims=0),
    ]
    proto = model(nodes, {"x": (4, 4)}, "y")
    network = from_onnx(proto, fallback="onnxruntime")
    assert len(parts(network)) == 1 and len(network.fallback) == 6
    assert "lies between" in next(r.why for r in network.fallback if r.node == "the r")
    np.testing.assert_allclose(evaluated(network, x=X), wanted(proto, x=X), rtol=1e-5)


def test_results_of_any_shape_are_made_at_the_end(tmp_path: Path) -> None:
    nodes = [
        node("MatMul", "x w", "a"),
        node("Relu", "a", "b"),
        node("NonZero", "b", "places"),
        node("Transpose", "places", "rows", perm=[1, 0]),
        node("ReduceSum", "b", "total", keepdims=0),
        node("ReduceMax", "rows", "most", keepdims=0),
        node("Neg", "most", "least"),
        node("Exp", "b", "grown"),
    ]
    proto = model(nodes, {"x": (4, 4)}, "rows total least grown b", {"w": drawn(4, 4)})
    onnx.save(proto, tmp_path / "places.onnx")
    compiled = tensorlang.compile(tmp_path / "places.onnx", fallback="onnxruntime")
    assert [(r.node, r.why.partition(" ")[0]) for r in compiled.fallback] == [
        ("the places", "this"),
        ("the rows", "the"),
        ("the most", "the"),
        ("the least", "it"),
    ]
    assert (
        compiled.output_names == ("rows", "total", "least", "grown", "b")
        and len(parts(from_onnx(proto, fallback="onnxruntime"))) == 0
    )
    for sign in (1, -1):
        for got, want in zip(compiled(sign * X), wanted(proto, x=sign * X), strict=True):
            assert got.shape == want.shape
            np.testing.assert_allclose(got, want, rtol=1e-5)
    assert run(["run", str(tmp_path / "places.onnx"), "--fallback", "onnxruntime", "--check", "--profile"]) == 0


def test_what_is_known_ahead_is_made_ahead() -> None:
    proto = model(
        [onnx.helper.make_node("Inverse", ["w"], ["g"], "own", domain="com.microsoft"), node("Add", "g x", "y")],
        {"x": (4, 4)},
        "y",
        {"w": drawn(4, 4)},
    )
    proto.opset_import.append(onnx.helper.make_opsetid("com.microsoft", 1))
    network = from_onnx(proto, fallback="onnxruntime")
    assert parts(network) == [] and network.fallback[0].why == "this operator of onnxruntime is not known yet"
    np.testing.assert_allclose(evaluated(network, x=X), wanted(proto, x=X), rtol=1e-5)


def test_a_graph_within_a_node_reads_what_is_around_it() -> None:
    inner = [
        onnx.helper.make_graph([inside], "inner", [], [onnx.helper.make_empty_tensor_value_info("z")])
        for inside in (node("Det", "b", "z"), node("ReduceMax", "b", "z", keepdims=0))
    ]
    nodes = [
        node("Relu", "x", "b"),
        node("ReduceMax", "x", "most", keepdims=0),
        node("Greater", "most limit", "high"),
        node("If", "high", "c", then_branch=inner[0], else_branch=inner[1]),
        node("Reshape", "c whole", "flat"),
        node("Add", "flat b", "y"),
    ]
    proto = model(nodes, {"x": (4, 4)}, "y", {"limit": np.float32(0), "whole": np.array([1])})
    network = from_onnx(proto, fallback="onnxruntime")
    assert len(parts(network)) == 1
    for sign in (1, -1):
        np.testing.assert_allclose(
            evaluated(network, x=sign * abs(X)), wanted(proto, x=sign * abs(X)), rtol=1e-5, atol=1e-6
        )


@st.composite
def graphs(draw: st.DrawFn) -> tuple[list[Any], str]:
    """Nodes in order, each of one or two values before it; what nobody reads is an output."""
    names, nodes = ["x"], list[Any]()
    for number in range(draw(st.integers(2, draws(9, 20)))):
        op = draw(st.sampled_from(["Relu", "Neg", "Add", "Erf", "Max"]))
        count = 2 if op in ("Add", "Max") else 1
        read = [draw(st.sampled_from(names[-4:])) for _ in range(count)]
        nodes.append(node(op, " ".join(read), f"v{number}"))
        names.append(f"v{number}")
    read_names = {name for n in nodes for name in n.input}
    return nodes, " ".join(name for name in names[1:] if name not in read_names)


@settings(max_examples=draws(15, 200))
@given(graphs())
def test_any_graph_in_parts_without_circles(drawn_graph: tuple[list[Any], str]) -> None:
    nodes, outputs = drawn_graph
    proto = model(nodes, {"x": (2, 3)}, outputs)
    x = drawn(2, 3, seed=len(nodes))
    with pytest.MonkeyPatch.context() as patch:
        patch.delitem(RULES, "Neg")
        patch.delitem(RULES, "Max")
        network = from_onnx(proto, fallback="onnxruntime")
    foreign = [n.name for n in nodes if n.op_type in ("Neg", "Max")]
    assert [r.node for r in network.fallback] == sorted(foreign, key=[r.node for r in network.fallback].index)
    assert len(network.fallback) == len(foreign)
    levels = entered(nodes, {"Neg", "Max"})
    assert len(parts(network)) == len(levels)
    for got, want in zip(evaluated(network, x=x), wanted(proto, x=x), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)


def entered(nodes: list[Any], foreign: set[str]) -> set[int]:
    """How often ways to foreign nodes enter such nodes, at most: as many calls as no order of the nodes can spare."""
    depth, found = {"x": (0, False)}, set[int]()
    for n in nodes:
        own = n.op_type in foreign
        level = max(depth[name][0] + (own and not depth[name][1]) for name in n.input)
        depth[n.output[0]] = level, own
        found |= {level} if own else set()
    return found


def test_what_cannot_run_there_is_refused() -> None:
    nowhere = model([node("Nonsense", "x", "a"), node("Relu", "a", "y")], {"x": (4, 4)}, "y")
    with pytest.raises(UnsupportedModel, match="not known yet; onnxruntime does not take it either"):
        from_onnx(nowhere, fallback="onnxruntime")
    with pytest.raises(ArgumentError, match="fallback is 'onnxruntime' or None, got 'tensorrt'"):
        from_onnx(counted(), fallback="tensorrt")
    with pytest.raises(ArgumentError, match="give fallback to from_onnx"):
        tensorlang.compile(from_onnx(model([node("Relu", "x", "y")], {"x": (4,)}, "y")), fallback="onnxruntime")


def test_in_a_model_of_open_sizes() -> None:
    proto = model([node("Det", "x", "d"), node("Relu", "d", "y")], {"x": ("n", 3, 3)}, "y")
    compiled = tensorlang.compile_dynamic(proto, fallback="onnxruntime")
    for rows in (2, 5):
        np.testing.assert_allclose(
            compiled(drawn(rows, 3, 3)), wanted(proto, x=drawn(rows, 3, 3))[0], rtol=1e-5, atol=1e-6
        )


def test_without_onnxruntime(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    with pytest.raises(MissingDependency, match=r"pip install(.|\n)*the nz \(NonZero\)"):
        from_onnx(counted(), fallback="onnxruntime")
    network = from_onnx(model([node("Relu", "x", "y")], {"x": (4,)}, "y"), fallback="onnxruntime")
    assert network.fallback == ()


def test_a_model_that_says_wrong_shapes() -> None:
    proto = model(
        [onnx.helper.make_node("Inverse", ["x"], ["g"], "own", domain="com.microsoft"), node("Relu", "g", "y")],
        {"x": (4, 4)},
        "y",
    )
    proto.opset_import.append(onnx.helper.make_opsetid("com.microsoft", 1))
    proto.graph.value_info.append(onnx.helper.make_tensor_value_info("g", onnx.TensorProto.FLOAT, (1, 4)))
    compiled = tensorlang.compile(from_onnx(proto, fallback="onnxruntime"))
    with pytest.raises(KernelError, match=r"made g as float32\[4, 4\], and the model says float32\[1, 4\]"):
        compiled(X)
