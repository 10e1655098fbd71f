"""Products with too few tiles for a GPU: blocks of their own sum parts of the terms, and a second kernel adds them.

The order of the additions is that of the parts, whatever block is done first: the same numbers in every run.
"""

from __future__ import annotations

from collections.abc import Callable

from tensorlang.schedule import Schedule
from tensorlang.schedules.anchor import Anchor, compute_op
from tensorlang.schedules.cpu.rows import partial_results
from tensorlang.schedules.gpu.blocks import THREADS
from tensorlang.schedules.gpu.points import schedule_points


def schedule_in_parts(
    s: Schedule, anchor: Anchor, size: int, rule: Callable[[Anchor], None], threads: int = THREADS
) -> None:
    """Sum parts of so many terms by a rule, as a batch; then add them by blocks of `threads`, with what follows."""
    (terms,) = compute_op(s, anchor.main).reduce_axes
    outer, _ = s[anchor.main].split(terms.name, factor=size)
    part = partial_results(s, anchor.main, outer.name, 0)
    rule(Anchor(part, part, anchor.target))
    schedule_points(s, anchor, threads)
