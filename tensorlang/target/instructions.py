"""tensorlang's own intrinsics, of CPUs and GPUs together: what `te.intrin` knows by name."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from tensorlang.target.cuda.instructions import TABLE
from tensorlang.target.llvm.instructions import OWN as CPU
from tensorlang.target.llvm.instructions import declare_tiles, tiles_of
from tensorlang.te.intrinsic import TensorIntrin

OWN: dict[str, Callable[[], TensorIntrin]] = {**CPU, **TABLE}
"""Name -> what declares the intrinsic."""


def declarer(name: str) -> Callable[[], TensorIntrin] | None:
    """What declares one of them, or one of a size that its name tells; None for another name."""
    tiles = None if name in OWN else tiles_of(name)
    return OWN.get(name) if tiles is None else partial(declare_tiles, tiles)
