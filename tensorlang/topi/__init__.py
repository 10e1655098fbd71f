"""The operator library: what each operator computes, its NumPy reference, and schedules for CPUs and GPUs."""

from __future__ import annotations

from typing import Any

from tensorlang.names import listing, lookup
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
from tensorlang.topi.broadcast import add, broadcast_to, divide, maximum, minimum, multiply, power, subtract, where
from tensorlang.topi.cached_attention import cached_attention
from tensorlang.topi.conv2d import conv2d, conv2d_nchw, conv2d_NCHWc, conv2d_nhwc, conv2d_pack, group_conv2d_nchw
from tensorlang.topi.dense import dense, dense_packed, pack_weight
from tensorlang.topi.depthwise import depthwise_conv2d_nchw, depthwise_conv2d_nhwc
from tensorlang.topi.dispatch import schedule
from tensorlang.topi.gather import embedding, gather, take
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
from tensorlang.topi.quantized import dense_narrow, narrow_offsets, pack_narrow
from tensorlang.topi.reduction import argmax, argmin, max, mean, min, prod, sum
from tensorlang.topi.requantize import fixed_point, requantize
from tensorlang.topi.rotary import rope, rope_tables
from tensorlang.topi.softmax import log_softmax, softmax
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
from tensorlang.topi.winograd import conv2d_winograd, winograd_pack

__all__ = [
    "BLOCK_FORMATS",
    "OPERATORS",
    "NbitsWeights",
    "Operator",
    "QuantizedBlocks",
    "add",
    "argmax",
    "argmin",
    "attention",
    "avg_pool2d",
    "batch_matmul",
    "batch_norm",
    "broadcast_to",
    "cached_attention",
    "cast",
    "clip",
    "concatenate",
    "conv2d",
    "conv2d_NCHWc",
    "conv2d_narrow",
    "conv2d_nchw",
    "conv2d_nhwc",
    "conv2d_pack",
    "conv2d_winograd",
    "dense",
    "dense_narrow",
    "dense_packed",
    "depthwise_conv2d_nchw",
    "depthwise_conv2d_nhwc",
    "dequantize",
    "divide",
    "embedding",
    "erf",
    "exp",
    "expand_dims",
    "fixed_point",
    "gather",
    "gelu",
    "global_pool",
    "group_conv2d_nchw",
    "group_format",
    "layer_norm",
    "layout_transform",
    "leaky_relu",
    "log",
    "log_softmax",
    "matmul",
    "matmul_nbits",
    "max",
    "max_pool2d",
    "maximum",
    "mean",
    "min",
    "minimum",
    "multiply",
    "narrow_conv2d_offsets",
    "narrow_offsets",
    "nbits_weights",
    "operator",
    "pack_groups",
    "pack_narrow",
    "pack_narrow_conv2d",
    "pack_nbits",
    "pack_weight",
    "pad",
    "pool2d",
    "power",
    "prod",
    "quantize_blocks",
    "relu",
    "requantize",
    "reshape",
    "rms_norm",
    "rope",
    "rope_tables",
    "rsqrt",
    "schedule",
    "sigmoid",
    "silu",
    "softmax",
    "split",
    "sqrt",
    "squeeze",
    "subtract",
    "sum",
    "take",
    "tanh",
    "transpose",
    "where",
    "winograd_pack",
]


def __getattr__(name: str) -> Any:
    return lookup(__name__, name)


def __dir__() -> list[str]:
    return listing(__name__)
