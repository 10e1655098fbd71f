"""The largest of floats that bytes mean is what the largest byte means: pools of quantized networks read bytes."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from tensorlang import te
from tensorlang.ir.expr import Buffer, Const, Expr, Load, Var, cast, rewrite, variables, walk
from tensorlang.te.axis import extent_of
from tensorlang.te.operation import ComputeOp, Operation, Reduce, at_own_place, loads
from tensorlang.te.program import Program, canonical, unique
from tensorlang.te.reducer import builtin
from tensorlang.te.reference import evaluate

_BYTES = {"uint8": (0, 255), "int8": (-128, 127)}


def with_largest_bytes(program: Program) -> Program:
    """The program in which the largest is taken of bytes, and made a float behind that, where floats are made of bytes
    by a function that never falls.
    """
    changed: dict[str, tuple[Operation, ...]] = {}
    for op in program.ops:
        meant = _floats_of_bytes(program, op)
        if meant is not None and isinstance(op, ComputeOp):
            changed |= {meant.name: (), op.name: _behind(program, op, meant)}
    return replace(program, ops=tuple(new for op in program.ops for new in changed.get(op.name, (op,))))


def _floats_of_bytes(program: Program, op: Operation) -> ComputeOp | None:
    """The stage whose floats a stage takes the largest of, if it makes them of bytes, and for this alone."""
    match op:
        case ComputeOp(where=(), body=(Reduce(sources=(Load(buffer=buffer),), init=()) as most,)):
            floats = program.by_name.get(buffer.name)
        case _:
            return None
    if most.reducer != builtin("max", most.dtype) or not isinstance(floats, ComputeOp):
        return None
    read = loads(floats)
    plain = not (floats.reduce_axes or floats.where or floats.tag) and len(floats.body) == len(read) == 1
    own = plain and at_own_place(floats, read[0])
    alone = program.consumers[floats.name] == (op.name,) and floats.name not in program.outputs
    if not own or not alone or read[0].dtype not in _BYTES or not _never_falls(floats, read[0]):
        return None
    return floats if _has_some(op, most) else None


def _behind(program: Program, op: ComputeOp, floats: ComputeOp) -> tuple[ComputeOp, ComputeOp]:
    """The largest byte, and the float that it means."""
    (most,), (read,) = op.body, loads(floats)
    assert isinstance(most, Reduce) and isinstance(most.sources[0], Load)
    byte = Load(read.buffer, most.sources[0].index)
    name = unique(f"{op.name}_of_bytes", set(program.by_name))
    largest = replace(most, reducer=builtin("max", byte.dtype), sources=(byte,), dtype=byte.dtype)
    found = Load(Buffer(name, op.shape, byte.dtype), tuple(Var(axis.name) for axis in op.axes))
    first = replace(op, name=name, body=(largest,))
    return first, replace(op, reduce_axes=(), body=(rewrite(floats.body[0], lambda e: found if e is read else None),))


def _never_falls(floats: ComputeOp, read: Load) -> bool:
    """Whether a larger byte means no smaller float: asked of all of them."""
    low, high = _BYTES[read.dtype]
    codes = te.placeholder((high - low + 1,), read.dtype, "codes")

    def meant(code: Expr) -> Expr:
        return rewrite(floats.body[0], lambda e: codes[code] if e is read else None)

    if variables(meant(Const(0, "int32"))):
        return False
    made = te.compute(codes.shape, meant, name="meant")
    (values,) = evaluate(canonical([made])[0], [np.arange(low, high + 1).astype(read.dtype)]).values()
    return bool((np.diff(values) >= 0).all())


def _has_some(op: ComputeOp, most: Reduce) -> bool:
    """Whether a number is taken everywhere: of none the largest float is less than any that a byte means."""
    if not all((extent_of(axis.extent) or 0) > 0 for axis in most.axes):
        return False
    if most.where is None:
        return True
    if any(isinstance(node, Load) for node in walk(most.where)):
        return False
    moved = [axis for axis in op.axes if axis.name in variables(most.where)]
    if not all(isinstance(axis.extent, Const) for axis in (*moved, *most.axes)):
        return False
    counted: Expr = replace(most, reducer=builtin("sum", "int32"), sources=(cast(most.where, "int32"),), dtype="int32")
    count = ComputeOp("count", tuple(moved), most.axes, (counted,), (), "", {})
    (counts,) = evaluate(Program((count,), ("count",)), []).values()
    return bool((counts > 0).all())
