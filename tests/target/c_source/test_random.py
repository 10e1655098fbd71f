"""Random statements: OpenCL leaves behind what the interpreter leaves."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from tensorlang.ir.expr import Var
from tensorlang.ir.stmt import INDEX, For, Kernel, LoopKind, Seq
from tensorlang.target.c_source import CUDA, device_source
from tensorlang.testing.loop_ir import kernels
from tests.target.c_source.device_programs import Array, device_kernel, interpreted
from tests.target.cuda.compiled import check_compiles
from tests.target.llvm.test_random_kernels import vector_kernels

Run = Callable[..., int]
_SEVERAL = st.lists(kernels((LoopKind.SERIAL, LoopKind.UNROLLED)), min_size=4, max_size=4)


@settings(max_examples=8)
@given(_SEVERAL, st.integers(0, 9), st.booleans())
def test_one_thread_does_what_loops_do(run: Run, drawn: list[Kernel], n: int, narrow: bool) -> None:
    body = Seq(tuple(kernel.body for kernel in drawn))
    size = (Var("n", INDEX),)
    kernel = device_kernel(drawn[0].params, body, scalars=size, indices="int32" if narrow else "int64")
    given: dict[str, Array] = {"log": np.zeros(2, np.int64), "notes": np.arange(16, dtype=np.int32)}
    expected = {name: values.copy() for name, values in given.items()}
    interpreted(kernel, expected, {"n": n})
    run(kernel, given, {"n": n})
    assert {name: values.tolist() for name, values in given.items()} == {
        name: values.tolist() for name, values in expected.items()
    }


@settings(max_examples=12)
@given(vector_kernels(), st.sampled_from([2, 4, 8, 16]), st.integers(0, 3), st.integers(0, 2**32 - 1))
def test_lanes_do_what_iterations_do(run: Run, drawn: Kernel, width: int, n: int, seed: int) -> None:
    assert isinstance(drawn.body, For)
    body = replace(drawn.body, upper=drawn.body.lower + width)
    kernel = device_kernel(drawn.params, body, scalars=drawn.sizes)
    random = np.random.default_rng(seed)
    given: dict[str, Array] = {
        "a": random.integers(-(2**31), 2**31, 64).astype(np.int32),
        "b": random.integers(-5, 6, (4, 64)),
        "out": random.integers(-100, 100, 64).astype(np.int32),
    }
    expected = {name: values.copy() for name, values in given.items()}
    interpreted(kernel, expected, {"n": n})
    run(kernel, given, {"n": n})
    np.testing.assert_array_equal(given["out"], expected["out"])


@settings(max_examples=4)
@given(_SEVERAL)
def test_cuda_texts_compile(drawn: list[Kernel]) -> None:
    body = Seq(tuple(kernel.body for kernel in drawn))
    kernel = device_kernel(drawn[0].params, body, scalars=(Var("n", INDEX),), indices="int64")
    check_compiles(device_source(kernel, CUDA).text, ("sm_80",))
