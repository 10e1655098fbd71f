"""Accesses of fused loops, seen as accesses to one row of memory."""

from __future__ import annotations

from dataclasses import replace

from tensorlang.ir.expr import Expr, variables, walk
from tensorlang.ir.flat import divides, flat_offset, is_division
from tensorlang.target.llvm.scope import Lanes, Storage
from tensorlang.target.llvm.text import INDEX, literal


def flattened(storage: Storage, indices: tuple[Expr, ...], lanes: Lanes) -> tuple[Storage, tuple[Expr, ...]]:
    """The array as a row, and one index into it whose lanes are not divided, if there is one; else both as they are.

    What is divided may be the same for all lanes: loops around, or an index that data give.
    """
    strides = [stride.integer for stride in storage.strides]
    known = [stride for stride in strides if stride is not None]
    if len(known) < len(strides) or not any(map(divides, indices)):
        return storage, indices
    offset = flat_offset(indices, known, {lanes.var: lanes.reach} if lanes.reach else {})
    if _divides_lanes(offset, lanes.var):
        return storage, indices
    return replace(storage, strides=(literal(1, INDEX),)), (offset,)


def _divides_lanes(offset: Expr, var: str) -> bool:
    return any(is_division(n) and var in variables(n) for n in walk(offset))
