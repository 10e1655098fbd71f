"""Objects that come into this process without LLVM: one of ELF for x86-64 becomes an image, which is mapped.

What the emitter writes asks little of a linker: code and constants, offsets between them, and a table of the addresses
of what is outside. Of an object with anything else there is no image, and LLVM links it (`engine.load`). Source of the
format: the System V ABI, and its supplement for AMD64.
"""

from __future__ import annotations

import ctypes
import mmap
import struct
import sys
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from typing import Any, NamedTuple

from tensorlang.dataclass import dataclass
from tensorlang.errors import InternalError

_X86_64, _PROGRAM, _SYMBOLS, _MOVES = 62, 1, 2, 4
_WRITTEN, _HELD, _CODE = 1, 2, 4
"""Flags of sections: for writing, in memory at all, code."""
_FIRST_SPECIAL, _WEAK = 0xFF00, 2
_OFFSET, _CALL, _BY_TABLE = 2, 4, (9, 41, 42)
"""Relocations: an offset, that of a function which may be outside, and that of an address in the table."""
_ADDRESS, _JUMP = 8, b"\xff\x25"
_STUB = 8
"""Bytes of an address, and of a jump to one."""


@dataclass(frozen=True, slots=True)
class Library:
    """Loaded code. The addresses are valid as long as the library is referenced."""

    addresses: Mapping[str, int]
    tracker: Any


@dataclass(frozen=True, slots=True)
class Image:
    """Code, and from `constants` on what is only read: all that is left to do is to write addresses into a table.

    `symbols` has the places of names. Addresses of what is outside are written to `slots`, those of places inside to
    the keys of `own`.
    """

    content: bytes
    constants: int
    symbols: Mapping[str, int]
    slots: Mapping[str, int]
    own: Mapping[int, int]


def image_of(code: bytes) -> Image | None:
    """The image of an object, where this system can map it and nothing in it wants more than that."""
    if sys.platform != "linux" or code[:6] != b"\x7fELF\x02\x01" or struct.unpack_from("<H", code, 18) != (_X86_64,):
        return None
    try:
        return _linked(code)
    except _NoImage:
        return None


def load_image(image: Image, exports: Sequence[str], imports: Mapping[str, int]) -> Library:
    """Map an image; `imports` gives addresses to what is outside, this process those of its functions.

    InternalError for what neither has.
    """
    size = len(image.content)
    memory = mmap.mmap(-1, size, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, mmap.PROT_READ | mmap.PROT_WRITE)
    memory[:] = image.content
    begin = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    for name, place in image.slots.items():
        struct.pack_into("<Q", memory, place, imports[name] if name in imports else _of_process(name))
    for place, inside in image.own.items():
        struct.pack_into("<Q", memory, place, begin + inside)
    _allow(begin, image.constants, mmap.PROT_READ | mmap.PROT_EXEC)
    _allow(begin + image.constants, size - image.constants, mmap.PROT_READ)
    return Library({name: begin + image.symbols[name] for name in exports}, memory)


@cache
def _process() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


def _allow(begin: int, size: int, access: int) -> None:
    if size and _process().mprotect(ctypes.c_void_p(begin), ctypes.c_size_t(size), access):
        raise InternalError(f"the system allows no code in memory (mprotect, errno {ctypes.get_errno()})")


def _of_process(name: str) -> int:
    try:
        return ctypes.cast(_process()[name], ctypes.c_void_p).value or 0
    except AttributeError as error:
        raise InternalError(f"a compiled kernel does not link: {error}") from error


class _NoImage(Exception):
    """An object that wants a linker."""


class _Section(NamedTuple):
    """A header of a section, as far as it says something here."""

    kind: int
    flags: int
    at: int
    size: int
    link: int
    of: int
    alignment: int


class _Symbol(NamedTuple):
    """A name, and where it is: a section of the object, or 0, which is outside."""

    name: str
    section: int
    value: int


class _Move(NamedTuple):
    """A relocation: at an offset of a section something about a symbol is to be written."""

    section: int
    offset: int
    kind: int
    symbol: _Symbol
    addend: int


