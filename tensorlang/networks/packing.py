"""Weights laid out ahead as kernels read them: columns side by side in panels as wide as registers take."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from tensorlang import dtypes
from tensorlang.dataclass import dataclass
from tensorlang.ir.expr import Buffer, Const, Expr, Load, Var, binary, rewrite, variables
from tensorlang.networks.network import Array
from tensorlang.networks.pending import Pending
from tensorlang.target.spec import Target
from tensorlang.te.axis import extent_of
from tensorlang.te.operation import ComputeOp, Operation, PlaceholderOp, loads
from tensorlang.te.program import Program
from tensorlang.topi.dense import panel_width

_LEAST_TERMS = 8
"""Terms of a sum whose weights are worth a layout of their own."""
_CACHED = 1 << 15
"""Numbers that are looked at while they are in the caches."""


@dataclass(frozen=True, slots=True)
class Panels:
    """Weights whose dimension `columns` is cut into panels: [panels, the other dimensions, width]."""

    columns: int
    width: int

    def of(self, weight: Array) -> Array:
        """The weights in this order, with zeros behind the last column."""
        moved = np.moveaxis(weight, self.columns, -1)
        short = -moved.shape[-1] % self.width
        if short:
            moved = np.pad(moved, [(0, 0)] * (moved.ndim - 1) + [(0, short)])
        return np.moveaxis(moved.reshape(*moved.shape[:-1], -1, self.width), -2, 0)

    def shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """The shape of weights laid out."""
        rest = [n for d, n in enumerate(shape) if d != self.columns]
        return (-(-shape[self.columns] // self.width), *rest, self.width)

    def index(self, index: tuple[Expr, ...]) -> tuple[Expr, ...]:
        """Where an element is then."""
        column = index[self.columns]
        rest = [i for d, i in enumerate(index) if d != self.columns]
        return (binary("floordiv", column, self.width), *rest, binary("floormod", column, self.width))


def packed(program: Program, weights: Mapping[str, Array], target: Target) -> tuple[Program, Pending]:
    """The program that reads weights in panels, and these weights."""
    arrays, changed = Pending(weights), dict[str, Operation]()
    for op in program.ops:
        if not isinstance(op, ComputeOp) or not op.reduce_axes:
            continue
        for load in loads(op):
            name = load.buffer.name
            if name in weights and program.consumers[name] == (op.name,):
                panels = _panels(op, load, target)
                if panels is not None and sum(other.buffer.name == name for other in loads(op)) == 1:
                    shape = panels.shape(arrays.shape(name))
                    arrays.later(name, panels.of, shape)
                    changed[op.name] = op = _reading(op, name, panels, shape)
                    changed[name] = PlaceholderOp(name, _extents(shape), load.dtype)
    return program.replacing(changed), arrays


def without_subnormals(program: Program, weights: Mapping[str, Array]) -> Pending:
    """The weights, with zeros in place of factors of sums below 1.2e-38, where sums alone read them.

    Training leaves some, and each use costs a CPU 150 cycles.
    """
    sums = {op.name for op in program.ops if isinstance(op, ComputeOp) and op.reduce_axes}
    found = Pending(weights)
    for name in found:
        if name in program.consumers and sums.issuperset(program.consumers[name]):
            found.later(name, _normal)
    return found


def _normal(array: Array) -> Array:
    if array.dtype not in (np.float32, np.float64):
        return array
    flat, tiny = array.reshape(-1), np.finfo(array.dtype).tiny
    parts = (flat[first : first + _CACHED] for first in range(0, flat.size, _CACHED))
    if not any(np.any((np.abs(part) < tiny) & (part != 0)) for part in parts):
        return array
    return np.where(np.abs(array) < tiny, array.dtype.type(0), array)


def _panels(op: ComputeOp, load: Load, target: Target) -> Panels | None:
    """The layout of the weights of a product or of a convolution; None for what is neither."""
    last, summed = op.axes[-1].name, {a.name for a in op.reduce_axes}
    columns = [d for d, i in enumerate(load.index) if isinstance(i, Var) and i.name == last]
    others = [i for d, i in enumerate(load.index) if d not in columns and not _is_whole(load, d)]
    if len(columns) != 1 or not all(isinstance(i, Var) and i.name in summed for i in others):
        return None
    if any(last in variables(i) for other in loads(op) if other is not load for i in other.index):
        return None
    extents = [extent_of(a.extent) or 0 for a in op.reduce_axes]
    if np.prod(extents) < _LEAST_TERMS:
        return None
    bits = dtypes.info(op.dtype).bits
    if len(others) == 1:
        return Panels(columns[0], panel_width(extent_of(op.axes[-1].extent), bits, target))
    lanes = target.lanes(bits)
    wide = -(-(extent_of(op.axes[-1].extent) or lanes) // lanes) * lanes
    return Panels(columns[0], min(2 * lanes, wide))


def _is_whole(load: Load, dim: int) -> bool:
    """Whether a dimension has one place, as those of a window of one pixel do."""
    return extent_of(load.buffer.shape[dim]) == 1 and isinstance(load.index[dim], Const)


def _reading(op: ComputeOp, name: str, panels: Panels, shape: tuple[int, ...]) -> ComputeOp:
    def rule(node: Expr) -> Expr | None:
        if not isinstance(node, Load) or node.buffer.name != name:
            return None
        return Load(Buffer(name, _extents(shape), node.buffer.dtype), panels.index(node.index))

    return replace(op, body=tuple(rewrite(b, rule) for b in op.body))


def _extents(shape: tuple[int, ...]) -> tuple[Expr, ...]:
    return tuple(Const(n, "int32") for n in shape)
