"""Static libraries of one object (ar files with an index), and the names that an ELF object leaves open."""

from __future__ import annotations

import struct
from collections.abc import Sequence

_MAGIC = b"!<arch>\n"


def archive(name: str, code: bytes, symbols: Sequence[str]) -> bytes:
    """An ar file with one object and the index that linkers find it by."""
    names = b"".join(s.encode() + b"\0" for s in symbols)
    size = 4 + 4 * len(symbols) + len(names)
    place = len(_MAGIC) + 60 + size + size % 2
    index = struct.pack(f">{1 + len(symbols)}I", len(symbols), *[place] * len(symbols)) + names
    return _MAGIC + _member("/", index) + _member(f"{name[:14]}/", code)


def undefined(code: bytes) -> list[str]:
    """The names that a 64-bit ELF object leaves open, those that may stay open aside; nothing for other formats."""
    if code[:5] != b"\x7fELF\x02":
        return []
    (table,) = struct.unpack_from("<Q", code, 40)
    each, count = struct.unpack_from("<HH", code, 58)
    sections = [struct.unpack_from("<IIQQQQII", code, table + each * k) for k in range(count)]
    found: list[str] = []
    for section in sections:
        if section[1] != 2:
            continue
        names = sections[section[6]][4]
        for at in range(section[4], section[4] + section[5], 24):
            name, info, _, index = struct.unpack_from("<IBBH", code, at)
            if index == 0 and name and info >> 4 == 1:
                found.append(code[names + name : code.index(b"\0", names + name)].decode())
    return sorted(found)


def _member(name: str, data: bytes) -> bytes:
    head = f"{name:<16}{0:<12}{0:<6}{0:<6}{644:<8}{len(data):<10}`\n".encode()
    return head + data + b"\n" * (len(data) % 2)
