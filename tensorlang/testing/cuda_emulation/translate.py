"""CUDA C to the C++ that `emulation.h` knows: only inline assembly and dynamic shared memory are written anew.

A statement of assembly becomes a block of C++ that gives each operand a register of its letter and calls one function
of the machine for each instruction, so that the template, its operands and their order are what is tested. PTX ISA 8.
"""

from __future__ import annotations

import re
from functools import cache
from itertools import count

from tensorlang.dataclass import dataclass
from tensorlang.errors import ArgumentError
from tensorlang.testing.cuda_emulation.assembly import Assembly, instructions, statements
from tensorlang.testing.cuda_emulation.instructions import Scope, translate_instruction

_REGISTERS = {"r": "uint32_t", "l": "uint64_t", "h": "uint16_t", "f": "float", "d": "double", "n": "int64_t"}
_DYNAMIC = re.compile(
    r"\bextern\s+__shared__\s+(?P<align>(?:__align__|alignas)\s*\(\s*(?P<to>\d+)\s*\)\s*)?"
    r"(?P<type>[\w\s]+?)\s*\b(?P<name>\w+)\s*\[\s*\]\s*;"
)
_LEAST_ALIGNMENT = 16
_KERNEL = re.compile(r"\b__global__\b(?P<head>(?:[^();{}]|\([^()]*\)(?!\s*\{))*?)(?P<name>\b(?!__)\w+)\s*\(")


@dataclass(frozen=True, slots=True)
class Translation:
    """The C++ text, line for line. `kernels` names those that are no templates.

    `dynamic_alignment`: bytes that the text asks of dynamic shared memory.
    """

    text: str
    dynamic_alignment: int
    kernels: tuple[str, ...]


@cache
def translate(source: str) -> Translation:
    """Return a CUDA text as C++; ArgumentError names inline assembly that the emulation does not know."""
    pieces, end, numbers = [], 0, count()
    bare = without_comments(source)
    for statement in statements(bare):
        written = bare[statement.begin : statement.end]
        try:
            block = _block(statement, next(numbers))
        except ArgumentError as error:
            line = bare.count("\n", 0, statement.begin) + 1
            raise ArgumentError(f"line {line} of the CUDA text: {error}") from None
        pieces += [bare[end : statement.begin], block, "\n" * written.count("\n")]
        end = statement.end
    text = "".join([*pieces, bare[end:]])
    alignment = max([_LEAST_ALIGNMENT, *(int(found["to"] or 0) for found in _DYNAMIC.finditer(text))])
    kernels = [found["name"] for found in _KERNEL.finditer(text) if not _is_template(text, found.start())]
    return Translation(_DYNAMIC.sub(_dynamic, text), alignment, tuple(dict.fromkeys(kernels)))


def without_comments(source: str) -> str:
    """Return a C text with its comments blanked and its lines where they were."""

    def blank(found: re.Match[str]) -> str:
        return found[0] if found[0][0] in "\"'" else re.sub(r"[^\n]", " ", found[0])

    return re.sub(r'"(?:[^"\\]|\\.)*"|\'(?:[^\'\\]|\\.)*\'|//[^\n]*|/\*.*?\*/', blank, source, flags=re.DOTALL)


def _is_template(text: str, at: int) -> bool:
    """Tell whether `template <...>` is in front of a kernel, behind the end of the definition before."""
    begin = max(text.rfind(end, 0, at) for end in ";}")
    return re.search(r"\btemplate\b", text[begin + 1 : at]) is not None


def _dynamic(found: re.Match[str]) -> str:
    kind = f"{found['type'].strip()}*"
    inside = found.string.count("{", 0, found.start()) > found.string.count("}", 0, found.start())
    if inside:
        return f"{kind} const {found['name']} = reinterpret_cast<{kind}>(emu::dynamic_shared());"
    line = found.string.count("\n", 0, found.end()) + 1
    return f"\n#define {found['name']} (reinterpret_cast<{kind}>(emu::dynamic_shared()))\n#line {line}\n"


def _block(statement: Assembly, number: int) -> str:
    """A statement that begins with the registers, so that no jump passes by the beginning of one."""
    scope = Scope(number, tuple(o.expression for o in statement.operands))
    made, ends = [], []
    for k, operand in enumerate(statement.operands):
        if operand.letter not in _REGISTERS:
            raise ArgumentError(f'operands of assembly have letters {", ".join(_REGISTERS)}; got "{operand.letter}"')
        kind, name = _REGISTERS[operand.letter], scope.operand(k)
        value = f" = emu::operand<{kind}>({operand.expression})" if operand.read else ""
        made.append(f"[[maybe_unused]] {kind} {name}{value};")
        if operand.written and operand.letter != "n":
            ends.append(f"emu::put({operand.expression}, emu::bits({name}));")
    body = [translate_instruction(instruction, scope) for instruction in instructions(statement.template)]
    if scope.keeps_outputs:
        ends = []
    return f"do {{ {' '.join([*made, *scope.declarations, *body, *ends])} }} while (0)"
