"""What names mean at a point of the code: variables, buffers, and the lanes of a vector loop."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import field, replace

from tensorlang.dataclass import dataclass
from tensorlang.errors import InternalError
from tensorlang.ir.expr import Binary, Buffer, Expr, Load, Select, Var, substitute, walk
from tensorlang.target.llvm.text import Value


@dataclass(frozen=True, slots=True)
class Storage:
    """Where a buffer lives: its pointer, and the distance in elements between neighbours of each dimension.

    `aligned`: our own memory, at a multiple of 64 bytes.
    """

    buffer: Buffer
    pointer: str
    strides: tuple[Value, ...]
    aligned: bool


@dataclass(frozen=True, slots=True)
class Lanes:
    """A piece of a vector loop: `var` is `first`, `first + 1`, ... in `width` lanes.

    Where `mask` (a vector of bools) is given and false, a lane reads and writes no memory. `reach`: the first and the
    last value of `var` in the whole loop, where they are constant. `active`: the mask is that of so many first lanes.
    """

    var: str
    first: Value
    width: int
    mask: Value | None = None
    reach: tuple[int, int] | None = None
    active: int | None = None


@dataclass(frozen=True, slots=True)
class Scope:
    """Names in sight.

    `varying` holds the Let variables that differ between lanes: their definition, or None where it reads memory
    and therefore must not be evaluated again. `held` are reads whose values are at hand.
    """

    values: Mapping[str, Value]
    buffers: Mapping[str, Storage]
    varying: Mapping[str, Expr | None] = field(default_factory=dict)
    lanes: Lanes | None = None
    in_parallel: bool = False
    held: Mapping[Load, Value] = field(default_factory=dict)

    def bind(self, name: str, value: Value) -> Scope:
        """This scope with a variable defined."""
        return replace(self, values={**self.values, name: value})

    def masked(self, mask: Value) -> Scope:
        """This scope with memory accesses limited to the lanes of `mask`."""
        if self.lanes is None:
            raise InternalError("a mask outside a vector loop")
        return replace(self, lanes=replace(self.lanes, mask=mask, active=None))

    def scalar(self, first: Value) -> Scope:
        """The scope of one lane, where the loop variable has the value `first`.

        Let variables that differ between lanes are out of sight: expand expressions before.
        """
        if self.lanes is None:
            raise InternalError("a lane outside a vector loop")
        return replace(self, values={**self.values, self.lanes.var: first}, varying={}, lanes=None)

    def storage(self, buffer: Buffer) -> Storage:
        """Where a buffer lives."""
        try:
            return self.buffers[buffer.name]
        except KeyError:
            raise InternalError(f"buffer {buffer.name} is neither a parameter nor allocated here") from None

    def expanded(self, expr: Expr) -> Expr:
        """`expr` with the definitions of varying Let variables in place of their names, where they are known."""
        known = {name: value for name, value in self.varying.items() if value is not None}
        while known and any(isinstance(n, Var) and n.name in known for n in walk(expr)):
            expr = substitute(expr, known)
        return expr

    def varies(self, expr: Expr) -> bool:
        """Whether an expression may differ between the lanes of the vector loop around it."""
        return self.lanes is not None and self.moves({n.name for n in walk(expr) if isinstance(n, Var)})

    def moves(self, names: Collection[str]) -> bool:
        """Whether one of the variables differs between the lanes of the vector loop around it."""
        if self.lanes is None:
            return False
        return self.lanes.var in names or any(name in names for name in self.varying)


def has_loads(expr: Expr) -> bool:
    """Whether evaluating an expression reads memory."""
    return any(isinstance(n, Load) for n in walk(expr))


def certain_reads(expr: Expr) -> Iterator[Load]:
    """The reads that evaluating an expression makes whatever its conditions are, parents first."""
    if isinstance(expr, Load):
        yield expr
    match expr:
        case Select():
            yield from certain_reads(expr.cond)
        case Binary(op="and" | "or"):
            yield from certain_reads(expr.a)
        case _:
            for child in expr.children():
                yield from certain_reads(child)
