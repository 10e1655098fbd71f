"""Whole tiles of tensorized stages become calls of their intrinsics; what a tail cuts off stays ordinary code.

isl scans a tree in which the loops of a tile are gone: the tile is one statement, run where it is whole. Its calls say
which instances they run, so that every instance of the schedule is seen to run once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from tensorlang.dataclass import dataclass
from tensorlang.errors import InternalError
from tensorlang.ir.expr import Buffer, Const, Expr, Load, Var, binary, rewrite, substitute
from tensorlang.ir.stmt import (
    INDEX,
    CallMachine,
    For,
    LoopKind,
    MachineCode,
    MachineCommit,
    MachineWait,
    Seq,
    Stmt,
    Store,
    View,
    map_children,
    map_exprs,
)
from tensorlang.lowering.leaf import build_leaf
from tensorlang.lowering.storage import Storage
from tensorlang.lowering.tagged import of_tile, with_runs
from tensorlang.polyhedral.nest import Leaf, Loop, Tree, sequence
from tensorlang.polyhedral.nest import Sequence as Children
from tensorlang.polyhedral.scan import LeafBuilder, invisible
from tensorlang.polyhedral.statement import Scop, Statement
from tensorlang.schedule.axis_range import simple
from tensorlang.schedule.derive.plans import Derived
from tensorlang.schedule.state import ScheduleState
from tensorlang.schedule.tiles.layout import array_strides, leading
from tensorlang.schedule.tiles.match import Mismatch
from tensorlang.schedule.tiles.plan import Covered, TilePlan, tile_plans
from tensorlang.te.intrinsic import Variant, is_plain


@dataclass(frozen=True, slots=True)
class Scanned:
    """What isl makes loops of: the tree and the statements of a schedule, with the whole tiles as statements.

    Statements keep their numbers; those of tiles come after them, and `tiles` tells what each runs.
    """

    tree: Tree
    scop: Scop
    tiles: Mapping[int, TilePlan]


def with_tiles(state: ScheduleState, derived: Derived) -> Scanned:
    """Return what to scan for a derived state."""
    try:
        plans = tile_plans(state, derived)
    except Mismatch as mismatch:
        raise InternalError(f"a tensorized stage was accepted and does not match: {mismatch.why}") from mismatch
    statements = list(derived.scop.statements)
    tree, tiles = derived.tree, dict[int, TilePlan]()
    for plan in plans:
        number = len(statements)
        main = statements[plan.covered[-1].statement]
        domain = (*plan.domain, *plan.full)
        name = f"{main.name}.tile"
        statements.append(Statement(name, plan.stage, main.role, plan.outer, domain, (), (), ()))
        tiles[number] = plan
        tree = _with_tile(tree, plan.node, Leaf(number), plan.rest)
        if plan.rest:
            tree = _peeled(tree, {t.name for part in plan.covered for t in part.inner}, name)
            for part in plan.covered:
                cut = statements[part.statement]
                statements[part.statement] = replace(cut, domain=(*cut.domain, plan.cut))
    return Scanned(tree, replace(derived.scop, statements=tuple(statements)), tiles)


def _with_tile(tree: Tree, node: str | int, tile: Leaf, rest: bool) -> Tree:
    """The tree with a node replaced by a tile, or preceded by it."""
    match tree:
        case Loop():
            if tree.name == node:
                return sequence([tile, tree]) if rest else tile
            return replace(tree, body=_with_tile(tree.body, node, tile, rest))
        case Children():
            return sequence([_with_tile(child, node, tile, rest) for child in tree.children])
        case Leaf():
            if tree.statement == node:
                return sequence([tile, tree]) if rest else tile
            return tree


def _peeled(tree: Tree, points: set[str], tile: str) -> Tree:
    """The tree with a statement as the full tiles of the loops that were peeled for its point loops."""
    match tree:
        case Loop():
            kept = tuple(p for p in tree.peel if p[0] not in points)
            peel = tree.peel if len(kept) == len(tree.peel) else (*kept, (tile, 1))
            return replace(tree, peel=peel, body=_peeled(tree.body, points, tile))
        case Children():
            return Children(tuple(_peeled(child, points, tile) for child in tree.children))
        case Leaf():
            return tree


def over_tile(part: Covered, values: Mapping[str, Expr], body: LeafBuilder) -> Stmt:
    """The loops of a tile around a statement, for given values of the loops outside."""
    inside: dict[str, Expr] = {loop.name: Var(loop.name, INDEX) for loop in part.inner}
    stmt = body(part.statement, {**values, **inside})
    for loop in reversed(part.inner):
        lower, upper = Const(loop.lower, INDEX), Const(loop.lower + loop.extent, INDEX)
        stmt = For(Var(loop.name, INDEX), lower, upper, LoopKind.SERIAL, stmt, loop.axis)
    return stmt


def tile_calls(
    plan: TilePlan, state: ScheduleState, derived: Derived, values: Mapping[str, Expr], storage: Storage
) -> Stmt:
    """The calls that run one tile, for given values of the loops around it."""
    op = state.program[plan.stage]

    def leaf(number: int, at: Mapping[str, Expr]) -> Stmt:
        statement = derived.scop.statements[number]
        return build_leaf(op, statement, at, storage, state.sizes, invisible(statement, state.sizes))

    moved = len(plan.covered) > 1
    calls: list[Stmt] = []
    for variant, parts in _shares(plan):
        views = tuple(_view(plan, name, values, storage) for name in plan.intrin.names(variant))
        meaning = [over_tile(part, values, leaf) for part in parts]
        call = _call(plan.intrin.code(variant), views, meaning)
        calls.append(with_runs(call, of_tile(parts, derived.scop.statements, values, moved)))
    main = plan.covered[-1]
    if plan.intrin.group and plan.variants != ("reset",) and main.statement not in derived.under_way:
        (run,) = of_tile([main], derived.scop.statements, values, moved)
        calls.append(MachineCommit(plan.intrin.group, (replace(run, part=1),)))
        calls.append(MachineWait(plan.intrin.group, 0, (replace(run, part=2),)))
    return calls[0] if len(calls) == 1 else Seq(tuple(calls))


def _shares(plan: TilePlan) -> list[tuple[Variant, Sequence[Covered]]]:
    """Which statements each variant does."""
    if len(plan.variants) == 1:
        return [(plan.variants[0], plan.covered)]
    return [(variant, (part,)) for variant, part in zip(plan.variants, plan.covered, strict=True)]


def _view(plan: TilePlan, name: str, values: Mapping[str, Expr], storage: Storage) -> View:
    tile = plan.views[name]
    index = tuple(simple(substitute(i, dict(values))) for i in tile.index)
    buffer, local = storage.place(tile.array, index, values, {})
    lead = leading(storage.plans[tile.array])
    return View(buffer, local, tuple(d if d < 0 else d + lead for d in tile.dims), tile.steps)


def _call(code: MachineCode, views: tuple[View, ...], meaning: list[Stmt]) -> Stmt:
    if is_plain(code.body) and not code.lanes:
        return inlined(code, views)
    return CallMachine(code, views, meaning[0] if len(meaning) == 1 else Seq(tuple(meaning)))


def inlined(code: MachineCode, views: Sequence[View]) -> Stmt:
    """Statements that are plain loop IR, over the arrays themselves."""
    tiles = {param.buffer.name: view for param, view in zip(code.params, views, strict=True)}
    strides: dict[str, Expr] = {}
    for param, view in zip(code.params, views, strict=True):
        own = array_strides(view.buffer)
        for declared, d, n in zip(param.strides, view.dims, view.steps, strict=True):
            if isinstance(declared, Var):
                strides[declared.name] = Const(1, INDEX) if d < 0 else simple(binary("mul", own[d], n))

    def element(buffer: Buffer, index: Sequence[Expr]) -> tuple[Buffer, tuple[Expr, ...]]:
        view = tiles.get(buffer.name)
        if view is None:
            return buffer, tuple(index)
        at = list(view.index)
        for part, d, n in zip(index, view.dims, view.steps, strict=True):
            if d >= 0:
                at[d] = simple(binary("add", at[d], binary("mul", part, n)))
        return view.buffer, tuple(at)

    def moved(expr: Expr) -> Expr:
        def load(node: Expr) -> Expr | None:
            return Load(*element(node.buffer, node.index)) if isinstance(node, Load) else None

        return rewrite(substitute(expr, strides), load)

    def stores(stmt: Stmt) -> Stmt:
        if isinstance(stmt, Store):
            return Store(*element(stmt.buffer, stmt.index), stmt.value)
        return map_children(stmt, stores)

    return stores(map_exprs(code.body, moved))
