"""What a notebook shows of a kernel: its arguments, its loops, and its assembly with the hot loop marked."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from tensorlang.errors import TensorlangError
from tensorlang.ir.expr import Buffer
from tensorlang.markup import Markup, code, folded, page, table

if TYPE_CHECKING:
    from tensorlang.runtime.executable import Executable

_MOST_LINES = 2000
_LABEL = re.compile(r"^(\.?\w+):")
_JUMP = re.compile(r"^\s+j\w+\s+(\.\w+)|^\s+b(?:\.\w+)?\s+(\.\w+)|^\s+cbn?z\s+\w+, (\.\w+)")
_WORK = re.compile(r"^\s+(?:v?f?n?m(?:add|sub|ul|la|ls)|v?add[ps]|v?mul[ps]|v?dp|vpdp|tdp|v?(?:max|min)[ps])")
"""Instructions that compute."""


def executable_html(f: Executable, roofline: str = "") -> str:
    """Arguments in a table, and a roofline; texts are shown when somebody asks for them."""
    rows = [
        (p.name, f"{p.dtype}[{', '.join(map(str, p.shape))}]" if isinstance(p, Buffer) else "a size", _role(f, p.name))
        for p in f.signature
    ]
    parts: list[Markup] = [table(("argument", "type", ""), rows), folded("loops", code(_cut(f.source("loops"))))]
    if "asm" in f.source_forms:
        try:
            text = f.source("asm")
        except TensorlangError:
            text = ""
        if text:
            parts.append(folded("assembly", code(_cut(text), hot_loop(text))))
    return page(f"{f.entry_name} for {f.target}", *parts, roofline)


def _role(f: Executable, name: str) -> str:
    return "written" if name in f.kernel.outputs else "read"


def _cut(text: str) -> str:
    lines = text.split("\n")
    return text if len(lines) <= _MOST_LINES else "\n".join([*lines[:_MOST_LINES], "..."])


def hot_loop(text: str) -> range:
    """The lines of the hottest loop: of those that hold no other, the one with most instructions that compute."""
    labels: dict[str, int] = {}
    loops: list[range] = []
    for n, line in enumerate(text.split("\n")):
        if found := _LABEL.match(line):
            labels[found[1]] = n
        elif (jump := _JUMP.match(line)) and (start := labels.get(next(g for g in jump.groups() if g))) is not None:
            loops.append(range(start, n + 1))
    inner = [a for a in loops if not any(b != a and a.start <= b.start and b.stop <= a.stop for b in loops)]
    lines = text.split("\n")
    work = {a: sum(bool(_WORK.match(lines[n])) for n in a) for a in inner}
    return max(inner, key=lambda a: (work[a], len(a)), default=range(0))
