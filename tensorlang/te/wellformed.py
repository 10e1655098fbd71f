"""What nodes must satisfy that no builder made: those read from a file are held to the rules that builders keep."""

from __future__ import annotations

from collections import Counter
from typing import NoReturn

from tensorlang import dtypes
from tensorlang.errors import DefinitionError, InternalError
from tensorlang.ir import stmt
from tensorlang.ir.expr import Binary, Buffer, Const, Expr, Load, Var, rewrite
from tensorlang.ir.operators import DIVISION
from tensorlang.ir.stmt import INDEX, Allocate, For, Kernel, map_exprs, stmt_exprs
from tensorlang.ir.traverse import distinct, same
from tensorlang.ir.verify import complaint, verify
from tensorlang.location import caller
from tensorlang.te.axis import Axis, AxisKind
from tensorlang.te.check import check_array_name, check_axis_name, check_length, check_read, check_tensor_name
from tensorlang.te.define import check_names, check_reductions
from tensorlang.te.domain import INDEX_DTYPES, integer, shape_of
from tensorlang.te.operation import ComputeOp, HybridOp, Member, PlaceholderOp, Read, Reduce, Tensor
from tensorlang.te.reducer import Reducer


def check_node(node: object) -> None:
    """DefinitionError for a node that its builder would not make, if those that it refers to are well formed."""
    match node:
        case Var():
            check_array_name(node.name)
            dtypes.info(node.dtype)
        case Read():
            check_read(node.tensor.name, node.tensor.ndim, node.index)
        case Load():
            check_read(node.buffer.name, len(node.buffer.shape), node.index)
        case Reduce():
            _check_reduce(node)
        case Expr():
            dtypes.info(node.dtype)
            _require(not (wrong := complaint(node)), f"{wrong}: {node}")
            _require(not _divides_by_zero(node), f"division by zero: {node}")
        case Buffer():
            check_array_name(node.name)
            shape_of(node.shape, node.name)
            dtypes.info(node.dtype)
            _require(not (node.swizzled or node.panels), f"array {node.name} is laid out as no user says")
        case Axis():
            (check_array_name if node.kind is AxisKind.THREAD else lambda name: check_axis_name("axis", name))(
                node.name
            )
            for bound in (node.lower, node.extent):
                integer(bound, f"a bound of axis {node.name}")
        case Reducer():
            _check_reducer(node)
        case Tensor():
            _require(0 <= node.value_index < node.op.num_outputs, f"{node.op.name} has no output {node.value_index}")
        case PlaceholderOp():
            check_tensor_name(node.name)
            shape_of(node.shape, node.name)
            dtypes.info(node.dtype)
            _require(node.num_outputs == 1, f"input {node.name} is {node.num_outputs} arrays")
        case ComputeOp():
            _check_compute(node)
        case HybridOp():
            _check_hybrid(node)


def _require(holds: bool, otherwise: str) -> None:
    if not holds:
        _refuse(otherwise)


def _refuse(why: str) -> NoReturn:
    raise DefinitionError(why, caller())


def _divides_by_zero(node: Expr) -> bool:
    match node:
        case Binary(b=Const(value=value)):
            return node.op in DIVISION and value == 0 and dtypes.info(node.dtype).is_integer
    return False


def _dtypes(parts: tuple[Expr, ...]) -> tuple[str, ...]:
    return tuple(part.dtype for part in parts)


def _check_reducer(reducer: Reducer) -> None:
    check_axis_name("reducer", reducer.name)
    operands = {v.name: v.dtype for v in (*reducer.lhs, *reducer.rhs)}
    wanted = _dtypes(reducer.lhs)
    _require(len(operands) == 2 * len(wanted) > 0, f"reducer {reducer.name} has two operands of one name, or none")
    for parts in (reducer.rhs, reducer.result, reducer.identity):
        _require(_dtypes(parts) == wanted, f"reducer {reducer.name} combines {wanted}, and has {_dtypes(parts)}")
    _require(all(isinstance(i, Const) for i in reducer.identity), f"the identity of {reducer.name} is no constant")
    for node in (n for value in reducer.result for n in distinct(value)):
        own = not isinstance(node, Read | Reduce | Load)
        if isinstance(node, Var):
            own = operands.get(node.name) == node.dtype
        _require(own, f"the combiner of reducer {reducer.name} may use its operands only, got {node}")


def _check_reduce(node: Reduce) -> None:
    name, wanted = node.reducer.name, _dtypes(node.sources)
    _require(_dtypes(node.reducer.lhs) == wanted, f"{name} combines other elements than {wanted}")
    _require(not node.init or _dtypes(node.init) == wanted, f"init= of {name} has other dtypes than {wanted}")
    _require(node.where is None or node.where.dtype == "bool", f"where= of {name} must be a condition")
    _require(0 <= node.index < len(wanted), f"{name} gives no value {node.index}")
    _require(node.dtype == wanted[node.index], f"{name} of {wanted[node.index]} gives {node.dtype}")
    names = [a.name for a in node.axes]
    distinct_names = bool(names) and len(set(names)) == len(names)
    _require(distinct_names, f"{name} needs one or several reduce axes, each once, got {names}")
    _require(all(a.kind is AxisKind.REDUCE for a in node.axes), f"{name} runs over reduce axes, got {names}")


