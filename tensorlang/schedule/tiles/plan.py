"""Which instances of a stage an intrinsic runs: its whole tiles, and what is left to ordinary code.

The loops of a schedule are not changed by `tensorize`: the proof of their order holds for every statement instance. A
plan says which of them are run together, by one call.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from tensorlang import dtypes
from tensorlang.dataclass import dataclass
from tensorlang.ir.expr import Binary, Expr, binary, same, to_text, variables
from tensorlang.ir.fragment import Fragment
from tensorlang.ir.linear import linear
from tensorlang.ir.simplify.forms import Range
from tensorlang.ir.stmt import LoopKind
from tensorlang.polyhedral import isl
from tensorlang.polyhedral.affine_text import Namer, dims
from tensorlang.polyhedral.nest import Loop, leaves, loops
from tensorlang.polyhedral.rows import Rows
from tensorlang.polyhedral.scan import invisible
from tensorlang.polyhedral.statement import Role, Statement
from tensorlang.schedule.axis_range import constant, simple, symbolic
from tensorlang.schedule.derive.plans import Derived
from tensorlang.schedule.state import ScheduleState, StageState, Tensorized
from tensorlang.schedule.tiles.layout import check_layout
from tensorlang.schedule.tiles.match import Mismatch, Tile, TileLoop, TileView, match_outputs, match_tile, tile_axes
from tensorlang.te.intrinsic import TensorIntrin, Variant
from tensorlang.te.operation import ComputeOp
from tensorlang.te.tensor_intrin import declared_keys, find_intrin

_NEGATED = {"ge": "lt", "lt": "ge", "gt": "le", "le": "gt"}


@dataclass(frozen=True, slots=True)
class Covered:
    """A statement, by its number in the scop, whose loops `inner` run inside the intrinsic."""

    statement: int
    inner: tuple[TileLoop, ...]


@dataclass(frozen=True, slots=True)
class TilePlan:
    """A node of the tree, a loop by name or the leaf of a statement, whose whole tiles are calls of an intrinsic.

    One call of each variant does what the `covered` statements do. A tile at the values of the loops `outer` exists
    where `domain` holds; `full` are the conditions under which nothing cuts it, and `rest` says that some are cut.
    """

    stage: str
    intrin: TensorIntrin
    variants: tuple[Variant, ...]
    node: str | int
    outer: tuple[str, ...]
    covered: tuple[Covered, ...]
    views: Mapping[str, TileView]
    domain: tuple[Expr, ...]
    full: tuple[Expr, ...]
    rest: bool

    @property
    def cut(self) -> Expr:
        """The condition that something cuts a tile."""
        parts = [_negated(c) for c in self.full]
        whole = parts[0]
        for part in parts[1:]:
            whole = binary("or", whole, part)
        return whole


def tile_plans(state: ScheduleState, derived: Derived) -> list[TilePlan]:
    """The plans of all tensorized stages; Mismatch when one is not what its intrinsic computes."""
    made = [
        plan
        for stage in state.stages.values()
        if stage.tensorized is not None
        for plan in _stage_plans(state, derived, stage, stage.tensorized)
    ]
    _check_fragments(made)
    return made


def _check_fragments(plans: Sequence[TilePlan]) -> None:
    """All intrinsics that touch an array in registers hold it alike."""
    known: dict[str, tuple[TilePlan, Fragment | None]] = {}
    for plan in plans:
        for name, view in plan.views.items():
            fragment = plan.intrin.buffers[name].fragment
            first, held = known.setdefault(view.array, (plan, fragment))
            if held != fragment:
                raise Mismatch(
                    f"the lanes of {first.intrin.name} hold {view.array} as {held}, those of {plan.intrin.name} as "
                    f"{fragment}",
                    "copy it: an operand of each product has an array of its own (cache_read, scope 'warp')",
                )


def run_by_lanes(state: ScheduleState) -> frozenset[str]:
    """The stages whose tiles several neighbouring threads run together."""
    return frozenset(name for name, intrin in _intrinsics(state).items() if intrin.lanes)


def finished_later(state: ScheduleState) -> dict[str, str]:
    """The loops of tiles whose machine code only begins its work, with the name of the groups that threads wait for."""
    asked = {name: s.tensorized.axis for name, s in state.stages.items() if s.tensorized is not None}
    return {f"{name}.{asked[name]}": intrin.group for name, intrin in _intrinsics(state).items() if intrin.group}


def _intrinsics(state: ScheduleState) -> dict[str, TensorIntrin]:
    """The tensorized stages with their intrinsics."""
    asked = {s.name: s.tensorized for s in state.stages.values() if s.tensorized is not None}
    found = {name: find_intrin(t.intrinsic, t.key) for name, t in asked.items()}
    return {name: intrin for name, intrin in found.items() if intrin is not None}


@dataclass(frozen=True, slots=True)
class Site:
    """Where a stage is tensorized: the loop, its statements by number, and the tile of the one that computes."""

    loop: Loop
    numbers: tuple[int, ...]
    main: int
    tile: Tile
    inner: tuple[TileLoop, ...]


def tile_site(state: ScheduleState, derived: Derived, stage: str, axis: str) -> Site:
    """Return the tile at and below a loop; Mismatch when it is none."""
    op = state.compute_op(stage)
    if state.stages[stage].storage.is_ahead:
        raise Mismatch(f"{stage} has a double buffer, which is filled one tile ahead of the loops around it")
    loop = next(x for x in loops(derived.tree) if (x.stage, x.name) == (stage, f"{stage}.{axis}"))
    below, numbers = list(loops(loop)), tuple(leaves(loop))
    _check_below(derived, stage, loop, below)
    mains = [k for k in numbers if derived.scop.statements[k].role is not Role.INIT]
    if any(derived.scop.statements[k].role is Role.PREFETCH for k in mains):
        raise Mismatch(f"{stage} prefetches inside the loop {axis}, where the intrinsic runs alone")
    if len(mains) != 1:
        raise Mismatch(f"the loop {axis} runs {len(mains)} parts of {stage}, an intrinsic replaces one")
    tile, inner = _tile(state, derived, op, mains[0], below)
    return Site(loop, numbers, mains[0], tile, inner)


def _stage_plans(state: ScheduleState, derived: Derived, stage: StageState, asked: Tensorized) -> list[TilePlan]:
    intrin = find_intrin(asked.intrinsic, asked.key)
    assert intrin is not None
    if asked.axis not in stage.leaves:
        raise Mismatch(f"the loop {asked.axis} of {stage.name} runs as {intrin.name}, and has to stay a loop")
    site = tile_site(state, derived, stage.name, asked.axis)
    op, statements = site.tile.op, derived.scop.statements
    _check_strict(state, op, site.tile)
    views = match_tile(site.tile, intrin.op, lambda found: check_layout(derived, intrin, found))
    outer = tuple(n for n in statements[site.main].loops if n not in {t.name for t in site.inner})
    covered: tuple[Covered, ...] = (Covered(site.main, site.inner),)
    whole = len(site.numbers) > 1 or op.reduction is None
    alike = _start_alike(op, intrin.op)
    _check_start(op, intrin, asked.axis, whole, alike)
    variants: tuple[Variant, ...] = ("body",) if whole else ("update",)
    if len(site.numbers) > 1:
        first = next(k for k in site.numbers if statements[k].role is Role.INIT)
        covered = (Covered(first, _inner_loops(statements[first], loops(site.loop))), *covered)
        variants = ("reset", "update") if intrin.reset and intrin.update else variants
    plan = _plan(state, derived, stage.name, intrin, variants, site.loop.name, outer, covered, views)
    if whole or intrin.reset is None or not alike:
        return [plan]
    return [plan, *_start_plans(state, derived, intrin, site, views)]


def _start_alike(op: ComputeOp, declared: ComputeOp) -> bool:
    """Whether two reductions start from the same values."""
    if op.reduction is None or declared.reduction is None:
        return True
    return all(map(same, op.reduction.start(), declared.reduction.start()))


def _check_start(op: ComputeOp, intrin: TensorIntrin, axis: str, whole: bool, alike: bool) -> None:
    if whole and not alike:
        raise Mismatch(f"{op.name} starts its reduction from another value than {intrin.name}")
    if not whole and intrin.update is None:
        raise Mismatch(
            f"{op.name} is initialised outside of {axis}, so that its tiles add to what is there, and {intrin.name} "
            "declares no update",
            "return (body, reset, update) from fcompute, or put all reduce loops inside (reorder)",
        )


def _start_plans(
    state: ScheduleState, derived: Derived, intrin: TensorIntrin, site: Site, views: Mapping[str, TileView]
) -> list[TilePlan]:
    """The plan of the initialisation by the intrinsic's reset, if its loops are those of the tile."""
    op, statements = site.tile.op, derived.scop.statements
    number = next(k for k, s in enumerate(statements) if s.stage == op.name and s.role is Role.INIT)
    statement, axes = statements[number], {t.axis for t in site.inner}
    named = {loop.name: loop for loop in loops(derived.tree)}
    below: list[Loop] = []
    for name in reversed(statement.loops):
        if named[name].axis not in axes or named[name].stage != op.name:
            break
        below.insert(0, named[name])
    spatial = {a.axis for a in site.inner if a.axis in {named[n].axis for n in statement.loops}}
    alone = not below or list(leaves(below[0])) == [number]
    if {x.axis for x in below} != spatial or not alone or any(x.kind is not LoopKind.SERIAL for x in below):
        return []
    tile, inner = _tile(state, derived, op, number, below)
    starts = match_outputs(tile, intrin.op, views)
    node = below[0].name if below else number
    outer = tuple(n for n in statement.loops if n not in {x.name for x in below})
    return [_plan(state, derived, op.name, intrin, ("reset",), node, outer, (Covered(number, inner),), starts)]


