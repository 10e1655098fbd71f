"""The arrays that an operation touches, as affine functions of its axes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from tensorlang import dtypes
from tensorlang.autotune.model.nest import Access
from tensorlang.errors import DefinitionError
from tensorlang.ir.affine import affine
from tensorlang.ir.expr import Binary, Buffer, Call, Const, Expr, Load, Select, Unary, Var, walk
from tensorlang.ir.stmt import Store, stmt_exprs
from tensorlang.ir.stmt import walk as walk_stmt
from tensorlang.ir.traverse import bounded
from tensorlang.te.operation import ComputeOp, HybridOp, Reduce, buffers, loads

_CALL_COST = 12


def extent(expr: Expr) -> int:
    """The value of a constant extent."""
    if not isinstance(expr, Const):
        raise DefinitionError(f"tuning needs constant extents, got {expr}")
    return int(expr.value)


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
    shape = tuple(extent(n) for n in buffer.shape)
    return Access(buffer.name, dtypes.info(buffer.dtype).bytes, shape, dims, write)


def _terms(index: Expr, axes: Mapping[str, int]) -> tuple[tuple[str, int], ...]:
    """The axes of an index with their coefficients; of a quasi-affine or data-dependent one, with one each."""
    form = affine(index)
    if form is None:
        names = dict.fromkeys(n.name for n in walk(index) if isinstance(n, Var))
        return tuple((name, 1) for name in names if name in axes)
    return tuple((name, coefficient) for name, coefficient in form.items() if name in axes)


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
    return operations_of_point(op) + (_CALL_COST - 1) * calls + choices


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
