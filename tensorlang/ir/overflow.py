"""Arithmetic of sizes: exact values of shape expressions, and up to which sizes a kernel's index arithmetic is exact.

Compiled code computes bounds, extents, strides and byte counts in 64 bits, which wrap around. For sizes up to a limit,
found once for a kernel from the ranges of its loops, nothing wraps; beyond it each call is looked at with its own
sizes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import field
from typing import TypeAlias

from tensorlang import dtypes
from tensorlang.dataclass import dataclass
from tensorlang.ir.expr import Binary, Buffer, Cast, Const, Expr, Load, Select, Unary, Var, walk
from tensorlang.ir.operators import AT_RUN_TIME, COMPARE
from tensorlang.ir.stmt import (
    Allocate,
    AtomicUpdate,
    For,
    If,
    Kernel,
    Launch,
    Let,
    LoopKind,
    Stmt,
    Store,
    children,
    stmt_exprs,
)

MOST = 2**63 - 1
"""The greatest index."""
_LIMITS = (2**40, 2**30, 2**20, 2**15, 2**12, 2**8)
"""Limits that are tried: matrices keep within the second, arrays of four symbolic extents within the fourth."""

Range: TypeAlias = tuple[int, int]
Ranges: TypeAlias = Mapping[str, Range | None]
"""The least and the greatest value of variables; None where data decides."""


def exact_value(expr: Expr, values: Mapping[str, int]) -> int | None:
    """The value of an integer expression as a mathematical one, whatever its dtype; None for other operations."""
    match expr:
        case Const():
            return None if isinstance(expr.value, float) else int(expr.value)
        case Var():
            return values.get(expr.name)
        case Cast() if dtypes.info(expr.dtype).is_integer:
            return exact_value(expr.value, values)
        case Unary(op="neg"):
            inner = exact_value(expr.a, values)
            return None if inner is None else -inner
        case Select():
            taken = exact_value(expr.cond, values)
            return None if taken is None else exact_value(expr.then if taken else expr.orelse, values)
        case Binary() if expr.op in AT_RUN_TIME:
            a, b = exact_value(expr.a, values), exact_value(expr.b, values)
            return None if a is None or b is None else AT_RUN_TIME[expr.op](a, b)
    return None


class Overflow(Exception):
    """An expression that has a value beyond 64 bits: its text, and the value that is farthest out."""

    def __init__(self, text: str, value: int) -> None:
        super().__init__(f"{text} would be {value}, beyond 64 bits")


@dataclass(slots=True)
class SizeCheck:
    """Whether the index arithmetic of a kernel is exact for the sizes of a call.

    `whole` is false for a kernel whose body was left out: then `known` is its limit, and sizes beyond it are refused.
    """

    kernel: Kernel
    known: int | None = None
    whole: bool = True
    _looked_at: set[tuple[int, ...]] = field(default_factory=set)

    @property
    def limit(self) -> int:
        """With all sizes from 0 up to this one nothing overflows."""
        if self.known is None:
            self.known = exact_limit(self.kernel)
        return self.known

    def fault(self, sizes: Mapping[str, int]) -> str:
        """What overflows for these sizes; nothing for sizes that the kernel can run with."""
        values = tuple(sizes[v.name] for v in self.kernel.sizes)
        if max(values, default=0) <= self.limit or values in self._looked_at:
            return ""
        if not self.whole:
            return f"sizes above {self.limit} need a kernel that was built in this process"
        found = overflow(self.kernel, {name: (value, value) for name, value in sizes.items()})
        if found is None and len(self._looked_at) < 64:
            self._looked_at.add(values)
        return "" if found is None else str(found)


def exact_limit(kernel: Kernel) -> int:
    """A number up to which all sizes may be at once, without overflow in shapes, loop bounds, conditions or indices."""
    if not kernel.sizes:
        return MOST
    fits = (n for n in _LIMITS if overflow(kernel, {v.name: (0, n) for v in kernel.sizes}) is None)
    return next(fits, 0)


def overflow(kernel: Kernel, sizes: Ranges) -> Overflow | None:
    """The first expression of a kernel that overflows for sizes in some ranges."""
    try:
        for param in kernel.params:
            _bytes(param, sizes)
        _visit(kernel.body, sizes, 1)
    except Overflow as found:
        return found
    return None


def _bytes(buffer: Buffer, ranges: Ranges) -> None:
    """Refuse an array whose bytes cannot be counted, be it that another extent of it is 0."""
    total = dtypes.info(buffer.dtype).bytes
    for extent in buffer.shape:
        known = _range(extent, ranges)
        total *= max(1, *map(abs, known)) if known is not None else 1
    if total > MOST:
        raise Overflow(f"the bytes of {buffer}", total)


def _visit(stmt: Stmt, ranges: Ranges, count: int) -> None:
    """Look at what runs; `count` is how many iterations the parallel loops around have together."""
    match stmt:
        case For():
            _visit_loop(stmt, ranges, count)
            return
        case Let(var, value, body):
            _looked(value, ranges)
            _visit(body, {**ranges, var.name: _range(value, ranges)}, 1)
            return
        case Allocate(buffer):
            _all_looked(buffer.shape, ranges)
        case If(cond):
            _looked(cond, ranges)
        case Launch():
            _visit(stmt.kernel.body, _launched(stmt, ranges), 1)
        case Store() | AtomicUpdate():
            _all_looked(stmt.index, ranges)
            _looked(stmt.value, ranges)
        case _ if not children(stmt):
            _all_looked(stmt_exprs(stmt), ranges)
    for child in children(stmt):
        _visit(child, ranges, 1)


def _visit_loop(loop: For, ranges: Ranges, count: int) -> None:
    """Look at the bounds, and at the body where it runs at all."""
    low, high = _range(loop.lower, ranges), _range(loop.upper, ranges)
    if low is None or high is None:
        return _visit(loop.body, {**ranges, loop.var.name: None}, 1)
    if high[1] <= low[0]:
        return None
    count = count * (high[1] - low[0]) if loop.kind is LoopKind.PARALLEL else 1
    if count > MOST:
        raise Overflow(f"the number of iterations of {loop.var.name}", count)
    return _visit(loop.body, {**ranges, loop.var.name: (low[0], high[1] - 1)}, count)


def _all_looked(indices: Iterable[Expr], ranges: Ranges) -> None:
    for index in indices:
        _range(index, ranges)
        _looked(index, ranges)


def _launched(stmt: Launch, ranges: Ranges) -> Ranges:
    """The variables of a kernel of a device: its scalars, and the numbers of blocks and threads."""
    kernel = stmt.kernel
    scalars = {v.name: _range(given, ranges) for v, given in zip(kernel.scalars, stmt.scalars, strict=True)}
    threads: dict[str, Range | None] = {}
    for letter, extent, size in zip("xyz", kernel.grid, kernel.block, strict=True):
        blocks = _range(extent, scalars)
        threads[f"blockIdx.{letter}"] = None if blocks is None else (0, max(0, blocks[1] - 1))
        threads[f"threadIdx.{letter}"] = (0, size - 1)
    return {**scalars, **threads}


def _looked(expr: Expr, ranges: Ranges) -> None:
    """Look at the indices and the conditions in an expression: what it computes otherwise may wrap around."""
    for part in _of_indices(expr):
        _range(part, ranges)


def _of_indices(expr: Expr) -> Iterator[Expr]:
    """The integer expressions by which elements are found, and those that conditions compare."""
    for node in walk(expr):
        parts: Iterable[Expr] = ()
        if isinstance(node, Load):
            parts = node.index
        elif isinstance(node, Binary) and node.op in COMPARE:
            parts = (node.a, node.b)
        yield from (part for part in parts if _is_index(part))


def _is_index(expr: Expr) -> bool:
    return expr.dtype in ("int32", "int64")


def _range(expr: Expr, ranges: Ranges) -> Range | None:
    """The least and the greatest value of an index expression, None where data decides; raises Overflow."""
    found = _ends(expr, ranges)
    if found is not None and not -MOST <= found[0] <= found[1] <= MOST:
        raise Overflow(str(expr), found[1] if found[1] > MOST else found[0])
    return found


def _ends(expr: Expr, ranges: Ranges) -> Range | None:
    match expr:
        case Const():
            return (int(expr.value), int(expr.value)) if dtypes.info(expr.dtype).is_integer else None
        case Var():
            return ranges.get(expr.name)
        case Cast():
            inner = _range(expr.value, ranges) if _is_index(expr.value) else None
            return inner if _is_index(expr) else None
        case Unary(op="neg"):
            inner = _range(expr.a, ranges)
            return None if inner is None else (-inner[1], -inner[0])
        case Select():
            _looked(expr.cond, ranges)
            then, orelse = _range(expr.then, ranges), _range(expr.orelse, ranges)
            return None if then is None or orelse is None else (min(then[0], orelse[0]), max(then[1], orelse[1]))
        case Binary() if _is_index(expr):
            a, b = _range(expr.a, ranges), _range(expr.b, ranges)
            return None if a is None or b is None else _combined(expr.op, a, b)
    return None


def _combined(op: str, a: Range, b: Range) -> Range | None:
    if op in ("add", "mul", "min", "max"):
        corners = [AT_RUN_TIME[op](x, y) for x in a for y in b]
        return min(corners), max(corners)
    if op == "sub":
        return a[0] - b[1], a[1] - b[0]
    if op == "floordiv":
        divisors = {b[0], b[1], *(d for d in (-1, 0, 1) if b[0] <= d <= b[1])}
        corners = [AT_RUN_TIME[op](x, d) for x in a for d in divisors]
        return min(corners), max(corners)
    if op == "floormod":
        far = max(abs(b[0]), abs(b[1]))
        return (0 if b[0] >= 0 else -far), min(far, max(a[1], 0)) if a[0] >= 0 and b[0] >= 0 else far
    return None
