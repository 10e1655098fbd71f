"""Elementwise stages in front of others: computed where they are read, or on their own."""

from __future__ import annotations

from tensorlang.ir.traverse import operations
from tensorlang.schedules.anchor import Anchor
from tensorlang.schedules.cpu.moves import schedule_alone
from tensorlang.schedules.moves import joins, near_axis
from tensorlang.schedules.recognise import WRITTEN_OUT, Group, Stage, is_made_often, is_read_often, reads_of
from tensorlang.schedules.room import Room
from tensorlang.schedules.words import is_word_layout, word_sum
from tensorlang.te.operation import ComputeOp


def place_producers(room: Room, group: Group, inline: bool) -> None:
    """Inline the group's producers, but for words and what would be made over and over again.

    Those that are read often, and what moves data for a sum or a row, are inlined only if `inline` says so; the others
    run alone.
    """
    for stage in group.producers:
        wanted = inline or not (is_read_often(group, stage) or _is_moved(group, stage))
        wanted = wanted and not _is_of_words(group, stage) and not is_made_often(group, stage)
        wanted = wanted and _repeated(room, stage) <= WRITTEN_OUT
        if not (wanted and room.s.attempt(room.s[stage.name].compute_inline)):
            schedule_alone(room, stage)


def _is_moved(group: Group, stage: Stage) -> bool:
    """Whether a sum or a part of a row reads what a stage takes from elsewhere."""
    moves = joins(stage.op) or near_axis(stage) is not None
    return moves and any(reader.reads_of(stage.name) for reader in (group.main, *group.parts))


def _repeated(room: Room, stage: Stage) -> int:
    """The operations that inlining a stage adds to its readers, beyond those that it has itself."""
    program = room.s.program
    op = program[stage.name]
    if not isinstance(op, ComputeOp):
        return 0
    readers = [program[name] for name in program.consumers[op.name]]
    reads = sum(reads_of(reader, op) for reader in readers if isinstance(reader, ComputeOp))
    return (reads - 1) * operations(op.body)


def _is_of_words(group: Group, stage: Stage) -> bool:
    """Whether a stage lays words out, or is copied from by one that does, or read by a sum over words."""
    readers = (reader.op for reader in (group.main, *group.producers) if reader.reads_of(stage.name))
    return is_word_layout(stage.op) or any(is_word_layout(op) or word_sum(op) is not None for op in readers)


def anchor_of(room: Room, group: Group) -> Anchor:
    """A group as an anchor: what stands between its main stage and its output is computed where it is read."""
    for stage in group.between:
        room.s[stage.name].compute_inline()
    return Anchor(group.main.name, group.output.name, room.target)
