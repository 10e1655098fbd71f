"""LLVM IR as text: values, functions and modules under construction."""

from __future__ import annotations

import hashlib
import re
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import field
from functools import lru_cache

import numpy as np

from tensorlang import dtypes
from tensorlang.dataclass import dataclass
from tensorlang.target.spec import Target

INDEX = "int64"
PLAIN = "optnone noinline #0"
"""Attributes of a function that runs once a call of a kernel that takes a microsecond or more: LLVM is sooner done."""
_LOOP_SHAPES = {
    "": '!{!"llvm.loop.vectorize.enable", i1 false}',
    "kept": '!{!"llvm.loop.unroll.disable"}',
    "full": '!{!"llvm.loop.unroll.full"}',
}
_LONGEST = 64
"""Characters of a name that stay in the code: LLVM cuts names that are far longer, and then takes two for one."""
_AGAIN = ("load", "call", "phi", "atomicrmw", "cmpxchg")
_READING = ("load", "phi")
"""Instructions that are written each time, since what they give depends on where they stand; and those of them that
change no memory, which calls of LLVM's own functions do not either."""


@dataclass(frozen=True, slots=True)
class Value:
    """An operand: `text` as LLVM writes it, of a tensorlang dtype; `lanes` is 0 for a scalar."""

    text: str
    dtype: str
    lanes: int = 0

    @property
    def type(self) -> str:
        """The LLVM type."""
        return _type(self.dtype, self.lanes)

    @property
    def typed(self) -> str:
        """Type and text: the form of an operand in a call."""
        return f"{self.type} {self.text}"

    @property
    def integer(self) -> int | None:
        """The value of a scalar integer literal, None for anything else."""
        return None if self.lanes or self.text[:1] == "%" else _number(self.text)


@lru_cache(maxsize=4096)
def _type(dtype: str, lanes: int) -> str:
    return vector_type(dtypes.info(dtype).llvm, lanes)


@lru_cache(maxsize=4096)
def _number(text: str) -> int | None:
    return int(text) if text.lstrip("-").isdigit() else None


@lru_cache(maxsize=4096)
def _index(value: int) -> Value:
    return Value(str(value), INDEX)


def vector_type(element: str, lanes: int) -> str:
    """The LLVM type of `lanes` elements (0: one scalar)."""
    return f"<{lanes} x {element}>" if lanes else element


def memory_type(dtype: str) -> str:
    """The LLVM type of an element in memory: a bool takes one byte."""
    return "i8" if dtype == "bool" else dtypes.info(dtype).llvm


def literal(value: int | float | bool, dtype: str) -> Value:
    """A scalar constant; floats are written exactly, in hexadecimal."""
    if dtype == INDEX:
        return _index(int(value))
    d = dtypes.info(dtype)
    if d.kind == "bool":
        return Value("true" if value else "false", dtype)
    if not d.is_float:
        return Value(str(int(value)), dtype)
    if dtype == "float16":
        return Value(f"0xH{np.float16(value).tobytes()[::-1].hex().upper()}", dtype)
    if d.is_extension:
        return Value(f"u0x{np.asarray(value, d.numpy).tobytes()[::-1].hex().upper()}", dtype)
    exact = float(np.float32(value)) if dtype == "float32" else float(value)
    return Value(f"0x{struct.pack('>d', exact).hex().upper()}", dtype)


def identifier(name: str) -> str:
    """A short LLVM identifier that begins like `name`, but with none of LLVM's own prefixes or with a digit.

    Names that are cut, or have other characters, may meet in one identifier: who needs them apart adds a number.
    """
    made = re.sub(r"^(?=[0-9])|[^A-Za-z0-9_.]", "_", name[:_LONGEST])
    return f"_{made}" if made.startswith("llvm.") else made


