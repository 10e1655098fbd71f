"""`topi.testing`: what operators come to on NumPy arrays, and schedules to test them by.

References are those of the definitions: what a definition means, evaluated by NumPy without any schedule
(`te.reference`), or NumPy's own function where there is one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from itertools import takewhile
from typing import Any

import numpy as np
import numpy.typing as npt

from tensorlang import dtypes, te, topi
from tensorlang.classic import nn
from tensorlang.classic.schedules import schedule_all
from tensorlang.driver import build
from tensorlang.errors import DefinitionError
from tensorlang.location import caller
from tensorlang.names import lookup
from tensorlang.schedule import Schedule
from tensorlang.target import parse
from tensorlang.te.operation import Tensor
from tensorlang.topi import vision

Array = npt.NDArray[Any]
Function = Callable[..., Any]
Numbers = int | Sequence[int]


def meant(function: Function, *arrays: Array, **options: Any) -> Any:
    """Return what a function of tensors means for arrays, by the reference of its definition; several as a list."""
    found = te.evaluate(function, *map(np.asarray, arrays), **options)
    return list(found) if isinstance(found, tuple) else found


def _windows(function: Function, data: Array, kernel: Array, stride: Numbers, padding: Any, *more: Any) -> Any:
    return meant(lambda a, w: function(a, w, stride, padding, *more), data, kernel)


def conv2d_nchw_python(a_np: Array, w_np: Array, stride: Numbers, padding: Any, groups: int = 1) -> Any:
    """Return the convolution of NCHW data by OIHW weights."""
    return _windows(topi.group_conv2d_nchw, a_np, w_np, stride, padding, 1, groups)


def conv2d_nhwc_python(a_np: Array, w_np: Array, stride: Numbers, padding: Any, groups: int = 1) -> Any:
    """Return the convolution of NHWC data by HWIO weights."""
    return _windows(topi.group_conv2d_nhwc, a_np, w_np, stride, padding, 1, groups)


def conv2d_hwcn_python(a_np: Array, w_np: Array, stride: Numbers, padding: Any) -> Any:
    """Return the convolution of HWCN data by HWIO weights, in HWCN."""
    made = conv2d_nhwc_python(a_np.transpose(3, 0, 1, 2), w_np, stride, padding)
    return made.transpose(1, 2, 3, 0)


def adaptive_pool(np_data: Array, out_size: Numbers, pool_type: str, layout: str = "NCHW") -> Any:
    """Return the maximum or the mean of windows that share out lines, images or volumes."""
    pools = {3: topi.adaptive_pool1d, 4: topi.adaptive_pool, 5: topi.adaptive_pool3d}
    return meant(lambda data: pools[data.ndim](data, out_size, pool_type, layout), np_data)


def dilate_python(
    input_np: Array, strides: Sequence[int], dilation_value: float = 0.0, out_dtype: str | None = None
) -> Array:
    """Return data with `strides - 1` values between neighbours."""
    shape = [(n - 1) * step + 1 for n, step in zip(input_np.shape, strides, strict=True)]
    made = np.full(shape, dilation_value, out_dtype or input_np.dtype)
    made[tuple(slice(None, None, step) for step in strides)] = input_np
    return made


def softmax_python(a_np: Array, axis: int = 1) -> Array:
    """Return the softmax along an axis."""
    powers = np.exp(a_np - a_np.max(axis=axis, keepdims=True))
    return np.asarray(powers / powers.sum(axis=axis, keepdims=True))


def log_softmax_python(a_np: Array, axis: int = 1) -> Array:
    """Return the logarithm of the softmax along an axis."""
    below = a_np - a_np.max(axis=axis, keepdims=True)
    return np.asarray(below - np.log(np.exp(below).sum(axis=axis, keepdims=True)))


def l2_normalize_python(a_np: Array, eps: float, axis: Numbers | None = None) -> Array:
    """Return data divided by the root of its sum of squares, which is at least `eps`."""
    squares = np.sum(np.square(a_np), axis=axis if axis is None else tuple(np.atleast_1d(axis)), keepdims=True)
    return np.asarray(a_np / np.sqrt(np.maximum(squares, eps)))


def batch_matmul(
    x: Array, y: Array, out_dtype: str | None = None, trans_x: bool = False, trans_y: bool = True
) -> Array:
    """Return products of matrices, batch by batch; a batch of one goes with all."""
    dtype = out_dtype or x.dtype
    rows, columns = x.swapaxes(1, 2) if trans_x else x, y.swapaxes(1, 2) if trans_y else y
    return np.asarray(np.matmul(rows.astype(dtype), columns.astype(dtype)))


def dense(
    x: Array,
    y: Array,
    bias: Array | None,
    use_bias: bool = False,
    use_relu: bool = False,
    out_dtype: str | None = None,
) -> Array:
    """Return `x @ y.T`, with a bias and relu if asked for."""
    dtype = out_dtype or x.dtype
    made = np.dot(x.astype(dtype), y.T.astype(dtype))
    made = made + bias if use_bias and bias is not None else made
    return np.asarray(np.maximum(made, 0) if use_relu else made)


def poolnd_python(
    np_data: Array,
    kernel: Sequence[int],
    strides: Sequence[int],
    dilation: Sequence[int],
    padding_before: Sequence[int],
    padding_after: Sequence[int],
    pool_type: str,
    count_include_pad: bool = True,
    ceil_mode: bool = False,
    dtype: str = "float32",
    layout: str | None = None,
) -> Any:
    """Return pooling over one to three axes."""
    over = {1: (topi.pool1d, "NCW"), 2: (topi.pool2d, "NCHW"), 3: (topi.pool3d, "NCDHW")}
    function, usual = over[len(kernel)]
    padding = (*padding_before, *padding_after)
    made = meant(
        lambda a: function(
            a, kernel, strides, dilation, padding, pool_type, ceil_mode, layout or usual, count_include_pad
        ),
        np_data,
    )
    return made.astype(dtype)


def _resized(function: Function, data: Array, size: Sequence[int], layout: str, method: str, corners: str) -> Any:
    return meant(lambda a: function(a, None, size, layout, method, coordinate_transformation_mode=corners), data)


def _scaled(data: Array, scale: Sequence[float], layout: str) -> list[int]:
    places = [layout.index(letter) for letter in "DHW" if letter in layout]
    return [round(data.shape[place] * factor) for place, factor in zip(places, scale, strict=True)]


def _resize_python(
    function: Function,
    data: Array,
    scale: Sequence[float],
    layout: str,
    method: str = "linear",
    coordinate_transformation_mode: str = "align_corners",
) -> Any:
    """Return data resized by factors; `layout` names its axes."""
    return _resized(function, data, _scaled(data, scale, layout), layout, method, coordinate_transformation_mode)


resize1d_python = partial(_resize_python, topi.resize1d)
resize2d_python = partial(_resize_python, topi.resize2d)
resize3d_python = partial(_resize_python, topi.resize3d)


def upsampling_python(data: Array, scale: Sequence[float], layout: str = "NCHW") -> Any:
    """Return images scaled up by repeating pixels."""
    down, right = scale
    return meant(lambda a: topi.upsampling(a, down, right, layout), data)


def lrn_python(a_np: Array, size: int, axis: int, bias: float, alpha: float, beta: float) -> Any:
    """Return data normalized by the squares of neighbouring channels."""
    return meant(lambda a: topi.lrn(a, size, axis, alpha, beta, bias), a_np)


def take_slice(a_np: Array, begin: Sequence[int], end: Sequence[int], strides: Sequence[int]) -> tuple[slice, ...]:
    """Return the slices of all dimensions of an array."""
    steps = [*strides, *[1] * (len(begin) - len(strides))]
    del a_np
    return tuple(slice(first, last, step) for first, last, step in zip(begin, end, steps, strict=True))


def strided_slice_python(
    data: Array,
    begin: Sequence[int],
    end: Sequence[int],
    strides: Sequence[int] | int,
    slice_mode: str = "end",
    axes: Sequence[int] | None = None,
) -> Any:
    """Return a slice: by ends, or by sizes (of which -1 means to the end)."""
    steps = [strides] * len(begin) if isinstance(strides, int) else strides
    return meant(lambda a: topi.strided_slice(a, begin, end, steps or None, axes, slice_mode), data)


def gather_python(data: Array, axis: int, indices: Array) -> Array:
    """Return the elements of an axis at indices of the same number of dimensions."""
    return np.take_along_axis(data, indices, axis)


def one_hot(indices: Array, on_value: float, off_value: float, depth: int, axis: int, dtype: str) -> Any:
    """Return `on_value` at indices, `off_value` elsewhere."""
    return meant(lambda i: topi.one_hot(i, on_value, off_value, depth, axis, dtype), indices)


def searchsorted_ref(sorted_sequence: Array, values: Array, right: bool, out_dtype: str) -> Any:
    """Return the places of values in sorted rows."""
    return meant(lambda rows, v: topi.searchsorted(rows, v, right, out_dtype), sorted_sequence, values)


def conv3d_ncdhw_python(a_np: Array, w_np: Array, stride: Numbers, padding: Any, groups: int = 1) -> Any:
    """Return the convolution of NCDHW data by OIDHW weights."""
    return _windows(topi.conv3d_ncdhw, a_np, w_np, stride, padding, 1, groups)


def conv3d_ndhwc_python(a_np: Array, w_np: Array, stride: Numbers, padding: Any, groups: int = 1) -> Any:
    """Return the convolution of NDHWC data by DHWIO weights."""
    return _windows(topi.conv3d_ndhwc, a_np, w_np, stride, padding, 1, groups)


def group_conv1d_ncw_python(
    a_np: Array, w_np: Array, stride: Numbers, padding: Any, dilation: Numbers, groups: int
) -> Any:
    """Return the convolution of NCW data by OIW weights in groups."""
    return _windows(topi.group_conv1d_ncw, a_np, w_np, stride, padding, dilation, groups)


def conv2d_transpose_nhwc_python(
    a_nhwc: Array, weight: Array, weight_format: str, stride: Numbers, padding: Any, output_padding: Numbers = (0, 0)
) -> Any:
    """Return NHWC data spread by weights, whose axes are named: HWOI, HWIO, IOHW or OIHW."""
    iohw = weight.transpose([weight_format.index(letter) for letter in "IOHW"])
    data = a_nhwc.transpose(0, 3, 1, 2)
    made = meant(lambda a, w: topi.conv2d_transpose_nchw(a, w, stride, padding, None, output_padding), data, iohw)
    return made.transpose(0, 2, 3, 1)


def depthwise_conv2d_python_nchwc(input_np: Array, filter_np: Array, stride: Numbers, padding: Any) -> Any:
    """Return the depthwise convolution of data in blocks of channels."""
    return _windows(topi.depthwise_conv2d_NCHWc, input_np, filter_np, stride, padding)


def pool_grad_nchw(
    a_np: Array,
    out_grad_np: Array,
    pool_size: Numbers,
    strides: Numbers,
    padding: Numbers,
    pool_type: str,
    ceil_mode: bool,
    count_include_pad: bool = True,
) -> Any:
    """Return the gradient of pooled images."""

    def gradient(grads: Any, a: Any) -> Any:
        return topi.pool_grad(grads, a, pool_size, strides, padding, pool_type, ceil_mode, "NCHW", count_include_pad)

    return meant(gradient, out_grad_np, a_np)


def slice_axis_python(data: Array, axis: int, begin: int, end: int | None = None) -> Array:
    """Return a slice along one axis."""
    return np.asarray(data[(*[slice(None)] * axis, slice(begin, end))])


def get_conv2d_nchw_implement(target: Any) -> tuple[Function, Function]:
    """Return the convolution of a target, and what makes schedules of it."""
    del target  # the current one counts, as for topi.schedule
    return topi.conv2d_nchw, schedule_all


_SAME: Mapping[str, tuple[Function, int]] = {
    "affine_grid_python": (topi.affine_grid, 1),
    "batch_norm": (nn.batch_norm, 5),
    "batch_to_space_nd_python": (topi.batch_to_space_nd, 1),
    "conv1d_transpose_ncw_python": (topi.conv1d_transpose_ncw, 2),
    "conv2d_transpose_nchw_python": (topi.group_conv2d_transpose_nchw, 2),
    "conv1d_ncw_python": (topi.conv1d_ncw, 2),
    "conv3d_transpose_ncdhw_python": (topi.conv3d_transpose_ncdhw, 2),
    "correlation_nchw_python": (topi.correlation_nchw, 2),
    "crop_and_resize_python": (topi.crop_and_resize, 3),
    "deformable_conv2d_nchw_python": (topi.deformable_conv2d_nchw, 3),
    "deformable_conv2d_nhwc_python": (topi.deformable_conv2d_nhwc, 3),
    "depth_to_space_python": (topi.depth_to_space, 1),
    "depthwise_conv2d_python_nchw": (topi.depthwise_conv2d_nchw, 2),
    "depthwise_conv2d_python_nhwc": (topi.depthwise_conv2d_nhwc, 2),
    "gather_nd_python": (topi.gather_nd, 2),
    "grid_sample_python": (topi.grid_sample, 2),
    "group_norm_python": (topi.group_norm, 3),
    "instance_norm_python": (nn.instance_norm, 3),
    "layer_norm_python": (topi.layer_norm, 3),
    "lstm_python": (topi.lstm, 3),
    "matrix_set_diag": (topi.matrix_set_diag, 2),
    "nll_loss": (topi.nll_loss, 3),
    "reorg_python": (vision.reorg, 1),
    "rms_norm_python": (nn.rms_norm, 2),
    "roi_align_nchw_python": (vision.roi_align_nchw, 2),
    "roi_align_nhwc_python": (vision.roi_align_nhwc, 2),
    "roi_pool_nchw_python": (vision.roi_pool_nchw, 2),
    "space_to_batch_nd_python": (topi.space_to_batch_nd, 1),
    "sequence_mask": (topi.sequence_mask, 2),
    "space_to_depth_python": (topi.space_to_depth, 1),
    "strided_set_python": (topi.strided_set, 2),
}
"""References with the parameters of the operator: which one, and how many of these are arrays."""
_SPREAD, _ALIGNED = (
    ("stride", "padding", "output_padding", "groups"),
    ("pooled_size", "spatial_scale", "sample_ratio", "mode"),
)
_ORDERS: Mapping[str, Sequence[str]] = {
    "conv1d_transpose_ncw_python": _SPREAD,
    "conv2d_transpose_nchw_python": _SPREAD,
    "conv3d_transpose_ncdhw_python": _SPREAD,
    "depth_to_space_python": ("block_size", "mode"),
    "roi_align_nchw_python": _ALIGNED,
    "roi_align_nhwc_python": _ALIGNED,
}
"""Parameters behind the arrays where TVM's reference has them in another order than its operator."""


