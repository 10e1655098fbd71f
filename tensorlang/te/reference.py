"""The NumPy reference: what a program means, and how far a kernel may round away from it.

Values follow each dtype exactly (integers wrap, float16 and bfloat16 round at every operation), with one exception:
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
from tensorlang.ir.expr import Buffer, Const, Expr, Var, to_text, walk
from tensorlang.te.operation import ComputeOp, ExternOp, PlaceholderOp, Reduce, buffers
from tensorlang.te.program import Program
from tensorlang.te.numpy_eval import Grid, both, value
from tensorlang.te.reduce_eval import Accumulator
from tensorlang.te.tolerance import tolerance as tolerance

Array = npt.NDArray[Any]
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
        for extent, size in zip(buffer.shape, array.shape):
            if isinstance(extent, Var):
                known.setdefault(extent.name, size)
    unbound = [v.name for v in program.sizes if v.name not in known]
    if unbound:
        raise ArgumentError(f"no input shape gives {', '.join(unbound)}; pass sizes={{{unbound[0]!r}: ...}}")
    for buffer in wanted:
        shape = _shape(buffer, known)
        if named[buffer.name].shape != shape:
            raise ArgumentError(f"{buffer} has shape {shape} here, got {named[buffer.name].shape}")
    return {b.name: named[b.name] for b in wanted}, known


def extent(expr: Expr, sizes: Mapping[str, int]) -> int:
    """Return the value of a size expression."""
    variables = {name: np.asarray(size, np.int64) for name, size in sizes.items()}
    return int(value(expr, Grid(variables, {})))


def _shape(buffer: Buffer, sizes: Mapping[str, int]) -> tuple[int, ...]:
    shape = tuple(extent(e, sizes) for e in buffer.shape)
    if any(n < 0 for n in shape):
        raise ArgumentError(f"{buffer} has a negative extent: {shape}")
    return shape
