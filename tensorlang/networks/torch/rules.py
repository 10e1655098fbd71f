"""All rules: what makes a program of a call, by operator of ATen (its overload is part of the name)."""

from __future__ import annotations

from tensorlang.networks.torch import (
    attention,
    elementwise,
    indexing,
    moves,
    norms,
    ordering,
    recurrent,
    sums,
    windows,
)
from tensorlang.networks.torch.call import Rule

RULES: dict[str, Rule] = {
    **attention.RULES,
    **elementwise.RULES,
    **indexing.RULES,
    **moves.RULES,
    **norms.RULES,
    **ordering.RULES,
    **recurrent.RULES,
    **sums.RULES,
    **windows.RULES,
}
"""What makes a program of a call, by operator without `aten.`."""
