"""How a wrapper of PTX instructions is written: one CUDA C device function with one piece of inline assembly."""

from __future__ import annotations

from collections.abc import Sequence

from tensorlang.dataclass import dataclass

_PER_LINE = 8


@dataclass(frozen=True, slots=True)
class Intrinsic:
    """A device function of the table: `result name(parameters) { body }`, and what it needs and means.

    `parameters` are (type, name) in C. `template` is the name of an `int` that is a constant of the call, as in
    `name<2>()`; empty for a plain function. `architecture` is the lowest one that has the instruction (`sm_80`); one
    that ends in a letter (`sm_90a`) is the only one. `mnemonic` begins the PTX instruction that it stands for.
    `requires` names the other texts of the table that it uses.
    """

    name: str
    parameters: tuple[tuple[str, str], ...]
    body: str
    architecture: str
    meaning: str
    mnemonic: str
    result: str = "void"
    template: str = ""
    requires: tuple[str, ...] = ()

    @property
    def signature(self) -> str:
        """The head of the function, without its qualifiers: `void tl_mma_f16(float* c, const unsigned* a)`."""
        return f"{self.result} {self.name}({', '.join(f'{kind} {name}' for kind, name in self.parameters)})"

    @property
    def text(self) -> str:
        """The function as CUDA C."""
        head = f"template <int {self.template}>\n" if self.template else ""
        body = "\n".join(f"  {line}" for line in self.body.splitlines())
        return f"{head}__device__ __forceinline__ {self.signature} {{\n{body}\n}}\n"


def assembly(
    lines: str | Sequence[str], outputs: Sequence[str] = (), inputs: Sequence[str] = (), *, memory: bool = True
) -> str:
    """Return a statement of volatile inline assembly; `memory` keeps loads and stores on their side of it."""
    text = [lines] if isinstance(lines, str) else list(lines)
    quoted = "\n    ".join(f'"{line}\\n"' for line in text) if len(text) > 1 else f'"{text[0]}"'
    parts = [f"asm volatile({quoted}"]
    sections = [_wrapped(outputs), _wrapped(inputs), '"memory"' if memory else ""]
    while sections and not sections[-1]:
        sections.pop()
    parts += [f" : {section}" if section else " :" for section in sections]
    return "".join(parts) + ");"


def operands(constraint: str, array: str, count: int) -> list[str]:
    """Return the elements of an array as operands of assembly: `"+f"(c[0])`, `"+f"(c[1])`."""
    return [f'"{constraint}"({array}[{k}])' for k in range(count)]


def shared(pointer: str) -> str:
    """Return a generic pointer into shared memory as an operand: its 32-bit address there."""
    return f'"r"((unsigned)__cvta_generic_to_shared({pointer}))'


def places(first: int, count: int) -> str:
    """Return the braced list of `count` operands from number `first` on: `{%0, %1}`."""
    return "{" + ", ".join(f"%{k}" for k in range(first, first + count)) + "}"


def _wrapped(parts: Sequence[str]) -> str:
    rows = [", ".join(parts[k : k + _PER_LINE]) for k in range(0, len(parts), _PER_LINE)]
    return ",\n      ".join(rows)
