"""Typed operations on values, scalar or vector, with NumPy's semantics.

Integers wrap around; division by zero gives 0 and the smallest integer divided by -1 itself; shifts by the
width or more give 0 (or the sign). Floats of 16 and 8 bits are computed in float32 and rounded after every
operation; those that LLVM does not have are held as their bits. float32 and float64 additions and multiplications
may contract to fused multiply-adds.
"""

from __future__ import annotations

from tensorlang import dtypes
from tensorlang.errors import InternalError, TargetError
from tensorlang.ir.operators import COMPARE, DIVISION, ON_INTEGERS
from tensorlang.target.detect import target_cpu
from tensorlang.target.llvm import narrow_floats
from tensorlang.target.llvm.text import INDEX, Function, Value, literal, vector_type

_FLOAT = {"add": "fadd contract", "sub": "fsub contract", "mul": "fmul contract", "div": "fdiv"}
_INTEGER = {"add": "add", "sub": "sub", "mul": "mul", "bitand": "and", "bitor": "or", "bitxor": "xor"}
_SIGNIFICANT = {"float32": 24, "float64": 53}
"""Bits of the whole numbers that a float has without a gap."""


def splat(fn: Function, value: Value, lanes: int) -> Value:
    """Repeat a scalar in every lane; vectors of the right width are returned as they are."""
    if value.lanes == lanes:
        return value
    if value.lanes:
        raise InternalError(f"a vector of {value.lanes} lanes where {lanes} were expected")
    if not value.text.startswith("%"):
        return Value(f"splat ({value.typed})", value.dtype, lanes)
    type_ = vector_type(dtypes.info(value.dtype).llvm, lanes)
    first = fn.op(f"insertelement {type_} poison, {value.typed}, i64 0")
    return fn.value(
        f"shufflevector {type_} {first}, {type_} poison, <{lanes} x i32> zeroinitializer", value.dtype, lanes
    )


def matched(fn: Function, *values: Value) -> tuple[Value, ...]:
    """Bring values to the same number of lanes."""
    lanes = max(v.lanes for v in values)
    return tuple(splat(fn, v, lanes) for v in values)


def constant(value: int | float | bool, like: Value) -> Value:
    """A constant of the dtype and lanes of another value."""
    scalar = literal(value, like.dtype)
    return Value(f"splat ({scalar.typed})", like.dtype, like.lanes) if like.lanes else scalar


def select(fn: Function, cond: Value, then: Value, orelse: Value) -> Value:
    """Lane by lane, `then` where `cond` holds, else `orelse`."""
    lanes = max(cond.lanes, then.lanes, orelse.lanes)
    x, y = splat(fn, then, lanes), splat(fn, orelse, lanes)
    return fn.value(f"select {cond.typed}, {x.typed}, {y.typed}", then.dtype, lanes)


def extract(fn: Function, value: Value, lane: int) -> Value:
    """One lane of a vector; a scalar is the same in all."""
    return fn.value(f"extractelement {value.typed}, i64 {lane}", value.dtype) if value.lanes else value


def binary(fn: Function, op: str, a: Value, b: Value) -> Value:
    """Apply a binary operation of tensorlang.ir.expr to two values of one dtype."""
    folded = _fold(fn, op, a, b)
    if folded is not None:
        return folded
    a, b = matched(fn, a, b)
    d = dtypes.info(a.dtype)
    if op in COMPARE:
        return _compare(fn, op, a, b)
    if op in ("and", "or"):
        return fn.value(f"{op} {a.type} {a.text}, {b.text}", "bool", a.lanes)
    if op in ("min", "max"):
        return _extreme(fn, op, a, b)
    if d.is_narrow_float:
        return cast(fn, binary(fn, op, cast(fn, a, "float32"), cast(fn, b, "float32")), a.dtype)
    if d.is_float:
        return _float_division(fn, op, a, b) if op in DIVISION else _apply(fn, _FLOAT[op], a, b)
    if op in DIVISION:
        return _integer_division(fn, op, a, b)
    if op in ("shl", "shr"):
        return _shift(fn, op, a, b)
    if op not in _INTEGER:
        raise InternalError(f"binary operation {op} on {a.dtype}")
    return _apply(fn, _INTEGER[op], a, b)


