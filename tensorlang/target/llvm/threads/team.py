"""Teams of threads: how many a parallel loop gets, taken from the helpers that all calls of the process share."""

from __future__ import annotations

import sys

from tensorlang.runtime.threads import BUDGET, CALLER_KEY, LIMIT, TAKEN, TEAM_SYMBOL
from tensorlang.target.llvm.text import INDEX, PLAIN, Function, Module, Value

_NAME = "tensorlang.take_helpers"
_YIELDS = 16
"""How often a caller gives its CPU away while a helper has not begun."""

_TAKE = f"""\
define internal i64 @{_NAME}(i64 %most) {PLAIN} {{
entry:
  %limit.at = getelementptr i8, ptr @{TEAM_SYMBOL}, i64 {LIMIT}
  %limit = load atomic i64, ptr %limit.at monotonic, align 8
  %key.at = getelementptr i8, ptr @{TEAM_SYMBOL}, i64 {CALLER_KEY}
  %key = load i64, ptr %key.at, align 8
  %kept = call ptr @pthread_getspecific(i64 %key)
  %own = ptrtoint ptr %kept to i64
  %free = icmp eq i64 %own, 0
  %caller = select i1 %free, i64 %most, i64 %own
  %less = call i64 @llvm.smin.i64(i64 %most, i64 %caller)
  %team = call i64 @llvm.smin.i64(i64 %less, i64 %limit)
  %wanted = sub i64 %team, 1
  %alone = icmp sle i64 %wanted, 0
  br i1 %alone, label %none, label %some
none:
  ret i64 0
some:
  %budget.at = getelementptr i8, ptr @{TEAM_SYMBOL}, i64 {BUDGET}
  %budget = load atomic i64, ptr %budget.at monotonic, align 8
  %taken.at = getelementptr i8, ptr @{TEAM_SYMBOL}, i64 {TAKEN}
  %before = atomicrmw add ptr %taken.at, i64 %wanted monotonic, align 8
  %left = sub i64 %budget, %before
  %rest = call i64 @llvm.smax.i64(i64 %left, i64 0)
  %got = call i64 @llvm.smin.i64(i64 %rest, i64 %wanted)
  %more = sub i64 %wanted, %got
  %back = atomicrmw sub ptr %taken.at, i64 %more monotonic, align 8
  ret i64 %got
}}"""


_ASIDE = f"""\
define internal void @tensorlang.step_aside(i64 %cpu, i64 %caller) {PLAIN} {{
entry:
  %mask = alloca [128 x i8], align 8
  %now = call i32 @sched_getcpu()
  %here = sext i32 %now to i64
  %same = icmp eq i64 %here, %cpu
  %known = icmp ult i64 %here, 1024
  %meets = and i1 %same, %known
  br i1 %meets, label %read, label %done
read:
  %failed = call i32 @pthread_getaffinity_np(i64 %caller, i64 128, ptr %mask)
  %can = icmp eq i32 %failed, 0
  br i1 %can, label %move, label %done
move:
  %byte = lshr i64 %here, 3
  %at = getelementptr i8, ptr %mask, i64 %byte
  %place = trunc i64 %here to i8
  %low = and i8 %place, 7
  %bit = shl i8 1, %low
  %others = xor i8 %bit, -1
  %old = load i8, ptr %at, align 1
  %new = and i8 %old, %others
  store i8 %new, ptr %at, align 1
  %moved = call i32 @sched_setaffinity(i32 0, i64 128, ptr %mask)
  br label %done
done:
  ret void
}}"""


_LET_IN = f"""\
define internal void @tensorlang.let_in(ptr %begun, i64 %helpers) {PLAIN} {{
entry:
  br label %head
head:
  %turn = phi i64 [ 0, %entry ], [ %next, %wait ]
  %here = load atomic i64, ptr %begun monotonic, align 8
  %all = icmp sge i64 %here, %helpers
  %late = icmp sge i64 %turn, {_YIELDS}
  %stop = or i1 %all, %late
  br i1 %stop, label %done, label %wait
wait:
  %given = call i32 @sched_yield()
  %next = add i64 %turn, 1
  br label %head
done:
  ret void
}}"""


def words_of_place(fn: Function) -> int:
    """How many words `place_of_caller` gives."""
    return 2 if _has_affinity(fn) else 0


def place_of_caller(fn: Function) -> list[tuple[str, str]]:
    """Append what helpers need to step aside: the CPU of this thread and its handle; nothing outside Linux."""
    if not _has_affinity(fn):
        return []
    fn.module.declare("sched_getcpu", "i32", "")
    fn.module.declare("pthread_self", "i64", "")
    cpu = fn.op("call i32 @sched_getcpu()")
    return [("i64", fn.op(f"sext i32 {cpu} to i64")), ("i64", fn.op("call i64 @pthread_self()"))]


def step_aside(fn: Function, place: list[str]) -> None:
    """Append a helper's move to another CPU when it was woken on that of its caller, at a `place_of_caller`.

    Linux wakes a sleeping thread where it ran last, or where its waker runs, even beside an idle CPU if the machine
    does not say which CPUs share a cache (as virtual ones often do not). Both would then take turns on one CPU. The
    helper keeps to the CPUs of its caller but this one; a caller that may use one CPU only keeps its helpers there.
    """
    if not place:
        return
    name = "tensorlang.step_aside"
    if name not in fn.module.names:
        fn.module.names.add(name)
        fn.module.declare("pthread_getaffinity_np", "i32", "i64, i64, ptr")
        fn.module.declare("sched_setaffinity", "i32", "i32, i64, ptr")
        fn.module.functions.append(_ASIDE)
    fn.do(f"call void @{name}(i64 {place[0]}, i64 {place[1]})")


def note_begun(fn: Function, begun: str) -> None:
    """Append a helper's word that it runs, for `let_in`."""
    if _has_affinity(fn):
        fn.op(f"atomicrmw add ptr {begun}, i64 1 monotonic, align 8")


def let_in(fn: Function, begun: str, helpers: Value) -> None:
    """Append a caller's end of work: while helpers have not begun, it offers them its CPU.

    One that was woken on the CPU of its caller is queued behind it, and cannot step aside until it runs. The caller
    would spin there for its whole time slice, waiting for it.
    """
    if not _has_affinity(fn):
        return
    name = "tensorlang.let_in"
    if name not in fn.module.names:
        fn.module.names.add(name)
        fn.module.declare("sched_yield", "i32", "")
        fn.module.functions.append(_LET_IN)
    fn.do(f"call void @{name}(ptr {begun}, {helpers.typed})")


def _has_affinity(fn: Function) -> bool:
    triple = fn.target.triple
    return "linux" in triple if triple else sys.platform == "linux"


def take_helpers(fn: Function, most: Value) -> Value:
    """Append a call that takes helper threads for a team of `most` threads; 0 when the caller should run alone."""
    _define(fn.module)
    return fn.value(f"call i64 @{_NAME}({most.typed})", INDEX)


def give_back(fn: Function, helpers: Value) -> None:
    """Append the return of helper threads."""
    taken = fn.field(f"@{TEAM_SYMBOL}", TAKEN)
    fn.op(f"atomicrmw sub ptr {taken}, {helpers.typed} monotonic, align 8")


def _define(module: Module) -> None:
    if _NAME in module.names:
        return
    module.names.add(_NAME)
    module.import_data(TEAM_SYMBOL, "i8")
    module.declare("pthread_getspecific", "ptr", "i64")
    for name in ("smin", "smax"):
        module.declare(f"llvm.{name}.i64", "i64", "i64, i64")
    module.functions.append(_TAKE)
