"""Models of others are data: whatever one asks for is read, or refused in words, before anything large is made."""

from __future__ import annotations

import random
import resource
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tensorlang
from tensorlang.errors import DefinitionError, TensorlangError
from tensorlang.networks.onnx.reading import from_onnx
from tensorlang.networks.onnx.scopes import Allowance
from tensorlang.networks.refusal import UnsupportedModel
from tensorlang.networks.report import inspect
from tests.networks.models import block, calling, drawn, graph, model, node
from tests.networks.test_control import chosen, newton
from tests.thoroughness import draws

HUGE = np.array([2**40])
ONE = np.zeros(1, np.float32)
IMAGE = {"x": (1, 1, 4, 4)}
BYTES = {"k": np.zeros((2, 3), np.int8), "s": np.ones(5, np.float32)}
FILTER = {"w": drawn(1, 1, 3, 3)}


@pytest.fixture(autouse=True)
def little_memory() -> Iterator[None]:
    """16 GiB more of addresses than are in use: what is made in spite of its size fails here, and not the machine."""
    if sys.platform != "linux":
        yield
        return
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    before = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (used + (16 << 30), before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_AS, before)


@pytest.mark.parametrize(
    ("nodes", "inputs", "weights", "why"),
    [
        ([node("ConstantOfShape", "k", "c"), node("Add", "x c", "y")], {"x": (1,)}, {"k": HUGE}, "8,796,093,022,208"),
        ([node("Expand", "x k", "y")], {"x": (1,)}, {"k": HUGE}, "4,398,046,511,104 bytes; this machine has"),
        ([node("Tile", "w k", "c"), node("Add", "x c", "y")], {"x": (1,)}, {"k": HUGE, "w": ONE}, "this machine has"),
        ([node("Resize", "x - s", "y")], IMAGE, {"s": np.array([1, 1, 1e9, 1e9], np.float32)}, "this machine has"),
        ([node("Relu", "x", "y")], {"x": (2**40, 2**40)}, {}, "the input x has the shape"),
        ([node("Relu", "x", "y")], {"x": (-3,)}, {}, "no extent is below 0"),
        ([node("Add", "x b", "y"), node("Relu", "y", "b")], {"x": (4,)}, {}, "no node of the model makes its out"),
        ([node("Conv", "x w", "y", pads=[2**40] * 4)], IMAGE, FILTER, "does not fit int32"),
        ([node("Conv", "x w", "y", strides=[0, 0])], IMAGE, FILTER, "at least 1"),
        ([node("DequantizeLinear", "k s", "c"), node("Add", "x c", "y")], {"x": (1,)}, BYTES, "cannot be evaluated"),
        ([node("QuantizeLinear", "s s s", "c"), node("Add", "x c", "y")], {"x": (1,)}, BYTES, "cannot be evaluated"),
        ([node("MaxPool", "x", "y")], IMAGE, {}, "MaxPool is not as ONNX has it: .*kernel_shape"),
        ([node("Add", "x w", "y")], {"x": (2, 3)}, {"w": drawn(2, 4)}, "Add of .*cannot be broadcast to one shape"),
        ([node("GridSample", "x w", "y", mode="best")], IMAGE, {"w": drawn(1, 2, 2, 2)}, "GridSample of mode best"),
        ([node("ScatterElements", "x k w", "y")], {"x": (3,)}, {"k": np.array([[1]]), "w": drawn(1, 1)}, "of updates"),
        ([node("ScatterND", "x k w", "y")], {"x": (3, 2)}, {"k": np.array([[1]]), "w": drawn(1, 1)}, "of updates"),
        ([node("GatherND", "x k", "y")], {"x": (3,)}, {"k": np.array([[1, 1]])}, r"GatherND of \(3,\) at indices"),
        ([node("TopK", "x k", "y p")], {"x": (3,)}, {"k": np.array([5])}, "TopK of 5 among 3 elements"),
    ],
)
def test_what_a_model_cannot_have(nodes: list[Any], inputs: Any, weights: Any, why: str) -> None:
    with pytest.raises(DefinitionError, match=why):
        from_onnx(model(nodes, inputs, "y", weights))


def endless(depth: int = 0) -> Any:
    """A loop that nothing ends, around others like it."""
    inner = [node("Add", "state one", "next")] if depth == 0 else [endless(depth - 1)]
    body = graph([*inner, node("Identity", "before", "go")], "go next", {"i": 0, "before": True, "state": ONE})
    return node("Loop", "- - one", "next", body=body)