def _check_compute(op: ComputeOp) -> None:
    where = caller()
    check_tensor_name(op.name)
    check_length(op.name, (*op.body, *op.where), where)
    shape_of(op.shape, op.name)
    for axis in op.axes:
        starts = isinstance(axis.lower, Const) and axis.lower.value == 0
        _require(axis.kind is AxisKind.SPATIAL and starts and not axis.thread, f"axis {axis!r} is none of an array")
    names = [a.name for a in (*op.axes, *op.reduce_axes)]
    _require(len(set(names)) == len(names), f"{op.name} has two axes of one name: {names}")
    _require(bool(op.body), f"{op.name} computes an empty tuple")
    check_reductions(op.body, op.name, where)
    for part in op.body:
        axes = part.axes if isinstance(part, Reduce) else ()
        _require(_same_axes(axes, op.reduce_axes), f"{op.name} reduces over other axes than it says")
    check_names(op, where)
    _check_conditions(op)
    for part in (*op.body, *op.where):
        for node in distinct(part):
            _require(not isinstance(node, Load), f"{op.name} reads {node}, which is an element of no tensor")
            if isinstance(node, Var):
                allowed = ("int32",) if node.name in names else INDEX_DTYPES
                _require(node.dtype in allowed, f"{op.name} uses {node.name} as {node.dtype}, wanted {allowed[0]}")


def _check_conditions(op: ComputeOp) -> None:
    known = {a.name for a in op.axes} | {n.name for e in op.shape for n in distinct(e) if isinstance(n, Var)}
    for condition in op.where:
        _require(condition.dtype == "bool", f"where of {op.name} must be a condition, got {condition}")
        for node in distinct(condition):
            held = node.name in known if isinstance(node, Var) else not isinstance(node, Read | Reduce)
            _require(held, f"where of {op.name} is of its axes, got {node}")


def _same_axes(a: tuple[Axis, ...], b: tuple[Axis, ...]) -> bool:
    return len(a) == len(b) and all(
        x.name == y.name and same(x.extent, y.extent) and same(x.lower, y.lower) for x, y in zip(a, b)
    )


def _check_hybrid(op: HybridOp) -> None:
    """The rules of te.hybrid.script, and those of loop IR: nothing later looks at the types of a body again."""
    check_tensor_name(op.name)
    check_length(op.name, tuple(stmt_exprs(op.body)), caller())
    _require(len(op.updates) == len(op.outputs) > 0, f"{op.name} has no outputs, or not what each updates")
    for made, old in zip(op.outputs, op.updates):
        _require(made.scope == "global", f"output {made} of {op.name} is {made.scope}")
        if old is not None:
            alike = isinstance(old, Tensor) and old.dtype == made.dtype and len(old.shape) == len(made.shape)
            _require(alike and all(map(same, old.shape, made.shape)), f"{made} of {op.name} updates another array")
    statements = tuple(stmt.walk(op.body))
    loops = [s.var.name for s in statements if isinstance(s, For)]
    arrays = [b.name for b in op.outputs] + [s.buffer.name for s in statements if isinstance(s, Allocate)]
    twice = [n for n, count in (Counter(loops) + Counter(arrays)).items() if count > 1]
    _require(not twice, f"{op.name} has two loops or arrays of one name: {twice}")
    _require(not any(isinstance(s, Allocate) and s.threads for s in statements), f"{op.name} has arrays of threads")
    _check_loops(op, {s.var.name: s for s in statements if isinstance(s, For)}, set(arrays))
    try:
        verify(_kernel(op, set(loops)), lanes=False)
    except InternalError as error:
        _refuse(error.message)


def _check_loops(op: HybridOp, loops: dict[str, For], arrays: set[str]) -> None:
    for axis in (*op.axes, *(() if op.time is None else (op.time,))):
        _require(axis.name in loops, f"{op.name} has no loop {axis.name}")
    for member in op.members:
        _check_member(op, member, set(loops), arrays)


def _check_member(op: HybridOp, member: Member, loops: set[str], arrays: set[str]) -> None:
    named = member.loops.keys() >= {axis.name for axis in member.op.axes}
    held = loops.issuperset(member.loops.values()) and arrays.issuperset(member.arrays)
    whole = named and held and len(member.arrays) == member.op.num_outputs
    _require(whole, f"{member.op.name} in {op.name} has loops or arrays that are not there")


def _kernel(op: HybridOp, loops: set[str]) -> Kernel:
    """The body of an operation as a kernel over the arrays of what it reads, under names that no user gives."""
    inputs = {t: Buffer(f"<{k}>", t.shape, t.dtype) for k, t in enumerate(op.input_tensors)}

    def rule(node: Expr) -> Expr | None:
        return Load(inputs[node.tensor], node.index) if isinstance(node, Read) else None

    body = map_exprs(op.body, lambda e: rewrite(e, rule))
    allocated = (s.buffer for s in stmt.walk(body) if isinstance(s, Allocate))
    params = (*inputs.values(), *op.outputs)
    shapes = [e for b in (*params, *allocated) for e in b.shape]
    used = {n.name for e in (*shapes, *stmt_exprs(body)) for n in distinct(e) if isinstance(n, Var)}
    sizes = tuple(Var(name, INDEX) for name in sorted(used - loops))
    return Kernel(op.name, params, sizes, tuple(b.name for b in op.outputs), body)
