"""Device functions that convert floats of 8 bits: in integers, or by the instructions of sm_89 and later.

The instructions of CUDA saturate; what is above the largest value is set to what the language says (`dtypes`) behind
them. Texts are those of `prelude`.
"""

from __future__ import annotations

from collections.abc import Mapping

from tensorlang.dataclass import dataclass


@dataclass(frozen=True, slots=True)
class _Format:
    """Bits of the fraction, the bias, the code above the largest number, that of NaN, and what rounds to the first."""

    name: str
    fraction: int
    bias: int
    beyond: int
    nan: int
    too_large: str


_FORMATS = (
    _Format("e4m3", 3, 7, 0x7F, 0x7F, "> 464.0f"),
    _Format("e5m2", 2, 15, 0x7C, 0x7E, ">= 61440.0f"),
)


def float8_texts(by_instructions: bool) -> Mapping[str, str]:
    """The functions by name; `by_instructions`: in PTX, for architectures that have them."""
    found: dict[str, str] = {}
    for f in _FORMATS:
        narrow, wide = _narrowed(f), _widened(f)
        if by_instructions:
            narrow, wide = (_either(*both) for both in ((_narrowed_by_instruction(f), narrow), (_by_halves(f), wide)))
        found |= {
            f"tl_{f.name}_from_f32": f"$uint8 tl_{f.name}_from_f32(float x) {{\n{narrow}\n}}",
            f"tl_f32_from_{f.name}": f"float tl_f32_from_{f.name}($uint8 bits) {{\n{wide}\n}}",
            f"tl_round_{f.name}": f"""float tl_round_{f.name}(float x) {{
    return tl_f32_from_{f.name}(tl_{f.name}_from_f32(x));
}}""",
        }
    return found


def _either(instructions: str, integers: str) -> str:
    return f"#if __CUDA_ARCH__ >= 890\n{instructions}\n#else\n{integers}\n#endif"


def _narrowed(f: _Format) -> str:
    """Round a magnitude to the nearest; a subnormal number has fewer bits, and its first one is written."""
    least, spare = 128 - f.bias, 23 - f.fraction
    code = f"nearest > {f.beyond:#x}u ? {f.beyond:#x}u : nearest"
    if f.nan != f.beyond:
        code = f"size > 0x7f800000u ? {f.nan:#x}u : {code}"
    return f"""    const $uint32 bits = $as_uint(x), size = bits & 0x7fffffffu, exponent = size >> 23;
    const $uint32 gap = exponent < {least}u ? {least}u - exponent : 0u;
    const $uint32 shift = gap > {31 - spare}u ? 31u : {spare}u + gap;
    const $uint32 value = gap ? (size & 0x7fffffu) | 0x800000u : size - {(127 - f.bias) << 23:#x}u;
    const $uint32 nearest = (value + (1u << (shift - 1u)) - 1u + (value >> shift & 1u)) >> shift;
    return ($uint8)(({code}) | (bits >> 24 & 0x80u));"""


def _widened(f: _Format) -> str:
    """Subnormal numbers are whole numbers of their unit."""
    spare, unit = 23 - f.fraction, 2.0 ** (1 - f.bias - f.fraction)
    normal = f"(size << {spare}) + {(127 - f.bias) << 23:#x}u"
    full = "0x7fffffffu" if f.nan == f.beyond else "normal | 0x7f800000u"
    return f"""    const $uint32 size = bits & 0x7fu, normal = {normal};
    const $uint32 number = size < {1 << f.fraction}u ? $as_uint((float)size * {unit!r}f) : normal;
    return $as_float((size >= {f.beyond:#x}u ? {full} : number) | ($uint32)(bits & 0x80u) << 24);"""


def _narrowed_by_instruction(f: _Format) -> str:
    return f"""    unsigned short pair;
    asm("cvt.rn.satfinite.{f.name}x2.f32 %0, %1, %2;" : "=h"(pair) : "f"(0.0f), "f"(x));
    const unsigned beyond = (__float_as_uint(x) >> 24 & 0x80u) | {f.beyond:#x}u;
    return (unsigned char)(fabsf(x) {f.too_large} ? beyond : pair);"""


def _by_halves(f: _Format) -> str:
    """Every value is one of float16."""
    line = f"cvt.rn.f16x2.{f.name}x2 pair, %1; mov.b32 {{low, high}}, pair; cvt.f32.f16 %0, low;"
    return f"""    float x;
    asm("{{ .reg .b32 pair; .reg .b16 low, high; {line} }}" : "=f"(x) : "h"((unsigned short)bits));
    return x;"""
