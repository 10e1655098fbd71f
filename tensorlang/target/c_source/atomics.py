"""Updates of one element in one step: a function of the dialect where it has one, else a loop of exchanges.

Elements of 8 and 16 bits are exchanged within the aligned word of 32 bits around them.
"""

from __future__ import annotations

from tensorlang import dtypes
from tensorlang.ir.stmt import AtomicUpdate
from tensorlang.target.c_source import arithmetic
from tensorlang.target.c_source.code import Code, limits
from tensorlang.target.c_source.dialect import Space
from tensorlang.target.c_source.expressions import address, loaded, stored, value
from tensorlang.target.c_source.scope import Scope

_FUNCTIONS = {
    "add": "Add", "sub": "Add", "min": "Min", "max": "Max", "bitand": "And", "bitor": "Or", "bitxor": "Xor",
}  # fmt: skip
_BITS = {
    ("cuda", "float32"): ("__float_as_uint", "__uint_as_float"),
    ("cuda", "float64"): ("__double_as_longlong", "__longlong_as_double"),
    ("opencl", "float32"): ("as_uint", "as_float"),
    ("opencl", "float64"): ("as_ulong", "as_double"),
}
"""Functions between a float and its bits."""


def atomic_update(scope: Scope, stmt: AtomicUpdate) -> None:
    """Append the line of an update that other threads do not cut."""
    operand, dtype = value(scope, stmt.value), stmt.buffer.dtype
    space, pointer = scope.storage(stmt.buffer).space, address(scope, stmt.buffer, stmt.index)
    name = _instruction(scope, stmt.op, dtype)
    if space == "local":
        own = arithmetic.binary(scope.text, stmt.op, loaded(scope, dtype, f"*({pointer})"), operand)
        scope.line(f"*({pointer}) = {stored(scope, own)};")
    elif not name:
        scope.line(f"{_exchange(scope, stmt.op, dtype, space)}({pointer}, {operand.text});")
    else:
        if stmt.op == "sub":  # added with the other sign
            operand = arithmetic.unary(scope.text, "neg", operand)
        added = arithmetic.widened(scope.text, operand).text
        if dtype == "int64" and stmt.op in ("add", "sub"):
            word = scope.dialect.types["uint64"]
            pointer, added = f"({word} *)({pointer})", f"({word})({added})"
        scope.line(f"{name}({pointer}, {added});")


def _instruction(scope: Scope, op: str, dtype: str) -> str:
    """The function that does an update; empty if there is none."""
    d, word = dtypes.info(dtype), _FUNCTIONS.get(op, "")
    if not word or d.bits < 32:
        return ""
    if scope.dialect.name == "cuda":
        return f"atomic{word}" if d.is_integer or word == "Add" else ""
    return "" if d.is_float or d.bits == 64 else f"atomic_{word.lower()}"


def _exchange(scope: Scope, op: str, dtype: str, space: Space) -> str:
    """The name of a function that computes from what it read, and again from what it finds instead of that."""
    dialect, d = scope.dialect, dtypes.info(dtype)
    cuda, short = dialect.name == "cuda", d.bits < 32
    name = f"atomic_{op}_{dtype}" + ("" if cuda else f"_{space}")
    word, qualifier = dialect.unsigned(max(32, d.bits)), dialect.spaces[space]
    to_bits, from_bits = _BITS.get((dialect.name, dtype), (f"({word})", f"({dialect.types[dtype]})"))
    old = loaded(scope, dtype, "own") if short else Code(f"{from_bits}(seen)", dtype, interval=limits(dtype))
    made = arithmetic.binary(scope.text, op, old, Code("x", dtype, interval=limits(dtype)))
    bits = f"({word})({stored(scope, made)})" if short else f"({word}){to_bits}({made.text})"
    swap = "atomicCAS" if cuda else "atom_cmpxchg" if d.bits == 64 else "atomic_cmpxchg"
    target = f"{'' if cuda else 'volatile '}{qualifier}{word} *"
    lines = [f"{dialect.function} void {name}({qualifier}{dialect.word(dtype)} *place, {dialect.types[dtype]} x) {{"]
    if short:
        mask = "0xffffu" if d.bits == 16 else "0xffu"
        bits = f"(old & ~({mask} << shift)) | (({bits} & {mask}) << shift)"
        lines += [
            f"    const {word} shift = ({word})((size_t)place & {4 - d.bytes}) * 8;",
            f"    {target}word = ({target})((size_t)place & ~(size_t)3);",
        ]
    else:
        lines.append(f"    {target}word = ({target})place;")
    lines += [f"    {word} seen = *word, old;", "    do {", "        old = seen;"]
    if short:
        lines.append(f"        const {dialect.word(dtype)} own = ({dialect.word(dtype)})(seen >> shift);")
    lines += [f"        seen = {swap}(word, old, {bits});", "    } while (seen != old);", "}"]
    return scope.text.call(name, "\n".join(lines))
