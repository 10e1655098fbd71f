"""Host parts with launches, written by hand, and what their kernels do, for the fake CuPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from tensorlang.ir.construct import array, index
from tensorlang.ir.expr import Buffer, Expr, Var
from tensorlang.ir.stmt import INDEX, Allocate, DeviceKernel, Kernel, Launch, Seq, Stmt
from tensorlang.target.cuda.executable import CudaExecutable
from tensorlang.target.cuda.images import Images, KernelCode
from tensorlang.target.detect import parse

N = Var("n", INDEX)
BLOCK = 4


def launch(name: str, *params: Buffer) -> Launch:
    """A launch over n elements, one a thread, that passes n."""
    grid: tuple[Expr, Expr, Expr] = ((N + (BLOCK - 1)) // BLOCK, index(1), index(1))
    kernel = DeviceKernel(name, params, (N,), grid, (BLOCK, 1, 1), (), Seq(()))
    return Launch(kernel, (N,))


def program(body: Stmt, dtype: str = "float32") -> Kernel:
    """A kernel `twice(a, b)` that writes b."""
    a, b = (array(name, (N,), dtype) for name in "ab")
    return Kernel("twice", (a, b), (N,), ("b",), body)


def one_launch(dtype: str = "float32") -> Kernel:
    """b = 2a."""
    return program(launch("double", array("a", (N,), dtype), array("b", (N,), dtype)), dtype)


def two_launches() -> Kernel:
    """b = 2 * 2a, through scratch memory."""
    a, b, t = (array(name, (N,)) for name in "abt")
    return program(Allocate(t, Seq((launch("double", a, t), launch("double_again", t, b)))))


def executable(kernel: Kernel, **code: Any) -> CudaExecutable:
    """A kernel as it is for the caller, its launches those of kernels with this code."""
    names = ("double", "double_again")
    codes = {name: KernelCode(name, **code) for name in names}
    images = Images(kernel.name, "sm_90a", b"cubin", codes, ("out of range",), build=str.encode)
    return CudaExecutable(kernel, parse("cuda"), images)


def double(grid: Any, block: Any, a: npt.NDArray[Any], b: npt.NDArray[Any], n: np.int64, *fault: Any) -> None:
    """What the kernels do; the fault, if they have one, is an element that is not finite."""
    assert type(n) is np.int64
    assert grid == (-(-int(n) // BLOCK), 1, 1)
    b[...] = 2 * a
    for place in fault:
        if not np.isfinite(a).all() and place[0] == 0:
            place[0] = 1
