"""Bands of loops seen through integer matrices: affine, tile_by."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tensorlang.dataclass import dataclass
from tensorlang.errors import BadArgument
from tensorlang.schedule import order
from tensorlang.schedule.matrix import Matrix, determinant, inverse
from tensorlang.schedule.primitive import Outputs, Primitive, StageName, argument_text, positive, primitive, value_of
from tensorlang.schedule.primitives.loops import fresh, nested, require_plain
from tensorlang.schedule.relation import AffineRelation, BandRelation
from tensorlang.schedule.state import ScheduleState


def band(state: ScheduleState, stage: str, axes: Sequence[str], word: str) -> tuple[str, ...]:
    """Return some axes that are perfectly nested neighbours, outermost first; BadArgument when they are not."""
    state.looped(stage)
    if not axes:
        raise BadArgument("", f"{word} needs at least one axis")
    leaves = tuple(state.leaf(stage, a) for a in axes)
    twice = [a for a in leaves if leaves.count(a) > 1]
    if twice:
        raise BadArgument("", f"axis {twice[0]} appears twice")
    found = nested(state.stages[stage], leaves)
    if found != leaves:
        advice = "; reorder would bring them there, if the dependences allow that" if set(found) == set(leaves) else ""
        raise BadArgument(
            "",
            f"{word} takes neighbours, outermost first; the loops are {', '.join(state.stages[stage].leaves)}{advice}",
        )
    return leaves


def _checked_rows(rows: Matrix, width: int, state: ScheduleState, word: str) -> Matrix:
    """The rows with the values of decisions; BadArgument unless they are whole numbers, one per axis."""
    for row in rows:
        if len(row) != width or not all(isinstance(x, int) and not isinstance(x, bool) for x in row):
            raise BadArgument("", f"every {word} needs {width} whole numbers, one per axis, got {list(row)}")
    return tuple(tuple(value_of(x, state) for x in row) for row in rows)


@primitive("affine")
@dataclass(frozen=True, slots=True)
class Affine(Primitive):
    """Walk a nest of loops along other axes: each row of a unimodular matrix gives a new axis from the old ones.

    Rewrite: `for i: for j: S(i, j)` with the rows (1, 0), (1, 1) -> `for i_a: for j_a: S(i_a, j_a - i_a)`.
    Legal when: the axes are perfectly nested neighbours, all spatial or all reduce, the determinant is 1 or -1, and no
    dependence is reversed.
    Example:
        >>> from tensorlang import te
        >>> A = te.placeholder((6, 7), name="A")
        >>> B = te.compute((6, 7), lambda i, j: A[i, j] + 1, name="B")
        >>> s = te.create_schedule(B.op)
        >>> [str(a) for a in s[B].affine(["i", "j"], [[1, 1], [1, 0]])]
        ['i_a', 'j_a']
    """

    stage: StageName
    axes: tuple[str, ...]
    matrix: tuple[tuple[int, ...], ...]

    def apply(self, state: ScheduleState) -> tuple[ScheduleState, Outputs]:
        axes = band(state, self.stage, self.axes, "affine")
        require_plain(state, self.stage, axes)
        if len(self.matrix) != len(axes):
            raise BadArgument("", f"the matrix needs {len(axes)} rows, one per axis, got {len(self.matrix)}")
        matrix = _checked_rows(self.matrix, len(axes), state, "row")
        back = inverse(matrix)
        if back is None:
            value = determinant(matrix)
            why = "axes are lost" if value == 0 else "steps would have gaps"
            raise BadArgument("", f"the determinant must be 1 or -1, and is {value}: {why}")
        kinds = state.axis_kinds(self.stage)
        other = next((a for a in axes if kinds[a] is not kinds[axes[0]]), None)
        if other is not None:
            first = f"{axes[0]} is a {kinds[axes[0]].value} axis"
            raise BadArgument("", f"{first} and {other} a {kinds[other].value} axis")
        made = tuple(fresh(state, self.stage, f"{a}_a") for a in axes)
        stage = state.stages[self.stage]
        body = order.find(stage.order, axes[-1]).body
        relation = AffineRelation(axes, matrix, back, made)
        tree = order.rebuild(stage.order, axes[0], lambda _: order.chain(made, body))
        return state.with_stage(replace(stage.related(order.statements(body), relation), order=tree)), made


@primitive("tile_by")
@dataclass(frozen=True, slots=True)
class TileBy(Primitive):
    """Tile a nest of loops by hyperplanes: a loop over tiles per row, around the loops as they are.

    Rewrite: `for t: for i` with the rows (1, 1), (1, -1) -> `for t_tile: for i_tile: for t: for i` where
    `t_tile = (t + i + shift) // size` and `i_tile = (t - i + shift) // size`: diamonds.
    Legal when: the axes are perfectly nested neighbours, all spatial or all reduce, and no dependence points from a
    later tile to an earlier one.
    Example:
        >>> from tensorlang import te
        >>> A = te.placeholder((6, 7), name="A")
        >>> B = te.compute((6, 7), lambda i, j: A[i, j] + 1, name="B")
        >>> s = te.create_schedule(B.op)
        >>> [str(a) for a in s[B].tile_by(["i", "j"], [[1, 1], [1, -1]], [4, 4])]
        ['i_tile', 'j_tile']
    """

    stage: StageName
    axes: tuple[str, ...]
    rows: tuple[tuple[int, ...], ...]
    sizes: tuple[int, ...]
    shifts: tuple[int, ...]

    def apply(self, state: ScheduleState) -> tuple[ScheduleState, Outputs]:
        axes = band(state, self.stage, self.axes, "tile_by")
        require_plain(state, self.stage, axes)
        rows = _checked_rows(self.rows, len(axes), state, "row")
        if not 1 <= len(rows) <= len(axes):
            raise BadArgument("", f"tile_by takes one to {len(axes)} rows, got {len(rows)}")
        if not len(self.sizes) == len(self.shifts) == len(rows):
            raise BadArgument("", f"tile_by needs a size and a shift for each of {len(rows)} rows")
        if any(not any(row) for row in rows):
            raise BadArgument("", "a row of zeros cuts no tiles")
        sizes = tuple(positive(size, state, "a tile size") for size in self.sizes)
        (shifts,) = _checked_rows((self.shifts,), len(rows), state, "list of shifts")
        kinds = {state.axis_kinds(self.stage)[a] for a in axes}
        if len(kinds) > 1:
            raise BadArgument("", "the axes must be all spatial or all reduce axes")
        stage = state.stages[self.stage]
        tiles = tuple(fresh(state, self.stage, f"{a}_tile") for a in axes[: len(rows)])
        relation = BandRelation(axes, rows, shifts, sizes, tiles)
        inside = order.statements((order.find(stage.order, axes[0]),))
        tree = order.rebuild(stage.order, axes[0], lambda loop: order.chain(tiles, (loop,)))
        return state.with_stage(replace(stage.related(inside, relation), order=tree)), tiles

    def text(self) -> str:
        given = ", ".join(map(argument_text, (self.axes, self.rows, self.sizes)))
        shifts = f", {argument_text(self.shifts)}" if any(self.shifts) else ""
        return f"s[{self.stage!r}].tile_by({given}{shifts})"
