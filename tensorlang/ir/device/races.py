"""Accesses to one array, noted while threads run and examined together when an epoch ends.

Which of two accesses came first makes no difference to whether they race, so that thousands are looked at in a few
NumPy operations.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from tensorlang.ir.device.clock import SITE, Array, Clock, Lanes, lane_of, site_of
from tensorlang.ir.device.sites import Sites
from tensorlang.ir.device.stamps import Clash, Stamps, by_block, by_thread, by_warp

_MOST = 1 << 20  # elements noted before they are looked at in any case


class Races:
    """The race detector of one array. `element` gives the text of one by its offset."""

    def __init__(
        self, size: int, clock: Clock, sites: Sites, element: Callable[[int], str], warps: bool, blocks: bool
    ) -> None:
        """Look at threads of a block; `warps`: whether those of a warp wait for each other; `blocks`: and at blocks."""
        self._clock = clock
        self._sites = sites
        self._element = element
        self._threads = by_warp(size) if warps else by_thread(size)
        self._warps = by_thread(size) if warps else None
        self._blocks = by_block(size) if blocks else None
        self._noted: dict[str, list[tuple[Array, Array]]] = {"writes": [], "updates": [], "reads": []}
        self._count = 0

    def note(self, access: str, at: Array, lanes: Lanes, site: int) -> None:
        """Note that threads read, write or update elements."""
        low = self._clock.low if lanes is None else self._clock.low[lanes]
        self._noted[f"{access}s"].append((at, low + site % SITE))
        self._count += len(at)
        if self._count > _MOST:
            self.examine(last=False)

    def examine(self, last: bool = True) -> None:
        """Raise InternalError if accesses noted in this epoch race. To be called before a barrier, the `last` time."""
        if not self._count:
            return
        clock = self._clock
        for verb, noted in self._noted.items():
            if not noted:
                continue
            at, low = (np.concatenate(parts) for parts in zip(*noted, strict=True))
            # What ends may be the epoch of a warp only.
            self._look(verb, self._threads, at, clock.by_block_epoch(low), last and self._warps is None)
            if self._warps is not None:
                self._look(verb, self._warps, at, clock.by_warp_epoch(low), last=False)
            if self._blocks is not None:
                self._look(verb, self._blocks, at, clock.by_block(low), last=False)
            noted.clear()
        self._count = 0

    def _look(self, verb: str, stamps: Stamps, at: Array, mine: Array, last: bool) -> None:
        match verb:
            case "writes":
                clash = stamps.write(at, mine)
            case "updates":
                clash = stamps.update(at, mine)
            case _:
                clash = stamps.read(at, mine, last)
        if clash is not None:
            self._report(verb, stamps is self._blocks, int(at[clash.position]), int(mine[clash.position]), clash)

    def _report(self, verb: str, of_blocks: bool, at: int, stamp: int, clash: Clash) -> None:
        clock = self._clock
        first, second = (clock.thread(lane_of(s)) for s in (clash.stamp, stamp))
        if of_blocks:
            first, second = f"{first} of {clock.block_of(clash.stamp)}", f"{second} of {clock.here}"
        message = f"{first} {clash.earlier} {self._element(at)} and {second} {verb} it"
        why = "; blocks run in any order" if of_blocks else f", both of {clock.here}, with no barrier between"
        self._sites.fault(message + why, site_of(clash.stamp), site_of(stamp))
