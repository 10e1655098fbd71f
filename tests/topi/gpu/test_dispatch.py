"""Programs of several operators on a GPU: what follows one is computed where it is, what precedes it as it is read."""

from __future__ import annotations

from collections.abc import Callable
from math import prod

import numpy as np
import pytest

import tensorlang
from tensorlang import te, topi
from tensorlang.ir.stmt import Launch, walk
from tensorlang.te.operation import Tensor
from tensorlang.te.program import canonical
from tensorlang.te.reference import evaluate
from tests.topi.gpu.device_runs import GPU, TARGETS
from tests.topi.programs import close, given, shape_of

SHAPE = (12, 40)
X, Y = given("x", *SHAPE), given("y", *SHAPE)


def normalized_sum() -> list[Tensor]:
    """A sum that is a result too, and its layer norm."""
    total = topi.add(X[0], Y[0])
    return [total, topi.layer_norm(total)]


def without_rule() -> list[Tensor]:
    """A reduction with an operator's tag that no rule for GPUs knows, and what follows it."""
    k = te.reduce_axis((0, SHAPE[1]), name="k")
    total = te.compute(
        SHAPE[:1], lambda i: te.sum(X[0][i, k] * Y[0][i, k], axis=k), name="total", tag="narrow_conv2d_pixels"
    )
    return [te.compute(SHAPE[:1], lambda i: total[i] * 2.0, name="twice")]


PROGRAMS: dict[str, Callable[[], list[Tensor]]] = {
    "normalized sum": normalized_sum,
    "without a rule": without_rule,
    "two softmaxes": lambda: [topi.add(topi.softmax(X[0]), topi.softmax(Y[0]))],
    "rows of columns": lambda: [topi.softmax(topi.transpose(X[0]))],
    "columns of rows": lambda: [topi.transpose(topi.softmax(X[0]))],
    "sums of rows": lambda: [topi.sum(topi.softmax(X[0]), 0)],
    "centred rows": lambda: [topi.subtract(X[0], topi.mean(X[0], 1, keepdims=True))],
}


@pytest.mark.covering(1)
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", PROGRAMS)
def test_programs(target: str, name: str) -> None:
    outputs = PROGRAMS[name]()
    program, names = canonical(outputs)
    inputs = [(t, a) for t, a in (X, Y) if id(t.op) in names]
    kernel = tensorlang.build(topi.schedule(outputs, GPU), [*(t for t, _ in inputs), *outputs], target=target)
    made = [np.full(shape_of(output), 77, output.dtype) for output in outputs]
    kernel(*(array for _, array in inputs), *made)
    values = evaluate(program, {names[id(t.op)]: a for t, a in inputs})
    for output, array in zip(outputs, made, strict=True):
        close(array, values[names[id(output.op)]])


@pytest.mark.covering(1)
@pytest.mark.parametrize("threads", [16, 100])
@pytest.mark.parametrize("name", ["softmax", "transpose", "relu", "sum"])
def test_blocks_are_as_small_as_the_target_wants(name: str, threads: int) -> None:
    x = given("x", 40, 300)
    out = getattr(topi, name)(x[0])
    few = f"cuda -arch=sm_80 -max_num_threads={threads}"
    s = topi.schedule(out, few, tuned=False)
    kernel = tensorlang.lower(s, [x[0], out], target=few).kernel
    launches = [stmt for stmt in walk(kernel.body) if isinstance(stmt, Launch)]
    assert launches
    assert all(prod(launch.kernel.block) <= threads for launch in launches)
