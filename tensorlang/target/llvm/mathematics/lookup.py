"""Tables of sixteen float32 numbers from which every lane takes its own, as registers or memory hold them."""

from __future__ import annotations

from collections.abc import Sequence

from tensorlang.target.detect import target_cpu
from tensorlang.target.llvm.arithmetic import constant, extract
from tensorlang.target.llvm.mathematics.ieee import Exact
from tensorlang.target.llvm.memory import shuffle
from tensorlang.target.llvm.text import Value, literal

ENTRIES = 16
"""Numbers of a table: a register of AVX-512, four of NEON."""
_LAST = ENTRIES - 1
_HALF = ENTRIES // 2


def lookup(m: Exact, index: Value, tables: Sequence[Sequence[float]]) -> list[Value]:
    """For each table the numbers at an index, of which the lowest four bits count."""
    cpu = target_cpu(m.fn.target)
    if not index.lanes:
        return _from_memory(m, index, tables)
    if "avx512f" in cpu.features:
        return _in_pieces(m, index, tables, ENTRIES)
    if "avx2" in cpu.features:
        return _in_pieces(m, index, tables, _HALF)
    if cpu.architecture == "aarch64":
        return _in_pieces(m, index, tables, ENTRIES // 4)
    return _from_memory(m, index, tables)


def _in_pieces(m: Exact, index: Value, tables: Sequence[Sequence[float]], width: int) -> list[Value]:
    """Full registers of indices, one after the other."""
    number, piece = -(-index.lanes // width), Exact(m.fn, m.dtype, width)
    pieces: list[list[Value]] = []
    for first in range(0, number * width, width):
        lanes = [lane if lane < index.lanes else -1 for lane in range(first, first + width)]
        pieces.append(_REGISTERS[width](piece, shuffle(m.fn, index, index, lanes), tables))
    return [_joined(m, parts, index.lanes) for parts in zip(*pieces, strict=True)]


def _avx512(m: Exact, index: Value, tables: Sequence[Sequence[float]]) -> list[Value]:
    name = "llvm.x86.avx512.permvar.sf.512"
    return [m.fn.call(name, [_vector(table), index], "float32", ENTRIES) for table in tables]


def _avx2(m: Exact, index: Value, tables: Sequence[Sequence[float]]) -> list[Value]:
    name, upper = "llvm.x86.avx2.permps", m.integer("and", index, _HALF)
    zero = constant(0, upper)
    is_upper = m.fn.value(f"icmp ne {upper.typed}, {zero.text}", "bool", upper.lanes)
    found = []
    for table in tables:
        low, high = (
            m.fn.call(name, [_vector(half), index], "float32", _HALF) for half in (table[:_HALF], table[_HALF:])
        )
        found.append(m.fn.value(f"select {is_upper.typed}, {high.typed}, {low.typed}", "float32", _HALF))
    return found


def _neon(m: Exact, index: Value, tables: Sequence[Sequence[float]]) -> list[Value]:
    """By bytes: entry n of a table is its bytes 4 n to 4 n + 3."""
    low = m.integer("and", index, _LAST)
    bytes_ = m.integer("add", m.integer("mul", low, 0x04040404), 0x03020100)
    like = Value("", "int8", ENTRIES)
    places = m.fn.value(f"bitcast {bytes_.typed} to {like.type}", "int8", ENTRIES)
    found = []
    for table in tables:
        quarters = [
            m.fn.value(f"bitcast {_vector(table[k : k + 4]).typed} to {like.type}", "int8", ENTRIES)
            for k in range(0, ENTRIES, 4)
        ]
        entry = m.fn.call("llvm.aarch64.neon.tbl4.v16i8", [*quarters, places], "int8", ENTRIES)
        found.append(m.fn.value(f"bitcast {entry.typed} to <4 x float>", "float32", 4))
    return found


_REGISTERS = {ENTRIES: _avx512, _HALF: _avx2, ENTRIES // 4: _neon}
"""By the lanes of a register."""


def _from_memory(m: Exact, index: Value, tables: Sequence[Sequence[float]]) -> list[Value]:
    """One load for each lane and table."""
    low = m.integer("and", index, _LAST)
    type_ = f"[{ENTRIES} x float]"
    found = []
    for table in tables:
        data = m.fn.module.data(f"{type_} [{', '.join(literal(x, 'float32').typed for x in table)}]")
        lanes = [_loaded(m, data, type_, extract(m.fn, low, lane)) for lane in range(max(1, index.lanes))]
        found.append(lanes[0] if not index.lanes else _collected(m, lanes))
    return found


def _loaded(m: Exact, data: str, type_: str, index: Value) -> Value:
    place = m.fn.op(f"getelementptr inbounds {type_}, ptr {data}, i32 0, {index.typed}")
    return m.fn.value(f"load float, ptr {place}, align 4", "float32")


def _collected(m: Exact, lanes: Sequence[Value]) -> Value:
    made = Value("poison", "float32", len(lanes))
    for number, lane in enumerate(lanes):
        made = m.fn.value(f"insertelement {made.typed}, {lane.typed}, i32 {number}", "float32", len(lanes))
    return made


def _vector(table: Sequence[float]) -> Value:
    return Value(f"<{', '.join(literal(x, 'float32').typed for x in table)}>", "float32", len(table))


def _joined(m: Exact, parts: Sequence[Value], lanes: int) -> Value:
    """The first lanes of vectors behind each other."""
    made = parts[0]
    for part in parts[1:]:
        width = made.lanes + part.lanes
        grown = shuffle(m.fn, part, part, [*range(part.lanes), *[-1] * (made.lanes - part.lanes)])
        made = shuffle(m.fn, made, grown, [*range(made.lanes), *range(made.lanes, width)])
    return made if made.lanes == lanes else shuffle(m.fn, made, made, list(range(lanes)))
