"""Regions: nests of parallel loops whose body is a function, called for shares of them by who runs the threads."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from tensorlang.dataclass import dataclass
from tensorlang.ir.expr import Expr, Load, Var
from tensorlang.ir.loops import STRIDED
from tensorlang.ir.stmt import For, Stmt
from tensorlang.ir.stmt import walk as statements
from tensorlang.target.llvm.arithmetic import binary
from tensorlang.target.llvm.expressions import index
from tensorlang.target.llvm.scope import Scope
from tensorlang.target.llvm.storage.frame import close_frame, open_frame, parameter, storage
from tensorlang.target.llvm.storage.liveness import mentions
from tensorlang.target.llvm.text import INDEX, Function, Value, identifier, literal
from tensorlang.target.llvm.threads.balance import DYNAMIC
from tensorlang.target.llvm.threads.shares import FIRST, LAST, Nest, nest

Emit = Callable[[Function, Scope, Stmt], None]
Repeat = Callable[[Function, Value, Value, Callable[[Value], None]], None]

_BLOCKS = 32
"""Blocks per thread that a range is cut into where threads take them as they become free."""
_LINE = 64


@dataclass(frozen=True, slots=True)
class Captured:
    """A name that the body uses: the operand here, and its parameter in the body's function."""

    name: str
    operand: str
    type: str
    parameter: str
    declaration: str


@dataclass(frozen=True, slots=True)
class Region:
    """The loops of one region, the symbol of the function that runs iterations of it, and what that captures.

    The function takes the context, the first iteration, the last one, the step, and what it captures.
    """

    nest: Nest
    body: str
    captured: list[Captured]

    @property
    def head(self) -> For:
        """The outermost loop."""
        return self.nest.loops[0]

    def asks(self, pragma: str) -> bool:
        """Whether the outermost loop has a pragma."""
        return (pragma, 1) in self.head.pragmas

    def call(self, bounds: list[str], context: str, operands: list[str]) -> str:
        """A call of the body for the iterations from the first to the last of `bounds`, in steps of its third."""
        typed = [f"{c.type} {o}" for c, o in zip(self.captured, operands, strict=True)]
        return f"call void @{self.body}({', '.join([f'ptr {context}', *(f'i64 {b}' for b in bounds), *typed])})"


def region_of(
    fn: Function, scope: Scope, loop: For, sizes: tuple[Var, ...], emit: Emit, repeat: Repeat
) -> tuple[Region, Value]:
    """The region that begins with a parallel loop, whose function is emitted, and how many iterations it has here."""
    loops = Nest((loop,)) if (STRIDED, 1) in loop.pragmas else nest(loop)
    count = index(fn, scope, loops.count)
    region = Region(loops, fn.module.unique(f"{fn.name}.{identifier(loop.var.name)}"), _captured(scope, loop, sizes))
    _body_function(fn, region, scope, emit, repeat)
    return region, count


def run_share(
    fn: Function, region: Region, context: str, operands: list[str], count: Value, of: tuple[Value, Value], taken: str
) -> None:
    """Run what falls to one of some threads (`of`: its number, and how many there are) of `count` iterations.

    `taken` counts the iterations that are taken, where threads take them as they become free.
    """
    thread, threads = of
    if region.asks(DYNAMIC):
        _run_free_blocks(fn, region, context, operands, count, threads, taken)
        return
    bounds = [thread.text, count.text, threads.text]
    if not region.asks(STRIDED):
        product = binary(fn, "mul", thread, count)
        ends = (product, binary(fn, "add", product, count))
        bounds = [*(fn.op(f"udiv i64 {end.text}, {threads.text}") for end in ends), "1"]
    fn.do(region.call(bounds, context, operands))


def counter(fn: Function) -> str:
    """A zero that all threads of a team count on, on a cache line of its own."""
    at = fn.alloca(f"[{_LINE} x i8]", _LINE)
    fn.do(f"store i64 0, ptr {at}, align 8")
    return at


