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
    d, word, dialect = dtypes.info(dtype), _FUNCTIONS.get(op, ""), scope.dialect
    if d.is_float:
        known = dialect.atomic_sums and word == "Add" and d.bits >= 32
    else:
        known = bool(word) and d.bits in dialect.atomic_bits
    return dialect.atomic.format(name=word, lower=word.lower()) if known else ""


def _exchange(scope: Scope, op: str, dtype: str, space: Space) -> str:
    """The name of a function that computes from what it read, and again from what it finds instead of that."""
    dialect, d = scope.dialect, dtypes.info(dtype)
    bits_of_word, short = max(32, d.bits), d.bits < 32
    word, qualifier = dialect.unsigned(bits_of_word), dialect.spaces[space]
    name = f"atomic_{op}_{dtype}" + (f"_{space}" if qualifier else "")
    to_bits, from_bits = dialect.float_bits.get(dtype, (f"({word})", f"({dialect.types[dtype]})"))
    old = loaded(scope, dtype, "own") if short else Code(f"{from_bits}(seen)", dtype, interval=limits(dtype))
    made = arithmetic.binary(scope.text, op, old, Code("x", dtype, interval=limits(dtype)))
    bits = f"({word})({stored(scope, made)})" if short else f"({word}){to_bits}({made.text})"
    target = f"{dialect.volatile}{qualifier}{word} *"
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
    lines += [f"        seen = {dialect.exchange[bits_of_word]}(word, old, {bits});", "    } while (seen != old);", "}"]
    return scope.text.call(name, "\n".join(lines))
