"""What goes on the stack of a function, and what into scratch memory."""

from __future__ import annotations

from tensorlang.ir.expr import Buffer, Const
from tensorlang.ir.stmt import Allocate, Seq, Stmt, Store
from tensorlang.target.llvm.storage.frame import STACK_LIMIT, plan_frame


def local(name: str, size: int) -> Buffer:
    """So many bytes of floats."""
    return Buffer(name, (Const(size // 4, "int32"),), "float32", "local")


def nested(*buffers: Buffer) -> Stmt:
    """Buffers allocated one inside the other, and written there."""
    zero = Const(0, "int64")
    body: Stmt = Seq(tuple(Store(b, (zero,), Const(0.0, "float32")) for b in buffers))
    for buffer in reversed(buffers):
        body = Allocate(buffer, body)
    return body


def test_register_tiles_have_the_stack_before_larger_arrays() -> None:
    frame = plan_frame(nested(local("rows", STACK_LIMIT - 256), local("tile", 1024), local("one", 64)), False)
    assert {b.name for b in frame.stack} == {"tile", "one"}
