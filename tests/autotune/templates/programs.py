"""Templates that the tests tune."""

from __future__ import annotations

from typing import Any

from tensorlang import autotune, te


@autotune.template("tests/matmul")
def matmul(m: int, n: int, k: int) -> Any:
    """A product in AutoTVM's words: tiles of three axes, an annotation and a plain knob."""
    A, B = te.placeholder((m, k), name="A"), te.placeholder((k, n), name="B")
    r = te.reduce_axis((0, k), name="r")
    C = te.compute((m, n), lambda i, j: te.sum(A[i, r] * B[r, j], axis=r), name="C")
    s = te.create_schedule(C.op)
    y, x = s[C].op.axis
    cfg = autotune.get_config()
    cfg.define_split("tile_y", y, num_outputs=2)
    cfg.define_split("tile_x", x, num_outputs=2)
    cfg.define_split("tile_k", r, num_outputs=2)
    cfg.define_annotate("ann", [x], policy="try_unroll_vec")
    cfg.define_knob("auto_unroll_max_step", [0, 16, 64])
    yo, yi = cfg["tile_y"].apply(s, C, y)
    xo, xi = cfg["tile_x"].apply(s, C, x)
    ko, ki = cfg["tile_k"].apply(s, C, s[C].op.reduce_axis[0])
    s[C].reorder(yo, xo, ko, ki, yi, xi)
    cfg["ann"].apply(s, C, [xi])
    s[C].pragma(yo, "auto_unroll_max_step", cfg["auto_unroll_max_step"].val)
    return s, [A, B, C]


@autotune.template("tests/rows")
def rows(n: int, m: int) -> Any:
    """Sums of rows whose loops may run in any order; some of it is illegal: a sum is no vector loop."""
    A = te.placeholder((n, m), name="A")
    k = te.reduce_axis((0, m), name="k")
    B = te.compute((n,), lambda i: te.sum(A[i, k], axis=k), name="B")
    s = te.create_schedule(B.op)
    cfg = autotune.get_config()
    i, r = s[B].op.axis[0], s[B].op.reduce_axis[0]
    cfg.define_knob("vector", ["sum", "rows"])
    cfg.define_reorder("order", [i, r], policy="all")
    cfg.define_split("tile", i, policy="power2", num_outputs=2, max_factor=4)
    cfg.add_flop(n * m)
    cfg["order"].apply(s, B, [i, r])
    _, inner = cfg["tile"].apply(s, B, i)
    s[B].vectorize(r if cfg["vector"].val == "sum" else inner)
    return s, [A, B]


@autotune.template("tests/nothing_legal")
def nothing_legal(n: int) -> Any:
    """Every configuration runs a sum in vector lanes."""
    A = te.placeholder((n, n), name="A")
    k = te.reduce_axis((0, n), name="k")
    B = te.compute((n,), lambda i: te.sum(A[i, k], axis=k), name="B")
    s = te.create_schedule(B.op)
    autotune.get_config().define_knob("idle", [1, 2, 3])
    s[B].vectorize(s[B].op.reduce_axis[0])
    return s, [A, B]


@autotune.template("tests/limited")
def limited(n: int) -> Any:
    """A copy whose two tiles together are limited by filters, and which refuses the rest itself."""
    A = te.placeholder((n, n), name="A")
    B = te.compute((n, n), lambda i, j: A[i, j] + 1.0, name="B")
    s = te.create_schedule(B.op)
    cfg = autotune.get_config()
    y, x = s[B].op.axis
    cfg.define_split("tile_y", y, num_outputs=2)
    cfg.define_split("tile_x", x, num_outputs=2)
    cfg.multi_filter(lambda c: c["tile_y"].size[-1] * c["tile_x"].size[-1] <= 8)
    cfg["tile_y"].apply(s, B, y)
    cfg["tile_x"].apply(s, B, x)
    if cfg["tile_y"].size[-1] > cfg["tile_x"].size[-1]:
        cfg.raise_error("tall tiles are slow")
    return s, [A, B]
