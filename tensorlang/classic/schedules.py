"""`topi.generic`, `topi.x86`, `topi.arm_cpu` and `topi.cuda`: operators, and schedules of what is made of them.

`schedule_conv2d_nchw(outs)`, or whatever stands behind `schedule_`, is `topi.schedule(outs)`: the rules know programs
by what they access. Other names are the library's own; `dense_nopack` and its like are names of one definition.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tensorlang import topi
from tensorlang.schedule import Schedule
from tensorlang.te.operation import Tensor

_SAME = {
    **dict.fromkeys(("dense_nopack", "dense_pack", "dense_small_batch", "dense_large_batch", "dense_dynamic"), "dense"),
    "batch_matmul_cublas": "batch_matmul",
}
"""Names of one definition under several schedules."""


def schedule_all(outs: Tensor | Sequence[Tensor], *layouts: Any, **others: Any) -> Schedule:
    """Return the schedule of a program made of the library's operators, for the current target.

    Layouts, which some of topi's schedules take, follow from the program.
    """
    del layouts, others
    return topi.schedule(outs if isinstance(outs, Tensor) else list(outs))


def __getattr__(name: str) -> Any:
    if name.startswith("schedule_"):
        return schedule_all
    if name.startswith("_") or not hasattr(topi, known := _SAME.get(name, name)):
        raise AttributeError(f"neither topi nor its schedules have {name!r}", name=name)
    return getattr(topi, known)
