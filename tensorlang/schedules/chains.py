"""Groups of stages that are made together, some rows of each at a time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TypeAlias

from tensorlang.dataclass import dataclass
from tensorlang.schedules.block_sums import block_sums_of, panels_read
from tensorlang.schedules.cpu.bands import are_worth_bands, band_form
from tensorlang.schedules.cpu.block_sums import Behind, block_form
from tensorlang.schedules.forms import forms_of
from tensorlang.schedules.recognise import Group
from tensorlang.schedules.room import Form
from tensorlang.schedules.windows import WindowSum, window_sum
from tensorlang.target.spec import Target
from tensorlang.te.program import Program

Chain: TypeAlias = tuple[Group, ...]
"""A group by itself, or several, each of which is read by the next one alone."""


@dataclass(frozen=True, slots=True)
class _Link:
    """A convolution whose tiles are pixels, and the stage that it reads."""

    group: Group
    windows: WindowSum
    reads: str


def chains_of(program: Program, groups: Sequence[Group], target: Target) -> list[Chain]:
    """The groups of a program as chains, by the places of their last ones.

    On a CPU a convolution over each channel by itself is made together with the one before it, and with a 1 * 1
    convolution behind it.
    """
    home: dict[str, Chain] = {} if target.can.device else _blocks(program, groups)
    links = {} if target.can.device else {g.main.name: k for g in groups if (k := _link(program, g, target))}
    for link in links.values():
        free = {name: other for name, other in links.items() if name not in home}
        if link.windows.by_channels and link.group.main.name in free:
            chain = next(
                (c for c in _around(program, link, free) if are_worth_bands([k.windows for k in c], target)), ()
            )
            home |= {k.group.main.name: tuple(other.group for other in chain) for k in chain}
    chains = [(group, home.get(group.main.name, (group,))) for group in groups]
    return [chain for group, chain in chains if chain[-1] is group]


def chain_form(program: Program, chain: Chain) -> Form:
    """The form of groups that are made together."""
    match chain:
        case dots, sums, *behind if (roles := block_sums_of(program, dots, sums)) is not None:
            read = panels_read(program, sums.main.op, behind[0]) if behind else None
            return block_form(dots, sums, roles, None if read is None else Behind(behind[0], read))
    return band_form(chain)


def parts_of(program: Program, chain: Chain) -> list[Chain]:
    """What is made together where a chain is not: sums of blocks without what is behind them, or each group alone."""
    match chain:
        case dots, sums, behind if block_sums_of(program, dots, sums) is not None:
            return [(dots, sums), (behind,)]
    return [(group,) for group in chain]


def _blocks(program: Program, groups: Sequence[Group]) -> dict[str, Chain]:
    """Sums of blocks, each with the group that adds them up, and with what is made of these, by the names of all."""
    by_name = {group.main.name: group for group in groups}
    found: dict[str, Chain] = {}
    for dots in (group for group in groups if group.main.reduce):
        sums = by_name.get(program.consumers[dots.main.name][0]) if program.consumers[dots.main.name] else None
        if sums is not None and sums.main.reduce and block_sums_of(program, dots, sums) is not None:
            found |= {dots.main.name: (dots, sums), sums.main.name: (dots, sums)}
    for behind in (group for group in groups if not group.main.reduce and not group.parts):
        pairs = (pair for name, pair in reversed(found.items()) if len(pair) == 2 and name == pair[-1].main.name)
        pair = next((pair for pair in pairs if _is_read_by(program, pair, behind)), None)
        if pair is not None:  # of several the last: panels of two by turns would be two streams that pause
            found |= {group.main.name: (*pair, behind) for group in (*pair, behind)}
    return found


def _is_read_by(program: Program, pair: Chain, behind: Group) -> bool:
    """Whether a group can compute sums of blocks where it reads them."""
    dots, sums = pair
    roles, read = block_sums_of(program, dots, sums), panels_read(program, sums.main.op, behind)
    if roles is None or read is None or sums.main is not sums.output:
        return False
    return read.axes.get(roles.around[-1]) == read.axes.get(roles.lane, read.column) == read.column


def _link(program: Program, group: Group, target: Target) -> _Link | None:
    windows = window_sum(group.main.op) if group.main.reduce and group.transforms is None else None
    if windows is None or not windows.y or windows.y not in windows.extents or windows.axes[-1] == windows.x:
        return None
    forms = forms_of(target, group)
    is_tiled = bool(forms) and forms[0].name == "windows.pixels"
    return _Link(group, windows, program.producer[windows.data.buffer.name]) if is_tiled else None


def _around(program: Program, link: _Link, links: dict[str, _Link]) -> Iterator[list[_Link]]:
    """What a convolution can be made together with: with both around it, the one behind, the one before."""
    before = [k for k in links.values() if k.group.output.name == link.reads and _is_passed(program, k, link)]
    behind = [k for k in links.values() if k.reads == link.group.output.name and _is_passed(program, link, k)]
    behind = [k for k in behind if k.windows.extent(k.windows.down, k.windows.right) == 1]
    if before and behind:
        yield [*before, link, *behind]
    if behind:
        yield [link, *behind]
    if before:
        yield [*before, link]


def _is_passed(program: Program, link: _Link, reader: _Link) -> bool:
    """Whether a convolution is made for the sums of another one alone."""
    name = link.group.output.name
    return name not in program.outputs and program.consumers[name] == (reader.group.main.name,)
