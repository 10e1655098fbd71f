"""Expressions of machine code: reinterpreted bits, and calls by symbol."""

from __future__ import annotations

from tensorlang import dtypes
from tensorlang.ir.machine import MachineCall
from tensorlang.target.llvm.text import Function, Value, vector_type


def reinterpret(fn: Function, value: Value, dtype: str, lanes: int) -> Value:
    """The same bits as another scalar or vector."""
    target = Value("", dtype, lanes)
    if target.type == value.type:
        return Value(value.text, dtype, lanes)
    return fn.value(f"bitcast {value.typed} to {target.type}", dtype, lanes)


def call(fn: Function, expr: MachineCall, operands: list[Value | str]) -> Value:
    """Call an LLVM intrinsic or a C function; an operand is a value or an address."""
    if expr.kind == "llvm":
        return _call_llvm(fn, expr, [o for o in operands if isinstance(o, Value)])
    types = [_c_type(o) for o in operands]
    texts = [o.text if isinstance(o, Value) else o for o in operands]
    result = _c_type(Value("", expr.dtype)) if expr.returns else "void"
    callee = fn.module.declare_extern(expr.name, result, ", ".join(types))
    text = f"call {result} {callee}({', '.join(f'{t} {x}' for t, x in zip(types, texts, strict=True))})"
    if expr.returns:
        return fn.value(text, expr.dtype)
    fn.do(text)
    return Value("0", "int32")


def _call_llvm(fn: Function, expr: MachineCall, operands: list[Value]) -> Value:
    given = [_native(fn, o) for o in operands]
    result = _native_type(expr.dtype, expr.lanes)
    callee = fn.module.declare(expr.name, result, ", ".join(t for t, _ in given))
    made = fn.op(f"call {result} {callee}({', '.join(f'{t} {x}' for t, x in given)})")
    held = Value(made, expr.dtype, expr.lanes)
    return held if held.type == result else fn.value(f"bitcast {result} {made} to {held.type}", expr.dtype, expr.lanes)


def _native_type(dtype: str, lanes: int) -> str:
    """The LLVM type that an intrinsic takes: bfloat16 is a type of its own there."""
    return vector_type("bfloat" if dtype == "bfloat16" else dtypes.info(dtype).llvm, lanes)


def _native(fn: Function, value: Value) -> tuple[str, str]:
    """Type and text of an operand of an LLVM intrinsic."""
    native = _native_type(value.dtype, value.lanes)
    return native, value.text if native == value.type else fn.op(f"bitcast {value.typed} to {native}")


def _c_type(operand: Value | str) -> str:
    """The type of an operand as the C calling convention takes it: narrow integers are extended."""
    if isinstance(operand, str):
        return "ptr"
    d = dtypes.info(operand.dtype)
    extension = {"int": " signext", "uint": " zeroext", "bool": " zeroext"}.get(d.kind, "") if d.bits < 32 else ""
    return f"{operand.type}{extension}"
