"""`topi.generic`, `topi.x86`, `topi.cuda` and their like: operators, and schedules of what is made of them.

`schedule_conv2d_nchw(outs)`, or whatever stands behind `schedule_`, is `topi.schedule(outs)`: the rules know programs
by what they access. Other names are the library's own; `dense_nopack` and its like are names of one definition.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tensorlang import topi
from tensorlang.names import AbsentAttribute, lookup, reason
from tensorlang.schedule import Schedule
from tensorlang.te.operation import Tensor
from tensorlang.topi import vision

_WAYS = (
    *("cublas", "cudnn", "direct", "dynamic", "int8", "large_batch", "mkl", "nnpack", "nopack", "spatial_pack"),
    *("pack", "small_batch", "tensorcore", "winograd"),
)
"""Ends of names of one definition under several schedules: `dense_nopack`, `conv2d_nhwc_tensorcore`."""


_FILES = ("depthwise_conv2d",)
"""Files of these rooms, which hold the same names."""


__path__: list[str] = []  # its files are imported under the names that TVM's have


def schedule_all(outs: Tensor | Sequence[Tensor], *layouts: Any, **others: Any) -> Schedule:
    """Return the schedule of a program made of the library's operators, for the current target.

    Layouts, which some of topi's schedules take, follow from the program.
    """
    del layouts, others
    return topi.schedule(outs if isinstance(outs, Tensor) else list(outs))


def __getattr__(name: str) -> Any:
    if name.startswith("schedule_"):
        return schedule_all
    if name in _FILES:
        return lookup(__name__, name)
    for room in () if name.startswith("_") else (topi.nn, vision):
        known = name
        while not hasattr(room, known) and (way := next((w for w in _WAYS if known.endswith(f"_{w}")), None)):
            known = known.removesuffix(f"_{way}")
        if hasattr(room, known):
            return getattr(room, known)
    raise AbsentAttribute(
        f"neither topi nor its schedules have {name!r}", name, lambda: reason(__name__, name, dir(topi))
    )
