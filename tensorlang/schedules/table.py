"""The rules that schedule stages of the library's definitions, by tag."""

from __future__ import annotations

from collections.abc import Mapping

from tensorlang.schedules.anchor import Rule
from tensorlang.schedules.cpu import (
    attention,
    moves,
    narrow_convolution,
    points,
)
from tensorlang.schedules.gpu import attention as gpu_attention
from tensorlang.schedules.gpu import convolution as gpu_convolution
from tensorlang.schedules.gpu import convolution_tensor_cores, depthwise
from tensorlang.schedules.gpu import moves as gpu_moves
from tensorlang.schedules.gpu import points as gpu_points
from tensorlang.schedules.gpu import product as gpu_product
from tensorlang.schedules.gpu import reductions as gpu_reductions
from tensorlang.target.spec import Target
from tensorlang.te import tags

CPU_RULES: Mapping[str, Rule] = {
    tags.ATTENTION: attention.schedule_attention,
    "narrow_conv2d_rows": narrow_convolution.schedule_rows,
    "narrow_conv2d_pixels": narrow_convolution.schedule_pixels,
    "narrow_conv2d_windows": narrow_convolution.schedule_pixels,
    tags.BATCH_NORM: points.schedule_channels,
    tags.PIECES: moves.schedule_pieces,
    tags.TRANSPOSE: moves.schedule_transpose,
}
COPIES = frozenset({"narrow_conv2d_rows", "narrow_conv2d_pixels", "narrow_conv2d_windows"})
"""Tags of stages beside a sum, whose numbers are those of the machine: there is nothing to tune."""
GPU_RULES: Mapping[str, Rule] = {
    "matmul": gpu_product.schedule_product,
    "batch_matmul": gpu_product.schedule_product,
    tags.CONV2D: gpu_convolution.schedule_conv2d,
    tags.NARROW_CHANNELS: gpu_convolution.schedule_conv2d,
    tags.CONV2D_PRODUCT: convolution_tensor_cores.schedule_conv2d_product,
    tags.DEPTHWISE: depthwise.schedule_depthwise,
    tags.POOL: gpu_points.schedule_points,
    tags.ATTENTION: gpu_attention.schedule_attention,
    tags.BATCH_NORM: gpu_points.schedule_channels,
    tags.REDUCTION: gpu_reductions.schedule_reduction,
    tags.PIECES: gpu_points.schedule_pieces,
    tags.TRANSPOSE: gpu_moves.schedule_transpose,
}
"""Where a tag of the others has none here, a thread computes each element."""


def rule_of(tag: str, target: Target) -> Rule | None:
    """The rule of a tag on a target; None where the stage is to be recognised."""
    if not target.can.device:
        return CPU_RULES.get(tag)
    return GPU_RULES.get(tag, gpu_points.schedule_points if tag in CPU_RULES else None)
