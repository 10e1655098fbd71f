"""A product of matrices in Triton, as its tutorial writes it, with the fastest of a few tiles. It imports Triton."""

from __future__ import annotations

from typing import Any

import triton
import triton.language as tl

_TILES = ((128, 256, 64, 8, 3), (128, 128, 64, 4, 4), (128, 128, 32, 4, 4), (64, 128, 32, 4, 3))
"""Rows, columns, depth, warps, stages."""


@triton.autotune(  # type: ignore[untyped-decorator]
    configs=[triton.Config({"R": r, "C": c, "D": d}, num_warps=w, num_stages=s) for r, c, d, w, s in _TILES],
    key=["n", "k"],
)
@triton.jit  # type: ignore[untyped-decorator]
def _product(a, b, c, n, k, R: tl.constexpr, C: tl.constexpr, D: tl.constexpr):  # type: ignore[no-untyped-def]
    i = tl.program_id(0) * R + tl.arange(0, R)
    j = tl.program_id(1) * C + tl.arange(0, C)
    step = tl.arange(0, D)
    left = a + i[:, None] * k + step[None, :]
    right = b + step[:, None] * n + j[None, :]
    total = tl.zeros((R, C), dtype=tl.float32)
    for _ in range(0, k, D):
        total = tl.dot(tl.load(left), tl.load(right), total, input_precision="ieee")
        left += D
        right += D * n
    tl.store(c + i[:, None] * n + j[None, :], total.to(c.dtype.element_ty))


def product(a: Any, b: Any, c: Any) -> None:
    """c = a @ b for tensors of PyTorch whose sides are multiples of all tiles; sums in float32."""
    (m, k), n = a.shape, b.shape[1]
    _product[lambda tile: (m // tile["R"], n // tile["C"])](a, b, c, n, k)
