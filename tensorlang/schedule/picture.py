"""A picture of an iteration space: points, dependence arrows, and the order in which a schedule visits the points."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import product

from tensorlang.dataclass import dataclass
from tensorlang.errors import BadArgument
from tensorlang.ir.expr import Binary, Const, Expr, Unary
from tensorlang.polyhedral.affine_text import evaluate, with_sizes
from tensorlang.polyhedral.distances import Distance, distances
from tensorlang.polyhedral.statement import Statement
from tensorlang.schedule.derive import derive
from tensorlang.schedule.names import nearest
from tensorlang.schedule.state import ScheduleState

Point = tuple[int, int]
_SMALL = 8  # the value of a symbolic size that is not given
_MOST = 14  # points shown along an axis
_STEP = 44  # pixels from point to point
_MARGIN = 56
_RADIUS = 8


@dataclass(frozen=True, slots=True)
class Picture:
    """The points of a statement along two of its axes in order of time, and the distances of its dependences."""

    statement: str
    axes: tuple[str, str]
    order: tuple[Point, ...]
    arrows: tuple[tuple[Point, str], ...]

    def svg(self) -> str:
        """The picture as SVG text."""
        return "\n".join(_svg(self)) + "\n"


def draw(
    state: ScheduleState,
    statement: str | None = None,
    axes: Sequence[str] = (),
    sizes: Mapping[str, int] | None = None,
) -> Picture:
    """Return the picture of a statement (None: the last with two axes) along two axes (by default its first two).

    Further axes are left out: a point stands for all their values, at the time of the first. Symbolic sizes that are
    not given count as 8, and at most 14 points are shown along an axis. Raises BadArgument for unknown names.
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
    return Picture(chosen.name, (first, second), tuple(_visits(chosen, (first, second), known)), arrows)


def _statement(statements: Sequence[Statement], wanted: str | None) -> Statement:
    drawable = {s.name: s for s in statements if len(s.point) >= 2}
    if wanted is None and drawable:
        return next(reversed(list(drawable.values())))
    if not drawable:
        raise BadArgument("", "a picture needs a statement with two axes, and there is none; split an axis")
    if wanted not in drawable:
        raise BadArgument("", f"no statement {wanted!r} with two axes; {nearest(str(wanted), drawable)}")
    return drawable[wanted]


def _visits(statement: Statement, axes: tuple[str, str], sizes: Mapping[str, int]) -> Iterator[Point]:
    """The points in order of their first visit."""
    domain = [with_sizes(c, sizes) for c in statement.domain]
    point = {a: with_sizes(v, sizes) for a, v in statement.point}
    bounds = [_range(name, domain) for name in statement.loops]
    runs: list[tuple[tuple[int, ...], Point]] = []
    for values in product(*bounds):
        env = dict(zip(statement.loops, values, strict=True))
        if all(_holds(c, env) for c in domain):
            at = evaluate(point[axes[0]], env), evaluate(point[axes[1]], env)
            time = tuple(env[part] if isinstance(part, str) else part for part in statement.time)
            runs.append((time, at))
    low = [min((p[k] for _, p in runs), default=0) for k in (0, 1)]
    runs.sort()
    seen = dict.fromkeys(at for _, at in runs if all(at[k] - low[k] < _MOST for k in (0, 1)))
    yield from seen


def _range(loop: str, domain: Sequence[Expr]) -> range:
    """The constant bounds of a loop, cut to what a picture can show."""
    low, high = 0, _MOST
    for c in domain:
        match c:
            case Binary(op="ge", a=a, b=Const(value=value)) if getattr(a, "name", "") == loop:
                low = int(value)
            case Binary(op="lt", a=a, b=b) if getattr(a, "name", "") == loop:
                with suppress(KeyError):
                    high = evaluate(b, {})
            case _:
                pass
    return range(low, min(high, low + 4 * _MOST))


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


def _svg(p: Picture) -> Iterator[str]:
    rows, columns = sorted({a for a, _ in p.order}), sorted({b for _, b in p.order})
    place = {(a, b): _at(rows, columns, a, b) for a, b in p.order}
    width, height = 2 * _MARGIN + _STEP * max(0, len(columns) - 1), 2 * _MARGIN + _STEP * max(0, len(rows) - 1)
    yield (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
        f'viewBox="0 0 {width} {height}" font-family="sans-serif" font-size="11">'
    )
    yield '<rect width="100%" height="100%" fill="white"/>'
    yield (
        '<defs><marker id="tip" viewBox="0 0 6 6" refX="6" refY="3" markerWidth="6" markerHeight="6" orient="auto">'
        '<path d="M0 0 L6 3 L0 6 z" fill="#c0392b"/></marker></defs>'
    )
    yield f'<text x="{_MARGIN}" y="18">{p.statement}: order of visits, and dependences</text>'
    yield f'<text x="8" y="{_MARGIN + 4}">{p.axes[0]} &#8595;</text>'
    yield f'<text x="{_MARGIN - 4}" y="{_MARGIN - 18}">{p.axes[1]} &#8594;</text>'
    path = " ".join(f"{x},{y}" for x, y in (place[at] for at in p.order))
    yield f'<polyline points="{path}" fill="none" stroke="#9bb8d3" stroke-width="5" stroke-linejoin="round"/>'
    for (a, b), kind in p.arrows:
        for at in p.order:
            to = (at[0] + a, at[1] + b)
            if to in place:
                (x, y), (u, v) = place[at], _before(place[at], place[to])
                yield (
                    f'<line x1="{x}" y1="{y}" x2="{u}" y2="{v}" stroke="#c0392b" stroke-width="1" '
                    f'stroke-dasharray="{"4 3" if kind == "anti" else "none"}" marker-end="url(#tip)"/>'
                )
    for number, at in enumerate(p.order):
        x, y = place[at]
        yield f'<circle cx="{x}" cy="{y}" r="{_RADIUS}" fill="#2c6aa0"/>'
        yield f'<text x="{x}" y="{y + 3}" fill="white" font-size="8" text-anchor="middle">{number}</text>'
    yield "</svg>"


def _before(start: Point, end: Point) -> Point:
    """Where an arrow ends: at the rim of the circle."""
    length = math.hypot(end[0] - start[0], end[1] - start[1])
    short = (length - _RADIUS - 2) / length
    return round(start[0] + short * (end[0] - start[0])), round(start[1] + short * (end[1] - start[1]))


def _at(rows: Sequence[int], columns: Sequence[int], a: int, b: int) -> tuple[int, int]:
    return _MARGIN + _STEP * (b - columns[0]), _MARGIN + _STEP * (a - rows[0])
