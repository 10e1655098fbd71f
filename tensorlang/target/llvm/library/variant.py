"""A kernel of a library, for one instruction set: its loops, the scratch memory that they need, and a call of them."""

from __future__ import annotations

from tensorlang.errors import TargetError
from tensorlang.ir.stmt import For, Kernel, LoopKind, Stmt, children
from tensorlang.target.detect import machine_options
from tensorlang.target.llvm import context
from tensorlang.target.llvm.arithmetic import binary
from tensorlang.target.llvm.kernel import emit_kernel
from tensorlang.target.llvm.scope import Scope
from tensorlang.target.llvm.storage.frame import at_most, frame_bytes, plan_frame, product
from tensorlang.target.llvm.text import INDEX, Function, Module, Value, literal
from tensorlang.target.llvm.threads.balance import with_shares
from tensorlang.target.spec import Target

NO_WORKSPACE = -1
"""The code of a call whose workspace is missing, or begins at no multiple of 64."""


def emit_variant(kernel: Kernel, target: Target, prefix: str, messages: list[str]) -> Module:
    """The module of a kernel for one target, with the functions `PREFIX.bytes` and `PREFIX.run`.

    `messages` are those of the whole library, so that a code means the same whatever the machine. TargetError for
    what needs Python.
    """
    module = Module(target, library=True, attributes=_attributes(target), messages=messages)
    emitted = emit_kernel(kernel, target, module)
    if emitted.calls:
        names = ", ".join(dict.fromkeys(c.name for c in emitted.calls))
        raise TargetError(f"{kernel.name} calls Python ({names}), which a library cannot; compute it in te instead")
    _bytes_function(module, kernel, f"{prefix}.bytes")
    _run_function(module, kernel, emitted.symbol, prefix)
    return module


def run_type(kernel: Kernel) -> str:
    """The parameter types of `PREFIX.run`: arrays, sizes, threads, their runner and its argument, workspace."""
    return ", ".join(["ptr"] * len(kernel.params) + ["i64"] * len(kernel.sizes) + ["i64", "ptr", "ptr", "ptr"])


def needed_bytes(fn: Function, prefix: str, sizes: list[Value], threads: Value) -> tuple[Value, Value, Value]:
    """Append a call of `PREFIX.bytes`: the bytes for all tasks, for each, and the whole workspace."""
    arguments = ", ".join(v.typed for v in sizes)
    both = fn.op(f"call {{i64, i64}} @{prefix}.bytes({arguments})")
    shared, each = (fn.value(f"extractvalue {{i64, i64}} {both}, {k}", INDEX) for k in (0, 1))
    return shared, each, at_most(fn, binary(fn, "add", shared, product(fn, each, threads)))


def _attributes(target: Target) -> str:
    """The attributes that make LLVM use the instructions of a target, whatever else is in the module."""
    _, cpu, features = machine_options(target)
    wanted = f'"target-cpu"="{cpu}" ' if cpu else ""
    return f'{wanted}"target-features"="{features}" ' if features else wanted


def _bytes_function(module: Module, kernel: Kernel, name: str) -> None:
    """How much scratch memory a call needs, for all tasks together and for each of them: `{i64, i64} (sizes...)`."""
    shared_out = with_shares(kernel)
    sizes = [Value(f"%n{k}", INDEX) for k in range(len(kernel.sizes))]
    fn = Function(module, name, [v.typed for v in sizes])
    scope = Scope({v.name: held for v, held in zip(kernel.sizes, sizes, strict=True)}, {})
    shared = frame_bytes(fn, scope, plan_frame(shared_out.body, in_parallel=False))
    each = literal(0, INDEX)
    for loop in _parallel(shared_out.body):
        each = binary(fn, "max", each, frame_bytes(fn, scope, plan_frame(loop.body, in_parallel=True)))
    pair = fn.op(f"insertvalue {{i64, i64}} undef, {shared.typed}, 0")
    pair = fn.op(f"insertvalue {{i64, i64}} {pair}, {each.typed}, 1")
    fn.do(f"ret {{i64, i64}} {pair}")
    fn.finish("{i64, i64}")


def _parallel(stmt: Stmt) -> list[For]:
    """The outermost parallel loops."""
    if isinstance(stmt, For) and stmt.kind is LoopKind.PARALLEL:
        return [stmt]
    return [loop for child in children(stmt) for loop in _parallel(child)]


def _run_function(module: Module, kernel: Kernel, symbol: str, prefix: str) -> None:
    """Run the kernel in a workspace: `i32 (arrays..., sizes..., threads, runner, user, workspace)`, a status."""
    arrays = [f"ptr %p{k}" for k in range(len(kernel.params))]
    sizes = [Value(f"%n{k}", INDEX) for k in range(len(kernel.sizes))]
    threads = Value("%threads", INDEX)
    rest = [threads.typed, "ptr %runner", "ptr %user", "ptr %workspace"]
    fn = Function(module, f"{prefix}.run", [*arrays, *(v.typed for v in sizes), *rest])
    shared, each, total = needed_bytes(fn, prefix, sizes, threads)
    with fn.when(binary(fn, "lt", literal(0, INDEX), total)):
        place = fn.value("ptrtoint ptr %workspace to i64", INDEX)
        odd = fn.value(f"and i64 {place.text}, 63", INDEX)
        wrong = binary(fn, "or", binary(fn, "eq", place, literal(0, INDEX)), binary(fn, "lt", literal(0, INDEX), odd))
        with fn.when(wrong):
            fn.do(f"ret i32 {NO_WORKSPACE}")
            fn.start(fn.fresh("never"))
    held = fn.alloca(f"[{context.BYTES} x i8]", context.BYTES)
    tasks = fn.op(f"getelementptr i8, ptr %workspace, {shared.typed}")
    words = {
        0: "i64 0", context.RUNNER: "ptr %runner", context.USER: "ptr %user", context.WORKSPACE: "ptr %workspace",
        context.PER_TASK: each.typed, context.THREADS: threads.typed, context.TASKS: f"ptr {tasks}",
    }  # fmt: skip
    for at, word in words.items():
        fn.do(f"store {word}, ptr {fn.field(held, at)}, align 8")
    fn.do(f"call void @{symbol}({', '.join([*arrays, *(v.typed for v in sizes), f'ptr {held}'])})")
    status = fn.op(f"load i64, ptr {held}, align 8")
    fn.do(f"ret i32 {fn.op(f'trunc i64 {status} to i32')}")
    fn.finish("i32")
