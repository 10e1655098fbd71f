"""An intrinsic that fits: what a tile of a schedule computes, declared for itself and written as plain loops."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tensorlang.ir.affine import Affine
from tensorlang.ir.expr import Const, Expr, Load, Var, rewrite, substitute, variables
from tensorlang.ir.linear import linear
from tensorlang.ir.stmt import Stmt
from tensorlang.schedule import Schedule
from tensorlang.schedule.derive import derive
from tensorlang.schedule.tiles.match import Mismatch, Tile
from tensorlang.schedule.tiles.plan import tile_site
from tensorlang.te.axis import Axis, AxisKind
from tensorlang.te.define import placeholder
from tensorlang.te.domain import size_var
from tensorlang.te.intrinsic import TensorIntrin
from tensorlang.te.ir_builder import IRBuilder
from tensorlang.te.operation import ComputeOp, Read, Reduce, Tensor, constant
from tensorlang.te.tensor_intrin import decl_tensor_intrin
from tensorlang.te.tile_buffer import TileBuffer, decl_buffer

Reads = dict[str, tuple[Tensor, tuple[Expr, ...]]]


def intrinsic_of(schedule: Schedule, stage: str, axis: str, name: str = "tile") -> TensorIntrin | None:
    """Return an intrinsic for the loops at and below an axis of a stage; None where no intrinsic can stand for them.

    All strides are variables, and the statements are loops with one store per output.
    """
    try:
        site = tile_site(schedule.state, derive(schedule.state), stage, axis)
    except Mismatch:
        return None
    op, reads = site.tile.op, Reads()
    for load in (n for body in op.body for n in _loads(body)):
        if not _declare_read(site.tile, load, reads):
            return None
    declared = _declared(site.tile, reads)
    if declared is None:
        return None
    tensors = [*declared.input_tensors, *(declared.output(k) for k in range(declared.num_outputs))]
    return decl_tensor_intrin(declared, lambda ins, outs: _statements(declared, ins, outs), name, _strided(tensors))


def _loads(expr: Expr) -> list[Load]:
    found = [expr] if isinstance(expr, Load) else []
    return found + [load for child in expr.children() for load in _loads(child)]


def _declare_read(tile: Tile, load: Load, reads: Reads) -> bool:
    """Declare the array of one access of the tile; False when its elements are no plain box."""
    axes = {a.var.name: a for a in tile.axes}
    shape, index = [], []
    for part in load.index:
        found = linear(tile.index(part), axes.keys()) if not _loads(part) else None
        if found is None or any(factor < 0 for factor in found[1].values()):
            return False
        factors: Affine = found[1]
        shape.append(1 + sum(f * (axes[n].extent - 1) for n, f in factors.items()))
        position: Expr = constant(0)
        for n, f in factors.items():
            position = position + Var(axes[n].name) * f
        index.append(position)
    source = placeholder(tuple(shape), load.buffer.dtype, name=f"in{len(reads)}")
    reads.setdefault(str(load), (source, tuple(index)))
    return True


def _declared(tile: Tile, reads: Reads) -> ComputeOp | None:
    """The computation of the tile; None when it uses its position, or adds under a condition."""
    axes = [Axis(a.name, constant(a.extent), AxisKind.REDUCE if a.reduce else AxisKind.SPATIAL) for a in tile.axes]
    spatial = tuple(a for a in axes if a.kind is AxisKind.SPATIAL)
    reduced = tuple(a for a in axes if a.kind is AxisKind.REDUCE)

    def rule(node: Expr) -> Expr | None:
        return Read(*reads[str(node)]) if isinstance(node, Load) else None

    body = []
    for part in tile.op.body:
        if any(variables(e) for e in _outside_loads(part)) or (isinstance(part, Reduce) and (part.where or part.init)):
            return None
        made = rewrite(part, rule)
        if isinstance(made, Reduce):
            made = Reduce(made.reducer, made.sources, reduced, None, made.index, made.dtype)
        body.append(made)
    return ComputeOp("out", spatial, reduced, tuple(body))


def _outside_loads(expr: Expr) -> list[Expr]:
    """The expressions without children that do not stand in an index."""
    if isinstance(expr, Load):
        return []
    return [leaf for child in expr.children() for leaf in _outside_loads(child)] if expr.children() else [expr]


def _strided(tensors: Sequence[Tensor]) -> dict[Tensor, TileBuffer]:
    return {
        t: decl_buffer(t.shape, t.dtype, t.name, strides=[size_var(f"s{k}_{d}") for d in range(t.ndim)])
        for k, t in enumerate(tensors)
    }


def _statements(op: ComputeOp, ins: list[TileBuffer], outs: list[TileBuffer]) -> Any:
    """Body, reset and update of a reduction; the body alone of anything else."""
    tiles = dict(zip(op.input_tensors, ins, strict=True))
    reduction = op.reduction
    if reduction is None:
        return _loops(op, op.axes, tiles, outs, op.body)
    results = [reduction.reducer.result[b.index] for b in op.body if isinstance(b, Reduce)]
    reset = _loops(op, op.axes, tiles, outs, reduction.start())
    update = _loops(op, (*op.axes, *op.reduce_axes), tiles, outs, results)
    whole = IRBuilder()
    whole.emit(reset)
    whole.emit(update)
    return whole.get(), reset, update


def _loops(
    op: ComputeOp,
    axes: Sequence[Axis],
    tiles: Mapping[Tensor, TileBuffer],
    outs: Sequence[TileBuffer],
    values: Sequence[Expr],
) -> Stmt:
    ib = IRBuilder()
    env: dict[str, Expr] = {}

    def inner(rest: Sequence[Axis]) -> None:
        if rest:
            extent = rest[0].extent
            assert isinstance(extent, Const)
            with ib.for_range(0, extent, name=rest[0].name) as var:
                env[rest[0].name] = var
                inner(rest[1:])
            return
        arrays = [ib.buffer_ptr(o) for o in outs]
        at = tuple(env[a.name] for a in op.axes)
        if op.reduction is None:
            made = [element(v) for v in values]
        else:  # variables of the reducer may have the names of axes
            reducer = op.reduction.reducer
            known: dict[str, Expr] = {v.name: a[at] for v, a in zip(reducer.lhs, arrays, strict=True)}
            known |= {v.name: element(s) for v, s in zip(reducer.rhs, op.reduction.sources, strict=True)}
            made = [substitute(v, known) for v in values]
        new = [ib.let(f"new{k}", v) for k, v in enumerate(made)]
        for array, value in zip(arrays, new, strict=True):
            array[at] = value

    def element(expr: Expr) -> Expr:
        def rule(node: Expr) -> Expr | None:
            return tiles[node.tensor][node.index] if isinstance(node, Read) else None

        return rewrite(substitute(expr, env), rule)

    inner(list(axes))
    return ib.get()