def _check_below(derived: Derived, stage: str, loop: Loop, below: Sequence[Loop]) -> None:
    """The tile holds nothing but serial loops of the stage."""
    for number in leaves(loop):
        other = derived.scop.statements[number].stage
        if other != stage:
            raise Mismatch(f"{other} is computed inside {loop.axis}, where the intrinsic runs alone")
    for inside in below:
        if inside.kind is not LoopKind.SERIAL:
            raise Mismatch(
                f"axis {inside.axis} is {inside.thread or inside.kind.value}, and the intrinsic takes the place of its "
                "loop",
                f"leave out the annotation of {inside.axis}",
            )


def _check_strict(state: ScheduleState, op: ComputeOp, tile: Tile) -> None:
    floats = any(dtypes.info(d).is_float for d in op.dtypes)
    if state.strict and floats and any(a.reduce and a.extent > 1 for a in tile.axes):
        raise Mismatch("the schedule is strict, and an intrinsic adds the floats of its tile in an order of its own")


def _tile(
    state: ScheduleState, derived: Derived, op: ComputeOp, number: int, below: Sequence[Loop]
) -> tuple[Tile, tuple[TileLoop, ...]]:
    statement = derived.scop.statements[number]
    if invisible(statement, state.sizes) or any(r.index is None for r in statement.reads):
        raise Mismatch(f"{op.name} reads elements, or is under conditions, that depend on data or on products of sizes")
    inner = _inner_loops(statement, below)
    point = dict(statement.point)
    spatial_only = statement.role is Role.INIT  # reduce axes stay at their first value there
    known = point | {a.name: symbolic(a.lower) for a in op.reduce_axes} if spatial_only else point
    axes = tile_axes(op, known, inner)
    return Tile(op, axes, _limits(derived, statement)), inner


