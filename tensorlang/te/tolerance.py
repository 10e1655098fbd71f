"""How far a correct kernel may be from the reference: a bound from dtypes and reduction lengths."""

from __future__ import annotations

import math
from collections.abc import Mapping

import ml_dtypes

from tensorlang import dtypes
from tensorlang.ir.expr import Call, walk
from tensorlang.ir.stmt import stmt_exprs
from tensorlang.te.numpy_eval import extent
from tensorlang.te.operation import PRECISION, ComputeOp, HybridOp, Operation
from tensorlang.te.ordered_eval import longest_chain
from tensorlang.te.program import Program, read_buffers

_UNKNOWN = 1024  # the extent assumed for a size that is not given
_TF32_EPSILON = 2.0**-10
_FACTORS = 2  # of a product, each rounded once
_CALL = 8.0  # units in the last place granted to a math intrinsic


def tolerance(program: Program, sizes: Mapping[str, int] | None = None) -> tuple[float, float]:
    """Return (rtol, atol) for comparing a kernel with the reference, for operands of magnitude about one.

    Along the worst chain of operations each rounding counts one unit of the coarsest float dtype, each intrinsic
    eight; a reduction of n elements grows as 4 sqrt(n), since its roundings are independent, but as n in 16 bits,
    where a long sum stops growing. Factors that may be rounded to tf32 count both. `atol` covers sums that cancel.
    Programs without floats give (0, 0). Sizes that are not given count as 1024.
    """
    used = {t for op in program.ops for t in op.dtypes}
    used |= {n.dtype for op in program.ops if isinstance(op, ComputeOp) for b in op.body for n in walk(b)}
    used |= {n.dtype for op in program.ops if isinstance(op, HybridOp) for e in stmt_exprs(op.body) for n in walk(e)}
    floats = [dtypes.info(t) for t in used if dtypes.info(t).is_float]
    if not floats:
        return 0.0, 0.0
    epsilon = max(float(ml_dtypes.finfo(d.numpy).eps) for d in floats)
    narrow = any(d.is_narrow_float for d in floats)
    known = {v.name: _UNKNOWN for v in program.sizes} | dict(sizes or {})
    roundings: dict[str, float] = {}
    terms: dict[str, float] = {}
    for op in program.ops:
        before = [program.producer[b] for b in read_buffers(op)]
        own, length = _own(op, known, narrow)
        roundings[op.name] = own + max((roundings[b] for b in before), default=0.0)
        terms[op.name] = length * max((terms[b] for b in before), default=1.0)
    rounded = sum(_FACTORS * _TF32_EPSILON for op in program.ops if isinstance(op, ComputeOp) and PRECISION in op.attrs)
    rtol = min(0.5, epsilon * max(roundings.values()) + rounded)
    return rtol, rtol * math.sqrt(max(terms.values()))


def _own(op: Operation, sizes: Mapping[str, int], narrow: bool) -> tuple[float, float]:
    """The roundings that one operation adds, and the number of terms of its sums."""
    if isinstance(op, HybridOp):
        runs, inside = longest_chain(op, sizes)
        return 1.0 + inside * (float(runs) if narrow else 4.0 * math.sqrt(runs)), float(runs)
    if not isinstance(op, ComputeOp):
        return 1.0, 1.0
    length = math.prod(max(1, extent(a.extent, sizes)) for a in op.reduce_axes)
    inside = max(sum(_CALL if isinstance(n, Call) else 1.0 for n in walk(b) if n.children()) for b in op.body)
    growth = 0.0 if length == 1 else float(length) if narrow else 4.0 * math.sqrt(length)
    return 1.0 + inside + growth, float(length)
