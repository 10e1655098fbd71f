"""The memory of one function: stack slots for small local buffers, one piece of scratch memory for the rest."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from math import prod
from operator import itemgetter

from tensorlang import dtypes
from tensorlang.dataclass import dataclass
from tensorlang.ir.expr import Buffer, Const
from tensorlang.ir.stmt import Allocate, CallMachine, CallPython, For, LoopKind, Stmt, children
from tensorlang.runtime.arguments import evaluate_shape
from tensorlang.target.llvm import context
from tensorlang.target.llvm.arithmetic import binary
from tensorlang.target.llvm.expressions import index
from tensorlang.target.llvm.memory import finish_streams
from tensorlang.target.llvm.scope import Scope, Storage
from tensorlang.target.llvm.storage.arena import ALIGNMENT, give_scratch, take_scratch
from tensorlang.target.llvm.storage.liveness import Span, lives
from tensorlang.target.llvm.text import INDEX, Function, Value, literal, memory_type

STACK_LIMIT = 16384
"""Bytes of local buffers that one function keeps on its stack."""
_MOST_BYTES = 1 << 48
"""More than any computer has: what larger arrays count as, so that no sum or product of sizes overflows."""


def storage(fn: Function, scope: Scope, buffer: Buffer, pointer: str, aligned: bool) -> Storage:
    """Describe a buffer at a pointer; its strides are computed here from the sizes in scope."""
    strides: list[Value] = []
    stride = literal(1, INDEX)
    for extent in reversed(buffer.shape):
        strides.insert(0, stride)
        stride = binary(fn, "mul", stride, index(fn, scope, extent))
    return Storage(buffer, pointer, tuple(strides), aligned)


@dataclass(frozen=True, slots=True)
class Slot:
    """Scratch memory for buffers that are never in use at the same time: of constant sizes, or all of one size."""

    buffers: tuple[Buffer, ...]

    def bytes(self, sizes: dict[str, int]) -> int:
        """How much there is, in whole cache lines."""
        return max(-(-_bytes(buffer, sizes) // ALIGNMENT) * ALIGNMENT for buffer in self.buffers)


@dataclass(frozen=True, slots=True)
class Frame:
    """The buffers that one function allocates: on its stack, and in slots of scratch memory, one after the other."""

    stack: tuple[Buffer, ...]
    scratch: tuple[Slot, ...]

    def scratch_bytes(self, sizes: dict[str, int]) -> int:
        """How much scratch memory the function takes, for given sizes."""
        return max(ALIGNMENT, sum(slot.bytes(sizes) for slot in self.scratch)) if self.scratch else 0


@dataclass(frozen=True, slots=True)
class Piece:
    """Scratch memory that an emitted function has taken."""

    pointer: str
    size: Value


def plan_frame(body: Stmt, in_parallel: bool) -> Frame:
    """Share out the buffers of a body; those of parallel loops in it belong to functions of their own."""
    buffers = list(dict.fromkeys(_allocated(body, in_parallel)))
    sizes = [(_bytes(b, {}), b) for b in reversed(buffers) if b.scope == "local" and _is_constant(b)]
    on_stack, left = list[Buffer](), STACK_LIMIT
    # Register tiles need the stack most: they are the smallest, and of as large ones the innermost.
    for size, buffer in sorted(sizes, key=itemgetter(0)):
        if size <= left:
            on_stack.append(buffer)
            left -= size
    names = {b.name for b in on_stack}
    in_scratch = [b for b in buffers if b.name not in names]
    return Frame(tuple(on_stack), _slots(in_scratch, lives(body)) if in_scratch else ())


def _slots(buffers: list[Buffer], spans: dict[str, Span]) -> tuple[Slot, ...]:
    """Slots for buffers, given to them in the order of their lives: the free one whose size is nearest."""
    slots: list[Slot] = []
    for buffer in sorted(buffers, key=lambda b: spans[b.name]):
        free = [slot for slot in slots if _fits(buffer, slot, spans)]
        if not free:
            slots.append(Slot((buffer,)))
            continue
        best = free[0]
        if _is_constant(buffer):
            size = _bytes(buffer, {})
            best = min(free, key=lambda slot: abs(slot.bytes({}) - size))
        slots[slots.index(best)] = Slot((*best.buffers, buffer))
    return tuple(slots)


def _fits(buffer: Buffer, slot: Slot, spans: dict[str, Span]) -> bool:
    """Whether a buffer may follow those of a slot."""
    last = slot.buffers[-1]
    free = spans[last.name][1] < spans[buffer.name][0]
    one_size = last.dtype == buffer.dtype and str(last.shape) == str(buffer.shape)
    return free and (one_size or (_is_constant(last) and _is_constant(buffer)))


def open_frame(fn: Function, scope: Scope, body: Stmt) -> tuple[Scope, Piece | None]:
    """Give every buffer allocated in `body` its memory; return the scope and the scratch memory taken.

    Without memory the function stores NO_MEMORY in its context and returns. What machine code in `body` wants around it
    is set up.
    """
    inner, piece = _with_memory(fn, scope, body)
    _enter_code(fn, body, scope.in_parallel)
    return inner, piece


def _with_memory(fn: Function, scope: Scope, body: Stmt) -> tuple[Scope, Piece | None]:
    frame = plan_frame(body, scope.in_parallel)
    buffers = dict(scope.buffers)
    for buffer in frame.stack:
        size = _bytes(buffer, {})
        pointer = _on_stack(fn, buffer, size)
        fn.slots[pointer] = 0
        buffers[buffer.name] = storage(fn, scope, buffer, pointer, aligned=True)
    if not frame.scratch:
        return replace(scope, buffers=buffers), None
    offsets, total = _places(fn, scope, frame)
    piece = _take(fn, total)
    for slot, offset in zip(frame.scratch, offsets, strict=True):
        start = piece.pointer
        pointer = start if offset.integer == 0 else fn.op(f"getelementptr inbounds i8, ptr {start}, {offset.typed}")
        for buffer in slot.buffers:
            buffers[buffer.name] = storage(fn, scope, buffer, pointer, aligned=True)
    return replace(scope, buffers=buffers), piece


def _on_stack(fn: Function, buffer: Buffer, size: int) -> str:
    return fn.alloca(f"[{size // dtypes.info(buffer.dtype).bytes} x {memory_type(buffer.dtype)}]", size)


def own_slot(fn: Function, scope: Scope, buffer: Buffer) -> Scope:
    """The scope in which a local array that is allocated at several places has memory of its own at this one.

    In one slot, LLVM carries values from place to place in registers where one writes vectors and another elements.
    """
    held = scope.storage(buffer)
    if held.pointer not in fn.slots:
        return scope
    fn.slots[held.pointer] += 1
    size = _bytes(buffer, {})
    if fn.slots[held.pointer] == 1 or fn.stack_bytes + size > STACK_LIMIT:
        return scope
    return replace(scope, buffers={**scope.buffers, buffer.name: replace(held, pointer=_on_stack(fn, buffer, size))})


def _enter_code(fn: Function, body: Stmt, in_parallel: bool) -> None:
    """Set up once what machine code in `body` wants around it, if nothing in between may change that."""
    found, alone = set[tuple[str, str]](), True
    for stmt in _own_statements(body, in_parallel):
        match stmt:
            case CallMachine() if stmt.code.around is not None:
                found.add(stmt.code.around)
            case CallPython():
                alone = False
            case For(kind=LoopKind.PARALLEL) if not in_parallel:
                alone = False
    if alone and len(found) == 1:
        (around,) = found
        fn.around = around
        call_symbol(fn, around[0])


def call_symbol(fn: Function, name: str) -> None:
    """Call a function of a source without arguments or result."""
    fn.do(f"call void {fn.module.declare_extern(name, 'void', '')}()")


def _own_statements(stmt: Stmt, in_parallel: bool) -> Iterator[Stmt]:
    """The statements of a function, bodies of parallel loops aside: they are functions of their own."""
    yield stmt
    if not (isinstance(stmt, For) and stmt.kind is LoopKind.PARALLEL and not in_parallel):
        for child in children(stmt):
            yield from _own_statements(child, in_parallel)


def frame_bytes(fn: Function, scope: Scope, frame: Frame) -> Value:
    """Append what `Frame.scratch_bytes` computes, of the sizes in scope."""
    return _places(fn, scope, frame)[1] if frame.scratch else literal(0, INDEX)


def _places(fn: Function, scope: Scope, frame: Frame) -> tuple[list[Value], Value]:
    """Where the slots of a frame begin, and the bytes of all."""
    offsets, total = [], literal(0, INDEX)
    for slot in frame.scratch:
        offsets.append(total)
        total = binary(fn, "add", total, _slot_bytes(fn, scope, slot))
    return offsets, binary(fn, "max", total, literal(ALIGNMENT, INDEX))


def close_frame(fn: Function, piece: Piece | None) -> None:
    """Give the scratch memory back and return."""
    if piece is not None and not fn.module.library:
        give_scratch(fn, piece.pointer, piece.size)
    if fn.around is not None:
        call_symbol(fn, fn.around[1])
    finish_streams(fn)
    fn.do("ret void")


def parameter(held: Storage, name: str) -> str:
    """The declaration of a function parameter that carries a buffer."""
    align = ALIGNMENT if held.aligned else dtypes.info(held.buffer.dtype).bytes
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


def _bytes(buffer: Buffer, sizes: dict[str, int]) -> int:
    return prod(evaluate_shape(buffer, sizes), start=dtypes.info(buffer.dtype).bytes)


def _is_constant(buffer: Buffer) -> bool:
    return all(isinstance(extent, Const) for extent in buffer.shape)


def _slot_bytes(fn: Function, scope: Scope, slot: Slot) -> Value:
    if all(map(_is_constant, slot.buffers)):
        return literal(min(slot.bytes({}), _MOST_BYTES), INDEX)
    buffer = slot.buffers[0]
    size = literal(dtypes.info(buffer.dtype).bytes, INDEX)
    for extent in buffer.shape:
        size = product(fn, size, _at_least_none(fn, index(fn, scope, extent)))
    up = binary(fn, "add", size, literal(ALIGNMENT - 1, INDEX))
    steps = binary(fn, "floordiv", up, literal(ALIGNMENT, INDEX))
    return binary(fn, "mul", steps, literal(ALIGNMENT, INDEX))


def _at_least_none(fn: Function, extent: Value) -> Value:
    """An extent, or 0 where it is below: loops over it run not at all."""
    return extent if extent.integer is not None else binary(fn, "max", extent, literal(0, INDEX))


def product(fn: Function, a: Value, b: Value) -> Value:
    """The product of two sizes, at most _MOST_BYTES."""
    most = literal(_MOST_BYTES, INDEX)
    if a.integer is not None and b.integer is not None:
        return literal(min(a.integer * b.integer, _MOST_BYTES), INDEX)
    fn.module.declare("llvm.smul.with.overflow.i64", "{i64, i1}", "i64, i64")
    both = fn.op(f"call {{i64, i1}} @llvm.smul.with.overflow.i64({a.typed}, {b.typed})")
    product = fn.value(f"extractvalue {{i64, i1}} {both}, 0", INDEX)
    over = fn.value(f"extractvalue {{i64, i1}} {both}, 1", "bool")
    least = binary(fn, "min", product, most)
    return fn.value(f"select {over.typed}, {most.typed}, {least.typed}", INDEX)


def at_most(fn: Function, size: Value) -> Value:
    """A size, or _MOST_BYTES where it is above."""
    return size if size.integer is not None else binary(fn, "min", size, literal(_MOST_BYTES, INDEX))


def _take(fn: Function, size: Value) -> Piece:
    if fn.module.library:
        return Piece(fn.op(f"load ptr, ptr {fn.field('%context', context.WORKSPACE)}, align 8"), size)
    piece = take_scratch(fn, size)
    failed = fn.value(f"icmp eq ptr {piece}, null", "bool")
    stop, work = fn.fresh("nomemory"), fn.fresh("work")
    fn.branch(failed, stop, work)
    fn.start(stop)
    fn.do(f"store atomic i64 {context.NO_MEMORY}, ptr %context monotonic, align 8")
    fn.do("ret void")
    fn.start(work)
    return Piece(piece, size)
