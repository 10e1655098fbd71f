"""Accesses of a canonical operation, branch by branch, and the proof that they stay in bounds."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TypeAlias

from tensorlang.errors import DefinitionError
from tensorlang.ir.expr import Expr, Load, Select, Unary, binary, to_text
from tensorlang.polyhedral import isl
from tensorlang.polyhedral.affine_text import Namer, conditions_text, dims, index_text
from tensorlang.te.axis import Axis
from tensorlang.te.operation import ComputeOp, Reduce
from tensorlang.te.program import Program

GuardedLoad: TypeAlias = tuple[Load, tuple[Expr, ...]]


def guarded_loads(expr: Expr, conditions: tuple[Expr, ...] = ()) -> Iterator[GuardedLoad]:
    """Yield every load with the conditions under which it runs: a branch not taken reads nothing.

    The loads that an index or a condition needs come after the loads that need it.
    """
    match expr:
        case Select():
            yield from guarded_loads(expr.then, (*conditions, expr.cond))
            yield from guarded_loads(expr.orelse, (*conditions, Unary("not", expr.cond, "bool")))
            yield from guarded_loads(expr.cond, conditions)
        case Reduce():
            inner = conditions if expr.where is None else (*conditions, expr.where)
            for source in expr.sources:
                yield from guarded_loads(source, inner)
            if expr.where is not None:
                yield from guarded_loads(expr.where, conditions)
        case _:
            if isinstance(expr, Load):
                yield expr, conditions
            for child in expr.children():
                yield from guarded_loads(child, conditions)


def axis_range(axis: Axis) -> tuple[Expr, Expr]:
    """The two conditions that keep an axis in its range."""
    return binary("ge", axis, axis.lower), binary("lt", axis, axis.lower + axis.extent)


def unproven(op: ComputeOp, sizes: frozenset[str], values: Sequence[Expr] | None = None) -> tuple[GuardedLoad, ...]:
    """The loads whose bounds isl cannot see (an index or a guard reads memory), with their guards.

    They are those of `values`: the operation's body (None), or what its reduction starts from. The kernel checks
    them, last first.
    """
    names = dims([a.name for a in (*op.axes, *op.reduce_axes)])
    return tuple(
        pair for pair in _distinct(op.body if values is None else values) if not _visible(*pair, names, Namer(sizes))
    )


def _distinct(values: Sequence[Expr]) -> tuple[GuardedLoad, ...]:
    """The loads of some values with their conditions, each pair where it comes up last."""
    found: dict[tuple[str, ...], GuardedLoad] = {}
    for value in values:
        for load, conditions in guarded_loads(value):
            key = (to_text(load), *map(to_text, conditions))
            found.pop(key, None)
            found[key] = load, conditions
    return tuple(found.values())


def _visible(load: Load, conditions: tuple[Expr, ...], names: dict[str, str], namer: Namer) -> bool:
    _, exact = conditions_text(conditions, names, namer)
    return exact and all(index_text(i, names, namer) is not None for i in load.index)


def check_bounds(program: Program) -> None:
    """Prove that every affine read stays inside its array; DefinitionError with the first read that does not."""
    sizes = frozenset(v.name for v in program.sizes)
    for op in program.ops:
        if isinstance(op, ComputeOp):
            for load, conditions in _distinct(op.body):
                _check_load(op, (*op.axes, *op.reduce_axes), load, conditions, sizes)
            for load, conditions in _distinct(() if op.reduction is None else op.reduction.start()):
                _check_load(op, op.axes, load, conditions, sizes)


def _check_load(
    op: ComputeOp, axes: tuple[Axis, ...], load: Load, conditions: tuple[Expr, ...], sizes: frozenset[str]
) -> None:
    namer = Namer(sizes)
    names = dims([a.name for a in axes])
    if not _visible(load, conditions, names, Namer(sizes)):
        return
    domain = [c for a in axes for c in axis_range(a)] + list(op.where) + list(conditions)
    inside, _ = conditions_text(domain, names, namer)
    for index, size in zip(load.index, load.buffer.shape, strict=True):
        text, limit = index_text(index, names, namer), index_text(size, {}, namer)
        outside = f"({text} < 0 or {text} >= {limit})"
        context = namer.context()
        where = " and ".join(t for t in (inside, outside, context) if t)
        bad = isl.make_set(f"{namer.prefix()}{{ [{', '.join(names.values())}] : {where} }}")
        if not bad.is_empty():
            raise DefinitionError(_out_of_bounds(op, load, axes, bad, namer), op.location)


def _out_of_bounds(op: ComputeOp, load: Load, axes: tuple[Axis, ...], bad: isl.Set, namer: Namer) -> str:
    count = bad.dim(isl.DIM.param)
    point = bad.move_dims(isl.DIM.set, 0, isl.DIM.param, 0, count).lexmin().sample_point()
    values = [isl.number(point.get_coordinate_val(isl.DIM.set, k)) for k in range(count + len(axes))]
    sizes = ", ".join(f"{to_text(e)}={v}" for e, v in zip(namer.parameters.values(), values, strict=False))
    at = ", ".join(f"{a.name}={v}" for a, v in zip(axes, values[count:], strict=True))
    shape = ", ".join(map(to_text, load.buffer.shape))
    return (
        f"{op.name} reads {to_text(load)} outside {load.buffer.name} of shape ({shape}), "
        f"for instance at {at or 'its only point'}{f' with {sizes}' if sizes else ''}; "
        "guard the read with te.if_then_else, or change the extents"
    )
