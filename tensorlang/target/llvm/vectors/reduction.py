"""Reductions along vectors: the iterations of a serial loop that may be combined in any order.

`for k: C[i] = C[i] + f(k)` with the pragma `reduce_tree` becomes sums of whole vectors, several side by side, whose
lanes are added by halves at the end: the additions no longer wait for each other.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from tensorlang import dtypes
from tensorlang.dataclass import dataclass
from tensorlang.ir.expr import Binary, Expr, Load, Var, walk
from tensorlang.ir.loops import REDUCE_TREE, constant_extent
from tensorlang.ir.stmt import For, LoopKind, Store
from tensorlang.target.llvm import memory
from tensorlang.target.llvm.arithmetic import binary, constant, select, splat
from tensorlang.target.llvm.expressions import index, place, value
from tensorlang.target.llvm.scope import Lanes, Scope
from tensorlang.target.llvm.text import INDEX, Function, Value, literal
from tensorlang.target.llvm.vectors.body import body_of
from tensorlang.target.llvm.vectors.loops import most_iterations, widest
from tensorlang.target.llvm.vectors.tails import first_lanes, has_masks

Repeat = Callable[[Function, Value, Value, Callable[[Value], None]], None]
_SIDE_BY_SIDE = 4
"""Accumulators: enough to hide the latency of an addition."""


def is_tree(scope: Scope, loop: For) -> bool:
    """Whether a loop is to be emitted by `tree_loop`."""
    asked = (REDUCE_TREE, 1) in loop.pragmas and loop.kind is LoopKind.SERIAL and scope.lanes is None
    return asked and _update(loop) is not None


def tree_loop(fn: Function, scope: Scope, loop: For, repeat: Repeat) -> None:
    """Emit a loop that `is_tree`."""
    update = _update(loop)
    assert update is not None
    store, operation = update
    moved = body_of(loop).moved(loop.var.name)
    bits = widest(moved)
    lower, lanes = index(fn, scope, loop.lower), fn.target.lanes(bits)
    tree = _Tree(fn, scope, loop.var.name, operation, lower, lanes, bits, has_masks(fn.target, moved), repeat)
    count = constant_extent(loop)
    total: Value | None
    if count is None:
        rest = binary(fn, "sub", index(fn, scope, loop.upper), lower)
        total = tree.unknown(binary(fn, "max", rest, literal(0, INDEX)), most_iterations(loop))
    else:
        total = tree.known(count)
    if total is not None:
        where = place(fn, scope, Load(store.buffer, store.index))
        memory.store(fn, where, binary(fn, operation.op, memory.load(fn, where, None), total), None)


@dataclass(frozen=True, slots=True)
class _Tree:
    """A reduction as it is emitted: the terms are `operation.b` for `name` from `lower` on."""

    fn: Function
    scope: Scope
    name: str
    operation: Binary
    lower: Value
    lanes: int
    bits: int
    masks: bool
    repeat: Repeat

    def known(self, count: int) -> Value | None:
        """The reduction of so many terms; None of no term."""
        full, rest = divmod(count, self.lanes)
        vectors, scalars = list[Value](), list[Value]()
        if full > 2 * _SIDE_BY_SIDE:
            vectors.append(self._accumulated(literal(full, INDEX)))
        else:
            vectors += [self._terms(literal(n * self.lanes, INDEX), self.lanes) for n in range(full)]
        done = full * self.lanes
        if self.masks and rest & (rest - 1):
            vectors.append(self._masked(literal(done, INDEX), literal(rest, INDEX)))
            rest = 0
        for width in (1 << n for n in reversed(range(self.lanes.bit_length()))):
            if rest & width:
                scalars.append(self._across(self._terms(literal(done, INDEX), width)))
                done += width
        if vectors:
            scalars.insert(0, self._across(self._joined(vectors)))
        return self._joined(scalars) if scalars else None

    def unknown(self, count: Value, most: int | None) -> Value:
        """The reduction of any number of terms; `most` is a bound that is known."""
        fn = self.fn
        if self.masks and most is not None and most <= self.lanes:
            return self._across(self._masked(literal(0, INDEX), count))
        whole = binary(fn, "floordiv", count, literal(self.lanes, INDEX))
        done = binary(fn, "mul", whole, literal(self.lanes, INDEX))
        total = self._accumulated(whole)
        if self.masks:
            # Without a term left the mask is empty, and the identity is added.
            last = self._masked(done, binary(fn, "sub", count, done))
            return self._across(self._joined([total, last]))
        held = self._variable(self._across(total))

        def add(at: Value) -> None:
            self._update(held, self._terms(at, 1))

        self.repeat(fn, done, count, add)
        return self._read(held)

    def _accumulated(self, whole: Value) -> Value:
        """The terms of so many whole vectors, in each lane."""
        fn = self.fn
        held = [self._variable(self._identity(self.lanes)) for _ in range(_SIDE_BY_SIDE)]
        groups = binary(fn, "floordiv", whole, literal(_SIDE_BY_SIDE, INDEX))

        def group(number: Value) -> None:
            first = binary(fn, "mul", number, literal(_SIDE_BY_SIDE, INDEX))
            for n, pointer in enumerate(held):
                self._update(pointer, self._vector(binary(fn, "add", first, literal(n, INDEX))))

        def single(number: Value) -> None:
            self._update(held[0], self._vector(number))

        self.repeat(fn, literal(0, INDEX), groups, group)
        self.repeat(fn, binary(fn, "mul", groups, literal(_SIDE_BY_SIDE, INDEX)), whole, single)
        return self._joined([self._read(pointer) for pointer in held])

    def _vector(self, number: Value) -> Value:
        return self._terms(binary(self.fn, "mul", number, literal(self.lanes, INDEX)), self.lanes)

    def _masked(self, done: Value, count: Value) -> Value:
        mask = first_lanes(self.fn, count, self.lanes, self.bits)
        return select(self.fn, mask, self._terms(done, self.lanes, mask), self._identity(self.lanes))

    def _terms(self, done: Value, width: int, mask: Value | None = None) -> Value:
        """The terms from one on, in `width` lanes."""
        first = binary(self.fn, "add", self.lower, done)
        if width == 1:
            return value(self.fn, self.scope.bind(self.name, first), self.operation.b)
        inner = replace(self.scope, lanes=Lanes(self.name, first, width, mask))
        return splat(self.fn, value(self.fn, inner, self.operation.b), width)

    def _joined(self, values: list[Value]) -> Value:
        """All values combined, neighbours first."""
        while len(values) > 1:
            pairs = [values[n : n + 2] for n in range(0, len(values), 2)]
            values = [binary(self.fn, self.operation.op, *p) if len(p) == 2 else p[0] for p in pairs]
        return values[0]

    def _across(self, vector: Value) -> Value:
        """The lanes of a vector combined, by halves."""
        while vector.lanes > 1:
            half = vector.lanes // 2
            parts = [self._lanes_of(vector, range(start, start + half)) for start in (0, half)]
            vector = binary(self.fn, self.operation.op, *parts)
        if vector.lanes:
            vector = self.fn.value(f"extractelement {vector.typed}, i64 0", vector.dtype)
        return vector

    def _lanes_of(self, vector: Value, lanes: range) -> Value:
        picks = ", ".join(f"i32 {lane}" for lane in lanes)
        text = f"shufflevector {vector.typed}, {vector.type} poison, <{len(lanes)} x i32> <{picks}>"
        return self.fn.value(text, vector.dtype, len(lanes))

    def _identity(self, lanes: int) -> Value:
        dtype = self.operation.dtype
        info = dtypes.info(dtype)
        least, most = dtypes.limits(dtype)
        numbers = {"add": -0.0 if info.is_float else 0, "mul": 1, "min": most, "max": least}
        return constant(numbers[self.operation.op], Value("", dtype, lanes))

    def _variable(self, start: Value) -> tuple[str, Value]:
        """A register that changes: LLVM keeps the slot of the stack in one."""
        size = dtypes.info(start.dtype).bytes * max(1, start.lanes)
        pointer = self.fn.alloca(start.type, size)
        self.fn.do(f"store {start.typed}, ptr {pointer}, align 64")
        return pointer, start

    def _read(self, held: tuple[str, Value]) -> Value:
        pointer, like = held
        return self.fn.value(f"load {like.type}, ptr {pointer}, align 64", like.dtype, like.lanes)

    def _update(self, held: tuple[str, Value], term: Value) -> None:
        # The term first: a maximum looks for NaN in its first operand, and the accumulator need not wait for that.
        new = binary(self.fn, self.operation.op, term, self._read(held))
        self.fn.do(f"store {new.typed}, ptr {held[0]}, align 64")


def _update(loop: For) -> tuple[Store, Binary] | None:
    """The store of a body `C[i] = C[i] op term` whose place does not depend on the loop, and its value."""
    store = loop.body
    if not isinstance(store, Store) or not isinstance(store.value, Binary):
        return None
    operation = store.value
    if operation.op not in ("add", "mul", "min", "max") or dtypes.info(operation.dtype).kind == "bool":
        return None
    if operation.a != Load(store.buffer, store.index) or any(_mentions(i, loop.var.name) for i in store.index):
        return None
    if any(isinstance(n, Load) and n.buffer.name == store.buffer.name for n in walk(operation.b)):
        return None
    return store, operation


def _mentions(expr: Expr, name: str) -> bool:
    return any(isinstance(n, Var) and n.name == name for n in walk(expr))
