"""Accesses of a canonical operation, branch by branch, and the proof that they stay in bounds."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cached_property, lru_cache
from typing import TypeAlias

from tensorlang.dataclass import dataclass
from tensorlang.errors import DefinitionError
from tensorlang.ir.expr import Const, Expr, Load, Select, Unary, binary, to_text
from tensorlang.ir.simplify import simplify
from tensorlang.polyhedral import isl
from tensorlang.polyhedral.affine_text import Namer, conditions_text, dims, index_text, is_visible
from tensorlang.polyhedral.ordered import sources
from tensorlang.polyhedral.within import Known
from tensorlang.te.axis import Axis
from tensorlang.te.operation import ComputeOp, HybridOp, Reduce
from tensorlang.te.program import Program

GuardedLoad: TypeAlias = tuple[Load, tuple[Expr, ...]]


def guarded_loads(expr: Expr, conditions: tuple[Expr, ...] = ()) -> Iterator[GuardedLoad]:
    """Yield every load with the conditions under which it runs: a branch not taken reads nothing.

    The loads that an index or a condition needs come after the loads that need it.
    """
    waiting = [(expr, conditions)]
    while waiting:
        node, held = waiting.pop()
        match node:
            case Select():
                no = Unary("not", node.cond, "bool")
                waiting += [(node.cond, held), (node.orelse, (*held, no)), (node.then, (*held, node.cond))]
            case Reduce():
                inner = held if node.where is None else (*held, node.where)
                waiting += [] if node.where is None else [(node.where, held)]
                waiting += [(source, inner) for source in reversed(node.sources)]
            case _:
                if isinstance(node, Load):
                    yield node, held
                waiting += [(child, held) for child in reversed(node.children())]


def _axis_range(axis: Axis) -> tuple[Expr, Expr]:
    """The two conditions that keep an axis in its range."""
    return binary("ge", axis, axis.lower), binary("lt", axis, axis.lower + axis.extent)


def unproven(op: ComputeOp, sizes: frozenset[str], values: Sequence[Expr] | None = None) -> tuple[GuardedLoad, ...]:
    """The loads whose bounds isl cannot see (an index or a guard reads memory), with their guards.

    They are those of `values`: the operation's body (None), or what its reduction starts from. The kernel checks
    them, last first.
    """
    axes = [a.name for a in (*op.axes, *op.reduce_axes)]
    return unproven_among(op.body if values is None else values, axes, sizes)


def unproven_among(values: Sequence[Expr], axes: Sequence[str], sizes: frozenset[str]) -> tuple[GuardedLoad, ...]:
    """The loads of some values over these axes whose bounds isl cannot see, with their guards."""
    sight = _Sight(axes, sizes)
    return tuple(
        (load, guards) for load, guards in _distinct(values) if not (sight.all(guards) and sight.index(load.index))
    )


class _Sight:
    """What isl can see over some axes; many loads have conditions in common, which are looked at once."""

    def __init__(self, axes: Sequence[str], sizes: frozenset[str]) -> None:
        self.names = dims(axes)
        self.sizes = sizes
        self.known: dict[int, tuple[Expr, bool]] = {}  # by the identity of conditions, which are kept for that

    def condition(self, condition: Expr) -> bool:
        """Whether isl can see a condition."""
        if id(condition) not in self.known:
            self.known[id(condition)] = condition, is_visible(self.names, Namer(self.sizes), (condition,))
        return self.known[id(condition)][1]

    def all(self, conditions: Iterable[Expr]) -> bool:
        """Whether isl can see all of some conditions."""
        return all(map(self.condition, conditions))

    def index(self, index: Iterable[Expr]) -> bool:
        """Whether isl can see an element's place."""
        return is_visible(self.names, Namer(self.sizes), (), index)


def tested(op: ComputeOp, sizes: frozenset[str], values: Sequence[Expr]) -> tuple[GuardedLoad, ...]:
    """The loads of some values of an operation that only a run can tell to stay inside their arrays."""
    unknown = _distinct(values) if sizes else unproven(op, sizes, values)
    if not unknown:
        return ()
    axes = (*op.axes, *op.reduce_axes) if op.reduction is None or values is op.body else op.axes
    domain = [*(c for a in axes for c in _axis_range(a)), *op.where]
    return _unprovable(_Bounds(op, [a.name for a in (*op.axes, *op.reduce_axes)], domain, sizes), unknown)


