"""Programs that logs of other tuners name."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tensorlang import autotune, te
from tensorlang.te.operation import Tensor


def matmul(m: int, n: int, k: int) -> list[Tensor]:
    A, B = te.placeholder((m, k), name="A"), te.placeholder((k, n), name="B")
    r = te.reduce_axis((0, k), name="k")
    return [A, B, te.compute((m, n), lambda i, j: te.sum(A[i, r] * B[r, j], axis=r), name="C")]


def matmul_add(n: int, k: int, m: int, dtype: str) -> list[Tensor]:
    A, B, C = (te.placeholder(shape, dtype, name) for shape, name in (((n, k), "A"), ((k, m), "B"), ((n, m), "C")))
    r = te.reduce_axis((0, k), name="k")
    product = te.compute((n, m), lambda i, j: te.sum(A[i, r] * B[r, j], axis=r), name="product")
    return [A, B, C, te.compute((n, m), lambda i, j: product[i, j] + C[i, j], name="out")]


def row_sum(n: int, m: int) -> list[Tensor]:
    A, r = te.placeholder((n, m), name="A"), te.reduce_axis((0, m), name="k")
    return [A, te.compute((n,), lambda i: te.sum(A[i, r], axis=r), name="S")]


def conv2d_layer(n: int, size: int, co: int, ci: int, kernel: int) -> list[Tensor]:
    """A convolution padded by one pixel, with bias and relu, as topi built it: a stage for each step."""
    data, weight = te.placeholder((n, ci, size, size), name="data"), te.placeholder((co, ci, kernel, kernel), name="w")
    bias = te.placeholder((1, co, 1, 1), name="bias")
    pad = te.compute(
        (n, ci, size + 2, size + 2),
        lambda b, c, y, x: te.if_then_else(
            te.all(y >= 1, y < size + 1, x >= 1, x < size + 1), data[b, c, y - 1, x - 1], 0.0
        ),
        name="pad",
    )
    rc, ry, rx = (te.reduce_axis((0, e), name=r) for e, r in ((ci, "rc"), (kernel, "ry"), (kernel, "rx")))
    out = size + 3 - kernel
    shape = (n, co, out, out)
    conv = te.compute(
        shape,
        lambda b, f, y, x: te.sum(pad[b, rc, y + ry, x + rx] * weight[f, rc, ry, rx], axis=[rc, ry, rx]),
        name="conv",
    )
    biased = te.compute(shape, lambda b, f, y, x: conv[b, f, y, x] + bias[0, f, 0, 0], name="biased")
    return [data, weight, bias, te.compute(shape, lambda b, f, y, x: te.max(biased[b, f, y, x], 0.0), name="relu")]


@autotune.register_workload
def scaled(x: Tensor, factors: Sequence[int]) -> list[Tensor]:
    """A workload that TVM's logs call with an input and a list."""
    return [x, te.compute(x.shape, lambda i, j: x[i, j] * factors[0] + factors[1], name="scaled")]


@autotune.template("importers/matmul")
def tuned_matmul(m: int, n: int, k: int) -> Any:
    """A product whose tiles are splits, as users of AutoTVM wrote them."""
    A, B, C = matmul(m, n, k)
    s = te.create_schedule(C.op)
    cfg = autotune.get_config()
    y, x = s[C].op.axis
    (r,) = s[C].op.reduce_axis
    cfg.define_split("tile_y", y, num_outputs=2)
    cfg.define_split("tile_x", x, num_outputs=2)
    cfg.define_annotate("ann", [cfg.axis(x)], policy="try_unroll_vec")
    cfg.define_knob("threads", [True, False])
    yo, yi = cfg["tile_y"].apply(s, C, y)
    xo, xi = cfg["tile_x"].apply(s, C, x)
    s[C].reorder(yo, xo, r, yi, xi)
    cfg["ann"].apply(s, C, [xi])
    if cfg["threads"].val:
        s[C].parallel(yo)
    return s, [A, B, C]


@autotune.template("importers/racing")
def racing(m: int, n: int, k: int) -> Any:
    """Its second configuration runs a sum in parallel."""
    A, B, C = matmul(m, n, k)
    s = te.create_schedule(C.op)
    cfg = autotune.get_config()
    cfg.define_knob("parallel", ["rows", "sum"])
    s[C].parallel(s[C].op.axis[0] if cfg["parallel"].val == "rows" else s[C].op.reduce_axis[0])
    return s, [A, B, C]
