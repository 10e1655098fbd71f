"""Does an intrinsic do what its declaration says? Run its machine code on random tiles and compare."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from tensorlang import dtypes
from tensorlang.ir.expr import Buffer, Const, Expr, Load, Var, substitute
from tensorlang.ir.stmt import INDEX, CallMachine, Kernel, Seq, View
from tensorlang.lowering.tensorize import inlined
from tensorlang.target.backend import backend
from tensorlang.target.detect import parse
from tensorlang.target.spec import Target
from tensorlang.te.intrinsic import TensorIntrin, Variant, is_plain
from tensorlang.te.operation import ComputeOp, PlaceholderOp, buffers
from tensorlang.te.program import Program
from tensorlang.te.reference import evaluate, tolerance
from tensorlang.testing.compare import assert_allclose

Array = npt.NDArray[Any]
_GAP = 3
"""Elements between the rows of a tile whose stride is a variable."""


def check_intrinsic(intrin: TensorIntrin, target: str | Target | None = None, rounds: int = 4, seed: int = 0) -> None:
    """Raise AssertionError unless every variant of an intrinsic does what its declaration says, on random tiles.

    Integers are drawn from the whole range of their dtype, floats from small ones. Rows of a tile with a variable
    stride have gaps between them. Plain loops run on the interpreter too. Raises TargetError when the target cannot
    run it.
    """
    rng = np.random.default_rng(seed)
    variants: tuple[Variant, ...] = ("body", "reset", "update")
    for variant in variants:
        stmt = intrin.variant(variant)
        if stmt is None:
            continue
        targets = [parse(target)] + ([parse("interpreter")] if is_plain(stmt) else [])
        for chosen in targets:
            _check_variant(intrin, variant, chosen, rounds, rng)


def _check_variant(
    intrin: TensorIntrin, variant: Variant, target: Target, rounds: int, rng: np.random.Generator
) -> None:
    names = intrin.names(variant)
    arrays = {name: _parent(intrin, name) for name in names}
    kernel = _kernel(intrin, variant, arrays)
    run = backend(target.kind).compile(kernel, target)
    for _ in range(rounds):
        held = {name: _values(buffer, rng) for name, buffer in arrays.items()}
        before = {name: _tile(intrin, name, array).copy() for name, array in held.items()}
        expected = _expected(intrin, variant, before)
        run(*held.values())
        rtol, atol = tolerance(intrin.program, {})
        for name, wanted in expected.items():
            try:
                assert_allclose(_tile(intrin, name, held[name]), wanted, rtol=rtol, atol=atol)
            except AssertionError as error:
                text = f"{intrin.name}: the {variant} does not do what is declared ({name} on {target.kind}):{error}"
                raise AssertionError(text) from None


def _parent(intrin: TensorIntrin, name: str) -> Buffer:
    """An array that holds a tile, with room between rows where a stride may be anything."""
    tile = intrin.buffers[name]
    gaps = [False, *(isinstance(s, Var) for s in tile.strides[:-1])]
    extents = (n + _GAP if gap else n for n, gap in zip(tile.shape, gaps))
    return Buffer(f"{name}.array", tuple(Const(n, INDEX) for n in extents), tile.dtype)


def _kernel(intrin: TensorIntrin, variant: Variant, arrays: Mapping[str, Buffer]) -> Kernel:
    code = intrin.code(variant)
    views = tuple(_whole(buffer) for buffer in arrays.values())
    body = inlined(code, views) if is_plain(code.body) else CallMachine(code, views, Seq(()))
    outputs = tuple(arrays[b.name].name for b in buffers(intrin.op))
    return Kernel("check", tuple(arrays.values()), (), outputs, body)


def _whole(buffer: Buffer) -> View:
    rank = len(buffer.shape)
    return View(buffer, (Const(0, INDEX),) * rank, tuple(range(rank)), (1,) * rank)


def _tile(intrin: TensorIntrin, name: str, array: Array) -> Array:
    """The tile inside its array."""
    return array[tuple(slice(0, n) for n in intrin.buffers[name].shape)]


def _values(buffer: Buffer, rng: np.random.Generator) -> Array:
    d = dtypes.info(buffer.dtype)
    shape = tuple(int(e.value) for e in buffer.shape if isinstance(e, Const))
    if d.is_float:
        return np.asarray(rng.integers(-8, 9, shape) / 4).astype(d.numpy)
    low, high = dtypes.limits(buffer.dtype)
    return rng.integers(int(low), int(high), shape, dtype=d.numpy if d.is_integer else np.uint8, endpoint=True).astype(
        d.numpy
    )


def _expected(intrin: TensorIntrin, variant: Variant, tiles: Mapping[str, Array]) -> dict[str, Array]:
    """The outputs of a variant, by the reference."""
    outputs = [b.name for b in buffers(intrin.op)]
    start = [_started(intrin, k, tiles[name].shape) for k, name in enumerate(outputs)]
    if variant == "reset":
        return dict(zip(outputs, start, strict=True))
    inputs = {op.name: tiles[op.name] for op in intrin.program.ops if isinstance(op, PlaceholderOp)}
    made = evaluate(intrin.program, inputs)
    return made if variant == "body" else _combined(intrin.op, tiles, made, outputs)


def _started(intrin: TensorIntrin, output: int, shape: Sequence[int]) -> Array:
    reduction = intrin.op.reduction
    start = reduction.start()[output] if reduction is not None else None
    value = start.value if isinstance(start, Const) else 0
    return np.full(shape, value, dtypes.info(intrin.op.dtypes[output]).numpy)


def _combined(
    op: ComputeOp, before: Mapping[str, Array], made: Mapping[str, Array], outputs: Sequence[str]
) -> dict[str, Array]:
    """What was there, combined with a reduction's own result."""
    assert op.reduction is not None
    reducer, index = op.reduction.reducer, tuple(Var(a.name) for a in op.axes)
    shape, inputs = op.shape, dict[str, Array]()
    ops: list[PlaceholderOp] = []
    env: dict[str, Expr] = {}
    for word, variables, values in (("old", reducer.lhs, before), ("new", reducer.rhs, made)):
        for var, name in zip(variables, outputs, strict=True):
            source = PlaceholderOp(f"{name}.{word}", shape, var.dtype)
            ops.append(source)
            inputs[source.name] = values[name]
            env[var.name] = Load(buffers(source)[0], index)
    body = tuple(substitute(e, env) for e in reducer.result)
    total = ComputeOp(op.name, op.axes, (), body)
    return evaluate(Program((*ops, total), (op.name,)), inputs)
