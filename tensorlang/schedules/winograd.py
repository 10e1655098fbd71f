"""The stages of a Winograd convolution, read off what they access: products of tiles between two transforms.

    columns[.., y, x, xi, c]    = formula xi of data[.., y * m + i, x, c], i = 0, 1, ...
    tiles[.., y, x, xi, nu, c]  = formula nu of columns[.., y, x * m + j, xi, c], j = 0, 1, ...
    sums[.., y, x, xi, nu, o]   = sum over c of tiles[.., y, x, xi, nu, c] * weights[xi, nu, o, c]
    rows[.., y, x, xi, o]       = formula x % m of sums[.., y, x // m, xi, nu, o], nu = 0, 1, ...
    results[.., y, x, o]        = formula y % m of rows[.., y // m, x, xi, o], xi = 0, 1, ...

Names and orders of axes do not matter, nor what the formulas are.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from tensorlang.dataclass import dataclass
from tensorlang.ir.affine import affine
from tensorlang.ir.expr import Binary, Const, Load, Var, to_text, variables
from tensorlang.te.axis import extent_of
from tensorlang.te.operation import ComputeOp, Operation, loads
from tensorlang.te.program import Program

_LEAST = 3
"""Places that make formulas: with fewer there is nothing that a transform could save."""


@dataclass(frozen=True, slots=True)
class Roles:
    """The axes of a stage. `points`: those that number formulas; `batch`: all that have no other role."""

    op: ComputeOp
    y: str
    x: str
    points: tuple[str, ...]
    channels: tuple[str, ...]

    @property
    def stage(self) -> str:
        return self.op.name

    @property
    def named(self) -> tuple[str, ...]:
        return (self.y, self.x, *self.points, *self.channels)

    @property
    def batch(self) -> tuple[str, ...]:
        return tuple(axis.name for axis in self.op.axes if axis.name not in self.named)

    @property
    def fits(self) -> bool:
        """Whether all roles are axes of the stage, one each."""
        own = {axis.name for axis in self.op.axes}
        return own.issuperset(self.named) and len(set(self.named)) == len(self.named)

    def read_by(
        self,
        op: ComputeOp,
        readers: Mapping[str, tuple[str, ...]],
        x: str = "",
        points: Sequence[str] = (),
        channels: Sequence[str] = (),
        without: str = "",
    ) -> Roles:
        """The roles in a stage that reads this one: given ones, else those of what axes are read by.

        `points`: further ones; `without`: the one that all formulas read.
        """
        kept = [_one(readers.get(point, ())) for point in self.points if point != without]
        ends = tuple(name for axis in self.channels for name in readers.get(axis, ()))
        down, along = (_one(readers.get(axis, ())) for axis in (self.y, self.x))
        return Roles(op, down, x or along, (*kept, *points), tuple(channels) or ends)


@dataclass(frozen=True, slots=True)
class Winograd:
    """The stages of such a convolution, and `data`, what `columns` reads; `tile`: the results of a tile each way, m."""

    columns: Roles
    tiles: Roles
    sums: Roles
    rows: Roles
    results: Roles
    data: Load
    weights: Load
    tile: int

    @property
    def stored_block(self) -> int | None:
        """Neighbouring output channels that the weights hold side by side, 0 for all; None: they hold none."""
        match self.weights.index[-1]:
            case Var(name=name) if name in self.sums.channels:
                return 0
            case Binary(op="floormod", a=Var(name=name), b=Const(value=size)) if name in self.sums.channels:
                return int(size)
        return None


@dataclass(frozen=True, slots=True)
class _Formulas:
    """A stage that reads an array at several places of its dimension `dim`, of which `first` is one.

    The `places` move with the axis `along`, by `step`; with none where it is "".
    """

    op: ComputeOp
    first: Load
    dim: int
    along: str
    step: int
    places: int

    @property
    def numbers(self) -> list[str]:
        """The axes that the array is not read by: they choose formulas."""
        moved = _moved(self.first)
        return [axis.name for axis in self.op.axes if axis.name not in moved]


def winograd_of(program: Program, main: ComputeOp) -> Winograd | None:
    """The convolution whose products a stage sums; None where it is none, or where others read what is in between."""
    factors = loads(main)
    if len(main.reduce_axes) != 1 or len(main.body) > 1 or main.where or len(factors) != 2:
        return None
    rows = _reader(program, main)
    results = _reader(program, rows.op) if rows is not None else None
    if rows is None or results is None:
        return None
    for data, weights in (factors, factors[::-1]):
        tiles = _maker(program, data)
        columns = _maker(program, tiles.first) if tiles is not None else None
        if columns is not None and tiles is not None:
            return _joined(main, (data, weights), (columns, tiles), (rows, results))
    return None


def _joined(
    main: ComputeOp,
    factors: tuple[Load, Load],
    before: tuple[_Formulas, _Formulas],
    behind: tuple[_Formulas, _Formulas],
) -> Winograd | None:
    """The roles of the axes of all stages, each by who reads it; None where they do not fit together."""
    (columns, tiles), (rows, results), (data, weights) = before, behind, factors
    to_tiles, to_sums = _readers(columns.op, tiles.first), _readers(tiles.op, data)
    to_rows, to_results = _readers(main, rows.first), _readers(rows.op, results.first)
    depth = _one(axis for axis, by in to_sums.items() if by == (main.reduce_axes[0].name,))
    left = Roles(
        columns.op,
        y=columns.along,
        x=columns.op.axes[tiles.dim].name,
        points=tuple(columns.numbers),
        channels=(_one(axis for axis, by in to_tiles.items() if by == (depth,)),),
    )
    turned = left.read_by(tiles.op, to_tiles, x=tiles.along, points=tiles.numbers)
    features = [axis.name for axis in main.axes if axis.name in _moved(weights) - _moved(data)]
    sums = turned.read_by(main, to_sums, channels=features)
    back = sums.read_by(rows.op, to_rows, without=main.axes[rows.dim].name)
    whole = back.read_by(results.op, to_results, without=rows.op.axes[results.dim].name)
    found = (left, turned, sums, back, whole)
    shapes = [len(roles.points) for roles in found] == [1, 2, 2, 1, 0] and len(sums.channels) == 1
    fit = all(roles.fits and len(roles.batch) == len(sums.batch) for roles in found)
    if not (shapes and fit and columns.step == tiles.step):
        return None
    return Winograd(*found, columns.first, weights, columns.step)


def _readers(made: ComputeOp, read: Load) -> dict[str, tuple[str, ...]]:
    """The axes that each axis of a stage is read by."""
    return {a.name: tuple(sorted(variables(i))) for a, i in zip(made.axes, read.index, strict=True)}


def _moved(load: Load) -> set[str]:
    return {name for index in load.index for name in variables(index)}


def _one(names: Iterable[str]) -> str:
    """The only one of names; "", which no axis is called, where there are others or none."""
    found = [*names]
    return found[0] if len(found) == 1 else ""


def _reader(program: Program, op: ComputeOp) -> _Formulas | None:
    """The formulas that a stage is read by, which nothing else reads: all results along one axis for each."""
    readers = program.consumers[op.name]
    if len(readers) != 1 or op.name in program.outputs:
        return None
    found = _formulas(program[readers[0]], op.name)
    whole = found is not None and extent_of(op.axes[found.dim].extent) == found.places
    return found if whole and found is not None and not found.along else None


def _maker(program: Program, load: Load) -> _Formulas | None:
    """The formulas that make what is read, for this reader alone."""
    name = program.producer[load.buffer.name]
    if len(program.consumers[name]) != 1 or name in program.outputs:
        return None
    found = _formulas(program[name])
    return found if found is not None and found.along else None


def _formulas(op: Operation, array: str = "") -> _Formulas | None:
    """How a stage has formulas of an array (the only one that it reads unless given); None where it has none."""
    if not isinstance(op, ComputeOp) or op.reduce_axes or op.where or len(op.body) > 1:
        return None
    found = {tuple(map(to_text, load.index)): load for load in loads(op) if array in ("", load.buffer.name)}
    reads = [*found.values()]
    if len(reads) < _LEAST or len({load.buffer.name for load in loads(op)}) != 1:
        return None
    differ = [d for d in range(len(reads[0].index)) if len({index[d] for index in found}) > 1]
    places = [affine(load.index[differ[0]]) for load in reads] if len(differ) == 1 else [None]
    if None in places:
        return None
    steps = {(name, factor) for place in places for name, factor in (place or {}).items() if name}
    if len(steps) > 1:
        return None
    along, step = next(iter(steps), ("", 0))
    return _Formulas(op, reads[0], differ[0], along, step, len(reads))
