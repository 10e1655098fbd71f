"""The kernels of tensorlang that take part: operators of `topi` under its schedules, as a user would build them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import ml_dtypes
import numpy as np

import tensorlang
from benchmarks import own_vocabulary
from benchmarks.operators import TAPS
from benchmarks.peers.serve import Array, Builder, Call, Given, Unsupported
from benchmarks.stencils import jacobi_rows
from benchmarks.user_programs import corners as harris
from examples.polybench.stencils import jacobi_2d
from tensorlang import te, topi
from tensorlang.ir.expr import to_text
from tensorlang.te.operation import Tensor

TILE_BYTES = 3 << 18
"""What a tile in time reads and writes of two grids: three quarters of the second cache."""


def kernel(inputs: Sequence[Tensor], output: Tensor, arrays: Sequence[Array]) -> Call:
    """The scheduled and compiled program, on these arrays: a callable that gives the array it fills."""
    run = tensorlang.build(topi.schedule(output, tuned=False), [*inputs, output])
    made = np.empty([int(to_text(extent)) for extent in output.shape], output.dtype)

    def call() -> Array:
        run(*arrays, made)
        return made

    return call


def placeholders(arrays: Sequence[Array], names: Sequence[str]) -> list[Tensor]:
    """Inputs like arrays."""
    return [te.placeholder(a.shape, str(a.dtype), name=name) for a, name in zip(arrays, names, strict=True)]


def laid_out(weights: Tensor, packed: Tensor, array: Array) -> tuple[Tensor, Array]:
    """Known weights in the layout of a packing operator, made by a kernel of its own: input and array."""
    made: Array = kernel([weights], packed, [array])()
    return te.placeholder(made.shape, str(made.dtype), name="laid_out"), made


def matmul(given: Given) -> Call:
    """A product, or a batch of them; narrow types are summed in 32 bits."""
    a, b = given["A"], given["B"]
    if given.dtype == "bfloat16":
        a, b = a.astype(ml_dtypes.bfloat16), b.astype(ml_dtypes.bfloat16)
    sums = "int32" if given.dtype == "int8" else "float32"
    A, B = placeholders([a, b], "AB")
    if a.ndim == 3:
        return kernel([A, B], topi.batch_matmul(A, B, sums, transpose_b=False), [a, b])
    if "B" in given.constant and given.dtype != "float32":
        P, packed = laid_out(B, topi.pack_narrow(B, transposed=False), b)
        if given.dtype == "bfloat16":
            return kernel([A, P], topi.dense_narrow(A, P, b.shape[1]), [a, packed])
        subtracted, offsets = laid_out(P, topi.narrow_offsets(P), packed)
        product = topi.dense_narrow(A, P, b.shape[1], offsets=subtracted)
        return kernel([A, P, subtracted], product, [a, packed, offsets])
    if "B" in given.constant:
        P, packed = laid_out(B, topi.pack_weight(B, transposed=False), b)
        return kernel([A, P], topi.dense_packed(A, P, b.shape[1], out_dtype=sums), [a, packed])
    return kernel([A, B], topi.matmul(A, B, out_dtype=sums), [a, b])


def dense_gelu(given: Given) -> Call:
    """The product, and what follows in its tile."""
    x, w, b = given["x"], given["W"], given["b"]
    X, W, B = placeholders([x, w, b], ["x", "W", "b"])
    P, packed = laid_out(W, topi.pack_weight(W, transposed=False), w)
    return kernel([X, P, B], topi.gelu(topi.dense_packed(X, P, w.shape[1], B)), [x, packed, b])


def conv2d(given: Given) -> Call:
    """With weights laid out ahead, but for depthwise ones, and what follows in its tile."""
    x, w, bias = given["x"], given["w"], given.arrays.get("bias")
    stride, padding, groups = (given.options[name] for name in ("stride", "padding", "groups"))
    X, W = placeholders([x, w], "xw")
    if groups == x.shape[1]:
        y, arrays, inputs = topi.depthwise_conv2d_nchw(X, W, stride, padding), [x, w], [X, W]
    else:
        P, packed = laid_out(W, topi.conv2d_pack(W), w)
        y = topi.conv2d(X, P, stride, padding, kernel_layout="OHWI32o", groups=groups, channels=w.shape[0])
        arrays, inputs = [x, packed], [X, P]
    if bias is not None:
        (offset,) = placeholders([bias], ["bias"])
        z = y
        biased = te.compute(z.shape, lambda n, c, i, j: z[n, c, i, j] + offset[c], name="biased")
        y, arrays, inputs = topi.relu(biased), [*arrays, bias], [*inputs, offset]
    return kernel(inputs, y, arrays)


def quantized_conv2d(given: Given) -> Call:
    """Of NHWC data, with weights laid out ahead, and all that follows in its tile."""
    x, w, bias = (np.ascontiguousarray(given["x"].transpose(0, 2, 3, 1)), given["w"], given["bias"].astype(np.int32))
    stride, padding, scale = (given.options[name] for name in ("stride", "padding", "scale"))
    X, W, B = placeholders([x, w, bias], ["x", "w", "bias"])
    P, packed = laid_out(W, topi.pack_narrow_conv2d(W), w)
    F, offsets = laid_out(P, topi.narrow_conv2d_offsets(P), packed)
    offset = te.placeholder(F.shape, F.dtype, name="offsets")
    sums = topi.conv2d_narrow(X, P, len(w), w.shape[2:], stride, padding, 1, "NHWC", B, offset)
    run = kernel([X, P, offset, B], topi.requantize(sums, scale, dtype="uint8"), [x, packed, offsets, bias])
    return lambda: run().transpose(0, 3, 1, 2)


def softmax(given: Given) -> Call:
    """Of rows."""
    (X,) = placeholders([given["x"]], "X")
    return kernel([X], topi.softmax(X), [given["x"]])


def layer_norm(given: Given) -> Call:
    """Of rows."""
    arrays = [given["x"], given["gamma"], given["beta"]]
    X, gamma, beta = placeholders(arrays, ["X", "gamma", "beta"])
    return kernel([X, gamma, beta], topi.layer_norm(X, gamma, beta, epsilon=given.options["epsilon"]), arrays)


def attention(given: Given) -> Call:
    """Without a matrix of scores in memory."""
    arrays = [given[name] for name in "qkv"]
    Q, K, V = placeholders(arrays, "QKV")
    return kernel([Q, K, V], topi.attention(Q, K, V), arrays)


def jacobi(given: Given) -> Call:
    """Two arrays that take turns, in tiles of time: half the rows of a tile are new, the others lean."""
    x, steps = given["x"], given.options["steps"]
    if steps % 2:
        raise Unsupported("an even number of steps only")
    A, B = placeholders([x, x], "AB")
    made = jacobi_2d(steps // 2, x.shape[0], A, B)
    s = te.create_schedule(made[0].op)
    rows = max(4, TILE_BYTES // (2 * x[0].nbytes))
    jacobi_rows(s[s.outputs[0]], rows // 4, rows // 2, given.threads)
    run = tensorlang.build(s, [A, B])
    a, b = x.copy(), x.copy()

    def call() -> Array:
        a[...] = x
        b[...] = x
        run(a, b)
        return a

    return call


def blur(given: Given) -> Call:
    """Two stages, written as they are meant."""
    (X,) = placeholders([given["x"]], "X")
    height, width = (n - len(TAPS) + 1 for n in given["x"].shape)
    rows = te.compute((height + len(TAPS) - 1, width), lambda i, j: _weighted(lambda k: X[i, j + k]), name="rows")
    out = te.compute((height, width), lambda i, j: _weighted(lambda k: rows[i + k, j]), name="blur")
    return kernel([X], out, [given["x"]])


def _weighted(tap: Callable[[int], Any]) -> Any:
    first, *others = (tap(k) * weight for k, weight in enumerate(TAPS))
    return sum(others, start=first)


def corners(given: Given) -> Call:
    """A user's program."""
    (X, measure), _ = harris(*given["x"].shape)
    return kernel([X], measure, [given["x"]])


BUILDERS: dict[str, Builder] = {
    "matmul": matmul,
    "dense_gelu": dense_gelu,
    "conv2d": conv2d,
    "quantized_conv2d": quantized_conv2d,
    "softmax": softmax,
    "layer_norm": layer_norm,
    "attention": attention,
    "jacobi": jacobi,
    "blur": blur,
    "corners": corners,
    **own_vocabulary.BUILDERS,
}
