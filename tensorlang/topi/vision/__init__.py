"""Operators of detection: boxes that are kept, regions of images, anchors. `ssd` and `rcnn` are this room, too."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tensorlang.names import listing, lookup
from tensorlang.topi.vision.anchors import multibox_detection, multibox_prior, multibox_transform_loc
from tensorlang.topi.vision.boxes import all_class_non_max_suppression, get_valid_counts, non_max_suppression
from tensorlang.topi.vision.proposals import proposal
from tensorlang.topi.vision.regions import roi_align_nchw, roi_align_nhwc, roi_pool_nchw
from tensorlang.topi.vision.reorganized import reorg

__all__ = [
    "all_class_non_max_suppression",
    "get_valid_counts",
    "multibox_detection",
    "multibox_prior",
    "multibox_transform_loc",
    "non_max_suppression",
    "proposal",
    "reorg",
    "roi_align_nchw",
    "roi_align_nhwc",
    "roi_pool_nchw",
]


if TYPE_CHECKING:  # what the package offers here, for type checkers and editors
    from tensorlang.topi import vision

    nms = rcnn = ssd = vision
else:

    def __getattr__(name: str) -> Any:
        return lookup(__name__, name)


def __dir__() -> list[str]:
    return listing(__name__)
