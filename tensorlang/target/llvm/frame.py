"""The memory of one function: stack slots for small local buffers, one scratch block for the rest."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from tensorlang import dtypes
from tensorlang.ir.expr import Buffer, Const, Expr
from tensorlang.ir.stmt import Allocate, CallMachine, For, LoopKind, Stmt, children
from tensorlang.target.llvm.arithmetic import binary
from tensorlang.target.llvm.expressions import index
from tensorlang.target.llvm.scope import Scope, Storage
from tensorlang.target.llvm.text import INDEX, Function, Value, literal, memory_type

STACK_LIMIT = 16384
"""Bytes of local buffers that one function keeps on its stack."""
NO_MEMORY = -1
"""The status of a call whose scratch block could not be allocated."""
_ALIGNMENT = 64


def storage(fn: Function, scope: Scope, buffer: Buffer, pointer: str, aligned: bool) -> Storage:
    """Describe a buffer at a pointer; its strides are computed here from the sizes in scope."""
    strides: list[Value] = []
    stride = literal(1, INDEX)
    for extent in reversed(buffer.shape):
        strides.insert(0, stride)
        stride = binary(fn, "mul", stride, index(fn, scope, extent))
    return Storage(buffer, pointer, tuple(strides), aligned)


def open_frame(fn: Function, scope: Scope, body: Stmt) -> tuple[Scope, str]:
    """Give every buffer allocated in `body` its memory; return the scope and the scratch block ("" if none).

    Without memory for the scratch block the function stores NO_MEMORY in its context and returns.
    """
    buffers = dict(scope.buffers)
    total = literal(0, INDEX)
    in_scratch: list[tuple[Buffer, Value]] = []
    for buffer in dict.fromkeys(_allocated(body, scope.in_parallel)):
        size = _constant_bytes(buffer.shape, buffer.dtype)
        if buffer.scope == "local" and size is not None and fn.stack_bytes + size <= STACK_LIMIT:
            element = memory_type(buffer.dtype)
            pointer = fn.alloca(f"[{size // dtypes.info(buffer.dtype).bytes} x {element}]", size)
            buffers[buffer.name] = storage(fn, scope, buffer, pointer, aligned=True)
        else:
            in_scratch.append((buffer, total))
            total = binary(fn, "add", total, _rounded_bytes(fn, scope, buffer))
    block = _allocate(fn, total) if in_scratch else ""
    for buffer, offset in in_scratch:
        pointer = block if offset.integer == 0 else fn.op(f"getelementptr inbounds i8, ptr {block}, {offset.typed}")
        buffers[buffer.name] = storage(fn, scope, buffer, pointer, aligned=True)
    return replace(scope, buffers=buffers), block


def close_frame(fn: Function, block: str) -> None:
    """Free the scratch block and return."""
    if block:
        free = fn.module.declare("free", "void", "ptr")
        fn.do(f"call void {free}(ptr {block})")
    fn.do("ret void")


def parameter(held: Storage, name: str) -> str:
    """The declaration of a function parameter that carries a buffer."""
    align = _ALIGNMENT if held.aligned else dtypes.info(held.buffer.dtype).bytes
    return f"ptr noalias align {align} {name}"


def _allocated(stmt: Stmt, in_parallel: bool) -> Iterator[Buffer]:
    """The buffers that `stmt` allocates, bodies of parallel loops aside: they are functions of their own."""
    if isinstance(stmt, For) and stmt.kind is LoopKind.PARALLEL and not in_parallel:
        return
    if isinstance(stmt, Allocate):
        yield stmt.buffer
    if isinstance(stmt, CallMachine):
        stmt = stmt.code.body
    for child in children(stmt):
        yield from _allocated(child, in_parallel)


def _constant_bytes(shape: tuple[Expr, ...], dtype: str) -> int | None:
    size = dtypes.info(dtype).bytes
    for extent in shape:
        if not isinstance(extent, Const):
            return None
        size *= int(extent.value)
    return size


def _rounded_bytes(fn: Function, scope: Scope, buffer: Buffer) -> Value:
    size = literal(dtypes.info(buffer.dtype).bytes, INDEX)
    for extent in buffer.shape:
        size = binary(fn, "mul", size, index(fn, scope, extent))
    up = binary(fn, "add", size, literal(_ALIGNMENT - 1, INDEX))
    steps = binary(fn, "floordiv", up, literal(_ALIGNMENT, INDEX))
    return binary(fn, "mul", steps, literal(_ALIGNMENT, INDEX))


def _allocate(fn: Function, total: Value) -> str:
    size = binary(fn, "max", total, literal(_ALIGNMENT, INDEX))
    allocate = fn.module.declare("aligned_alloc", f"noalias align {_ALIGNMENT} ptr", "i64, i64")
    block = fn.op(f"call noalias align {_ALIGNMENT} ptr {allocate}(i64 {_ALIGNMENT}, {size.typed})")
    failed = fn.value(f"icmp eq ptr {block}, null", "bool")
    stop, work = fn.fresh("nomemory"), fn.fresh("work")
    fn.branch(failed, stop, work)
    fn.start(stop)
    fn.do(f"store atomic i64 {NO_MEMORY}, ptr %context monotonic, align 8")
    fn.do("ret void")
    fn.start(work)
    return block
