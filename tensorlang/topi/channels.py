"""Functions of channels: biases and slopes, norms over groups of them, and over neighbours."""

from __future__ import annotations

from collections.abc import Sequence

from tensorlang import dtypes, te
from tensorlang.errors import DefinitionError
from tensorlang.ir.expr import Expr, ExprLike, binary, same
from tensorlang.ir.simplify import simplify
from tensorlang.te.axis import extent_of
from tensorlang.te.operation import Tensor
from tensorlang.topi.axes import normalized, normalized_all
from tensorlang.topi.checked import checked
from tensorlang.topi.computed import computed, widened
from tensorlang.topi.normalization import layer_norm_in
from tensorlang.topi.transform import reshape


def _vector(operator: str, data: Tensor, x: Tensor, where: int) -> None:
    """Refuse what has not one element for each channel."""
    if x.ndim != 1 or not same(x.shape[0], data.shape[where]):
        raise DefinitionError(f"{operator} wants a vector with an element for each of axis {where} of {data}, got {x}")


@checked
def bias_add(data: Tensor, bias: Tensor, axis: int = 1, name: str = "bias_add") -> Tensor:
    """Return `data` plus the element of `bias` for each place along an axis; DefinitionError where it does not fit.

    >>> from tensorlang import te, topi
    >>> te.evaluate(topi.bias_add, [[1.0, 2.0]], [10.0, 20.0])
    array([[11., 22.]], dtype=float32)
    """
    where = normalized("bias_add", data, axis)
    _vector("bias_add", data, bias, where)
    return computed(data.shape, lambda *i: data(*i) + bias(i[where]), name)


@checked
def prelu(x: Tensor, slope: Tensor, axis: int = 1, name: str = "prelu") -> Tensor:
    """Return `x` where it is positive, `slope` of its channel times `x` elsewhere; DefinitionError for other slopes.

    >>> from tensorlang import te, topi
    >>> te.evaluate(topi.prelu, [[-2.0, 2.0]], [0.5, 0.5])
    array([[-1.,  2.]], dtype=float32)
    """
    where = normalized("prelu", x, axis)
    _vector("prelu", x, slope, where)
    return computed(x.shape, lambda *i: te.select(x(*i) > 0, x(*i), x(*i) * slope(i[where])), name)


@checked
def scale_shift_nhwc(Input: Tensor, Scale: Tensor, Shift: Tensor, name: str = "scale_shift") -> Tensor:
    """Return images [n, h, w, c] times the scale of their channels plus the shift, as scale_shift_nchw.

    >>> from tensorlang import te, topi
    >>> te.evaluate(topi.nn.scale_shift_nhwc, [[[[1.0, 2.0]]]], [10.0, 10.0], [1.0, 2.0]).tolist()
    [[[[11.0, 22.0]]]]
    """
    for vector in (Scale, Shift):
        _vector("scale_shift_nhwc", Input, vector, normalized("scale_shift_nhwc", Input, -1))
    return computed(Input.shape, lambda *i: Input(*i) * Scale(i[-1]) + Shift(i[-1]), name)


@checked
def scale_shift_nchwc(Input: Tensor, Scale: Tensor, Shift: Tensor, name: str = "scale_shift") -> Tensor:
    """Return images [n, c / b, h, w, b] times the scales [c / b, b] of their channels plus the shifts.

    >>> from tensorlang import te, topi
    >>> te.evaluate(topi.nn.scale_shift_nchwc, [[[[[1.0, 2.0]]]]], [[10.0, 10.0]], [[1.0, 2.0]]).tolist()
    [[[[[11.0, 22.0]]]]]
    """
    for matrix in (Scale, Shift):
        wanted = (Input.shape[1], Input.shape[4]) if Input.ndim == 5 else ()
        if not wanted or matrix.ndim != 2 or not all(map(same, matrix.shape, wanted)):
            raise DefinitionError(f"scale_shift_nchwc wants a matrix for axes 1 and 4 of {Input}, got {matrix}")
    return computed(Input.shape, lambda *i: Input(*i) * Scale(i[1], i[4]) + Shift(i[1], i[4]), name)


@checked
def scale_shift_nchw(Input: Tensor, Scale: Tensor, Shift: Tensor, name: str = "scale_shift") -> Tensor:
    """Return images times the scale of their channels plus the shift; DefinitionError where these do not fit.

    >>> from tensorlang import te, topi
    >>> te.evaluate(topi.scale_shift_nchw, [[[[1.0]], [[2.0]]]], [10.0, 10.0], [1.0, 2.0]).tolist()
    [[[[11.0]], [[22.0]]]]
    """
    _vector("scale_shift_nchw", Input, Scale, normalized("scale_shift_nchw", Input, 1))
    _vector("scale_shift_nchw", Input, Shift, 1)
    return computed(Input.shape, lambda *i: Input(*i) * Scale(i[1]) + Shift(i[1]), name)


