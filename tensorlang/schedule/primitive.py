"""What a primitive is: a frozen dataclass with `apply`, its text and JSON forms, and the registry.

Everything else follows from the fields: the trace, replay, argument errors, and the reference page.
"""

from __future__ import annotations

import keyword
import unicodedata
from collections.abc import Callable, Mapping
from dataclasses import MISSING, field, fields
from typing import Any, Protocol, TypeVar

import numpy as np

from tensorlang.errors import BadArgument, RecordError, shown
from tensorlang.ir.expr import Const, Expr, Var
from tensorlang.limits import LARGEST
from tensorlang.schedule.index_text import check_index
from tensorlang.schedule.names import nearest
from tensorlang.schedule.state import ScheduleState

Outputs = tuple[str, ...]
Identifier = str
"""A name that stands in the text of a schedule as it is: a variable of Python, none of those that the text uses."""
IndexText = str
"""An index expression, which stands in the text of a schedule as it is."""
StageName = str
"""A stage, `s[name]` in the text of a schedule; where it comes first, the step is a method of it."""
Arguments = tuple[str, ...]
"""Names that stand in the text of a schedule one by one, not as a list."""
_USED = ("s", "te")
_DEEPEST = 3  # rows of numbers, of which some are decisions
_LONGEST = 1 << 20
_NAMED = 80


class Primitive(Protocol):
    """One step of a schedule. `apply` returns the new state and the names that the step made."""

    __slots__ = ()

    def apply(self, state: ScheduleState) -> tuple[ScheduleState, Outputs]: ...

    def text(self) -> str:
        """The step as a Python call on `s`."""
        return call_text(self)


REGISTRY: dict[str, type[Any]] = {}
P = TypeVar("P", bound=type[Any])


def primitive(key: str) -> Callable[[P], P]:
    """Register a primitive under its name in traces."""

    def register(cls: P) -> P:
        REGISTRY[key] = cls
        return cls

    return register


class Decision(int):
    """An int that a schedule sampled: it remembers its name, so that a trace can hold it open."""

    name: str

    def __new__(cls, name: str, value: int) -> Decision:
        made = super().__new__(cls, value)
        made.name = name
        return made

    def as_expr(self) -> Expr:
        """In an index expression of transform_layout, a decision stands for itself."""
        return Var(f"@{self.name}")

    def __reduce__(self) -> tuple[Any, ...]:
        return Decision, (self.name, int(self))


def value_of(number: int, state: ScheduleState) -> int:
    """The value that a decision has in a state; other ints are themselves. BadArgument when nobody sampled it."""
    if not isinstance(number, Decision):
        return number
    if number.name not in state.decisions:
        raise BadArgument("", f"no decision {number.name!r} was sampled; {nearest(number.name, state.decisions)}")
    return state.decisions[number.name]


def whole(number: Any) -> Any:
    """A NumPy integer or an integer literal of te as an int; anything else as it is, for `positive` to judge."""
    if isinstance(number, np.integer) or (isinstance(number, Const) and isinstance(number.value, int)):
        return int(number) if isinstance(number, np.integer) else number.value
    return number


def positive(number: int, state: ScheduleState, what: str) -> int:
    """Return a factor as an int; BadArgument unless it is a whole number of at least one."""
    if isinstance(number, bool) or not isinstance(number, int):
        why = f"{what} must be a whole number, got {number!r}"
        if isinstance(number, Var):
            why += (
                "; places of loops are proven where they are affine: build a kernel for each value, or make it a knob"
            )
        raise BadArgument("", why)
    value = value_of(number, state)
    if value < 1:
        raise BadArgument("", f"{what} must be at least 1, got {value}")
    return value


def is_identifier(name: str) -> bool:
    """Whether a name can be that of a variable in the text of a schedule."""
    meant = unicodedata.normalize("NFKC", name) if isinstance(name, str) else ""
    return meant.isidentifier() and not keyword.iskeyword(meant) and meant not in _USED


def check_numbers(step: Primitive) -> None:
    """BadArgument for a step with a number that loops of 64 bits cannot compute with."""
    for given in fields(step):  # type: ignore[arg-type]
        for number in _numbers(getattr(step, given.name)):
            if abs(number) >= LARGEST:
                bits = number.bit_length()
                raise BadArgument("", f"{given.name} is a number of {bits} bits, and loops compute with 64")


def _numbers(value: Any) -> list[int]:
    if isinstance(value, tuple):
        return [number for part in value for number in _numbers(part)]
    return [value] if isinstance(value, int) else []


def named() -> Any:
    """A field that is always shown as `name=value`."""
    return field(metadata={"named": True})


def unnamed(default: Any) -> Any:
    """A field that is shown without its name, and left out at the end of a call when it has its default."""
    return field(default=default, metadata={"named": False})


