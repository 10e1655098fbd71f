"""Hypothesis strategies for random programs with order in them: hybrid operations of affine loops and statements.

    @given(ordered_programs())
    def test_my_analysis(case):
        ...build case.outputs, call it on case.inputs(sizes), compare...

Loop trees have triangular bounds and conditions; statements update arrays in place, at shifted, reversed and strided
elements; some are reductions, some go through local arrays, some elements depend on data. Everything is int32 or int8,
so that results must be equal in every order of a reduction. Needs the `test` extra (hypothesis).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import field
from functools import cached_property, partial
from typing import Any

import numpy as np
import numpy.typing as npt

from tensorlang import te
from tensorlang.dataclass import dataclass
from tensorlang.errors import MissingDependency
from tensorlang.ir.expr import Buffer, Const, Expr, Load, Var, binary, cast
from tensorlang.ir.stmt import INDEX, Allocate, For, If, LoopKind, Seq, Stmt, Store
from tensorlang.te.numpy_eval import extent
from tensorlang.te.operation import HybridOp, Operation, Read
from tensorlang.te.program import Program, canonical

try:
    from hypothesis import strategies as st
except ImportError as error:
    raise MissingDependency("random programs need hypothesis: pip install 'tensorlang[test]'") from error

Draw = Callable[[Any], Any]
DTYPES = ("int32", "int32", "int8")
EXTENTS = (2, 3, 4)
SIZE = "n"
_DEPTH = 3
_UPDATES = ("add", "add", "sub", "mul", "min", "max")
_VALUES = ("add", "sub", "mul", "min", "max")


@dataclass(frozen=True)
class OrderedCase:
    """A random program around a hybrid operation: its placeholders and its outputs; `sizes` to try it with."""

    placeholders: tuple[te.Tensor, ...]
    outputs: tuple[te.Tensor, ...]
    sizes: tuple[dict[str, int], ...]

    @property
    def operations(self) -> list[Operation]:
        """What to make a schedule of."""
        return list(dict.fromkeys(t.op for t in self.outputs))

    @cached_property
    def program(self) -> Program:
        """The program in canonical form."""
        return canonical(self.operations)[0]

    @property
    def args(self) -> tuple[te.Tensor, ...]:
        """The arguments of a kernel: what the program reads, then outputs that have memory of their own."""
        used = tuple(t for t in self.placeholders if t.name in self.program.by_name)
        return (*used, *(t for t in self.outputs if self.program.storage[self.buffer(t)][1] == 0))

    def buffer(self, tensor: te.Tensor) -> str:
        """The name of a tensor in the canonical program."""
        return tensor.op.name if tensor.op.num_outputs == 1 else f"{tensor.op.name}.v{tensor.value_index}"

    def inputs(self, sizes: dict[str, int]) -> dict[str, npt.NDArray[Any]]:
        """Arrays of whole numbers; those that hold indices stay in range."""
        rng = np.random.default_rng(7)
        made = {}
        for tensor in self.placeholders:
            if tensor.name not in self.program.by_name:
                continue
            shape = [extent(e, sizes) for e in tensor.shape]
            low, high = (0, shape[0]) if tensor.name == "where" else (-3, 4)
            made[tensor.name] = rng.integers(low, high, shape).astype(tensor.dtype)
        return made

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        printer.text(f"OrderedCase(\n{self.program.text})")


@st.composite
def ordered_programs(
    draw: Draw,
    max_statements: int = 4,
    symbolic: bool | None = None,
    data: bool = False,
    dtypes_from: Sequence[str] = DTYPES,
) -> OrderedCase:
    """Draw a program of up to `max_statements` statements in loops of up to four iterations, or of any size.

    `symbolic`: whether the extents are a size; drawn, if not given. `data`: elements may depend on data.
    """
    free = bool(draw(st.booleans())) if symbolic is None else symbolic
    n = te.var(SIZE) if free else te.const(draw(st.sampled_from(EXTENTS)), "int32")
    writing = _Writing(draw, n, draw(st.sampled_from(list(dtypes_from))), max_statements, data)
    sizes = tuple({SIZE: value} for value in range(5)) if free else ({},)
    return writing.case(sizes)


@dataclass
class _Writing:
    """A hybrid operation while it is being drawn.

    Loops stay within 0 <= v < n, and every extent is 2 * n + 3, so that all forms of index are in range.
    """

    draw: Draw
    size: Any
    dtype: str
    left: int
    data: bool
    inputs: list[te.Tensor] = field(default_factory=list)
    written: dict[str, Buffer] = field(default_factory=dict)
    arrays: list[Buffer] = field(default_factory=list)
    fresh: Buffer | None = None
    loops: int = 0
    locals: int = 0

    def pick(self, options: Sequence[Any]) -> Any:
        return self.draw(st.sampled_from(list(options)))

    def below(self, high: int) -> int:
        return int(self.draw(st.integers(0, high - 1)))

    @property
    def n(self) -> Expr:
        return cast(self.size, INDEX)

    def case(self, sizes: tuple[dict[str, int], ...]) -> OrderedCase:
        shapes = [tuple(2 * self.size + 3 for _ in range(1 + (k + self.below(2)) % 2)) for k in range(3)]
        source = te.placeholder(shapes[0], self.dtype, name="X")
        where = te.placeholder((2 * self.size + 3,), "int32", name="where")
        held = [te.placeholder(shape, self.dtype, name=name) for shape, name in zip(shapes[1:], "AB", strict=True)]
        self.inputs = [self.prepared(source), where]
        self.arrays = [Buffer(f"P.v{k}", t.shape, self.dtype) for k, t in enumerate(held)]
        self.fresh = Buffer("P.v2", shapes[0], self.dtype)
        body = self.block((), ())
        made = zip((*self.arrays, self.fresh), (*held, None), strict=True)
        used = [(b, t) for b, t in made if b.name in self.written]
        op = HybridOp("P", tuple(b for b, _ in used), body, tuple(t for _, t in used))
        results = tuple(op.output(k) for k in range(op.num_outputs))
        return OrderedCase((source, where, *held), self.followed(results), sizes)

    def prepared(self, source: te.Tensor) -> te.Tensor:
        """An input of the operation: a placeholder, seldom a stage, or a sum."""
        match self.below(6):
            case 0:
                made: te.Tensor = te.compute(source.shape, lambda *i: source(*i) + 1, name="Y")
            case 1:
                k = te.reduce_axis((0, 3), "k")
                value = partial(self.difference, source, k)
                made = te.compute(source.shape, lambda *i: te.sum(value(*i), axis=k), name="Y")
            case _:
                made = source
        return made

    def difference(self, source: te.Tensor, k: te.Axis, *index: Expr) -> Expr:
        return source(*index[:-1], k) - k.astype(self.dtype)

    def followed(self, results: tuple[te.Tensor, ...]) -> tuple[te.Tensor, ...]:
        """The outputs: those of the operation, seldom what a stage makes of the first one."""
        if self.below(5):
            return results
        first = results[0]
        if not isinstance(first.op, HybridOp) or first.op.updates[first.value_index] is None:
            # what nobody wrote in a new array has no value
            return results
        return (te.compute(tuple(first.shape), lambda *i: first(*i) * 2, name="D"), *results[1:])

    def block(self, loops: tuple[Var, ...], local: tuple[Buffer, ...]) -> Stmt:
        """One to three items in a row, as far as statements are left; at least one."""
        items: list[Stmt] = []
        for _ in range(1 + self.below(3)):
            if self.left > 0 or not items:
                items.append(self.item(loops, local))
        return items[0] if len(items) == 1 else Seq(tuple(items))

    def item(self, loops: tuple[Var, ...], local: tuple[Buffer, ...]) -> Stmt:
        deeper = ["loop"] * (5 if not loops else 3) if len(loops) < _DEPTH else []
        inside = ["if", "local"] if loops else []
        match self.pick(["store", "store", *deeper, *inside]):
            case "loop":
                return self.loop(loops, local)
            case "if" if self.data and self.below(4) == 0:
                return self.flagged(loops, local)
            case "if":
                return If(self.condition(loops), self.block(loops, local))
            case "local":
                return self.local(loops, local)
        return self.store(loops, local)

    def loop(self, loops: tuple[Var, ...], local: tuple[Buffer, ...]) -> Stmt:
        var = Var(f"l{self.loops}", INDEX)
        self.loops += 1
        lowers: list[Expr] = [_number(0), _number(0), _number(1)]
        uppers: list[Expr] = [self.n, self.n, self.n - 1]
        for outer in loops:
            lowers += [outer, outer + 1]
            uppers += [outer, outer + 1, self.n - outer]
        body = self.block((*loops, var), local)
        return For(var, self.pick(lowers), self.pick(uppers), LoopKind.SERIAL, body)

    def local(self, loops: tuple[Var, ...], local: tuple[Buffer, ...]) -> Stmt:
        """A local array of two elements, written, and read by what follows."""
        made = Buffer(f"t{self.locals}", (te.const(2, "int32"),), self.dtype)
        self.locals += 1
        first = [Store(made, (_number(k),), self.value(loops, local)) for k in range(2)]
        self.left -= 2
        return Allocate(made, Seq((*first, self.block(loops, (*local, made)), self.store(loops, (*local, made)))))

    def flagged(self, loops: tuple[Var, ...], local: tuple[Buffer, ...]) -> Stmt:
        """A block under a condition on data, which is kept: the block may write what the condition reads."""
        flag = Buffer(f"t{self.locals}", (te.const(1, "int32"),), self.dtype)
        self.locals += 1
        self.left -= 1
        held = Store(flag, (_number(0),), self.element(loops, local))
        chosen = If(Load(flag, (_number(0),)) > te.const(0, self.dtype), self.block(loops, local))
        return Allocate(flag, Seq((held, chosen)))

    def store(self, loops: tuple[Var, ...], local: tuple[Buffer, ...]) -> Stmt:
        self.left -= 1
        if self.fresh is not None and self.below(8) == 0:
            self.written[self.fresh.name] = self.fresh
            return Store(self.fresh, self.indices(len(self.fresh.shape), loops), self.value(loops, local))
        buffer = self.pick([*self.arrays, *(local if self.below(3) == 0 else ())])
        if buffer in local:
            index: tuple[Expr, ...] = (_number(self.below(2)),)
        else:
            self.written[buffer.name] = buffer
            index = self.indices(len(buffer.shape), loops)
        value = self.value(loops, local)
        if self.below(2) == 0:
            value = binary(self.pick(_UPDATES), Load(buffer, index), value)
        return Store(buffer, index, value)

    def condition(self, loops: tuple[Var, ...]) -> Expr:
        """A comparison of loops."""
        a, b = self.pick(loops), self.pick(loops)
        made: Expr = self.pick((a <= b, a >= 1, a < 2, (a + b) % 2 == 0, te.any(a > b, b == 1), te.all(a > 0, b != 2)))
        return made

    def value(self, loops: tuple[Var, ...], local: tuple[Buffer, ...]) -> Expr:
        """One to three elements, combined."""
        value = self.element(loops, local)
        for _ in range(self.below(3)):
            value = binary(self.pick(_VALUES), value, self.element(loops, local))
        return value

    def element(self, loops: tuple[Var, ...], local: tuple[Buffer, ...]) -> Expr:
        """An element of an array that is written, of a local one or of an input; seldom a loop."""
        kinds = ["array"] * 4 + ["local"] * (2 * bool(local)) + ["input", "loop"]
        match self.pick(kinds):
            case "local":
                return Load(self.pick(local), (_number(self.below(2)),))
            case "input":
                tensor = self.inputs[0]
                return Read(tensor, self.indices(len(tensor.shape), loops))
            case "loop":
                return cast(self.pick([*loops, _number(3)]), self.dtype)
        buffer = self.pick(self.arrays)
        self.written[buffer.name] = buffer
        return Load(buffer, self.indices(len(buffer.shape), loops))

    def indices(self, rank: int, loops: tuple[Var, ...]) -> tuple[Expr, ...]:
        return tuple(self.index(loops) for _ in range(rank))

    def index(self, loops: tuple[Var, ...]) -> Expr:
        """A form that stays in 0 <= index < 2 * n + 3."""
        if not loops or self.below(12) == 0:
            return _number(self.below(3))
        u, v = self.pick(loops[-2:]), self.pick(loops)
        options: list[Callable[[], Expr]] = [
            lambda: u,
            lambda: u,
            lambda: u + self.below(3),
            lambda: v,
            lambda: self.n - 1 - u,
            lambda: self.n - u,
            lambda: 2 * u + self.below(2),
            lambda: u + v,
            lambda: u - v + self.n,
            lambda: u // 2,
        ]
        if self.data:
            options.append(partial(self.gathered, u))
        return self.pick(options)()  # type: ignore[no-any-return]

    def gathered(self, at: Expr) -> Expr:
        return cast(Read(self.inputs[1], (at,)), INDEX)


def _number(value: int) -> Const:
    return Const(value, INDEX)
