"""A program whose arrays are held in fewer bits: who makes them, who moves them, and who reads what they mean."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field, replace
from typing import Protocol

from tensorlang import te
from tensorlang.dataclass import dataclass
from tensorlang.errors import InternalError
from tensorlang.ir.expr import Buffer, Const, Expr, Load, Select, as_expr, rewrite, select
from tensorlang.ir.simplify import simplify
from tensorlang.networks.network import Array
from tensorlang.networks.quantizing.plan import Plan
from tensorlang.networks.quantizing.products import Product
from tensorlang.te.axis import Axis, extent_of
from tensorlang.te.operation import ComputeOp, Operation, PlaceholderOp, Reduce, buffers
from tensorlang.te.program import Program, read_buffers, unique
from tensorlang.te.reducer import builtin


class Format(Protocol):
    """Numbers that stand for floats: their dtype, and what becomes of floats, and of products of them.

    `array` is that whose numbers they are, as formats may differ from one to another.
    """

    @property
    def dtype(self) -> str:
        """The dtype of the numbers."""

    def rounded(self, value: Expr, array: str) -> Expr:
        """The number that stands for a float."""

    def meant(self, number: Load, array: str) -> Expr:
        """The float that a number stands for."""

    def constant(self, value: float, array: str) -> Expr:
        """The number that stands for a known float."""

    def add_product(self, writer: Writer, product: Product) -> None:
        """Add the stages of a product of numbers, the last under the name that the product had."""


def written(
    program: Program, weights: Mapping[str, Array], plan: Plan, form: Format
) -> tuple[Program, dict[str, Array]]:
    """The program whose arrays are held as planned, in a format, and its weights.

    Stages have the names that they had, but for those that move numbers.
    """
    writer = Writer(program, plan, form, dict(weights), {op.name for op in program.ops})
    for op in program.ops:
        writer.write(op)
    ops = [*writer.given, *writer.ops]
    read = {name for op in ops for name in read_buffers(op)}
    left = {name: array for name, array in writer.weights.items() if name in read}
    kept = tuple(op for op in ops if op.name in left or op.name not in writer.weights)
    return replace(program, ops=kept), left


@dataclass(slots=True)
class Writer:
    """The operations of the new program so far; `held` are the arrays of numbers that stand for those of floats."""

    program: Program
    plan: Plan
    form: Format
    weights: dict[str, Array]
    taken: set[str]
    given: list[Operation] = field(default_factory=list)
    ops: list[Operation] = field(default_factory=list)
    held: dict[str, Buffer] = field(default_factory=dict)

    def write(self, op: Operation) -> None:
        """Add what an operation becomes, and the numbers of its array where these are held."""
        if op.name in self.plan.moves:
            assert isinstance(op, ComputeOp)
            self.held[op.name] = self.add(self._moving(op))
            return
        if op.name in self.plan.products:
            self.form.add_product(self, self.plan.products[op.name])
        else:
            self.ops.append(self.reading(op))
        if op.name in self.plan.held:
            self.held[op.name] = self.add(self._rounded(op))

    def add(self, op: Operation) -> Buffer:
        """Add an operation; its array."""
        self.ops.append(op)
        return buffers(op)[0]

    def name(self, wish: str) -> str:
        """A name that is free."""
        name = unique(wish, self.taken)
        self.taken.add(name)
        return name

    def weight(self, wish: str, array: Array) -> Buffer:
        """Add an array that is known; its buffer."""
        name = self.name(wish)
        self.weights[name] = array
        self.given.append(PlaceholderOp(name, tuple(as_expr(n) for n in array.shape), str(array.dtype)))
        return buffers(self.given[-1])[0]

    def reading(self, op: Operation) -> Operation:
        """An operation that reads what numbers stand for, unless floats are an input, or made in its own kernel."""
        if not isinstance(op, ComputeOp):
            return op

        def rule(node: Expr) -> Expr | None:
            if not isinstance(node, Load) or node.buffer.name not in self.held:
                return None
            name, plan = node.buffer.name, self.plan
            beside = op.name in plan.floats or plan.home.get(name) in (None, plan.home[op.name])
            if beside and name not in plan.moves:
                return None
            return self.form.meant(Load(self.held[name], node.index), name)

        return replace(op, body=tuple(rewrite(b, rule) for b in op.body))

    def _rounded(self, op: Operation) -> ComputeOp:
        """The numbers of an array of floats."""
        made = buffers(op)[0]
        axes = op.axes if isinstance(op, ComputeOp) else axes_of(made.shape)
        body = self.form.rounded(Load(made, tuple(a.var for a in axes)), op.name)
        return ComputeOp(self.name(f"{op.name}_{self.form.dtype}"), axes, (), (body,))

    def _moving(self, op: ComputeOp) -> ComputeOp:
        """A stage that chooses among numbers in place of floats."""
        dtype = self.form.dtype

        def chosen(expr: Expr) -> Expr:
            match expr:
                case Load():
                    return Load(self.held[expr.buffer.name], expr.index)
                case Const():
                    return self.form.constant(float(expr.value), op.name)
                case Select():
                    return select(expr.cond, chosen(expr.then), chosen(expr.orelse))
            raise InternalError(f"{op.name} does not only move elements: {expr}")

        match op.body[0]:
            case Reduce() as total:
                source = (chosen(total.sources[0]),)
                body: Expr = replace(total, reducer=builtin("max", dtype), sources=source, dtype=dtype)
            case expr:
                body = chosen(expr)
        return replace(op, name=self.name(f"{op.name}_{dtype}"), body=(body,))


def axes_of(shape: tuple[Expr, ...]) -> tuple[Axis, ...]:
    """Axes over an array."""
    return tuple(Axis(f"i{d}", extent) for d, extent in enumerate(shape))


def framed(writer: Writer, product: Product, zero: Expr) -> Load:
    """The number that a term of a product reads, where there are as many zeros around the data as it reaches."""
    data = writer.held[product.data.buffer.name]
    if not any(before or after for before, after in product.frame):
        return Load(data, product.data.index)
    extents = [extent_of(n) or 0 for n in data.shape]
    sizes = [n + before + after for n, (before, after) in zip(extents, product.frame, strict=True)]
    axes = axes_of(tuple(as_expr(n) for n in sizes))
    places, tests = list[Expr](), list[Expr]()
    for axis, extent, (before, after) in zip(axes, extents, product.frame, strict=True):
        places.append(axis.var - before if before else axis.var)
        tests += [axis.var >= before] if before else []
        tests += [axis.var < before + extent] if after else []
    body = select(te.all(*tests), Load(data, tuple(places)), zero)
    made = writer.add(ComputeOp(writer.name(f"{product.op.name}_framed"), axes, (), (body,)))
    moved = zip(product.data.index, product.frame, strict=True)
    return Load(made, tuple(simplify(i + before, product.bounds) if before else i for i, (before, _) in moved))