@dataclass
class Module:
    """A module under construction: functions, declarations, symbols bound at load time, messages of Fail.

    `sources` are modules to link to it; `externs` the C functions that it calls, from those or from the process; `own`
    what the code that is made for a kernel calls by itself. The code of a `library` has no process around it that
    knows it: threads and scratch memory come with each call. `attributes` are those of its functions.
    """

    target: Target
    library: bool = False
    attributes: str = ""
    functions: list[str] = field(default_factory=list)
    declarations: dict[str, str] = field(default_factory=dict)
    imports: set[str] = field(default_factory=set)
    messages: list[str] = field(default_factory=list)
    metadata: list[str] = field(default_factory=list)
    names: set[str] = field(default_factory=set)
    sources: list[str] = field(default_factory=list)
    externs: set[str] = field(default_factory=set)
    own: set[str] = field(default_factory=set)

    def declare_extern(self, name: str, result: str, arguments: str) -> str:
        """Declare a C function that a body calls by its name, once; return its name with the sigil."""
        self.externs.add(name)
        self.declarations.setdefault(name, f"declare {result} @{name}({arguments})")
        return f"@{name}"

    def declare(self, name: str, result: str, arguments: str) -> str:
        """Declare an external function once; return its name with the sigil."""
        self.own.add(name)
        self.declarations.setdefault(name, f"declare {result} @{name}({arguments})")
        return f"@{name}"

    def add_source(self, text: str) -> None:
        """Link a module of LLVM IR text to this one."""
        if text and text not in self.sources:
            self.sources.append(text)

    def import_function(self, name: str, result: str, arguments: str) -> str:
        """Declare a function whose address is given when the object is loaded."""
        self.imports.add(name)
        return self.declare(name, result, arguments)

    def import_data(self, name: str, type_: str) -> str:
        """Declare a variable whose address is given when the object is loaded."""
        self.imports.add(name)
        self.declarations.setdefault(name, f"@{name} = external global {type_}")
        return f"@{name}"

    def data(self, text: str) -> str:
        """A constant in memory, given by its type and value; the same for equal ones."""
        name = f"data.{hashlib.sha256(text.encode()).hexdigest()[:16]}"
        self.declarations.setdefault(name, f"@{name} = internal unnamed_addr constant {text}, align 64")
        return f"@{name}"

    def message(self, text: str) -> int:
        """The status code of a Fail message: 1 for the first."""
        if text not in self.messages:
            self.messages.append(text)
        return self.messages.index(text) + 1

    def unique(self, wish: str) -> str:
        """A function name that is not taken yet."""
        name, n = wish, 0
        while name in self.names:
            n += 1
            name = f"{wish}{n}"
        self.names.add(name)
        return name

    def loop_metadata(self, shape: str) -> str:
        """Metadata of a new loop: one that LLVM may unroll, leaves as it is (kept), or has to unroll (full)."""
        number = len(self.metadata)
        self.metadata.append(f"!{number} = distinct !{{!{number}, {_LOOP_SHAPES[shape]}}}")
        return f", !llvm.loop !{number}"

    def flag(self, name: str) -> str:
        """Metadata of an instruction that says no more than that it has it."""
        node = "!{i32 1}"
        if not any(line.endswith(f"= {node}") for line in self.metadata):
            self.metadata.append(f"!{len(self.metadata)} = {node}")
        number = next(n for n, line in enumerate(self.metadata) if line.endswith(f"= {node}"))
        return f", !{name} !{number}"

    def text(self) -> str:
        """The whole module."""
        width = f'"prefer-vector-width"="{self.target.vector_bytes * 8}"'
        parts = [
            *self.functions,
            "\n".join(self.declarations[name] for name in sorted(self.declarations)),
            f"attributes #0 = {{ nounwind {width} {self.attributes}}}",
            "\n".join(self.metadata),
        ]
        return "\n\n".join(p for p in parts if p) + "\n"


