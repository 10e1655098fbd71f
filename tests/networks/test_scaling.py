"""Factors of channels in weights: the same results, and none where somebody else reads what they are multiplied to."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tensorlang.ir.expr import Binary, walk
from tensorlang.networks.compiling import compile_network, program_of
from tensorlang.networks.onnx.reading import from_onnx
from tensorlang.networks.scaling import scaled
from tensorlang.te.operation import ComputeOp
from tests.networks.models import drawn, model, node, reference

NORM = {
    "s": np.abs(drawn(8, seed=4)) + 0.5,
    "t": drawn(8, seed=5),
    "m": drawn(8, seed=6),
    "v": np.abs(drawn(8, seed=7)) + 0.5,
    "b": drawn(8, seed=8),
}
WIDE, DEEP = drawn(8, 8, 3, 3, seed=1) * 0.2, drawn(8, 1, 3, 3, seed=2) * 0.3
BATCH_NORM = node("BatchNormalization", "c s t m v", "n")
LAST = node("Relu", "n", "y")

TAKEN: dict[str, tuple[list[Any], Any, str]] = {
    "plain": ([node("Conv", "x w", "c", pads=[1] * 4), BATCH_NORM, LAST], WIDE, "y"),
    "bias": ([node("Conv", "x w b", "c", pads=[1] * 4), BATCH_NORM, LAST], WIDE, "y"),
    "depthwise": ([node("Conv", "x w b", "c", group=8), BATCH_NORM, LAST], DEEP, "y"),
    "norm of a norm": (
        [node("Conv", "x w", "a"), node("BatchNormalization", "a t s v v", "c"), BATCH_NORM, LAST],
        WIDE,
        "y",
    ),
    "weights of two": (
        [node("Conv", "x w", "c"), BATCH_NORM, node("Conv", "x w", "d"), node("Add", "n d", "y")],
        WIDE,
        "y",
    ),
}
LEFT: dict[str, tuple[list[Any], Any, str]] = {
    "an output": ([node("Conv", "x w", "c"), BATCH_NORM, LAST], WIDE, "y c"),
    "read twice": ([node("Conv", "x w", "c"), BATCH_NORM, node("Add", "n c", "y")], WIDE, "y"),
    "activated before": ([node("Conv", "x w", "a"), node("Relu", "a", "c"), BATCH_NORM, LAST], WIDE, "y"),
}


def made(nodes: list[Any], weight: Any, outputs: str) -> tuple[Any, Any]:
    return model(nodes, {"x": (1, 8, 6, 6)}, outputs, {"w": weight, **NORM}), drawn(1, 8, 6, 6, seed=9)


def factors(proto: Any) -> int:
    """Products in stages that are no sums, after scaling."""
    network = from_onnx(proto)
    program, weights = scaled(program_of(network)[0], network.weights)
    assert set(weights) <= {op.name for op in program.ops}
    rest = [op for op in program.ops if isinstance(op, ComputeOp) and not op.reduce_axes]
    return sum(isinstance(e, Binary) and e.op == "mul" for op in rest for body in op.body for e in walk(body))


@pytest.mark.sampled(4)
@pytest.mark.parametrize("case", [*TAKEN, *LEFT])
def test_results_are_the_same(case: str) -> None:
    nodes, weight, outputs = (TAKEN | LEFT)[case]
    proto, x = made(nodes, weight, outputs)
    assert (factors(proto) > 0) is (case in LEFT)
    found = compile_network(from_onnx(proto), "interpreter" if case in LEFT else None).run([x])
    for got, want in zip(found, reference(proto, x), strict=True):
        np.testing.assert_allclose(got, want, rtol=2e-5, atol=2e-5)


def test_factors_that_no_weight_can_take_stay() -> None:
    proto, _ = made(*TAKEN["plain"])
    network = from_onnx(proto)
    program, _ = program_of(network)
    infinite = {n: np.full_like(a, np.inf) if a.shape == (8,) else a for n, a in network.weights.items()}
    assert scaled(program, infinite)[0].text == program.text
