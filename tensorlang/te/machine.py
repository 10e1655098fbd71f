"""What the body of an intrinsic is written with: vector constants, reinterpreted bits, and calls by symbol."""

from __future__ import annotations

from typing import Any

from tensorlang import dtypes
from tensorlang.errors import DefinitionError
from tensorlang.ir import expr as ir
from tensorlang.ir import intrinsics
from tensorlang.ir.expr import Const, Expr, ExprLike, Var, as_expr
from tensorlang.ir.machine import Broadcast, MachineCall, Reinterpret, dtype_text, lanes, vector_dtype
from tensorlang.ir.stmt import Let, Seq, Stmt
from tensorlang.location import caller
from tensorlang.te.lowering_rules import asked, of_c

_VOID = ("void", "handle", "")
_REINTERPRET = ("tir.reinterpret", "reinterpret")


def const(value: int | float | bool, dtype: str | None = None) -> Expr:
    """Return a literal; of a vector dtype (`int32x16`) one in every lane."""
    element, wide = vector_dtype(dtype) if isinstance(dtype, str) else (dtype, 0)
    literal = ir.const(value, element)
    return Broadcast(literal, wide) if wide else literal


def broadcast(value: ExprLike, count: int) -> Expr:
    """Return a vector with a scalar in all of its `count` lanes."""
    scalar = as_expr(value)
    if lanes(scalar) or count < 1:
        raise DefinitionError(f"Broadcast takes a scalar and at least one lane, got {scalar} and {count}", caller())
    return Broadcast(scalar, count)


def reinterpret(dtype: str, value: ExprLike) -> Expr:
    """Return the bits of a scalar or vector as another dtype of the same size: `reinterpret("float16", word)`.

    Scalars can stand in any expression; vectors (`reinterpret("int32x16", bytes)`) only in the body of an intrinsic.
    Raises DefinitionError where the sizes differ, or a scalar is a bool.

        >>> from tensorlang import te
        >>> te.evaluate(lambda x: te.reinterpret("uint32", x), 1.0)
        np.uint32(1065353216)
    """
    source, element, wide = _checked(dtype, value)
    return Reinterpret(source, element, wide) if wide or lanes(source) else _scalar(source, element)


def _checked(dtype: str, value: ExprLike) -> tuple[Expr, str, int]:
    """A value, and the element and the lanes that it is to be reinterpreted as."""
    source, (element, wide) = as_expr(value), vector_dtype(dtype)
    have = dtypes.info(source.dtype).bits * max(1, lanes(source))
    want = dtypes.info(element).bits * max(1, wide)
    if have != want:
        raise DefinitionError(f"{dtype_text(source)} has {have} bits, {dtype} has {want}; they must agree", caller())
    return source, element, wide


def _scalar(source: Expr, dtype: str) -> Expr:
    """The bits of one element as another dtype: integers of one width are converted, floats by way of theirs."""
    have, want = dtypes.info(source.dtype), dtypes.info(dtype)
    if "bool" in (have.kind, want.kind):
        raise DefinitionError(f"a bool has no bits to reinterpret, got {source} as {dtype}; cast it", caller())
    if have.name == want.name:
        return source
    bits = intrinsics.call("bits_of", source) if have.is_float else ir.cast(source, want.bits_dtype)
    return intrinsics.call(f"{dtype}_of_bits", bits) if want.is_float else ir.cast(bits, dtype)


def call_extern(dtype: str, func_name: str, *args: Any) -> Expr:
    """Return a call of a C function by its symbol; `dtype` is that of its result (`void`: none).

    Operands are scalars and the pointers of `access_ptr`. The function comes from the `source=` of the intrinsic, or
    from a library that this process has loaded; those of C's math library (`expf`) are te's, in any expression.
    """
    operands = tuple(_operand(a, func_name) for a in args)
    known = None if any(map(lanes, operands)) else of_c(dtype, func_name, operands)
    if known is not None:
        return known
    if dtype in _VOID:
        return MachineCall("extern", func_name, operands, "int32", returns=False)
    element, wide = vector_dtype(dtype)
    if wide or any(lanes(o) for o in operands):
        raise DefinitionError(f"{func_name} is a C function: it takes and returns scalars and pointers", caller())
    return MachineCall("extern", func_name, operands, element)


def call_llvm_intrin(dtype: str, name: str, *args: Any) -> Expr:
    """Return a call of an LLVM intrinsic: `call_llvm_intrin("int32x16", "llvm.x86.avx512.vpdpbusd.512", c, a, b)`.

    A first operand of dtype uint32 and constant, classic te's count of signature types, is left out.
    """
    if not name.startswith("llvm."):
        raise DefinitionError(f"the names of LLVM intrinsics begin with 'llvm.', got {name!r}", caller())
    operands = tuple(_operand(a, name) for a in args)
    if operands and isinstance(operands[0], Const) and operands[0].dtype == "uint32":
        operands = operands[1:]
    element, wide = vector_dtype(dtype)
    return MachineCall("llvm", name, operands, element, wide)


def call_intrin(dtype: str, func_name: str, *args: Any) -> Expr:
    """Return a call of `tir.reinterpret`, of a function of te (`tir.exp`), or of a name with a rule for it.

    See register_intrin_lowering; DefinitionError for other names, and other numbers of operands.
    """
    if func_name not in _REINTERPRET or len(args) != 1:
        found = asked(func_name, dtype, args)
        if found is not None:
            return found
        raise DefinitionError(
            f"call_intrin knows tir.reinterpret of one operand, te's functions, and what ir.register_intrin_lowering "
            f"has a rule for, got {func_name} of {len(args)}; others are tir.call_llvm_intrin and tir.call_extern",
            caller(),
        )
    return Reinterpret(*_checked(dtype, args[0]))


def evaluate(value: Expr) -> Stmt:
    """Return the statement that evaluates an expression for its effect."""
    return Let(Var("_", value.dtype), value, Seq(()))


def stmt_seq(*parts: Any) -> Stmt:
    """Return statements one after the other; an expression among them is evaluated."""
    return Seq(tuple(evaluate(p) if isinstance(p, Expr) else p for p in parts))


def _operand(value: Any, name: str) -> Expr:
    if isinstance(value, str):
        raise DefinitionError(f"{name} got the text {value!r}; operands are numbers, vectors and pointers", caller())
    operand = as_expr(value)
    lanes(operand)  # its operands agree
    return operand
