"""Which forms a recognised group of stages has, the best guess first."""

from __future__ import annotations

from tensorlang.schedules.cpu.dots import dot_forms, sums_lie_apart, uses_few
from tensorlang.schedules.cpu.elements import elementwise_forms
from tensorlang.schedules.cpu.ordered import ordered_forms
from tensorlang.schedules.cpu.reductions import lane_forms
from tensorlang.schedules.cpu.reuse import is_used_again, reuse_forms
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

_GPU = (block_row_forms, tensor_core_forms, tile_forms, sum_forms, element_forms)
"""On a GPU. Of these all that have forms for a group give them, the first ones first."""


def forms_of(target: Target, group: Group) -> tuple[Form, ...]:
    """The forms of a group; on a GPU all forms of all rules."""
    if target.can.device:
        return tuple(form for rule in _GPU for form in rule(target, group))
    if group.parts:
        return tuple(row_forms(target, group))
    return tuple(_of_reduction(target, group) if group.main.reduce else elementwise_forms(target, group))


def _of_reduction(target: Target, group: Group) -> list[Form]:
    """Register tiles where vectors are used again, or by windows that slide; else vectors of partial results.

    Tiles of dot products come before either where some axes alone lie along memory, whose lanes would be gathered, and
    before the latter where rows that are read side by side share what they are multiplied with.
    """
    main = group.main
    reuse, lanes, dots = (rule(target, group) for rule in (reuse_forms, lane_forms, dot_forms))
    if is_used_again(main, target.lanes(main.bits)):
        return [*dots, *reuse] if sums_lie_apart(main) or uses_few(main) else [*reuse, *dots]
    return [*dots, *lanes, *reuse] if sums_lie_apart(main) or len(main.reads) > 1 else [*lanes, *dots, *reuse]


def ordered_forms_of(target: Target, op: HybridOp) -> tuple[Form, ...]:
    """The forms of a stage of ordered statements."""
    return tuple(bound_forms(op) if target.can.device else ordered_forms(op))
