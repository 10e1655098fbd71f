"""Which forms a recognised group of stages has, the best guess first."""

from __future__ import annotations

from tensorlang.schedules.cpu.dots import dot_forms, sums_lie_apart
from tensorlang.schedules.cpu.elements import elementwise_forms
from tensorlang.schedules.cpu.ordered import ordered_forms
from tensorlang.schedules.cpu.reductions import lane_forms
from tensorlang.schedules.cpu.reuse import reuse_forms
from tensorlang.schedules.cpu.rows import row_forms
from tensorlang.schedules.gpu.block_rows import block_row_forms
from tensorlang.schedules.gpu.elements import element_forms
from tensorlang.schedules.gpu.ordered import bound_forms
from tensorlang.schedules.gpu.sums import sum_forms
from tensorlang.schedules.gpu.tensor_core_tiles import tensor_core_forms
from tensorlang.schedules.gpu.tiles import tile_forms
from tensorlang.schedules.recognise import Group
from tensorlang.schedules.room import Form
from tensorlang.target.spec import Target
from tensorlang.te.operation import HybridOp

_CPU = (row_forms, reuse_forms, lane_forms, elementwise_forms)
"""In the order in which they are asked; the first that has forms for a group decides."""
_GPU = (block_row_forms, tensor_core_forms, tile_forms, sum_forms, element_forms)
"""Of these all that have forms for a group give them, the first ones first."""


def forms_of(target: Target, group: Group) -> tuple[Form, ...]:
    """The forms of the first rule that knows a group; of reductions along memory, tiles of dot products besides.

    Those come first where lanes along all axes of the reduction would be gathered. On a GPU all forms of all rules.
    """
    if target.can.device:
        return tuple(form for rule in _GPU for form in rule(target, group))
    found = next((found for rule in _CPU if (found := rule(target, group))), [])
    dots = dot_forms(target, group)
    return (*dots, *found) if sums_lie_apart(group.main) else (*found, *dots)


def ordered_forms_of(target: Target, op: HybridOp) -> tuple[Form, ...]:
    """The forms of a stage of ordered statements."""
    return tuple(bound_forms(op) if target.can.device else ordered_forms(op))
