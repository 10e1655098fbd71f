"""The rules that schedule stages of the library's definitions, by tag."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import TypeAlias

from tensorlang.schedules.anchor import Anchor, Rule
from tensorlang.schedules.cpu import attention, narrow_convolution
from tensorlang.schedules.gpu import attention as gpu_attention
from tensorlang.schedules.gpu import convolution_tensor_cores
from tensorlang.schedules.gpu import points as gpu_points
from tensorlang.schedules.room import Room
from tensorlang.target.spec import Target
from tensorlang.te import tags

OpenRule: TypeAlias = Callable[[Room, Anchor], None]
"""Schedules an anchor with sizes that it asks of a room."""


def _closed(room: Room, anchor: Anchor, rule: Rule) -> None:
    """Schedule an anchor by a rule without sizes to ask for."""
    rule(room.s, anchor)


CPU_RULES: Mapping[str, OpenRule] = {
    tags.ATTENTION: attention.schedule_attention,
    "narrow_conv2d_rows": partial(_closed, rule=narrow_convolution.schedule_rows),
    "narrow_conv2d_pixels": partial(_closed, rule=narrow_convolution.schedule_pixels),
    "narrow_conv2d_windows": partial(_closed, rule=narrow_convolution.schedule_pixels),
}
GPU_RULES: Mapping[str, Rule] = {
    tags.CONV2D_PRODUCT: convolution_tensor_cores.schedule_conv2d_product,
    tags.ATTENTION: gpu_attention.schedule_attention,
}
"""Where a tag of the others has none here, a thread computes each element."""


def rule_of(tag: str, target: Target) -> OpenRule | None:
    """The rule of a tag on a target; None where the stage is to be recognised."""
    if not target.can.device:
        return CPU_RULES.get(tag)
    rule = GPU_RULES.get(tag, gpu_points.schedule_points if tag in CPU_RULES else None)
    return None if rule is None else partial(_closed, rule=rule)
