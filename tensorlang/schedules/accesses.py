"""The arrays that an operation touches, as affine functions of its axes, and how much of them tiles touch.

Quantities that follow decisions are arrays: of a whole population of candidates at once.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping

import numpy as np
import numpy.typing as npt

from tensorlang import dtypes
from tensorlang.dataclass import dataclass
from tensorlang.errors import DefinitionError
from tensorlang.ir.affine import affine
from tensorlang.ir.expr import Binary, Buffer, Call, Const, Expr, Load, Select, Unary, Var, walk
from tensorlang.ir.stmt import Store, stmt_exprs
from tensorlang.ir.stmt import walk as walk_stmt
from tensorlang.ir.traverse import bounded
from tensorlang.te.operation import ComputeOp, HybridOp, Reduce, buffers, loads

Array = npt.NDArray[np.float64]

LINE = 64
PAGE = 4096
NEAR = 2  # elements that are so far apart are read by as many loads, and a shuffle
LARGE = 1 << 12  # stands for an extent that is not known
CALL_COST = 12


@dataclass(frozen=True, slots=True)
class Access:
    """One array as the nest touches it.

    `dims` gives each dimension's index as (axis, coefficient) terms; a coefficient that follows a decision is an
    array. `packed`: laid out in the order of use, so that what a tile touches is contiguous. `private`: of a tile
    alone, in registers or the nearest cache.
    """

    buffer: str
    itemsize: int
    shape: tuple[float | Array, ...]
    dims: tuple[tuple[tuple[str, int | Array], ...], ...]
    write: bool = False
    packed: bool = False
    private: bool = False

    @property
    def axes(self) -> frozenset[str]:
        """The axes that move this access."""
        return frozenset(axis for terms in self.dims for axis, _ in terms)

    def stride_one(self, axis: str) -> bool:
        """True when neighbouring iterations of `axis` touch neighbouring elements."""
        return self.stride(axis) == 1

    def stride(self, axis: str) -> int:
        """The distance in the last dimension between neighbours along `axis`; 0 where it moves others, or none."""
        outer = {a for terms in self.dims[:-1] for a, _ in terms}
        along = [c for terms in self.dims[-1:] for a, c in terms if a == axis]
        if len(along) != 1 or axis in outer:
            return 0
        (distance,) = along
        if isinstance(distance, int):
            return distance
        return int(distance.flat[0]) if distance.size and bool(np.all(distance == distance.flat[0])) else 0


def extent(expr: Expr) -> int:
    """The value of a constant extent."""
    if not isinstance(expr, Const):
        raise DefinitionError(f"tuning needs constant extents, got {expr}")
    return int(expr.value)


def about(expr: Expr) -> int:
    """The value of a constant extent; a large number for a symbolic one."""
    return int(expr.value) if isinstance(expr, Const) else LARGE


def accesses_of(op: ComputeOp | HybridOp, axes: Mapping[str, int]) -> tuple[Access, ...]:
    """The accesses of an operation, writes first, each array and index once."""
    found = dict.fromkeys(access_of(b, i, axes, write=True) for b, i in _written(op))
    found |= dict.fromkeys(access_of(load.buffer, load.index, axes) for load in reads_of(op))
    return tuple(found)


def _written(op: ComputeOp | HybridOp) -> Iterator[tuple[Buffer, tuple[Expr, ...]]]:
    if isinstance(op, ComputeOp):
        own = tuple(Var(a.name) for a in op.axes)
        yield from ((buffer, own) for buffer in buffers(op))
        return
    yield from ((s.buffer, s.index) for s in walk_stmt(op.body) if isinstance(s, Store))


def reads_of(op: ComputeOp | HybridOp) -> Iterator[Load]:
    """The loads of an operation, duplicates included."""
    if isinstance(op, ComputeOp):
        yield from loads(op)
        return
    for expr in stmt_exprs(op.body):
        yield from (node for node in walk(expr) if isinstance(node, Load))


def access_of(buffer: Buffer, index: tuple[Expr, ...], axes: Mapping[str, int], write: bool = False) -> Access:
    """One access; only `axes` count, all other names are constants."""
    dims = tuple(_terms(i, axes) for i in index)
    shape = tuple(about(n) for n in buffer.shape)
    return Access(buffer.name, dtypes.info(buffer.dtype).bytes, shape, dims, write)


def _terms(index: Expr, axes: Mapping[str, int]) -> tuple[tuple[str, int], ...]:
    """The axes of an index with their coefficients; of a quasi-affine or data-dependent one, with one each."""
    form = affine(index)
    if form is None:
        names = dict.fromkeys(n.name for n in walk(index) if isinstance(n, Var))
        return tuple((name, 1) for name in names if name in axes)
    return tuple((name, coefficient) for name, coefficient in form.items() if name in axes)


def bytes_apart(load: Load, axis: str) -> int:
    """The bytes between what two neighbours along an axis read; 0 where that is not known."""
    distance, size = 0, dtypes.info(load.buffer.dtype).bytes
    for index, length in zip(reversed(load.index), reversed(load.buffer.shape), strict=True):
        distance += (affine(index) or {}).get(axis, 0) * size
        size *= int(length.value) if isinstance(length, Const) else 0
    return distance


def operations_of_point(op: ComputeOp) -> int:
    """Arithmetic operations of one iteration of a compute operation, a reduction step included."""
    if op.reduction is None:
        return sum(map(operations, op.body))
    return sum(map(operations, op.reduction.sources)) + sum(map(_nodes, op.reduction.reducer.result))


def cost_of_point(op: ComputeOp) -> int:
    """The same in the time of additions: a call of a mathematical function is a polynomial, and a choice costs too."""
    values = op.body if op.reduction is None else op.reduction.sources
    nodes = [node for value in values for node in walk(value)]
    calls, choices = (sum(isinstance(node, kind) for node in nodes) for kind in (Call, Select))
    return operations_of_point(op) + (CALL_COST - 1) * calls + choices


@bounded
def operations(expr: Expr) -> int:
    """Arithmetic nodes of a value: what is computed from elements. Index arithmetic and its conditions do not count."""
    match expr:
        case Load():
            return 0
        case Reduce():
            return sum(map(operations, expr.sources))
    reads = any(isinstance(node, Load) for node in walk(expr))
    return int(reads and _is_arithmetic(expr)) + sum(map(operations, expr.children()))


def _nodes(expr: Expr) -> int:
    return sum(_is_arithmetic(node) for node in walk(expr))


def _is_arithmetic(expr: Expr) -> bool:
    return isinstance(expr, Binary | Unary | Call)


@dataclass(frozen=True, slots=True)
class Footprint:
    """What an access touches inside a depth: elements, cache lines and pages, per candidate."""

    elements: Array
    lines: Array
    pages: Array


def rows_of(access: Access, tile: dict[str, Array], count: int) -> Array:
    """How many rows (values of all dimensions but the last) an access touches inside a tile."""
    return math.prod(spans(access, tile, count)[:-1], start=np.ones(count))


def spans(access: Access, tile: dict[str, Array], count: int) -> list[Array]:
    """How many values each dimension's index takes inside a tile."""
    found = []
    for terms, size in zip(access.dims, access.shape, strict=True):
        if len(terms) == 1 and isinstance(terms[0][1], int) and abs(terms[0][1]) == 1:  # most are, and this is hot
            span = tile[terms[0][0]]
        else:
            span = np.ones(count)
            for axis, coefficient in terms:
                span = span + np.abs(coefficient) * (tile[axis] - 1)
        found.append(np.minimum(span, size))
    return found


def footprint(access: Access, tile: dict[str, Array], count: int) -> Footprint:
    """Exact for boxes with unit coefficients; for strided dimensions the bounding box."""
    ranges = spans(access, tile, count)
    if not ranges:
        one = np.ones(count)
        return Footprint(one, one, one)
    elements = math.prod(ranges, start=np.ones(count))
    size = elements * access.itemsize
    if access.packed:
        return Footprint(elements, np.ceil(size / LINE), np.ceil(size / PAGE))
    rows, width = elements / ranges[-1], ranges[-1] * access.itemsize
    whole = ranges[-1] >= access.shape[-1]  # full rows lie one after the other
    lines = np.where(whole, np.ceil(size / LINE), rows * np.ceil(width / LINE))
    row_bytes = access.shape[-1] * access.itemsize
    per_page = np.maximum(1.0, PAGE / row_bytes)
    pages = np.where(whole, np.ceil(size / PAGE), np.ceil(rows / per_page) * np.ceil(width / PAGE))
    return Footprint(elements, lines, pages)
