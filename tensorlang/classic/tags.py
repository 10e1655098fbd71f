"""`topi.tag`: words for what a stage computes, which classic schedules ask for. Rules here go by what it accesses."""

from __future__ import annotations

ELEMWISE = "elemwise"
BROADCAST = "broadcast"
INJECTIVE = "injective"
COMM_REDUCE = "comm_reduce"
COMM_REDUCE_IDX = "comm_reduce_idx"
CONV2D_NCHW = "conv2d_nchw"
CONV2D_NHWC = "conv2d_nhwc"
_MAPS = (ELEMWISE, BROADCAST, INJECTIVE)


def is_broadcast(tag: str) -> bool:
    """Return whether a tag is that of a map of elements or of a broadcast."""
    return tag in (ELEMWISE, BROADCAST) or tag.startswith((f"{ELEMWISE},", f"{BROADCAST},"))


def is_injective(tag: str) -> bool:
    """Return whether a tag is that of a stage that reads each element for one of its own, or of a broadcast."""
    return tag in _MAPS or tag.startswith(tuple(f"{word}," for word in _MAPS))
