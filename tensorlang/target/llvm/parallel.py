"""Parallel loops: the body becomes a function, and a team of OpenMP threads shares the iterations out evenly, in
blocks or in turn.

The team is not larger than the target's cores, the number of iterations, and the limit that the runtime sets
(1 without an OpenMP library and in forked children); a team of one calls the body directly.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from tensorlang.ir.expr import Expr, Load, Var, walk
from tensorlang.ir.loops import STRIDED
from tensorlang.ir.stmt import Allocate, AtomicUpdate, CallMachine, CallPython, For, If, Let, Prefetch, Stmt, Store
from tensorlang.ir.stmt import walk as statements
from tensorlang.runtime.openmp import LIMIT_SYMBOL
from tensorlang.target.llvm.arithmetic import binary
from tensorlang.target.llvm.expressions import index
from tensorlang.target.llvm.frame import close_frame, open_frame, parameter, storage
from tensorlang.target.llvm.scope import Scope
from tensorlang.target.llvm.text import INDEX, Function, Value, identifier, literal

Emit = Callable[[Function, Scope, Stmt], None]
Repeat = Callable[[Function, Value, Value, Callable[[Value], None]], None]


@dataclass(frozen=True, slots=True)
class _Captured:
    """A name that the body uses: the operand here, and its parameter in the body's function."""

    name: str
    operand: str
    type: str
    parameter: str
    declaration: str


def parallel_loop(fn: Function, scope: Scope, loop: For, sizes: tuple[Var, ...], emit: Emit, repeat: Repeat) -> None:
    """Emit a parallel loop. Nested ones run serially: `scope.in_parallel` must not be set."""
    lower, upper = index(fn, scope, loop.lower), index(fn, scope, loop.upper)
    captured = _captured(scope, loop.body, sizes)
    base = fn.module.unique(f"{fn.name}.{identifier(loop.var.name)}")
    strided = dict(loop.pragmas).get(STRIDED, 0) == 1
    _body_function(fn, base, captured, scope, loop, emit, repeat, strided)
    _team_function(fn, f"{base}.team", base, captured, strided)

    def launch() -> None:
        slots = [("ptr", "%context"), ("i64", lower.text), ("i64", upper.text)]
        slots += [(c.type, c.operand) for c in captured]
        threads = _team_size(fn, binary(fn, "sub", upper, lower))
        alone = binary(fn, "le", threads, literal(1, "int32"))
        labels = fn.fresh("alone"), fn.fresh("team"), fn.fresh("join")
        fn.branch(alone, labels[0], labels[1])
        fn.start(labels[0])
        whole = [*slots[:3], *([("i64", "1")] if strided else []), *slots[3:]]
        fn.do(f"call void @{base}({', '.join(f'{t} {o}' for t, o in whole)})")
        fn.jump(labels[2])
        fn.start(labels[1])
        block = fn.alloca(f"[{len(slots)} x i64]", 8 * len(slots))
        for number, (type_, operand) in enumerate(slots):
            fn.do(f"store {type_} {operand}, ptr {fn.field(block, 8 * number)}, align 8")
        start = fn.module.import_function("GOMP_parallel", "void", "ptr, ptr, i32, i32")
        fn.do(f"call void {start}(ptr @{base}.team, ptr {block}, {threads.typed}, i32 0)")
        fn.jump(labels[2])
        fn.start(labels[2])

    with fn.when(binary(fn, "lt", lower, upper)):
        launch()


def _captured(scope: Scope, body: Stmt, sizes: tuple[Var, ...]) -> list[_Captured]:
    variables, buffers = _used(body)
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
    variables: set[str] = set()
    buffers: set[str] = set()
    for stmt in statements(body):
        expressions: tuple[Expr, ...] = ()
        match stmt:
            case Store() | AtomicUpdate():
                buffers.add(stmt.buffer.name)
                expressions = (*stmt.index, stmt.value)
            case Prefetch():
                buffers.add(stmt.buffer.name)
                expressions = stmt.index
            case For():
                expressions = (stmt.lower, stmt.upper)
            case If():
                expressions = (stmt.cond,)
            case Let():
                expressions = (stmt.value,)
            case Allocate():
                expressions = stmt.buffer.shape
            case CallPython():
                buffers.update(b.name for b in stmt.buffers)
            case CallMachine():
                buffers.update(v.buffer.name for v in stmt.views)
                expressions = tuple(i for v in stmt.views for i in v.index)
        for node in (n for e in expressions for n in walk(e)):
            if isinstance(node, Var):
                variables.add(node.name)
            elif isinstance(node, Load):
                buffers.add(node.buffer.name)
    return variables, buffers


