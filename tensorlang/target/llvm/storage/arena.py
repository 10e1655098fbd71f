"""Scratch memory of compiled code: each thread keeps one block between calls, and hands out pieces of it as a stack.

The block belongs to a thread (the key of `runtime.threads`), so calls from several threads and the members of a team
never share one, and its pages are those that its own thread touched first. What does not fit is allocated for the time
being; the next outermost piece then finds a block of the most that was ever in use. So a warm call allocates nothing.
"""

from __future__ import annotations

from tensorlang.runtime.threads import ARENA_SYMBOL
from tensorlang.target.llvm.text import Function, Module, Value

ALIGNMENT = 64
"""Bytes at whose multiples a piece begins: a cache line."""

_NAME = "tensorlang.take_scratch"

_TAKE = f"""\
define internal ptr @tensorlang.take_scratch(i64 %bytes) noinline #0 {{
entry:
  %key32 = load i32, ptr @{ARENA_SYMBOL}, align 4
  %key = zext i32 %key32 to i64
  %block = call ptr @pthread_getspecific(i64 %key)
  %none = icmp eq ptr %block, null
  br i1 %none, label %renew, label %look
look:
  %capacity = load i64, ptr %block, align 8
  %used.at = getelementptr i8, ptr %block, i64 8
  %used = load i64, ptr %used.at, align 8
  %after = add i64 %used, %bytes
  %most.at = getelementptr i8, ptr %block, i64 16
  %most0 = load i64, ptr %most.at, align 8
  %most = call i64 @llvm.smax.i64(i64 %most0, i64 %after)
  %idle = icmp eq i64 %used, 0
  %needed = select i1 %idle, i64 %most, i64 %after
  %fits = icmp sle i64 %needed, %capacity
  br i1 %fits, label %inside, label %outside
inside:
  store i64 %after, ptr %used.at, align 8
  store i64 %most, ptr %most.at, align 8
  %offset = add i64 %used, {ALIGNMENT}
  %piece = getelementptr i8, ptr %block, i64 %offset
  ret ptr %piece
outside:
  br i1 %idle, label %renew, label %beside
beside:
  %extra = call ptr @aligned_alloc(i64 {ALIGNMENT}, i64 %bytes)
  %refused = icmp eq ptr %extra, null
  br i1 %refused, label %given, label %counted
counted:
  store i64 %after, ptr %used.at, align 8
  store i64 %most, ptr %most.at, align 8
  br label %given
given:
  ret ptr %extra
renew:
  %wanted = phi i64 [%bytes, %entry], [%most, %outside]
  %fresh = call ptr @tensorlang.new_arena(i64 %key, ptr %block, i64 %wanted, i64 %bytes)
  ret ptr %fresh
}}"""


_NEW = f"""\
define internal ptr @tensorlang.new_arena(i64 %key, ptr %old, i64 %wanted, i64 %bytes) noinline #0 {{
entry:
  call void @free(ptr %old)
  %emptied = call i32 @pthread_setspecific(i64 %key, ptr null)
  %size = add i64 %wanted, {ALIGNMENT}
  %block = call ptr @aligned_alloc(i64 {ALIGNMENT}, i64 %size)
  %refused = icmp eq ptr %block, null
  br i1 %refused, label %fail, label %keep
keep:
  %failed = call i32 @pthread_setspecific(i64 %key, ptr %block)
  %unkept = icmp ne i32 %failed, 0
  br i1 %unkept, label %drop, label %done
done:
  store i64 %wanted, ptr %block, align 8
  %used.at = getelementptr i8, ptr %block, i64 8
  store i64 %bytes, ptr %used.at, align 8
  %most.at = getelementptr i8, ptr %block, i64 16
  store i64 %bytes, ptr %most.at, align 8
  %piece = getelementptr i8, ptr %block, i64 {ALIGNMENT}
  ret ptr %piece
drop:
  call void @free(ptr %block)
  br label %fail
fail:
  ret ptr null
}}"""


_GIVE = f"""\
define internal void @tensorlang.give_scratch(ptr %piece, i64 %bytes) noinline #0 {{
entry:
  %key32 = load i32, ptr @{ARENA_SYMBOL}, align 4
  %key = zext i32 %key32 to i64
  %block = call ptr @pthread_getspecific(i64 %key)
  %capacity = load i64, ptr %block, align 8
  %used.at = getelementptr i8, ptr %block, i64 8
  %used = load i64, ptr %used.at, align 8
  %before = sub i64 %used, %bytes
  store i64 %before, ptr %used.at, align 8
  %from = ptrtoint ptr %block to i64
  %at = ptrtoint ptr %piece to i64
  %distance = sub i64 %at, %from
  %inside = icmp ule i64 %distance, %capacity
  br i1 %inside, label %done, label %beside
beside:
  call void @free(ptr %piece)
  br label %done
done:
  ret void
}}"""


def take_scratch(fn: Function, size: Value) -> str:
    """Append a call that takes `size` bytes, a multiple of ALIGNMENT; null where there is no memory."""
    _define(fn.module)
    return fn.op(f"call noalias align {ALIGNMENT} ptr @tensorlang.take_scratch({size.typed})")


def give_scratch(fn: Function, piece: str, size: Value) -> None:
    """Append a call that gives back the piece that this thread took last."""
    fn.do(f"call void @tensorlang.give_scratch(ptr {piece}, {size.typed})")


def _define(module: Module) -> None:
    """Add the functions to the module, unless they are there."""
    if _NAME in module.names:
        return
    module.names.add(_NAME)
    module.import_data(ARENA_SYMBOL, "i32")
    module.declare("pthread_getspecific", "ptr", "i64")
    module.declare("pthread_setspecific", "i32", "i64, ptr")
    module.declare("aligned_alloc", f"noalias align {ALIGNMENT} ptr", "i64, i64")
    module.declare("free", "void", "ptr")
    module.declare("llvm.smax.i64", "i64", "i64, i64")
    module.functions += [_TAKE, _NEW, _GIVE]
