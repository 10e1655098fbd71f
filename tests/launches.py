"""Kernels of one launch, built by hand."""

from __future__ import annotations

from collections.abc import Sequence

from tensorlang.ir.construct import IndexLike, StmtLike, block, index, kernel
from tensorlang.ir.expr import Buffer, Var
from tensorlang.ir.stmt import INDEX, Allocate, DeviceKernel, Kernel, Launch

TX, TY, TZ = (Var(f"threadIdx.{axis}", INDEX) for axis in "xyz")
BX, BY = (Var(f"blockIdx.{axis}", INDEX) for axis in "xy")


def device_kernel(
    params: Sequence[Buffer],
    body: StmtLike,
    threads: Sequence[int] = (32,),
    blocks: Sequence[IndexLike] = (1,),
    scratch: Sequence[Buffer] = (),
    scalars: Sequence[Var] = (),
) -> DeviceKernel:
    """Code for a grid of `blocks` of `threads`, extents along x first, with shared and local arrays `scratch`."""
    x, y, z = (*threads, 1, 1)[:3]
    grid = [index(extent) for extent in (*blocks, 1, 1)[:3]]
    code = block(body)
    for buffer in scratch:
        code = Allocate(buffer, code) if buffer.scope == "local" else code
    shared = tuple(buffer for buffer in scratch if buffer.scope == "shared")
    return DeviceKernel(
        "threads", tuple(params), tuple(scalars), (grid[0], grid[1], grid[2]), (x, y, z), shared, code
    )  # fmt: skip


def launched(
    params: Sequence[Buffer],
    outputs: str,
    body: StmtLike,
    threads: Sequence[int] = (32,),
    blocks: Sequence[IndexLike] = (1,),
    scratch: Sequence[Buffer] = (),
    sizes: Sequence[Var] = (),
) -> Kernel:
    """A kernel that launches such code once, with its sizes as scalars."""
    code = device_kernel(params, body, threads, blocks, scratch, sizes)
    return kernel("host", params, outputs, Launch(code, tuple(sizes)), sizes)
