"""Teams of threads: how many a parallel loop gets, taken from the helpers that all calls of the process share."""

from __future__ import annotations

from tensorlang.runtime.threads import BUDGET, CALLER_KEY, LIMIT, TAKEN, TEAM_SYMBOL
from tensorlang.target.llvm.text import INDEX, Function, Module, Value

_NAME = "tensorlang.take_helpers"

_TAKE = f"""\
define internal i64 @{_NAME}(i64 %most) noinline #0 {{
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
