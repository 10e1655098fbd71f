"""An exported kernel in this process again: a kernel as the code here calls it, around the functions of the library.

It lends the library the scratch memory of the calling thread and the threads of the process.
"""

from __future__ import annotations

from tensorlang.ir.expr import Buffer
from tensorlang.ir.stmt import Kernel
from tensorlang.target.llvm.arithmetic import binary
from tensorlang.target.llvm.context import NO_MEMORY
from tensorlang.target.llvm.kernel import Emitted
from tensorlang.target.llvm.library.emit import compare, store
from tensorlang.target.llvm.library.front import ABI
from tensorlang.target.llvm.library.runner import emit_member
from tensorlang.target.llvm.storage.arena import give_scratch, take_scratch
from tensorlang.target.llvm.text import INDEX, Function, Module, Value, identifier, literal
from tensorlang.target.llvm.threads import team as teams
from tensorlang.target.llvm.threads.region import counter
from tensorlang.target.spec import Target

RUN, WORKSPACE = "tensorlang_library_run", "tensorlang_library_workspace_bytes"
"""Stand for the functions of the library."""
_HOST_BYTES = 24


def emit_adapter(kernel: Kernel, arrays: tuple[Buffer, ...], target: Target) -> Emitted:
    """The kernel of a library whose functions take `arrays` in this order."""
    module = Module(target)
    _runner(module)
    sizes = [Value(f"%n{k}", INDEX) for k in range(len(kernel.sizes))]
    places = {p.name: f"ptr %p{k}" for k, p in enumerate(kernel.params)}
    symbol = module.unique(f"{identifier(kernel.name)}.kernel")
    fn = Function(module, symbol, [*places.values(), *(v.typed for v in sizes), "ptr %context"])
    threads = literal(target.cores, INDEX)
    ask = module.import_function(WORKSPACE, "i64", ", ".join(["i64"] * (len(sizes) + 1)))
    total = fn.value(f"call i64 {ask}({', '.join(v.typed for v in (*sizes, threads))})", INDEX)
    _stop_at(fn, compare(fn, "slt", "i64", total.text, "0"), total.text)
    host = fn.alloca(f"[{_HOST_BYTES} x i8]", _HOST_BYTES)
    for at, word in ((0, f"i32 {ABI}"), (4, f"i32 {target.cores}"), (8, "ptr null"), (16, "ptr @tensorlang.runner")):
        store(fn, host, at, word)
    types = ", ".join(["ptr"] * len(arrays) + ["i64"] * len(sizes) + ["ptr", "ptr"])
    call = module.import_function(RUN, "i32", types)
    given = ", ".join([*(places[b.name] for b in arrays), *(v.typed for v in sizes)])
    bare, scratch, join = fn.fresh("bare"), fn.fresh("scratch"), fn.fresh("join")
    fn.branch(compare(fn, "eq", "i64", total.text, "0"), bare, scratch)
    fn.start(bare)
    first = fn.op(f"call i32 {call}({given}, ptr null, ptr {host})")
    fn.jump(join)
    fn.start(scratch)
    piece = take_scratch(fn, total)
    _stop_at(fn, compare(fn, "eq", "ptr", piece, "null"), str(NO_MEMORY))
    second = fn.op(f"call i32 {call}({given}, ptr {piece}, ptr {host})")
    give_scratch(fn, piece, total)
    last = fn.block
    fn.jump(join)
    fn.start(join)
    status = fn.op(f"phi i32 [{first}, %{bare}], [{second}, %{last}]")
    fn.do(f"store i64 {fn.op(f'sext i32 {status} to i64')}, ptr %context, align 8")
    fn.do("ret void")
    fn.finish()
    return Emitted(module, symbol, ())


def _stop_at(fn: Function, wrong: Value, status: str) -> None:
    with fn.when(wrong):
        fn.do(f"store i64 {status}, ptr %context, align 8")
        fn.do("ret void")
        fn.start(fn.fresh("never"))


def _runner(module: Module) -> None:
    """The `parallel_for` of this process: a team of its threads, or none where others have them."""
    emit_member(module, "tensorlang.runner.member", imported=True)
    fn = Function(module, "tensorlang.runner", ["ptr %user", "i64 %tasks", "ptr %task", "ptr %arg"], internal=True)
    helpers = teams.take_helpers(fn, Value("%tasks", INDEX))
    alone, team, join = fn.fresh("alone"), fn.fresh("team"), fn.fresh("join")
    fn.branch(binary(fn, "eq", helpers, literal(0, INDEX)), alone, team)
    fn.start(alone)
    fn.do("call void %task(ptr %arg, i64 0, i64 1)")
    fn.jump(join)
    fn.start(team)
    slots = [("ptr", "%task"), ("ptr", "%arg"), ("ptr", counter(fn)), *teams.place_of_caller(fn)]
    block = fn.alloca(f"[{len(slots)} x i64]", 8 * len(slots))
    for number, (type_, operand) in enumerate(slots):
        store(fn, block, 8 * number, f"{type_} {operand}")
    threads = fn.op(f"trunc i64 {binary(fn, 'add', helpers, literal(1, INDEX)).text} to i32")
    start = module.import_function("GOMP_parallel", "void", "ptr, ptr, i32, i32")
    fn.do(f"call void {start}(ptr @tensorlang.runner.member, ptr {block}, i32 {threads}, i32 0)")
    teams.give_back(fn, helpers)
    fn.jump(join)
    fn.start(join)
    fn.do("ret void")
    fn.finish()
