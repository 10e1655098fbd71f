"""The runner of tasks that a library with OpenMP has: a team of its threads, one task for each."""

from __future__ import annotations

from tensorlang.target.llvm.arithmetic import binary
from tensorlang.target.llvm.library.emit import load
from tensorlang.target.llvm.text import INDEX, Function, Module, Value, literal
from tensorlang.target.llvm.threads import team as teams
from tensorlang.target.llvm.threads.region import counter

FUNCTIONS = ("GOMP_parallel", "omp_get_max_threads", "omp_get_num_threads", "omp_get_thread_num")
"""What a library calls of the OpenMP runtime."""


def most_threads(fn: Function) -> Value:
    """Append the question how many threads OpenMP would take."""
    return _ask(fn, "omp_get_max_threads")


def emit_runner(module: Module, name: str) -> None:
    """Add `void @NAME(user, tasks, task, arg)`, as a host's `parallel_for`."""
    emit_member(module, f"{name}.member")
    fn = Function(module, name, ["ptr %user", "i64 %tasks", "ptr %task", "ptr %arg"], internal=True)
    slots = [("ptr", "%task"), ("ptr", "%arg"), ("ptr", counter(fn)), *teams.place_of_caller(fn)]
    block = fn.alloca(f"[{len(slots)} x i64]", 8 * len(slots))
    for number, (type_, operand) in enumerate(slots):
        fn.do(f"store {type_} {operand}, ptr {fn.field(block, 8 * number)}, align 8")
    start = module.declare("GOMP_parallel", "void", "ptr, ptr, i32, i32")
    fn.do(f"call void {start}(ptr @{name}.member, ptr {block}, i32 {fn.op('trunc i64 %tasks to i32')}, i32 0)")
    fn.do("ret void")
    fn.finish()


def emit_member(module: Module, name: str, imported: bool = False) -> None:
    """Add what each thread of the team runs: its task; helpers keep out of their caller's way.

    `imported`: the addresses of OpenMP's functions are given when the object is loaded.
    """
    fn = Function(module, name, ["ptr %block"], internal=True)
    words = teams.words_of_place(fn)
    task, arg, begun = (load(fn, "%block", 8 * n, "ptr") for n in range(3))
    place = [load(fn, "%block", 8 * (3 + n), "i64") for n in range(words)]
    threads, thread = (_ask(fn, f"omp_get_{what}", imported) for what in ("num_threads", "thread_num"))
    with fn.when(binary(fn, "lt", literal(0, INDEX), thread)):
        teams.note_begun(fn, begun)
        teams.step_aside(fn, place)
    fn.do(f"call void {task}(ptr {arg}, {thread.typed}, {threads.typed})")
    with fn.when(binary(fn, "eq", thread, literal(0, INDEX))):
        teams.let_in(fn, begun, binary(fn, "sub", threads, literal(1, INDEX)))
    fn.do("ret void")
    fn.finish()


def _ask(fn: Function, symbol: str, imported: bool = False) -> Value:
    declare = fn.module.import_function if imported else fn.module.declare
    number = fn.value(f"call i32 {declare(symbol, 'i32', '')}()", "int32")
    return fn.value(f"zext {number.typed} to i64", INDEX)
