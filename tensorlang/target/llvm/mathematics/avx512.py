"""AVX-512 instructions that take floats apart and put them together, for full registers of every size.

Each gives the very bits of the general code that it replaces; None where the target has no such instruction.
"""

from __future__ import annotations

from tensorlang.target.detect import target_cpu
from tensorlang.target.llvm.arithmetic import constant
from tensorlang.target.llvm.mathematics.ieee import Exact
from tensorlang.target.llvm.text import Value

_FEATURES = frozenset(("avx512f", "avx512vl"))
_REGISTERS = (128, 256, 512)
_CURRENT_ROUNDING, _FROM_THREE_QUARTERS, _NO_FLAGS = (Value(number, "int32") for number in ("4", "3", "0"))
_LOGARITHM_TABLE = 0x03530422
"""What vfixupimm puts in by the class of its operand, four bits each from the lowest: quiet and signalling NaN: NaN;
zero: -inf; one: nothing; -inf: NaN; inf: inf; negative: NaN; positive: nothing."""


def is_present(m: Exact) -> bool:
    """Whether the target has these instructions for values of this size."""
    return m.lanes * m.format.width in _REGISTERS and target_cpu(m.fn.target).features >= _FEATURES


def scaled(m: Exact, y: Value, power: Value) -> Value | None:
    """y * 2**power, for a whole number as a float."""
    return _masked(m, "scalef", y, [power]) if is_present(m) else None


def exponent_and_mantissa(m: Exact, x: Value) -> tuple[Value, Value] | None:
    """e and 0.75 <= f < 1.5 with x = 2**e * f, for positive x."""
    if not is_present(m):
        return None
    mantissa = _masked(m, "getmant", x, [_FROM_THREE_QUARTERS])
    return m.sub(_masked(m, "getexp", x, []), _masked(m, "getexp", mantissa, [])), mantissa


def logarithm_limits(m: Exact, y: Value, x: Value) -> Value | None:
    """y, or what a logarithm of x gives where x is not a positive finite number."""
    if not is_present(m):
        return None
    table = constant(_LOGARITHM_TABLE, Value("", m.format.integer, m.lanes))
    return _masked(m, "fixupimm", y, [x, table, _NO_FLAGS], through=False)


def _masked(m: Exact, name: str, x: Value, operands: list[Value], through: bool = True) -> Value:
    """Call an instruction with every lane active; `through`: it takes what inactive lanes would keep."""
    size = m.lanes * m.format.width
    given = [x, *operands]
    if through:
        given.append(m.value(0.0))
    given.append(Value("-1", f"int{max(8, m.lanes)}"))
    if size == 512:
        given.append(_CURRENT_ROUNDING)
    return m.fn.call(
        f"llvm.x86.avx512.mask.{name}.p{'s' if m.format.width == 32 else 'd'}.{size}", given, m.dtype, m.lanes
    )