def unary(fn: Function, op: str, a: Value) -> Value:
    """Apply neg, not or invert."""
    if op in ("not", "invert"):
        return fn.value(f"xor {a.type} {a.text}, {constant(True if op == 'not' else -1, a).text}", a.dtype, a.lanes)
    d = dtypes.info(a.dtype)
    if d.is_extension:
        return _on_bits(fn, "xor", a, -(1 << d.bits - 1))
    if d.is_float:
        return fn.value(f"fneg {a.type} {a.text}", a.dtype, a.lanes)
    if a.integer is not None and a.dtype == INDEX:
        return literal(-a.integer, a.dtype)
    return _apply(fn, "sub", constant(0, a), a)


def is_nan(fn: Function, a: Value) -> Value:
    """Whether a float is not a number."""
    return binary(fn, "ne", a, a)


def absolute(fn: Function, a: Value) -> Value:
    """The magnitude; the smallest integer is its own, as in NumPy."""
    d = dtypes.info(a.dtype)
    if d.is_extension:
        return _on_bits(fn, "and", a, (1 << d.bits - 1) - 1)
    if d.is_float:
        return fn.call(intrinsic("fabs", a), [a], a.dtype, a.lanes)
    if d.kind != "int":
        return a
    return fn.call(intrinsic("abs", a), [a, Value("false", "bool")], a.dtype, a.lanes)


def overload(a: Value) -> str:
    """How LLVM names the type of a value in intrinsics: `v16f32`, `i64`."""
    d = dtypes.info(a.dtype)
    element = f"f{d.bits}" if d.is_float and not d.is_extension else f"i{d.bits}"
    return f"v{a.lanes}{element}" if a.lanes else element


def intrinsic(name: str, a: Value) -> str:
    """The overloaded name of an LLVM intrinsic on values like `a`: `llvm.sqrt.v16f32`."""
    return f"llvm.{name}.{overload(a)}"


def cast(fn: Function, a: Value, dtype: str) -> Value:
    """Convert with NumPy's rules; floats to integers truncate and saturate, and NaN gives 0."""
    if a.dtype == dtype:
        return a
    if a.integer is not None and dtypes.info(dtype).kind == "int":
        bits = dtypes.info(dtype).bits
        return literal((a.integer + (1 << bits - 1)) % (1 << bits) - (1 << bits - 1), dtype)
    source, goal = dtypes.info(a.dtype), dtypes.info(dtype)
    if goal.kind == "bool":
        return binary(fn, "ne", a, constant(0, a))
    if source.is_float and goal.is_float:
        return _float_to_float(fn, a, dtype)
    if source.is_float:
        return _float_to_integer(fn, a, dtype)
    if goal.is_float:
        return _integer_to_float(fn, a, dtype)
    if goal.bits == source.bits:
        return Value(a.text, dtype, a.lanes)
    word = "trunc" if goal.bits < source.bits else "sext" if source.kind == "int" else "zext"
    return _convert(fn, word, a, dtype)


def _apply(fn: Function, instruction: str, a: Value, b: Value) -> Value:
    return fn.value(f"{instruction} {a.type} {a.text}, {b.text}", a.dtype, a.lanes)


def _convert(fn: Function, instruction: str, a: Value, dtype: str) -> Value:
    return fn.value(f"{instruction} {a.typed} to {Value('', dtype, a.lanes).type}", dtype, a.lanes)


def _fold(fn: Function, op: str, a: Value, b: Value) -> Value | None:
    """Constant folding of index arithmetic: keeps the text of unrolled loops small."""
    if a.dtype != INDEX:
        return None
    x, y = a.integer, b.integer
    if x is not None and y is not None:
        return literal(ON_INTEGERS[op](x, y), INDEX) if op in ON_INTEGERS and (y or op not in DIVISION) else None
    match op:
        case "add" if x is not None:
            return _plus(fn, b, x)
        case "add" | "sub" if y is not None:
            return _plus(fn, a, y if op == "add" else -y)
        case "mul" if x == 1:
            return b
        case "mul" | "floordiv" if y == 1:
            return a
        case "mul" if (x == 0 and not b.lanes) or (y == 0 and not a.lanes):
            return literal(0, INDEX)
    return None


