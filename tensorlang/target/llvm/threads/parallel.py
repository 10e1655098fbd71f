"""Parallel loops: their body becomes a function, and a team of OpenMP threads shares the iterations out.

A nest of parallel loops is one region. Threads run one block of it each, or blocks as they become free, or every
so many iterations of it in turn. A team of one calls the body directly.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

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
from tensorlang.target.llvm.threads import team as teams
from tensorlang.target.llvm.threads.balance import DYNAMIC
from tensorlang.target.llvm.threads.shares import FIRST, LAST, Nest, nest

Emit = Callable[[Function, Scope, Stmt], None]
Repeat = Callable[[Function, Value, Value, Callable[[Value], None]], None]

_BLOCKS = 32
"""Blocks per thread that a range is cut into where threads take them as they become free."""
_LINE = 64


@dataclass(frozen=True, slots=True)
class _Captured:
    """A name that the body uses: the operand here, and its parameter in the body's function."""

    name: str
    operand: str
    type: str
    parameter: str
    declaration: str


@dataclass(frozen=True, slots=True)
class _Region:
    """The loops of one region, the symbol of the function that runs iterations of it, and what that captures.

    The function takes the context, the first iteration, the last one, the step, and what it captures.
    """

    nest: Nest
    body: str
    captured: list[_Captured]

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


def parallel_loop(fn: Function, scope: Scope, loop: For, sizes: tuple[Var, ...], emit: Emit, repeat: Repeat) -> None:
    """Emit a parallel loop. Nested ones run in its region or serially: `scope.in_parallel` must not be set."""
    loops = Nest((loop,)) if (STRIDED, 1) in loop.pragmas else nest(loop)
    count = index(fn, scope, loops.count)
    captured = _captured(scope, loops.loops[0], sizes)
    region = _Region(loops, fn.module.unique(f"{fn.name}.{identifier(loop.var.name)}"), captured)
    _body_function(fn, region, scope, emit, repeat)
    operands = [c.operand for c in captured]
    with fn.when(binary(fn, "lt", literal(0, INDEX), count)):
        if fn.target.cores == 1:
            fn.do(region.call(["0", count.text, "1"], "%context", operands))
        else:
            _team_function(fn, region)
            _launch(fn, region, count, operands)


def _launch(fn: Function, region: _Region, count: Value, operands: list[str]) -> None:
    """Run the region by a team, or in this thread alone."""
    helpers = teams.take_helpers(fn, binary(fn, "min", count, literal(fn.target.cores, INDEX)))
    alone, team, join = fn.fresh("alone"), fn.fresh("team"), fn.fresh("join")
    fn.branch(binary(fn, "eq", helpers, literal(0, INDEX)), alone, team)
    fn.start(alone)
    fn.do(region.call(["0", count.text, "1"], "%context", operands))
    fn.jump(join)
    fn.start(team)
    counters = [("ptr", _counter(fn)) for _ in range(_counters(region))]
    slots = [("ptr", "%context"), ("i64", count.text), *counters, *teams.place_of_caller(fn)]
    slots += [(c.type, o) for c, o in zip(region.captured, operands, strict=True)]
    block = fn.alloca(f"[{len(slots)} x i64]", 8 * len(slots))
    for number, (type_, operand) in enumerate(slots):
        fn.do(f"store {type_} {operand}, ptr {fn.field(block, 8 * number)}, align 8")
    threads = binary(fn, "add", helpers, literal(1, INDEX))
    start = fn.module.import_function("GOMP_parallel", "void", "ptr, ptr, i32, i32")
    size = fn.value(f"trunc {threads.typed} to i32", "int32")
    fn.do(f"call void {start}(ptr @{region.body}.team, ptr {block}, {size.typed}, i32 0)")
    teams.give_back(fn, helpers)
    fn.jump(join)
    fn.start(join)


def _counters(region: _Region) -> int:
    """How many counters a team has: of the helpers that have begun, and of the iterations that are taken."""
    return 2 if region.asks(DYNAMIC) else 1


def _counter(fn: Function) -> str:
    """A zero that all threads of a team count on, on a cache line of its own."""
    at = fn.alloca(f"[{_LINE} x i8]", _LINE)
    fn.do(f"store i64 0, ptr {at}, align 8")
    return at


def _captured(scope: Scope, loop: For, sizes: tuple[Var, ...]) -> list[_Captured]:
    variables, buffers = _used(loop)
    variables |= {v.name for v in sizes}
    found: list[_Captured] = []
    for name, held in scope.buffers.items():
        if name in buffers:
            local = f"%p{len(found)}.{identifier(name)}"
            found.append(_Captured(name, held.pointer, "ptr", local, parameter(held, local)))
    for name, bound in scope.values.items():
        if name in variables:
            local = f"%p{len(found)}.{identifier(name)}"
            found.append(_Captured(name, bound.text, bound.type, local, f"{bound.type} {local}"))
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


def _body_function(outer: Function, region: _Region, scope: Scope, emit: Emit, repeat: Repeat) -> None:
    """Iterations `%first` to `%last` of the region, or every `%step`-th, with the captured names as parameters."""
    captured, loop = region.captured, region.head
    declarations = ["ptr %context", "i64 %first", "i64 %last", "i64 %step", *(c.declaration for c in captured)]
    fn = Function(outer.module, region.body, declarations, internal=True)
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


def _team_function(outer: Function, region: _Region) -> None:
    """What every thread of a team runs: the iterations that fall to it."""
    fn = Function(outer.module, f"{region.body}.team", ["ptr %block"], internal=True)
    counters = ["ptr"] * _counters(region)
    place = ["i64"] * teams.words_of_place(fn)
    types = ["ptr", "i64", *counters, *place, *(c.type for c in region.captured)]
    loaded = [fn.op(f"load {t}, ptr {fn.field('%block', 8 * n)}, align 8") for n, t in enumerate(types)]
    context, count, begun, taken = loaded[0], Value(loaded[1], INDEX), loaded[2], loaded[1 + len(counters)]
    first = 2 + len(counters)
    operands = loaded[first + len(place) :]
    threads, thread = _query(fn, "omp_get_num_threads"), _query(fn, "omp_get_thread_num")
    with fn.when(binary(fn, "lt", literal(0, INDEX), thread)):
        teams.note_begun(fn, begun)
        teams.step_aside(fn, loaded[first : first + len(place)])
    if region.asks(DYNAMIC):
        _run_free_blocks(fn, region, context, operands, count, threads, taken)
    else:
        bounds = [thread.text, count.text, threads.text]
        if not region.asks(STRIDED):
            product = binary(fn, "mul", thread, count)
            ends = (product, binary(fn, "add", product, count))
            bounds = [*(fn.op(f"udiv i64 {end.text}, {threads.text}") for end in ends), "1"]
        fn.do(region.call(bounds, context, operands))
    with fn.when(binary(fn, "eq", thread, literal(0, INDEX))):
        teams.let_in(fn, begun, binary(fn, "sub", threads, literal(1, INDEX)))
    fn.do("ret void")
    fn.finish()


def _run_free_blocks(
    fn: Function, region: _Region, context: str, operands: list[str], count: Value, threads: Value, taken: str
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


def _query(fn: Function, symbol: str) -> Value:
    number = fn.value(f"call i32 {fn.module.import_function(symbol, 'i32', '')}()", "int32")
    return fn.value(f"zext {number.typed} to i64", INDEX)
