"""A program whose products are made of 8-bit integers, as quantized models of ONNX have them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from tensorlang import te
from tensorlang.ir.expr import Buffer, Const, Expr, Load, Select, as_expr, cast, rewrite, select
from tensorlang.ir.simplify import simplify
from tensorlang.networks.elements import saturated
from tensorlang.networks.network import Array
from tensorlang.networks.quantizing.plan import Plan
from tensorlang.networks.quantizing.products import Product
from tensorlang.networks.quantizing.ranges import Levels
from tensorlang.te.axis import Axis, extent_of
from tensorlang.te.operation import ComputeOp, Operation, PlaceholderOp, Reduce, buffers
from tensorlang.te.program import Program, read_buffers, unique
from tensorlang.te.reducer import builtin

_LARGEST = 127
"""Weights are from minus this number to it."""


def with_integers(
    program: Program, weights: Mapping[str, Array], plan: Plan, levels: Mapping[str, Levels]
) -> tuple[Program, dict[str, Array]]:
    """The program whose arrays are as planned, with `levels` for each class of them, and its weights.

    Stages have the names that they had, but for those that move integers.
    """
    writer = _Writer(program, plan, levels, dict(weights), {op.name for op in program.ops})
    for op in program.ops:
        writer.write(op)
    read = {name for op in writer.ops for name in read_buffers(op)}
    left = {name: array for name, array in writer.weights.items() if name in read}
    ops = tuple(op for op in writer.ops if op.name in left or op.name not in writer.weights)
    return replace(program, ops=ops), left


@dataclass(slots=True)
class _Writer:
    """The operations of the new program so far; `held` are the arrays of integers that stand for those of floats."""

    program: Program
    plan: Plan
    levels: Mapping[str, Levels]
    weights: dict[str, Array]
    taken: set[str]
    ops: list[Operation] = field(default_factory=list)
    held: dict[str, Buffer] = field(default_factory=dict)

    def write(self, op: Operation) -> None:
        """Add what an operation becomes, and the integers of its array where these are held."""
        if op.name in self.plan.moves:
            assert isinstance(op, ComputeOp)
            self.held[op.name] = self._add(self._moving(op))
            return
        if op.name in self.plan.products:
            self._add_product(self.plan.products[op.name])
        else:
            self.ops.append(self._reading(op))
        if op.name in self.plan.held:
            self.held[op.name] = self._add(self._rounded(op))

    def _add(self, op: Operation) -> Buffer:
        self.ops.append(op)
        return buffers(op)[0]

    def _name(self, wish: str) -> str:
        name = unique(wish, self.taken)
        self.taken.add(name)
        return name

    def _weight(self, wish: str, array: Array) -> Buffer:
        name = self._name(wish)
        self.weights[name] = array
        place = next((n for n, op in enumerate(self.ops) if not isinstance(op, PlaceholderOp)), len(self.ops))
        shape = tuple(as_expr(n) for n in array.shape)
        self.ops.insert(place, PlaceholderOp(name, shape, str(array.dtype)))
        return Buffer(name, shape, str(array.dtype))

    def _levels(self, array: str) -> Levels:
        return self.levels[self.plan.held[array]]

    def _rounded(self, op: Operation) -> ComputeOp:
        """The integers of an array of floats."""
        made, levels = buffers(op)[0], self._levels(op.name)
        axes = op.axes if isinstance(op, ComputeOp) else _axes(made.shape)
        element = Load(made, tuple(a.var for a in axes)) * te.const(1 / levels.scale, "float32")
        body = saturated(element, te.const(levels.zero, "uint8"), "uint8")
        return ComputeOp(self._name(f"{op.name}_bytes"), tuple(replace(a) for a in axes), (), (body,))

    def _moving(self, op: ComputeOp) -> ComputeOp:
        """A stage that chooses among integers in place of floats."""
        levels = self._levels(op.name)

        def chosen(expr: Expr) -> Expr:
            match expr:
                case Load():
                    return Load(self.held[expr.buffer.name], expr.index)
                case Const():
                    return te.const(levels.of(float(expr.value)), "uint8")
                case Select():
                    return select(expr.cond, chosen(expr.then), chosen(expr.orelse))
            raise AssertionError(expr)

        match op.body[0]:
            case Reduce() as total:
                source = (chosen(total.sources[0]),)
                body: Expr = replace(total, reducer=builtin("max", "uint8"), sources=source, dtype="uint8")
            case expr:
                body = chosen(expr)
        return replace(op, name=self._name(f"{op.name}_bytes"), body=(body,))

    def _reading(self, op: Operation) -> Operation:
        """An operation that reads what integers stand for, unless floats are an input, or made in its own kernel."""
        if not isinstance(op, ComputeOp):
            return op

        def rule(node: Expr) -> Expr | None:
            if not isinstance(node, Load) or node.buffer.name not in self.held:
                return None
            name, plan = node.buffer.name, self.plan
            beside = op.name in plan.floats or plan.home.get(name) in (None, plan.home[op.name])
            if beside and name not in plan.moves:
                return None
            return _meant(Load(self.held[name], node.index), self._levels(name))

        return replace(op, body=tuple(rewrite(b, rule) for b in op.body))

    def _add_product(self, product: Product) -> None:
        """A sum of integers, less what the zero of the data adds to it, and what it stands for."""
        op, levels = product.op, self._levels(product.data.buffer.name)
        weight, scale = integers_of(self.weights[product.weight.buffer.name], product.columns)
        data = self._framed(product, self.held[product.data.buffer.name], levels.zero)
        factor = Load(self._weight(f"{op.name}_weight", weight), product.weight.index)
        term = cast(data, "int32") * cast(factor, "int32")
        (old,) = op.body
        assert isinstance(old, Reduce)
        total = Reduce(builtin("sum", "int32"), (term,), old.axes, None, 0, "int32")
        sums = self._add(replace(op, name=self._name(f"{op.name}_integers"), body=(total,)))
        place = tuple(a.var for a in op.axes)
        column = tuple(product.weight.index[d] for d in product.columns)
        found: Expr = Load(sums, place)
        extra = levels.zero * _summed(weight, product.columns)
        if extra.any():
            found = found - Load(self._weight(f"{op.name}_extra", extra), column)
            less = ComputeOp(self._name(f"{op.name}_less"), op.axes, (), (found,))
            found = Load(self._add(less), place)
        scales = self._weight(f"{op.name}_scale", np.asarray(scale * np.float32(levels.scale), np.float32))
        self.ops.append(ComputeOp(op.name, op.axes, (), (cast(found, "float32") * Load(scales, column),)))

    def _framed(self, product: Product, data: Buffer, zero: int) -> Load:
        """The element of the data that a term reads, with as many zeros around them as the sum reaches."""
        if not any(before or after for before, after in product.frame):
            return Load(data, product.data.index)
        extents = [extent_of(n) or 0 for n in data.shape]
        sizes = [n + sum(pair) for n, pair in zip(extents, product.frame, strict=True)]
        axes = _axes(tuple(as_expr(n) for n in sizes))
        places, tests = list[Expr](), list[Expr]()
        for axis, extent, (before, after) in zip(axes, extents, product.frame, strict=True):
            places.append(axis.var - before if before else axis.var)
            tests += [axis.var >= before] if before else []
            tests += [axis.var < before + extent] if after else []
        body = select(te.all(*tests), Load(data, tuple(places)), te.const(zero, "uint8"))
        framed = self._add(ComputeOp(self._name(f"{product.op.name}_framed"), axes, (), (body,)))
        moved = zip(product.data.index, product.frame, strict=True)
        return Load(framed, tuple(simplify(i + before, product.bounds) if before else i for i, (before, _) in moved))


def _axes(shape: tuple[Expr, ...]) -> tuple[Axis, ...]:
    return tuple(Axis(f"i{d}", extent) for d, extent in enumerate(shape))


def _meant(number: Load, levels: Levels) -> Expr:
    """What an integer stands for."""
    whole = cast(number, "int32")
    whole = whole - levels.zero if levels.zero else whole
    return cast(whole, "float32") * te.const(levels.scale, "float32")


def integers_of(weight: Array, columns: tuple[int, ...]) -> tuple[Array, Array]:
    """Weights as int8, and the scale of each column: the largest is 127 times that."""
    others = tuple(d for d in range(weight.ndim) if d not in columns)
    largest = np.abs(weight).max(others, keepdims=True)
    scale = np.where(largest > 0, largest / np.float32(_LARGEST), np.float32(1))
    return np.rint(weight / scale).astype(np.int8), scale.reshape([weight.shape[d] for d in columns])


def _summed(weight: Array, columns: tuple[int, ...]) -> Array:
    """The sum of the weights of each column."""
    others = tuple(d for d in range(weight.ndim) if d not in columns)
    return np.asarray(weight.sum(others, dtype=np.int32), np.int32)
