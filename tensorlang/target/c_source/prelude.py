"""Device functions that generated text calls, each written once for all dialects, or once for each.

In the texts `$T` is the type of the dtype that a function's name ends with, `$U` the unsigned one in which it wraps,
`$B` how many bits it has, `$f` the suffix of C's functions on it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from types import MappingProxyType

from tensorlang import dtypes
from tensorlang.dataclass import dataclass
from tensorlang.errors import InternalError
from tensorlang.target.c_source.dialect import CUDA, OPENCL, Dialect
from tensorlang.target.c_source.float8 import float8_texts
from tensorlang.target.c_source.tensor_copies import TENSOR_MAP, TENSOR_MAP_TEXT, tensor_copy_rows

_SIGNED = {
    "floordiv": """$T floordiv_$D($T a, $T b) {
    if (b == 0) return 0;
    if (b == -1) return ($T)(0 - ($U)a);
    return a / b - (a % b != 0 && (a % b < 0) != (b < 0));
}""",
    "floormod": """$T floormod_$D($T a, $T b) {
    if (b == 0 || b == -1) return 0;
    return a % b != 0 && (a % b < 0) != (b < 0) ? a % b + b : a % b;
}""",
    "truncdiv": """$T truncdiv_$D($T a, $T b) {
    return b == 0 ? 0 : b == -1 ? ($T)(0 - ($U)a) : a / b;
}""",
    "truncmod": """$T truncmod_$D($T a, $T b) {
    return b == 0 || b == -1 ? 0 : a % b;
}""",
    "shl": """$T shl_$D($T a, $T b) {
    return b < 0 || b >= $B ? 0 : ($T)(($U)a << b);
}""",
    "shr": """$T shr_$D($T a, $T b) {
    return a >> (b < 0 || b >= $B ? $B - 1 : b);
}""",
    "abs": """$T abs_$D($T a) {
    return a < 0 ? ($T)(0 - ($U)a) : a;
}""",
}
_UNSIGNED = {
    **{op: f"$T {op}_$D($T a, $T b) {{\n    return b == 0 ? 0 : a / b;\n}}" for op in ("floordiv", "truncdiv")},
    **{op: f"$T {op}_$D($T a, $T b) {{\n    return b == 0 ? 0 : a % b;\n}}" for op in ("floormod", "truncmod")},
    "shl": "$T shl_$D($T a, $T b) {\n    return b >= $B ? 0 : ($T)(($U)a << b);\n}",
    "shr": "$T shr_$D($T a, $T b) {\n    return b >= $B ? 0 : a >> b;\n}",
}
_FLOAT = {
    # NaN wherever one is, as NumPy has it; the library's functions drop it.
    "min": "$T min_$D($T a, $T b) {\n    return a < b || a != a ? a : b;\n}",
    "max": "$T max_$D($T a, $T b) {\n    return a > b || a != a ? a : b;\n}",
    "truncdiv": "$T truncdiv_$D($T a, $T b) {\n    return trunc$f(a / b);\n}",
    "floormod": """$T floormod_$D($T a, $T b) {
    $T rest = fmod$f(a, b);
    if (rest == 0) return copysign$f(($T)0, b);
    return (b < 0) != (rest < 0) ? rest + b : rest;
}""",
    "floordiv": """$T floordiv_$D($T a, $T b) {
    if (b == 0) return a / b;
    $T rest = fmod$f(a, b);
    $T quotient = (a - rest) / b - (rest != 0 && (b < 0) != (rest < 0) ? 1 : 0);
    if (quotient == 0) return copysign$f(($T)0, a / b);
    $T whole = floor$f(quotient);
    return quotient - whole > 0.5$s ? whole + 1 : whole;
}""",
    # 0 where the power is subnormal in float32.
    "normal_exp2": "$T normal_exp2_$D($T a) {\n    return a < -126 ? 0 : exp2$f(a);\n}",
    "isnan": "bool isnan_$D($T a) {\n    return a != a;\n}",
    "isinf": "bool isinf_$D($T a) {\n    return fabs$f(a) == $INF;\n}",
    "isfinite": "bool isfinite_$D($T a) {\n    return fabs$f(a) < $INF;\n}",
    "sigmoid": "$T sigmoid_$D($T a) {\n    return 1 / (1 + exp$f(-a));\n}",
}
_SHORT_FROM_FLOAT = {
    goal: f"""${goal} {goal}_from_$D($T a) {{
    const int whole = int32_from_$D(a);
    return (${goal})(whole < {low} ? {low} : whole > {high} ? {high} : whole);
}}"""
    for goal, (low, high) in ((g, dtypes.limits(g)) for g in ("int8", "int16", "uint8", "uint16"))
}
_FROM_FLOAT = {
    "int32": "int int32_from_$D($T a) {\n    return a != a ? 0 : a >= 2147483648.0$s ? 2147483647 : "
    "a < -2147483648.0$s ? -2147483647 - 1 : (int)a;\n}",
    "int64": "$int64 int64_from_$D($T a) {\n    return a != a ? 0 : a >= 9223372036854775808.0$s ? "
    "9223372036854775807 : a < -9223372036854775808.0$s ? -9223372036854775807 - 1 : ($int64)a;\n}",
    **{
        f"uint{bits}": f"""$uint{bits} uint{bits}_from_$D($T a) {{
    return a > 0 ? a >= {float(1 << bits):.1f}$s ? ~($uint{bits})0 : ($uint{bits})a : 0;
}}"""
        for bits in (32, 64)
    },
    **_SHORT_FROM_FLOAT,
}
_CUDA_FROM_FLOAT = {
    "int32": "int int32_from_$D($T a) {\n    return a != a ? 0 : __$C2int_rz(a);\n}",
    "int64": "long long int64_from_$D($T a) {\n    return a != a ? 0 : __$C2ll_rz(a);\n}",
    "uint32": "unsigned uint32_from_$D($T a) {\n    return a > 0 ? __$C2uint_rz(a) : 0;\n}",
    "uint64": "unsigned long long uint64_from_$D($T a) {\n    return a > 0 ? __$C2ull_rz(a) : 0;\n}",
    **_SHORT_FROM_FLOAT,
}

_LOOKUP = """$uint8 tl_lookup16($uint64 low, $uint64 high, $uint8 index) {
    return ($uint8)((index & 8 ? high : low) >> (index & 7) * 8);
}"""
"""One of 16 bytes."""
_HALF = {
    "tl_round_f16": "float tl_round_f16(float x) {\n    return tl_f32_from_f16(tl_f16_from_f32(x));\n}",
    "tl_round_bf16": "float tl_round_bf16(float x) {\n    return tl_f32_from_bf16(tl_bf16_from_f32(x));\n}",
    "tl_f32_from_bf16": "float tl_f32_from_bf16($uint16 bits) {\n    return $as_float(($uint32)bits << 16);\n}",
    # Truncated towards zero, with the last bit set where that lost anything: rounds once more as the double does.
    "tl_round_to_odd": """float tl_round_to_odd(double x) {
    float near = (float)x;
    double back = (double)near;
    if (back == x || x != x) return near;
    return $as_float(($as_uint(near) - (fabs(back) > fabs(x))) | 1u);
}""",
}
_FUSED = """float tl_fma_to_odd(float x, float y, float z) {
    const double product = (double)x * y, sum = product + z, part = sum - product;
    const double lost = (product - (sum - part)) + (z - part);
    const float near = (float)sum;
    const double back = (double)near;
    if (sum != sum || (back == sum && !(fabs(lost) > 0))) return near;
    const bool beyond = back == sum ? (lost < 0) != (sum < 0) : fabs(back) > fabs(sum);
    return $as_float(($as_uint(near) - ($uint32)beyond) | 1u);
}"""
"""A product of narrow floats, exact as a double, and a sum cut off, with the last bit set where that lost anything."""
_BF16_IN_INTEGERS = """$uint32 bits = $as_uint(x);
    if (x != x) return ($uint16)(bits >> 16 | 0x40u);
    return ($uint16)((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16);"""
_OPENCL = {
    "tl_f32_from_f16": """float tl_f32_from_f16(ushort bits) {
    return vload_half(0, (const __private half *)&bits);
}""",
    "tl_f16_from_f32": """ushort tl_f16_from_f32(float x) {
    ushort bits;
    vstore_half_rte(x, 0, (__private half *)&bits);
    return bits;
}""",
    "tl_bf16_from_f32": f"ushort tl_bf16_from_f32(float x) {{\n    {_BF16_IN_INTEGERS}\n}}",
}
_CUDA = {
    "tl_f32_from_f16": """float tl_f32_from_f16(unsigned short bits) {
    float x;
    asm("cvt.f32.f16 %0, %1;" : "=f"(x) : "h"(bits));
    return x;
}""",
    "tl_f16_from_f32": """unsigned short tl_f16_from_f32(float x) {
    unsigned short bits;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(x));
    return bits;
}""",
    "tl_bf16_from_f32": f"""unsigned short tl_bf16_from_f32(float x) {{
#if __CUDA_ARCH__ >= 800
    unsigned short bits;
    asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(bits) : "f"(x));
    return bits;
#else
    {_BF16_IN_INTEGERS}
#endif
}}""",
    "normal_exp2_float32": """float normal_exp2_float32(float a) {
    float x;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(x) : "f"(a));
    return x;
}""",
    **{
        f"{op}_float32": f"""float {op}_float32(float a, float b) {{
#if __CUDA_ARCH__ >= 800
    float x;
    asm("{op}.NaN.f32 %0, %1, %2;" : "=f"(x) : "f"(a), "f"(b));
    return x;
#else
    return a {sign} b || a != a ? a : b;
#endif
}}"""
        for op, sign in (("min", "<"), ("max", ">"))
    },
    **{
        f"tl_cp_async_{cache}_{size}_zfill": f"""void tl_cp_async_{cache}_{size}_zfill(void *to, const void *from, \
unsigned bytes) {{
#if __CUDA_ARCH__ >= 800
    asm volatile("cp.async.{cache}.shared.global [%0], [%1], {size}, %2;"
                 :: "r"((unsigned)__cvta_generic_to_shared(to)), "l"(from), "r"(bytes) : "memory");
#else
    for (int n = 0; n < {size // 4}; ++n) ((unsigned *)to)[n] = bytes ? ((const unsigned *)from)[n] : 0;
#endif
}}"""
        for cache, size in (("ca", 4), ("ca", 8), ("cg", 16))
    },
    **{
        f"tl_cp_async_{cache}_{size}": f"""void tl_cp_async_{cache}_{size}(void *to, const void *from) {{
#if __CUDA_ARCH__ >= 800
    asm volatile("cp.async.{cache}.shared.global [%0], [%1], {size};"
                 :: "r"((unsigned)__cvta_generic_to_shared(to)), "l"(from) : "memory");
#else
    for (int n = 0; n < {size // 4}; ++n) ((unsigned *)to)[n] = ((const unsigned *)from)[n];
#endif
}}"""
        for cache, size in (("ca", 4), ("ca", 8), ("cg", 16))
    },
    "tl_cp_async_commit": """void tl_cp_async_commit() {
#if __CUDA_ARCH__ >= 800
    asm volatile("cp.async.commit_group;" ::: "memory");
#endif
}""",
    "tl_cp_async_wait": """void tl_cp_async_wait() {
#if __CUDA_ARCH__ >= 800
    asm volatile("cp.async.wait_group %0;" :: "n"(PENDING) : "memory");
#endif
}""",
}


@dataclass(frozen=True, slots=True)
class _Own:
    """What a dialect's device functions are written in: its own ones, how floats become integers, and PTX."""

    functions: Mapping[str, str]
    from_float: Mapping[str, str]
    ptx: bool


_OWN: Mapping[Dialect, _Own] = {
    CUDA: _Own(_CUDA, _CUDA_FROM_FLOAT, ptx=True),
    OPENCL: _Own(_OPENCL, _FROM_FLOAT, ptx=False),
}


def _counting(dialect: Dialect, name: str, dtype: str) -> str:
    """How many bits of an integer are one, or how many of the highest are zero."""
    bits = dtypes.info(dtype).bits
    wide = 64 if bits == 64 else 32
    unsigned = dialect.types[f"uint{bits}"]
    counted = f"{dialect.counting[f'{name}{wide}']}(({dialect.unsigned(wide)})({unsigned})a)"
    spare = f" - {32 - bits}" if name == "clz" and bits < 32 else ""
    return f"int {name}_$D($T a) {{\n    return (int){counted}{spare};\n}}"


def _filled(dialect: Dialect, text: str, dtype: str) -> str:
    d = dtypes.info(dtype)
    words = {
        "$as_uint": dialect.float_bits["float32"][0], "$as_float": dialect.float_bits["float32"][1],
        **{f"${d}": dialect.types[d] for d in ("uint8", "uint16", "uint32", "uint64", "int8", "int16", "int64")},
        "$INF": dialect.infinity.get(dtype, ""), "$D": dtype, "$T": dialect.types[dtype],
        "$U": dialect.unsigned(d.bits), "$B": str(d.bits), "$C": "double" if dtype == "float64" else "float",
        "$s": "f" if dtype == "float32" else "", "$f": dialect.float_suffix if dtype == "float32" else "",
    }  # fmt: skip
    for word, meaning in words.items():
        text = text.replace(word, meaning)
    return text


@cache
def texts(dialect: Dialect) -> Mapping[str, str]:
    """All functions of a dialect by name, in an order in which each calls only those before it."""
    own = _OWN[dialect]
    found: dict[str, str] = {}
    for d in dtypes.TABLE.values():
        if d.is_integer:
            rows = dict(_SIGNED if d.kind == "int" else _UNSIGNED)
            rows |= {name: _counting(dialect, name, d.name) for name in ("popcount", "clz")}
        elif d.is_float and d.bits > 16:
            rows = dict(_FLOAT)
            rows |= {f"{goal}_from": text for goal, text in own.from_float.items()}
        else:
            continue
        found |= {f"{name}_{d.name}": _filled(dialect, text, d.name) for name, text in rows.items()}
    rest = {**own.functions, **_HALF, "tl_fma_to_odd": _FUSED, "tl_lookup16": _LOOKUP, **float8_texts(own.ptx)}
    found |= {name: _filled(dialect, text, "float32") for name, text in rest.items()}
    template = "template <int PENDING>\n"
    made = {n: f"{template if 'PENDING' in text else ''}{dialect.function} {text}" for n, text in found.items()}
    if dialect.bulk_copies:
        made |= {TENSOR_MAP: TENSOR_MAP_TEXT.rstrip(), **{row.name: row.text.rstrip() for row in tensor_copy_rows()}}
    return MappingProxyType(made)


def definitions(dialect: Dialect, calls: Mapping[str, str]) -> list[str]:
    """The texts of device functions, and of those that they call, callees first.

    `calls` maps names to definitions, empty for those that are known here.
    """
    known, wanted = texts(dialect), dict[str, str]()

    def visit(name: str, text: str) -> None:
        if name in wanted:
            return
        called = set(re.findall(r"\w+", text))
        for other in known:
            if other in called and other != name:
                visit(other, known[other])
        wanted[name] = text

    for name, given in calls.items():
        if not given and name not in known:
            raise InternalError(f"the prelude has no device function {name}")
        visit(name, given or known[name])
    return list(wanted.values())
