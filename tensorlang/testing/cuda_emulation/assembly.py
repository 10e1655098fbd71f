"""Inline assembly of a CUDA text: the statement, its operands, and the instructions of PTX in its template."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from tensorlang.dataclass import dataclass
from tensorlang.errors import ArgumentError

_BEGIN = re.compile(r"\b(?:asm|__asm__)\b\s*(?:volatile|__volatile__)?\s*\(")
_LITERAL = re.compile(r'"(?:[^"\\]|\\.)*"')
_OPERAND = re.compile(r'^\s*(?:\[\w+\]\s*)?"([=+]?)([a-z])"\s*\((.*)\)\s*$', re.DOTALL)
_PAIRS = {"(": ")", "[": "]", "{": "}"}


@dataclass(frozen=True, slots=True)
class Operand:
    """An operand of a statement: `"+f"(c[0])` is the letter f, the expression `c[0]`, read and written."""

    letter: str
    expression: str
    read: bool
    written: bool


@dataclass(frozen=True, slots=True)
class Assembly:
    """A statement of inline assembly, at text[begin:end], without the semicolon behind it."""

    begin: int
    end: int
    template: str
    operands: tuple[Operand, ...]


@dataclass(frozen=True, slots=True)
class Instruction:
    """One instruction of PTX: `@guard opcode operands;`, or a label alone (`label`)."""

    opcode: str = ""
    operands: tuple[str, ...] = ()
    guard: str = ""
    label: str = ""


def statements(text: str) -> Iterator[Assembly]:
    """Yield the statements of inline assembly of a text, in order."""
    for found in _BEGIN.finditer(text):
        end = closing(text, found.end() - 1)
        sections = split(text[found.end() : end], ":")
        template = "".join(ast.literal_eval(literal) for literal in _LITERAL.findall(sections[0]))
        outputs = [_operand(part) for part in split(sections[1], ",")] if len(sections) > 1 else []
        inputs = [_operand(part) for part in split(sections[2], ",")] if len(sections) > 2 else []
        yield Assembly(found.start(), end + 1, template, tuple(o for o in (*outputs, *inputs) if o is not None))


def instructions(template: str) -> Iterator[Instruction]:
    """Yield the instructions and labels of a template; braces of blocks and comments are left out."""
    for line in re.sub(r"//[^\n]*|/\*.*?\*/", " ", template, flags=re.DOTALL).split(";"):
        rest = line.strip()
        while rest[:1] in ("{", "}") and rest:
            rest = rest[1:].strip()
        while label := re.match(r"([A-Za-z_$%][\w$]*)\s*:(?!:)", rest):
            yield Instruction(label=label[1].strip("$%"))
            rest = rest[label.end() :].strip()
        rest = rest.removesuffix("}").strip() if rest.count("}") > rest.count("{") else rest
        guarded = re.match(r"@(!?%?\w+)\s+", rest)
        rest = rest[guarded.end() :] if guarded else rest
        opcode, _, operands = rest.partition(" ")
        if opcode:
            parts = tuple(part.strip() for part in split(operands, ",")) if operands.strip() else ()
            yield Instruction(opcode, parts, guarded[1] if guarded else "")


def closing(text: str, begin: int) -> int:
    """Return where the bracket that opens at `begin` closes; brackets in string literals do not count."""
    depth, at = 0, begin
    while at < len(text):
        if text[at] == '"':
            found = _LITERAL.match(text, at)
            at = found.end() if found else len(text)
            continue
        depth += (text[at] in _PAIRS) - (text[at] in _PAIRS.values())
        if depth == 0:
            return at
        at += 1
    line = text.count("\n", 0, begin) + 1
    raise ArgumentError(f"the {text[begin]!r} of line {line} of the CUDA text is never closed")


def split(text: str, separator: str) -> list[str]:
    """Cut a text at the separators that are in no brackets and no string literal. `::` is two colons in PTX's names."""
    parts, begin, at = [], 0, 0
    while at < len(text):
        if text[at] == '"':
            found = _LITERAL.match(text, at)
            at = found.end() if found else len(text)
        elif text[at] in _PAIRS:
            at = closing(text, at) + 1
        else:
            if text[at] == separator:
                parts.append(text[begin:at])
                begin = at + 1
            at += 1
    return [*parts, text[begin:]]


def _operand(text: str) -> Operand | None:
    if not text.strip():
        return None
    found = _OPERAND.match(text)
    if found is None:
        raise ArgumentError(f'an operand of inline assembly is like "+f"(x), got {text.strip()!r}')
    mode, letter, expression = found.groups()
    return Operand(letter, expression.strip(), read=mode != "=", written=mode != "")
