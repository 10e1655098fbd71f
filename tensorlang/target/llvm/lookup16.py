"""Tables of 16 bytes: a shuffle of bytes where the CPU has one, else choices bit by bit."""

from __future__ import annotations

from tensorlang import dtypes
from tensorlang.errors import InternalError
from tensorlang.target.detect import target_cpu
from tensorlang.target.llvm.arithmetic import binary, constant, select
from tensorlang.target.llvm.memory import shuffle
from tensorlang.target.llvm.text import Function, Value, vector_type

_X86 = (
    ("avx512bw", 64, "llvm.x86.avx512.pshuf.b.512"),
    ("avx2", 32, "llvm.x86.avx2.pshuf.b"),
    ("ssse3", 16, "llvm.x86.ssse3.pshuf.b.128"),
)
"""The feature of a CPU, how many bytes are shuffled at once, each 16 of them by the table beside them, and how."""
_NEON = "llvm.aarch64.neon.tbl1.v16i8"
_PIECE = 16


def lookup16(fn: Function, index: Value, *numbers: Value) -> Value:
    """The constant of 16 at an index of uint8, by its lowest four bits."""
    table = [number.integer for number in numbers]
    if None in table:
        raise InternalError("a table of 16 numbers that are no constants")
    low = binary(fn, "bitand", index, constant(15, index))
    if not index.lanes:
        return _of_one(fn, low, [number or 0 for number in table])
    shuffles = _shuffles(fn)
    if not shuffles:
        return _chosen(fn, low, [number or 0 for number in table])
    parts, begun = list[Value](), 0
    while begun < index.lanes:
        width, name = next((s for s in shuffles if s[0] <= index.lanes - begun), shuffles[-1])
        lanes = [begun + n if begun + n < index.lanes else -1 for n in range(width)]
        piece = _looked_up(fn, shuffle(fn, low, low, lanes), table, name)
        parts.append(piece)
        begun += width
    return _joined(fn, parts, index.lanes)


def _shuffles(fn: Function) -> list[tuple[int, str]]:
    """The shuffles of the CPU, the widest first."""
    cpu = target_cpu(fn.target)
    if cpu.architecture == "aarch64":
        return [(_PIECE, _NEON)]
    return [(width, name) for feature, width, name in _X86 if feature in cpu.features]


def _looked_up(fn: Function, index: Value, table: list[int | None], name: str) -> Value:
    type_ = vector_type(dtypes.info("uint8").llvm, index.lanes)
    numbers = ", ".join(f"i8 {number}" for number in table * (index.lanes // _PIECE))
    callee = fn.module.declare(name, type_, f"{type_}, {type_}")
    return fn.value(f"call {type_} {callee}({type_} <{numbers}>, {index.typed})", "uint8", index.lanes)


def _joined(fn: Function, parts: list[Value], lanes: int) -> Value:
    """Vectors behind each other, as far as they are wanted."""
    made = parts[0]
    for part in parts[1:]:
        wide = shuffle(fn, part, part, [n if n < part.lanes else -1 for n in range(made.lanes)])
        made = shuffle(fn, made, wide, list(range(made.lanes + part.lanes)))
    return made if made.lanes == lanes else shuffle(fn, made, made, list(range(lanes)))


def _of_one(fn: Function, index: Value, table: list[int]) -> Value:
    """A byte of 128 bits, shifted down."""
    bits = sum(number << 8 * place for place, number in enumerate(table))
    wide = fn.op(f"zext {index.typed} to i128")
    far = fn.op(f"shl i128 {wide}, 3")
    return fn.value(f"trunc i128 {fn.op(f'lshr i128 {bits}, {far}')} to i8", "uint8")


def _chosen(fn: Function, index: Value, table: list[int]) -> Value:
    found = [constant(number, index) for number in table]
    for bit in (1, 2, 4, 8):
        test = binary(fn, "eq", binary(fn, "bitand", index, constant(bit, index)), constant(0, index))
        found = [select(fn, test, a, b) for a, b in zip(found[::2], found[1::2], strict=True)]
    return found[0]