def tested_among(
    op: HybridOp, values: Sequence[Expr], axes: Sequence[str], domain: Sequence[Expr], sizes: frozenset[str]
) -> tuple[GuardedLoad, ...]:
    """The loads of some values over these axes in a domain that only a run can tell to stay inside their arrays."""
    unknown = _distinct(values) if sizes else unproven_among(values, axes, sizes)
    return _unprovable(_Bounds(op, axes, domain, sizes), unknown)


def _unprovable(proof: _Bounds, unknown: tuple[GuardedLoad, ...]) -> tuple[GuardedLoad, ...]:
    """Without those that stay inside whatever the sizes are, and the guards say that isl cannot see."""
    return tuple((load, guards) for load, guards in unknown if not proof.holds(load, guards))


def _distinct(values: Sequence[Expr]) -> tuple[GuardedLoad, ...]:
    """The loads of some values with their conditions, each pair where it comes up last."""
    found: dict[tuple[str, ...], GuardedLoad] = {}
    key = key_of_load()
    for value in values:
        for load, conditions in guarded_loads(value):
            text = key(load, conditions)
            found.pop(text, None)
            found[text] = load, conditions
    return tuple(found.values())


def key_of_load() -> Callable[[Load, Sequence[Expr]], tuple[str, ...]]:
    """Return what tells loads and their conditions apart: a condition of many loads is written out once."""
    texts: dict[int, tuple[Expr, str]] = {}  # by the identity of conditions, which are kept for that

    def text(condition: Expr) -> str:
        if id(condition) not in texts:
            texts[id(condition)] = condition, to_text(condition)
        return texts[id(condition)][1]

    return lambda load, conditions: (to_text(load), *map(text, conditions))


def check_bounds(program: Program) -> None:
    """Prove that every affine access stays inside its array; DefinitionError with the first one that does not.

    A read that only small sizes put outside is left to a run, as one that depends on data is.
    """
    sizes = frozenset(v.name for v in program.sizes)
    for op in program.ops:
        match op:
            case ComputeOp():
                around = [c for a in (*op.axes, *op.reduce_axes) for c in _axis_range(a)] + list(op.where)
                check = _Bounds(op, [a.name for a in (*op.axes, *op.reduce_axes)], around, sizes)
                check.all(op.body)
                if op.reduction is not None:
                    around = [c for a in op.axes for c in _axis_range(a)] + list(op.where)
                    _Bounds(op, [a.name for a in op.axes], around, sizes).all(op.reduction.start())
            case HybridOp():
                for source in sources(op).values():
                    check = _Bounds(op, source.axes, source.domain, sizes)
                    check.all((*source.store.index, source.store.value))
                    check.one(Load(source.store.buffer, source.store.index), (), "writes")
                    _Bounds(op, check.axes, source.ranges, sizes).all(source.conditions)
            case _:
                pass


def in_place(op: ComputeOp | HybridOp, array: str) -> str:
    """What to add to a message about an array that a user knows by another name: the input that it updates."""
    pairs = zip(op.outputs, op.updates, strict=True) if isinstance(op, HybridOp) else ()
    old = next((old for made, old in pairs if made.name == array and old is not None), None)
    return f"; {array} is {old.name}, updated in place" if old is not None and old.name != array else ""


_LARGE = 1 << 20
"""Sizes that are no small ones."""


@lru_cache(maxsize=1024)
def _is_empty(text: str) -> bool:
    """Whether a set has no point; a search schedules the same program many times."""
    return bool(isl.make_set(text).is_empty())