def _inner_loops(statement: Statement, below: Iterable[Loop]) -> tuple[TileLoop, ...]:
    made = []
    for loop in below:
        if loop.name not in statement.loops:
            continue
        lower, extent = constant(loop.lower), constant(simple(loop.upper - loop.lower))
        if lower is None or extent is None:
            size = simple(loop.upper - loop.lower)
            raise Mismatch(
                f"axis {loop.axis} has the symbolic extent {size} below the loop, an intrinsic covers a fixed one",
                f"split {loop.axis} by that extent with tail='peel', and put the outer loop outside (reorder)",
            )
        made.append(TileLoop(loop.name, loop.axis, lower, extent))
    return tuple(made)


def _limits(derived: Derived, statement: Statement) -> dict[str, Range]:
    found: dict[str, Range] = {}
    for loop in loops(derived.tree):
        if loop.name in statement.loops:
            end = constant(loop.upper)
            found[loop.name] = constant(loop.lower), None if end is None else end - 1
    return found


def _plan(
    state: ScheduleState,
    derived: Derived,
    stage: str,
    intrin: TensorIntrin,
    variants: tuple[Variant, ...],
    node: str | int,
    outer: tuple[str, ...],
    covered: tuple[Covered, ...],
    views: Mapping[str, TileView],
) -> TilePlan:
    statements = derived.scop.statements
    domain: list[Expr] = []
    full: list[Expr] = []
    for part in covered:
        outside, worst = _tile_conditions(statements[part.statement], part.inner)
        domain += [c for c in outside if not any(same(c, d) for d in domain)]
        full += [c for c in worst if not any(same(c, d) for d in full)]
    rest = _some_cut(state, statements, covered, outer, domain, full)
    if rest and intrin.lanes:
        whole = " and ".join(map(to_text, full))
        raise Mismatch(
            f"some tiles of {stage} are cut ({whole} does not always hold), and the lanes of {intrin.name} run whole "
            "ones only",
            "compute on arrays padded to multiples of the extents of the tile; blocks and warps need not divide them",
        )
    if rest and not any(loop.peel for loop in loops(derived.tree) if loop.name in outer):
        parents = ", ".join(dict.fromkeys(t.axis for part in covered for t in part.inner))
        raise Mismatch(
            f"the tile of {parents} is not always whole: it is cut unless {' and '.join(map(to_text, full))}",
            "split with tail='peel', which leaves the remainder to ordinary code",
            "or split by a factor that divides the extent",
        )
    return TilePlan(stage, intrin, variants, node, outer, covered, views, tuple(domain), tuple(full), rest)