def _plus(fn: Function, index: Value, constant: int) -> Value | None:
    """The sum of indices and a constant; None of lanes that change."""
    if constant == 0:
        return index
    return None if index.lanes else fn.plus(index, constant)


def _compare(fn: Function, op: str, a: Value, b: Value) -> Value:
    d = dtypes.info(a.dtype)
    if d.is_narrow_float:
        return _compare(fn, op, cast(fn, a, "float32"), cast(fn, b, "float32"))
    if d.is_float:
        word = f"fcmp {'une' if op == 'ne' else 'o' + op}"
    else:
        sign = "" if op in ("eq", "ne") else "s" if d.kind == "int" else "u"
        word = f"icmp {sign}{op}"
    return fn.value(f"{word} {a.type} {a.text}, {b.text}", "bool", a.lanes)


def _extreme(fn: Function, op: str, a: Value, b: Value) -> Value:
    d = dtypes.info(a.dtype)
    if d.kind == "bool":
        return _apply(fn, "and" if op == "min" else "or", a, b)
    if not d.is_float:
        return fn.call(intrinsic(f"{'s' if d.kind == 'int' else 'u'}{op}", a), [a, b], a.dtype, a.lanes)
    if d.is_narrow_float:
        wide = _extreme(fn, op, cast(fn, a, "float32"), cast(fn, b, "float32"))
        return cast(fn, wide, a.dtype)
    name = fn.module.declare(intrinsic(f"{op}imum", a), a.type, f"{a.type}, {a.type}")
    return fn.value(f"call nsz {a.type} {name}({a.typed}, {b.typed})", a.dtype, a.lanes)


def _integer_division(fn: Function, op: str, a: Value, b: Value) -> Value:
    signed = dtypes.info(a.dtype).kind == "int"
    divisor = _known(b)
    power = divisor is not None and divisor > 0 and divisor & (divisor - 1) == 0
    if divisor is not None and power and op.startswith("floor"):
        if op == "floormod":
            return _apply(fn, "and", a, constant(divisor - 1, a))
        return _apply(fn, "ashr" if signed else "lshr", a, constant(divisor.bit_length() - 1, a))
    if divisor is not None and divisor not in (0, -1):
        return _divide(fn, op, a, b, signed)
    zero = binary(fn, "eq", b, constant(0, b))
    unsafe = binary(fn, "or", zero, binary(fn, "eq", b, constant(-1, b))) if signed else zero
    result = _divide(fn, op, a, select(fn, unsafe, constant(1, b), b), signed)
    if signed and op.endswith("div"):
        # Dividing by -1 is negation; the hardware traps on the smallest integer.
        minus_one = binary(fn, "eq", b, constant(-1, b))
        result = select(fn, minus_one, unary(fn, "neg", a), result)
    return select(fn, zero, constant(0, a), result)


def _divide(fn: Function, op: str, a: Value, b: Value, signed: bool) -> Value:
    """Divide by a divisor that is neither 0 nor (signed) -1 at run time."""
    if not signed:
        return _apply(fn, "udiv" if op.endswith("div") else "urem", a, b)
    quotient = _apply(fn, "sdiv", a, b)
    if op == "truncdiv":
        return quotient
    rest = _apply(fn, "sub", a, _apply(fn, "mul", quotient, b))
    if op == "truncmod":
        return rest
    differ = binary(fn, "lt", _apply(fn, "xor", rest, b), constant(0, a))
    adjust = binary(fn, "and", differ, binary(fn, "ne", rest, constant(0, a)))
    if op == "floormod":
        return _apply(fn, "add", rest, select(fn, adjust, b, constant(0, a)))
    return _apply(fn, "sub", quotient, select(fn, adjust, constant(1, a), constant(0, a)))


def _known(value: Value) -> int | None:
    """The integer in a literal or a splat of one."""
    if value.integer is not None:
        return value.integer
    if value.text.startswith("splat ("):
        text = value.text[:-1].rsplit(" ", 1)[1]
        return int(text) if text.lstrip("-").isdigit() else None
    return None


