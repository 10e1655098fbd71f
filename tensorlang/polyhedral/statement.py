"""Statements in axis space: what a schedule runs, with exact domains and accesses.

The instances of a statement are the values of the loops around it. Its accesses and its time are
expressions of those loops, so that one set of texts serves dependences, legality and scanning.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from enum import Enum
from typing import TypeAlias

from tensorlang.dataclass import dataclass
from tensorlang.ir.expr import Binary, Const, Expr, Var, variables
from tensorlang.polyhedral.declared import Declared


class Role(Enum):
    """What a statement does to the array that it writes."""

    PURE = "pure"
    INIT = "init"
    UPDATE = "update"
    EXTERN = "extern"
    PREFETCH = "prefetch"
    BARRIER = "barrier"
    ORDERED = "ordered"


@dataclass(frozen=True, slots=True)
class Access:
    """An element of an array, touched where `conditions` hold.

    `index` None: any element (data-dependent, or not affine). `version`: the loops whose values tell apart
    the copies of a tile-local array; empty for an array that exists once.

    `updates` counts how often the array was updated in place before. `origin` is the time of the access in the
    program as declared, if that has an order; a write with a `reducer` also reads its element, and may change places
    with others of the same family.
    """

    array: str
    index: tuple[Expr, ...] | None
    version: tuple[str, ...] = ()
    conditions: tuple[Expr, ...] = ()
    updates: int = 0
    origin: tuple[Expr, ...] = ()
    reducer: str = ""


@dataclass(frozen=True, slots=True)
class Statement:
    """`stage` in one of its roles, run once for every value of `loops` in `domain`.

    `point` gives the stage's own axes from the loops. `time` is the schedule: static positions and loop
    names in turn; loops of `unordered` prove no order (parallel, bound); `lanes` are vectorised loops. `source` names
    the statement of a hybrid operation that this is. `ahead` is a loop that counts the tiles `ahead_by` too low for
    this statement, which makes a later one. `placing` are the conditions that make the loops
    around a hybrid statement tell its instances apart. One that `tests_quotients` tests all conditions that divide
    itself, in loops without them.
    """

    name: str
    stage: str
    role: Role
    loops: tuple[str, ...]
    domain: tuple[Expr, ...]
    point: tuple[tuple[str, Expr], ...]
    writes: tuple[Access, ...]
    reads: tuple[Access, ...]
    time: tuple[int | str, ...] = ()
    lanes: tuple[str, ...] = ()
    source: str = ""
    ahead: str = ""
    ahead_by: int = 1
    placing: tuple[Expr, ...] = ()
    tests_quotients: bool = False

    @property
    def axes(self) -> tuple[str, ...]:
        """The names of the stage's own axes."""
        return tuple(axis for axis, _ in self.point)


Bounds: TypeAlias = Mapping[str, tuple[int, int, bool]]
"""By loop its first value, what comes after the last one, and whether no other condition uses it."""


_BOUNDS = {"ge": (True, 0), "gt": (True, 1), "lt": (False, 0), "le": (False, 1)}
"""Comparison of a loop with a number -> whether it tells the first value, and what to add; else it is one behind."""


def constant_bounds(conditions: Iterable[Expr], loops: Sequence[str]) -> Bounds:
    """The bounds of those loops of which two conditions tell constant ones."""
    least: dict[str, int] = {}
    after: dict[str, int] = {}
    related: set[str] = set()
    for condition in conditions:
        bound = constant_bound(condition)
        if bound is None:
            related |= variables(condition)
            continue
        name, is_lower, number = bound
        if is_lower:
            least[name] = max(number, least.get(name, number))
        else:
            after[name] = min(number, after.get(name, number))
    known = [name for name in loops if name in least and name in after]
    return {name: (least[name], after[name], name not in related) for name in known}


def constant_bound(condition: Expr) -> tuple[str, bool, int] | None:
    """The loop of which a condition tells a bound: the first value (True), or the one behind the last, if it does."""
    if not isinstance(condition, Binary) or condition.op not in _BOUNDS or not isinstance(condition.b, Const):
        return None
    loop: Expr = condition.a
    number, added = condition.b.value, 0
    if isinstance(loop, Binary) and loop.op == "add" and isinstance(loop.b, Const) and isinstance(loop.b.value, int):
        added = loop.b.value
        loop = loop.a
    if isinstance(loop, Var) and isinstance(number, int):
        is_lower, more = _BOUNDS[condition.op]
        return loop.name, is_lower, number - added + more
    return None


@dataclass(frozen=True, slots=True)
class Array:
    """An array as the analysis sees it: its box, and whether only parts of it are computed (then every read must be
    covered)."""

    name: str
    shape: tuple[Expr, ...]
    is_partial: bool = False


@dataclass(frozen=True, slots=True)
class Fold:
    """Elements of an array share memory: those whose index is equal modulo `moduli` (0: equal) in every dimension.

    `anywhere`: only the first dimension (the number of a tile) tells elements apart; the tiles lie over one another.
    """

    array: str
    moduli: tuple[int, ...]
    anywhere: bool = False


@dataclass(frozen=True, slots=True)
class Scop:
    """All statements of a scheduled program, the arrays, the sizes, and the loops that prove no order.

    `declared` holds, by stage, the dependences of hybrid operations, over the axes in which they were declared. Updates
    of the stages `atomic` may meet in such a loop (though not in the lanes of a vector). In the loops `gathered`,
    threads of a block combine what they find for a reduction: its updates count as ordered there.
    """

    statements: tuple[Statement, ...]
    arrays: tuple[Array, ...]
    sizes: frozenset[str]
    unordered: frozenset[str] = frozenset()
    declared: tuple[tuple[str, Declared], ...] = ()
    folds: tuple[Fold, ...] = ()
    atomic: frozenset[str] = frozenset()
    gathered: frozenset[str] = frozenset()
