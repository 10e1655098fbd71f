"""te.hybrid.script: scripts built for every target give what they give as plain Python."""

from __future__ import annotations

from collections.abc import Mapping
from random import Random
from typing import Any

import numpy as np
import pytest
from hypothesis import given, note, settings
from hypothesis import strategies as st

import tensorlang as tvm
from tensorlang import te
from tensorlang.te.hybrid import Script
from tests.te import test_hybrid, test_hybrid_arrays
from tests.te.hybrid_runs import Array, as_python, declare, floats, from_text, whole
from tests.te.test_hybrid_property import Writer, arrays

CASES: dict[str, tuple[Script, dict[str, Any]]] = {
    "outer_product": (test_hybrid.outer_product, {"a": floats(5), "b": floats(7)}),
    "strides": (test_hybrid.strides, {"a": floats(9)}),
    "trapezoid": (test_hybrid.trapezoid, {"a": floats(6, 5)}),
    "branches": (test_hybrid.branches, {"a": floats(9)}),
    "data_dependent": (test_hybrid.data_dependent, {"a": floats(9), "b": floats(9) + 1}),
    "own_condition": (test_hybrid.own_condition, {"a": floats(9)}),
    "choices": (test_hybrid.choices, {"a": floats(9)}),
    "integers": (test_hybrid.integers, {"a": whole(9, high=30), "b": whole(9, high=5)}),
    "gathered": (test_hybrid.gathered, {"a": floats(6), "index": whole(6, high=6)}),
    "captured": (test_hybrid.captured, {"a": floats(9)}),
    "dot": (test_hybrid_arrays.dot, {"a": floats(6), "b": floats(6)}),
    "counters": (test_hybrid_arrays.counters, {"a": floats(9)}),
    "names_of_values": (test_hybrid_arrays.names_of_values, {"a": floats(4, 5)}),
    "local_arrays": (test_hybrid_arrays.local_arrays, {"a": floats(4, 5)}),
    "recurrence": (test_hybrid_arrays.recurrence, {"a": floats(6)}),
    "seidel": (test_hybrid_arrays.seidel, {"a": floats(7), "steps": 3}),
    "swap": (test_hybrid_arrays.swap, {"a": floats(5), "b": floats(5) + 1}),
    "divided": (test_hybrid_arrays.divided, {"a": whole(9, high=40), "b": whole(9, high=6) + 1}),
}


def built(script: Script, arguments: Mapping[str, Any], target: str) -> list[Array]:
    """What the script's kernel, built in the order of the script, leaves in the arrays that it returns."""
    program, tensors = declare(script, arguments, symbolic=False)
    op = tensors[0].op
    assert isinstance(op, te.HybridOp)
    inputs = {t.name: t for t in op.input_tensors}
    made = [op.output(k) for k, old in enumerate(op.updates) if old is None]
    kernel = tvm.build(te.create_schedule(op), [*inputs.values(), *made], target=target)
    held = {name: np.array(arguments[name]) for name in inputs}
    fresh = [np.zeros([int(str(e)) for e in t.shape], t.dtype) for t in made]
    kernel(*held.values(), *fresh)
    unused = iter(fresh)
    results = [held[old.name] if isinstance(old, te.Tensor) else next(unused) for old in op.updates]
    assert set(inputs) <= set(program.buffers)
    return results[: len(tensors)]


@pytest.mark.covering(1)
@pytest.mark.parametrize("target", ["interpreter", "llvm"])
@pytest.mark.parametrize("name", CASES)
def test_scripts_on_targets(name: str, target: str) -> None:
    script, arguments = CASES[name]
    for got, wanted in zip(built(script, arguments, target), as_python(script, arguments), strict=True):
        np.testing.assert_array_equal(got, wanted)


@settings(max_examples=15)
@given(st.randoms(use_true_random=False))
def test_random_scripts_on_targets(random: Random) -> None:
    text = Writer(random, room=6).script()
    note(text)
    script, arguments = from_text(text, "script"), arrays(len(text))
    wanted = as_python(script, arguments)
    for target in ("interpreter", "llvm"):
        for a, b in zip(built(script, arguments, target), wanted, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-9)
