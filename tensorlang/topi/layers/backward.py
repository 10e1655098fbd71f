"""Gradients of layers under classic topi's names: what te.gradient makes of their definitions."""

from __future__ import annotations

from collections.abc import Sequence

from tensorlang import te
from tensorlang.errors import DefinitionError
from tensorlang.ir.expr import same
from tensorlang.te.autodiff.gradient import gradient
from tensorlang.te.operation import Tensor
from tensorlang.topi.checked import checked
from tensorlang.topi.computed import computed
from tensorlang.topi.depthwise import depthwise_conv2d_nhwc
from tensorlang.topi.pooling import pool2d
from tensorlang.topi.windows import Padding, Pair


@checked
def pool_grad(
    grads: Tensor,
    data: Tensor,
    kernel: Pair,
    stride: Pair,
    padding: Padding,
    pool_type: str,
    ceil_mode: bool = False,
    layout: str = "NCHW",
    count_include_pad: bool = True,
    name: str = "pool_grad",
) -> Tensor:
    """Return the gradient of `pool2d` of `data`, given that of its result, `grads`.

    Equal largest elements of a window share its gradient alike. DefinitionError as for pool2d, and where `grads` has
    another shape.

        >>> from tensorlang import te, topi
        >>> grads, data = te.placeholder((1, 2, 4, 4)), te.placeholder((1, 2, 8, 8))
        >>> topi.nn.pool_grad(grads, data, 2, 2, 0, "max").shape
        (1, 2, 8, 8)
    """
    made = pool2d(data, kernel, stride, 1, padding, pool_type, ceil_mode, layout, count_include_pad, f"{name}_pool")
    return _adjoint(name, made, data, grads)


@checked
def depthwise_conv2d_backward_input_nhwc(
    Filter: Tensor,
    Out_grad: Tensor,
    oshape: Sequence[int],
    ishape: Sequence[int],
    stride: Pair,
    padding: Padding,
    name: str = "depthwise_conv2d_backward_input",
) -> Tensor:
    """Return the gradient of the NHWC data, of shape `ishape`, of `depthwise_conv2d_nhwc`, given that of its result.

    `Filter` [kh, kw, channels, multiplier], `Out_grad` of shape `oshape`. DefinitionError where the shapes do not fit.

        >>> from tensorlang import te, topi
        >>> filters, slopes = te.placeholder((3, 3, 8, 1)), te.placeholder((1, 4, 4, 8))
        >>> topi.depthwise_conv2d_backward_input_nhwc(filters, slopes, (1, 4, 4, 8), (1, 6, 6, 8), 1, 0).shape
        (1, 6, 6, 8)
    """
    data = te.placeholder(tuple(ishape), Filter.dtype, f"{name}_data")
    made = depthwise_conv2d_nhwc(data, Filter, stride, padding, name=f"{name}_conv")
    _check(name, Out_grad, oshape)
    return _adjoint(name, made, data, Out_grad)


@checked
def depthwise_conv2d_backward_weight_nhwc(
    Input: Tensor,
    Out_grad: Tensor,
    oshape: Sequence[int],
    fshape: Sequence[int],
    stride: Pair,
    padding: Padding,
    name: str = "depthwise_conv2d_backward_weight",
) -> Tensor:
    """Return the gradient of the weights, of shape `fshape`, of `depthwise_conv2d_nhwc` of NHWC data `Input`.

    `Out_grad` of shape `oshape` is the gradient of the result. DefinitionError where the shapes do not fit.

        >>> from tensorlang import te, topi
        >>> data, slopes = te.placeholder((1, 6, 6, 8)), te.placeholder((1, 4, 4, 8))
        >>> topi.depthwise_conv2d_backward_weight_nhwc(data, slopes, (1, 4, 4, 8), (3, 3, 8, 1), 1, 0).shape
        (3, 3, 8, 1)
    """
    weight = te.placeholder(tuple(fshape), Input.dtype, f"{name}_filter")
    made = depthwise_conv2d_nhwc(Input, weight, stride, padding, name=f"{name}_conv")
    _check(name, Out_grad, oshape)
    return _adjoint(name, made, weight, Out_grad)


def _check(name: str, given: Tensor, shape: Sequence[int]) -> None:
    if given.ndim != len(shape) or not all(map(same, given.shape, te.placeholder(tuple(shape)).shape)):
        raise DefinitionError(f"{name} wants a gradient of shape {tuple(shape)}, got {given}")


def _adjoint(name: str, output: Tensor, source: Tensor, head: Tensor) -> Tensor:
    if head.ndim != output.ndim or not all(map(same, head.shape, output.shape)):
        raise DefinitionError(f"{name}: the gradient of the result has its shape, {output.shape}; got {head}")
    (found,) = gradient(output, [source], head)
    return computed(found.shape, found, name)
