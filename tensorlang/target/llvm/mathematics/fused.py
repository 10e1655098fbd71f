"""Fused multiply-add of narrow floats: the product is exact in float64, and the sum is rounded once."""

from __future__ import annotations

from tensorlang.target.llvm.arithmetic import binary, cast, round_to_odd
from tensorlang.target.llvm.text import Function, Value


def narrow_fma(fn: Function, args: list[Value]) -> Value:
    """`a * b + c` of three floats of 16 or 8 bits, rounded once to their dtype."""
    a, b, c = (cast(fn, cast(fn, x, "float32"), "float64") for x in args)
    product = binary(fn, "mul", a, b)
    total = binary(fn, "add", product, c)
    part = binary(fn, "sub", total, product)
    error = binary(fn, "add", binary(fn, "sub", product, binary(fn, "sub", total, part)), binary(fn, "sub", c, part))
    return cast(fn, round_to_odd(fn, total, error), args[0].dtype)
