"""Conversions between float and the narrow floats, and approximate mathematics of one instruction.

Narrow floats are held by their bits, as `unsigned short` or two in an `unsigned`, so that no header is needed.
PTX ISA, "cvt" and "ex2".
"""

from __future__ import annotations

from collections.abc import Iterator

from tensorlang.target.c_source.ptx import Intrinsic, assembly


def number_rows() -> Iterator[Intrinsic]:
    """Yield the conversions and the approximations."""
    for narrow, architecture in (("f16", "sm_75"), ("bf16", "sm_80")):
        yield _narrow(narrow, architecture)
        yield _pair(narrow)
    yield _widen_f16()
    yield _widen_bf16()
    for narrow in ("e4m3", "e5m2"):
        yield _pair_fp8(narrow)
        yield _widen_fp8(narrow)
    yield _tf32()
    for function, mnemonic, meaning in (
        ("exp2", "ex2.approx.ftz.f32", "2 to the power x, 2 units in the last place, flushing subnormals"),
        ("reciprocal", "rcp.approx.ftz.f32", "1 / x, 1 unit in the last place, flushing subnormals"),
        ("rsqrt", "rsqrt.approx.ftz.f32", "1 / sqrt(x), relative error 2^-22, flushing subnormals"),
        ("tanh", "tanh.approx.f32", "hyperbolic tangent, relative error 2^-11"),
    ):
        yield _unary(function, mnemonic, meaning)


def _returned(kind: str, mnemonic: str, letter: str, arguments: str, count: int) -> str:
    """Return a body: declare the result, compute it by one instruction, return it."""
    line = f"{mnemonic} %0, {', '.join(f'%{k + 1}' for k in range(count))};"
    code = assembly(line, [f'"={letter}"(result)'], [arguments], memory=False).replace("asm volatile", "asm")
    return f"{kind} result;\n{code}\nreturn result;"


def _narrow(narrow: str, architecture: str) -> Intrinsic:
    mnemonic = f"cvt.rn.{narrow}.f32"
    return Intrinsic(
        name=f"tl_{narrow}_from_f32",
        parameters=(("float", "x"),),
        body=_returned("unsigned short", mnemonic, "h", '"f"(x)', 1),
        architecture=architecture,
        meaning=f"the bits of the {narrow} nearest to x",
        mnemonic=mnemonic,
        result="unsigned short",
    )


def _pair(narrow: str) -> Intrinsic:
    mnemonic = f"cvt.rn.{narrow}x2.f32"
    return Intrinsic(
        name=f"tl_{narrow}x2_from_f32",
        parameters=(("float", "low"), ("float", "high")),
        body=_returned("unsigned", mnemonic, "r", '"f"(high), "f"(low)', 2),
        architecture="sm_80",
        meaning=f"the bits of two {narrow}, low in the low half",
        mnemonic=mnemonic,
        result="unsigned",
    )


def _widen_f16() -> Intrinsic:
    return Intrinsic(
        name="tl_f32_from_f16",
        parameters=(("unsigned short", "bits"),),
        body=_returned("float", "cvt.f32.f16", "f", '"h"(bits)', 1),
        architecture="sm_75",
        meaning="the value of an f16",
        mnemonic="cvt.f32.f16",
        result="float",
    )


def _widen_bf16() -> Intrinsic:
    return Intrinsic(
        name="tl_f32_from_bf16",
        parameters=(("unsigned short", "bits"),),
        body="return __uint_as_float((unsigned)bits << 16);",
        architecture="sm_75",
        meaning="the value of a bf16",
        mnemonic="",
        result="float",
    )


def _pair_fp8(narrow: str) -> Intrinsic:
    mnemonic = f"cvt.rn.satfinite.{narrow}x2.f32"
    return Intrinsic(
        name=f"tl_{narrow}x2_from_f32",
        parameters=(("float", "low"), ("float", "high")),
        body=_returned("unsigned short", mnemonic, "h", '"f"(high), "f"(low)', 2),
        architecture="sm_89",
        meaning=f"the bits of two {narrow}, low in the low byte; beyond the largest value the largest",
        mnemonic=mnemonic,
        result="unsigned short",
    )


def _widen_fp8(narrow: str) -> Intrinsic:
    mnemonic = f"cvt.rn.f16x2.{narrow}x2"
    return Intrinsic(
        name=f"tl_f16x2_from_{narrow}x2",
        parameters=(("unsigned short", "bits"),),
        body=_returned("unsigned", mnemonic, "r", '"h"(bits)', 1),
        architecture="sm_89",
        meaning=f"the bits of two f16 with the values of two {narrow}",
        mnemonic=mnemonic,
        result="unsigned",
    )


def _tf32() -> Intrinsic:
    return Intrinsic(
        name="tl_tf32_from_f32",
        parameters=(("float", "x"),),
        body=_returned("unsigned", "cvt.rna.tf32.f32", "r", '"f"(x)', 1),
        architecture="sm_80",
        meaning="x rounded to the nearest tf32, ties away from zero, as an operand of mma; mma itself cuts off",
        mnemonic="cvt.rna.tf32.f32",
        result="unsigned",
    )


def _unary(function: str, mnemonic: str, meaning: str) -> Intrinsic:
    return Intrinsic(
        name=f"tl_{function}_approx",
        parameters=(("float", "x"),),
        body=_returned("float", mnemonic, "f", '"f"(x)', 1),
        architecture="sm_75",
        meaning=meaning,
        mnemonic=mnemonic,
        result="float",
    )
