"""The form of a program: what its text says without the names of tensors, axes and sizes, in an order of its own.

Programs of equal forms are equal up to names and the order of declaration. A form is made of the text, so that a record
that has nothing else is known by it, too. Texts may be anybody's: what is no program is a form of its own.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from functools import cached_property, lru_cache
from itertools import pairwise

from tensorlang import dtypes
from tensorlang.dataclass import dataclass
from tensorlang.ir.stmt import LoopKind
from tensorlang.ir.thread_tags import TAGS

_LONGEST = 1 << 17  # signs of a text that is taken apart
_TOKEN = re.compile(r"(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?|[A-Za-z_][\w.]*|\s+|.")
_NAME = re.compile(r"[A-Za-z_][\w.]*")
_DECLARED = re.compile(r"(?:^|[\s,])([A-Za-z_][\w.]*): (\w+\[[^\]]*)")
_LOOPS = re.compile(r"\b(\w+) in \[|\b(\w+) in range\(|let (\w+) =")
_AXES = re.compile(r"\] \[(.*)")
_AXIS = re.compile(r"(?:^|, )(\w+) < ")
_REDUCER = re.compile(r"\{([^{}]*)\}")
_UPDATED = re.compile(r" updates ([A-Za-z_][\w.]*)")
_WORDS = """accumulating allocate and atomic each else extern fail False for from hybrid if in inf init input let
machine nan not one or panels pragma prefetch python return swizzled True updates where without"""
_RESERVED = {*_WORDS.split(), *dtypes.TABLE, *TAGS, *(kind.value for kind in LoopKind)}
_ROUNDS = 32
"""How often operations of programs with several outputs are told apart by their neighbours."""


@dataclass(frozen=True, eq=False)
class OpForm:
    """An operation: the arrays that it makes and their types, those that it updates in place, and its text in parts.

    Of each part the kind comes first: `own` arrays, arrays `read`, `axis`, `size`, or nothing for what is no name.
    """

    name: str
    arrays: tuple[str, ...]
    types: tuple[str, ...]
    updates: frozenset[str]
    parts: tuple[tuple[str, str], ...]

    def named(self, kind: str) -> tuple[str, ...]:
        """The names of a kind, in order of first use."""
        return tuple(dict.fromkeys(text for its, text in self.parts if its == kind))

    @cached_property
    def reads(self) -> tuple[str, ...]:
        """The arrays that it reads, in order of first use."""
        return self.named("read")

    @cached_property
    def axes(self) -> tuple[str, ...]:
        """Its axes, in order of first use."""
        return self.named("axis")

    @cached_property
    def shape(self) -> str:
        """Its text without names."""
        numbers = {kind: {name: k for k, name in enumerate(self.named(kind))} for kind in _LETTERS}
        return "".join(f"{_LETTERS[kind]}{numbers[kind][text]}" if kind else text for kind, text in self.parts)

    @cached_property
    def is_input(self) -> bool:
        """Whether it is a placeholder."""
        return self.shape.startswith("input ")

    @cached_property
    def is_main(self) -> bool:
        """Whether it does more than compute elements one by one: it reduces, or runs statements in order."""
        return self.shape.startswith("hybrid ") or " in [" in self.shape


_LETTERS = {"own": "o", "read": "r", "axis": "i", "size": "n"}


@dataclass(frozen=True)
class Form:
    """A program without names: `text`, and what was called how there: operations in the order of the form, sizes."""

    text: str
    ops: tuple[OpForm, ...]
    outputs: tuple[str, ...]
    sizes: tuple[str, ...]

    @cached_property
    def key(self) -> str:
        """A stable hash: the workload key of tuning logs."""
        return text_key(self.text)

    @cached_property
    def by_name(self) -> dict[str, OpForm]:
        """Operations by name."""
        return {op.name: op for op in self.ops}

    @cached_property
    def producer(self) -> dict[str, OpForm]:
        """The operation that makes an array."""
        return {array: op for op in self.ops for array in op.arrays}


def text_key(text: str) -> str:
    """The hash of a text that keys are."""
    return hashlib.sha256(text.encode()).hexdigest()[:16]


@lru_cache(maxsize=128)
def form_of(text: str) -> Form:
    """The form of a program, given as text; a text of its own for what is none of ours, or very long."""
    *lines, last = text.splitlines() if 0 < len(text) <= _LONGEST else [""]
    heads = [n for n, line in enumerate(lines) if not line.startswith(" ")]
    blocks = ["\n".join(lines[a:b]) for a, b in pairwise([*heads, len(lines)])]
    known = {name for block in blocks for name, _ in _outputs(block)}
    ops = [_read(block, known) for block in blocks]
    makers = {array: op for op in ops for array in op.arrays}
    named, _, hidden = last.removeprefix("return ").partition(" without ")
    names = {op.name: op for op in ops}
    asked = [names[name] for name in named.split(", ") if name in names]
    whole = all(op.arrays for op in ops) and len(makers) == sum(len(op.arrays) for op in ops)
    if not ops or not whole or len(asked) != len(named.split(", ")):
        return Form(text, (), (), ())
    ordered = _ordered(asked, makers)
    sizes = tuple(dict.fromkeys(size for op in ordered for size in op.named("size")))
    rename = _numbered(ordered) | {("size", name): f"n{k}" for k, name in enumerate(sizes)}
    written = [_written(op, rename) for op in ordered]
    ends = [rename["read", op.arrays[0]].partition(".")[0] for op in _sorted(asked, ordered)]
    kept = sorted(rename.get(("read", name), name) for name in hidden.split(", ") if name)
    without = f" without {', '.join(kept)}" if kept else ""
    return Form(
        "\n".join([*written, f"return {', '.join(ends)}{without}\n"]), ordered, tuple(op.name for op in asked), sizes
    )


def _head(block: str) -> str:
    return block.partition("\n")[0].partition(" = ")[0]


def _outputs(block: str) -> list[tuple[str, str]]:
    """The arrays that an operation makes for others, and their types."""
    return _DECLARED.findall(_head(block))


def _read(block: str, known: set[str]) -> OpForm:
    """An operation in parts."""
    made, own, head = _outputs(block), {name for name, _ in _DECLARED.findall(block)}, _head(block)
    axes = {name for found in _LOOPS.findall(block) for name in found if name}
    axes |= {name for found in _AXES.findall(head) for name in _AXIS.findall(found)}
    axes |= {name for found in _REDUCER.findall(block) for name in _NAME.findall(found)} - _RESERVED
    tokens = ["", "", *_TOKEN.findall(block), ""]
    is_extern, parts = block.startswith("extern "), []
    for number, token in enumerate(tokens[2:-1], 2):
        before, after = "".join(tokens[number - 2 : number]), tokens[number + 1]
        if not _NAME.fullmatch(token) or after in ("(", "{") or (after == "[" and before == ": "):
            kind = ""
        elif token in own and after in ("[", ":"):
            kind = "own"
        elif token in known and (after == "[" or is_extern or before == "updates "):
            kind = "read"
        elif token in axes:
            kind = "axis"
        else:
            kind = "" if is_extern or token in _RESERVED or before in ("in ", "pragma ") else "size"
        parts.append((kind, token))
    names, types = tuple(name for name, _ in made), tuple(its for _, its in made)
    updates = frozenset(_UPDATED.findall(head)) & known
    return OpForm(names[0].removesuffix(".v0") if names else block, names, types, updates, tuple(parts))


def _numbered(ops: Sequence[OpForm]) -> dict[tuple[str, str], str]:
    """Names of arrays in the text of a form, by what they are for an operation, and what they were called."""
    found: dict[tuple[str, str], str] = {}
    for number, op in enumerate(ops):
        several = len(op.arrays) > 1
        for k, array in enumerate(op.arrays):
            found["read", array] = found["own", array] = f"t{number}.v{k}" if several else f"t{number}"
        for k, array in enumerate(name for name in op.named("own") if name not in op.arrays):
            found["own", array] = f"t{number}.a{k}"
    return found


def _written(op: OpForm, rename: Mapping[tuple[str, str], str]) -> str:
    axes = {name: f"i{k}" for k, name in enumerate(op.axes)}
    return "".join(axes[text] if kind == "axis" else rename.get((kind, text), text) for kind, text in op.parts)


def _ordered(outputs: Sequence[OpForm], makers: Mapping[str, OpForm]) -> tuple[OpForm, ...]:
    """Producers first, each where the outputs need it first; outputs in an order that their names do not tell."""
    readers: dict[str, list[OpForm]] = {}
    for op in makers.values():
        for array in op.reads:
            readers.setdefault(array, []).append(op)
    told_apart = len(outputs) > 1 or any(op.updates for op in makers.values())
    colours = _colours(list(dict.fromkeys(makers.values())), makers) if told_apart else {outputs[0]: ""}
    found: dict[OpForm, None] = {}
    waiting = [(op, False) for op in sorted(outputs, key=lambda op: colours[op], reverse=True)]
    begun: set[OpForm] = set()
    while waiting:
        op, done = waiting.pop()
        if done:
            found.setdefault(op)
        elif op not in begun:
            begun.add(op)
            before = [reader for array in op.updates for reader in readers[array] if reader is not op]
            needed = [*(makers[array] for array in op.reads), *sorted(before, key=lambda r: colours[r])]
            waiting += [(op, True), *((other, False) for other in reversed(needed) if other is not op)]
    return tuple(found)


def _sorted(outputs: Sequence[OpForm], ordered: Sequence[OpForm]) -> list[OpForm]:
    place = {op: number for number, op in enumerate(ordered)}
    return sorted(dict.fromkeys(outputs), key=lambda op: place[op])


def _colours(ops: Sequence[OpForm], makers: Mapping[str, OpForm]) -> dict[OpForm, str]:
    """A hash of each operation that tells where it stands among others, whatever they are called."""
    colours = {op: op.shape for op in ops}
    for _ in range(_ROUNDS):
        notes: dict[OpForm, list[str]] = {op: [] for op in ops}
        for op in ops:
            for place, array in enumerate(op.reads):
                maker = makers[array]
                notes[maker].append(f"{place} {maker.arrays.index(array)} {colours[op]}")
        made = {
            op: text_key("\n".join([colours[op], *(colours[makers[a]] for a in op.reads), "", *sorted(notes[op])]))
            for op in ops
        }
        settled = len(set(made.values())) == len(set(colours.values()))
        colours = made
        if settled:
            break
    return colours


def matched(record: Form, program: Form, end: str) -> dict[str, str] | None:
    """The operations of a program that compute `end` as a record's program computes its one output; None if none do.

    By name of the record's operation. Its inputs may be anything of their type there.
    """
    pairs: dict[str, str] = {}
    if len(record.outputs) != 1 or end not in program.by_name:
        return None
    waiting = [(record.by_name[record.outputs[0]], program.by_name[end])]
    while waiting:
        theirs, ours = waiting.pop()
        if pairs.setdefault(theirs.name, ours.name) != ours.name:
            return None
        alike = theirs.types == ours.types if theirs.is_input else theirs.shape == ours.shape
        if not alike or theirs.named("size"):
            return None
        for a, b in () if theirs.is_input else zip(theirs.reads, ours.reads, strict=True):
            made, here = record.producer[a], program.producer[b]
            if made.arrays.index(a) != here.arrays.index(b):
                return None
            if pairs.get(made.name) != here.name:
                waiting.append((made, here))
    return pairs if len(set(pairs.values())) == len(pairs) else None
