"""The interpreter: what a kernel means. It turns loop IR into Python source once, and runs that on NumPy arrays.

Every operation rounds and wraps as NumPy's would (`scalar`), every access is checked against the shape of its
buffer, and scratch starts as NaN or a bit pattern. Parallel and bound loops can run in another order, which
exposes what is not really independent; vectorized loops run one lane after the other.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import field
from random import Random
from typing import Any, Literal, TypeAlias

import numpy as np

from tensorlang import dtypes
from tensorlang.dataclass import dataclass
from tensorlang.errors import InternalError, KernelError
from tensorlang.ir import scalar
from tensorlang.ir.empty_rounds import skipping_empty_rounds
from tensorlang.ir.expr import Buffer, Expr, Var
from tensorlang.ir.idle_rounds import without_idle_rounds
from tensorlang.ir.interpret_expr import Source, extent_text, text
from tensorlang.ir.name_parts import name_parts, parts
from tensorlang.ir.stmt import (
    Allocate,
    AtomicUpdate,
    CallMachine,
    CallPython,
    Fail,
    For,
    If,
    Kernel,
    Let,
    LoopKind,
    Prefetch,
    Seq,
    Stmt,
    Store,
)

Order: TypeAlias = Literal["forward", "reversed", "shuffled"]
Array: TypeAlias = np.ndarray[Any, Any]

_ORDERS = ("forward", "reversed", "shuffled")
_DEEPEST = 12  # Python refuses more than 20 nested loops in one function


@dataclass(frozen=True, slots=True)
class Interpreted:
    """A kernel as a Python function, with the source it was made from."""

    kernel: Kernel
    source: str
    function: Callable[..., None] = field(compare=False)

    def __call__(
        self, arrays: Mapping[str, Array], sizes: Mapping[str, int], order: Order = "forward", seed: int = 0
    ) -> None:
        """Run on arrays by parameter name and size values by name; outputs are written in place.

        Raises KernelError when the kernel records a fault, InternalError on an access outside a buffer.
        """
        if order not in _ORDERS:
            raise ValueError(f"order {order!r}: expected one of {', '.join(_ORDERS)}")
        inputs = [arrays[p.name] for p in self.kernel.params]
        values = [int(sizes[v.name]) for v in self.kernel.sizes]
        faults: list[str] = []
        with np.errstate(all="ignore"):
            self.function(_sequence(order, seed), faults.append, *inputs, *values)
        if faults:
            raise KernelError(faults[0])


def run(
    kernel: Kernel,
    arrays: Mapping[str, Array],
    sizes: Mapping[str, int] | None = None,
    order: Order = "forward",
    seed: int = 0,
) -> None:
    """Run a kernel once on NumPy arrays (see `Interpreted.__call__`)."""
    translate(kernel)(arrays, sizes or {}, order, seed)


def translate(kernel: Kernel) -> Interpreted:
    """Turn a kernel into a Python function."""
    kernel = name_parts(kernel)
    source = Source()
    params = [source.buffer(p.name) for p in kernel.params]
    sizes = [source.variable(v) for v in kernel.sizes]
    writer = _Writer(source, dict(kernel.callbacks))
    for buffer, name in zip(kernel.params, params, strict=True):
        writer.accessors(buffer, name, 1)
    body = skipping_empty_rounds(kernel.body, frozenset(v.name for v in kernel.sizes))
    writer.stmt(without_idle_rounds(body), 1, 0)
    writer.line(1, "return None")
    code = "\n".join([f"def kernel({', '.join(['sequence', 'fault', *params, *sizes])}):", *writer.lines])
    namespace = source.globals
    exec(compile(code, f"<interpreted {kernel.name}>", "exec"), namespace)
    return Interpreted(kernel, code, namespace["kernel"])


def evaluate(expr: Expr, values: Mapping[Var, Any]) -> Any:
    """The value of one expression without loads: a Python int or bool, or a NumPy float of its dtype."""
    source = Source()
    names = [source.variable(var, of_index=False) for var in values]
    lets, whole = parts(expr)
    lines: list[str] = []
    for var, value in lets:
        code = text(source, value)
        lines.append(f" {source.variable(var, of_index=False)} = {code}")
    lines.append(f" return {text(source, whole)}")
    exec("\n".join([f"def function({', '.join(names)}):", *lines]), source.globals)
    function = source.globals["function"]
    with np.errstate(all="ignore"):
        return function(*values.values())


def _sequence(order: Order, seed: int) -> Callable[[int, int], Any]:
    random = Random(seed)

    def shuffled(low: int, high: int) -> list[int]:
        values = list(range(low, high))
        random.shuffle(values)
        return values

    if order == "shuffled":
        return shuffled
    return range if order == "forward" else lambda low, high: range(high - 1, low - 1, -1)


class _Writer:
    """Lines of Python for statements; one space of indent a level."""

    def __init__(self, source: Source, callbacks: Mapping[str, Callable[..., Any]]) -> None:
        self.source = source
        self.callbacks = callbacks
        self.lines: list[str] = []

    def line(self, indent: int, code: str) -> None:
        self.lines.append(" " * indent + code)

    def expr(self, expr: Expr) -> str:
        return text(self.source, expr)

    def stmt(self, stmt: Stmt, indent: int, loops: int) -> None:
        """Write a statement that stands inside `loops` loops of the current Python function."""
        match stmt:
            case For():
                self._for(stmt, indent, loops)
            case Store() | AtomicUpdate():
                self._store(stmt if isinstance(stmt, Store) else stmt.stored, indent)
            case Prefetch():
                self.line(indent, "pass")
            case If():
                self.line(indent, f"if {self.expr(stmt.cond)}:")
                self.stmt(stmt.then, indent + 1, loops)
                if stmt.orelse is not None:
                    self.line(indent, "else:")
                    self.stmt(stmt.orelse, indent + 1, loops)
            case Seq():
                for child in stmt.body:
                    self.stmt(child, indent, loops)
                if not stmt.body:
                    self.line(indent, "pass")
            case Allocate():
                self._allocate(stmt, indent, loops)
            case Let():
                value = self.expr(stmt.value)
                self._scoped(stmt.var, lambda name: self.line(indent, f"{name} = {value}"), stmt.body, indent, loops)
            case Fail():
                self.line(indent, f"fault({stmt.message!r})")
            case CallPython():
                self._call_python(stmt, indent)
            case CallMachine():
                self.stmt(stmt.meaning, indent, loops)

    def _store(self, stmt: Store, indent: int) -> None:
        index = "".join(f"{self.expr(i)}, " for i in stmt.index)
        self.line(indent, f"{self.source.buffers[stmt.buffer.name]}_store({index}{self.expr(stmt.value)})")

    def _for(self, stmt: For, indent: int, loops: int) -> None:
        if loops == _DEEPEST:
            name = self.source.fresh("inner")
            self.line(indent, f"def {name}():")
            self._for(stmt, indent + 1, 0)
            self.line(indent, f"{name}()")
            return
        bounds = f"{self.expr(stmt.lower)}, {self.expr(stmt.upper)}"
        order = "sequence" if stmt.kind in (LoopKind.PARALLEL, LoopKind.BOUND) else "range"
        self._scoped(
            stmt.var,
            lambda name: self.line(indent, f"for {name} in {order}({bounds}):"),
            stmt.body,
            indent + 1,
            loops + 1,
        )

    def _scoped(self, var: Var, begin: Callable[[str], None], body: Stmt, indent: int, loops: int) -> None:
        """Write the line that sets a variable, then the body in which its name means that."""
        outer, interval = self.source.variables.get(var.name), self.source.intervals.get(var.name)
        begin(self.source.variable(var))
        self.stmt(body, indent, loops)
        del self.source.variables[var.name], self.source.intervals[var.name]
        if outer is not None and interval is not None:
            self.source.variables[var.name], self.source.intervals[var.name] = outer, interval

    def _allocate(self, stmt: Allocate, indent: int, loops: int) -> None:
        outer = self.source.buffers.get(stmt.buffer.name)
        dtype = stmt.buffer.dtype
        full = self.source.shared(("full",), np.full)
        fill = self.source.shared(("unwritten", dtype), scalar.unwritten(dtype))
        storage = self.source.shared(("storage", dtype), dtypes.info(dtype).numpy)
        name = self.source.buffer(stmt.buffer.name)
        shape = "".join(f"{extent_text(self.source, extent)}, " for extent in stmt.buffer.shape)
        self.line(indent, f"{name} = {full}(({shape}), {fill}, {storage})")
        self.accessors(stmt.buffer, name, indent)
        self.stmt(stmt.body, indent, loops)
        if outer is not None:
            self.source.buffers[stmt.buffer.name] = outer

    def accessors(self, buffer: Buffer, name: str, indent: int) -> None:
        """Write the checked load and store of a buffer."""
        rank = len(buffer.shape)
        index = [f"i{n}" for n in range(rank)]
        listed = ", ".join(index)
        tuple_text = f"({listed},)" if rank else "()"
        outside = " or ".join(f"not 0 <= i{n} < {name}_d{n}" for n in range(rank)) or "False"
        complain = self.source.shared(("complain", buffer.name), _complaint(buffer))
        for n in range(rank):
            self.line(indent, f"{name}_d{n} = {name}.shape[{n}]")
        element = f"{name}[{tuple_text}]"
        if not dtypes.info(buffer.dtype).is_float:
            self.line(indent, f"{name}_item = {name}.item")
            element = f"{name}_item({listed})"
        self.line(indent, f"def {name}_load({listed}):")
        self.line(indent + 1, f"if {outside}: {complain}('read', {tuple_text}, {name})")
        self.line(indent + 1, f"return {element}")
        self.line(indent, f"def {name}_store({', '.join([*index, 'x'])}):")
        self.line(indent + 1, f"if {outside}: {complain}('write', {tuple_text}, {name})")
        self.line(indent + 1, f"{name}[{tuple_text}] = x")

    def _call_python(self, stmt: CallPython, indent: int) -> None:
        if stmt.name not in self.callbacks:
            raise InternalError(f"the kernel calls {stmt.name}, which is not among its callbacks")
        function = self.source.shared(("callback", stmt.name), self.callbacks[stmt.name])
        arrays = ", ".join(self.source.buffers[b.name] for b in stmt.buffers)
        self.line(indent, f"{function}({arrays})")


def _complaint(buffer: Buffer) -> Callable[[str, tuple[int, ...], Array], None]:
    def complain(access: str, index: tuple[int, ...], array: Array) -> None:
        element = f"{buffer.name}[{', '.join(map(str, index))}]"
        raise InternalError(f"a kernel would {access} {element}, outside its shape {array.shape} ({buffer})")

    return complain
