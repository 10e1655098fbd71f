"""`topi.nn`: operators of `topi`, and those whose parameters or results are others in the namespace of classic topi."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from tensorlang import te, topi
from tensorlang.classic.ahead import (
    conv2d_winograd_nchw_without_weight_transform as conv2d_winograd_nchw_without_weight_transform,
)
from tensorlang.classic.ahead import (
    conv2d_winograd_nhwc_without_weight_transform as conv2d_winograd_nhwc_without_weight_transform,
)
from tensorlang.classic.ahead import conv2d_winograd_weight_transform as conv2d_winograd_weight_transform
from tensorlang.classic.ahead import dense_pack as dense_pack
from tensorlang.classic.ahead import winograd_transform_matrices as winograd_transform_matrices
from tensorlang.errors import DefinitionError
from tensorlang.ir.expr import ExprLike
from tensorlang.names import lookup
from tensorlang.te.operation import Tensor
from tensorlang.topi.axes import extents
from tensorlang.topi.checked import checked
from tensorlang.topi.computed import computed, widened
from tensorlang.topi.windows import Padding, Pair


@checked
def matmul(
    tensor_a: Tensor,
    tensor_b: Tensor,
    bias: Tensor | None = None,
    out_dtype: str | None = None,
    transpose_a: bool = False,
    transpose_b: bool = False,
    name: str = "matmul",
) -> Tensor:
    """Return `topi.matmul`, plus `bias` for each column; DefinitionError where shapes do not fit.

    >>> from tensorlang import te, topi
    >>> te.evaluate(topi.nn.matmul, [[1.0, 2.0]], [[3.0], [4.0]], [1.0])
    array([[12.]], dtype=float32)
    """
    made = topi.matmul(tensor_a, tensor_b, transpose_a, transpose_b, out_dtype, name)
    return made if bias is None else topi.add(made, bias, name=f"{name}_bias")


@checked
def batch_matmul(
    tensor_a: Tensor,
    tensor_b: Tensor,
    oshape: Sequence[int] | None = None,
    out_dtype: str | None = None,
    transpose_a: bool = False,
    transpose_b: bool = True,
    name: str = "batch_matmul",
) -> Tensor:
    """Return `topi.batch_matmul`; `oshape`, which follows from the inputs, is compared.

    >>> from tensorlang import te, topi
    >>> topi.nn.batch_matmul(te.placeholder((2, 3, 4)), te.placeholder((2, 5, 4)), (2, 3, 5), "float64").shape
    (2, 3, 5)
    """
    made = topi.batch_matmul(tensor_a, tensor_b, out_dtype, transpose_a, transpose_b, name)
    if oshape is not None and [str(n) for n in oshape] != [str(n) for n in made.shape]:
        raise DefinitionError(f"{name}: the shape is {made.shape}, and {tuple(oshape)} was asked for")
    return made


@checked
def batch_norm(
    data: Tensor,
    gamma: Tensor,
    beta: Tensor,
    moving_mean: Tensor,
    moving_var: Tensor,
    axis: int | None = None,
    epsilon: float | None = None,
    center: bool | None = None,
    scale: bool | None = None,
    training: bool | None = None,
    momentum: float | None = None,
    name: str = "batch_norm",
) -> list[Tensor]:
    """Return `topi.batch_norm` and the moving statistics, which are those of this batch in part if `training`.

    In training the data are normalized by mean and variance of this batch, and `momentum` (0.1) of these goes into the
    moving ones. None stands for the usual values. DefinitionError for other shapes, and a momentum beyond 0 to 1.

        >>> from tensorlang import te, topi
        >>> x, channels = te.placeholder((2, 3, 4, 4)), [te.placeholder((3,)) for _ in range(4)]
        >>> [t.shape for t in topi.nn.batch_norm(x, *channels, training=True)]
        [(2, 3, 4, 4), (3,), (3,)]
    """
    where, share = 1 if axis is None else axis, 0.1 if momentum is None else momentum
    if not 0 <= share <= 1:
        raise DefinitionError(f"{name}: the momentum is a number from 0 to 1, got {share}")
    mean, variance = moving_mean, moving_var
    if training:
        others = [d for d in range(data.ndim) if d != where % data.ndim]
        mean = topi.mean(data, others, name=f"{name}_mean")
        variance = _variance(data, mean, others, name)
    made = topi.batch_norm(
        data,
        gamma,
        beta,
        mean,
        variance,
        where,
        1e-5 if epsilon is None else epsilon,
        center is not False,
        scale is not False,
        name,
    )

    def moved(old: Tensor, new: Tensor, word: str) -> Tensor:
        new_share = share if training else 0.0
        return computed(old.shape, lambda c: old(c) * (1 - new_share) + new(c) * new_share, f"{name}_moving_{word}")

    return [made, moved(moving_mean, mean, "mean"), moved(moving_var, variance, "var")]


def _variance(data: Tensor, mean: Tensor, axes: Sequence[int], name: str) -> Tensor:
    """The mean of squares of what differs from the mean of a channel."""
    (channel,) = (d for d in range(data.ndim) if d not in axes)

    def square(*i: Any) -> Any:
        off = widened(data(*i)) - widened(mean(i[channel]))
        return te.cast(off * off, data.dtype)

    return topi.mean(computed(data.shape, square, f"{name}_square"), axes, name=f"{name}_var")


def rms_norm(
    data: Tensor, weight: Tensor | None = None, *others: Any, bias: Tensor | None = None, **options: Any
) -> Tensor:
    """Return `topi.rms_norm`, plus a bias in the shape of `weight`, which may be given behind it.

    >>> from tensorlang import te, topi
    >>> te.evaluate(topi.nn.rms_norm, [[3.0, 4.0]], [1.0, 1.0], [1.0, 2.0], epsilon=0.0).round(4)
    array([[1.8485, 3.1314]], dtype=float32)
    """
    if others and (others[0] is None or isinstance(others[0], Tensor)):
        bias, others = others[0], others[1:]
    made: Tensor = topi.rms_norm(data, weight, *others, **options)
    if bias is None:
        return made
    axis = others[0] if others else options.get("axis", -1)
    axes = sorted(d % data.ndim for d in ([axis] if isinstance(axis, int) else axis))
    if [str(n) for n in bias.shape] != [str(data.shape[d]) for d in axes]:
        raise DefinitionError(f"rms_norm over axes {axes} of {data} wants a bias of their shape, got {bias}")
    return computed(made.shape, lambda *i: made(*i) + bias(*(i[d] for d in axes)), "rms_norm_bias")


@checked
def conv2d_winograd_nchw(
    data: Tensor,
    weight: Tensor,
    strides: Pair,
    padding: Padding,
    dilation: Pair,
    out_dtype: str | None = None,
    pre_computed: bool = False,
) -> Tensor:
    """Return `topi.conv2d` of NCHW data by Winograd's algorithm.

    `pre_computed`: as conv2d_winograd_nchw_without_weight_transform.

    >>> from tensorlang import te, topi
    >>> data, weight = te.placeholder((1, 16, 14, 14)), te.placeholder((8, 16, 3, 3))
    >>> topi.nn.conv2d_winograd_nchw(data, weight, 1, 1, 1).shape
    (1, 8, 14, 14)
    """
    return _winograd(data, weight, (strides, padding, dilation), "NCHW", out_dtype, pre_computed)


@checked
def conv2d_winograd_nhwc(
    data: Tensor,
    weight: Tensor,
    strides: Pair,
    padding: Padding,
    dilation: Pair,
    out_dtype: str | None = None,
    pre_computed: bool = False,
) -> Tensor:
    """Return `topi.conv2d` of NHWC data by Winograd's algorithm.

    `pre_computed`: as conv2d_winograd_nhwc_without_weight_transform.

    >>> from tensorlang import te, topi
    >>> data, weight = te.placeholder((1, 14, 14, 16)), te.placeholder((3, 3, 16, 8))
    >>> topi.nn.conv2d_winograd_nhwc(data, weight, 1, 1, 1).shape
    (1, 14, 14, 8)
    """
    return _winograd(data, weight, (strides, padding, dilation), "NHWC", out_dtype, pre_computed)


def _winograd(
    data: Tensor,
    weight: Tensor,
    moves: tuple[Pair, Padding, Pair],
    layout: str,
    out_dtype: str | None,
    pre_computed: bool,
) -> Tensor:
    strides, padding, dilation = moves
    if pre_computed:
        ahead = (
            conv2d_winograd_nchw_without_weight_transform
            if layout == "NCHW"
            else conv2d_winograd_nhwc_without_weight_transform
        )
        return ahead(data, weight, strides, padding, dilation, out_dtype)
    return topi.conv2d(data, weight, strides, padding, dilation, layout, out_dtype=out_dtype, algorithm="winograd")


@checked
def unpack_NCHWc_to_nchw(packed_out: Tensor, out_dtype: str) -> Tensor:
    """Return blocked data [n, c / b, h, w, b] as NCHW, in a dtype.

    >>> from tensorlang import te, topi
    >>> topi.nn.unpack_NCHWc_to_nchw(te.placeholder((1, 2, 3, 3, 8)), "int32").shape
    (1, 16, 3, 3)
    """
    if packed_out.ndim != 5:
        raise DefinitionError(f"unpack_NCHWc_to_nchw wants data of 5 dimensions, got {packed_out}")
    n, chunks, high, wide, block = packed_out.shape

    def element(b: Any, c: Any, y: Any, x: Any) -> Any:
        return te.cast(packed_out(b, c // block, y, x, c % block), out_dtype)

    return computed((n, chunks * block, high, wide), element, "output_unpack")


@checked
def upsampling3d(
    data: Tensor,
    scale_d: float,
    scale_h: float,
    scale_w: float,
    layout: str = "NCDHW",
    method: str = "nearest_neighbor",
    coordinate_transformation_mode: str = "half_pixel",
) -> Tensor:
    """Return volumes with so many times the elements along their axes: `topi.resize3d`.

    >>> from tensorlang import te, topi
    >>> topi.nn.upsampling3d(te.placeholder((1, 2, 3, 3, 3)), 2, 2, 1).shape
    (1, 2, 6, 6, 3)
    """
    if sorted(layout) != sorted("NCDHW") or data.ndim != 5:
        raise DefinitionError(f"upsampling3d wants volumes and a layout of the letters NCDHW, got {data}, {layout!r}")
    have = dict(zip(layout, extents("upsampling3d", data), strict=True))
    size = [round(have[letter] * scale) for letter, scale in zip("DHW", (scale_d, scale_h, scale_w), strict=True)]
    mode = coordinate_transformation_mode
    return topi.resize3d(data, None, size, layout, method, mode)


@checked
def sparse_conv2d(
    dense_data: Tensor,
    sparse_data: Tensor,
    sparse_indices: Tensor,
    sparse_indptr: Tensor,
    layout: str = "NHWC",
    kernel_size: int = 1,
) -> Tensor:
    """Return images convolved with windows of one pixel, whose weights [outputs, c] are sparse (CSR or BSR).

    Blocks of one column may be [n, rows].

    DefinitionError for other windows, layouts than NHWC and NCHW, and shapes that do not fit.

        >>> from tensorlang import te, topi
        >>> index = [te.placeholder((n,), "int32") for n in (3, 5)]
        >>> topi.nn.sparse_conv2d(te.placeholder((1, 6, 6, 8)), te.placeholder((3, 4, 1)), *index).shape
        (1, 6, 6, 16)
    """
    if kernel_size != 1 or layout not in ("NHWC", "NCHW") or dense_data.ndim != 4:
        raise DefinitionError(
            f"sparse_conv2d wants images in NHWC or NCHW and kernel_size 1; got {dense_data}, {layout!r}, {kernel_size}"
        )
    last = layout == "NHWC"
    n, high, wide, c = (dense_data.shape[d] for d in ((0, 1, 2, 3) if last else (0, 2, 3, 1)))

    def pixel(row: Any, k: Any) -> Any:
        b, y, x = row // (high * wide), row // wide % high, row % wide
        return dense_data(b, y, x, k) if last else dense_data(b, k, y, x)

    rows = computed((n * high * wide, c), pixel, "sparse_conv2d_rows")
    blocks = sparse_data if sparse_data.ndim != 2 else topi.expand_dims(sparse_data, 2)
    made = topi.sparse_dense_sp_rhs(rows, blocks, sparse_indices, sparse_indptr)
    outputs = made.shape[1]

    def element(b: Any, *place: Any) -> Any:
        f, y, x = (place[2], place[0], place[1]) if last else place
        return made((b * high + y) * wide + x, f)

    return computed((n, high, wide, outputs) if last else (n, outputs, high, wide), element, "sparse_conv2d")


@checked
def instance_norm(
    data: Tensor, gamma: Tensor, beta: Tensor, axis: Sequence[int] | int, epsilon: ExprLike = 1e-5
) -> Tensor:
    """Return `topi.instance_norm`, or `topi.layer_norm` for weights in the shape of the axes, as TVM to 0.14 has it.

    >>> from tensorlang import te, topi
    >>> te.evaluate(topi.nn.instance_norm, [[1.0, 3.0]], [1.0, 2.0], [0.0, 0.0], axis=[1], epsilon=0.0)
    array([[-1.,  2.]], dtype=float32)
    """
    axes = [axis] if isinstance(axis, int) else list(axis)
    if 1 in axes or gamma.ndim != 1:
        return topi.layer_norm(data, gamma, beta, axes, epsilon, "instance_norm")
    return topi.instance_norm(data, gamma, beta, axes, epsilon)


if TYPE_CHECKING:  # what is not defined here
    from tensorlang.classic import constants
    from tensorlang.classic.constants import get_pad_tuple as get_pad_tuple
    from tensorlang.classic.constants import get_pad_tuple1d as get_pad_tuple1d
    from tensorlang.classic.constants import get_pad_tuple3d as get_pad_tuple3d
    from tensorlang.classic.constants import get_pad_tuple_generic as get_pad_tuple_generic
    from tensorlang.topi import *  # type: ignore[assignment] # noqa: F403

    utils = constants
else:

    def __getattr__(name: str) -> Any:
        return lookup(__name__, name) if name in ("utils", "pooling") else getattr(topi, name)


def __dir__() -> list[str]:
    return dir(topi)
