"""The verifier: what every kernel must satisfy, whichever pass made it."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from typing import NoReturn, TypeAlias

from tensorlang import dtypes
from tensorlang.errors import InternalError
from tensorlang.ir import intrinsics
from tensorlang.ir.expr import Binary, Buffer, Call, Cast, Const, Expr, Load, Select, Unary, Var, walk
from tensorlang.ir.loops import uses
from tensorlang.ir.machine import ACCUMULATES
from tensorlang.ir.operators import ARITHMETIC, BITWISE, COMPARE, LOGICAL
from tensorlang.ir.printer import stmt_text
from tensorlang.ir.stmt import (
    INDEX,
    Allocate,
    AsyncCopy,
    AtomicUpdate,
    BoxCopy,
    CallMachine,
    CallPython,
    For,
    If,
    Kernel,
    Launch,
    Let,
    LoopKind,
    Prefetch,
    Seq,
    Stmt,
    Store,
    ThreadReduce,
)
from tensorlang.ir.stmt import walk as statements

_SCOPES = ("global", "local", "shared", "warp")
_WINDOW = 12  # lines of the faulty statement that a message shows


Known: TypeAlias = dict[int, tuple[Expr, dict[str, Var], dict[str, Buffer]]]
"""Expressions that are well formed by identity, with their variables and buffers, which have to be in scope."""


def verify(kernel: Kernel, lanes: bool = True, known: Known | None = None) -> None:
    """Raise InternalError, with the place printed, unless the kernel is well formed.

    Checked: variables are defined once on their path and before use; buffers are declared, indexed with their
    rank in int64; dtypes agree; stores go to outputs or scratch; vectorized loops hold no loop but serial
    and unrolled ones whose bounds do not vary over lanes. `lanes=False` leaves out what is said of vectorized
    loops, which holds only after the pass that makes them legal. Of expressions that are `known` from an earlier kernel
    only the scopes are checked; those of this one are added.
    """
    names = [p.name for p in kernel.params]
    if len(set(names)) != len(names):
        raise InternalError(f"kernel {kernel.name} has two parameters of one name: {', '.join(names)}")
    unknown = set(kernel.outputs) - set(names)
    if unknown:
        raise InternalError(f"kernel {kernel.name} writes {', '.join(sorted(unknown))}, which it has no parameter for")
    checker = _Checker(kernel, lanes, {} if known is None else known)
    for size in kernel.sizes:
        if size.dtype != INDEX:
            raise InternalError(f"size {size.name} of kernel {kernel.name} is {size.dtype}, not {INDEX}")
        checker.variables[size.name] = size.dtype
    for param in kernel.params:
        checker.declare(param, kernel.body)
    checker.stmt(kernel.body, None)


class _Checker:
    def __init__(self, kernel: Kernel, lanes: bool, known: Known) -> None:
        self.kernel = kernel
        self.lanes = lanes
        self.known = known
        self.variables: dict[str, str] = {}
        self.buffers: dict[str, Buffer] = {}
        self.callbacks = {name for name, _ in kernel.callbacks}
        self.sizes = {v.name for v in kernel.sizes}

    def fault(self, stmt: Stmt, message: str) -> NoReturn:
        """Raise, showing the first lines of the statement."""
        lines = stmt_text(stmt).splitlines()
        shown = [f"    {line}" for line in lines[:_WINDOW]]
        more = [f"    ... {len(lines) - _WINDOW} lines more"] if len(lines) > _WINDOW else []
        raise InternalError("\n".join([f"kernel {self.kernel.name}: {message}", *shown, *more]))

    def stmt(self, stmt: Stmt, lane: str | None) -> None:
        """Check a statement; `lane` is the variable of the vectorized loop around it."""
        match stmt:
            case For():
                self._for(stmt, lane)
            case Store():
                self._store(stmt)
            case AtomicUpdate():
                self._store(stmt.stored)
            case If():
                self._typed(stmt, stmt.cond, "bool", "the condition")
                self.stmt(stmt.then, lane)
                if stmt.orelse is not None:
                    self.stmt(stmt.orelse, lane)
            case Seq():
                for child in stmt.body:
                    self.stmt(child, lane)
            case Allocate():
                self.declare(stmt.buffer, stmt)
                self.stmt(stmt.body, lane)
                del self.buffers[stmt.buffer.name]
            case Let():
                self._typed(stmt, stmt.value, stmt.var.dtype, f"the value of {stmt.var.name}")
                self._with_variable(stmt, stmt.var, stmt.body, lane)
            case CallMachine():
                self._call_machine(stmt, lane)
            case _:
                self._leaf(stmt)

    def _leaf(self, stmt: Stmt) -> None:
        match stmt:
            case Prefetch():
                self._access(stmt, stmt.buffer, stmt.index)
            case CallPython():
                self._call_python(stmt)
            case AsyncCopy():
                self._access(stmt, stmt.buffer, stmt.index)
                self._access(stmt, stmt.source, stmt.source_index)
                if stmt.valid is not None:
                    self._typed(stmt, stmt.valid, "bool", "where a copy is valid")
            case BoxCopy():
                self._access(stmt, stmt.buffer, stmt.index)
                self._access(stmt, stmt.source, stmt.source_index)
            case ThreadReduce():
                for (buffer, index), value in zip(stmt.targets, stmt.values, strict=True):
                    self._store(Store(buffer, index, value))
            case Launch():
                self._launch(stmt)

    def declare(self, buffer: Buffer, stmt: Stmt) -> None:
        """Bring a buffer into scope."""
        if buffer.name in self.buffers:
            self.fault(stmt, f"buffer {buffer.name} is declared twice on one path")
        if buffer.scope not in _SCOPES:
            self.fault(stmt, f"buffer {buffer.name} has the scope {buffer.scope!r}, not one of {', '.join(_SCOPES)}")
        for extent in buffer.shape:
            used = {node.name for node in walk(extent) if isinstance(node, Var)}
            if used - self.sizes or not dtypes.info(extent.dtype).is_integer:
                self.fault(stmt, f"the shape of {buffer} is not made of integers and size parameters only")
        self.buffers[buffer.name] = buffer

    def _for(self, stmt: For, lane: str | None) -> None:
        if stmt.var.dtype != INDEX:
            self.fault(stmt, f"loop variable {stmt.var.name} is {stmt.var.dtype}, not {INDEX}")
        for bound in (stmt.lower, stmt.upper):
            self._typed(stmt, bound, INDEX, "a loop bound")
        if (stmt.kind is LoopKind.BOUND) != bool(stmt.thread):
            self.fault(stmt, f"a {stmt.kind.value} loop has the thread tag {stmt.thread!r}")
        if lane is not None:
            if stmt.kind not in (LoopKind.SERIAL, LoopKind.UNROLLED):
                self.fault(stmt, f"a {stmt.kind.value} loop stands inside the vectorized loop over {lane}")
            if uses(stmt.lower, lane) or uses(stmt.upper, lane):
                self.fault(stmt, f"the bounds of a loop vary over the lanes {lane} of the vectorized loop around it")
        if stmt.kind is LoopKind.VECTORIZED and self.lanes:
            lane = stmt.var.name
        self._with_variable(stmt, stmt.var, stmt.body, lane)

    def _with_variable(self, stmt: Stmt, var: Var, body: Stmt, lane: str | None) -> None:
        if var.name in self.variables:
            self.fault(stmt, f"variable {var.name} is defined twice on one path")
        self.variables[var.name] = var.dtype
        self.stmt(body, lane)
        del self.variables[var.name]

    def _store(self, stmt: Store) -> None:
        self._access(stmt, stmt.buffer, stmt.index)
        self._typed(stmt, stmt.value, stmt.buffer.dtype, f"the value stored into {stmt.buffer.name}")
        if stmt.buffer in self.kernel.params and stmt.buffer.name not in self.kernel.outputs:
            self.fault(stmt, f"{stmt.buffer.name} is written but is not an output")

    def _call_python(self, stmt: CallPython) -> None:
        if stmt.name not in self.callbacks:
            self.fault(stmt, f"{stmt.name} is not among the callbacks of the kernel")
        for buffer in stmt.buffers:
            self._declared(stmt, buffer)

    def _call_machine(self, stmt: CallMachine, lane: str | None) -> None:
        if len(stmt.views) != len(stmt.code.params):
            self.fault(stmt, f"{stmt.code.name} works on {len(stmt.code.params)} arrays, got {len(stmt.views)}")
        for param, view in zip(stmt.code.params, stmt.views, strict=True):
            self._access(stmt, view.buffer, view.index)
            rank = len(param.buffer.shape)
            if len(view.dims) != rank or len(view.steps) != rank or view.buffer.dtype != param.buffer.dtype:
                self.fault(stmt, f"a tile of {view.buffer} does not fit {param.buffer} of {stmt.code.name}")
        if stmt.accumulates is not None:
            self._typed(stmt, stmt.accumulates, ACCUMULATES.dtype, f"whether {stmt.code.name} accumulates")
        self.stmt(stmt.meaning, lane)

    def _launch(self, stmt: Launch) -> None:
        kernel = stmt.kernel
        if len(stmt.scalars) != len(kernel.scalars):
            self.fault(stmt, f"{kernel.name} takes {len(kernel.scalars)} scalars, got {len(stmt.scalars)}")
        for var, value in zip(kernel.scalars, stmt.scalars, strict=True):
            self._typed(stmt, value, var.dtype, f"the scalar {var.name}")
        for buffer in kernel.params:
            self._declared(stmt, buffer)
        callers = {p.name for p in self.kernel.params} - set(self.kernel.outputs)
        stored = {s.buffer.name for s in statements(kernel.body) if isinstance(s, Store | AtomicUpdate)}
        for name in sorted(stored & callers):
            self.fault(stmt, f"{name} is written but is not an output")

    def _declared(self, stmt: Stmt, buffer: Buffer) -> None:
        known = self.buffers.get(buffer.name)
        if known is None:
            self.fault(stmt, f"buffer {buffer.name} is used outside its scope")
        if known is not buffer and known != buffer:
            self.fault(stmt, f"buffer {buffer.name} is used as {buffer} ({buffer.scope}), declared as {known}")

    def _access(self, stmt: Stmt, buffer: Buffer, index: tuple[Expr, ...]) -> None:
        self._declared(stmt, buffer)
        self._indexed(stmt, buffer, index)
        for part in index:
            self._typed(stmt, part, INDEX, f"an index of {buffer.name}")

    def _indexed(self, stmt: Stmt, buffer: Buffer, index: tuple[Expr, ...]) -> None:
        if len(index) != len(buffer.shape):
            self.fault(stmt, f"{buffer} has {len(buffer.shape)} dimensions, indexed with {len(index)}")
        for part in index:
            if part.dtype != INDEX:
                self.fault(stmt, f"an index of {buffer.name} is {part.dtype}, expected {INDEX}: {part}")

    def _typed(self, stmt: Stmt, expr: Expr, dtype: str, what: str) -> None:
        if expr.dtype != dtype:
            self.fault(stmt, f"{what} is {expr.dtype}, expected {dtype}: {expr}")
        _, variables, buffers = self.known.get(id(expr)) or self._formed(stmt, expr)
        for var in variables.values():
            known = self.variables.get(var.name)
            if known is None:
                self.fault(stmt, f"variable {var.name} is used outside its scope: {var}")
            if known != var.dtype:
                self.fault(stmt, f"variable {var.name} is used as {var.dtype}, defined as {known}: {var}")
        for buffer in buffers.values():
            self._declared(stmt, buffer)

    def _formed(self, stmt: Stmt, expr: Expr) -> tuple[Expr, dict[str, Var], dict[str, Buffer]]:
        """Check an expression, scopes aside; return what has to be in scope."""
        variables, buffers = dict[str, Var](), dict[str, Buffer]()
        for node in walk(expr):
            match node:
                case Var():
                    if variables.setdefault(node.name, node).dtype != node.dtype:
                        self.fault(stmt, f"variable {node.name} has two dtypes in one expression: {expr}")
                case Load():
                    other = buffers.setdefault(node.buffer.name, node.buffer)
                    if other is not node.buffer and other != node.buffer:
                        self.fault(stmt, f"buffer {node.buffer.name} is two different ones in one expression: {expr}")
                    self._indexed(stmt, node.buffer, node.index)
                case _:
                    wrong = complaint(node)
                    if wrong:
                        self.fault(stmt, f"{wrong}: {node}")
        found = self.known[id(expr)] = expr, variables, buffers
        return found


def complaint(node: Expr) -> str:
    """What is wrong with one node that is neither a variable nor an element, its operands aside."""
    match node:
        case Const():
            return _constant(node)
        case Binary():
            return _binary(node.op, node.a.dtype, node.b.dtype, node.dtype)
        case Unary():
            return _unary(node)
        case Cast():
            return "a cast to its own dtype" if node.value.dtype == node.dtype else ""
        case Select():
            return _same((node.then, node.orelse), node.dtype) or _same((node.cond,), "bool")
        case Call():
            return _call(node)
    return f"{type(node).__name__} does not belong into loop IR"


def _same(operands: Iterable[Expr], dtype: str) -> str:
    wrong = [o.dtype for o in operands if o.dtype != dtype]
    return f"an operand is {wrong[0]}, expected {dtype}" if wrong else ""


def _constant(node: Const) -> str:
    wanted, low, high = _literals(node.dtype)
    if type(node.value) is not wanted:
        return f"a {node.dtype} literal holds a Python {type(node.value).__name__}"
    return "" if wanted is float or low <= node.value <= high else f"a literal does not fit {node.dtype}"


@cache
def _literals(dtype: str) -> tuple[type, float, float]:
    """What Python holds a literal as, and the smallest and the largest one."""
    d = dtypes.info(dtype)
    return float if d.is_float else bool if d.kind == "bool" else int, *dtypes.limits(dtype)


@cache
def _binary(op: str, a: str, b: str, dtype: str) -> str:
    kind = dtypes.info(a).kind
    if a != b:
        return f"operands of {op} are {a} and {b}"
    if op in COMPARE or op in LOGICAL:
        if op in LOGICAL and kind != "bool":
            return f"{op} of {a}"
        return "" if dtype == "bool" else f"{op} gives {dtype}"
    if op not in ARITHMETIC and op not in BITWISE:
        return f"unknown operation {op}"
    if (kind == "bool" and op not in ("min", "max")) or (kind == "float" and op in BITWISE):
        return f"{op} of {a}"
    if op == "div" and kind != "float":
        return f"div of {a}"
    return "" if dtype == a else f"{op} of {a} gives {dtype}"


def _unary(node: Unary) -> str:
    kind = dtypes.info(node.a.dtype).kind
    allowed = {"neg": ("int", "uint", "float"), "not": ("bool",), "invert": ("int", "uint")}
    if node.op not in allowed:
        return f"unknown operation {node.op}"
    if kind not in allowed[node.op]:
        return f"{node.op} of {node.a.dtype}"
    return _same((node.a,), node.dtype)


def _call(node: Call) -> str:
    row = intrinsics.TABLE.get(node.name)
    if row is None:
        return f"unknown intrinsic {node.name}"
    if len(node.args) != row.arity:
        return f"{node.name} takes {row.arity} operands, got {len(node.args)}"
    if not row.takes(node.args[0].dtype):
        return f"{node.name} of {node.args[0].dtype}"
    result = row.result(node.args[0].dtype)
    return _same(node.args, node.args[0].dtype) or ("" if result == node.dtype else f"{node.name} gives {result}")
