"""Programs and what they are made of as JSON data, and back: for files that outlive this process.

Data are a list of nodes, each after those that it holds: the name of its class, then its fields in order. Only the
classes of `_CLASSES` are made of them, so data from anybody make a program or an error, and run no code.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields
from enum import Enum
from typing import Any

from tensorlang.errors import RecordError
from tensorlang.ir import expr, stmt
from tensorlang.te.axis import Axis, AxisKind
from tensorlang.te.operation import ComputeOp, HybridOp, Member, PlaceholderOp, Reduce
from tensorlang.te.program import Program
from tensorlang.te.reducer import Reducer

_EXPRESSIONS = (
    expr.Const,
    expr.Var,
    expr.Unary,
    expr.Binary,
    expr.Cast,
    expr.Select,
    expr.Call,
    expr.Load,
    expr.Buffer,
)
_STATEMENTS = (stmt.For, stmt.Store, stmt.AtomicUpdate, stmt.If, stmt.Seq, stmt.Allocate, stmt.Let, stmt.Fail)
_OPERATIONS = (Program, ComputeOp, HybridOp, Member, PlaceholderOp, Reduce, Reducer, Axis)
_CLASSES: dict[str, type[Any]] = {c.__name__: c for c in (*_EXPRESSIONS, *_STATEMENTS, *_OPERATIONS)}
_ENUMS: dict[str, type[Enum]] = {e.__name__: e for e in (AxisKind, stmt.LoopKind)}
_LEFT_OUT = frozenset({"location", "owner", "runs"})
"""Fields that say nothing of what is computed."""
_MOST = 1_000_000


class NotData(Exception):
    """Something has no form as data: what it is."""


def to_data(value: Any) -> list[list[Any]]:
    """A program, an expression or a tuple of those as data; NotData for what is code, such as Python functions."""
    nodes: list[list[Any]] = []
    places: dict[int, int] = {}
    waiting: list[tuple[Any, bool]] = [((value,), False)]
    while waiting:
        here, ready = waiting.pop()
        if id(here) in places:
            continue
        if not ready:
            waiting.append((here, True))
            waiting += [(inner, False) for inner in _inside(here)]
            continue
        places[id(here)] = len(nodes)
        held = [here] if isinstance(here, tuple) else [getattr(here, name) for name in _names(type(here))]
        nodes.append([type(here).__name__, *(_written(v, places) for v in held)])
    return nodes


def from_data(data: Any) -> Any:
    """What `to_data` was given; RecordError for data that are none."""
    if not isinstance(data, list) or not 0 < len(data) <= _MOST:
        raise RecordError(f"expected a list of up to {_MOST} nodes of a program, got {type(data).__name__}")
    made: list[Any] = []
    for node in data:
        try:
            name, *values = node
            held = [_read(v, made) for v in values]
            if name == "tuple":
                made.append(held[0])
            else:
                cls = _CLASSES[name]
                made.append(cls(**dict(zip(_names(cls), held, strict=True))))
        except RecordError:
            raise
        except Exception as error:
            raise RecordError(f"no node of a program: {str(node)[:80]} ({type(error).__name__})") from error
    (whole,) = made[-1] if isinstance(made[-1], tuple) and len(made[-1]) == 1 else (made[-1],)
    return whole


def _names(cls: type[Any]) -> tuple[str, ...]:
    """The fields of a class that are written, in order."""
    if cls.__name__ not in _CLASSES:
        raise NotData(f"a {cls.__name__}")
    return tuple(f.name for f in fields(cls) if f.init and f.name not in _LEFT_OUT)


def _inside(value: Any) -> Iterator[Any]:
    """The objects that a value holds, and that are nodes of their own."""
    held: Sequence[Any] = value if isinstance(value, tuple) else [getattr(value, name) for name in _names(type(value))]
    for inner in held:
        yield from _nodes(inner)


def _nodes(value: Any) -> Iterator[Any]:
    match value:
        case None | bool() | int() | float() | str() | Enum():
            return
        case tuple() | list() | frozenset():
            for inner in value:
                yield from _nodes(inner)
        case Mapping():
            for inner in value.values():
                yield from _nodes(inner)
        case _:
            yield value


def _written(value: Any, places: Mapping[int, int]) -> Any:
    match value:
        case Enum():
            return {"enum": [type(value).__name__, value.value]}
        case None | bool() | int() | str():
            return value
        case float():
            return {"float": value.hex()}
        case tuple() | list():
            return [_written(v, places) for v in value]
        case frozenset():
            return {"set": sorted(_written(v, places) for v in value)}
        case Mapping():
            return {"map": [[str(k), _written(v, places)] for k, v in value.items()]}
        case _:
            return {"at": places[id(value)]}


def _read(value: Any, made: Sequence[Any]) -> Any:
    match value:
        case list():
            return tuple(_read(v, made) for v in value)
        case {"at": int(place)} if 0 <= place < len(made):
            return made[place]
        case {"float": str(text)}:
            return float.fromhex(text)
        case {"enum": [str(name), word]}:
            return _ENUMS[name](word)
        case {"set": list(values)}:
            return frozenset(_read(v, made) for v in values)
        case {"map": list(pairs)}:
            return {str(k): _read(v, made) for k, v in pairs}
        case None | bool() | int() | str():
            return value
    raise RecordError(f"no value of a program: {str(value)[:80]}")
