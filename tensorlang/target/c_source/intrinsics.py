"""Math intrinsics by name: a function of the dialect's library, or one of the prelude.

The vendors state the errors of their functions: CUDA C++ Programming Guide, "Mathematical Functions", and the OpenCL C
Specification, "Relative Error as ULPs".
"""

from __future__ import annotations

from collections.abc import Sequence

from tensorlang import dtypes
from tensorlang.errors import InternalError
from tensorlang.ir import intrinsics
from tensorlang.target.c_source import code as c
from tensorlang.target.c_source.arithmetic import BOOL, cast, function, rounded
from tensorlang.target.c_source.code import Code, limits
from tensorlang.target.c_source.dialect import NARROW
from tensorlang.target.c_source.scope import Text

_LIBRARY = {
    name: name
    for name, row in intrinsics.TABLE.items()
    if row.family not in ("pattern", "table")
    and name not in ("sigmoid", "isnan", "isinf", "isfinite", "abs", "popcount", "clz", "round")
} | {"round": "rint", "abs": "fabs"}
"""Functions of both dialects, without the suffix that CUDA's have for float."""

_EXACT = ("floor", "ceil", "round", "trunc", "copysign", "abs")
"""Functions that give values of half precision for such values."""


def call(text: Text, name: str, args: Sequence[Code], dtype: str) -> Code:
    """Call intrinsic `name` of tensorlang.ir.intrinsics on values of one dtype; the result has `dtype`."""
    operand = args[0].dtype
    d = dtypes.info(operand)
    if intrinsics.TABLE[name].family == "pattern":
        return _bits(text, args[0]) if d.is_float else _of_bits(text, args[0], dtype)
    if name == "lookup16":
        return _looked_up(text, *args)
    if not d.is_float:
        return _of_integer(text, name, args[0], dtype)
    held = "float64" if d.bits == 64 else "float32"
    listed = ", ".join(a.text for a in args)
    if name in ("isnan", "isinf", "isfinite"):
        return Code(f"{text.call(f'{name}_{held}')}({listed})", "bool", interval=BOOL)
    if name == "fma" and d.is_narrow_float:
        made = f"{text.call('tl_fma_to_odd')}({listed})"
    elif name == "sigmoid":
        made = f"{text.call(f'sigmoid_{held}')}({listed})"
    elif name in _LIBRARY:
        made = f"{function(text, _LIBRARY[name], held)}({listed})"
    else:
        raise InternalError(f"the C printer has no intrinsic {name!r}")
    if d.is_narrow_float and name not in _EXACT:
        return rounded(text, Code(made, held), operand)
    return Code(made, operand)


def _bits(text: Text, a: Code) -> Code:
    """The bits of a float as an unsigned integer."""
    dtype = dtypes.info(a.dtype).bits_dtype
    if a.dtype in NARROW:
        made = a.stored or f"{text.call(f'tl_{NARROW[a.dtype]}_from_f32')}({a.unrounded or a.text})"
    else:
        made = f"{text.dialect.float_bits[a.dtype][0]}({a.text})"
    return Code(f"({text.dialect.types[dtype]}){made}", dtype, c.PREFIX, limits(dtype))


def _looked_up(text: Text, index: Code, *numbers: Code) -> Code:
    """One of 16 constant bytes, by the lowest four bits of an index: of two words of 64 bits, shifted down."""
    if any(number.constant is None for number in numbers):
        raise InternalError("a table of 16 numbers that are no constants")
    words = (
        sum((number.constant or 0) << 8 * n for n, number in enumerate(numbers[half : half + 8])) for half in (0, 8)
    )
    suffix = text.dialect.suffixes["uint64"]
    low, high = (f"{word:#x}{suffix}" for word in words)
    return Code(f"{text.call('tl_lookup16')}({low}, {high}, {index.text})", "uint8", interval=limits("uint8"))


def _of_bits(text: Text, a: Code, dtype: str) -> Code:
    """The float of some bits."""
    if dtype in NARROW:
        held = f"({text.dialect.types[a.dtype]})({a.text})"
        return Code(f"{text.call(f'tl_f32_from_{NARROW[dtype]}')}({a.text})", dtype, stored=held)
    return Code(f"{text.dialect.float_bits[dtype][1]}({a.text})", dtype)


def _of_integer(text: Text, name: str, a: Code, dtype: str) -> Code:
    d = dtypes.info(a.dtype)
    low, high = a.interval
    if name in ("isnan", "isinf", "isfinite"):
        return Code("true" if name == "isfinite" else "false", "bool", interval=BOOL)
    if name == "abs":
        if low >= 0:
            return a
        interval = (0, max(-low, high)) if low > limits(a.dtype)[0] else limits(a.dtype)
        return Code(f"{text.call(f'abs_{a.dtype}')}({a.text})", dtype, interval=interval)
    made = Code(f"{text.call(f'{name}_{a.dtype}')}({a.text})", "int32", interval=(0, d.bits))
    return cast(text, made, dtype) if dtypes.info(dtype).bits >= 32 else Code(made.text, dtype, c.ATOM, made.interval)
