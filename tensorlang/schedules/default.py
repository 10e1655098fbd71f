"""Schedules of whole programs: every operator of the library by its rule, what follows it fused into its tile."""

from __future__ import annotations

from collections.abc import Sequence, Set
from functools import partial
from math import prod

from tensorlang.ir.traverse import operations
from tensorlang.schedule import Schedule
from tensorlang.schedule.explain import FormNote
from tensorlang.schedules.anchor import Anchor
from tensorlang.schedules.chains import Chain, chain_form, chains_of, parts_of
from tensorlang.schedules.cpu.producers import place_producers
from tensorlang.schedules.forms import forms_of, ordered_forms_of, usual_forms_of_gpu
from tensorlang.schedules.gpu.elements import schedule_elements
from tensorlang.schedules.moves import joins, near_axis
from tensorlang.schedules.prepare import prepare
from tensorlang.schedules.recognise import WRITTEN_OUT, Group, axes_read, groups_of, ordered_stages, reads_of, stage_of
from tensorlang.schedules.room import Form, Room, Rooms
from tensorlang.schedules.stencils import stencil_of
from tensorlang.schedules.table import rule_of
from tensorlang.schedules.words import is_word_layout, word_sum
from tensorlang.target.spec import Target
from tensorlang.te.axis import extent_of
from tensorlang.te.operation import ComputeOp
from tensorlang.te.program import Program

_FEW = 2
"""As often an element may as well be computed as stored and read."""
_TRIED = 4
"""Forms of a group that are tried before it stays as declared."""
_UNKNOWN = 64
"""Stands for an extent that is not known."""


def apply_forms(s: Schedule, machine: Target, rooms: Rooms | None = None) -> None:
    """Shape the loops of a whole program. In `rooms` of one's own sizes may stay open."""
    with s.proven_together("topi.schedule(...)"):
        prepare(s, machine)
        program, taken, made = s.program, set[str](), _usual_rooms(s, machine, rooms)
        tagged = {op.name: op.tag for op in program.ops if isinstance(op, ComputeOp)}
        empty = {op.tag.partition(".")[0] for op in program.ops if isinstance(op, ComputeOp) and _is_empty(op)}
        rules = {
            name: rule
            for name, tag in tagged.items()
            if tag not in empty and (rule := rule_of(tag, machine)) is not None
        }
        for main, rule in rules.items():
            chain = elementwise_after(program, main, rules.keys() | taken)
            for name in chain[1:-1]:
                s[name].compute_inline()
            taken.update(chain)
            rule(made(main), Anchor(main, chain[-1], machine))
            s.forms = (*s.forms, FormNote(main, tagged[main], "the library's rule of the operator"))
        schedule_others(s, taken, machine, program, rooms)


def _is_empty(op: ComputeOp) -> bool:
    return any(extent_of(axis.extent) == 0 for axis in (*op.axes, *op.reduce_axes))


def schedule_others(
    s: Schedule, taken: Set[str], machine: Target, program: Program, rooms: Rooms | None = None
) -> None:
    """Shape the loops of the stages of a program that no rule has taken, nor put into the loops of others."""
    touched = {op.name for op in program.ops if not _is_untouched(s, op.name)}
    apply = _apply_by_threads if machine.can.device else _apply_recognised
    apply(s, program, taken | touched, machine, rooms)


def _usual_rooms(s: Schedule, machine: Target, rooms: Rooms | None) -> Rooms:
    """The rooms that are asked for, or closed ones."""
    return rooms or (lambda stage: Room(s, machine, stage, closed=True))


def _apply_by_threads(s: Schedule, program: Program, taken: Set[str], machine: Target, asked: Rooms | None) -> None:
    """Give what no rule has taken that of products or of sums, if it is one; else a thread computes each element."""
    rooms = _usual_rooms(s, machine, asked)
    for group in reversed(groups_of(program, taken, transforms=False)):
        if (group.parts or group.main.reduce) and _is_untouched(s, group.main.name):
            _first_legal(s, group.main.name, usual_forms_of_gpu(machine, group), rooms)
    for op in program.ops:
        if isinstance(op, ComputeOp) and op.name not in taken and _is_untouched(s, op.name):
            if _is_inlined(s, program, op):
                s[op.name].compute_inline()
            else:
                schedule_elements(rooms(op.name), op.name)
    for ordered in ordered_stages(program):
        if _is_untouched(s, ordered.name):
            _first_legal(s, ordered.name, ordered_forms_of(machine, ordered)[-1:], rooms)


def _apply_recognised(s: Schedule, program: Program, taken: Set[str], machine: Target, asked: Rooms | None) -> None:
    """Give every group of stages that no rule has taken the first of its forms that is legal, consumers first.

    Usual forms are mostly legal: they are proven all at once, and one by one only where that fails.
    """
    rooms, forms = _usual_rooms(s, machine, asked), s.forms
    chains = chains_of(program, groups_of(program, taken, words=True), machine)

    def apply() -> None:
        for chain in reversed(chains):
            _apply_to_chain(s, program, chain, machine, rooms)

    if asked is not None or not s.attempt(apply, as_one=True):
        s.forms = forms
        apply()
    for ordered in ordered_stages(program):
        _first_legal(s, ordered.name, ordered_forms_of(machine, ordered)[-1:], rooms)


