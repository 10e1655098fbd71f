"""Products and convolutions of narrow numbers by known weights: these lie ahead as dot instructions take them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from tensorlang import te
from tensorlang.dataclass import dataclass
from tensorlang.ir.affine import Affine, affine
from tensorlang.ir.expr import Binary, Const, Expr, Select, Var, rewrite, walk
from tensorlang.networks.network import Array
from tensorlang.networks.pending import Pending
from tensorlang.schedule.rewrites.narrow_product import SIGN, SUMS, narrow_factors, product_of_panels, terms_of_word
from tensorlang.schedule.rewrites.windows_product import windows_of
from tensorlang.schedules.cpu.matrix_tiles import Sums
from tensorlang.schedules.cpu.narrow_product import operand_dtype, panel_of, sums_of
from tensorlang.target.spec import Target
from tensorlang.te.axis import extent_of
from tensorlang.te.declared import declared, exchanged
from tensorlang.te.operation import ComputeOp, Read, Tensor, loads
from tensorlang.te.program import Program, unique
from tensorlang.topi.narrow_conv2d import conv2d_narrow
from tensorlang.topi.narrow_filters import runs_of

_NARROW = {dtype for pair in SUMS for dtype in pair}


@dataclass(frozen=True, slots=True)
class _Held:
    """New weights of a stage: placeholders with what they hold."""

    taken: set[str]
    arrays: Pending

    def tensor(self, name: str, array: Array) -> Tensor:
        """A placeholder for an array, under a name that is free."""
        free = unique(name, self.taken)
        self.taken.add(free)
        self.arrays[free] = array
        return te.placeholder(array.shape, array.dtype, free)


def narrowed(program: Program, weights: Mapping[str, Array], target: Target) -> tuple[Program, Pending]:
    """The program whose narrow products are those of dot instructions, where a target has them, and its weights."""
    held = _Held({op.name for op in program.ops}, Pending(weights))
    for op in program.ops:
        if isinstance(op, ComputeOp) and op.dtype in SUMS.values() and op.reduce_axes and _reads_narrow(op):
            old = declared(program, op.name)
            assert isinstance(old, ComputeOp)
            made = _product(old, held, target) or _convolution(old, held, target)
            program = program if made is None else exchanged(program, old, made)
    unread = {name for name in held.arrays if not program.consumers.get(name)}
    for name in unread:
        del held.arrays[name]
    return replace(program, ops=tuple(op for op in program.ops if op.name not in unread)), held.arrays


def _reads_narrow(op: ComputeOp) -> bool:
    return any(load.dtype in _NARROW for load in loads(op))


def _product(op: ComputeOp, held: _Held, target: Target) -> ComputeOp | None:
    """A product by a known matrix, which lies in panels of words."""
    factors = narrow_factors(_of_rows(op))
    if factors is None or (known := held.arrays.get(factors.b.op.name)) is None:
        return None
    operand = operand_dtype(factors.a.dtype, factors.b.dtype, target, sums_of(factors, target))
    if operand is None:
        return None
    weight = known if factors.transpose_b else known.T
    panels = _panels(weight[:, None, None, :], panel_of(len(weight), target))[0, :, 0, 0]
    zero = SIGN * (operand != factors.a.dtype)
    packed = held.tensor(f"{op.name}_packed", panels)
    offsets = held.tensor(f"{op.name}_offsets", _totals(panels, zero, (1, 3))) if zero else None
    n, across = factors.extents[1], factors.transpose_a
    made = product_of_panels(factors.a, packed, n, across, operand, zero, offsets, op.name)
    assert isinstance(made.op, ComputeOp)
    return made.op


def _of_rows(op: ComputeOp) -> ComputeOp:
    """A product whose rows lie in an array of more dimensions, read at one place of the others, over these rows."""
    data = next((e for e in walk(op.body[0]) if isinstance(e, Read)), None)
    summed = [axis.name for axis in op.reduce_axes]
    if data is None or len(op.axes) != 2 or len(summed) != 1 or data.tensor.ndim == 2:
        return op
    names = [index.name for index in data.index if isinstance(index, Var)]
    others = [index for index in data.index if not isinstance(index, Var | Const)]
    if others or sorted(names) != sorted([op.axes[0].name, *summed]):
        return op
    shape = [data.tensor.shape[d] for d, index in enumerate(data.index) if isinstance(index, Var)]

    def element(*at: Expr) -> Expr:
        own = dict(zip(names, at, strict=True))
        value: Expr = data.tensor(*(own[i.name] if isinstance(i, Var) else i for i in data.index))
        return value

    rows: Tensor = te.compute(shape, element, name=f"{op.name}_rows")
    read = Read(rows, tuple(Var(name) for name in names))
    return replace(op, body=(rewrite(op.body[0], lambda e: read if e is data else None),))


def _convolution(op: ComputeOp, held: _Held, target: Target) -> ComputeOp | None:
    """A convolution without padding by known weights, in panels of words."""
    window = _window(op)
    known = None if window is None else held.arrays.get(window.weight.tensor.op.name)
    if window is None or known is None:
        return None
    weight = window.filters(known)
    o, high, wide, depth = weight.shape
    runs = runs_of(wide, window.gaps[1], depth, terms_of_word(str(known.dtype)))
    rows, columns = (extent_of(axis.extent) or 1 for axis in op.axes[1:3])
    sums = Sums(rows, columns, (high, runs.columns), runs.words, panel_of(o, target))
    operand = operand_dtype(window.data.dtype, window.weight.tensor.dtype, target, sums)
    if operand is None:
        return None
    panels = _panels(weight.reshape(o, high, runs.columns, runs.run), panel_of(o, target))
    zero = SIGN * (operand != window.data.dtype)
    data, around = _without_border(window.data)
    made = conv2d_narrow(
        data,
        held.tensor(f"{op.name}_packed", panels),
        o,
        (high, wide),
        window.steps,
        around,
        window.gaps,
        "NHWC",
        offsets=held.tensor(f"{op.name}_offsets", _totals(panels, zero, (2, 3, 4, 6))) if zero else None,
        name=op.name,
        target=target,
    )
    assert isinstance(made.op, ComputeOp)
    return made.op if [extent_of(e) for e in made.shape] == [extent_of(e) for e in op.shape] else None


def _without_border(data: Tensor) -> tuple[Tensor, tuple[int, int, int, int]]:
    """Images without a border of zeros, and that: rows above, columns to the left, those below and to the right."""
    match data.op:
        case ComputeOp(
            body=(Select(cond=cond, then=Read(tensor=inner, index=index), orelse=Const(value=0)),), axes=axes
        ):
            moves = [affine(one) or {} for one in index]
            before = [-int(move.get("", 0)) for move in moves]
            sizes = [(extent_of(a) or 0, extent_of(b) or 0) for a, b in zip(data.shape, inner.shape, strict=True)]
            after = [a - b - n for (a, b), n in zip(sizes, before, strict=True)]
            names = [axis.name for axis in axes]
            inside = {("ge", name, n) for name, n in zip(names, before, strict=True) if n}
            inside |= {("lt", name, b + n) for name, (_, b), n, m in zip(names, sizes, before, after, strict=True) if m}
            moved = [{name: c for name, c in move.items() if name} for move in moves]
            if moved == [{name: 1} for name in names] and _tests(cond) == inside and len(axes) == 4:
                around = before[1], before[2], after[1], after[2]
                if min(around) >= 0 == before[0] == before[3] == after[0] == after[3]:
                    return inner, around
    return data, (0, 0, 0, 0)


def _tests(cond: Expr) -> set[tuple[str, str, int]] | None:
    """Comparisons of axes with numbers that hold together; None for any other condition."""
    match cond:
        case Binary(op="and", a=a, b=b):
            one, other = _tests(a), _tests(b)
            return None if one is None or other is None else one | other
        case Binary(op="ge" | "lt" as op, a=Var(name=name), b=Const(value=value)):
            return {(op, name, int(value))}
    return None


def _panels(weight: Array, width: int) -> Array:
    """Weights [o, rows, columns, terms] as [1, o / w, rows, columns, terms / g, w, g], with zeros behind the last."""
    o, rows, columns, terms = weight.shape
    group = terms_of_word(str(weight.dtype))
    whole = np.pad(weight, ((0, -o % width), (0, 0), (0, 0), (0, -terms % group)))
    words = whole.reshape(-1, width, rows, columns, whole.shape[-1] // group, group)
    return np.ascontiguousarray(words.transpose(0, 2, 3, 4, 1, 5)[None])


def _totals(panels: Array, zero: int, axes: tuple[int, ...]) -> Array:
    """What moving data by a number adds to the sums of each column."""
    return np.asarray(zero * panels.sum(axes, dtype=np.int32), np.int32)


@dataclass(frozen=True, slots=True)
class _Window:
    """A window that slides over NHWC `data`: `steps` of results, `gaps` within it, down and to the right."""

    data: Tensor
    weight: Read
    steps: tuple[int, int]
    gaps: tuple[int, int]
    places: tuple[str, str, str, str]

    def filters(self, weight: Array) -> Array:
        """Weights as [o, rows, columns, channels]; a dimension that no axis moves along has one index."""
        names = [index.name if isinstance(index, Var) else "" for index in self.weight.index]
        found = [names.index(place) for place in self.places if place in names]
        rest = [d for d in range(weight.ndim) if d not in found]
        shape = [weight.shape[names.index(place)] if place in names else 1 for place in self.places]
        return weight.transpose(*found, *rest).reshape(shape)


def _window(op: ComputeOp) -> _Window | None:
    """A stage [n, y, x, o] as a convolution without padding; None for any other."""
    if len(op.axes) != 4:
        return None
    (n, y, x, o), terms = (axis.name for axis in op.axes), [axis.name for axis in op.reduce_axes]
    found = windows_of(op, (n, y, x), terms, 1)
    if isinstance(found, str) or found.where is not None or len(found.data.index) != 4:
        return None
    moves = [affine(index) for index in found.data.index]
    at = {name: d for d, move in enumerate(moves) if move is not None for name in move if name in (n, y, x)}
    rest = sorted({0, 1, 2, 3} - set(at.values()))
    if len(at) != 3 or len(rest) != 1 or not isinstance(found.data.index[rest[0]], Var):
        return None
    down, right = (_slide(moves[at[axis]], axis, terms) for axis in (y, x))
    channel = found.data.index[rest[0]]
    if down is None or right is None or not isinstance(channel, Var) or moves[at[n]] != {n: 1}:
        return None
    places = (o, down[2], right[2], channel.name)
    read = {index.name for index in found.weight.index if isinstance(index, Var)}
    others = [i for i in found.weight.index if not isinstance(i, Var | Const)]
    if others or read != {place for place in places if place} or set(terms) != read - {o}:
        return None
    order = [at[n], at[y], at[x], rest[0]]
    data = found.data.tensor
    return _Window(_seen(data, order, op.name), found.weight, (down[0], right[0]), (down[1], right[1]), places)


def _slide(move: Affine | None, axis: str, terms: list[str]) -> tuple[int, int, str] | None:
    """The step of results, the gap of the window, and the axis along it, "" for one of a single row."""
    if move is None or "" in move or move[axis] < 1 or len(move) > 2:
        return None
    (along,) = set(move) - {axis} or {""}
    if along and (along not in terms or move[along] < 1):
        return None
    return move[axis], move.get(along, 1), along


def _seen(data: Tensor, order: list[int], name: str) -> Tensor:
    """Data with their dimensions in another order."""
    if order == sorted(order):
        return data

    def element(*index: Expr) -> Expr:
        at = dict(zip(order, index, strict=True))
        value: Expr = data(*(at[d] for d in range(len(order))))
        return value

    made: Tensor = te.compute([data.shape[d] for d in order], element, name=f"{name}_images")
    return made