BRANCH = graph([node("Relu", "x", "a")], "a")
COLLECTED = graph([], "b s s", {"i": 0, "b": True, "s": ONE})
COUNTED = graph([node("Identity", "b", "go")], "go s", {"i": 0, "b": True, "s": ONE})


@pytest.mark.parametrize(
    ("made", "why"),
    [
        (endless(), "more than 300 nodes"),
        (endless(3), "more than 300 nodes"),
        (node("If", "yes", "y", then_branch=BRANCH), "no graph else_branch"),
        (node("If", "yes", "y", then_branch=BRANCH, else_branch=1), "no graph else_branch"),
        (node("If", "one", "y", then_branch=BRANCH, else_branch=BRANCH), "no single truth value"),
        (node("If", "yes", "y z", then_branch=BRANCH, else_branch=BRANCH), "1 outputs; 0 and at least 2"),
        (node("If", "yes", "y", then_branch=graph([], "q"), else_branch=BRANCH), "no node of its graph inner makes q"),
        (node("Loop", "one yes x", "y", body=graph([], "x")), "0 inputs and 1 outputs; 3 and at least 2"),
        (node("Loop", "huge yes x", "y z", body=COLLECTED), "its output has the shape .* this machine has"),
        (node("Loop", "", "y", body=COUNTED), "3 inputs and 2 outputs|is not as ONNX has it"),
        (node("Scan", "x", "y", body=COUNTED, num_scan_inputs=3), "3 of 1 inputs"),
        (node("Scan", "x", "y", body=COUNTED), "is not as ONNX has it|of 1 inputs"),
        (
            node("Scan", "x", "y", body=graph([], "r", {"r": ONE}), num_scan_inputs=1, scan_input_axes=[3]),
            "axis 3 of 1",
        ),
    ],
)
def test_control_flow_that_leads_nowhere(made: Any, why: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Allowance, "most", 300)
    weights = {"one": ONE, "yes": np.array(True), "huge": np.array(2**60)}
    nodes = [made, node("Relu", made.output[0], "last")]
    with pytest.raises(DefinitionError, match=why):
        from_onnx(model(nodes, {"x": (1,)}, "last", weights))


def test_branches_as_deep_as_files_have_them() -> None:
    made = graph([node("Neg", "x", "y")], "y")
    for depth in range(30):
        asked = node("If", "yes" if depth % 2 else "asked", "y", then_branch=made, else_branch=graph([], "x"))
        made = graph([asked], "y")
    proto = model(list(made.node), {"x": (2,), "asked": ()}, "y", {"yes": np.array(True)}, dtypes={"asked": np.bool_})
    small, x = tensorlang.compile(from_onnx(proto)), drawn(2)
    assert (small(x, np.array(True)) == -x).all() and (small(x, np.array(False)) == x).all()


def test_sums_that_double_are_not_written_out() -> None:
    """Each is read twice by the next: the last one has 2^40 terms."""
    nodes = [node("Add", f"y{k} y{k}", f"y{k + 1}") for k in range(40)]
    small = tensorlang.compile(from_onnx(model([node("Relu", "x", "y0"), *nodes], {"x": (4,)}, "y40")))
    assert (small(np.full(4, 2.0, np.float32)) == 2.0**41).all()


def test_names_are_shown_without_what_a_terminal_obeys() -> None:
    proto = model([node("Det", "x", "y")], {"x": (3, 3)}, "y")
    proto.graph.name = "\x1b[2Jmodel"
    proto.graph.node[0].name = "\x1b]0;node"
    with pytest.raises(UnsupportedModel) as caught:
        from_onnx(proto)
    assert str(caught.value).replace("\n", "").isprintable()


def test_damaged_files_are_read_or_refused(tmp_path: Path) -> None:
    path, goods = (
        tmp_path / "damaged.onnx",
        [made.SerializeToString() for made in (block(), chosen(), newton(), calling())],
    )
    outcomes = set()
    for seed in range(draws(60, 5000)):
        drawn_from, text = random.Random(seed), bytearray(goods[seed % len(goods)])
        for _ in range(drawn_from.choice([1, 1, 2, 4])):
            at = drawn_from.randrange(len(text))
            match drawn_from.randrange(4):
                case 0:
                    text[at] = drawn_from.choice([0, 255, drawn_from.randrange(256)])
                case 1:
                    del text[at : at + drawn_from.randrange(1, 9)]
                case 2:
                    text[at:at] = drawn_from.randbytes(drawn_from.randrange(1, 9))
                case 3:
                    text[at] ^= 1 << drawn_from.randrange(8)
        path.write_bytes(text)
        try:
            outcomes.add(inspect(path).is_supported)
        except TensorlangError:
            outcomes.add(False)
    assert outcomes == {True, False}
