"""The NumPy reference: what a program means, and how far a kernel may round away from it.

Values follow each dtype exactly (integers wrap, floats of 16 and 8 bits round at every operation), with one exception:
sums and products of floats are accumulated in float64 and rounded once. So the reference is more accurate than any
schedule, and `tolerance` says how much less accurate a kernel may be.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from typing import Any

import numpy as np
import numpy.typing as npt

from tensorlang import dtypes
from tensorlang.errors import ArgumentError
from tensorlang.ir.expr import Buffer, Var
from tensorlang.te.numpy_eval import Grid, both, extent, value
from tensorlang.te.operation import ComputeOp, ExternOp, HybridOp, PlaceholderOp, Reduce, buffers
from tensorlang.te.ordered_eval import run_hybrid
from tensorlang.te.program import Program
from tensorlang.te.reduce_eval import Accumulator
from tensorlang.te.tolerance import tolerance as tolerance

Array = npt.NDArray[Any]
Block = list[tuple[int, int]]  # (first index, count) of every axis
_BLOCK = 1 << 20  # grid points evaluated at once: bounds memory, and keeps a block in the caches


def evaluate(
    program: Program,
    inputs: Sequence[Array] | Mapping[str, Array],
    sizes: Mapping[str, int] | None = None,
) -> dict[str, Array]:
    """Run a canonical program and return its output arrays by buffer name.

    `inputs` are the arrays of the placeholders, in program order or by name; sizes are bound from their shapes, or
    given. Raises ArgumentError for inputs that do not fit, KernelError for an out-of-range data-dependent read.
    """
    arrays, known = bind(program, inputs, sizes)
    with np.errstate(all="ignore"):
        for op in program.ops:
            match op:
                case ExternOp():
                    made = [np.zeros(_shape(b, known), dtypes.info(b.dtype).numpy) for b in buffers(op)]
                    op.function(*(arrays[b.name] for b in op.inputs), *made)
                    arrays.update(zip((b.name for b in buffers(op)), made))
                case HybridOp():
                    arrays.update(run_hybrid(op, arrays, known))
                case ComputeOp():
                    arrays.update(_compute(op, arrays, known))
    return {b.name: arrays[b.name] for name in program.outputs for b in buffers(program[name])}


def bind(
    program: Program,
    inputs: Sequence[Array] | Mapping[str, Array],
    sizes: Mapping[str, int] | None = None,
) -> tuple[dict[str, Array], dict[str, int]]:
    """Return the input arrays by name and every size's value, after checking that they fit the program."""
    wanted = [buffers(op)[0] for op in program.ops if isinstance(op, PlaceholderOp)]
    named = inputs if isinstance(inputs, Mapping) else dict(zip((b.name for b in wanted), inputs))
    missing = [b.name for b in wanted if b.name not in named]
    if missing or len(inputs) != len(wanted):
        raise ArgumentError(f"the program takes {', '.join(map(str, wanted)) or 'no inputs'}; got {len(inputs)} arrays")
    known = {name: int(size) for name, size in (sizes or {}).items()}
    for buffer in wanted:
        array = named[buffer.name]
        if array.dtype != dtypes.info(buffer.dtype).numpy or array.ndim != len(buffer.shape):
            raise ArgumentError(f"{buffer} got an array of {array.dtype.name}{list(array.shape)}")
        for dim, size in zip(buffer.shape, array.shape):
            if isinstance(dim, Var):
                known.setdefault(dim.name, size)
    unbound = [v.name for v in program.sizes if v.name not in known]
    if unbound:
        raise ArgumentError(f"no input shape gives {', '.join(unbound)}; pass sizes={{{unbound[0]!r}: ...}}")
    for buffer in wanted:
        shape = _shape(buffer, known)
        if named[buffer.name].shape != shape:
            raise ArgumentError(f"{buffer} has shape {shape} here, got {named[buffer.name].shape}")
    return {b.name: named[b.name] for b in wanted}, known


