"""Halide, with schedules written by hand in the manner of its own applications, and sizes as constants.

The first dimension of its buffers and functions is the innermost one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import halide as hl
import numpy as np

from benchmarks.operators import TAPS
from benchmarks.peers.serve import Builder, Call, Given

TARGET = hl.get_host_target()
VECTOR = 16 if TARGET.has_feature(hl.TargetFeature.AVX512_Skylake) else 8
ROWS, WIDE = 6, 4
"""Rows and vectors of a register tile of a product."""
PACKED_FROM = 64
"""Rows from which a copy of B in panels pays."""
POINTS, CHANNELS = 14, 2
"""Points and vectors of channels of a register tile of a convolution."""
BAND = 128
"""Rows of an image that are filtered by one thread."""
GUARD = hl.TailStrategy.GuardWithIf
x, y, z, k, xo, yo, xi, yi = (hl.Var(name) for name in ("x", "y", "z", "k", "xo", "yo", "xi", "yi"))


def compiled(function: Any, shape: Sequence[int], *read: Any) -> Call:
    """A call that fills an array of this shape. The pipeline does not keep what it reads: `read` does."""
    function.compile_jit(TARGET)
    made = np.empty(shape, np.float32)
    buffer = hl.Buffer(made)

    def call(read: Any = read) -> Any:
        function.realize(buffer, TARGET)
        return made

    return call


def exterior(source: Any, value: float, extents: Sequence[int]) -> Any:
    """The buffer, and a value outside of it."""
    bounds = [(hl.Expr(0), hl.Expr(extent)) for extent in extents]
    return hl.BoundaryConditions.constant_exterior(source, hl.f32(value), bounds)


def matmul(given: Given) -> Call:
    """B in panels as wide as a register tile, made at the call or ahead."""
    given.only("float32")
    a, b = given["A"], given["B"]
    m, depth, n = a.shape[-2], a.shape[-1], b.shape[-1]
    batch = a.shape[:-2]
    outer = [z] * len(batch)
    rows, width = min(ROWS, m), WIDE * VECTOR
    panels, product, out = hl.Func("panels"), hl.Func("product"), hl.Func("out")
    B = hl.Buffer(b)
    columns = exterior(B, 0.0, (n, depth, *batch)) if n % width else B
    panels[x, k, xo, *outer] = columns[xo * width + x, k, *outer]
    source = panels
    if "B" in given.constant:
        panels.vectorize(x, VECTOR).parallel(xo)
        source = panels.realize([width, depth, -(-n // width), *batch], TARGET)
    elif m >= PACKED_FROM:
        panels.compute_root().bound_extent(x, width).vectorize(x, VECTOR).unroll(x).parallel(outer[0] if batch else xo)
    r = hl.RDom([(0, depth)])
    product[x, xo, y, *outer] = hl.f32(0)
    product[x, xo, y, *outer] += source[x, r, xo, *outer] * hl.Buffer(a)[r, y, *outer]
    out[x, y, *outer] = product[x % width, x / width, y, *outer]
    out.split(x, xo, xi, width, GUARD).split(y, yo, yi, rows).vectorize(xi, VECTOR).unroll(xi).unroll(yi)
    out.reorder(xi, yi, yo, xo, *outer)
    out.parallel(outer[0] if batch else xo)
    product.compute_at(out, yo).bound_extent(x, width).bound_extent(xo, 1).bound_extent(y, rows)
    product.vectorize(x, VECTOR).unroll(x).unroll(y)
    product.update().reorder(x, y, r.x, xo).vectorize(x, VECTOR).unroll(x).unroll(y)
    return compiled(out, (*a.shape[:-1], n), given, source)


def conv2d(given: Given) -> Call:
    """Register tiles of points and channels; the weights with channels innermost, laid out ahead."""
    image, w = given["x"], given["w"]
    padding, stride, groups = (given.options[name] for name in ("padding", "stride", "groups"))
    _, channels, height, width = image.shape
    filters, deep, rows, columns = w.shape
    made = [(e + 2 * padding - f) // stride + 1 for e, f in ((height, rows), (width, columns))]
    padded, out, c = hl.Func("padded"), hl.Func("out"), hl.Var("c")
    bordered = exterior(hl.Buffer(image), 0.0, (width, height, channels, 1))
    padded[x, y, c] = bordered[x - padding, y - padding, c, 0]
    window = hl.RDom([(0, columns), (0, rows), (0, deep)])
    total, bias = hl.Func("total"), given.arrays.get("bias")
    if groups == channels == filters:
        total[x, y, c] = hl.f32(0)
        weight = hl.Buffer(w)[window.x, window.y, 0, c]
        total[x, y, c] += weight * padded[x * stride + window.x, y * stride + window.y, c]
        out[x, y, c, z] = total[x, y, c]
        padded.compute_at(out, c).vectorize(x, VECTOR, GUARD)
        lanes, tall = min(VECTOR, made[1]), min(4, made[0])
        out.split(x, xo, xi, lanes).split(y, yo, yi, tall).reorder(xi, yi, xo, yo, c, z)
        out.vectorize(xi).unroll(yi).parallel(c)
        total.compute_at(out, xo).vectorize(x, lanes).unroll(y)
        total.update().reorder(x, y, window.x, window.y).vectorize(x, lanes).unroll(y)
        total.update().unroll(window.x).unroll(window.y)
        return compiled(out, (1, filters, *made), given)
    weights = np.ascontiguousarray(w.transpose(1, 2, 3, 0))
    packed = hl.Buffer(weights)
    points = max(p for p in range(1, POINTS + 1) if made[1] % p == 0)
    total[c, x, y] = hl.f32(0)
    place = padded[x * stride + window.x, y * stride + window.y, window.z]
    total[c, x, y] += packed[c, window.x, window.y, window.z] * place
    value = total[c, x, y]
    out[x, y, c, z] = value if bias is None else hl.max(value + hl.Buffer(bias)[c], hl.f32(0))
    co, ci = hl.Var("co"), hl.Var("ci")
    block = CHANNELS * VECTOR
    out.split(x, x, xi, points).split(c, co, ci, block, GUARD).reorder(xi, ci, x, y, co, z)
    out.vectorize(ci, VECTOR).unroll(ci).unroll(xi)
    out.fuse(y, co, k).parallel(k)
    total.compute_at(out, x).bound_extent(c, block).vectorize(c, VECTOR).unroll(c).unroll(x)
    total.update().reorder(c, x, y, window.x, window.y, window.z).vectorize(c, VECTOR).unroll(c).unroll(x)
    padded.compute_root().vectorize(x, VECTOR, GUARD).parallel(c)
    return compiled(out, (1, filters, *made), given, weights)


def row_reduction(source: Any, n: int, start: float, step: Any, name: str) -> tuple[Any, Any]:
    """Reduce the rows of a function: lanes first, then across them. Returns both functions."""
    lanes, whole = hl.Func(f"{name}_lanes"), hl.Func(name)
    r, across = hl.RDom([(0, n // VECTOR)]), hl.RDom([(0, VECTOR)])
    lanes[x, y] = hl.f32(start)
    lanes[x, y] = step(lanes[x, y], source[r * VECTOR + x, y])
    whole[y] = hl.f32(start)
    whole[y] = step(whole[y], lanes[across, y])
    rest = n % VECTOR
    if rest:
        left = hl.RDom([(n - rest, rest)])
        whole[y] = step(whole[y], source[left, y])
    return lanes, whole


def by_rows(out: Any, parts: Sequence[Any], rows: Sequence[Any]) -> None:
    """Compute all parts of a row where the row is computed."""
    out.vectorize(x, VECTOR, GUARD).parallel(y)
    for function in parts:
        function.compute_at(out, y)
        if function.dimensions() > 1:
            function.vectorize(x, VECTOR, GUARD)
    for lanes in rows:
        lanes.update().reorder(x, *(v for v in lanes.rvars(0))).vectorize(x, VECTOR)


def softmax(given: Given) -> Call:
    """Of rows, each in the cache."""
    m, n = given["x"].shape
    source = hl.Buffer(given["x"])
    lanes, top = row_reduction(source, n, float("-inf"), hl.max, "top")
    e, out = hl.Func("e"), hl.Func("out")
    e[x, y] = hl.exp(source[x, y] - top[y])
    parts, total = row_reduction(e, n, 0.0, lambda a, b: a + b, "total")
    scale = hl.Func("scale")
    scale[y] = hl.f32(1) / total[y]
    out[x, y] = e[x, y] * scale[y]
    by_rows(out, (lanes, top, e, parts, total, scale), (lanes, parts))
    return compiled(out, (m, n), given)


def layer_norm(given: Given) -> Call:
    """Of rows, each in the cache."""
    m, n = given["x"].shape
    source, gamma, beta = (hl.Buffer(given[name]) for name in ("x", "gamma", "beta"))
    lanes, total = row_reduction(source, n, 0.0, lambda a, b: a + b, "total")
    mean, centred, scale, out = (hl.Func(name) for name in ("mean", "centred", "scale", "out"))
    mean[y] = total[y] * hl.f32(1 / n)
    centred[x, y] = (source[x, y] - mean[y]) * (source[x, y] - mean[y])
    parts, squares = row_reduction(centred, n, 0.0, lambda a, b: a + b, "squares")
    scale[y] = hl.f32(1) / hl.sqrt(squares[y] * hl.f32(1 / n) + hl.f32(given.options["epsilon"]))
    out[x, y] = (source[x, y] - mean[y]) * scale[y] * gamma[x] + beta[x]
    by_rows(out, (lanes, total, mean, parts, squares, scale), (lanes, parts))
    return compiled(out, (m, n), given)


def jacobi(given: Given) -> Call:
    """A step from one array to another, a call each."""
    steps, (m, n) = given.options["steps"], given["x"].shape
    source, step = hl.ImageParam(hl.Float(32), 2), hl.Func("step")
    near = source[x, y] + source[x, y - 1] + source[x, y + 1] + source[x + 1, y] + source[x - 1, y]
    step[x, y] = hl.f32(0.2) * near
    step.vectorize(x, VECTOR, GUARD).split(y, yo, yi, 32, GUARD).parallel(yo)
    step.compile_jit(TARGET)
    a, b = given["x"].copy(), given["x"].copy()
    buffers = [hl.Buffer(a), hl.Buffer(b)]
    inner = [buffer.cropped([(1, n - 2), (1, m - 2)]) for buffer in buffers]

    def call() -> Any:
        a[...] = given["x"]
        b[...] = given["x"]
        for t in range(steps):
            source.set(buffers[t % 2])
            step.realize(inner[1 - t % 2], TARGET)
        return (a, b)[steps % 2]

    return call


def in_rings(out: Any, rows: int, *stages: Any) -> None:
    """Bands of rows for threads; of the stages in front each row is made once, and kept while it is read."""
    out.split(y, yo, yi, rows, GUARD).parallel(yo).vectorize(x, VECTOR, GUARD)
    for stage in stages:
        stage.store_at(out, yo).compute_at(out, yi).vectorize(x, VECTOR)


def blur(given: Given) -> Call:
    """Rows in a ring."""
    source, reach = hl.Buffer(given["x"]), len(TAPS) - 1
    height, width = (n - reach for n in given["x"].shape)
    rows, out = hl.Func("rows"), hl.Func("out")
    rows[x, y] = weighted([source[x + n, y] for n in range(len(TAPS))])
    out[x, y] = weighted([rows[x, y + n] for n in range(len(TAPS))])
    in_rings(out, BAND, rows)
    return compiled(out, (height, width), given)


def weighted(taps: Sequence[Any]) -> Any:
    """Their sum by the weights."""
    first, *others = (tap * hl.f32(weight) for tap, weight in zip(taps, TAPS))
    return sum(others, start=first)


def corners(given: Given) -> Call:
    """Gradients in rings; their products where they are summed."""
    a = hl.Buffer(given["x"])
    height, width = (n - 4 for n in given["x"].shape)
    gx, gy, out = hl.Func("gx"), hl.Func("gy"), hl.Func("out")
    two, twelfth = hl.f32(2), hl.f32(1 / 12)

    gx[x, y] = (a[x + 2, y] - a[x, y] + two * (a[x + 2, y + 1] - a[x, y + 1]) + a[x + 2, y + 2] - a[x, y + 2]) * twelfth
    gy[x, y] = (a[x, y + 2] - a[x, y] + two * (a[x + 1, y + 2] - a[x + 1, y]) + a[x + 2, y + 2] - a[x + 2, y]) * twelfth

    def sums(left: Any, right: Any) -> Any:
        name = hl.Func("sums")
        places = [(u, v) for v in range(3) for u in range(3)]
        first, *others = (left[x + u, y + v] * right[x + u, y + v] for u, v in places)
        name[x, y] = sum(others, start=first)
        return name[x, y]

    xx, yy, xy = sums(gx, gx), sums(gy, gy), sums(gx, gy)
    out[x, y] = xx * yy - xy * xy - hl.f32(0.04) * (xx + yy) * (xx + yy)
    in_rings(out, BAND, gx, gy)
    return compiled(out, (height, width), given)


BUILDERS: dict[str, Builder] = {
    "matmul": matmul,
    "conv2d": conv2d,
    "softmax": softmax,
    "layer_norm": layer_norm,
    "jacobi": jacobi,
    "blur": blur,
    "corners": corners,
}
