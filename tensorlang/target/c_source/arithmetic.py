"""Operations on pieces of C, with NumPy's semantics.

Integers wrap around: where they may, C computes in unsigned integers. Division by zero gives 0, the smallest integer
by -1 itself; shifts by the width or more give 0 (or the sign). Floats of 16 and 8 bits are held as float32 and rounded
after every operation. float32 and float64 additions and multiplications may contract to fused multiply-adds.
"""

from __future__ import annotations

from dataclasses import replace

import ml_dtypes  # noqa: F401  (NumPy learns of bfloat16)
import numpy as np

from tensorlang import dtypes
from tensorlang.errors import InternalError
from tensorlang.ir.operators import DIVISION
from tensorlang.target.c_source import code as c
from tensorlang.target.c_source.code import Code, Interval, limits, within
from tensorlang.target.c_source.dialect import NARROW, Dialect
from tensorlang.target.c_source.scope import Text

_RANK = {
    "add": c.SUM, "sub": c.SUM, "mul": c.PRODUCT, "div": c.PRODUCT, "bitand": c.BITAND, "bitor": c.BITOR,
    "bitxor": c.BITXOR, "eq": c.EQUAL, "ne": c.EQUAL, "lt": c.LESS, "le": c.LESS, "gt": c.LESS, "ge": c.LESS,
    "and": c.AND, "or": c.OR,
}  # fmt: skip
_SIGN = {
    "add": "+", "sub": "-", "mul": "*", "div": "/", "bitand": "&", "bitor": "|", "bitxor": "^", "eq": "==", "ne": "!=",
    "lt": "<", "le": "<=", "gt": ">", "ge": ">=", "and": "&&", "or": "||",
}  # fmt: skip
_COMPARE = ("eq", "ne", "lt", "le", "gt", "ge")
_OF_RANGES = {"add": c.total, "sub": c.difference, "mul": c.product}
BOOL: Interval = (0, 1)


def literal(dialect: Dialect, value: int | float | bool, dtype: str) -> Code:
    """A constant."""
    d = dtypes.info(dtype)
    if d.is_float:
        rounded_value = d.numpy.type(value)
        made = _float_literal(dialect, float(rounded_value), dtype)
        return replace(made, stored=f"0x{rounded_value.tobytes()[::-1].hex()}") if d.is_narrow_float else made
    number = int(value)
    interval = number, number
    if d.kind == "bool":
        return Code("true" if value else "false", dtype, interval=interval)
    narrow = dtype == "int64" and within(interval, c.INT32)
    suffix = "" if narrow else dialect.suffixes.get(dtype, "")
    if dtype in ("int32", "int64") and number in (c.INT32[0], limits("int64")[0]):
        # C has no negative literals, and the positive number does not fit.
        return Code(f"{number + 1}{suffix} - 1", dtype, c.SUM, interval, narrow)
    return Code(f"{number}{suffix}", dtype, c.ATOM if number >= 0 else c.PREFIX, interval, narrow)


def _float_literal(dialect: Dialect, value: float, dtype: str) -> Code:
    held = "float64" if dtype == "float64" else "float32"
    if np.isnan(value):
        return Code(dialect.nan[held], dtype)
    if np.isinf(value):
        text = dialect.infinity[held]
        return Code(text, dtype) if value > 0 else Code(f"-{text}", dtype, c.PREFIX)
    text = str(value if held == "float64" else np.float32(value))
    suffix = "" if held == "float64" else "f"
    return Code(text + suffix, dtype, c.PREFIX if text.startswith("-") else c.ATOM)


def rounded(text: Text, value: Code, dtype: str) -> Code:
    """A float32 rounded to a narrow float, which is held as a float32."""
    name = text.call(f"tl_round_{NARROW[dtype]}")
    return Code(f"{name}({value.text})", dtype, unrounded=value.text)


def binary(text: Text, op: str, a: Code, b: Code, trusted: bool = False) -> Code:
    """Apply a binary operation of tensorlang.ir.expr; `trusted` arithmetic fits the index type of the kernel."""
    d = dtypes.info(a.dtype)
    if op in _COMPARE or op in ("and", "or"):
        return _infix(op, a, b, "bool", BOOL)
    if op in ("min", "max"):
        return _extreme(text, op, a, b)
    if d.is_float:
        return _float(text, op, a, b)
    if op in DIVISION:
        return _divide(text, op, a, b)
    if op in ("shl", "shr"):
        return _shift(text, op, a, b)
    if op in ("bitand", "bitor", "bitxor"):
        return _bitwise(op, a, b)
    if op in _OF_RANGES:
        return _integer(text, op, a, b, trusted)
    raise InternalError(f"binary operation {op} on {a.dtype} reached the C printer")


