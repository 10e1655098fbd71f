"""Updates of one element in one step: an instruction where LLVM has it, else a loop that tries until nobody was there.

The order in which threads update an element is left open (monotonic): the end of the parallel loop orders all of them
before what comes next.
"""

from __future__ import annotations

from tensorlang import dtypes
from tensorlang.ir.expr import Load
from tensorlang.ir.stmt import AtomicUpdate
from tensorlang.target.llvm.arithmetic import binary, cast
from tensorlang.target.llvm.expressions import place, value
from tensorlang.target.llvm.machine import reinterpret
from tensorlang.target.llvm.memory import Place
from tensorlang.target.llvm.scope import Scope
from tensorlang.target.llvm.text import Function, Value

_INTEGERS = {
    "add": "add", "sub": "sub", "bitand": "and", "bitor": "or", "bitxor": "xor", "min": "min", "max": "max",
}  # fmt: skip
_FLOATS = {"add": "fadd", "sub": "fsub"}
"""Operators with an instruction of their own. A minimum of floats is none: LLVM's drops a NaN, ours keeps it."""


def atomic_update(fn: Function, scope: Scope, stmt: AtomicUpdate) -> None:
    """Append the instructions of an update that other threads do not cut."""
    operand = value(fn, scope, stmt.value)
    where = place(fn, scope, Load(stmt.buffer, stmt.index))
    word = _instruction(stmt.op, where.dtype)
    if word:
        fn.op(f"atomicrmw {word} ptr {where.pointer}, {operand.typed} monotonic, align {where.align}")
    else:
        _exchange(fn, where, stmt.op, operand)


def _instruction(op: str, dtype: str) -> str:
    d = dtypes.info(dtype)
    if d.is_float:
        return _FLOATS.get(op, "") if d.bits >= 32 else ""
    word = _INTEGERS.get(op, "") if d.is_integer else ""
    return f"u{word}" if word in ("min", "max") and d.kind == "uint" else word


def _exchange(fn: Function, where: Place, op: str, operand: Value) -> None:
    """Compute from what was read, and store if the element is still that; else again from what it is now."""
    again, done = fn.fresh("again"), fn.fresh("done")
    bits = f"int{8 * where.align}"
    first = fn.value(f"load atomic i{8 * where.align}, ptr {where.pointer} monotonic, align {where.align}", bits)
    before, seen = fn.block, f"%{fn.fresh('seen')}"
    fn.jump(again)
    fn.start(again)
    old = fn.value(f"phi {first.type} [{first.text}, %{before}], [{seen}, %{again}]", bits)
    # The value is computed without a branch, so that the block is its own predecessor.
    new = binary(fn, op, _element(fn, old, where.dtype), operand)
    stored = reinterpret(fn, cast(fn, new, where.stored), bits, 0)
    pair = fn.op(f"cmpxchg ptr {where.pointer}, {old.typed}, {stored.typed} monotonic monotonic, align {where.align}")
    fn.do(f"{seen} = extractvalue {{ {first.type}, i1 }} {pair}, 0")
    stays = fn.value(f"extractvalue {{ {first.type}, i1 }} {pair}, 1", "bool")
    fn.branch(stays, done, again)
    fn.start(done)


def _element(fn: Function, bits: Value, dtype: str) -> Value:
    """The element that bits in memory stand for."""
    if dtype == "bool":
        return cast(fn, Value(bits.text, "uint8"), dtype)
    return reinterpret(fn, bits, dtype, 0)