def _shape(buffer: Buffer, sizes: Mapping[str, int]) -> tuple[int, ...]:
    shape = tuple(extent(e, sizes) for e in buffer.shape)
    if any(n < 0 for n in shape):
        raise ArgumentError(f"{buffer} has a negative extent: {shape}")
    return shape


def _compute(op: ComputeOp, arrays: Mapping[str, Array], sizes: Mapping[str, int]) -> dict[str, Array]:
    """Evaluate every output of a compute operation, block by block."""
    space = [(0, max(0, extent(a.extent, sizes))) for a in op.axes]
    reduced = [(extent(a.lower, sizes), max(0, extent(a.extent, sizes))) for a in op.reduce_axes]
    names = [a.name for a in (*op.axes, *op.reduce_axes)]
    made = {b.name: np.zeros([n for _, n in space], dtypes.info(b.dtype).numpy) for b in buffers(op)}
    held = {name: np.asarray(size, np.int64) for name, size in sizes.items()}
    inner = math.prod(min(n, _BLOCK) for _, n in reduced)
    for block in blocks(space, max(1, _BLOCK // max(1, inner))):
        here = block + [(0, 1)] * len(reduced)
        grid = Grid(held | _indices(names, here), arrays)
        mask: Array | None = None
        for condition in op.where:
            mask = both(mask, value(condition, grid))
        if op.reduction is None:
            values = tuple(_fill(value(part, grid, mask), here) for part in op.body)
        else:
            values = _reduce(op.reduction, names, block, reduced, Grid(held, arrays), mask)
        place = tuple(slice(low, low + n) for low, n in block)
        for array, result in zip(made.values(), values):
            shaped = result.reshape([n for _, n in block])
            defined = None if mask is None else _fill(mask, here).reshape(shaped.shape)
            array[place] = shaped if defined is None else np.where(defined, shaped, array.dtype.type(0))
    return made


def _reduce(
    reduction: Reduce, names: list[str], block: Block, reduced: Block, outside: Grid, mask: Array | None
) -> tuple[Array, ...]:
    """The values of a reduction at every point of a spatial block."""
    here = block + [(0, 1)] * len(reduced)
    shape = [n for _, n in block]
    grid = Grid({**outside.variables, **_indices(names, here)}, outside.arrays)
    start = tuple(_fill(value(s, grid, mask), here).reshape(shape) for s in reduction.start())
    total = Accumulator(reduction, start)
    for part in blocks(reduced, max(1, _BLOCK // max(1, math.prod(shape)))):
        inside = block + part
        grid = Grid({**outside.variables, **_indices(names, inside)}, outside.arrays)
        keep = None if reduction.where is None else value(reduction.where, grid, mask)
        sources = (_fill(value(s, grid, both(mask, keep)), inside) for s in reduction.sources)
        flat = tuple(s.reshape([*shape, -1]) for s in sources)
        total.add(flat, None if keep is None else _fill(keep, inside).reshape([*shape, -1]))
    return total.result()


def _indices(names: list[str], block: Block) -> dict[str, Array]:
    """One index array per axis, each along its own dimension."""
    rank = len(block)
    return {
        name: np.arange(low, low + n, dtype=np.int64).reshape([-1 if d == axis else 1 for d in range(rank)])
        for axis, (name, (low, n)) in enumerate(zip(names, block))
    }


def _fill(array: Array, block: Block) -> Array:
    return np.broadcast_to(array, [n for _, n in block])


def blocks(box: Block, limit: int) -> Iterator[Block]:
    """Cut a box into blocks of at most `limit` points, in lexicographic order: whole inner axes, then slices."""
    steps, room = [], limit
    for _, count in reversed(box):
        step = max(1, min(count, room))
        steps.append(step)
        room = room // step if step == count else 1
    steps.reverse()
    cuts = [range(low, low + count, step) for (low, count), step in zip(box, steps)]
    for corner in product(*cuts):
        yield [(at, min(step, low + count - at)) for at, step, (low, count) in zip(corner, steps, box)]
