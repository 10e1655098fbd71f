"""Full and partial tiles: the `isolate` option of a band whose splits ask to be peeled.

The option must name one convex set, and its prefix must list exactly the enclosing bands: isl silently
ignores or widens anything else.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product

from tensorlang.ir.expr import Binary, Expr, walk
from tensorlang.polyhedral import isl
from tensorlang.polyhedral.affine_text import Namer, conditions_text, dims, divides, wraps_quotient
from tensorlang.polyhedral.nest import Loop, leaves
from tensorlang.polyhedral.statement import Statement


def isolate_option(
    loop: Loop, statements: Sequence[Statement], path: tuple[str, ...], namer: Namer, unit: int = 1
) -> str | None:
    """Return `[params] -> { isolate[[path] -> [loop]] : every point of the tile is in every domain }`, or None.

    Values of loops are `unit` apart there.
    """
    full: isl.Set | None = None
    for k in leaves(loop):
        statement = statements[k]
        points = [(name, extent) for name, extent in loop.peel if name in statement.loops]
        if points or any(name == statement.name for name, _ in loop.peel):
            whole = _whole_tiles(statement, (*path, loop.name), points, namer)
            full = whole if full is None else full.intersect(whole)
    if full is None or full.is_empty():
        return None
    full = isl.coalesced(full).remove_redundancies()
    if full.n_basic_set() != 1:
        return None
    bands = [f"b{k}" for k in range(len(path))]
    wide = ", ".join(f"{unit}*{band}" for band in bands)
    named = isl.make_map(f"{{ [{', '.join([*bands, 'x'])}] -> isolate[[{wide}] -> [{unit}*x]] }}")
    made = full.apply(named)
    return str(made).replace("\n", " ")


def scanned(statement: Statement) -> list[Expr]:
    """The conditions of a domain that isl may make loops of."""
    return [c for c in statement.domain if not is_tested(statement, c)]


def is_tested(statement: Statement, condition: Expr) -> bool:
    """Whether a condition is left to the statement to test, though isl could see it."""
    return divides(condition) if statement.tests_quotients else wraps_quotient(condition)


def _bounds(statement: Statement) -> list[Expr]:
    """The conditions that hold between two points where they hold at both: no remainders, and no equal quotients."""
    return [c for c in scanned(statement) if not _repeats(c)]


def _repeats(condition: Expr) -> bool:
    found = {node.op for node in walk(condition) if isinstance(node, Binary)}
    return "floormod" in found or ("floordiv" in found and bool(found & {"eq", "ne"}))


def _whole_tiles(
    statement: Statement, path: tuple[str, ...], points: Sequence[tuple[str, int]], namer: Namer
) -> isl.Set:
    """Values of the loops in `path` for which all corners of the box of point loops are in the domain."""
    names = dims(statement.loops)
    where, _ = conditions_text(_bounds(statement), names, namer)
    space = isl.make_set(f"{namer.prefix()}{{ [{', '.join(names.values())}] : {where} }}")
    kept = ", ".join(names[p] for p in path)
    projection = isl.make_map(f"{{ [{', '.join(names.values())}] -> [{kept}] }}")
    whole: isl.Set | None = None
    for corner in product(*[(0, extent - 1) for _, extent in points]):
        fixed = " and ".join(f"{names[name]} = {value}" for (name, _), value in zip(points, corner, strict=True))
        at = isl.make_set(f"{{ [{', '.join(names.values())}] : {fixed} }}")
        inside = space.intersect(at).apply(projection)
        whole = inside if whole is None else whole.intersect(inside)
    return whole
