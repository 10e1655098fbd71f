"""Loop nests of element-wise definitions: how scans and recurrences become statements that run in order."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import field, replace
from typing import TypeAlias

from tensorlang.dataclass import dataclass
from tensorlang.ir.affine import affine, to_expr
from tensorlang.ir.construct import block
from tensorlang.ir.expr import Buffer, Expr, Load, Select, Unary, Var, binary, rewrite, select, substitute, walk
from tensorlang.ir.index import to_index
from tensorlang.ir.stmt import INDEX, For, If, LoopKind, Stmt, Store
from tensorlang.te.axis import Axis
from tensorlang.te.exact import exact
from tensorlang.te.operation import Read, Reduce, Tensor
from tensorlang.te.program import unique

Place: TypeAlias = Callable[[tuple[Expr, ...]], Load]


@dataclass(frozen=True, slots=True)
class Over:
    """The axes that an expression is written over, and the loops that they are, by name."""

    axes: tuple[Axis, ...]
    loops: Mapping[str, str]

    def index(self, axis: Axis) -> Var:
        """The variable of an axis's loop."""
        return Var(self.loops[axis.name], INDEX)


@dataclass(slots=True)
class Nests:
    """Writes nests: names of loops and arrays are `taken` once, and `places` holds what the operation itself makes.

    A name that is not as wished is none of `reserved` either.
    """

    taken: set[str]
    places: Mapping[Tensor, Place] = field(default_factory=dict)
    reserved: frozenset[str] = frozenset()

    def fresh(self, wish: str) -> str:
        """A name that no loop and no array has yet."""
        made = unique(wish, {*self.taken, *self.reserved} if wish in self.taken else self.taken)
        self.taken.add(made)
        return made

    def inside(self, over: Over, axes: Sequence[Axis]) -> Over:
        """New loops for more axes."""
        return Over((*over.axes, *axes), {**over.loops, **{a.name: self.fresh(a.name) for a in axes}})

    def value(self, expr: Expr, over: Over) -> Expr:
        """An expression over axes as one over loops; what the operation makes is loaded, other tensors are read."""
        outside: dict[str, Tensor] = {}

        def load(node: Expr) -> Expr | None:
            if not isinstance(node, Read):
                return None
            if node.tensor in self.places:
                return self.places[node.tensor](node.index)
            known = next((n for n, t in outside.items() if t == node.tensor), f"@{len(outside)}")
            outside[known] = node.tensor
            return Load(Buffer(known, node.tensor.shape, node.tensor.dtype), node.index)

        def placed(node: Expr) -> Expr | None:
            match node:
                case Load():
                    return Load(node.buffer, tuple(map(to_index, node.index)))
                case Select():
                    return replace(node, cond=to_index(node.cond))
            return None

        def read(node: Expr) -> Expr | None:
            inside = isinstance(node, Load) and node.buffer.name in outside
            return Read(outside[node.buffer.name], node.index) if inside and isinstance(node, Load) else None

        loaded = exact(rewrite(expr, load), over.axes)
        at = substitute(loaded, {axis.name: over.index(axis) for axis in over.axes})
        plain = rewrite(at, placed)
        return rewrite(to_index(plain) if plain.dtype == "bool" else plain, read)

    def around(self, axes: Iterable[Axis], over: Over, body: Stmt) -> Stmt:
        """Loops over axes, outermost first."""
        for axis in reversed(tuple(axes)):
            var = over.index(axis)
            body = For(var, to_index(axis.lower), _end(axis), LoopKind.SERIAL, body, var.name)
        return body

    def reduction(self, reduce: Reduce, over: Over, inner: Over, target: Load, conditions: Sequence[Expr] = ()) -> Stmt:
        """Reduce into an element, where `conditions` (over loops) hold; where they do not, its value has no meaning.
        `inner` has the reduce axes beside those of the element.

        A condition that reads memory chooses between a value and the identity: every statement stays visible to
        the analysis.
        """
        tests = [] if reduce.where is None else [self.value(reduce.where, inner)]
        source = self.value(reduce.sources[0], inner)
        start = self.value(reduce.start()[0], over)
        neutral = reduce.reducer.identity[0]
        for test in (t for t in (*conditions, *tests) if reads_memory(t)):
            source = select(test, source, neutral)
        for test in (t for t in conditions if reads_memory(t)):
            start = select(test, start, neutral)
        (lhs,), (rhs,), (result,) = reduce.reducer.lhs, reduce.reducer.rhs, reduce.reducer.result
        combined = substitute(result, {lhs.name: target, rhs.name: source})
        update = guarded([t for t in tests if not reads_memory(t)], _store(target, combined))
        both = block([_store(target, start), self.around(reduce.axes, inner, update)])
        return guarded([t for t in conditions if not reads_memory(t)], both)

    def pointwise(self, expr: Expr, over: Over, target: Load) -> Stmt:
        """Store an expression without reductions."""
        return _store(target, self.value(expr, over))


def _end(axis: Axis) -> Expr:
    upper = to_index(binary("add", axis.lower, axis.extent))
    form = affine(upper)
    return upper if form is None else to_expr(form)


def guarded(conditions: Sequence[Expr], body: Stmt) -> Stmt:
    """A statement under conditions."""
    for condition in reversed(conditions):
        body = If(condition, body)
    return body


def reads_memory(expr: Expr) -> bool:
    """Whether an expression depends on the contents of an array."""
    return any(isinstance(node, Load | Read) for node in walk(expr))


def negated(condition: Expr) -> Expr:
    """The opposite of a condition."""
    return Unary("not", condition, "bool")


def _store(target: Load, value: Expr) -> Store:
    return Store(target.buffer, target.index, value)
