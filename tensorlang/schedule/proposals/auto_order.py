"""isl's order of a stage, replayed as named steps: reorder, reverse, shift, fuse_with, fission, skew, affine.

The steps are ordinary ones, each proven when it is applied. What they cannot express, or what the proof refuses, is
left out and named; the steps so far stay.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import field
from typing import Protocol

from tensorlang import config
from tensorlang.dataclass import dataclass
from tensorlang.errors import BadArgument, ScheduleError
from tensorlang.ir.expr import Const, Expr, binary
from tensorlang.ir.simplify import simplify
from tensorlang.ir.stmt import INDEX
from tensorlang.polyhedral import isl
from tensorlang.polyhedral.scheduler import Band, Member, Node, Series, propose
from tensorlang.schedule import order
from tensorlang.schedule import primitives as p
from tensorlang.schedule.axis_range import constant
from tensorlang.schedule.check import too_complex, verify
from tensorlang.schedule.derive import derive
from tensorlang.schedule.index_text import print_index
from tensorlang.schedule.matrix import Matrix, Row, identity, inverse
from tensorlang.schedule.primitive import Outputs, Primitive
from tensorlang.schedule.primitives.loops import nested
from tensorlang.schedule.state import ScheduleState, StageState


class Scheduled(Protocol):
    """What takes the steps: a Schedule."""

    @property
    def state(self) -> ScheduleState: ...

    def advance(self, step: Primitive, check: bool) -> Outputs: ...


@dataclass(frozen=True, slots=True)
class AutoOrder:
    """What auto_order did: the steps, and what of isl's order it left out."""

    steps: tuple[Primitive, ...]
    left_out: tuple[str, ...]

    def __str__(self) -> str:
        lines = [step.text() for step in self.steps] or ["the loops stay as they are"]
        return "\n".join([*lines, *(f"left out: {text}" for text in self.left_out)])


class _Inexpressible(Exception):
    """A part of isl's order that the steps cannot make; the text says which."""


@dataclass(slots=True)
class _Thread:
    """One statement on its way: its loops as they were, the axes that they are now, and the rows that are done."""

    name: str
    axes: dict[int, str]
    rows: list[Row] = field(default_factory=list)
    starts: list[Expr] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class _Made:
    """A band that was made: its axes; the first `shared` of them are around all of its statements."""

    permutable: bool
    axes: tuple[tuple[str, Member], ...]
    shared: int
    parallel: bool

    @property
    def tilable(self) -> bool:
        """Whether several of the loops may be tiled together."""
        return self.permutable and self.shared > 1

    @property
    def has_threads(self) -> bool:
        """Whether a loop can run in parallel, as it is or in wavefronts."""
        return self.tilable or any(member.coincident for _, member in self.axes)


@dataclass(frozen=True, slots=True)
class _Move:
    """One row of a statement in terms of what is done: a loop of its own, forwards or backwards, and the rest."""

    loop: int
    sign: int
    start: Expr
    skews: Row


def auto_order(target: Scheduled, stages: Iterable[str], parallel: bool, tile: int | None) -> AutoOrder:
    """Bring stages into isl's order."""
    steps: list[Primitive] = []
    left_out: list[str] = []
    for name in stages:
        replay = _Replay(target, name, parallel, tile, steps, left_out)
        if target.state.stages[name].attach is not None or target.state.stages[name].annotations:
            left_out.append(f"{name}: it is annotated, or computed inside another stage")
            continue
        try:
            with isl.budget(config.get("budget")):
                node, running = propose(derive(target.state).scop, name)
        except isl.BudgetExceeded:
            raise too_complex("", f"isl's scheduler for {name}") from None
        replay.run(node, running)
    return AutoOrder(tuple(steps), tuple(left_out))


