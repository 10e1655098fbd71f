"""What is in sight where a statement stands, and the text under construction."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field, replace

from tensorlang.dataclass import dataclass
from tensorlang.errors import InternalError
from tensorlang.ir.expr import Buffer
from tensorlang.ir.fragment import Fragment
from tensorlang.target.c_source.code import INT32, Code, Interval, within
from tensorlang.target.c_source.dialect import Dialect, Space
from tensorlang.target.c_source.names import identifier


@dataclass(frozen=True, slots=True)
class Storage:
    """An array in C: its identifier, where it lies, its buffer, and the fragment of one in registers of a warp."""

    name: str
    buffer: Buffer
    space: Space
    fragment: Fragment | None = None


@dataclass(frozen=True, slots=True)
class Counters:
    """Barriers in shared memory, `count` of them from `place` on, and a thread's counts of groups of bulk copies.

    `begun` counts those that were closed, `seen` those that the thread has waited for.
    """

    place: str
    count: int
    begun: str
    seen: str


class Text:
    """The lines of one kernel, and what they need in front of them.

    `calls` are device functions by key, in the order of their first use, `sources` definitions that machine code brings
    along; `scratch_bytes` is shared memory for reductions between threads.
    """

    def __init__(self, dialect: Dialect, messages: list[str], indices: str) -> None:
        self.dialect = dialect
        self.messages = messages
        self.indices = indices
        self.lines: list[str] = []
        self.calls: dict[str, str] = {}
        self.sources: dict[str, None] = {}
        self.scratch_bytes = 0
        self.uses_fault = False
        self.wide_accesses = False
        self.names: set[str] = set()

    def call(self, name: str, definition: str = "") -> str:
        """The name of a device function, which is needed from now on; `definition` if the prelude has none."""
        self.calls.setdefault(name, definition)
        return name

    def message(self, text: str) -> int:
        """The number of a fault, from 1."""
        self.uses_fault = True
        if text not in self.messages:
            self.messages.append(text)
        return self.messages.index(text) + 1


@dataclass(frozen=True, slots=True)
class Scope:
    """Variables and arrays by name, and the depth of the block. `block` are the extents of the block of threads.

    `factors` are numbers that divide variables. `unrolled`: how many copies of the code around are asked for.
    `writes_what_it_reads`: an array in global memory. `fenced`: what reads shared memory past the threads' own accesses
    has to see these at barriers. `maps` are the tensor maps of bulk copies, by the array in global and that in shared
    memory; `counters` those of their groups by the name of the barriers.
    """

    text: Text
    block: tuple[int, int, int]
    variables: Mapping[str, Code] = field(default_factory=dict)
    factors: Mapping[str, int] = field(default_factory=dict)
    buffers: Mapping[str, Storage] = field(default_factory=dict)
    indent: int = 1
    unrolled: int = 1
    writes_what_it_reads: bool = False
    fenced: bool = False
    maps: Mapping[tuple[str, str], str] = field(default_factory=dict)
    counters: Mapping[str, Counters] = field(default_factory=dict)

    @property
    def dialect(self) -> Dialect:
        """The dialect of the text."""
        return self.text.dialect

    def line(self, code: str) -> None:
        """Append a line at this depth."""
        self.text.lines.append("    " * self.indent + code)

    def pragma(self, code: str) -> None:
        """Append a line for the loop that follows."""
        self.text.lines.append("    " * self.indent + f"#pragma {code}")

    @property
    def deeper(self) -> Scope:
        """The scope of a block inside."""
        return replace(self, indent=self.indent + 1)

    def bind(self, name: str, code: Code, factor: int = 1) -> Scope:
        """The scope in which a name of a variable means a piece of C, a multiple of `factor`."""
        variables = {**self.variables, name: code}
        return replace(self, variables=variables, factors={**self.factors, name: factor})

    def fresh(self, wanted: str, kept: bool = True) -> str:
        """An identifier that means nothing yet; nothing else in the kernel either, if it is `kept`."""
        made = identifier(wanted, {*self.text.names, *(code.text for code in self.variables.values())})
        if kept:
            self.text.names.add(made)
        return made

    def declare(self, buffer: Buffer, storage: Storage) -> Scope:
        """The scope with one more array."""
        return replace(self, buffers={**self.buffers, buffer.name: storage})

    def storage(self, buffer: Buffer) -> Storage:
        """The array of a buffer."""
        try:
            return self.buffers[buffer.name]
        except KeyError:
            raise InternalError(f"a device kernel uses the array {buffer.name}, which is not declared") from None

    def index_code(self, name: str, interval: Interval, unknown: bool = False) -> Code:
        """A variable of index arithmetic with a C type of its own: `int` where its values fit."""
        if self.text.indices == "int32":
            interval = max(interval[0], INT32[0]), min(interval[1], INT32[1])
        return Code(name, "int64", interval=interval, narrow=within(interval, INT32), unknown=unknown)

    def intervals(self) -> dict[str, tuple[int, int]]:
        """The values of index variables by name, for the simplifier."""
        return {n: c.interval for n, c in self.variables.items() if c.dtype == "int64" and not c.unknown}
