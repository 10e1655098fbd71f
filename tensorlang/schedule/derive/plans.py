"""What a schedule state becomes: plans of loops, of stages and of the memory that arrays have."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field

from tensorlang.dataclass import dataclass
from tensorlang.errors import BadArgument
from tensorlang.ir.expr import Buffer, Expr, Var
from tensorlang.ir.stmt import INDEX, LoopKind, Stmt
from tensorlang.polyhedral.footprint import Box
from tensorlang.polyhedral.nest import Tree
from tensorlang.polyhedral.statement import Scop
from tensorlang.schedule import order
from tensorlang.schedule.axis_range import AxisRange
from tensorlang.schedule.state import StageState


@dataclass(frozen=True, slots=True)
class LoopPlan:
    """A loop of the tree before its body is known."""

    name: str
    axis: str
    range: AxisRange
    kind: LoopKind
    thread: str
    peel: tuple[tuple[str, int], ...] = ()
    pragmas: tuple[tuple[str, int | str], ...] = ()


@dataclass(frozen=True, slots=True)
class Lane:
    """A loop over threads each of which has an array of its own: its name, first value, extent, and tag."""

    loop: str
    lower: Expr
    extent: int
    thread: str


@dataclass(frozen=True, slots=True)
class BufferPlan:
    """Where an array lives: its local shape, the offset of its first element, and the loop that owns it.

    `copies` are the loops of a hybrid operation, with their first value, for whose iterations the array holds one copy
    each, in front of its own dimensions. `tile` is the number of the tile, in front of the index of a double buffer.
    An array that `is_zeroed` begins as zeros. Where `moduli` is not 0, the index of that dimension is taken modulo it.
    `home` are the loops in each of whose iterations the array is new; `lanes` those of them inside `loop`, for each of
    whose iterations the array holds a copy, in front of everything.
    """

    buffer: Buffer
    base: tuple[Expr, ...]
    loop: str | None
    is_argument: bool
    copies: tuple[tuple[str, Expr], ...] = ()
    is_zeroed: bool = False
    tile: Expr | None = None
    moduli: tuple[int, ...] = ()
    home: tuple[str, ...] = ()
    lanes: tuple[Lane, ...] = ()


@dataclass(frozen=True, slots=True)
class StagePlan:
    """The loops of one stage: those around it, then its own; and the numbers of its statements.

    `lanes` are loops around it over lanes that compute its array together: it lives in all of their iterations.
    Where `new` does not hold, an iteration computes nothing: what it would is kept from the one before.
    """

    stage: StageState
    prefix: tuple[LoopPlan, ...]
    own: tuple[LoopPlan, ...]
    init: tuple[LoopPlan, ...]
    first_reduce: int | None
    statements: tuple[int, ...] = ()
    by_strand: Mapping[str, int] = field(default_factory=dict)
    lanes: frozenset[str] = frozenset()
    new: tuple[Expr, ...] = ()

    @property
    def is_carried(self) -> bool:
        """Whether the array of the stage outlives one iteration of the loop at which it is computed."""
        return bool(self.prefix) and self.stage.storage.is_carried

    @property
    def is_ahead(self) -> bool:
        """Whether a tile is computed one iteration before it is read."""
        return bool(self.prefix) and self.stage.storage.is_ahead

    @property
    def home(self) -> tuple[LoopPlan, ...]:
        """The loops in whose iterations the array of the stage lives."""
        if self.is_whole:
            return ()
        home = self.prefix[:-1] if self.is_carried else self.prefix
        return tuple(loop for loop in home if loop.name not in self.lanes)

    @property
    def is_whole(self) -> bool:
        """Whether all of the array is computed, and kept: at the root, or part by part after its producer."""
        attach = self.stage.attach
        return attach is None or attach.after

    def path(self, axis: str) -> tuple[LoopPlan, ...]:
        """All loops down to and including that over `axis`, those around the stage first.

        BadArgument where that is a loop over lanes around it.
        """
        found = {loop.axis: loop for loop in self.own}
        if axis not in found and self.lanes:
            why = f"the loop {axis} of {self.stage.name} is one of those around it, which go over the same lanes"
            raise BadArgument("", why, suggested=["place the stage where this one is computed"])
        return (*self.prefix, *(found[a] for a in order.path(self.stage.order, axis) if a in found))


@dataclass(frozen=True, slots=True)
class PrefetchPlan:
    """The elements of an array that one iteration prefetches; a dimension without a box is needed whole."""

    array: str
    boxes: tuple[Box | None, ...]
    level: int = 1


@dataclass(frozen=True, slots=True)
class BoxedTile:
    """How the tile of a stage is copied: in boxes of `box`, the first of which begins at `corner` of `source`.

    `sides` are those of the tile, whose last dimensions are those of the source. The corner is made of the loops around
    the stage.
    """

    array: str
    source: Buffer
    corner: tuple[Expr, ...]
    sides: tuple[int, ...]
    box: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Derived:
    """A schedule state, ready for isl: the statements, their tree, the buffers by name, and what prefetches bring.

    `repeated` are loops that stand in several places of the tree. `waits` are the statements at which threads wait for
    others, or for their own copies, with what they run; arrays that are `asynchronous` are filled by such copies.
    Those of `barriers` are filled in bulk, counted by an array of memory barriers; `boxes` are the statements that do.
    Machine code of statements `under_way` goes on until such a wait.
    """

    scop: Scop
    tree: Tree
    plans: dict[str, BufferPlan]
    prefetches: Mapping[int, PrefetchPlan]
    repeated: frozenset[str] = frozenset()
    waits: Mapping[int, Stmt] = field(default_factory=dict)
    asynchronous: frozenset[str] = frozenset()
    barriers: Mapping[str, Buffer] = field(default_factory=dict)
    boxes: Mapping[int, BoxedTile] = field(default_factory=dict)
    under_way: frozenset[int] = frozenset()


def plan_all(plan: StagePlan) -> tuple[LoopPlan, ...]:
    """All loops that a stage owns, those of its initialisation included."""
    return (*plan.own, *plan.init)


def plan_loops(plan: StagePlan) -> tuple[tuple[str, ...], tuple[str, ...], dict[str, Expr]]:
    """Loop names around the main statement, around the initialisation, and the renaming between the two."""
    prefix = tuple(p.name for p in plan.prefix)
    outer = plan.own[: plan.first_reduce] if plan.first_reduce is not None else ()
    init = (*prefix, *(p.name for p in outer), *(p.name for p in plan.init))
    renamed: dict[str, Expr] = {p.name.removesuffix(".init"): Var(p.name, INDEX) for p in plan.init}
    return (*prefix, *(p.name for p in plan.own)), init, renamed
