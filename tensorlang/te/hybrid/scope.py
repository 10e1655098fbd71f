"""What the names of a script mean where they stand: arrays, scalars, values, and what the function captured."""

from __future__ import annotations

import ast
import builtins
from dataclasses import field
from typing import Any, TypeAlias

import numpy as np

from tensorlang import dtypes
from tensorlang.dataclass import dataclass
from tensorlang.ir.expr import Buffer, Const, Expr, Load, cast, const
from tensorlang.te.hybrid.source import Source
from tensorlang.te.hybrid.values import Value, Weak, weakened
from tensorlang.te.hybrid.vocabulary import BARE, Word, meaning
from tensorlang.te.operation import Read, Tensor
from tensorlang.te.program import unique

MISSING = object()
Place: TypeAlias = tuple[int, int]  # line and column


@dataclass(frozen=True, slots=True)
class Array:
    """An array by its name in the script: a tensor that is only read, or a buffer of the operation."""

    name: str
    storage: Tensor | Buffer

    @property
    def shape(self) -> tuple[Value, ...]:
        """The extents as values: a known one is a Python integer."""
        return tuple(int(e.value) if isinstance(e, Const) else Weak(cast(e, "int64")) for e in self.storage.shape)

    @property
    def dtype(self) -> str:
        return self.storage.dtype

    def element(self, index: tuple[Expr, ...]) -> Expr:
        """The element at an index, as an expression."""
        return Read(self.storage, index) if isinstance(self.storage, Tensor) else Load(self.storage, index)


@dataclass(frozen=True, slots=True)
class Scalar:
    """A local scalar. `weak`: it only ever holds Python's numbers; `literal`: it begins as one, at `declared`."""

    buffer: Buffer
    weak: bool
    literal: bool
    declared: Place

    def read(self) -> Value:
        """Its value here."""
        load = Load(self.buffer, ())
        return weakened(load) if self.weak else load


@dataclass(frozen=True, slots=True)
class Constant:
    """A name for a value that reads no array: it stands for its expression. `what` says which kind of name it is."""

    value: Value
    what: str = ""


Binding = Array | Scalar | Constant


@dataclass(slots=True)
class Frame:
    """A block of the script: its statements, the names it introduced, and the arrays to allocate around it."""

    what: str
    statements: list[ast.stmt]
    names: dict[str, Binding] = field(default_factory=dict)
    arrays: list[Buffer] = field(default_factory=list)

    def assignments(self, name: str) -> int:
        """How often the block assigns a name, its inner blocks included."""
        nodes = (n for s in self.statements for n in ast.walk(s) if isinstance(n, ast.Name))
        return sum(n.id == name and isinstance(n.ctx, ast.Store) for n in nodes)


class Captured:
    """The names that a function takes from around it, and the words of the language."""

    def __init__(self, source: Source) -> None:
        function = source.function
        self._own = source.assigned
        cells = zip(function.__code__.co_freevars, function.__closure__ or (), strict=True)
        self.closure = {name: _content(cell) for name, cell in cells}
        self.globals = function.__globals__

    def find(self, node: ast.expr) -> Any:
        """The object that a name, or an attribute of one, stands for; MISSING for the script's own names."""
        match node:
            case ast.Name(id=name) if name not in self._own:
                for names in (self.closure, self.globals, BARE, vars(builtins)):
                    if name in names:
                        return names[name]
            case ast.Attribute():
                base = self.find(node.value)
                return MISSING if base is MISSING else getattr(base, node.attr, MISSING)
        return MISSING

    def word(self, node: ast.expr) -> Word | None:
        """The word of the language that an expression stands for."""
        found = self.find(node)
        return found if isinstance(found, Word) else meaning(found)


def _content(cell: Any) -> Any:
    try:
        return cell.cell_contents
    except ValueError:
        return MISSING


class Scope:
    """The names that mean something at one point of the script."""

    def __init__(self, source: Source, captured: Captured, taken: set[str]) -> None:
        self.source = source
        self.captured = captured
        self.frames: list[Frame] = []
        self._gone: dict[str, str] = {}
        self._taken = set(taken)

    def fresh(self, name: str) -> str:
        """A name for a loop or an array that no other has."""
        made = unique(name, self._taken)
        self._taken.add(made)
        return made

    def enter(self, frame: Frame) -> None:
        """Begin a block."""
        self.frames.append(frame)
        for name in frame.names:
            self._gone.pop(name, None)

    def leave(self) -> None:
        """End a block: its names mean nothing any more."""
        frame = self.frames.pop()
        self._gone |= dict.fromkeys(frame.names, frame.what)

    def bind(self, name: str, binding: Binding) -> None:
        """Give a name its meaning in the current block."""
        self.frames[-1].names[name] = binding
        self._gone.pop(name, None)

    def live(self, name: str) -> Binding | None:
        """What a name of the script means here."""
        return next((f.names[name] for f in reversed(self.frames) if name in f.names), None)

    def find(self, node: ast.Name) -> Binding:
        """What a name means here, captured ones included; an error that says why it means nothing."""
        name, fault = node.id, self.source.fault
        found = self.live(name)
        if found is not None:
            return found
        if name in self._gone:
            ended = self._gone[name]
            raise fault(node, f"{name} ends with {ended}; assign it before that block to use it after")
        if name in self.source.assigned:
            raise fault(node, f"{name} is used before it is assigned; give it a value in this block or one around it")
        return Constant(self.constant(node, self.captured.find(node)), "a captured constant")

    def constant(self, node: ast.expr, thing: Any) -> Value:
        """An object from outside the script as a value: numbers, text, tuples of them."""
        fault, name = self.source.fault, ast.unparse(node)
        match thing:
            case np.generic():
                return const(thing.item(), dtypes.canonical(thing.dtype))
            case bool() | int() | float() | str() | None:
                return thing
            case tuple() | list():
                return tuple(self.constant(node, part) for part in thing)
        if thing is MISSING:
            known = f"the script's own names, and words such as {', '.join(list(BARE)[:9])}"
            raise fault(node, f"{name} means nothing in a script; known are {known}")
        if isinstance(thing, Tensor | Expr | np.ndarray):
            kind = (
                "a tensor" if isinstance(thing, Tensor) else "an array" if isinstance(thing, np.ndarray) else "a size"
            )
            raise fault(node, f"{name} is {kind} from outside the script; pass it as an argument")
        if isinstance(thing, Word) or meaning(thing) is not None:
            raise fault(node, f"{name} is a function; call it, as {name}(...)")
        raise fault(node, f"{name} is {_described(thing)}; a script takes numbers and tuples of numbers from outside")


def _described(thing: Any) -> str:
    return f"the {type(thing).__name__} {getattr(thing, '__name__', thing)!r}"
