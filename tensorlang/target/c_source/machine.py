"""Machine code of devices: calls of device functions by name, over registers of lanes and addresses of memory.

A pointer to a tile in registers of a warp is the thread's first register of it; one to a tile in memory may depend on
the lane. The functions are those of the code's `source`, in definitions with empty lines between.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from tensorlang.errors import InternalError, TargetError
from tensorlang.ir.expr import Buffer, Const, Expr, binary, substitute
from tensorlang.ir.fragment import Fragment
from tensorlang.ir.machine import ACCUMULATES, LANE, MachineCall, Pointer
from tensorlang.ir.stmt import CallMachine, Let, Seq, Stmt, View
from tensorlang.ir.thread_tags import THREADS
from tensorlang.ir.warp_arrays import lane_of, registers
from tensorlang.target.c_source.expressions import address, in_registers, value
from tensorlang.target.c_source.scope import Scope, Storage


def call_machine(scope: Scope, stmt: CallMachine) -> None:
    """Append the calls of machine code. Raises TargetError for code of another device."""
    code = stmt.code
    if code.architecture != scope.dialect.name or not code.lanes:
        of = f"of {code.architecture}" if code.architecture else "of no GPU"
        raise TargetError(
            f"the machine code {code.name} is {of}, and the target is {scope.dialect.name}; leave out its tensorize "
            "step, or name the target that has it"
        )
    for definition in code.source.strip().split("\n\n"):
        scope.text.sources.setdefault(definition)
    lane = lane_of(dict(zip(THREADS, scope.block, strict=True)), code)
    known: dict[str, Expr] = {LANE.name: lane, ACCUMULATES.name: Const(1, ACCUMULATES.dtype)}
    if stmt.accumulates is not None:
        known[ACCUMULATES.name] = stmt.accumulates
    views = {param.buffer.name: view for param, view in zip(code.params, stmt.views, strict=True)}
    for call in _calls(code.body):
        listed = (_operand(scope, substitute(arg, known), views) for arg in call.args)
        scope.line(f"{call.name}({', '.join(listed)});")


def _calls(stmt: Stmt) -> Iterator[MachineCall]:
    """The calls that a body makes one after the other."""
    match stmt:
        case Seq():
            for part in stmt.body:
                yield from _calls(part)
        case Let(value=MachineCall(kind="extern") as call, body=Seq(body=())):
            yield call
        case _:
            raise TargetError(f"machine code of a device is calls of its functions (te.call_extern), got {stmt}")


def _operand(scope: Scope, arg: Expr, views: Mapping[str, View]) -> str:
    if not isinstance(arg, Pointer):
        return value(scope, arg).text
    view = views[arg.buffer.name]
    storage = scope.storage(view.buffer)
    if storage.fragment is not None:
        return in_registers(scope, view.buffer, view.index)
    at = list(view.index)
    for part, dim, step in zip(arg.index, view.dims, view.steps, strict=True):
        if dim >= 0:
            at[dim] = binary("add", at[dim], binary("mul", part, step))
    return address(scope, view.buffer, at)


def declared_registers(scope: Scope, buffer: Buffer, fragment: Fragment) -> Scope:
    """Declare the registers of an array of a warp; the scope that has it."""
    if buffer.name in scope.buffers:
        raise InternalError(f"the array {buffer.name} in registers is declared twice")
    name = scope.fresh(buffer.name)
    word = scope.dialect.types["uint32" if fragment.elements > 1 else buffer.dtype]
    scope.line(f"{word} {name}[{registers(buffer, fragment)}];")
    return scope.declare(buffer, Storage(name, buffer, "local", fragment))