def _same(name: str) -> Function:
    function, count = _SAME[name]

    def reference(*args: Any, **options: Any) -> Any:
        optional = len([*takewhile(lambda arg: isinstance(arg, np.ndarray), args[count:])])
        arrays, rest, order = args[: count + optional], args[count + optional :], _ORDERS.get(name, ())
        named = {**dict(zip(order, rest, strict=False)), **options}
        return meant(lambda *tensors: function(*tensors, *rest[len(order) :], **named), *arrays)

    reference.__name__ = reference.__qualname__ = name
    reference.__doc__ = f"Return what topi's {function.__name__} means for arrays, with its parameters."
    return reference


def scheduling(target: Any) -> Callable[..., Schedule]:
    """Return what makes the schedule of some outputs for a target: the rules know programs by what they access."""
    del target  # the current one counts, as for topi.schedule
    return schedule_all


get_broadcast_schedule = get_elemwise_schedule = get_injective_schedule = get_reduce_schedule = scheduling
get_softmax_schedule = scheduling


def dispatch(target: Any, dispatch_map: Mapping[str, Any], key_func: Callable[[Any], Any] | None = None) -> Any:
    """Return the entry of a table that a target has by one of its keys, or its `generic` one."""
    keys = parse(target).keys
    found = next((dispatch_map[key] for key in keys if key in dispatch_map), dispatch_map.get("generic"))
    if found is None:
        raise DefinitionError(f"the table has no entry for {', '.join(keys)}, and none 'generic'", caller())
    return found if key_func is None else key_func(found)


def compare_numpy_tvm(
    inputs: Sequence[Array],
    output: Array | Sequence[Array],
    target: Any,
    device: Any,
    compute: Function,
    schedule: Callable[[Any], Schedule],
) -> None:
    """Build a function of tensors by a schedule, and compare what it makes of arrays with `output`."""
    del device
    tensors = [te.placeholder(a.shape, dtypes.canonical(a.dtype), f"in{n}") for n, a in enumerate(inputs)]
    with parse(target):
        made = compute(*tensors)
        outs = [made] if isinstance(made, Tensor) else list(made)
        s = schedule(outs)
    wanted: Iterable[Array] = [output] if isinstance(output, np.ndarray) else output
    arrays = [np.empty_like(a) for a in wanted]
    build(s, [*tensors, *outs], target)(*map(np.ascontiguousarray, inputs), *arrays)
    for got, expected in zip(arrays, wanted, strict=True):
        np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-4)


def __getattr__(name: str) -> Any:
    return _same(name) if name in _SAME else lookup(__name__, name)