def _infix(op: str, a: Code, b: Code, dtype: str, interval: Interval = (0, 0)) -> Code:
    rank = _RANK[op]
    return Code(f"{a.at(rank)} {_SIGN[op]} {b.at(rank + 1)}", dtype, rank, interval)


def _integer(text: Text, op: str, a: Code, b: Code, trusted: bool) -> Code:
    """A sum, difference or product."""
    dtype, interval = a.dtype, _OF_RANGES[op](a.interval, b.interval)
    unknown = a.unknown or b.unknown
    plain = replace(_infix(op, a, b, dtype, interval), unknown=unknown)
    if dtype == "int64":
        both = a.narrow and b.narrow
        if both and (within(interval, c.INT32) or (trusted and unknown and text.indices == "int32")):
            return replace(plain, narrow=True, interval=(max(interval[0], c.INT32[0]), min(interval[1], c.INT32[1])))
        if within(interval, limits(dtype)) or (trusted and unknown):
            interval = interval if within(interval, limits(dtype)) else c.UNKNOWN
            first = widened(text, a) if both else a
            return replace(_infix(op, first, b, dtype, interval), unknown=unknown)
    elif dtype in ("uint32", "uint64"):
        return plain if within(interval, limits(dtype)) else replace(plain, interval=limits(dtype))
    elif within(interval, limits(dtype)):
        return plain
    elif within(interval, c.INT32):
        return Code(f"({text.dialect.types[dtype]})({plain.text})", dtype, c.PREFIX, limits(dtype))
    return wrapped(text, op, a, b)


def wrapped(text: Text, op: str, a: Code, b: Code) -> Code:
    """A sum, difference or product of signed integers or short ones, that wraps around."""
    rank = _RANK[op]
    (x, x_rank), (y, y_rank) = _bits(text, a), _bits(text, b)
    x, y = x if x_rank >= rank else f"({x})", y if y_rank > rank else f"({y})"
    bits = f"{x} {_SIGN[op]} {y}"
    type_ = text.dialect.types[a.dtype]
    return Code(f"({type_})({bits})", a.dtype, c.PREFIX, limits(a.dtype), bits=bits, bits_rank=rank)


def _bits(text: Text, a: Code) -> tuple[str, int]:
    """The low bits of an integer as an unsigned one, and how tightly the text binds."""
    if a.bits:
        return a.bits, a.bits_rank
    if a.dtype in ("uint32", "uint64"):
        return a.text, a.rank
    wide = dtypes.info(a.dtype).bits == 64
    if a.constant is not None and a.constant >= 0:
        return f"{a.constant}{text.dialect.suffixes['uint64' if wide else 'uint32']}", c.ATOM
    return f"({text.dialect.unsigned(64 if wide else 32)}){a.at(c.PREFIX)}", c.PREFIX


def widened(text: Text, a: Code) -> Code:
    """An int64 that is one in C."""
    if not a.narrow:
        return a
    if a.constant is not None:
        sign = c.ATOM if a.constant >= 0 else c.PREFIX
        return replace(a, text=f"{a.constant}{text.dialect.suffixes['int64']}", rank=sign, narrow=False)
    return replace(a, text=f"({text.dialect.types['int64']}){a.at(c.PREFIX)}", rank=c.PREFIX, narrow=False)


def _bitwise(op: str, a: Code, b: Code) -> Code:
    if op == "bitand" and a.interval[0] >= 0 and b.interval[0] >= 0:
        interval = 0, min(a.interval[1], b.interval[1])
    elif op in ("bitor", "bitxor") and a.interval[0] >= 0 and b.interval[0] >= 0:
        interval = 0, 2 ** max(a.interval[1], b.interval[1]).bit_length() - 1
    else:
        interval = limits(a.dtype)
    return replace(_infix(op, a, b, a.dtype, interval), narrow=a.narrow and b.narrow)


