"""What goes on the stack of a function, and what into scratch memory."""

from __future__ import annotations

import tensorlang
from tensorlang import te, topi
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


def test_the_innermost_of_arrays_of_one_size_have_the_stack() -> None:
    frame = plan_frame(nested(*(local(name, STACK_LIMIT // 2) for name in ("result", "part", "tile"))), False)
    assert {b.name for b in frame.stack} == {"part", "tile"}


def test_arrays_that_are_allocated_at_several_places_share_no_memory() -> None:
    """Tiles of the last column by elements beside others by vectors: in one array all passed on their values."""
    x, w = te.placeholder((20, 24)), te.placeholder((24, 33))
    y = topi.matmul(x, w)
    built = tensorlang.build(topi.schedule(y, target="llvm -num-cores=1"), [x, w, y])
    loops, code = built.source("loops"), built.source("ll")
    assert loops.count("in local\n") > 1
    assert code.count(" x float], align 64") == loops.count("in local\n")