def _body_function(
    outer: Function,
    name: str,
    captured: list[_Captured],
    scope: Scope,
    loop: For,
    emit: Emit,
    repeat: Repeat,
    strided: bool,
) -> None:
    """Iterations `%lower` to `%upper` of the loop, or every `%step`-th, with the captured names as parameters."""
    bounds = ["i64 %lower", "i64 %upper", *(["i64 %step"] if strided else [])]
    declarations = ["ptr %context", *bounds, *(c.declaration for c in captured)]
    fn = Function(outer.module, name, declarations, internal=True)
    values = {c.name: Value(c.parameter, scope.values[c.name].dtype) for c in captured if c.type != "ptr"}
    inner = Scope(values, {}, in_parallel=True)
    pointers = [c for c in captured if c.type == "ptr"]
    held = {c.name: scope.buffers[c.name] for c in pointers}
    buffers = {c.name: storage(fn, inner, held[c.name].buffer, c.parameter, held[c.name].aligned) for c in pointers}
    inner, block = open_frame(fn, replace(inner, buffers=buffers), loop.body)

    def iteration(value: Value) -> None:
        emit(fn, inner.bind(loop.var.name, value), loop.body)

    lower, upper = Value("%lower", INDEX), Value("%upper", INDEX)
    if strided:
        step = Value("%step", INDEX)
        rest = binary(fn, "sub", binary(fn, "add", binary(fn, "sub", upper, lower), step), literal(1, INDEX))
        count = fn.value(f"sdiv i64 {rest.text}, {step.text}", INDEX)
        turn = lambda number: iteration(binary(fn, "add", lower, binary(fn, "mul", number, step)))  # noqa: E731
        repeat(fn, literal(0, INDEX), count, turn)
    else:
        repeat(fn, lower, upper, iteration)
    close_frame(fn, block)
    fn.finish()


def _team_function(outer: Function, name: str, body: str, captured: list[_Captured], strided: bool) -> None:
    """What every thread of a team runs: its share of the iterations, a block of them or every so many."""
    fn = Function(outer.module, name, ["ptr %block"], internal=True)
    types = ["ptr", "i64", "i64", *(c.type for c in captured)]
    loaded = [fn.op(f"load {t}, ptr {fn.field('%block', 8 * n)}, align 8") for n, t in enumerate(types)]
    lower, upper = Value(loaded[1], INDEX), Value(loaded[2], INDEX)
    thread, threads = _query(fn, "omp_get_thread_num"), _query(fn, "omp_get_num_threads")
    if strided:
        types.insert(3, "i64")
        bounds = [binary(fn, "add", lower, thread).text, upper.text, threads.text]
    else:
        count = binary(fn, "sub", upper, lower)
        product = binary(fn, "mul", thread, count)
        shares = (product, binary(fn, "add", product, count))
        done = [fn.value(f"udiv i64 {share.text}, {threads.text}", INDEX) for share in shares]
        bounds = [binary(fn, "add", lower, share).text for share in done]
    arguments = [loaded[0], *bounds, *loaded[3:]]
    fn.do(f"call void @{body}({', '.join(f'{t} {a}' for t, a in zip(types, arguments, strict=True))})")
    fn.do("ret void")
    fn.finish()


def _query(fn: Function, symbol: str) -> Value:
    number = fn.value(f"call i32 {fn.module.import_function(symbol, 'i32', '')}()", "int32")
    return fn.value(f"zext {number.typed} to i64", INDEX)


def _team_size(fn: Function, count: Value) -> Value:
    limit_address = fn.module.import_data(LIMIT_SYMBOL, "i32")
    limit = fn.value(f"load i32, ptr {limit_address}, align 4", "int32")
    cores = binary(fn, "min", limit, literal(fn.target.cores, "int32"))
    wide = fn.value(f"sext {cores.typed} to i64", INDEX)
    return fn.value(f"trunc {binary(fn, 'min', wide, count).typed} to i32", "int32")
