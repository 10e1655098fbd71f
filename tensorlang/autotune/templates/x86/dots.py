"""Tiles of dot products, whose sizes TVM's knobs say."""

from __future__ import annotations

from tensorlang import te
from tensorlang.autotune.templates.config import Config
from tensorlang.schedule import Schedule
from tensorlang.schedules.cpu.dots import Dots, schedule_dots
from tensorlang.schedules.recognise import groups_of
from tensorlang.schedules.room import Room
from tensorlang.target import parse
from tensorlang.te.operation import Tensor


def dot_products(cfg: Config, out: Tensor) -> Schedule:
    """Schedule the sums that make `out`: tiles of `tile_y` times `tile_x`, `tile_k` terms at a time."""
    s: Schedule = te.create_schedule(out.op)
    (group,) = (group for group in groups_of(s.program) if group.main.reduce and group.output.name == s.name_of(out))
    sizes = {"side_0": cfg["tile_y"], "side_1": cfg["tile_x"], "lanes": cfg["tile_k"]}
    given = {name: split.size[-1] for name, split in sizes.items()}
    room = Room(s, parse(), group.output.name, closed=True, given=given)
    schedule_dots(room, group, Dots(group.main.reduce, group.main.spatial[-2:]))
    return s
