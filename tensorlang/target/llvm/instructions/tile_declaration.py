"""The intrinsic of a product of tiles: what it computes, in te, and the call of its function of LLVM IR."""

from __future__ import annotations

from functools import partial
from typing import Any

from tensorlang.ir.expr import Expr, cast
from tensorlang.ir.stmt import Stmt
from tensorlang.target.llvm.instructions.tile_code import around, function_text
from tensorlang.target.llvm.instructions.tiles import FEATURES, Tiles
from tensorlang.te.define import compute, placeholder, var
from tensorlang.te.domain import reduce_axis
from tensorlang.te.intrinsic import TensorIntrin
from tensorlang.te.machine import call_extern, evaluate
from tensorlang.te.reductions import sum_
from tensorlang.te.tensor_intrin import decl_tensor_intrin
from tensorlang.te.tile_buffer import TileBuffer, decl_buffer


def declare(tiles: Tiles) -> TensorIntrin:
    """Declare the product of tiles as an intrinsic."""
    (high, wide), (p, q, words), group = tiles.rows, tiles.terms, tiles.group
    tall, broad = tiles.down[0] * (high - 1) + tiles.down[1] * (p - 1), tiles.right[0] * (wide - 1)
    broad += tiles.right[1] * (q - 1)
    shape = (tall + 1, broad + words * group) if tiles.joint else (tall + 1, broad + 1, words * group)
    data = placeholder(shape, tiles.data, "data")
    kernel = placeholder((p, q, words, tiles.columns, group), tiles.kernel, "kernel")
    axes = [reduce_axis((0, n), name) for n, name in zip((p, q, words, group), ("p", "q", "w", "t"), strict=True)]

    def element(y: Any, x: Any, i: Any) -> Expr:
        row, column = (c[0] * at + c[1] * tap for c, at, tap in ((tiles.down, y, axes[0]), (tiles.right, x, axes[1])))
        term = axes[2] * group + axes[3]
        value = data[row, column + term] if tiles.joint else data[row, column, term]
        return sum_(cast(value, tiles.out) * cast(kernel[*axes[:3], i, axes[3]], tiles.out), axis=axes)

    out = compute((high, wide, tiles.columns), element, name="out")
    buffers = {
        data: decl_buffer(shape, tiles.data, "data", strides=[*_strides("data", len(shape) - 1), 1]),
        kernel: decl_buffer(kernel.shape, tiles.kernel, "kernel", strides=[*_strides("kernel", 3), group, 1]),
        out: decl_buffer(out.shape, tiles.out, "out", strides=[*_strides("out", 2), 1]),
    }
    return decl_tensor_intrin(
        out.op,
        partial(_statements, tiles),
        tiles.name,
        buffers,
        source=function_text(tiles, _symbol(tiles)),
        architecture="x86_64",
        features=FEATURES[tiles.kernel],
        around=around(_symbol(tiles)),
    )


def _statements(tiles: Tiles, ins: list[TileBuffer], outs: list[TileBuffer]) -> Stmt:
    data, kernel, out = *ins, outs[0]
    strides = [*out.strides[:2], *data.strides[:2], *kernel.strides[:3]]
    if tiles.joint:
        strides[3] = cast(1, "int64")
    pointers = out.access_ptr("w"), data.access_ptr("r"), kernel.access_ptr("r")
    return evaluate(call_extern("void", _symbol(tiles), *pointers, *strides))


def _symbol(tiles: Tiles) -> str:
    return f"tensorlang.{tiles.name}"


def _strides(name: str, count: int) -> list[Expr]:
    return [var(f"{name}_{n}", "int64") for n in range(count)]
