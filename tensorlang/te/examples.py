"""Examples of functions that tables make: a call, and what it gives, to be put into their docstrings."""

from __future__ import annotations

from collections.abc import Mapping

EXAMPLES: Mapping[str, tuple[str, str]] = {
    "abs": ("te.evaluate(te.abs, -1.5)", "np.float32(1.5)"),
    "acos": ("te.evaluate(te.acos, 0.5).round(4)", "np.float32(1.0472)"),
    "acosh": ("te.evaluate(te.acosh, 2.0).round(4)", "np.float32(1.317)"),
    "add": ("te.evaluate(te.add, -7, 2)", "np.int32(-5)"),
    "asin": ("te.evaluate(te.asin, 0.5).round(4)", "np.float32(0.5236)"),
    "asinh": ("te.evaluate(te.asinh, 0.5).round(4)", "np.float32(0.4812)"),
    "atan": ("te.evaluate(te.atan, 0.5).round(4)", "np.float32(0.4636)"),
    "atan2": ("te.evaluate(te.atan2, 1.0, -1.0).round(4)", "np.float32(2.3562)"),
    "atanh": ("te.evaluate(te.atanh, 0.5).round(4)", "np.float32(0.5493)"),
    "cast": ('te.evaluate(te.cast, 1.7, dtype="int32")', "np.int32(1)"),
    "const": ('te.const(1, "float32")', "1.0"),
    "ceil": ("te.evaluate(te.ceil, -1.5)", "np.float32(-1.0)"),
    "clz": ("te.evaluate(te.clz, 1)", "np.int32(31)"),
    "copysign": ("te.evaluate(te.copysign, 3.0, -0.0)", "np.float32(-3.0)"),
    "cos": ("te.evaluate(te.cos, 0.5).round(4)", "np.float32(0.8776)"),
    "cosh": ("te.evaluate(te.cosh, 0.5).round(4)", "np.float32(1.1276)"),
    "erf": ("te.evaluate(te.erf, 0.5).round(4)", "np.float32(0.5205)"),
    "exp": ("te.evaluate(te.exp, 0.5).round(4)", "np.float32(1.6487)"),
    "exp2": ("te.evaluate(te.exp2, 0.5).round(4)", "np.float32(1.4142)"),
    "expm1": ("te.evaluate(te.expm1, 0.5).round(4)", "np.float32(0.6487)"),
    "floor": ("te.evaluate(te.floor, -1.5)", "np.float32(-2.0)"),
    "floordiv": ("te.evaluate(te.floordiv, -7, 2)", "np.int32(-4)"),
    "floormod": ("te.evaluate(te.floormod, -7, 2)", "np.int32(1)"),
    "hypot": ("te.evaluate(te.hypot, 3.0, 4.0)", "np.float32(5.0)"),
    "indexdiv": ("te.evaluate(te.indexdiv, -7, 2)", "np.int32(-4)"),
    "indexmod": ("te.evaluate(te.indexmod, -7, 2)", "np.int32(1)"),
    "isfinite": ("te.evaluate(te.isfinite, -1.5)", "np.True_"),
    "isinf": ("te.evaluate(te.isinf, -1.5)", "np.False_"),
    "isnan": ("te.evaluate(te.isnan, -1.5)", "np.False_"),
    "log": ("te.evaluate(te.log, 0.5).round(4)", "np.float32(-0.6931)"),
    "log10": ("te.evaluate(te.log10, 0.5).round(4)", "np.float32(-0.301)"),
    "log1p": ("te.evaluate(te.log1p, 0.5).round(4)", "np.float32(0.4055)"),
    "log2": ("te.evaluate(te.log2, 0.5)", "np.float32(-1.0)"),
    "maximum": ("te.evaluate(te.maximum, -7, 2)", "np.int32(2)"),
    "minimum": ("te.evaluate(te.minimum, -7, 2)", "np.int32(-7)"),
    "multiply": ("te.evaluate(te.multiply, -7, 2)", "np.int32(-14)"),
    "round": ("te.evaluate(te.round, 2.5)", "np.float32(2.0)"),
    "popcount": ("te.evaluate(te.popcount, 7)", "np.int32(3)"),
    "pow": ("te.evaluate(te.pow, 2.0, 3.0)", "np.float32(8.0)"),
    "rsqrt": ("te.evaluate(te.rsqrt, 0.5).round(4)", "np.float32(1.4142)"),
    "sigmoid": ("te.evaluate(te.sigmoid, 0.5).round(4)", "np.float32(0.6225)"),
    "sin": ("te.evaluate(te.sin, 0.5).round(4)", "np.float32(0.4794)"),
    "sinh": ("te.evaluate(te.sinh, 0.5).round(4)", "np.float32(0.5211)"),
    "sqrt": ("te.evaluate(te.sqrt, 0.5).round(4)", "np.float32(0.7071)"),
    "subtract": ("te.evaluate(te.subtract, -7, 2)", "np.int32(-9)"),
    "tan": ("te.evaluate(te.tan, 0.5).round(4)", "np.float32(0.5463)"),
    "tanh": ("te.evaluate(te.tanh, 0.5).round(4)", "np.float32(0.4621)"),
    "trunc": ("te.evaluate(te.trunc, -1.5)", "np.float32(-1.0)"),
    "truncdiv": ("te.evaluate(te.truncdiv, -7, 2)", "np.int32(-3)"),
    "truncmod": ("te.evaluate(te.truncmod, -7, 2)", "np.int32(-1)"),
}
"""Those of te, by the names of its functions."""


def with_example(name: str, doc: str, examples: Mapping[str, tuple[str, str]] = EXAMPLES) -> str:
    """The text of a function with its example behind it; the text alone where there is none."""
    if name not in examples:
        return doc
    call, value = examples[name]
    rooms = ", ".join(room for room in ("te", "topi") if f"{room}." in call)
    return f"{doc}\n\n    >>> from tensorlang import {rooms}\n    >>> {call}\n    {value}\n"
