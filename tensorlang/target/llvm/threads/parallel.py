"""Parallel loops: their body becomes a function, and a team of OpenMP threads shares the iterations out.

A nest of parallel loops is one region. Threads run one block of it each, or blocks as they become free, or every
so many iterations of it in turn. A team of one calls the body directly. In a library, whoever calls it says how the
tasks of a loop run (`tasks`).
"""

from __future__ import annotations

from tensorlang.ir.expr import Var
from tensorlang.ir.stmt import For
from tensorlang.target.llvm.arithmetic import binary
from tensorlang.target.llvm.scope import Scope
from tensorlang.target.llvm.text import INDEX, Function, Value, literal
from tensorlang.target.llvm.threads import team as teams
from tensorlang.target.llvm.threads.balance import DYNAMIC
from tensorlang.target.llvm.threads.region import Emit, Region, Repeat, counter, region_of, run_share
from tensorlang.target.llvm.threads.tasks import launch_tasks


def parallel_loop(fn: Function, scope: Scope, loop: For, sizes: tuple[Var, ...], emit: Emit, repeat: Repeat) -> None:
    """Emit a parallel loop. Nested ones run in its region or serially: `scope.in_parallel` must not be set."""
    region, count = region_of(fn, scope, loop, sizes, emit, repeat)
    operands = [c.operand for c in region.captured]
    with fn.when(binary(fn, "lt", literal(0, INDEX), count)):
        if fn.module.library:
            launch_tasks(fn, region, count, operands)
        elif fn.target.cores == 1:
            fn.do(region.call(["0", count.text, "1"], "%context", operands))
        else:
            _team_function(fn, region)
            _launch(fn, region, count, operands)


def _launch(fn: Function, region: Region, count: Value, operands: list[str]) -> None:
    """Run the region by a team, or in this thread alone."""
    helpers = teams.take_helpers(fn, binary(fn, "min", count, literal(fn.target.cores, INDEX)))
    alone, team, join = fn.fresh("alone"), fn.fresh("team"), fn.fresh("join")
    fn.branch(binary(fn, "eq", helpers, literal(0, INDEX)), alone, team)
    fn.start(alone)
    fn.do(region.call(["0", count.text, "1"], "%context", operands))
    fn.jump(join)
    fn.start(team)
    counters = [("ptr", counter(fn)) for _ in range(_counters(region))]
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


def _counters(region: Region) -> int:
    """How many counters a team has: of the helpers that have begun, and of the iterations that are taken."""
    return 2 if region.asks(DYNAMIC) else 1


def _team_function(outer: Function, region: Region) -> None:
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
    run_share(fn, region, context, operands, count, (thread, threads), taken)
    with fn.when(binary(fn, "eq", thread, literal(0, INDEX))):
        teams.let_in(fn, begun, binary(fn, "sub", threads, literal(1, INDEX)))
    fn.do("ret void")
    fn.finish()


def _query(fn: Function, symbol: str) -> Value:
    number = fn.value(f"call i32 {fn.module.import_function(symbol, 'i32', '')}()", "int32")
    return fn.value(f"zext {number.typed} to i64", INDEX)
