"""Axes: named integer ranges of a compute expression, and of the loops made from them."""

from __future__ import annotations

from dataclasses import field
from enum import Enum
from typing import Any, ClassVar

from tensorlang.dataclass import dataclass
from tensorlang.ir.expr import Const, Expr, ExprLike, ExprOperators, Var, as_expr
from tensorlang.names import Explained

ZERO = Const(0, "int32")


class AxisKind(Enum):
    """What an axis enumerates."""

    SPATIAL = "spatial"
    REDUCE = "reduce"
    THREAD = "thread"


@dataclass(frozen=True, slots=True)
class Range:
    """`min <= i < min + extent`."""

    min: Expr
    extent: Expr

    @staticmethod
    def from_min_extent(min_value: ExprLike, extent: ExprLike) -> Range:
        """`min_value <= i < min_value + extent`."""
        return Range(as_expr(min_value), as_expr(extent))


@dataclass(frozen=True, slots=True, eq=False)
class Axis(Explained, ExprOperators):
    """`lower <= name < lower + extent`. The name is its identity within its stage.

    Classic te calls this IterVar; `.var` and `.dom` are its words. Comparing an axis builds an expression.
    `thread` is the tag of a thread axis (`blockIdx.x`); its extent is 0 when the loop it is bound to sets it.
    `owner` is what a schedule notes in the axes that it hands out; `declared` the axis that this is another name of,
    where an operation has two of one name. All expressions hold the one variable of the axis that they were made with.
    """

    name: str
    extent: Expr
    kind: AxisKind = AxisKind.SPATIAL
    lower: Expr = ZERO
    thread: str = ""
    owner: object = None
    declared: Axis | None = None
    _var: Var = field(init=False, repr=False)

    DataPar: ClassVar[int] = 0
    ThreadIndex: ClassVar[int] = 1
    CommReduce: ClassVar[int] = 2

    def __post_init__(self) -> None:
        object.__setattr__(self, "_var", Var(self.name))

    def as_expr(self) -> Expr:
        return self._var

    @property
    def var(self) -> Var:
        """The variable that stands for this axis in expressions."""
        return self._var

    @property
    def dom(self) -> Range:
        """The range, as classic te spells it: `.dom.min`, `.dom.extent`."""
        return Range(self.lower, self.extent)

    @property
    def iter_type(self) -> int:
        """What the axis enumerates, as a number: IterVar.DataPar, ThreadIndex or CommReduce."""
        return {AxisKind.SPATIAL: 0, AxisKind.THREAD: 1, AxisKind.REDUCE: 2}[self.kind]

    @property
    def thread_tag(self) -> str:
        """`thread`, by classic te's name."""
        return self.thread

    def same_as(self, other: object) -> bool:
        """Whether both are one axis: the same object, or handed out for the same axis of a schedule."""
        handed = isinstance(other, Axis) and self.owner is not None and self.owner == other.owner
        return self is other or (handed and isinstance(other, Axis) and self.name == other.name)

    def __eq__(self, other: object) -> Any:
        return self.var == other

    def __ne__(self, other: object) -> Any:
        return self.var != other

    def __hash__(self) -> int:
        return hash(self.name)

    def __str__(self) -> str:
        return self.name

    def __repr__(self) -> str:
        return f"{self.name}[{self.lower}, {self.lower + self.extent})"


def extent_of(extent: Expr) -> int | None:
    """An extent as a number; None when it is symbolic."""
    return int(extent.value) if isinstance(extent, Const) else None