@dataclass(slots=True)
class _Replay:
    """The replay of one stage."""

    target: Scheduled
    name: str
    parallel: bool
    tile: int | None
    steps: list[Primitive]
    left_out: list[str]
    made: list[_Made] = field(default_factory=list)
    idle: set[str] = field(default_factory=set)

    @property
    def stage(self) -> StageState:
        return self.target.state.stages[self.name]

    def apply(self, step: Primitive) -> Outputs:
        """Apply a step and return the axes that it makes; a refusal is not worth a search for repairs."""
        state, _ = step.apply(self.target.state)
        verify(state)
        made = self.target.advance(step, check=False)
        self.steps.append(step)
        return made

    def run(self, node: Node, running: frozenset[str]) -> None:
        """Bring the statements that ever run into an order; the others stay in loops of those."""
        threads = {}
        for strand in self.stage.strands:
            path = order.around(self.stage.order, strand)
            name = strand if strand == self.name else f"{self.name}.{strand}"
            if name in running:
                threads[name] = _Thread(strand, dict(enumerate(path)))
            else:
                self.idle.add(strand)
        self.visit(node, threads, (), self.parallel)
        for made in self.made:
            self.finish(made)

    def visit(self, node: Node, threads: dict[str, _Thread], done: tuple[str, ...], parallel: bool) -> None:
        """Bring some statements into an order inside the loops that are done."""
        if isinstance(node, Band):
            self.band(node, threads, done, parallel)
        elif isinstance(node, Series):
            groups = [{n: threads[n] for n in names if n in threads} for names, _ in node.groups]
            try:
                self.separate([list(group.values()) for group in groups])
            except (_Inexpressible, ScheduleError) as error:
                self.leave_out("statements one after the other", threads, error)
                return
            for group, (_, child) in zip(groups, node.groups, strict=True):
                if group:
                    self.visit(child, group, done, parallel)

    def leave_out(self, what: str, threads: dict[str, _Thread], error: Exception) -> None:
        why = error.why if isinstance(error, ScheduleError) else str(error)
        self.left_out.append(f"{self.name}, {what} of {', '.join(t.name for t in threads.values())}: {why}")

    def band(self, band: Band, threads: dict[str, _Thread], done: tuple[str, ...], parallel: bool) -> None:
        """Make the loops of a band, outermost first, as many as can be made.

        A statement without a loop for a member stays where it is, beside the loop of the others.
        """
        made: list[tuple[str, Member]] = []
        shared, active = 0, threads
        try:
            if self.as_matrix(band, threads, made):
                shared = len(made)
            else:
                for member in band.members:
                    moves = {n: move for n, t in active.items() if (move := _move(member, n, t)) is not None}
                    if moves:
                        active = {n: active[n] for n in moves}
                        made.append((self.member(member, active, moves, (*done, *(a for a, _ in made))), member))
                        shared = len(made) if len(active) == len(threads) else shared
        except (_Inexpressible, ScheduleError) as error:
            self.leave_out(f"loop {len(made) + 1} of a band", active, error)
            self.made.append(_Made(band.permutable, tuple(made), shared, parallel))
            return
        outer = _Made(band.permutable, tuple(made), shared, parallel)
        self.made.append(outer)
        self.visit(band.child, active, (*done, *(a for a, _ in made)), parallel and not outer.has_threads)

    def as_matrix(self, band: Band, threads: dict[str, _Thread], made: list[tuple[str, Member]]) -> bool:
        """One affine step, where all statements share the loops and the rows are no skew of them in their order."""
        first = next(iter(threads.values()))
        rows = {tuple(member.positions[n].factors for member in band.members) for n in threads if _known(band, n)}
        known = all(_known(band, n) for n in threads)
        if not known or len(rows) != 1 or len({tuple(t.axes.items()) for t in threads.values()}) != 1 or first.rows:
            return False
        (matrix,) = rows
        axes = tuple(first.axes[k] for k in sorted(first.axes))
        square = len(matrix) == len(axes) and inverse(matrix) is not None
        starts = [member.positions[n].start for member in band.members for n in threads]
        if not square or _is_skew(matrix) or any(constant(s) != 0 for s in starts):
            return False
        if not _perfect(self.stage, axes):
            return False
        if sorted(matrix, reverse=True) == list(identity(len(axes))):
            axes = tuple(axes[row.index(1)] for row in matrix)
            self.apply(p.Reorder(self.name, axes))
        else:
            axes = self.apply(p.Affine(self.name, axes, matrix))
        made += zip(axes, band.members, strict=True)
        for thread in threads.values():
            thread.axes = {}
        return True

    def member(
        self, member: Member, threads: dict[str, _Thread], moves: dict[str, _Move], done: tuple[str, ...]
    ) -> str:
        """Make one loop of all statements from a loop of each."""
        if len({move.skews for move in moves.values()}) > 1:
            raise _Inexpressible("its statements are skewed by different factors")
        least = _least([move.start for move in moves.values()])
        loops: dict[str, dict[str, str]] = {}
        for name, thread in threads.items():
            by = print_index(simplify(binary("sub", moves[name].start, least)))
            loops.setdefault(thread.axes[moves[name].loop], {})[thread.name] = by
        backwards = [moves[name].sign < 0 for name in threads]
        if any(backwards) and (len(loops) > 1 or not all(backwards)):
            raise _Inexpressible("a reversed loop would be fused with another")
        made = self.together([self.placed(axis, shifts, done) for axis, shifts in loops.items()])
        if any(backwards):
            (made,) = self.apply(p.Reverse(self.name, made))
        skews = next(iter(moves.values())).skews
        for outer, factor in zip(done, skews, strict=True):
            if factor:
                (made,) = self.apply(p.Skew(self.name, made, outer, factor))
        for name, thread in threads.items():
            del thread.axes[moves[name].loop]
            position = member.positions[name]
            thread.rows.append(position.factors)
            thread.starts.append(position.start)
        return made

    def placed(self, axis: str, shifts: dict[str, str], done: tuple[str, ...]) -> str:
        """A loop directly inside those that are done, shifted: as a whole, or its statements by different numbers."""
        path = order.path(self.stage.order, axis)
        if path[: len(done)] != done:
            raise _Inexpressible(f"loop {axis} is not inside {', '.join(done)}")
        between = path[len(done) : -1]
        if between:
            self.apply(p.Reorder(self.name, (axis, *between)))
        whole = len(set(shifts.values())) == 1
        for strand, by in [("", *set(shifts.values()))] if whole else shifts.items():
            if by != "0":
                (axis,) = self.apply(p.Shift(self.name, axis, by, strand))
        return axis

    def together(self, axes: Sequence[str]) -> str:
        first, *others = [a for a in self.stage.leaves if a in axes]
        for other in others:
            (first,) = self.apply(p.FuseWith(self.name, first, other=other, second=""))
        return first

    def separate(self, groups: Sequence[Sequence[_Thread]]) -> None:
        """Give every group loops of its own, where two of them share one that is not done yet.

        The order of the nests is not changed: where isl has another, both are legal.
        """
        number = {thread.name: k for k, group in enumerate(groups) for thread in group}
        pending = {axis for group in groups for thread in group for axis in thread.axes.values()}
        for axis in reversed([a for a in self.stage.leaves if a in pending]):
            rest = axis
            while (cut := self.border(rest, number)) is not None:
                kept, rest = self.apply(p.Fission(self.name, rest, cut))
                for thread in (t for group in groups for t in group):
                    if rest in order.around(self.stage.order, thread.name):
                        thread.axes = {k: rest if a == kept else a for k, a in thread.axes.items()}

    def border(self, axis: str, number: dict[str, int]) -> str | None:
        """The last child of a loop before those of another group; None when all are of one."""
        body = order.find(self.stage.order, axis).body
        found = [{number.get(s, -1) for s in order.statements((node,)) if s not in self.idle} for node in body]
        last = next(filter(None, found), {-1})
        groups = [last := some or last for some in found]  # what never runs stays with what is before it
        if len(set().union(*groups)) == 1:
            return None
        if any(len(found) > 1 for found in groups):
            raise _Inexpressible(f"loop {axis} would be taken apart deeper than its children")
        k = next(k for k in range(1, len(groups)) if groups[k] != groups[k - 1])
        node = body[k - 1]
        return node if isinstance(node, str) else node.axis

    def finish(self, made: _Made) -> None:
        """Tile the loops that all statements of a band share, and run one in parallel, as asked."""
        axes, shared = tuple(axis for axis, _ in made.axes), made.shared
        if self.tile is not None and made.tilable:
            step = p.TileBy(self.name, axes[:shared], identity(shared), (self.tile,) * shared, (0,) * shared)
            tiles = self.tried([step], f"tiles of {', '.join(axes[:shared])}")
            axes = axes if tiles is None else (*tiles, *axes[shared:])
        free = next((axis for axis, (_, member) in zip(axes, made.axes, strict=True) if member.coincident), None)
        if made.parallel and free is not None:
            self.tried([p.Parallel(self.name, free)], f"threads of {free}")
        elif made.parallel and made.tilable:
            self.tried(p.plan_wavefront(self.target.state, self.name, axes[:2]), "a wavefront")

    def tried(self, steps: Sequence[Primitive], what: str) -> Outputs | None:
        """Apply steps; None, and a note, when one is refused. Returns what the first makes."""
        made: list[Outputs] = []
        try:
            for step in steps:
                made.append(self.apply(step))
        except ScheduleError as error:
            self.left_out.append(f"{self.name}, {what}: {error.why}")
            return None
        return made[0]


