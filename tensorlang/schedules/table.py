"""The rules that schedule stages of the library's definitions, by tag."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeAlias

from tensorlang.schedules.anchor import Anchor
from tensorlang.schedules.cpu.attention import schedule_attention
from tensorlang.schedules.gpu import attention as gpu_attention
from tensorlang.schedules.gpu.convolution_tensor_cores import schedule_conv2d_product
from tensorlang.schedules.room import Room
from tensorlang.target.spec import Target
from tensorlang.te import tags

Rule: TypeAlias = Callable[[Room, Anchor], None]
"""Schedules an anchor with sizes that it asks of a room."""
CPU_RULES: Mapping[str, Rule] = {tags.ATTENTION: schedule_attention, tags.CACHED: schedule_attention}
GPU_RULES: Mapping[str, Rule] = {
    tags.CONV2D_PRODUCT: schedule_conv2d_product,
    tags.ATTENTION: gpu_attention.schedule_attention,
}


def rule_of(tag: str, target: Target) -> Rule | None:
    """The rule of a tag on a target; None where the stage is to be recognised."""
    return (GPU_RULES if target.can.device else CPU_RULES).get(tag)
