"""Reductions along vectors: the iterations of a serial loop that may be combined in any order.

`for k: C[i] = C[i] + f(k)` with the pragma `reduce_tree` becomes sums of whole vectors, several side by side, whose
lanes are added by halves at the end: the additions no longer wait for each other.
"""

from __future__ import annotations

from collections.abc import Callable, Set
from dataclasses import replace

from tensorlang import dtypes
from tensorlang.dataclass import dataclass
from tensorlang.ir.expr import Binary, Expr, Load, Var, walk
from tensorlang.ir.loops import REDUCE_TREE, constant_extent
from tensorlang.ir.stmt import For, LoopKind, Seq, Stmt, Store
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
_FEWEST = 2
"""Accumulators of one result where there are others."""


def is_tree(scope: Scope, loop: For) -> bool:
    """Whether a loop is to be emitted by `tree_loop`."""
    return scope.lanes is None and is_asked(loop) and bool(updates(loop))


def is_asked(loop: For) -> bool:
    """Whether the iterations of a loop may be combined in any order."""
    return (REDUCE_TREE, 1) in loop.pragmas and loop.kind is LoopKind.SERIAL


def tree_loop(fn: Function, scope: Scope, loop: For, repeat: Repeat) -> None:
    """Emit a loop that `is_tree`."""
    found = updates(loop)
    moved = body_of(loop).moved(loop.var.name)
    bits = widest(moved)
    lower, lanes = index(fn, scope, loop.lower), fn.target.lanes(bits)
    operations = tuple(operation for _, operation in found)
    tree = Tree(fn, scope, loop.var.name, operations, lower, lanes, bits, has_masks(fn.target, moved), repeat)
    count = constant_extent(loop)
    if count is None:
        rest = binary(fn, "sub", index(fn, scope, loop.upper), lower)
        totals = tree.unknown(binary(fn, "max", rest, literal(0, INDEX)), most_iterations(loop))
    else:
        totals = tree.known(count)
    for (store, operation), total in zip(found, totals):
        update(fn, scope, store, operation, total)


def update(fn: Function, scope: Scope, store: Store, operation: Binary, total: Value) -> None:
    """Combine what a store holds with a reduction of terms."""
    where = place(fn, scope, Load(store.buffer, store.index))
    memory.store(fn, where, binary(fn, operation.op, memory.load(fn, where, None), total), None)