def _divide(text: Text, op: str, a: Code, b: Code) -> Code:
    floor, div = op.startswith("floor"), op.endswith("div")
    interval = (c.quotient if div else c.remainder)(a.interval, b.interval, floor)
    narrow = a.narrow and b.narrow and within(interval, c.INT32)
    if not within(interval, limits(a.dtype)):
        interval = limits(a.dtype)
    made = Code("", a.dtype, c.ATOM, interval, narrow, a.unknown or b.unknown)
    divisor, sign = b.constant, "/" if div else "%"
    safe = b.interval[0] > 0 or (not floor and divisor is not None and divisor < -1)
    if safe and (not floor or a.interval[0] >= 0):
        return replace(made, text=f"{a.at(c.PRODUCT)} {sign} {b.at(c.PREFIX)}", rank=c.PRODUCT)
    if floor and divisor is not None and divisor > 0 and divisor & (divisor - 1) == 0:
        if div:
            return replace(made, text=f"{a.at(c.SHIFT)} >> {divisor.bit_length() - 1}", rank=c.SHIFT)
        return replace(made, text=f"{a.at(c.BITAND)} & {divisor - 1}", rank=c.BITAND)
    name = text.call(f"{op}_{'int32' if narrow else a.dtype}")
    return replace(made, text=f"{name}({a.text}, {b.text})")


def _shift(text: Text, op: str, a: Code, b: Code) -> Code:
    bits, amount = dtypes.info(a.dtype).bits, b.constant
    inside = amount is not None and 0 <= amount < bits
    if not inside:
        return Code(f"{text.call(f'{op}_{a.dtype}')}({a.text}, {b.text})", a.dtype, interval=limits(a.dtype))
    assert amount is not None
    if op == "shr":
        interval = a.interval[0] >> amount, a.interval[1] >> amount
        return Code(f"{a.at(c.SHIFT)} >> {amount}", a.dtype, c.SHIFT, interval, a.narrow)
    low_bits, rank = _bits(text, a)
    moved = f"{low_bits if rank >= c.SHIFT else f'({low_bits})'} << {amount}"
    interval = a.interval[0] << amount, a.interval[1] << amount
    interval = interval if within(interval, limits(a.dtype)) else limits(a.dtype)
    if a.dtype in ("uint32", "uint64"):
        return Code(moved, a.dtype, c.SHIFT, interval)
    typed = f"({text.dialect.types[a.dtype]})({moved})"
    return Code(typed, a.dtype, c.PREFIX, interval, bits=moved, bits_rank=c.SHIFT)


def _extreme(text: Text, op: str, a: Code, b: Code) -> Code:
    d, low = dtypes.info(a.dtype), op == "min"
    if d.kind == "bool":
        return _infix("and" if low else "or", a, b, "bool", BOOL)
    if d.is_float:
        held = "float64" if d.bits == 64 else "float32"
        return Code(f"{text.call(f'{op}_{held}')}({a.text}, {b.text})", a.dtype)
    choose = min if low else max
    interval = choose(a.interval[0], b.interval[0]), choose(a.interval[1], b.interval[1])
    narrow = a.narrow and b.narrow
    if d.bits < 32:
        x, y = (f"(int){v.at(c.PREFIX)}" for v in (a, b))
    else:
        x, y = (v.text for v in ((a, b) if narrow else (widened(text, a), widened(text, b))))
        if a.dtype == "int32":
            x, y = (v.text if v.constant is not None else _as_int(v) for v in (a, b))
    return Code(f"{op}({x}, {y})", a.dtype, interval=interval, narrow=narrow, unknown=a.unknown or b.unknown)


def _as_int(a: Code) -> str:
    """An int32 for a function that is overloaded: what is held may be shorter."""
    return a.text if a.interval == c.INT32 or a.rank == c.ATOM else f"(int){a.at(c.PREFIX)}"


def _float(text: Text, op: str, a: Code, b: Code) -> Code:
    d = dtypes.info(a.dtype)
    held = "float64" if d.bits == 64 else "float32"
    if op == "truncmod":
        made = Code(f"{function(text, 'fmod', held)}({a.text}, {b.text})", held)
    elif op in DIVISION:
        made = Code(f"{text.call(f'{op}_{held}')}({a.text}, {b.text})", held)
    else:
        made = _infix(op, a, b, held)
    return rounded(text, made, a.dtype) if d.is_narrow_float else replace(made, dtype=a.dtype)


def function(text: Text, name: str, held: str) -> str:
    """The name of a function of C's mathematical library."""
    return name + (text.dialect.float_suffix if held == "float32" else "")