def _apply_to_chain(s: Schedule, program: Program, chain: Chain, machine: Target, rooms: Rooms) -> None:
    """Shape the loops around groups together, if that is legal; else around parts of them."""
    if len(chain) == 1:
        _apply_to_group(s, program, chain[0], machine, rooms)
    elif not _is_applied(s, chain[-1].main.name, chain_form(program, chain), rooms):
        for part in reversed(parts_of(program, chain)):
            _apply_to_chain(s, program, part, machine, rooms)


def _apply_to_group(s: Schedule, program: Program, group: Group, machine: Target, rooms: Rooms) -> None:
    name, op = group.main.name, group.main.op
    if not _is_untouched(s, name):
        return
    if not group.main.points:
        s.forms = (*s.forms, FormNote(name, "as declared", "it has no iterations"))
    elif (
        not group.parts  # what makes a row is shaped with it
        and is_elementwise(op)
        and _is_inlined(s, program, op)
        and stencil_of(group) is None
        and s.attempt(s[name].compute_inline)
    ):
        place_producers(rooms(name), group, inline=True)
    else:
        _first_legal(s, name, forms_of(machine, group), rooms)


def _first_legal(s: Schedule, stage: str, forms: Sequence[Form], rooms: Rooms) -> None:
    """Shape the loops around a stage by the first form that is legal; without one they stay as declared."""
    for form in forms[:_TRIED]:
        if _is_applied(s, stage, form, rooms):
            return
    tried = ", ".join(form.name for form in forms[:_TRIED])
    s.forms = (*s.forms, FormNote(stage, "as declared", f"none is legal of {tried}" if tried else "no form suits it"))


def _is_applied(s: Schedule, stage: str, form: Form, rooms: Rooms) -> bool:
    """Shape the loops around a stage by a form, and say so, if that is legal."""
    room = rooms(stage)
    legal = s.attempt(partial(form.apply, room))
    if legal:
        s.forms = (*s.forms, FormNote(stage, form.name, form.why))
    else:
        room.constraints.clear()
    return legal


def _is_untouched(s: Schedule, name: str) -> bool:
    """Whether no rule has inlined a stage, computed it inside another, or shaped its loops."""
    stage = s.state.stages.get(name)
    return stage is not None and stage.attach is None and not stage.annotations


def _is_inlined(s: Schedule, program: Program, op: ComputeOp) -> bool:
    """Whether the elements of a stage are computed where they are read."""
    readers = [program[name] for name in program.consumers[op.name]]
    in_values = all(isinstance(reader, ComputeOp) for reader in readers)  # others need it in memory
    if not is_elementwise(op) or op.name in s.original.outputs:
        return False
    of_words = (is_word_layout(r) or word_sum(r) is not None for r in readers if isinstance(r, ComputeOp))
    if is_word_layout(op) or any(of_words):
        return False
    moved = joins(op) or near_axis(stage_of(op)) is not None
    kept = moved and not all(isinstance(reader, ComputeOp) and is_elementwise(reader) for reader in readers)
    return in_values and not kept and not _is_read_often(program, op) and not _is_long(program, op)


def _is_long(program: Program, op: ComputeOp) -> bool:
    """Whether a stage would be written out over and over again where it is read."""
    readers = [program[name] for name in program.consumers[op.name]]
    reads = sum(reads_of(reader, op) for reader in readers if isinstance(reader, ComputeOp))
    return (reads - 1) * operations(op.body) > WRITTEN_OUT


def _is_read_often(program: Program, op: ComputeOp) -> bool:
    """Whether a reduction reads the elements of a stage several times each."""
    readers = (program[name] for name in program.consumers[op.name])
    return any(isinstance(r, ComputeOp) and r.reduce_axes and _points(r) > _FEW * _points(op) for r in readers)


def _points(op: ComputeOp) -> int:
    return prod(extent_of(axis.extent) or _UNKNOWN for axis in (*op.axes, *op.reduce_axes))


def is_elementwise(op: ComputeOp) -> bool:
    """Whether a stage computes each element of one output without a reduction."""
    return not op.reduce_axes and op.num_outputs == 1 and not op.where


def elementwise_after(program: Program, main: str, others: Set[str]) -> list[str]:
    """A stage, and those that follow it one by one, read it at their own element only, and are none of others."""
    chain = [main]
    while chain[-1] not in program.outputs and len(program.consumers[chain[-1]]) == 1:
        (name,) = program.consumers[chain[-1]]
        op = program[name]
        if not isinstance(op, ComputeOp) or name in others or not is_elementwise(op):
            break
        own = tuple(axis.name for axis in op.axes)
        if any(index != own for index in axes_read(op, {chain[-1]})):
            break
        chain.append(name)
    return chain
