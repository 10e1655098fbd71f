"""Functions of the C library, called once per lane: for what has no code of our own."""

from __future__ import annotations

from tensorlang.target.llvm.arithmetic import extract
from tensorlang.target.llvm.text import Function, Value


def call_each_lane(fn: Function, name: str, args: list[Value]) -> Value:
    """Call a function of float32 or float64 values by its name for float64."""
    dtype, lanes = args[0].dtype, args[0].lanes
    symbol = f"{name}f" if dtype == "float32" else name
    if not lanes:
        return fn.call(symbol, args, dtype)
    result = Value("poison", dtype, lanes)
    for lane in range(lanes):
        one = fn.call(symbol, [extract(fn, a, lane) for a in args], dtype)
        result = fn.value(f"insertelement {result.typed}, {one.typed}, i64 {lane}", dtype, lanes)
    return result