@dataclass(frozen=True, slots=True)
class Tree:
    """Reductions as they are emitted, side by side: the terms of each are `operation.b` for `name` from `lower` on.

    Lists of values have one for each operation.
    """

    fn: Function
    scope: Scope
    name: str
    operations: tuple[Binary, ...]
    lower: Value
    lanes: int
    bits: int
    masks: bool
    repeat: Repeat

    def known(self, count: int) -> list[Value]:
        """The reductions of so many terms; nothing of no term."""
        full, rest = divmod(count, self.lanes)
        vectors, scalars = list[list[Value]](), list[list[Value]]()
        if full:
            vectors.append(self.whole(full))
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
        return self._joined(scalars) if scalars else []

    def whole(self, vectors: int) -> list[Value]:
        """The reductions of the terms of so many vectors, in each lane."""
        if vectors > 2 * self._beside:
            return self._accumulated(literal(vectors, INDEX))
        return self._joined([self._terms(literal(n * self.lanes, INDEX), self.lanes) for n in range(vectors)])

    def unknown(self, count: Value, most: int | None) -> list[Value]:
        """The reductions of any number of terms; `most` is a bound that is known."""
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
        held = self._variables(self._across(total))
        self.repeat(fn, done, count, lambda at: self._update(held, self._terms(at, 1)))
        return self._read(held)

    @property
    def _beside(self) -> int:
        """How many accumulators each result has."""
        return max(_FEWEST, _SIDE_BY_SIDE // len(self.operations))

    def _accumulated(self, whole: Value) -> list[Value]:
        """The terms of so many whole vectors, in each lane."""
        fn, beside = self.fn, self._beside
        held = [self._variables(self._identity(self.lanes)) for _ in range(beside)]
        groups = binary(fn, "floordiv", whole, literal(beside, INDEX))

        def group(number: Value) -> None:
            first = binary(fn, "mul", number, literal(beside, INDEX))
            for n, pointers in enumerate(held):
                self._update(pointers, self._vector(binary(fn, "add", first, literal(n, INDEX))))

        self.repeat(fn, literal(0, INDEX), groups, group)
        rest = binary(fn, "mul", groups, literal(beside, INDEX))
        self.repeat(fn, rest, whole, lambda number: self._update(held[0], self._vector(number)))
        return self._joined([self._read(pointers) for pointers in held])

    def _vector(self, number: Value) -> list[Value]:
        return self._terms(binary(self.fn, "mul", number, literal(self.lanes, INDEX)), self.lanes)

    def _masked(self, done: Value, count: Value) -> list[Value]:
        mask = first_lanes(self.fn, count, self.lanes, self.bits)
        terms = zip(self._terms(done, self.lanes, mask), self._identity(self.lanes))
        return [select(self.fn, mask, term, identity) for term, identity in terms]

    def _terms(self, done: Value, width: int, mask: Value | None = None) -> list[Value]:
        """The terms from one on, in `width` lanes."""
        first = binary(self.fn, "add", self.lower, done)
        if width == 1:
            bound = self.scope.bind(self.name, first)
            return [value(self.fn, bound, operation.b) for operation in self.operations]
        inner = replace(self.scope, lanes=Lanes(self.name, first, width, mask))
        return [splat(self.fn, value(self.fn, inner, operation.b), width) for operation in self.operations]

    def _joined(self, values: list[list[Value]]) -> list[Value]:
        """All values combined, neighbours first."""
        while len(values) > 1:
            pairs = [values[n : n + 2] for n in range(0, len(values), 2)]
            values = [self._combined(*pair) if len(pair) == 2 else pair[0] for pair in pairs]
        return values[0]

    def _combined(self, first: list[Value], second: list[Value]) -> list[Value]:
        return [binary(self.fn, op.op, a, b) for op, a, b in zip(self.operations, first, second, strict=True)]

    def _across(self, vectors: list[Value]) -> list[Value]:
        """The lanes of each vector combined, by halves."""
        found = []
        for operation, vector in zip(self.operations, vectors, strict=True):
            while vector.lanes > 1:
                half = vector.lanes // 2
                parts = [self._lanes_of(vector, range(start, start + half)) for start in (0, half)]
                vector = binary(self.fn, operation.op, *parts)
            if vector.lanes:
                vector = self.fn.value(f"extractelement {vector.typed}, i64 0", vector.dtype)
            found.append(vector)
        return found

    def _lanes_of(self, vector: Value, lanes: range) -> Value:
        picks = ", ".join(f"i32 {lane}" for lane in lanes)
        text = f"shufflevector {vector.typed}, {vector.type} poison, <{len(lanes)} x i32> <{picks}>"
        return self.fn.value(text, vector.dtype, len(lanes))

    def _identity(self, lanes: int) -> list[Value]:
        return [constant(_identity_of(op), Value("", op.dtype, lanes)) for op in self.operations]

    def _variables(self, starts: list[Value]) -> list[tuple[str, Value]]:
        """Registers that change: LLVM keeps the slots of the stack in some."""
        held = []
        for start in starts:
            size = dtypes.info(start.dtype).bytes * max(1, start.lanes)
            pointer = self.fn.alloca(start.type, size)
            self.fn.do(f"store {start.typed}, ptr {pointer}, align 64")
            held.append((pointer, start))
        return held

    def _read(self, held: list[tuple[str, Value]]) -> list[Value]:
        return [
            self.fn.value(f"load {like.type}, ptr {pointer}, align 64", like.dtype, like.lanes)
            for pointer, like in held
        ]

    def _update(self, held: list[tuple[str, Value]], terms: list[Value]) -> None:
        # The term first: a maximum looks for NaN in its first operand, and the accumulator need not wait for that.
        for (pointer, _), new in zip(held, self._combined(terms, self._read(held)), strict=True):
            self.fn.do(f"store {new.typed}, ptr {pointer}, align 64")


def _identity_of(operation: Binary) -> float:
    info = dtypes.info(operation.dtype)
    least, most = dtypes.limits(operation.dtype)
    return {"add": -0.0 if info.is_float else 0, "mul": 1, "min": most, "max": least}[operation.op]


def updates(loop: For) -> list[tuple[Store, Binary]]:
    """The stores of a body of `C[i] = C[i] op term` whose places do not depend on the loop, and their values.

    None at all if something else is in the body.
    """
    parts = loop.body.body if isinstance(loop.body, Seq) else (loop.body,)
    written = {part.buffer.name for part in parts if isinstance(part, Store)}
    found = []
    for store in parts:
        operation = _update(store, loop.var.name, written)
        if operation is None or not isinstance(store, Store):
            return []
        found.append((store, operation))
    return found


def _update(store: Stmt, name: str, written: Set[str]) -> Binary | None:
    """The value of a store of that form, whose term reads nothing that is written."""
    if not isinstance(store, Store) or not isinstance(store.value, Binary):
        return None
    operation = store.value
    if operation.op not in ("add", "mul", "min", "max") or dtypes.info(operation.dtype).kind == "bool":
        return None
    if operation.a != Load(store.buffer, store.index) or any(_mentions(i, name) for i in store.index):
        return None
    if any(isinstance(n, Load) and n.buffer.name in written for e in (*store.index, operation.b) for n in walk(e)):
        return None
    return operation


def _mentions(expr: Expr, name: str) -> bool:
    return any(isinstance(n, Var) and n.name == name for n in walk(expr))
