"""Constant factors in weights and other constants: the same results, and none where somebody else reads those."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tensorlang.ir.expr import Binary, walk
from tensorlang.networks.compiling import compile_network, program_of
from tensorlang.networks.factors import with_factors_ahead
from tensorlang.networks.onnx.reading import from_onnx
from tensorlang.te.operation import ComputeOp
from tests.networks.models import drawn, model, node

WEIGHTS = {
    "s": drawn(8),
    "t": drawn(8, seed=1),
    "k": np.float32(7),
    "n": np.float32(-7),
    "huge": np.float32(3e38),
    "two": np.float32(2),
}
SCALED = [node("Mul", "x s", "a"), node("Add", "a t", "b")]

TAKEN: dict[str, tuple[list[Any], str, int]] = {
    "scale and bias": ([*SCALED, node("Mul", "b k", "y")], "y", 1),
    "bias first": ([node("Sub", "x t", "a"), node("Mul", "a s", "b"), node("Mul", "b n", "y")], "y", 1),
    "activated": ([*SCALED, node("Relu", "b", "c"), node("Mul", "c k", "y")], "y", 1),
    "constants": ([node("Mul", "x k", "a"), node("Mul", "a n", "b"), node("Mul", "b two", "y")], "y", 1),
    "a sum of two": (
        [*SCALED, node("Mul", "x two", "c"), node("Sub", "b c", "d"), node("Mul", "d k", "y")],
        "y",
        2,
    ),
}
LEFT: dict[str, tuple[list[Any], str, int]] = {
    "an output": ([*SCALED, node("Mul", "b k", "y")], "y b", 2),
    "read twice": ([*SCALED, node("Mul", "b k", "c"), node("Add", "b c", "y")], "y", 2),
    "weights read twice": ([*SCALED, node("Mul", "b k", "c"), node("Add", "c t", "y")], "y", 2),
    "activated, below 0": ([*SCALED, node("Relu", "b", "c"), node("Mul", "c n", "y")], "y", 2),
    "not known": ([node("Add", "x x", "a"), node("Mul", "a k", "y")], "y", 1),
    "too large": ([node("Mul", "x k", "a"), node("Mul", "a huge", "y")], "y", 2),
}


@pytest.mark.parametrize("name", [*TAKEN, *LEFT])
def test_which_factors_are_told_ahead(name: str) -> None:
    nodes, outputs, wanted = (TAKEN | LEFT)[name]
    network, x = from_onnx(model(nodes, {"x": (3, 8)}, outputs, WEIGHTS)), drawn(3, 8, seed=9) / 8
    program, weights = with_factors_ahead(program_of(network)[0], network.weights)
    bodies = [body for op in program.ops if isinstance(op, ComputeOp) for body in op.body]
    assert sum(isinstance(e, Binary) and e.op == "mul" for body in bodies for e in walk(body)) == wanted
    changed = any(weights[k] is not network.weights[k] for k in weights)
    assert changed == (name in TAKEN and name != "constants")
    fast, strict = (compile_network(network, None, None, numerics).run([x])[0] for numerics in ("default", "strict"))
    np.testing.assert_allclose(fast, strict, rtol=1e-5, atol=1e-6)