def _captured(scope: Scope, loop: For, sizes: tuple[Var, ...]) -> list[Captured]:
    variables, buffers = _used(loop)
    variables |= {v.name for v in sizes}
    found: list[Captured] = []
    for name, held in scope.buffers.items():
        if name in buffers:
            local = f"%p{len(found)}.{identifier(name)}"
            found.append(Captured(name, held.pointer, "ptr", local, parameter(held, local)))
    for name, bound in scope.values.items():
        if name in variables:
            local = f"%p{len(found)}.{identifier(name)}"
            found.append(Captured(name, bound.text, bound.type, local, f"{bound.type} {local}"))
    return found


def _used(body: Stmt) -> tuple[set[str], set[str]]:
    """Names of the variables and of the buffers that a statement mentions."""
    variables, buffers, waiting = set[str](), set[str](), list[Expr]()
    for mentioned in map(mentions, statements(body)):
        buffers.update(buffer.name for buffer in mentioned.buffers)
        waiting += mentioned.exprs
    while waiting:
        node = waiting.pop()
        if isinstance(node, Var):
            variables.add(node.name)
            continue
        if isinstance(node, Load):
            buffers.add(node.buffer.name)
        waiting += node.children()
    return variables, buffers


def _body_function(outer: Function, region: Region, scope: Scope, emit: Emit, repeat: Repeat) -> None:
    """Iterations `%first` to `%last` of the region, or every `%step`-th, with the captured names as parameters."""
    captured, loop = region.captured, region.head
    declarations = ["ptr %context", "i64 %first", "i64 %last", "i64 %step", *(c.declaration for c in captured)]
    # A library calls it in one place. LLVM 22 would inline it there, and choose slower addresses: 2 % of a product.
    fn = Function(outer.module, region.body, declarations, internal=True, apart=outer.module.library)
    values = {c.name: Value(c.parameter, scope.values[c.name].dtype) for c in captured if c.type != "ptr"}
    first, last = Value("%first", INDEX), Value("%last", INDEX)
    inner = Scope({**values, FIRST.name: first, LAST.name: last}, {}, in_parallel=True)
    held = {c: scope.buffers[c.name] for c in captured if c.type == "ptr"}
    buffers = {c.name: storage(fn, inner, old.buffer, c.parameter, old.aligned) for c, old in held.items()}
    inner, piece = open_frame(fn, replace(inner, buffers=buffers), loop.body)
    if region.asks(STRIDED):
        lower, step = index(fn, inner, loop.lower), Value("%step", INDEX)

        def turn(number: Value) -> None:
            at = binary(fn, "add", first, binary(fn, "mul", number, step))
            emit(fn, inner.bind(loop.var.name, binary(fn, "add", lower, at)), loop.body)

        rest = binary(fn, "sub", binary(fn, "add", binary(fn, "sub", last, first), step), literal(1, INDEX))
        repeat(fn, literal(0, INDEX), fn.value(f"sdiv i64 {rest.text}, %step", INDEX), turn)
    else:
        emit(fn, inner, region.nest.share)
    close_frame(fn, piece)
    fn.finish()


def _run_free_blocks(
    fn: Function, region: Region, context: str, operands: list[str], count: Value, threads: Value, taken: str
) -> None:
    """Take blocks of iterations from the counter at `taken` until there are none left."""
    shares = binary(fn, "mul", threads, literal(_BLOCKS, INDEX))
    size = binary(fn, "max", fn.value(f"udiv i64 {count.text}, {shares.text}", INDEX), literal(1, INDEX))
    head, work, end = fn.fresh("take"), fn.fresh("work"), fn.fresh("end")
    fn.jump(head)
    fn.start(head)
    first = fn.value(f"atomicrmw add ptr {taken}, {size.typed} monotonic, align 8", INDEX)
    fn.branch(binary(fn, "lt", first, count), work, end)
    fn.start(work)
    last = binary(fn, "min", binary(fn, "add", first, size), count)
    fn.do(region.call([first.text, last.text, "1"], context, operands))
    fn.jump(head)
    fn.start(end)
