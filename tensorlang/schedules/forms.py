"""Which forms a recognised group of stages has, the best guess first."""

from __future__ import annotations

from collections.abc import Callable
from math import prod

from tensorlang.schedules.cpu.dots import dot_forms, sums_lie_apart, uses_few
from tensorlang.schedules.cpu.elements import elementwise_forms
from tensorlang.schedules.cpu.ordered import ordered_forms
from tensorlang.schedules.cpu.passes import pass_forms
from tensorlang.schedules.cpu.producers import anchor_of
from tensorlang.schedules.cpu.product import product_forms
from tensorlang.schedules.cpu.reductions import lane_forms, runs_along_rows
from tensorlang.schedules.cpu.reuse import is_used_again, reuse_forms, slides
from tensorlang.schedules.cpu.rings import ring_forms
from tensorlang.schedules.cpu.rows import row_forms
from tensorlang.schedules.cpu.windows import rows_come_first, window_forms
from tensorlang.schedules.cpu.winograd import winograd_forms
from tensorlang.schedules.cpu.words import word_forms
from tensorlang.schedules.gpu.convolution import schedule_conv2d
from tensorlang.schedules.gpu.depthwise import schedule_depthwise
from tensorlang.schedules.gpu.elements import element_forms
from tensorlang.schedules.gpu.ordered import bound_forms
from tensorlang.schedules.gpu.points import schedule_points
from tensorlang.schedules.gpu.product import schedule_product
from tensorlang.schedules.gpu.reductions import schedule_reduction, sum_forms
from tensorlang.schedules.gpu.rows import block_row_forms
from tensorlang.schedules.gpu.tensor_core_tiles import tensor_core_forms
from tensorlang.schedules.gpu.tiles import tile_forms
from tensorlang.schedules.product import is_product
from tensorlang.schedules.recognise import Group
from tensorlang.schedules.room import Form, Room
from tensorlang.schedules.table import Rule
from tensorlang.schedules.windows import window_sum
from tensorlang.target.spec import Target
from tensorlang.te.operation import HybridOp

_TERMS = 64
"""Terms of a sum that are worth several threads, where neighbours do not lie in one row."""
_GPU = (block_row_forms, tensor_core_forms, tile_forms, sum_forms, element_forms)
"""On a GPU. Of these all that have forms for a group give them, the first ones first."""


def forms_of(target: Target, group: Group) -> tuple[Form, ...]:
    """The forms of a group; on a GPU all forms of all rules."""
    if target.can.device:
        return tuple(form for rule in _GPU for form in rule(target, group))
    if group.parts:
        return (*pass_forms(target, group), *row_forms(target, group))
    if group.main.reduce:
        return tuple(_of_reduction(target, group))
    return (*ring_forms(target, group), *elementwise_forms(target, group))


def _of_reduction(target: Target, group: Group) -> list[Form]:
    """Products; windows; register tiles where vectors are used again; else vectors of partial results.

    Tiles of dot products come before either where some axes alone lie along memory, whose lanes would be gathered, and
    before the latter where rows that are read side by side share what they are multiplied with.
    """
    main = group.main
    if group.transforms is not None:
        return winograd_forms(target, group)
    if narrow := word_forms(target, group):
        return narrow
    if found := product_forms(target, group):
        return [*found, *reuse_forms(target, group), *dot_forms(target, group)]
    if windows := window_forms(target, group):
        others = [*reuse_forms(target, group), *dot_forms(target, group)]
        return [*others[:1], *windows, *others[1:]] if rows_come_first(target, group) else [*windows, *others]
    reuse, lanes, dots = (rule(target, group) for rule in (reuse_forms, lane_forms, dot_forms))
    width = target.lanes(main.bits)
    if is_used_again(main, width) or slides(main, width):
        return [*dots, *reuse] if sums_lie_apart(main) or uses_few(main) else [*reuse, *dots]
    return [*dots, *lanes, *reuse] if sums_lie_apart(main) or len(main.reads) > 1 else [*lanes, *dots, *reuse]


def ordered_forms_of(target: Target, op: HybridOp) -> tuple[Form, ...]:
    """The forms of a stage of ordered statements."""
    return tuple(bound_forms(op) if target.can.device else ordered_forms(op))


def usual_forms_of_gpu(target: Target, group: Group) -> tuple[Form, ...]:
    """What a reduction is given on a GPU untuned: a rule of products or of sums, or a thread for each result."""
    main, op = group.main, group.main.op
    if group.parts:
        return tuple(block_row_forms(target, group))
    alone = _by(group, lambda room, anchor: schedule_points(room.s, anchor))
    found = [Form("points", alone, why="a thread for each result")]
    results = prod(main.extents[axis] for axis in main.spatial)
    apart = main.points >= _TERMS * results or runs_along_rows(op)
    if op.reduce_axes and apart and not is_used_again(main, 1):
        found.insert(0, Form("sums", _by(group, schedule_reduction), why="threads sum what is read once together"))
    windows = window_sum(op)
    if windows is not None and windows.is_convolution:
        found.insert(
            0, Form("windows.pixels", _by(group, schedule_conv2d), why="pixels of some channels share windows")
        )
    if windows is not None and windows.is_depthwise:
        found.insert(0, Form("windows.channels", _by(group, schedule_depthwise), why="windows over each channel"))
    if is_product(op):
        found.insert(0, Form("product", _by(group, schedule_product), why="a product of matrices"))
    return tuple(found)


def _by(group: Group, rule: Rule) -> Callable[[Room], None]:
    """A rule for the main stage of a group and what follows it."""

    return lambda room: rule(room, anchor_of(room, group))