@dataclass(frozen=True)
class _Bounds:
    """The proof that accesses of an operation stay inside their arrays, over some axes in some domain."""

    op: ComputeOp | HybridOp
    axes: Sequence[str]
    domain: Sequence[Expr]
    sizes: frozenset[str]

    @cached_property
    def sight(self) -> _Sight:
        """What isl can see of its conditions."""
        return _Sight(self.axes, self.sizes)

    @cached_property
    def known(self) -> Known:
        """What holds in the domain."""
        return Known.of(self.domain, self.sizes)

    def all(self, values: Sequence[Expr]) -> None:
        """Every load of some values."""
        for load, conditions in _distinct(values):
            self.one(load, conditions, "reads")

    def one(self, load: Load, conditions: tuple[Expr, ...], word: str) -> None:
        """One access; DefinitionError with the first point at which it leaves its array."""
        if not (self.sight.all(conditions) and self.sight.index(load.index)):
            return
        for bad, namer in self._outside(load, conditions):
            if not _is_empty(bad) and not (word == "reads" and self._is_of_small_sizes(bad, namer)):
                raise DefinitionError(self._complaint(load, isl.make_set(bad), namer, word), self.op.location)

    def _is_of_small_sizes(self, bad: str, namer: Namer) -> bool:
        """Whether points are outside for small sizes alone, as those of `A[0]` where there may be no element."""
        large = " and ".join(f"{size} >= {_LARGE}" for size in namer.parameters)
        return bool(large) and _is_empty(f"{bad.removesuffix(' }')} and {large} }}")

    def holds(self, load: Load, conditions: tuple[Expr, ...]) -> bool:
        """Whether an access stays inside its array, by those conditions that isl can see."""
        if not self.sight.index(load.index):
            return False
        return all(_is_empty(bad) for bad, _ in self._outside(load, conditions))

    def _outside(self, load: Load, conditions: tuple[Expr, ...]) -> Iterator[tuple[str, Namer]]:
        """The points outside of each dimension of the array where there may be some, as isl text."""
        seen = [*filter(self.sight.condition, conditions)]
        unknown = [p for p in zip(load.index, load.buffer.shape, strict=True) if not self.known.is_inside(*p)]
        if unknown and seen:
            known = Known.of([*self.domain, *seen], self.sizes)
            unknown = [p for p in unknown if not known.is_inside(*p)]
        if not unknown:
            return
        namer, names = Namer(self.sizes), dims(self.axes)
        inside, _ = conditions_text([*self.domain, *seen], names, namer)
        for index, size in unknown:
            text, limit = index_text(index, names, namer), index_text(size, {}, namer)
            outside = f"({text} < 0 or {text} >= {limit})"
            context = namer.context()
            where = " and ".join(t for t in (inside, outside, context) if t)
            yield f"{namer.prefix()}{{ [{', '.join(names.values())}] : {where} }}", namer

    def _complaint(self, load: Load, bad: isl.Set, namer: Namer, word: str) -> str:
        count = bad.dim(isl.DIM.param)
        values = isl.lexicographic_minimum(bad.move_dims(isl.DIM.set, 0, isl.DIM.param, 0, count))
        sizes = ", ".join(f"{to_text(e)}={v}" for e, v in zip(namer.parameters.values(), values, strict=False))
        at = ", ".join(f"{a}={v}" for a, v in zip(self.axes, values[count:], strict=True))
        shape = ", ".join(map(to_text, load.buffer.shape))
        guard = "the read with te.if_then_else" if isinstance(self.op, ComputeOp) else "the access with if"
        return (
            f"{self.op.name} {word} {to_text(load)} outside {load.buffer.name} of shape ({shape}), "
            f"for instance at {at or 'its only point'}{f' with {sizes}' if sizes else ''}; "
            f"guard {guard}, or change the extents{in_place(self.op, load.buffer.name)}{_from_the_end(load)}"
        )


def _from_the_end(load: Load) -> str:
    """What a negative index may have meant."""
    if not any(isinstance(i, Const) and i.value < 0 for i in load.index):
        return ""
    parts = zip(load.index, load.buffer.shape, strict=True)
    meant = (simplify(binary("add", n, i)) if isinstance(i, Const) and i.value < 0 else i for i, n in parts)
    return f"; no index counts from the end: that is {load.buffer.name}[{', '.join(map(to_text, meant))}]"
