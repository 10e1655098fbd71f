"""Arrays live as long as what was proven takes them to: what is stored is there when it is read.

The proof tells the elements of an array apart by the iterations of the loops in which it is new (its `version`), and by
their index. Code may make it anew, in iterations of a loop or elsewhere, where no element is touched that was before.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from itertools import combinations

from tensorlang.dataclass import dataclass
from tensorlang.errors import InternalError
from tensorlang.ir.expr import Const, Expr, Var, substitute
from tensorlang.lowering.read_back.boxes import Span
from tensorlang.lowering.read_back.left_out import tell
from tensorlang.lowering.read_back.runs import Place, Run
from tensorlang.polyhedral import isl
from tensorlang.polyhedral.affine_text import Namer, dims
from tensorlang.polyhedral.rows import NotLinear, Rows
from tensorlang.polyhedral.statement import Bounds, Scop

_MOST = 1_000_000
"""Operations of isl for an array; what takes more is left to the tests."""


def check_lifetimes(runs: Iterable[Run], scop: Scop) -> None:
    """Raise InternalError where an array is made anew, and not what was stored there is read."""
    users: dict[str, list[_Use]] = {}
    for run in runs:
        for array, place in run.allocated:
            users.setdefault(array, []).extend(_uses(run, array, place, scop))
    for array, found in users.items():
        shared = False if _are_apart(found) else isl.attempt(_MOST, partial(_are_shared, found, scop))
        if shared is None:
            tell(f"where {array} is made anew is not compared")
        if shared:
            where = sorted({part for use in found for part in use.place if isinstance(part, str)})
            raise InternalError(f"the generated code makes {array} anew ({', '.join(where)}) where it has to live on")


@dataclass(frozen=True, slots=True)
class _Use:
    """An access of a run to an array that is made at a place.

    `version` is the iteration of the loops in which it is new; `element` that and the index: what tells elements apart.
    """

    run: Run
    place: Place
    version: tuple[Expr, ...]
    element: tuple[Expr, ...]


def _uses(run: Run, array: str, place: Place, scop: Scop) -> Iterator[_Use]:
    statement = scop.statements[run.statement]
    values = dict(zip(statement.loops, run.values, strict=True))
    for access in (*statement.writes, *statement.reads):
        if access.array == array and (access.version or access.index is not None):
            version = tuple(values[name] for name in access.version)
            yield _Use(run, place, version, (*version, *(substitute(i, values) for i in access.index or ())))


def _are_apart(uses: Sequence[_Use]) -> bool:
    """Whether it is plain that no two arrays have an element in common.

    Each is made in loops that are all among those in which it is new; and those at different places, in different parts
    of such a loop.
    """
    if not any(isinstance(part, str) for use in uses for part in use.place) and len({use.place for use in uses}) <= 1:
        return True
    versions: dict[Place, list[list[tuple[str, Span | None]]]] = {}
    for use in uses:
        versions.setdefault(use.place, []).append([_span(value, use.run) for value in use.version])
    for place, known in versions.items():
        bounds = [use.run.bounds for use in uses if use.place == place]
        for loop in (part for part in place if isinstance(part, str)):
            if not any(all(map(partial(_follows, loop), entries, bounds)) for entries in zip(*known, strict=True)):
                return False
    hulls = [[_hull(entries) for entries in zip(*known, strict=True)] for known in versions.values()]
    return all(
        any(x and y and (x[1] <= y[0] or y[1] <= x[0]) for x, y in zip(a, b, strict=True))
        for a, b in combinations(hulls, 2)
    )


def _follows(loop: str, entry: tuple[str, Span | None], bounds: Bounds) -> bool:
    """Whether the loop of a schedule has the value of a loop of the code."""
    name, span = entry
    return name == loop or (not name and loop in bounds and bounds[loop][:2] == span)


def _hull(entries: Sequence[tuple[str, Span | None]]) -> Span | None:
    spans = [span for _, span in entries if span is not None]
    return (min(low for low, _ in spans), max(end for _, end in spans)) if len(spans) == len(entries) else None


def _span(value: Expr, run: Run) -> tuple[str, Span | None]:
    """A loop, or no name for a number; and the first value and the one behind the last, if they are known."""
    match value:
        case Const():
            return "", (int(value.value), int(value.value) + 1)
        case Var(name):
            return name, run.bounds[name][:2] if name in run.bounds else None
    return "no loop", None


def _are_shared(uses: Sequence[_Use], scop: Scop) -> bool:
    """Whether one element is in several arrays, as isl sees it."""
    namer = Namer(scop.sizes)
    length = max(len(use.place) for use in uses)
    made = [_places(use, length, namer) for use in uses]
    seen = [piece for piece in made if piece is not None]
    return len(seen) == len(made) and not isl.union_of(seen).is_single_valued()


def _places(use: _Use, length: int, namer: Namer) -> isl.Map | None:
    """The elements of an access -> where the array that has them is made; None where isl does not see the elements."""
    names = dims(use.run.loops)
    rows = Rows(names, namer)
    rows.require(use.run.conditions)
    for k, value in enumerate(use.element):
        try:
            form = rows.form(value)
        except NotLinear:
            return None
        if form is None:
            return None
        rows.equate(f"v{k}", form)
    for k in range(length):
        part = use.place[k] if k < len(use.place) else 0
        rows.equate(f"w{k}", {names[part]: 1} if isinstance(part, str) else {"": part} if part else {})
    if not rows.exact:
        return None
    found = [*(f"v{k}" for k in range(len(use.element))), *(f"w{k}" for k in range(length))]
    return isl.parted(rows.make(list(names.values()), found).range(), len(use.element))