@checked
def instance_norm(
    data: Tensor,
    gamma: Tensor,
    beta: Tensor,
    axis: int | Sequence[int] = (2, 3),
    epsilon: ExprLike = 1e-5,
    channel_axis: int = 1,
    name: str = "instance_norm",
) -> Tensor:
    """Return data normalized over the axes of each channel, times `gamma` of the channel, plus `beta` of it.

    Half precision is computed in float32. DefinitionError for wrong axes, shapes or dtypes.

        >>> from tensorlang import te, topi
        >>> te.evaluate(topi.instance_norm, [[[[1.0, 3.0]]]], [1.0], [0.0], epsilon=0.0).tolist()
        [[[[-1.0, 1.0]]]]
    """
    where = normalized("instance_norm", data, channel_axis)
    for weight in (gamma, beta):
        _vector("instance_norm", data, weight, where)
    made = layer_norm_in(dtypes.at_least_float32(data.dtype), data, None, None, axis, epsilon, f"{name}_norm")

    def element(*i: Expr) -> Expr:
        return te.cast(made(*i) * widened(gamma(i[where])) + widened(beta(i[where])), data.dtype)

    return computed(data.shape, element, name)


@checked
def group_norm(
    data: Tensor,
    gamma: Tensor,
    beta: Tensor,
    num_groups: int,
    channel_axis: int = 1,
    axes: Sequence[int] = (2, 3),
    epsilon: ExprLike = 1e-5,
    name: str = "group_norm",
) -> Tensor:
    """Return data normalized over some axes and the channels of each group, times `gamma` and plus `beta` of a channel.

    Half precision is computed in float32. DefinitionError for channels that make no such groups, and for wrong axes,
    shapes or dtypes.

        >>> from tensorlang import te, topi
        >>> te.evaluate(
        ...     topi.group_norm, [[[1.0], [3.0]]], [1.0, 1.0], [0.0, 0.0], num_groups=1, axes=[2], epsilon=0.0
        ... ).tolist()
        [[[-1.0], [1.0]]]
    """
    where = normalized("group_norm", data, channel_axis)
    over = normalized_all("group_norm", data, axes)
    for weight in (gamma, beta):
        _vector("group_norm", data, weight, where)
    channels = extent_of(data.shape[where])
    if num_groups < 1 or channels is None or channels % num_groups or where in over:
        raise DefinitionError(f"group_norm: axis {where} of {data} does not make {num_groups} groups")
    size = channels // num_groups
    split = reshape(data, [*data.shape[:where], num_groups, size, *data.shape[where + 1 :]], name=f"{name}_groups")
    own = [where + 1, *[d + (d > where) for d in over]]
    made = layer_norm_in(dtypes.at_least_float32(data.dtype), split, None, None, own, epsilon, f"{name}_norm")

    def element(*i: Expr) -> Expr:
        c = i[where]
        at = [*i[:where], binary("floordiv", c, size), binary("floormod", c, size), *i[where + 1 :]]
        return te.cast(made(*at) * widened(gamma(c)) + widened(beta(c)), data.dtype)

    return computed(data.shape, element, name)


@checked
def lrn(
    data: Tensor,
    size: int,
    axis: int = 1,
    alpha: float = 0.0001,
    beta: float = 0.75,
    bias: float = 2.0,
    name: str = "lrn",
) -> Tensor:
    """Return `data / (bias + alpha / size * s) ** beta`, s the sum of squares of `size` neighbours along an axis.

    Krizhevsky et al. 2012. Half precision is computed in float32. DefinitionError for an even size, and for integers.

        >>> import numpy as np
        >>> from tensorlang import te, topi
        >>> te.evaluate(topi.lrn, np.ones((1, 3, 1, 1)), size=3, alpha=3.0, bias=0.0).round(4).tolist()
        [[[[0.5946]], [[0.4387]], [[0.5946]]]]
    """
    where = normalized("lrn", data, axis)
    if size < 1 or size % 2 == 0 or not dtypes.info(data.dtype).is_float:
        raise DefinitionError(f"lrn wants floats and an odd number of neighbours, got {data.dtype} and {size}")
    wide = dtypes.at_least_float32(data.dtype)
    k = te.reduce_axis((0, size), "k")

    def squares(*i: Expr) -> Expr:
        place = i[where] + k - size // 2
        value = te.cast(data(*i[:where], place, *i[where + 1 :]), wide)
        inside = te.all(place >= 0, place < data.shape[where])
        return te.sum(value * value, axis=k, where=inside)

    total = computed(data.shape, squares, f"{name}_squares")

    def element(*i: Expr) -> Expr:
        scale = te.power(bias + alpha / size * total(*i), te.cast(beta, wide))
        return te.cast(te.cast(data(*i), wide) / scale, data.dtype)

    return computed([simplify(n) for n in data.shape], element, name)