def _least(starts: Sequence[Expr]) -> Expr:
    """The least of some starts, or the first where they depend on sizes."""
    known = [constant(simplify(s)) for s in starts]
    numbers = [k for k in known if k is not None]
    return Const(min(numbers), INDEX) if len(numbers) == len(known) else starts[0]


def _known(band: Band, name: str) -> bool:
    return all(name in member.positions for member in band.members)


def _perfect(stage: StageState, axes: tuple[str, ...]) -> bool:
    """Whether some loops are perfectly nested neighbours, outermost first."""
    try:
        return nested(stage, axes) == axes
    except BadArgument:
        return False


def _is_skew(matrix: Matrix) -> bool:
    """Whether every row is an axis in turn, plus multiples of those before it."""
    return all(row[k] == 1 and not any(row[k + 1 :]) for k, row in enumerate(matrix))


def _move(member: Member, name: str, thread: _Thread) -> _Move | None:
    """Take the rows that are done out of a row: what is left must be one loop; None when nothing is."""
    position = member.positions.get(name)
    if position is None:
        raise _Inexpressible(f"the position of {thread.name} divides")
    factors, start = list(position.factors), position.start
    skews = [0] * len(thread.rows)
    for k in reversed(range(len(thread.rows))):
        own = _own(thread.rows, k)
        factor = factors[own] * thread.rows[k][own]
        skews[k] = factor
        factors = [f - factor * g for f, g in zip(factors, thread.rows[k], strict=True)]
        start = simplify(binary("sub", start, binary("mul", thread.starts[k], factor)))
    left = [k for k, f in enumerate(factors) if f]
    if not left:
        return None
    if len(left) != 1 or abs(factors[left[0]]) != 1 or left[0] not in thread.axes:
        raise _Inexpressible(f"the row {position.factors} of {thread.name} is no skew of one of its loops")
    return _Move(left[0], factors[left[0]], start, tuple(skews))


def _own(rows: Sequence[Row], number: int) -> int:
    """The loop that a row brought in: the rows before it do without."""
    before = {k for row in rows[:number] for k, f in enumerate(row) if f}
    return next(k for k, f in enumerate(rows[number]) if f and k not in before)
