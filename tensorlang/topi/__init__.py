"""The operator library: what each operator computes, its NumPy reference, and schedules for CPUs and GPUs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tensorlang.names import listing, lookup
from tensorlang.topi.accumulate import cumprod, cumsum, scanop
from tensorlang.topi.activation import (
    cast,
    clip,
    erf,
    exp,
    gelu,
    leaky_relu,
    log,
    relu,
    rsqrt,
    sigmoid,
    silu,
    sqrt,
    tanh,
)
from tensorlang.topi.attention import attention
from tensorlang.topi.block_formats import BLOCK_FORMATS
from tensorlang.topi.broadcast import (
    add,
    bitwise_and,
    bitwise_or,
    bitwise_xor,
    broadcast_to,
    divide,
    elemwise_sum,
    equal,
    floor_divide,
    floor_mod,
    greater,
    greater_equal,
    left_shift,
    less,
    less_equal,
    logical_and,
    logical_or,
    logical_xor,
    maximum,
    minimum,
    mod,
    multiply,
    not_equal,
    power,
    right_shift,
    subtract,
    trunc_divide,
    trunc_mod,
    where,
)
from tensorlang.topi.cached_attention import cached_attention
from tensorlang.topi.channels import (
    bias_add,
    group_norm,
    instance_norm,
    lrn,
    prelu,
    scale_shift_nchw,
    scale_shift_nchwc,
    scale_shift_nhwc,
)
from tensorlang.topi.contraction import einsum, tensordot
from tensorlang.topi.conv2d import (
    conv2d,
    conv2d_hwcn,
    conv2d_nchw,
    conv2d_NCHWc,
    conv2d_NCHWc_int8,
    conv2d_nhwc,
    conv2d_pack,
    group_conv2d_nchw,
)
from tensorlang.topi.convolution import (
    conv,
    conv1d,
    conv1d_ncw,
    conv1d_nwc,
    conv1d_transpose_ncw,
    conv2d_transpose_nchw,
    conv3d_ncdhw,
    conv3d_ndhwc,
    conv3d_transpose_ncdhw,
    group_conv1d_ncw,
    group_conv1d_nwc,
    group_conv2d_nhwc,
    group_conv2d_transpose_nchw,
)
from tensorlang.topi.creation import (
    arange,
    eye,
    full,
    full_like,
    matrix_set_diag,
    meshgrid,
    ndarray_size,
    one_hot,
    sequence_mask,
    shape,
    trilu,
)
from tensorlang.topi.dense import dense, dense_packed, pack_weight
from tensorlang.topi.depthwise import depthwise_conv2d_nchw, depthwise_conv2d_NCHWc, depthwise_conv2d_nhwc
from tensorlang.topi.dispatch import schedule
from tensorlang.topi.experts import experts_nbits
from tensorlang.topi.gather import embedding, gather, take
from tensorlang.topi.indexing import adv_index, argwhere, expand_like, gather_nd, invert_permutation, unravel_index
from tensorlang.topi.layers.backward import (
    depthwise_conv2d_backward_input_nhwc,
    depthwise_conv2d_backward_weight_nhwc,
    pool_grad,
)
from tensorlang.topi.layers.bitserial import (
    binarize_pack,
    binary_dense,
    bitpack,
    bitserial_conv2d_nchw,
    bitserial_conv2d_nhwc,
    bitserial_dense,
)
from tensorlang.topi.layers.correlation import correlation_nchw
from tensorlang.topi.layers.cropping import crop_and_resize
from tensorlang.topi.layers.deformable import deformable_conv2d_nchw, deformable_conv2d_nhwc
from tensorlang.topi.layers.fourier import dft, stft
from tensorlang.topi.layers.losses import nll_loss
from tensorlang.topi.layers.morphology import dilation2d_nchw, dilation2d_nhwc
from tensorlang.topi.layers.recurrent import gru, lstm
from tensorlang.topi.layers.sampling import affine_grid, grid_sample
from tensorlang.topi.layers.simulated import (
    SQNN_CODE_TO_DTYPE,
    SQNN_DTYPE_TO_CODE,
    simulated_dequantize,
    simulated_quantize,
)
from tensorlang.topi.layers.sparse import (
    sparse_add,
    sparse_dense,
    sparse_dense_sp_lhs,
    sparse_dense_sp_rhs,
    sparse_transpose,
)
from tensorlang.topi.mathematics import (
    abs,
    acos,
    acosh,
    asin,
    asinh,
    atan,
    atanh,
    bitwise_not,
    ceil,
    ceil_log2,
    cos,
    cosh,
    exp2,
    fast_erf,
    fast_exp,
    fast_tanh,
    floor,
    hardsigmoid,
    hardswish,
    identity,
    isfinite,
    isinf,
    isnan,
    log2,
    log10,
    logical_not,
    mish,
    negative,
    reinterpret,
    round,
    sign,
    sin,
    sinh,
    tan,
    trunc,
)
from tensorlang.topi.matmul import batch_matmul, matmul
from tensorlang.topi.narrow_conv2d import conv2d_narrow
from tensorlang.topi.narrow_filters import narrow_conv2d_offsets, pack_narrow_conv2d
from tensorlang.topi.nbits import (
    NbitsWeights,
    QuantizedBlocks,
    dequantize,
    group_format,
    matmul_nbits,
    nbits_weights,
    pack_groups,
    pack_nbits,
    quantize_blocks,
)
from tensorlang.topi.normalization import batch_norm, layer_norm, rms_norm
from tensorlang.topi.operator import Operator
from tensorlang.topi.pooling import avg_pool2d, global_pool, max_pool2d, pool2d
from tensorlang.topi.pooling_axes import adaptive_pool, adaptive_pool1d, adaptive_pool3d, pool1d, pool3d
from tensorlang.topi.quantized import dense_narrow, narrow_offsets, pack_narrow
from tensorlang.topi.reduction import all, any, argmax, argmin, collapse_sum, logsumexp, max, mean, min, prod, sum
from tensorlang.topi.repeating import flip, repeat, reverse_sequence, roll, stack, tile
from tensorlang.topi.requantize import fixed_point, fixed_point_multiply, fixed_point_multiply_per_axis, requantize
from tensorlang.topi.resize import resize1d, resize2d, resize3d, upsampling
from tensorlang.topi.rotary import rope, rope_tables
from tensorlang.topi.scatter import scatter, scatter_add, scatter_elements, scatter_nd, sparse_to_dense
from tensorlang.topi.slicing import (
    dynamic_strided_slice,
    fifo_buffer,
    slice_like,
    sliding_window,
    strided_set,
    strided_slice,
)
from tensorlang.topi.softmax import fast_softmax, log_softmax, softmax
from tensorlang.topi.sort import argsort, searchsorted, sort, topk
from tensorlang.topi.space import (
    batch_to_space_nd,
    depth_to_space,
    dilate,
    flatten,
    mirror_pad,
    space_to_batch_nd,
    space_to_depth,
)
from tensorlang.topi.sparse_shapes import sparse_fill_empty_rows, sparse_reshape
from tensorlang.topi.table import OPERATORS, operator
from tensorlang.topi.transform import (
    concatenate,
    expand_dims,
    layout_transform,
    pad,
    reshape,
    split,
    squeeze,
    transpose,
)
from tensorlang.topi.unique import unique
from tensorlang.topi.winograd import conv2d_winograd, winograd_pack

if TYPE_CHECKING:  # what the package offers here, for type checkers and editors
    from tensorlang import topi
    from tensorlang.classic import constants, references, schedules, tags
    from tensorlang.classic import nn as nn
    from tensorlang.classic.constants import InvalidShapeError as InvalidShapeError
    from tensorlang.classic.constants import get_pad_tuple as get_pad_tuple
    from tensorlang.classic.constants import get_pad_tuple1d as get_pad_tuple1d
    from tensorlang.classic.constants import get_pad_tuple3d as get_pad_tuple3d
    from tensorlang.classic.constants import get_pad_tuple_generic as get_pad_tuple_generic
    from tensorlang.topi import random as random
    from tensorlang.topi import sparse as sparse
    from tensorlang.topi import vision as vision

    image = math = tensor = topi
    adreno = arm_cpu = bifrost = cuda = generic = gpu = hls = intel_graphics = mali = x86 = schedules
    tag = tags
    testing = references
    utils = constants

__all__ = [
    "BLOCK_FORMATS",
    "OPERATORS",
    "SQNN_CODE_TO_DTYPE",
    "SQNN_DTYPE_TO_CODE",
    "NbitsWeights",
    "Operator",
    "QuantizedBlocks",
    "abs",
    "acos",
    "acosh",
    "adaptive_pool",
    "adaptive_pool1d",
    "adaptive_pool3d",
    "add",
    "adv_index",
    "affine_grid",
    "all",
    "any",
    "arange",
    "argmax",
    "argmin",
    "argsort",
    "argwhere",
    "asin",
    "asinh",
    "atan",
    "atanh",
    "attention",
    "avg_pool2d",
    "batch_matmul",
    "batch_norm",
    "batch_to_space_nd",
    "bias_add",
    "binarize_pack",
    "binary_dense",
    "bitpack",
    "bitserial_conv2d_nchw",
    "bitserial_conv2d_nhwc",
    "bitserial_dense",
    "bitwise_and",
    "bitwise_not",
    "bitwise_or",
    "bitwise_xor",
    "broadcast_to",
    "cached_attention",
    "cast",
    "ceil",
    "ceil_log2",
    "clip",
    "collapse_sum",
    "concatenate",
    "conv",
    "conv1d",
    "conv1d_ncw",
    "conv1d_nwc",
    "conv1d_transpose_ncw",
    "conv2d",
    "conv2d_NCHWc",
    "conv2d_NCHWc_int8",
    "conv2d_hwcn",
    "conv2d_narrow",
    "conv2d_nchw",
    "conv2d_nhwc",
    "conv2d_pack",
    "conv2d_transpose_nchw",
    "conv2d_winograd",
    "conv3d_ncdhw",
    "conv3d_ndhwc",
    "conv3d_transpose_ncdhw",
    "correlation_nchw",
    "cos",
    "cosh",
    "crop_and_resize",
    "cumprod",
    "cumsum",
    "deformable_conv2d_nchw",
    "deformable_conv2d_nhwc",
    "dense",
    "dense_narrow",
    "dense_packed",
    "depth_to_space",
    "depthwise_conv2d_NCHWc",
    "depthwise_conv2d_backward_input_nhwc",
    "depthwise_conv2d_backward_weight_nhwc",
    "depthwise_conv2d_nchw",
    "depthwise_conv2d_nhwc",
    "dequantize",
    "dft",
    "dilate",
    "dilation2d_nchw",
    "dilation2d_nhwc",
    "divide",
    "dynamic_strided_slice",
    "einsum",
    "elemwise_sum",
    "embedding",
    "equal",
    "erf",
    "exp",
    "exp2",
    "expand_dims",
    "expand_like",
    "experts_nbits",
    "eye",
    "fast_erf",
    "fast_exp",
    "fast_softmax",
    "fast_tanh",
    "fifo_buffer",
    "fixed_point",
    "fixed_point_multiply",
    "fixed_point_multiply_per_axis",
    "flatten",
    "flip",
    "floor",
    "floor_divide",
    "floor_mod",
    "full",
    "full_like",
    "gather",
    "gather_nd",
    "gelu",
    "global_pool",
    "greater",
    "greater_equal",
    "grid_sample",
    "group_conv1d_ncw",
    "group_conv1d_nwc",
    "group_conv2d_nchw",
    "group_conv2d_nhwc",
    "group_conv2d_transpose_nchw",
    "group_format",
    "group_norm",
    "gru",
    "hardsigmoid",
    "hardswish",
    "identity",
    "instance_norm",
    "invert_permutation",
    "isfinite",
    "isinf",
    "isnan",
    "layer_norm",
    "layout_transform",
    "leaky_relu",
    "left_shift",
    "less",
    "less_equal",
    "log",
    "log2",
    "log10",
    "log_softmax",
    "logical_and",
    "logical_not",
    "logical_or",
    "logical_xor",
    "logsumexp",
    "lrn",
    "lstm",
    "matmul",
    "matmul_nbits",
    "matrix_set_diag",
    "max",
    "max_pool2d",
    "maximum",
    "mean",
    "meshgrid",
    "min",
    "minimum",
    "mirror_pad",
    "mish",
    "mod",
    "multiply",
    "narrow_conv2d_offsets",
    "narrow_offsets",
    "nbits_weights",
    "ndarray_size",
    "negative",
    "nll_loss",
    "not_equal",
    "one_hot",
    "operator",
    "pack_groups",
    "pack_narrow",
    "pack_narrow_conv2d",
    "pack_nbits",
    "pack_weight",
    "pad",
    "pool1d",
    "pool2d",
    "pool3d",
    "pool_grad",
    "power",
    "prelu",
    "prod",
    "quantize_blocks",
    "reinterpret",
    "relu",
    "repeat",
    "requantize",
    "reshape",
    "resize1d",
    "resize2d",
    "resize3d",
    "reverse_sequence",
    "right_shift",
    "rms_norm",
    "roll",
    "rope",
    "rope_tables",
    "round",
    "rsqrt",
    "scale_shift_nchw",
    "scale_shift_nchwc",
    "scale_shift_nhwc",
    "scanop",
    "scatter",
    "scatter_add",
    "scatter_elements",
    "scatter_nd",
    "schedule",
    "searchsorted",
    "sequence_mask",
    "shape",
    "sigmoid",
    "sign",
    "silu",
    "simulated_dequantize",
    "simulated_quantize",
    "sin",
    "sinh",
    "slice_like",
    "sliding_window",
    "softmax",
    "sort",
    "space_to_batch_nd",
    "space_to_depth",
    "sparse_add",
    "sparse_dense",
    "sparse_dense_sp_lhs",
    "sparse_dense_sp_rhs",
    "sparse_fill_empty_rows",
    "sparse_reshape",
    "sparse_to_dense",
    "sparse_transpose",
    "split",
    "sqrt",
    "squeeze",
    "stack",
    "stft",
    "strided_set",
    "strided_slice",
    "subtract",
    "sum",
    "take",
    "tan",
    "tanh",
    "tensordot",
    "tile",
    "topk",
    "transpose",
    "trilu",
    "trunc",
    "trunc_divide",
    "trunc_mod",
    "unique",
    "unravel_index",
    "upsampling",
    "where",
    "winograd_pack",
]


if not TYPE_CHECKING:  # a type checker knows what there is

    def __getattr__(name: str) -> Any:
        return lookup(__name__, name)


def __dir__() -> list[str]:
    return listing(__name__)
