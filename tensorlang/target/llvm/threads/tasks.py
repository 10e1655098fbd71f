"""Parallel loops of exported code: tasks, run by whatever the caller of the code has for it.

A task never waits for another one, so any pool will do, and so will one thread that runs them in turn. Each has a
context of its own, with its piece of the caller's workspace.
"""

from __future__ import annotations

from tensorlang.target.llvm import context
from tensorlang.target.llvm.arithmetic import binary
from tensorlang.target.llvm.text import INDEX, Function, Value, literal
from tensorlang.target.llvm.threads.region import Region, counter, run_share

TASK = "ptr %block, i64 %index, i64 %count"
"""The parameters of a task: what it works on, its number, and how many tasks share the work."""


def launch_tasks(fn: Function, region: Region, count: Value, operands: list[str]) -> None:
    """Run a region by as many tasks as the context allows, and as there are iterations."""
    task = _task_function(fn, region)
    slots = [("ptr", "%context"), ("i64", count.text), ("ptr", counter(fn))]
    slots += [(c.type, o) for c, o in zip(region.captured, operands, strict=True)]
    block = fn.alloca(f"[{len(slots)} x i64]", 8 * len(slots))
    for number, (type_, operand) in enumerate(slots):
        fn.do(f"store {type_} {operand}, ptr {fn.field(block, 8 * number)}, align 8")
    allowed = Value(fn.op(f"load i64, ptr {fn.field('%context', context.THREADS)}, align 8"), INDEX)
    tasks = binary(fn, "min", count, allowed)
    several, alone, join = fn.fresh("several"), fn.fresh("alone"), fn.fresh("join")
    fn.branch(binary(fn, "lt", literal(1, INDEX), tasks), several, alone)
    fn.start(alone)
    fn.do(f"call void @{task}(ptr {block}, i64 0, i64 1)")
    fn.jump(join)
    fn.start(several)
    runner, user = (
        fn.op(f"load ptr, ptr {fn.field('%context', at)}, align 8") for at in (context.RUNNER, context.USER)
    )
    fn.do(f"call void {runner}(ptr {user}, {tasks.typed}, ptr @{task}, ptr {block})")
    fn.jump(join)
    fn.start(join)


def _task_function(outer: Function, region: Region) -> str:
    """What a task runs: the iterations that fall to it, in a context of its own."""
    fn = Function(outer.module, f"{region.body}.task", TASK.split(", "), internal=True)
    types = ["ptr", "i64", "ptr", *(c.type for c in region.captured)]
    loaded = [fn.op(f"load {t}, ptr {fn.field('%block', 8 * n)}, align 8") for n, t in enumerate(types)]
    whole, taken = loaded[0], loaded[2]
    own = fn.alloca(f"[{context.BYTES} x i8]", context.BYTES)
    fn.do(f"store i64 0, ptr {own}, align 8")
    each = fn.op(f"load i64, ptr {fn.field(whole, context.PER_TASK)}, align 8")
    first = fn.op(f"load ptr, ptr {fn.field(whole, context.TASKS)}, align 8")
    piece = fn.op(f"getelementptr i8, ptr {first}, i64 {fn.op(f'mul i64 {each}, %index')}")
    fn.do(f"store ptr {piece}, ptr {fn.field(own, context.WORKSPACE)}, align 8")
    share = Value("%index", INDEX), Value("%count", INDEX)
    run_share(fn, region, own, loaded[3:], Value(loaded[1], INDEX), share, taken)
    status = fn.op(f"load i64, ptr {own}, align 8")
    with fn.when(fn.value(f"icmp ne i64 {status}, 0", "bool")):
        fn.do(f"store atomic i64 {status}, ptr {whole} monotonic, align 8")
    fn.do("ret void")
    fn.finish()
    return fn.name
