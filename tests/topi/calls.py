"""A function of the library beside the same one of arrays, checked on any target."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

import tensorlang
from tensorlang import dtypes, te, topi
from tensorlang.te.operation import Tensor
from tests.topi.gpu.device_runs import rules_for
from tests.topi.programs import Array, close, shape_of

N = 5
"""The first extent of matrices; the second is 6. Of empty ones, the first is 0."""


def floats(*shape: int) -> Array:
    return np.random.default_rng(len(shape)).standard_normal(shape).astype(np.float32)


def whole(*shape: int, high: int = 5, low: int = 0) -> Array:
    return np.random.default_rng(3).integers(low, high, shape).astype(np.int32)


class Call(NamedTuple):
    """A function of tensors and the same one of arrays; `inputs` are made for the first extent of a matrix."""

    function: Callable[..., Any]
    numpy: Callable[..., Any]
    inputs: Callable[[int], list[Array]] = lambda n: [floats(n, 6)]
    empty: bool = True


def ran_all(call: Call, target: str, arrays: list[Array]) -> list[Array]:
    """What the library's schedule of a call, which makes one tensor or several, makes of arrays on a target."""
    inputs = [te.placeholder(a.shape, dtypes.canonical(a.dtype), f"x{k}") for k, a in enumerate(arrays)]
    found = call.function(*inputs)
    outputs = [found] if isinstance(found, Tensor) else list(found)
    s = topi.schedule(outputs, rules_for(target), tuned=False)
    made = [np.full(shape_of(out), 77).astype(dtypes.info(out.dtype).numpy) for out in outputs]
    tensorlang.build(s, [*inputs, *outputs], target=target)(*arrays, *made)
    return made


def ran(call: Call, target: str, arrays: list[Array]) -> Array:
    """What a call that makes one tensor makes of arrays on a target."""
    (made,) = ran_all(call, target, arrays)
    return made


def check(call: Call, target: str, n: int) -> None:
    arrays = call.inputs(n)
    wanted = call.numpy(*arrays)
    results = list(wanted) if isinstance(wanted, list | tuple) else [wanted]
    for made, right in zip(ran_all(call, target, arrays), map(np.asarray, results), strict=True):
        if made.dtype.kind == "f":
            close(made, right)
        else:
            assert made.dtype == right.dtype
            np.testing.assert_array_equal(made, right)