def _linked(code: bytes) -> Image:
    sections = _sections(code)
    symbols = _symbols(code, sections)
    moves = [*_moves(code, sections, symbols)]
    called = dict.fromkeys(m.symbol for m in moves if m.kind == _CALL and not m.symbol.section)
    places: dict[int, int] = {}
    stubs = _up(_placed(sections, places, 0, _CODE), _STUB)
    constants = _up(stubs + _STUB * len(called), mmap.PAGESIZE)
    table = _up(_placed(sections, places, constants, 0), _ADDRESS)
    wanted = dict.fromkeys([*(m.symbol for m in moves if m.kind in _BY_TABLE), *called])
    slots = {symbol: table + _ADDRESS * k for k, symbol in enumerate(wanted)}
    jumps = {symbol: stubs + _STUB * k for k, symbol in enumerate(called)}
    content = bytearray(_up(table + _ADDRESS * len(slots), mmap.PAGESIZE))
    for number, place in places.items():
        section = sections[number]
        content[place : place + section.size] = code[section.at : section.at + section.size]
    for symbol, place in jumps.items():
        struct.pack_into("<2si", content, place, _JUMP, slots[symbol] - place - len(_JUMP) - 4)
    inside = {s: places[s.section] + s.value for s in symbols if s.section in places}
    for move in moves:
        place = places[move.section] + move.offset
        where = slots if move.kind in _BY_TABLE else inside if move.symbol.section else jumps
        struct.pack_into("<i", content, place, where[move.symbol] + move.addend - place)
    return Image(
        bytes(content),
        constants,
        {symbol.name: place for symbol, place in inside.items() if symbol.name},
        {symbol.name: place for symbol, place in slots.items() if not symbol.section},
        {place: inside[symbol] for symbol, place in slots.items() if symbol.section},
    )


def _up(size: int, step: int) -> int:
    return -(-size // step) * step


def _placed(sections: Sequence[_Section], places: dict[int, int], end: int, code: int) -> int:
    """Give places behind `end` to the sections that are code, or are not; where they end."""
    for number, section in enumerate(sections):
        if section.flags & _HELD and section.flags & _CODE == code:
            places[number] = _up(end, max(section.alignment, 1))
            end = places[number] + section.size
    return end


def _sections(code: bytes) -> list[_Section]:
    """All sections. _NoImage where one that is in memory is not code or constants, or wants more than a page."""
    (table,), (each, count) = struct.unpack_from("<Q", code, 40), struct.unpack_from("<HH", code, 58)
    rows = [struct.unpack_from("<IIQQQQIIQQ", code, table + each * k) for k in range(count)]
    found = [_Section(kind, flags, at, size, *rest[:3]) for _, kind, flags, _, at, size, *rest in rows]
    for section in found:
        plain = section.kind == _PROGRAM and section.flags & _WRITTEN == 0 and section.alignment <= mmap.PAGESIZE
        if section.flags & _HELD and section.size and not plain:
            raise _NoImage
    return found


def _symbols(code: bytes, sections: Sequence[_Section]) -> list[_Symbol]:
    """The symbols of an object by their numbers. _NoImage for those that need not be there, or are nowhere yet."""
    table = next((s for s in sections if s.kind == _SYMBOLS), None)
    if table is None:
        return []
    names, found = sections[table.link].at, list[_Symbol]()
    for at in range(table.at, table.at + table.size, 24):
        name, info, _, section, value = struct.unpack_from("<IBBHQ", code, at)
        if (info >> 4 == _WEAK and not section) or (section >= _FIRST_SPECIAL and info & 15 < 4):
            raise _NoImage
        text = code[names + name : code.index(b"\0", names + name)].decode()
        found.append(_Symbol(text, section, value))
    return found


def _moves(code: bytes, sections: Sequence[_Section], symbols: Sequence[_Symbol]) -> Iterator[_Move]:
    """The relocations of what is in memory. _NoImage for those of other kinds."""
    for section in sections:
        if section.kind != _MOVES or not sections[section.of].flags & _HELD:
            continue
        for at in range(section.at, section.at + section.size, 24):
            offset, info, addend = struct.unpack_from("<QQq", code, at)
            move = _Move(section.of, offset, info & 0xFFFFFFFF, symbols[info >> 32], addend)
            known = move.kind in _BY_TABLE or move.kind == _CALL or (move.kind == _OFFSET and move.symbol.section)
            if not known:
                raise _NoImage
            yield move
