"""`topi.nn`: products and convolutions whose weights were laid out, or transformed, before."""

from __future__ import annotations

import numpy as np

from tensorlang import dtypes, te, topi
from tensorlang.classic.constants import const_matrix, get_const_tuple
from tensorlang.errors import DefinitionError
from tensorlang.ir.expr import Expr
from tensorlang.te.operation import Tensor
from tensorlang.topi.checked import checked
from tensorlang.topi.computed import computed
from tensorlang.topi.toom_cook import POINTS, WINDOW, transforms
from tensorlang.topi.windows import Padding, Pair


@checked
def winograd_transform_matrices(tile_size: int, kernel_size: int, out_dtype: str) -> tuple[Tensor, Tensor, Tensor]:
    """Return the matrices A, B and G of Winograd's algorithm, for tiles of 2 or 4 results and windows of 3.

    A tile is `A.T @ ((G @ g) * (B.T @ d))`. They are exact at other points than TVM's: weights that were transformed
    by one library are no use to the other. DefinitionError for other sizes.

        >>> from tensorlang import topi
        >>> [matrix.shape for matrix in topi.nn.winograd_transform_matrices(4, 3, "float32")]
        [(6, 4), (6, 6), (6, 3)]
    """
    if tile_size not in POINTS or kernel_size != WINDOW:
        known = " or ".join(map(str, POINTS))
        raise DefinitionError(f"tiles of {known} results, by windows of {WINDOW}; got {tile_size} and {kernel_size}")
    data, weights, results = (np.array(matrix, np.float64) for matrix in transforms(tile_size))
    numpy = dtypes.info(out_dtype).numpy
    return (
        const_matrix(results.T.astype(numpy), "A"),
        const_matrix(data.T.astype(numpy), "B"),
        const_matrix(weights.astype(numpy), "G"),
    )


@checked
def conv2d_winograd_weight_transform(kernel: Tensor, tile_size: int) -> Tensor:
    """Return weights OIHW of 3 * 3 as Winograd's algorithm multiplies by them, [tile + 2, tile + 2, o, i].

    DefinitionError for other windows, and tiles of other than 2 or 4 results.

        >>> from tensorlang import te, topi
        >>> topi.nn.conv2d_winograd_weight_transform(te.placeholder((8, 16, 3, 3)), 4).shape
        (6, 6, 8, 16)
    """
    (outputs,) = get_const_tuple(kernel.shape[:1]) if kernel.ndim == 4 else (0,)
    packed = topi.winograd_pack(kernel, tile_size, max(outputs, 1), name="transformed_weight")
    n, _, _, depth, _ = packed.shape
    return computed((n, n, outputs, depth), lambda xi, nu, o, i: packed(xi, nu, 0, i, o), "kernel_pack")


@checked
def conv2d_winograd_nchw_without_weight_transform(
    data: Tensor, weight: Tensor, strides: Pair, padding: Padding, dilation: Pair, out_dtype: str | None = None
) -> Tensor:
    """Return the convolution of NCHW data with weights that were transformed, [tile + 2, tile + 2, i, o].

    Those of conv2d_winograd_weight_transform have their last two axes in the other order. DefinitionError for steps
    and dilations of more than 1, and shapes that do not fit.

        >>> from tensorlang import te, topi
        >>> data, weight = te.placeholder((1, 16, 14, 14)), te.placeholder((6, 6, 16, 8))
        >>> topi.nn.conv2d_winograd_nchw_without_weight_transform(data, weight, 1, 1, 1).shape
        (1, 8, 14, 14)
    """
    return _convolved(data, weight, (2, 3), (strides, dilation), padding, "NCHW", out_dtype)


@checked
def conv2d_winograd_nhwc_without_weight_transform(
    data: Tensor, weight: Tensor, strides: Pair, padding: Padding, dilation: Pair, out_dtype: str | None = None
) -> Tensor:
    """Return the convolution of NHWC data with weights of conv2d_winograd_weight_transform, [., ., o, i].

    DefinitionError for steps and dilations of more than 1, and shapes that do not fit.

        >>> from tensorlang import te, topi
        >>> data, weight = te.placeholder((1, 14, 14, 16)), te.placeholder((6, 6, 8, 16))
        >>> topi.nn.conv2d_winograd_nhwc_without_weight_transform(data, weight, 1, 1, 1).shape
        (1, 14, 14, 8)
    """
    return _convolved(data, weight, (3, 2), (strides, dilation), padding, "NHWC", out_dtype)


def _convolved(
    data: Tensor,
    weight: Tensor,
    axes: tuple[int, int],
    steps: tuple[Pair, Pair],
    padding: Padding,
    layout: str,
    out_dtype: str | None,
) -> Tensor:
    """A convolution whose weights have their inputs and outputs along `axes`."""
    if any(n not in (1, (1, 1), [1, 1]) for n in steps) or weight.ndim != 4 or out_dtype not in (None, data.dtype):
        wanted = f"steps and dilations of 1, weights of 4 dimensions, and results of {data.dtype}"
        raise DefinitionError(f"weights transformed ahead want {wanted}; got {steps}, {weight} and {out_dtype}")
    depth, outputs = (weight.shape[axis] for axis in axes)

    def element(xi: Expr, nu: Expr, block: Expr, i: Expr, o: Expr) -> Expr:
        return weight(xi, nu, *((i, o) if axes == (2, 3) else (o, i)))

    packed = computed((*weight.shape[:2], 1, depth, outputs), element, "packed_weight")
    return topi.conv2d_winograd(data, packed, padding, layout)


@checked
def dense_pack(data: Tensor, weight: Tensor, bias: Tensor | None = None, out_dtype: str | None = None) -> Tensor:
    """Return the product of data [m, k] and weights that lie in panels, [n / b, k, b], plus a bias [n].

    DefinitionError for shapes that do not fit.

        >>> from tensorlang import te, topi
        >>> topi.nn.dense_pack(te.placeholder((4, 32)), te.placeholder((3, 32, 16))).shape
        (4, 48)
    """
    if data.ndim != 2 or weight.ndim != 3:
        raise DefinitionError(f"dense_pack wants data [m, k] and weights [n / b, k, b]; got {data} and {weight}")
    panels, depth, wide = weight.shape
    rows = computed((panels * wide, depth), lambda n, k: weight(te.floordiv(n, wide), k, te.floormod(n, wide)), "rows")
    return topi.dense(data, rows, bias, out_dtype)
