"""All primitives by family. Importing this package registers them."""

from tensorlang.schedule.primitives.affine import Affine, TileBy
from tensorlang.schedule.primitives.annotate import Bind, EnvThreads, Parallel, Unroll, Vectorize
from tensorlang.schedule.primitives.assume import Assume, Strict
from tensorlang.schedule.primitives.atomic import Atomic
from tensorlang.schedule.primitives.buffering import DoubleBuffer, FoldStorage, RollingBuffer, StorageAlign
from tensorlang.schedule.primitives.cut import Partition, Peel
from tensorlang.schedule.primitives.distribute import Fission, FuseWith
from tensorlang.schedule.primitives.layout import TransformLayout
from tensorlang.schedule.primitives.loops import Fuse, Reorder, Skew, Split
from tensorlang.schedule.primitives.placement import ComputeAt, ComputeInline, ComputeRoot, SetScope
from tensorlang.schedule.primitives.reduction import DecomposeReduction, RFactor
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
    "CacheRead",
    "CacheWrite",
    "ComputeAt",
    "ComputeInline",
    "ComputeRoot",
    "DecomposeReduction",
    "EnvThreads",
    "DoubleBuffer",
    "Fission",
    "FoldStorage",
    "Fuse",
    "FuseWith",
    "Parallel",
    "Partition",
    "Peel",
    "RFactor",
    "Reorder",
    "Reverse",
    "RollingBuffer",
    "SampleChoice",
    "SetScope",
    "Shift",
    "Skew",
    "Split",
    "StorageAlign",
    "Strict",
    "Tensorize",
    "TileBy",
    "TransformLayout",
    "Unroll",
    "Vectorize",
    "plan_time_tile",
    "plan_wavefront",
]
