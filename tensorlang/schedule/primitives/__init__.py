"""All primitives by family. Importing this package registers them."""

from tensorlang.schedule.primitives.affine import Affine, TileBy
from tensorlang.schedule.primitives.annotate import (
    Bind,
    EnvThreads,
    Parallel,
    Unroll,
    Vectorize,
    computed_inside,
    warn_of_no_lanes,
)
from tensorlang.schedule.primitives.assume import Assume, Strict
from tensorlang.schedule.primitives.atomic import Atomic
from tensorlang.schedule.primitives.buffering import (
    BulkCopy,
    DoubleBuffer,
    FoldStorage,
    Pipeline,
    RollingBuffer,
    StorageAlign,
    Swizzle,
)
from tensorlang.schedule.primitives.cut import Partition, Peel
from tensorlang.schedule.primitives.distribute import Fission, FuseWith
from tensorlang.schedule.primitives.gather import plan_gather
from tensorlang.schedule.primitives.inplace import CacheInplace
from tensorlang.schedule.primitives.layout import TransformLayout, array_axes, indices_of
from tensorlang.schedule.primitives.loops import Fuse, Reorder, Skew, Split
from tensorlang.schedule.primitives.pad import Pad
from tensorlang.schedule.primitives.placement import ComputeAt, ComputeInline, ComputeRoot, SetScope
from tensorlang.schedule.primitives.pragma import Pragma, warn_of_unknown
from tensorlang.schedule.primitives.predicate import SetStorePredicate
from tensorlang.schedule.primitives.prefetch import Prefetch
from tensorlang.schedule.primitives.prepare import BlockedAttention, NarrowProduct, RunningPieces, WindowsProduct
from tensorlang.schedule.primitives.reduction import DecomposeReduction, RFactor
from tensorlang.schedule.primitives.reverse_compute_at import ReverseComputeAt
from tensorlang.schedule.primitives.sample import SampleChoice
from tensorlang.schedule.primitives.shift import Reverse, Shift
from tensorlang.schedule.primitives.storage import CacheRead, CacheWrite
from tensorlang.schedule.primitives.tensorize import Tensorize
from tensorlang.schedule.primitives.time_tile import plan_time_tile, plan_wavefront

__all__ = [
    "Affine",
    "Assume",
    "Atomic",
    "Bind",
    "BlockedAttention",
    "BulkCopy",
    "CacheInplace",
    "CacheRead",
    "CacheWrite",
    "ComputeAt",
    "ComputeInline",
    "ComputeRoot",
    "DecomposeReduction",
    "DoubleBuffer",
    "EnvThreads",
    "Fission",
    "FoldStorage",
    "Fuse",
    "FuseWith",
    "NarrowProduct",
    "Pad",
    "Parallel",
    "Partition",
    "Peel",
    "Pipeline",
    "Pragma",
    "Prefetch",
    "RFactor",
    "Reorder",
    "Reverse",
    "ReverseComputeAt",
    "RollingBuffer",
    "RunningPieces",
    "SampleChoice",
    "SetScope",
    "SetStorePredicate",
    "Shift",
    "Skew",
    "Split",
    "StorageAlign",
    "Strict",
    "Swizzle",
    "Tensorize",
    "TileBy",
    "TransformLayout",
    "Unroll",
    "Vectorize",
    "WindowsProduct",
    "array_axes",
    "computed_inside",
    "indices_of",
    "plan_gather",
    "plan_time_tile",
    "plan_wavefront",
    "warn_of_no_lanes",
    "warn_of_unknown",
]
