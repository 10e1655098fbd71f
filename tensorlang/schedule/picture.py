"""A picture of an iteration space: points, dependence arrows, and the order in which a schedule visits the points."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import islice, product

from tensorlang.dataclass import dataclass
from tensorlang.errors import BadArgument
from tensorlang.ir.affine import affine
from tensorlang.ir.expr import Binary, Const, Expr, Unary, variables
from tensorlang.polyhedral.affine_text import evaluate, with_sizes
from tensorlang.polyhedral.distances import Distance, distances
from tensorlang.polyhedral.statement import Statement
from tensorlang.schedule.derive import derive
from tensorlang.schedule.names import nearest
from tensorlang.schedule.picture_svg import svg_of
from tensorlang.schedule.state import ScheduleState

Point = tuple[int, int]
_SMALL = 8  # the value of a symbolic size that is not given
_MOST = 32  # points shown along an axis
_ENOUGH = 1 << 18  # runs of loops that are looked at


@dataclass(frozen=True, slots=True)
class Visit:
    """A point, and the values of the loops at its first visit, outermost first."""

    at: Point
    loops: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Picture:
    """The points of a statement along two of its axes in order of time, and the distances of its dependences.

    `tiles` are boxes of points that are visited together, from the first point to the last; `cut` names the axes
    that go on.
    """

    statement: str
    axes: tuple[str, str]
    order: tuple[Point, ...]
    arrows: tuple[tuple[Point, str], ...]
    tiles: tuple[tuple[Point, Point], ...] = ()
    cut: tuple[str, ...] = ()

    def svg(self) -> str:
        """The picture as SVG text."""
        return svg_of(self)


def draw(
    state: ScheduleState,
    statement: str | None = None,
    axes: Sequence[str] = (),
    sizes: Mapping[str, int] | None = None,
) -> Picture:
    """Return the picture of a statement (None: the last with two axes) along two axes (by default its first two).

    Further axes are left out: a point stands for all their values, at the time of the first. Symbolic sizes that are
    not given count as 8. At most 32 points are shown along an axis: whole tiles, where they are no larger than that.
    Raises BadArgument for unknown names.
    """
    derived = derive(state)
    known = dict.fromkeys(state.sizes, _SMALL) | dict(sizes or {})
    chosen = _statement(derived.scop.statements, statement)
    names = chosen.axes
    shown = tuple(axes) or names[:2]
    for axis in shown:
        if axis not in names:
            raise BadArgument("", f"{chosen.name} has no axis {axis!r}; {nearest(axis, names)}")
    if len(shown) != 2:
        raise BadArgument("", f"a picture has two axes, got {len(shown)}: {', '.join(shown)}")
    first, second = shown
    found = _uniform(distances(derived.scop), chosen.name, (first, second))
    arrows = tuple({d: (d, kind) for kind, d in sorted(found)}.values())  # of a flow and an anti arrow, the flow
    space = _Space.of(chosen, (first, second), known)
    visits = list(space.visits())
    order = tuple(v.at for v in visits)
    return Picture(chosen.name, (first, second), order, arrows, tuple(_tiles(space, visits)), tuple(space.cuts()))


def _statement(statements: Sequence[Statement], wanted: str | None) -> Statement:
    drawable = {s.name: s for s in statements if len(s.point) >= 2}
    if wanted is None and drawable:
        return next(reversed(list(drawable.values())))
    if not drawable:
        raise BadArgument("", "a picture needs a statement with two axes, and there is none; split an axis")
    if wanted not in drawable:
        raise BadArgument("", f"no statement {wanted!r} with two axes; {nearest(str(wanted), drawable)}")
    return drawable[wanted]


@dataclass(frozen=True, slots=True)
class _Space:
    """The loops of a statement with their ranges, and its place along two axes, as far as a picture shows it.

    `steps`: for each axis how far each loop moves along it; None where that is not fixed.
    """

    statement: Statement
    axes: tuple[str, str]
    domain: tuple[Expr, ...]
    point: tuple[Expr, Expr]
    ranges: tuple[range, ...]
    steps: tuple[tuple[int, ...] | None, ...]
    most: tuple[int, int]

    @classmethod
    def of(cls, statement: Statement, axes: tuple[str, str], sizes: Mapping[str, int]) -> _Space:
        """The space for some sizes; along each axis whole tiles are shown, where they fit."""
        domain = tuple(with_sizes(c, sizes) for c in statement.domain)
        places = {a: with_sizes(v, sizes) for a, v in statement.point}
        ranges = tuple(_range(name, domain) for name in statement.loops)
        steps = tuple(_steps(places[a], statement.loops) for a in axes)
        first, second = (_shown(s) for s in steps)
        return cls(statement, axes, domain, (places[axes[0]], places[axes[1]]), ranges, steps, (first, second))

    def visits(self) -> Iterator[Visit]:
        """The points that are shown, in order of their first visit."""
        runs: list[tuple[tuple[int, ...], Point, tuple[int, ...]]] = []
        for values in islice(product(*self._walked()), _ENOUGH):
            env = dict(zip(self.statement.loops, values, strict=True))
            if all(_holds(c, env) for c in self.domain):
                at = evaluate(self.point[0], env), evaluate(self.point[1], env)
                time = tuple(env[part] if isinstance(part, str) else part for part in self.statement.time)
                runs.append((time, at, values))
        low = [min((at[k] for _, at, _ in runs), default=0) for k in (0, 1)]
        seen: set[Point] = set()
        for _, at, values in sorted(runs):
            if at not in seen and all(at[k] - low[k] < self.most[k] for k in (0, 1)):
                seen.add(at)
                yield Visit(at, values)

    def _walked(self) -> Iterator[range]:
        """The values of each loop that the shown points may have."""
        for n, whole in enumerate(self.ranges):
            known = [(s[n], most) for s, most in zip(self.steps, self.most, strict=True) if s is not None]
            moves = [most // step + 1 for step, most in known if step > 0]
            if len(known) == 2 and not any(step for step, _ in known):
                yield whole[:1] if self._is_free(n) else whole[:_MOST]
            elif len(known) == 2 and moves and not self._is_skewed():
                yield whole[: max(moves)]
            else:
                yield whole[: 4 * _MOST if len(known) == 2 else _ENOUGH >> 3]

    def _is_free(self, n: int) -> bool:
        """Whether a loop has bounds of its own alone."""
        return sum(self.statement.loops[n] in variables(c) for c in self.domain) <= 2

    def _is_skewed(self) -> bool:
        return any(step < 0 for s in self.steps if s is not None for step in s)

    def cuts(self) -> Iterator[str]:
        """Axes that go on behind what is shown."""
        for axis, place, most in zip(self.axes, self.point, self.most, strict=True):
            ends = [(loop, r[-1]) for loop, r in zip(self.statement.loops, self.ranges, strict=True) if len(r)]
            with suppress(KeyError):
                if evaluate(place, dict(ends)) >= most:
                    yield f"the first {most} along {axis}"


def _steps(place: Expr, loops: Sequence[str]) -> tuple[int, ...] | None:
    form = affine(place)
    return None if form is None else tuple(form.get(name, 0) for name in loops)


def _shown(steps: Sequence[int] | None) -> int:
    """How many points of an axis are shown: as many whole tiles as fit, of the largest that do."""
    tile = max((s for s in steps or () if 1 < s <= _MOST), default=1)
    return _MOST // tile * tile


def _tiles(space: _Space, visits: Sequence[Visit]) -> Iterator[tuple[Point, Point]]:
    """Boxes of points that the inner loops visit, for one run of the outer ones; none where they are no boxes."""
    strides = [max(abs(s[n]) if s is not None else 0 for s in space.steps) for n in range(len(space.ranges))]
    outer = max((n for n, stride in enumerate(strides) if stride > 1), default=-1) + 1
    if outer == 0:
        return
    groups: dict[tuple[int, ...], list[Point]] = {}
    for visit in visits:
        groups.setdefault(visit.loops[:outer], []).append(visit.at)
    boxes = [
        ((min(a for a, _ in g), min(b for _, b in g)), (max(a for a, _ in g), max(b for _, b in g)))
        for g in groups.values()
    ]
    sizes = [(high[0] - low[0] + 1) * (high[1] - low[1] + 1) for low, high in boxes]
    if sum(sizes) == len(visits) and len(boxes) > 1:
        yield from boxes


def _range(loop: str, domain: Sequence[Expr]) -> range:
    """The constant bounds of a loop; where there are none, what a picture can show."""
    low, high = 0, 4 * _MOST
    for c in domain:
        match c:
            case Binary(op="ge", a=a, b=Const(value=value)) if getattr(a, "name", "") == loop:
                low = int(value)
            case Binary(op="lt", a=a, b=b) if getattr(a, "name", "") == loop:
                with suppress(KeyError):
                    high = evaluate(b, {})
            case _:
                pass
    return range(low, max(low, high))


def _holds(condition: Expr, env: dict[str, int]) -> bool:
    """Whether a condition holds; one that reads memory may."""
    try:
        match condition:
            case Const():
                return bool(condition.value)
            case Unary(op="not"):
                return not _holds(condition.a, env)
            case Binary(op="and"):
                return _holds(condition.a, env) and _holds(condition.b, env)
            case Binary(op="or"):
                return _holds(condition.a, env) or _holds(condition.b, env)
            case Binary():
                a, b = evaluate(condition.a, env), evaluate(condition.b, env)
                return {"eq": a == b, "ne": a != b, "lt": a < b, "le": a <= b, "gt": a > b, "ge": a >= b}[condition.op]
    except KeyError:
        return True
    return True


def _uniform(found: Sequence[Distance], name: str, axes: tuple[str, str]) -> Iterator[tuple[str, Point]]:
    """The fixed distances, other than zero, between instances of a statement."""
    for d in found:
        if d.source == d.sink == name and set(axes) <= set(d.axes):
            spans = [d.spans[d.axes.index(a)] for a in axes]
            steps = [low for low, high in spans if low is not None and low == high]
            if len(steps) == 2 and any(steps):
                yield d.kind, (steps[0], steps[1])