def unary(text: Text, op: str, a: Code) -> Code:
    """Apply neg, not or invert."""
    if op == "not":
        return Code(f"!{a.at(c.PREFIX)}", "bool", c.PREFIX, BOOL)
    d = dtypes.info(a.dtype)
    if op == "invert":
        interval = (-a.interval[1] - 1, -a.interval[0] - 1) if d.kind == "int" else limits(a.dtype)
        flipped = f"~{a.at(c.PREFIX)}"
        if d.kind == "uint" and d.bits < 32:
            return Code(f"({text.dialect.types[a.dtype]}){flipped}", a.dtype, c.PREFIX, interval)
        return Code(flipped, a.dtype, c.PREFIX, interval, a.narrow)
    negated = f"-({a.text})" if a.text.startswith("-") else f"-{a.at(c.PREFIX)}"
    if d.is_float:
        return Code(negated, a.dtype, c.PREFIX)
    interval = -a.interval[1], -a.interval[0]
    if d.kind == "int" and within(interval, limits(a.dtype)):
        narrow = a.narrow and within(interval, c.INT32)
        if narrow or not a.narrow:
            return Code(negated, a.dtype, c.PREFIX, interval, narrow, a.unknown)
    zero = literal(text.dialect, 0, a.dtype)
    return binary(text, "sub", zero, a) if d.bits >= 32 and d.kind == "uint" else wrapped(text, "sub", zero, a)


def cast(text: Text, a: Code, dtype: str) -> Code:
    """Convert with NumPy's rules; floats to integers truncate and saturate, and NaN gives 0."""
    source, goal = dtypes.info(a.dtype), dtypes.info(dtype)
    if a.dtype == dtype:
        return a
    if goal.kind == "bool":
        zero = literal(text.dialect, 0, a.dtype)
        return Code(f"{a.at(c.EQUAL)} != {zero.text}", "bool", c.EQUAL, BOOL)
    if goal.is_float:
        return _to_float(text, a, dtype)
    if source.is_float:
        return _float_to_integer(text, a, dtype)
    return _integer_to_integer(text, a, dtype)


def _integer_to_integer(text: Text, a: Code, dtype: str) -> Code:
    bits, fits = dtypes.info(dtype).bits, within(a.interval, limits(dtype))
    if a.constant is not None and fits:
        return literal(text.dialect, a.constant, dtype)
    short = dtypes.info(a.dtype).bits < 32 or a.dtype == "int32" or a.narrow
    unknown = a.unknown and dtype in ("int32", "int64")
    interval = a.interval if fits else limits(dtype)
    if fits and short and (bits < 32 or dtype in ("int32", "int64")):
        if text.dialect.same_operands and dtypes.info(a.dtype).bits < 32 <= bits:
            return Code(f"(int){a.at(c.PREFIX)}", dtype, c.PREFIX, interval, narrow=dtype == "int64", unknown=unknown)
        return Code(a.text, dtype, a.rank, interval, narrow=dtype == "int64", unknown=unknown)
    return Code(f"({text.dialect.types[dtype]}){a.at(c.PREFIX)}", dtype, c.PREFIX, interval, unknown=unknown)


def _to_float(text: Text, a: Code, dtype: str) -> Code:
    source, goal = dtypes.info(a.dtype), dtypes.info(dtype)
    if goal.is_narrow_float:
        if source.is_float and source.bits == 64:
            # Half precision is reached through float32; float64 to float16 keeps what rounding twice would lose.
            odd = Code(f"{text.call('tl_round_to_odd')}({a.text})", "float32")
            return rounded(text, odd if dtype == "float16" else _to_float(text, a, "float32"), dtype)
        return rounded(text, _to_float(text, a, "float32"), dtype)
    if source.is_float and source.bits < 64 and dtype == "float32":
        return Code(a.text, dtype, a.rank)
    return Code(f"({text.dialect.types[dtype]}){a.at(c.PREFIX)}", dtype, c.PREFIX)


def _float_to_integer(text: Text, a: Code, dtype: str) -> Code:
    held = "float64" if a.dtype == "float64" else "float32"
    return Code(f"{text.call(f'{dtype}_from_{held}')}({a.text})", dtype, interval=limits(dtype))


def select(text: Text, cond: Code, then: Code, orelse: Code) -> Code:
    """`then` where `cond` holds, else `orelse`; the other is not evaluated."""
    interval = min(then.interval[0], orelse.interval[0]), max(then.interval[1], orelse.interval[1])
    both = then.narrow and orelse.narrow
    code = f"{cond.at(c.OR)} ? {then.at(c.OR)} : {orelse.at(c.TERNARY)}"
    stored = f"{cond.at(c.OR)} ? {then.stored} : {orelse.stored}" if then.stored and orelse.stored else ""
    return Code(code, then.dtype, c.TERNARY, interval, both, then.unknown or orelse.unknown, stored=stored)
