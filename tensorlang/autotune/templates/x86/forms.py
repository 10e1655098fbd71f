"""The library's forms of loops, with the sizes that TVM's knobs say."""

from __future__ import annotations

from collections.abc import Mapping

from tensorlang import te
from tensorlang.autotune.templates.config import Config
from tensorlang.errors import InternalError
from tensorlang.schedule import Schedule
from tensorlang.schedules.cpu.convolution import schedule_convolution
from tensorlang.schedules.cpu.dots import Dots, schedule_dots
from tensorlang.schedules.cpu.reuse import Shape, schedule_reuse
from tensorlang.schedules.recognise import Group, groups_of
from tensorlang.schedules.roles import roles_of
from tensorlang.schedules.room import Room
from tensorlang.schedules.windows import window_sum
from tensorlang.target import parse
from tensorlang.te.operation import Tensor


def dot_products(cfg: Config, out: Tensor) -> Schedule:
    """Schedule the sums that make `out`: tiles of `tile_y` times `tile_x`, `tile_k` terms at a time."""
    sizes = {"side_0": cfg["tile_y"], "side_1": cfg["tile_x"], "lanes": cfg["tile_k"]}
    room, group = _room(out, {name: split.size[-1] for name, split in sizes.items()})
    schedule_dots(room, group, Dots(group.main.reduce, group.main.spatial[-2:]))
    return room.s


def packed_tiles(cfg: Config, out: Tensor) -> Schedule:
    """Schedule the product that makes `out`: weights in panels, blocks of columns as `tile_x` cuts them."""
    *_, columns, width = cfg["tile_x"].size
    rows = cfg["tile_y"].size[-1]
    inner = cfg["tile_inner"].size[-1]
    usual = {"rows": min(rows, inner) if inner > 1 else rows, "width": width, "block": columns * width}
    room, group = _room(out, {})
    roles = roles_of(group.main, group.main.spatial[-1])
    if roles is None:
        raise InternalError(f"{out} is no product of matrices")
    shared = "tile" if room.target.cores > 1 else ""
    shape = Shape(pack="all", order="rows", parallel=shared, copies=False, inline=False, parts=False)
    schedule_reuse(room, group, roles, shape, {**usual, "unroll": cfg["tile_k"].size[-1]})
    return room.s


def convolved(cfg: Config, out: Tensor, single: bool) -> Schedule:
    """Schedule the convolution that makes `out`: `tile_ow` pixels of `tile_oc` channels, `tile_ic` inputs at a time."""
    sizes = {"block": cfg["tile_oc"], "columns": cfg["tile_ow"], "inputs": cfg["tile_ic"]}
    given = {name: split.size[-1] for name, split in sizes.items()}
    given |= {"rows": cfg["tile_oh"].val} if single else {"rows": 1, "copies": int(cfg["unroll_kw"].val)}
    room, group = _room(out, given)
    windows = window_sum(group.main.op)
    if windows is None:
        raise InternalError(f"{out} is no convolution")
    schedule_convolution(room, group, windows)
    return room.s


def _room(out: Tensor, given: Mapping[str, int]) -> tuple[Room, Group]:
    """The room of the sums that make `out`, with given sizes."""
    s: Schedule = te.create_schedule(out.op)
    (group,) = (group for group in groups_of(s.program) if group.main.reduce and group.output.name == s.name_of(out))
    return Room(s, parse(), group.output.name, closed=True, given=given), group
