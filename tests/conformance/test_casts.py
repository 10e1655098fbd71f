"""Floats become the nearest integer that their goal has, NaN becomes 0, and bool tells what is not zero: everywhere."""

from __future__ import annotations

from fractions import Fraction
from math import isinf, isnan
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from numpy.typing import NDArray

import tensorlang
from tensorlang import dtypes, nd, te
from tensorlang.te.reference import evaluate
from tensorlang.testing.cuda_emulation import emulate_program, unavailable

Array = NDArray[Any]
SOURCES = [d.name for d in dtypes.TABLE.values() if d.is_float]
GOALS = [d.name for d in dtypes.TABLE.values() if d.is_integer or d.kind == "bool"]
LANES = 16


def edges(source: str) -> Array:
    """Zeros, fractions, the extremes, and what lies on and beside every limit of every integer."""
    kind = dtypes.info(source).numpy
    facts = ml_dtypes.finfo(kind)
    limits = [float(x) for goal in GOALS for limit in dtypes.limits(goal) for x in (limit, limit + 1, -limit)]
    plain = [0.0, -0.0, 0.5, -0.5, 0.99, -0.99, 1.5, -1.5, 100.7, -100.7, 1e9, -1e9, 1e30, -1e30, np.nan]
    drawn = np.random.default_rng(1).normal(0, 1, 80) * 2.0 ** np.arange(80)
    with np.errstate(all="ignore"):
        found = np.array([*plain, *limits, *drawn, np.inf, -np.inf], np.float64).astype(kind)
        ends = np.array([facts.max, facts.min, facts.tiny, facts.smallest_subnormal], kind)
        beside = [np.nextafter(found, np.array(side, kind)) for side in (facts.max, facts.min)]
    values = np.concatenate([found, ends, *beside])
    return np.concatenate([values, np.zeros(-len(values) % LANES, kind)])


def wanted(values: Array, goal: str) -> list[int]:
    """The rule, in whole numbers."""
    low, high = (int(limit) for limit in dtypes.limits(goal))
    numbers = values.astype(np.float64).tolist()
    if goal == "bool":
        return [int(x != 0) for x in numbers]
    whole = [0 if isnan(x) else (high if x > 0 else low) if isinf(x) else int(Fraction(x)) for x in numbers]
    return [min(max(x, low), high) for x in whole]


INPUTS = [te.placeholder(edges(source).shape, source, name=f"A{n}") for n, source in enumerate(SOURCES)]
CASTS = [
    te.compute(A.shape, lambda i, A=A: tuple(A[i].astype(goal) for goal in GOALS), name=f"B{n}")
    for n, A in enumerate(INPUTS)
]
MADE = [tensor for several in CASTS for tensor in several]


def run(target: str) -> list[Array]:
    """All values as all integers, by one program."""
    s = te.create_schedule([several[0].op for several in CASTS])
    for several in CASTS:
        rest, lanes = s[several[0]].split(several[0].op.axis[0], LANES)
        if "vectors" in target:
            s[several[0]].vectorize(lanes)
        elif target in ("cuda", "opencl", "threads"):
            s[several[0]].bind(rest, te.thread_axis("blockIdx.x"))
            s[several[0]].bind(lanes, te.thread_axis("threadIdx.x"))
    values = [edges(source) for source in SOURCES]
    results = [np.zeros(values[n // len(GOALS)].shape, tensor.dtype) for n, tensor in enumerate(MADE)]
    if target == "cuda":
        if why := unavailable():
            pytest.skip(why)
        kernel = tensorlang.lower(s, [*INPUTS, *MADE], target="cuda -arch=sm_80").kernel
        arrays = {p.name: x for p, x in zip(kernel.params, [*values, *results], strict=True)}
        emulate_program(kernel, arrays, arch="sm_80")
        return results
    if target == "opencl" and not nd.device("opencl").exist:
        pytest.skip("no OpenCL device")
    name = {"llvm vectors": "llvm", "threads": "interpreter"}.get(target, target)
    tensorlang.build(s, [*INPUTS, *MADE], target=name)(*values, *results)
    return results


@pytest.mark.parametrize("target", ["llvm", "llvm vectors", "interpreter", "threads", "opencl", "cuda"])
def test_every_target_saturates(target: str) -> None:
    for n, got in enumerate(run(target)):
        source, goal = SOURCES[n // len(GOALS)], GOALS[n % len(GOALS)]
        assert [int(x) for x in got] == wanted(edges(source), goal), (source, goal)


def test_the_reference_saturates() -> None:
    program = te.create_schedule([several[0].op for several in CASTS]).program
    found = evaluate(program, [edges(source) for source in SOURCES])
    assert len(found) == len(MADE)
    for n, got in enumerate(found.values()):
        source, goal = SOURCES[n // len(GOALS)], GOALS[n % len(GOALS)]
        assert [int(x) for x in got] == wanted(edges(source), goal), (source, goal)