class Function:
    """A function under construction: lines of the current position, and allocas of the entry block.

    Values are numbered as they are written: an instruction that only computes is not written again where its result
    is at hand. `_results` are those at hand by their text, `_computed` the same in order; of a block that has not
    begun, `_ahead` says how many of them are at hand on every way to it. One that stands `apart` is not inlined, one
    that is `plain` is not optimised either. What machine code wants `around` it has been called where this is set.
    `slots`: how often each local array of the stack was allocated.
    """

    def __init__(
        self,
        module: Module,
        name: str,
        parameters: list[str],
        internal: bool = False,
        apart: bool = False,
        plain: bool = False,
    ) -> None:
        self.module = module
        self.name = name
        self.block = "entry"
        self.stack_bytes = 0
        self.slots: dict[str, int] = {}
        self.streams = False
        self.around: tuple[str, str] | None = None
        self._parameters = parameters
        self._linkage = "internal " if internal else ""
        self._attributes = PLAIN if plain else "noinline #0" if apart else "#0"
        self._allocas: list[str] = []
        self._lines: list[str] = []
        self._count = 0
        self._results: dict[str, str] = {}
        self._computed: list[str] = []
        self._arrays: dict[str, str] = {}
        self._loaded: dict[str, dict[str, str]] = {}
        self._sums: dict[str, tuple[Value, int]] = {}
        self._begun: set[str] = set()
        self._ahead: dict[str, int] = {}

    @property
    def target(self) -> Target:
        """The machine that code is generated for."""
        return self.module.target

    def fresh(self, prefix: str = "v") -> str:
        """A new local name, without the sigil."""
        self._count += 1
        return f"{prefix}{self._count}"

    def op(self, text: str) -> str:
        """Append an instruction with a result, unless it is at hand; return the result's name."""
        known = self._results.get(text)
        if known is not None:
            return known
        name = f"%{self.fresh()}"
        self._lines.append(f"  {name} = {text}")
        if not text.startswith(_AGAIN):
            self._results[text] = name
            self._computed.append(text)
        elif not text.startswith(_READING) and "@llvm." not in text:
            self._loaded.clear()
        return name

    def value(self, text: str, dtype: str, lanes: int = 0) -> Value:
        """Append an instruction with a result of a tensorlang dtype."""
        return Value(self.op(text), dtype, lanes)

    def do(self, text: str) -> None:
        """Append an instruction without a result; it may change any memory."""
        self._lines.append(f"  {text}")
        self._loaded.clear()

    def element(self, type_: str, pointer: str, offset: int | str) -> str:
        """The pointer so many elements after one of an array, inside of it or not."""
        made = self.op(f"getelementptr nusw {type_}, ptr {pointer}, i64 {offset}")
        self._arrays[made] = self._arrays.get(pointer, pointer)
        return made

    def read(self, text: str, pointer: str, dtype: str, lanes: int = 0) -> Value:
        """Append a read of an array, unless its result is at hand in this block."""
        at_hand = self._loaded.setdefault(self._arrays.get(pointer, pointer), {})
        if text not in at_hand:
            at_hand[text] = self.op(text)
        return Value(at_hand[text], dtype, lanes)

    def write(self, text: str, pointer: str) -> None:
        """Append a write to an array; arrays do not overlap."""
        self._lines.append(f"  {text}")
        self._loaded.pop(self._arrays.get(pointer, pointer), None)

    def start(self, label: str) -> None:
        """Start a basic block; the one before must have ended. All jumps to it but those of loops are written."""
        self._lines.append(f"{label}:")
        self.block = label
        self._begun.add(label)
        self._loaded.clear()
        kept = self._ahead.pop(label, 0)
        for text in self._computed[kept:]:
            del self._results[text]
        del self._computed[kept:]
        for other, count in self._ahead.items():
            self._ahead[other] = min(count, kept)

    def jump(self, label: str) -> None:
        """End the block with a jump."""
        self.do(f"br label %{label}")
        self._reach(label)

    def branch(self, condition: Value, then: str, orelse: str, metadata: str = "") -> None:
        """End the block with a conditional jump."""
        self.do(f"br i1 {condition.text}, label %{then}, label %{orelse}{metadata}")
        self._reach(then)
        self._reach(orelse)

    def _reach(self, label: str) -> None:
        if label not in self._begun:
            count = len(self._computed)
            self._ahead[label] = min(self._ahead.get(label, count), count)

    def alloca(self, type_: str, size: int) -> str:
        """Reserve `size` bytes of stack in the entry block, aligned to 64; return the pointer."""
        name = f"%{self.fresh('stack')}"
        self._allocas.append(f"  {name} = alloca {type_}, align 64")
        self.stack_bytes += size
        return name

    def call(self, name: str, arguments: list[Value], dtype: str, lanes: int = 0) -> Value:
        """Call an external function or intrinsic of tensorlang values, declaring it if need be."""
        types = ", ".join(a.type for a in arguments)
        result = Value("", dtype, lanes).type
        callee = self.module.declare(name, result, types)
        return self.value(f"call {result} {callee}({', '.join(a.typed for a in arguments)})", dtype, lanes)

    def field(self, base: str, offset: int) -> str:
        """The pointer `offset` bytes after `base`."""
        return base if offset == 0 else self.op(f"getelementptr i8, ptr {base}, i64 {offset}")

    @contextmanager
    def when(self, condition: Value) -> Iterator[None]:
        """Run the instructions appended inside the `with` block only where the scalar condition holds."""
        then, join = self.fresh("then"), self.fresh("join")
        self.branch(condition, then, join)
        self.start(then)
        yield
        self.jump(join)
        self.start(join)

    def sum(self, index: Value) -> tuple[Value, int]:
        """A scalar index as another one and a constant, which were added to make it; else as it is, and 0."""
        return self._sums.get(index.text, (index, 0))

    def plus(self, index: Value, constant: int) -> Value:
        """A scalar index that is no literal, and a constant. Wraps around."""
        start, before = self.sum(index)
        total = (before + constant + (1 << 63)) % (1 << 64) - (1 << 63)
        if total == 0:
            return start
        made = self.value(f"add i64 {start.text}, {total}", INDEX)
        self._sums[made.text] = (start, total)
        return made

    def finish(self, result: str = "void") -> None:
        """Add the function to its module."""
        head = (
            f"define {self._linkage}{result} @{self.name}({', '.join(self._parameters)}) {self._attributes} {{\nentry:"
        )
        self.module.functions.append("\n".join([head, *self._allocas, *self._lines, "}"]))
