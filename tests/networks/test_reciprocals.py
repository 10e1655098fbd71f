"""Divisions by constants are products, where reciprocals are normal floats and numerics need not be strict."""

from __future__ import annotations

import numpy as np
import pytest

from tensorlang import te
from tensorlang.networks import from_onnx
from tensorlang.networks.compiling import compile_network
from tensorlang.networks.reciprocals import without_divisions
from tensorlang.te.program import canonical
from tests.networks.models import drawn, model, node


@pytest.mark.parametrize(
    ("divisor", "dtype", "multiplies"),
    [
        (0.3, "float32", True),
        (-8.0, "float64", True),
        (0.0, "float32", False),
        (2e38, "float32", False),  # whose reciprocal is subnormal
        (1e-39, "float32", False),
        (float("inf"), "float32", False),
        (0.3, "float16", False),
    ],
)
def test_which_divisions_are_products(divisor: float, dtype: str, multiplies: bool) -> None:
    x = te.placeholder((4,), dtype, "x")
    y = te.compute((4,), lambda i: x[i] / te.const(divisor, dtype) + 1, name="y")
    program = without_divisions(canonical([y])[0])
    assert ("/" not in program.text) is multiplies


def test_a_network_multiplies_unless_numerics_are_strict() -> None:
    x, divisor = drawn(3, 50), np.float32(0.3)
    network = from_onnx(model([node("Div", "x s", "y")], {"x": (3, 50)}, "y", {"s": divisor.reshape(())}))
    fast, strict = (compile_network(network, None, None, numerics)(x) for numerics in ("default", "strict"))
    np.testing.assert_array_equal(strict, x / divisor)
    np.testing.assert_array_almost_equal_nulp(fast, strict, 2)
