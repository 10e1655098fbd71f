"""Intrinsics that many tests tensorize with."""

from __future__ import annotations

from typing import Any

from tensorlang import te, tir
from tensorlang.te.intrinsic import TensorIntrin
from tensorlang.te.tile_buffer import TileBuffer


def tile_matmul(m: int, n: int, k: int, dtype: str = "float32", variants: int = 3) -> TensorIntrin:
    """c = a b in plain loops, rows of any stride; only the body when `variants` is 1."""
    a, b = te.placeholder((m, k), dtype, name="a"), te.placeholder((k, n), dtype, name="b")
    r = te.reduce_axis((0, k), "r")
    c = te.compute((m, n), lambda i, j: te.sum(a[i, r] * b[r, j], axis=r), name="c")

    def statements(ins: list[TileBuffer], outs: list[TileBuffer]) -> Any:
        def loops(start: bool, add: bool) -> Any:
            ib = tir.ir_builder.create()
            A, B, C = (ib.buffer_ptr(buffer) for buffer in (*ins, *outs))
            with ib.for_range(0, m, name="i") as i, ib.for_range(0, n, name="j") as j:
                if start:
                    C[i, j] = tir.const(0, dtype)
                if add:
                    with ib.for_range(0, k, name="k") as step:
                        C[i, j] = C[i, j] + A[i, step] * B[step, j]
            return ib.get()

        return (loops(True, True), loops(True, False), loops(False, True))[:variants]

    binds = {t: te.decl_buffer(t.shape, dtype, t.op.name, strides=[te.var(f"s{t.op.name}"), 1]) for t in (a, b, c)}
    made: TensorIntrin = te.decl_tensor_intrin(c.op, statements, f"tile_matmul_{m}_{n}_{k}", binds=binds)
    return made
