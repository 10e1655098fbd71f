"""Expressions of machine code: vectors, pointers, and calls of LLVM intrinsics and of C functions.

They stand only in the body of a `MachineCode`, which every target takes or replaces as a whole; loop IR around it never
holds one. A vector is an expression of its element's dtype with `lanes`; arithmetic works lane by lane.
"""

from __future__ import annotations

import re
from typing import Literal

from tensorlang import dtypes
from tensorlang.dataclass import dataclass
from tensorlang.errors import DefinitionError
from tensorlang.ir.expr import Buffer, Expr, Printable, Var, cast, to_text
from tensorlang.ir.stmt import INDEX
from tensorlang.ir.traverse import bounded
from tensorlang.location import caller

LANE = Var("lane", INDEX)
"""In code that lanes run together: the number of the thread among them."""

ACCUMULATES = Var("accumulates", "int32")
"""In code that adds to what is there, or stores in its place where this is 0: what the call says, 1 if nothing."""

ASYNC_PROXY = "async-proxy"
"""A feature of code that reads shared memory past the ordinary accesses of threads, which are to be fenced before."""

_VECTOR = re.compile(r"([a-z]+[0-9]*?(?:_[a-z0-9]+?)?)x([0-9]+)")


class MachineExpr(Expr, Printable):
    """Base of the expressions that only machine code holds."""

    __slots__ = ()
    lanes: int

    def astype(self, dtype: str) -> Expr:
        """Convert lane by lane; a scalar becomes every lane of a vector dtype."""
        element, wide = vector_dtype(dtype)
        if wide == self.lanes:
            return cast(self, element)
        return Broadcast(cast(self, element), wide)


def vector_dtype(text: str) -> tuple[str, int]:
    """The element and the lanes of a dtype: `int8x64` is ("int8", 64), `int8` is ("int8", 0)."""
    found = _VECTOR.fullmatch(text) if isinstance(text, str) else None
    element, count = (found[1], int(found[2])) if found else (text, 0)
    if found and count < 1:
        raise DefinitionError(f"a vector has at least one lane, got {text!r}", caller())
    return dtypes.canonical(element), count


def dtype_text(expr: Expr) -> str:
    """The dtype with its lanes: `int8x64`."""
    wide = lanes(expr)
    return f"{expr.dtype}x{wide}" if wide else expr.dtype


@bounded
def lanes(expr: Expr) -> int:
    """How many lanes an expression has; 0 for a scalar. DefinitionError when its operands do not agree."""
    if isinstance(expr, MachineExpr):
        return expr.lanes
    found = {n for n in map(lanes, expr.children()) if n}
    if len(found) > 1:
        raise DefinitionError(f"vectors of {' and '.join(map(str, sorted(found)))} lanes meet in {expr}", caller())
    return found.pop() if found else 0


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class VectorLoad(MachineExpr):
    """`lanes` elements of a buffer side by side in memory, the first one at `index`."""

    buffer: Buffer
    index: tuple[Expr, ...]
    lanes: int

    @property
    def dtype(self) -> str:  # type: ignore[override]
        return self.buffer.dtype

    def label(self) -> tuple[object, ...]:
        return self.buffer.name, self.lanes

    def children(self) -> tuple[Expr, ...]:
        return self.index

    def with_children(self, children: tuple[Expr, ...]) -> Expr:
        return VectorLoad(self.buffer, children, self.lanes)

    def text(self) -> str:
        return f"{self.buffer.name}[{', '.join(map(to_text, self.index))} x {self.lanes}]"


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Broadcast(MachineExpr):
    """A scalar in every lane."""

    value: Expr
    lanes: int

    @property
    def dtype(self) -> str:  # type: ignore[override]
        return self.value.dtype

    def label(self) -> tuple[object, ...]:
        return (self.lanes,)

    def children(self) -> tuple[Expr, ...]:
        return (self.value,)

    def with_children(self, children: tuple[Expr, ...]) -> Expr:
        return Broadcast(children[0], self.lanes)

    def text(self) -> str:
        return f"broadcast({to_text(self.value)}, {self.lanes})"


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Reinterpret(MachineExpr):
    """The same bits as another scalar or vector."""

    value: Expr
    dtype: str
    lanes: int

    def label(self) -> tuple[object, ...]:
        return (self.lanes,)

    def children(self) -> tuple[Expr, ...]:
        return (self.value,)

    def with_children(self, children: tuple[Expr, ...]) -> Expr:
        return Reinterpret(children[0], self.dtype, self.lanes)

    def text(self) -> str:
        return f"reinterpret({dtype_text(self)}, {to_text(self.value)})"


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Pointer(MachineExpr):
    """The address of an element, as an operand of a C function; `access` says what that does there: r, w or rw."""

    buffer: Buffer
    index: tuple[Expr, ...]
    access: str
    lanes: int = 0

    @property
    def dtype(self) -> str:  # type: ignore[override]
        return self.buffer.dtype

    def label(self) -> tuple[object, ...]:
        return self.buffer.name, self.access

    def children(self) -> tuple[Expr, ...]:
        return self.index

    def with_children(self, children: tuple[Expr, ...]) -> Expr:
        return Pointer(self.buffer, children, self.access)

    def text(self) -> str:
        return f"&{self.buffer.name}[{', '.join(map(to_text, self.index))}]"


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class MachineCall(MachineExpr):
    """A call by symbol: an LLVM intrinsic, or a C function (`returns` False: of no result)."""

    kind: Literal["llvm", "extern"]
    name: str
    args: tuple[Expr, ...]
    dtype: str
    lanes: int = 0
    returns: bool = True

    def label(self) -> tuple[object, ...]:
        return self.kind, self.name, self.lanes, self.returns

    def children(self) -> tuple[Expr, ...]:
        return self.args

    def with_children(self, children: tuple[Expr, ...]) -> Expr:
        return MachineCall(self.kind, self.name, children, self.dtype, self.lanes, self.returns)

    def text(self) -> str:
        result = dtype_text(self) if self.returns else "void"
        return f"{result} {self.name}({', '.join(map(to_text, self.args))})"
