"""All primitives by family. Importing this package registers them."""

from tensorlang.schedule.primitives.affine import Affine, TileBy
from tensorlang.schedule.primitives.annotate import Bind, Parallel, Unroll, Vectorize
from tensorlang.schedule.primitives.layout import TransformLayout
from tensorlang.schedule.primitives.loops import Fuse, Reorder, Skew, Split
from tensorlang.schedule.primitives.placement import ComputeAt, ComputeInline, ComputeRoot, SetScope
from tensorlang.schedule.primitives.reduction import RFactor
from tensorlang.schedule.primitives.sample import SampleChoice
from tensorlang.schedule.primitives.storage import CacheRead, CacheWrite
from tensorlang.schedule.primitives.tensorize import Tensorize
from tensorlang.schedule.primitives.time_tile import plan_time_tile, plan_wavefront

__all__ = [
    "Affine",
    "Bind",
    "CacheRead",
    "CacheWrite",
    "ComputeAt",
    "ComputeInline",
    "ComputeRoot",
    "Fuse",
    "Parallel",
    "RFactor",
    "Reorder",
    "SampleChoice",
    "SetScope",
    "Skew",
    "Split",
    "Tensorize",
    "TileBy",
    "TransformLayout",
    "Unroll",
    "Vectorize",
    "plan_time_tile",
    "plan_wavefront",
]
