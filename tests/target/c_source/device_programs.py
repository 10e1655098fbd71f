"""Device kernels built by hand, and the loop nests that mean the same."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tensorlang import dtypes
from tensorlang.ir.construct import block, index, loop
from tensorlang.ir.construct import kernel as serial_kernel
from tensorlang.ir.expr import Buffer, Const, Expr, Var
from tensorlang.ir.interpret import run as interpret
from tensorlang.ir.stmt import INDEX, DeviceKernel, Kernel, Stmt

ONE = Const(1, INDEX)
BX, BY = Var("blockIdx.x", INDEX), Var("blockIdx.y", INDEX)
TX, TY, TZ = (Var(f"threadIdx.{axis}", INDEX) for axis in "xyz")
Array = np.ndarray[Any, Any]


def device_kernel(
    params: Sequence[Buffer],
    body: Stmt | Sequence[Stmt],
    grid: Sequence[int | Expr] = (),
    threads: Sequence[int] = (),
    shared: Sequence[Buffer] = (),
    scalars: Sequence[Var] = (),
    indices: str = "int32",
    name: str = "kernel0",
) -> DeviceKernel:
    """A device kernel; extents that are left out are 1."""
    blocks = [index(extent) for extent in grid] + [ONE] * (3 - len(grid))
    x, y, z = [*threads, *[1] * (3 - len(threads))]
    return DeviceKernel(
        name, tuple(params), tuple(scalars), (blocks[0], blocks[1], blocks[2]), (x, y, z), tuple(shared), block(body),
        indices,
    )  # fmt: skip


def one_by_one(kernel: DeviceKernel) -> Kernel:
    """Loops over blocks and threads around the code of each: the same, where threads have nothing to do together."""
    body = kernel.body
    for word, extents in (("threadIdx", tuple(map(index, kernel.block))), ("blockIdx", kernel.grid)):
        for axis, extent in zip("xyz", extents, strict=True):
            body = loop(Var(f"{word}.{axis}", INDEX), 0, extent, body)
    return serial_kernel(kernel.name, kernel.params, "", body, kernel.scalars)


def interpreted(kernel: DeviceKernel, arrays: dict[str, Array], scalars: dict[str, int] | None = None) -> None:
    """Run a kernel one thread after the other."""
    interpret(one_by_one(kernel), arrays, scalars or {})


def same_values(actual: Array, expected: Array, message: str = "") -> None:
    """Equal dtype and values; NaN equals NaN, of ml_dtypes too."""
    assert actual.dtype == expected.dtype, message
    if dtypes.info(actual.dtype.name).is_extension:
        actual, expected = actual.astype(np.float32), expected.astype(np.float32)
    np.testing.assert_array_equal(actual, expected, err_msg=message)
