"""Floats to bytes, rounded, each the nearest one: vectors side by side are packed by instructions that saturate."""

from __future__ import annotations

from collections.abc import Iterable

from tensorlang import dtypes
from tensorlang.dataclass import dataclass
from tensorlang.ir.clamped import Clamped, clamped
from tensorlang.ir.expr import Cast
from tensorlang.ir.spans import span
from tensorlang.ir.stmt import Store
from tensorlang.target.detect import target_cpu
from tensorlang.target.llvm.arithmetic import binary, constant, is_nan, select
from tensorlang.target.llvm.memory import shuffle
from tensorlang.target.llvm.text import Function, Value

_WORD, _PIECE = 4, 16
_MOST = 4
"""Vectors of words whose bytes fill one."""
_FITS = 2.0**30
"""Floats up to here are integers of 32 bits, and so are they with a zero point."""


@dataclass(frozen=True, slots=True)
class _Vectors:
    """Of a CPU with a `feature`: the bytes of a vector, how floats become words, and `packing`, which takes pieces of
    16 bytes by themselves.
    """

    feature: str
    size: int
    rounding: str
    more: str
    packing: str


_X86 = (
    _Vectors(
        "avx512bw",
        64,
        "llvm.x86.avx512.mask.cvtps2dq.512",
        "<16 x i32> zeroinitializer, i16 -1, i32 4",
        "llvm.x86.avx512.{}.512",
    ),
    _Vectors("avx2", 32, "llvm.x86.avx.cvt.ps2dq.256", "", "llvm.x86.avx2.{}"),
)
_TO_BYTES = {"int8": "packsswb", "uint8": "packuswb"}


def saturates(fn: Function, found: Clamped, dtype: str, lanes: int) -> bool:
    """Whether clamped floats are packed: between the limits of bytes, in two to four vectors."""
    vectors = _vectors(fn)
    if vectors is None or dtype not in _TO_BYTES or found.inner.dtype != "float32":
        return False
    count, rest = divmod(_WORD * lanes, vectors.size)
    return found.rounds and (found.low, found.high) == dtypes.limits(dtype) and not rest and 2 <= count <= _MOST


def lanes_together(fn: Function, stores: Iterable[Store], lanes: int, count: int) -> int:
    """How many of `count` iterations are made at once, in place of `lanes`, so that their bytes are packed."""
    found = [(store.value.dtype, clamped(store.value)) for store in stores if isinstance(store.value, Cast)]
    wide = (lanes * vectors for vectors in range(_MOST, 1, -1) if lanes * vectors <= count)
    return next((w for w in wide if any(one and saturates(fn, one, dtype, w) for dtype, one in found)), lanes)


def saturated(fn: Function, found: Clamped, inner: Value, dtype: str) -> Value:
    """The bytes of floats, whose `inner` has a value, where `saturates` holds; 0 for NaN.

    A float that no integer of 32 bits has is the smallest one, as NaN is: those above the limit are found before, where
    there may be such, and those below it where a zero point would have the smallest integer wrap around.
    """
    vectors = _vectors(fn)
    assert vectors is not None
    low, high = (constant(limit - found.zero, inner) for limit in (found.low, found.high))
    (least, most), inside = span(found.inner), inner
    if most > _FITS:
        inside = select(fn, binary(fn, "gt", inside, high), high, inside)
    if least < -_FITS and found.zero < 0:
        inside = select(fn, binary(fn, "lt", inside, low), low, inside)
    if found.low:
        inside = select(fn, is_nan(fn, inside), constant(-found.zero, inside), inside)
    width = vectors.size // _WORD
    parts = [shuffle(fn, inside, inside, list(range(at, at + width))) for at in range(0, inside.lanes, width)]
    return _packed(fn, [_rounded(fn, part, int(found.zero), vectors) for part in parts], dtype, vectors)


def _vectors(fn: Function) -> _Vectors | None:
    """The widest vectors of the CPU that are in use."""
    cpu = target_cpu(fn.target)
    rows = _X86 if cpu.architecture == "x86_64" else ()
    return next((row for row in rows if row.feature in cpu.features and row.size <= fn.target.vector_bytes), None)


def _rounded(fn: Function, floats: Value, zero: int, vectors: _Vectors) -> Value:
    """A vector of floats as int32, to the nearest, halves to even, with the zero point."""
    goal = Value("", "int32", floats.lanes)
    types = ", ".join([floats.type, *(text.rpartition(" ")[0] for text in vectors.more.split(", ") if text)])
    callee = fn.module.declare(vectors.rounding, goal.type, types)
    operands = ", ".join(filter(None, (floats.typed, vectors.more)))
    made = fn.value(f"call {goal.type} {callee}({operands})", "int32", floats.lanes)
    return binary(fn, "add", made, constant(zero, made)) if zero else made


def _packed(fn: Function, words: list[Value], dtype: str, vectors: _Vectors) -> Value:
    """Vectors of words as bytes: each piece has four of every vector at first."""
    pairs = words[:2], words[2:] or words[:2]
    low, high = (_pack(fn, vectors.packing.format("packssdw"), pair[0], pair[-1], "int16") for pair in pairs)
    mixed = _pack(fn, vectors.packing.format(_TO_BYTES[dtype]), low, high, dtype)
    pieces = range(0, vectors.size, _PIECE)
    picks = [piece + _WORD * k + n for k in range(len(words)) for piece in pieces for n in range(_WORD)]
    return shuffle(fn, mixed, mixed, picks)


def _pack(fn: Function, name: str, a: Value, b: Value, dtype: str) -> Value:
    made = Value("", dtype, 2 * a.lanes)
    callee = fn.module.declare(name, made.type, f"{a.type}, {b.type}")
    return fn.value(f"call {made.type} {callee}({a.typed}, {b.typed})", dtype, made.lanes)