def call_text(step: Primitive) -> str:
    """A step as a call: its fields in order, those with a default as `name=value`, and only where they differ from it.

    The types of fields (StageName, Arguments, IndexText) say how they are written, `named` and `unnamed` what is
    different from this.
    """
    known = fields(step)  # type: ignore[arg-type]
    is_method = bool(known) and known[0].type == "StageName"
    owner = f"s[{getattr(step, known[0].name)!r}]" if is_method else "s"
    places: list[str] = []
    words: list[str] = []
    filled = 0
    for f in known[is_method:]:
        value, is_default = getattr(step, f.name), f.default is not MISSING and getattr(step, f.name) == f.default
        if f.metadata.get("named", f.default is not MISSING):
            words += [] if is_default else [f"{f.name}={_field_text(f.type, value)}"]
        else:
            places += [_field_text(f.type, value)]
            filled = filled if is_default else len(places)
    return f"{owner}.{_key_of(step)}({', '.join([*places[:filled], *words])})"


def _field_text(kind: Any, value: Any) -> str:
    match kind:
        case "StageName":
            return f"s[{value!r}]"
        case "Arguments":
            return ", ".join(map(repr, value))
        case "IndexText" if value.isascii() and value.removeprefix("-").isdigit():
            return str(value)
        case _:
            return argument_text(value)


def argument_text(value: Any) -> str:
    """A field as Python text."""
    match value:
        case Decision():
            return value.name
        case tuple():
            return f"[{', '.join(argument_text(v) for v in value)}]"
        case _:
            return repr(value)


def _encode(value: Any) -> Any:
    match value:
        case Decision():
            return {"decision": value.name, "value": int(value)}
        case tuple():
            return [_encode(v) for v in value]
        case _:
            return value


def _decode(value: Any, depth: int = 0) -> Any:
    """A field from JSON data; RecordError for what no step has: lists in lists in lists, endless texts, odd names."""
    match value:
        case {"decision": str(name), "value": int(number)} if is_identifier(name):
            return Decision(name, number)
        case list() if depth < _DEEPEST:
            return tuple(_decode(v, depth + 1) for v in value)
        case None | int() | float():
            return value
        case str() if len(value) <= _LONGEST:
            try:
                value.encode()
            except UnicodeEncodeError:
                raise RecordError(f"{shown(value)} is no text: it has halves of characters") from None
            return value
        case _:
            raise RecordError(f"no field of a step is {shown(value)}")


def _key_of(step: Primitive) -> str:
    """The name of a step's primitive in traces."""
    return next(key for key, cls in REGISTRY.items() if cls is type(step))


def to_json(step: Primitive) -> dict[str, Any]:
    """A step as JSON data."""
    return {"step": _key_of(step), **{f.name: _encode(getattr(step, f.name)) for f in fields(step)}}  # type: ignore[arg-type]


def from_json(data: Mapping[str, Any]) -> Primitive:
    """Read a step back; RecordError when it is not one of ours."""
    key = data.get("step")
    if not isinstance(key, str) or key not in REGISTRY:
        raise RecordError(f"unknown schedule step {shown(key)}; {nearest(str(key)[:_NAMED], REGISTRY)}")
    cls = REGISTRY[key]
    wanted = {f.name: _HELD.get(f.type, f.type) for f in fields(cls)}
    given = {str(k): _decode(v) for k, v in data.items() if k != "step"}
    optional = {f.name for f in fields(cls) if f.default is not MISSING}
    if not wanted.keys() - optional <= given.keys() <= wanted.keys():
        raise RecordError(f"step {key} needs the fields {sorted(wanted)}, got {shown(sorted(given))}")
    for name, value in given.items():
        if not _FITS[wanted[name]](value):
            raise RecordError(f"field {name} of step {key} is {wanted[name]}, got {shown(value)}")
        if wanted[name] in _INDICES:
            _check_indices(key, (value,) if isinstance(value, str) else value)
    made: Primitive = cls(**given)
    return made


def _check_indices(key: str, texts: tuple[str, ...]) -> None:
    for text in texts:
        try:
            check_index(text)
        except BadArgument as error:
            raise RecordError(f"step {key}: {error.why}") from None


_HELD: dict[Any, str] = {"StageName": "str", "Arguments": "tuple[str, ...]"}
"""Types that only say how a field is written -> what it holds."""
_INDICES = ("IndexText", "tuple[IndexText, ...]")


def _is_int(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_row(value: Any) -> bool:
    return isinstance(value, tuple) and all(_is_int(x) for x in value)


def _are(fits: Callable[[Any], bool], value: Any) -> bool:
    return isinstance(value, tuple) and all(isinstance(x, str) and fits(x) for x in value)


_FITS: dict[Any, Callable[[Any], bool]] = {
    "Identifier": lambda v: isinstance(v, str) and is_identifier(v),
    "IndexText": lambda v: isinstance(v, str),
    "tuple[Identifier, ...]": lambda v: _are(is_identifier, v),
    "tuple[IndexText, ...]": lambda v: isinstance(v, tuple) and all(isinstance(x, str) for x in v),
    "str": lambda v: isinstance(v, str),
    "int": _is_int,
    "bool": lambda v: isinstance(v, bool),
    "int | None": lambda v: v is None or _is_int(v),
    "int | str | None": lambda v: v is None or isinstance(v, str) or _is_int(v),
    "tuple[str, ...]": lambda v: isinstance(v, tuple) and all(isinstance(x, str) for x in v),
    "tuple[int, ...]": _is_row,
    "tuple[tuple[int, ...], ...]": lambda v: isinstance(v, tuple) and all(_is_row(x) for x in v),
}
"""Type of a primitive's field, as written -> whether a decoded JSON value fits it."""