def _shift(fn: Function, op: str, a: Value, b: Value) -> Value:
    d = dtypes.info(a.dtype)
    word = "shl" if op == "shl" else "ashr" if d.kind == "int" else "lshr"
    amount = _known(b)
    if amount is not None and 0 <= amount < d.bits:
        return _apply(fn, word, a, b)
    inside = fn.value(f"icmp ult {b.type} {b.text}, {constant(d.bits, b).text}", "bool", b.lanes)
    if word == "ashr":
        return _apply(fn, word, a, select(fn, inside, b, constant(d.bits - 1, b)))
    shifted = _apply(fn, word, a, select(fn, inside, b, constant(0, b)))
    return select(fn, inside, shifted, constant(0, a))


def _float_division(fn: Function, op: str, a: Value, b: Value) -> Value:
    """NumPy's floor_divide, remainder, and fmod on floats."""
    if op == "truncdiv":
        quotient = _apply(fn, "fdiv", a, b)
        return fn.call(intrinsic("trunc", a), [quotient], a.dtype, a.lanes)
    rest = _apply(fn, "frem", a, b)
    if op == "truncmod":
        return rest
    zero = constant(0.0, a)
    exact = binary(fn, "eq", rest, zero)
    differ = binary(fn, "ne", binary(fn, "lt", b, zero), binary(fn, "lt", rest, zero))
    adjust = binary(fn, "and", differ, unary(fn, "not", exact))
    moved = _apply(fn, "fadd", rest, select(fn, adjust, b, zero))
    if op == "floormod":
        signed_zero = fn.call(intrinsic("copysign", a), [zero, b], a.dtype, a.lanes)
        return select(fn, exact, signed_zero, moved)
    quotient = _apply(fn, "fdiv", _apply(fn, "fsub", a, rest), b)
    quotient = _apply(fn, "fsub", quotient, select(fn, adjust, constant(1.0, a), zero))
    floor = fn.call(intrinsic("floor", a), [quotient], a.dtype, a.lanes)
    far = binary(fn, "gt", _apply(fn, "fsub", quotient, floor), constant(0.5, a))
    floor = _apply(fn, "fadd", floor, select(fn, far, constant(1.0, a), zero))
    plain = _apply(fn, "fdiv", a, b)
    signed_zero = fn.call(intrinsic("copysign", a), [zero, plain], a.dtype, a.lanes)
    result = select(fn, binary(fn, "eq", quotient, zero), signed_zero, floor)
    return select(fn, binary(fn, "eq", b, zero), plain, result)


def _float_to_float(fn: Function, a: Value, dtype: str) -> Value:
    source, goal = dtypes.info(a.dtype), dtypes.info(dtype)
    if "float32" not in (a.dtype, dtype) and (source.is_narrow_float or goal.is_narrow_float):
        # Half precision is reached through float32; float64 to float16 keeps what rounding twice would lose.
        odd = source.bits == 64 and dtype == "float16"
        return cast(fn, round_to_odd(fn, a) if odd else cast(fn, a, "float32"), dtype)
    if "float16" in (a.dtype, dtype):
        _check_half(fn)
    if source.is_extension:
        return narrow_floats.to_float32(fn, a)
    if goal.is_extension:
        return narrow_floats.from_float32(fn, a, dtype)
    return _convert(fn, "fpext" if goal.bits > source.bits else "fptrunc", a, dtype)


def _check_half(fn: Function) -> None:
    """LLVM leaves the conversion of float16 to a library function on CPUs that lack the instruction."""
    cpu = target_cpu(fn.target)
    if cpu.architecture == "x86_64" and "f16c" not in cpu.features:
        raise TargetError(f"float16 needs the CPU feature f16c, which {fn.target} lacks; use float32, or another -mcpu")


def _on_bits(fn: Function, instruction: str, a: Value, mask: int) -> Value:
    """Change the sign bit of a float that is held by its bits."""
    return _apply(fn, instruction, a, constant(mask, Value("", f"int{dtypes.info(a.dtype).bits}", a.lanes)))


