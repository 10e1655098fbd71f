"""Accesses of fused loops, seen as accesses to one row of memory."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache

from tensorlang.ir.expr import Expr, variables, walk
from tensorlang.ir.flat import divides, flat_offset, is_division
from tensorlang.ir.simplify.forms import Range
from tensorlang.target.llvm.scope import Lanes, Storage
from tensorlang.target.llvm.text import INDEX, literal


def flattened(storage: Storage, indices: tuple[Expr, ...], lanes: Lanes) -> tuple[Storage, tuple[Expr, ...]]:
    """The array as a row, and an index into it whose lanes are not divided, if there is one; else both as they are.

    What is divided may be the same for all lanes: loops around, or an index that data give. Dimensions that share
    nothing with those that divide keep their own indices, for nothing there can cancel.
    """
    strides = [stride.integer for stride in storage.strides]
    known = [stride for stride in strides if stride is not None]
    if len(known) < len(strides):
        return storage, indices
    dims = _joined(indices)
    joined = tuple(indices[d] for d in dims)
    offset = _offset(joined, tuple(known[d] for d in dims), lanes.var, lanes.reach) if joined else None
    if offset is None:
        return storage, indices
    rest = [d for d in range(len(indices)) if d not in dims]
    own = (literal(1, INDEX), *(storage.strides[d] for d in rest))
    return replace(storage, strides=own), (offset, *(indices[d] for d in rest))


def _joined(indices: tuple[Expr, ...]) -> list[int]:
    """The dimensions that divide, and those that share variables with them."""
    divided = frozenset[str]().union(*(variables(index) for index in indices if divides(index)))
    return [d for d, index in enumerate(indices) if divided & variables(index)]


@lru_cache(maxsize=1024)
def _offset(indices: tuple[Expr, ...], strides: tuple[int, ...], var: str, reach: Range | None) -> Expr | None:
    """One offset of several dimensions; None where it divides lanes. Copies of a loop's body ask for the same ones."""
    offset = flat_offset(indices, strides, {var: reach} if reach else {})
    return None if _divides_lanes(offset, var) else offset


def _divides_lanes(offset: Expr, var: str) -> bool:
    return any(is_division(n) and var in variables(n) for n in walk(offset))
