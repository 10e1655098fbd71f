"""How the arrays of a stage are stored: one record, changed by the steps about memory and asked by all who plan it."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import field, replace
from math import gcd, prod

from tensorlang.dataclass import dataclass
from tensorlang.ir.expr import Buffer, Const, Expr
from tensorlang.ir.stmt import INDEX
from tensorlang.schedule.axis_range import constant


@dataclass(frozen=True, slots=True)
class Storage:
    """The memory of a stage.

    Of a stage that is computed inside a loop, each iteration has a tile of its own, unless it is `rolling` (what
    neighbouring tiles share is kept), or computed `ahead` iterations before it is read, with `kept` tiles at once. By
    array, `folds` gives the modulus of every dimension (0: none) and `aligned` the (axis, factor, offset) of a stride.
    `swizzled`: the chunks of a row are stored in an order that changes from row to row, in `panels` of 128 bytes of it
    behind each other. `in_bulk`: one thread of a block copies the tile, if it can.
    """

    scope: str = "global"
    rolling: bool = False
    ahead: int = 0
    kept: int = 1
    folds: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    aligned: Mapping[str, tuple[int, int, int]] = field(default_factory=dict)
    swizzled: bool = False
    panels: bool = False
    in_bulk: bool = False

    @property
    def is_shared(self) -> bool:
        """Whether several threads share the memory."""
        return self.scope in ("shared", "warp")

    @property
    def is_ahead(self) -> bool:
        """Whether tiles are computed before the iteration that reads them."""
        return self.ahead > 0

    @property
    def is_carried(self) -> bool:
        """Whether tiles outlive an iteration."""
        return self.rolling or self.is_ahead

    def holding(self, buffer: Buffer) -> Buffer:
        """An array of the stage where, and as, it is stored."""
        return replace(buffer, scope=self.scope, swizzled=self.swizzled, panels=self.panels)

    def padded(self, array: str, shape: tuple[Expr, ...]) -> tuple[Expr, ...]:
        """The shape of an array with the strides that were asked for, where padding can reach them."""
        return _padded(shape, *self.aligned[array]) if array in self.aligned else shape

    def joined(self, other: Storage) -> Storage:
        """The storage of two stages that become one, in the memory of this one: what belongs to single arrays."""
        folds, aligned = {**self.folds, **other.folds}, {**self.aligned, **other.aligned}
        return Storage(self.scope, folds=folds, aligned=aligned)

    def without(self, arrays: Collection[str]) -> Storage:
        """The storage of a stage that does not make some arrays any more."""
        folds = {array: fold for array, fold in self.folds.items() if array not in arrays}
        return replace(self, folds=folds, aligned={a: stride for a, stride in self.aligned.items() if a not in arrays})


def _padded(shape: tuple[Expr, ...], axis: int, factor: int, offset: int) -> tuple[Expr, ...]:
    """The shape with dimension `axis + 1` padded so that the stride of `axis` is `k * factor + offset`, if possible."""
    sizes = [constant(e) for e in shape[axis + 1 :]]
    if not sizes or None in sizes:
        return shape
    known = [size for size in sizes if size is not None]
    extent = _congruent(known[0], prod(known[1:]), factor, offset)
    return shape if extent is None else (*shape[: axis + 1], Const(extent, INDEX), *shape[axis + 2 :])


def _congruent(least: int, inner: int, factor: int, offset: int) -> int | None:
    """The smallest `extent` from `least` on for which `extent * inner - offset` is a multiple of `factor`."""
    shared = gcd(inner, factor)
    if offset % shared:
        return None
    period = factor // shared
    first = offset // shared * pow(inner // shared, -1, period) % period
    return least + (first - least) % period