def round_to_odd(fn: Function, a: Value, error: Value | None = None) -> Value:
    """float64 to float32 so that rounding once more, to a narrow float, gives the one nearest to `a + error`.

    The inexact last bit is kept sticky: truncate toward zero, then set it. `error`, if any, is less than half a unit
    of `a` in the last place.
    """
    near = _convert(fn, "fptrunc", a, "float32")
    back = _convert(fn, "fpext", near, "float64")
    bits = Value(fn.op(f"bitcast {near.typed} to {vector_type('i32', a.lanes)}"), "int32", a.lanes)
    beyond = binary(fn, "gt", absolute(fn, back), absolute(fn, a))
    inexact = fn.value(f"fcmp one {a.type} {a.text}, {back.text}", "bool", a.lanes)
    if error is not None:
        zero = constant(0.0, a)
        across = binary(fn, "ne", binary(fn, "lt", error, zero), binary(fn, "lt", a, zero))
        beyond = select(fn, inexact, beyond, across)
        lost = fn.value(f"fcmp one {a.type} {error.text}, {zero.text}", "bool", a.lanes)
        inexact = binary(fn, "or", inexact, lost)
    toward_zero = _apply(fn, "sub", bits, cast(fn, beyond, "int32"))
    chosen = select(fn, inexact, _apply(fn, "or", toward_zero, constant(1, bits)), bits)
    return fn.value(f"bitcast {chosen.typed} to {near.type}", "float32", a.lanes)


def _float_to_integer(fn: Function, a: Value, dtype: str) -> Value:
    if dtypes.info(a.dtype).is_narrow_float:
        a = cast(fn, a, "float32")
    goal, signed = Value("", dtype, a.lanes), dtypes.info(dtype).kind == "int"
    if a.lanes > 1 and target_cpu(fn.target).architecture == "x86_64":
        # LLVM takes its saturating casts apart there, lane by lane.
        return _saturated_lanes(fn, a, goal, signed)
    word = "fptosi" if signed else "fptoui"
    return fn.call(f"llvm.{word}.sat.{overload(goal)}.{overload(a)}", [a], dtype, a.lanes)


def _saturated_lanes(fn: Function, a: Value, goal: Value, signed: bool) -> Value:
    """What the intrinsics do. Poison of lanes that do not fit is never chosen."""
    low, high = map(int, dtypes.limits(goal.dtype))
    zero, none, word = constant(0.0, a), constant(0, goal), "fptosi" if signed else "fptoui"
    if high.bit_length() <= _SIGNIFICANT[a.dtype]:
        return _limited_lanes(fn, a, goal.dtype, signed)
    made = _convert(fn, word, a, goal.dtype)
    made = select(fn, binary(fn, "ge", a, constant(float(high + 1), a)), constant(high, goal), made)
    if not signed:
        return select(fn, binary(fn, "ge", a, zero), made, none)
    made = select(fn, binary(fn, "lt", a, constant(float(low), a)), constant(low, goal), made)
    return select(fn, is_nan(fn, a), none, made)


def _limited_lanes(fn: Function, a: Value, dtype: str, signed: bool) -> Value:
    """Bring floats into the range of an integer whose limits they have, then convert."""
    low, high = (constant(float(limit), a) for limit in dtypes.limits(dtype))
    # NaN is 0 of an unsigned integer already: no comparison holds for it.
    inside = select(fn, binary(fn, "lt", a, low), low, a) if signed else select(fn, binary(fn, "gt", a, low), a, low)
    inside = select(fn, binary(fn, "gt", inside, high), high, inside)
    made = _convert(fn, "fptoui" if dtype == "uint32" else "fptosi", inside, "uint32" if dtype == "uint32" else "int32")
    if signed:
        made = select(fn, is_nan(fn, a), constant(0, made), made)
    return cast(fn, made, dtype)


def _integer_to_float(fn: Function, a: Value, dtype: str) -> Value:
    word = "sitofp" if dtypes.info(a.dtype).kind == "int" else "uitofp"
    if dtypes.info(dtype).is_narrow_float:
        return cast(fn, _convert(fn, word, a, "float32"), dtype)
    return _convert(fn, word, a, dtype)
