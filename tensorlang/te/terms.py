"""The axis of the terms of a product."""

from __future__ import annotations

from tensorlang.ir.expr import Expr, variables
from tensorlang.te.axis import Axis
from tensorlang.te.domain import reduce_axis
from tensorlang.te.operation import Tensor
from tensorlang.te.program import unique


def term_axis(extent: Expr, *factors: Tensor) -> Axis:
    """The axis of the terms of a product, under a name that no size of the factors has."""
    taken = {name for factor in factors for size in factor.shape for name in variables(size)}
    return reduce_axis((0, extent), name=unique("k", taken))
