"""Forms of sums over words: products and convolutions of narrow numbers, and one row of a product."""

from __future__ import annotations

from functools import partial

from tensorlang.schedules.cpu.narrow_convolution import schedule_convolution
from tensorlang.schedules.cpu.narrow_product import schedule_product, sum_words
from tensorlang.schedules.cpu.producers import place_producers
from tensorlang.schedules.recognise import Group
from tensorlang.schedules.room import Form, Room
from tensorlang.schedules.words import word_sum
from tensorlang.target.spec import Target


def word_forms(target: Target, group: Group) -> list[Form]:
    """The form of a sum over words; none for other stages."""
    found = word_sum(group.main.op)
    if found is None:
        return []
    if not found.has_rows:
        return [Form("words", partial(_schedule_alone, group=group), why="one row of a product over words")]
    if group.main is group.output:
        return []
    shapes = {(3, 1): schedule_product, (6, 3): schedule_convolution}
    body = shapes.get((len(group.main.spatial), len(group.main.reduce)))
    why = f"words of {found.panels.buffer.name}, {found.panels.dtype}, multiplied in panels"
    return [] if body is None else [Form("words", partial(body, group=group), why=why)]


def _schedule_alone(room: Room, group: Group) -> None:
    place_producers(room, group, inline=False)
    sum_words(room.s[group.main.name], room.target)