def _tile_conditions(statement: Statement, inner: Sequence[TileLoop]) -> tuple[list[Expr], list[Expr]]:
    """The conditions on the loops around, and those under which every instance of the tile is in the domain."""
    names = {t.name for t in inner}
    bounds = 2 * len(statement.loops)
    outside = [c for c in statement.domain[:bounds] if not variables(c) & names]
    full: list[Expr] = []
    for condition in statement.domain[bounds:]:
        if variables(condition) & names:
            full.append(_worst(condition, inner))
        else:
            outside.append(condition)
    return outside, full


def _worst(condition: Expr, inner: Sequence[TileLoop]) -> Expr:
    """A condition at the corner of the tile where it is hardest to meet."""
    if isinstance(condition, Binary) and condition.op in _NEGATED:
        found = linear(binary("sub", condition.a, condition.b), {t.name for t in inner})
        if found is not None:
            rest, factors = found
            for loop in inner:
                factor = factors.get(loop.name, 0)
                ends = (factor * loop.lower, factor * (loop.lower + loop.extent - 1))
                rest = rest + (min(ends) if condition.op in ("ge", "gt") else max(ends))
            return binary(condition.op, simple(rest), 0)
    raise Mismatch(f"the condition {condition} cuts the tile")


def _negated(condition: Expr) -> Expr:
    assert isinstance(condition, Binary)
    return binary(_NEGATED[condition.op], condition.a, condition.b)


def _some_cut(
    state: ScheduleState,
    statements: Sequence[Statement],
    covered: Sequence[Covered],
    outer: tuple[str, ...],
    domain: Sequence[Expr],
    full: Sequence[Expr],
) -> bool:
    """Whether some instance lies in a tile that is not whole; Mismatch when no tile is whole."""
    namer = Namer(state.sizes)
    whole = _points(outer, [], [*domain, *full], namer)
    if whole.is_empty():
        raise Mismatch("no tile is whole: the intrinsic covers more than there is")
    for part in (statements[p.statement] for p in covered):
        inside = [name for name in part.loops if name not in outer]
        reached = _points(outer, inside, part.domain, namer)
        if namer.parameters:
            reached = reached.intersect_params(isl.make_set(f"{namer.prefix()}{{ : {namer.context()} }}"))
        if not reached.is_subset(whole):
            return True
    return False


def _points(outer: Sequence[str], inside: Sequence[str], conditions: Iterable[Expr], namer: Namer) -> isl.Set:
    """The values of the outer loops at which conditions on them, and on loops inside, hold; as far as isl sees them."""
    rows = Rows(dims((*outer, *inside)), namer)
    rows.require(conditions)
    return rows.points(len(inside))


def tile_fault(state: ScheduleState, derived: Derived) -> Mismatch | None:
    """Why a tensorized stage is not what its intrinsic computes; None when all are."""
    try:
        tile_plans(state, derived)
    except Mismatch as mismatch:
        return mismatch
    return None


def unknown_intrinsic(name: str, key: str) -> tuple[str, list[str]]:
    """Why a step's intrinsic cannot be found, and what to do."""
    others = declared_keys(name)
    if others:
        why = f"intrinsic {name} is declared otherwise here: its hash is {' or '.join(others)}, the step has {key}"
        return why, ["declare it as it was when the trace was made, or make the trace anew"]
    why = f"no intrinsic {name} (hash {key}) is declared in this process"
    return why, [f"import the module that declares {name} with te.decl_tensor_intrin, then replay"]
