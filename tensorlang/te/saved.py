"""Tensors, programs and expressions as JSON, and back: data alone, in a format with a version.

Each node is written once, after those that it refers to by their numbers, so what is shared stays so.
"""

from __future__ import annotations

import hashlib
import inspect
import json
import math
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from enum import Enum
from functools import cache
from typing import Any, get_args, get_origin, get_type_hints

from tensorlang.errors import DefinitionError, shown
from tensorlang.ir import expr, stmt
from tensorlang.location import caller
from tensorlang.te.axis import Axis, AxisKind
from tensorlang.te.operation import ComputeOp, ExternOp, HybridOp, Member, PlaceholderOp, Read, Reduce, Tensor
from tensorlang.te.reducer import Reducer
from tensorlang.te.wellformed import check_node

VERSION = 1
_CLASSES: Mapping[str, type] = {
    cls.__name__: cls
    for cls in (
        *(expr.Const, expr.Var, expr.Unary, expr.Binary, expr.Cast, expr.Select, expr.Call, expr.Buffer, expr.Load),
        *(stmt.For, stmt.Store, stmt.If, stmt.Seq, stmt.Allocate),
        *(Axis, Reducer, Reduce, Read, Tensor, PlaceholderOp, ComputeOp, HybridOp, Member),
    )
}
"""What a file may be made of."""
_ENUMS: Mapping[str, type[Enum]] = {cls.__name__: cls for cls in (AxisKind, stmt.LoopKind)}
_DEEPEST = 32
"""How deep lists, tuples and mappings may be in each other."""
_LEFT_OUT = ("location", "owner")
"""Where something was written, and who holds it, is not part of it."""


def save_json(node: Any) -> str:
    """Return a tensor, an expression, or a list of such, with all that they are made from, as JSON.

    DefinitionError for what holds Python's functions, as te.extern does, and for other objects.

        >>> from tensorlang import ir, te
        >>> A = te.placeholder((4,), name="A")
        >>> ir.load_json(ir.save_json(te.compute((4,), lambda i: A[i] + 1, name="B")))
        Tensor(shape=[4], dtype=float32, name=B)
    """
    nodes: list[Any] = []
    numbers: dict[int, int] = {}
    begun: dict[int, Any] = {}  # an address is somebody's as long as that is there
    waiting = [(node, False, 0)]
    while waiting:
        found: Any
        found, told, depth = waiting.pop()
        if isinstance(found, list | tuple | Mapping):
            if depth == _DEEPEST:
                raise DefinitionError(
                    f"save_json takes lists {_DEEPEST} deep; these are deeper, or in a ring", caller()
                )
            parts = found.values() if isinstance(found, Mapping) else found
            waiting += [(one, False, depth + 1) for one in reversed(tuple(parts))]
        elif is_dataclass(found) and id(found) not in numbers:
            _check(found)
            names = _names(found.__class__)
            if told:
                nodes.append([type(found).__name__, {n: _written(getattr(found, n), numbers) for n in names}])
                numbers[id(found)] = len(nodes) - 1
            elif id(found) in begun:
                raise DefinitionError(f"save_json takes no data in a ring, and {shown(found)} holds itself", caller())
            else:
                begun[id(found)] = found
                waiting += [(found, True, 0), *((getattr(found, n), False, 0) for n in reversed(names))]
    body = {"nodes": nodes, "root": _written(node, numbers)}
    return json.dumps({"tensorlang": VERSION, "digest": _digest(body), **body})


def load_json(json_str: str) -> Any:
    """Return what `save_json` was given, made anew; DefinitionError for other text, versions, and what was changed.

    The text may be anybody's: what is made keeps the rules that tensors and expressions are declared by.
    """
    try:
        data = json.loads(json_str)
        if not isinstance(data, dict) or data.get("tensorlang") != VERSION:
            version = data.get("tensorlang") if isinstance(data, dict) else None
            raise ValueError(f"its version is {version}, and this is {VERSION}")
        body = {"nodes": data.get("nodes"), "root": data.get("root")}
        if data.get("digest") != _digest(body) or not isinstance(body["nodes"], list):
            raise ValueError("it was changed since it was written")
        made: list[Any] = []
        for name, given in body["nodes"]:
            made.append(_made(_CLASSES[name], given, made))
        return _read(body["root"], made)
    except DefinitionError as error:
        raise _wrong(error.message) from None
    except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError, RecursionError) as error:
        raise _wrong(f"{type(error).__name__}: {error}") from None


def _made(cls: type, given: Any, made: list[Any]) -> Any:
    values = {str(n): _read(value, made) for n, value in given.items()}
    for name, value in values.items():
        if not _fits(value, _hints(cls)[name]):
            raise TypeError(f"{name} of {cls.__name__} is {shown(value)}")
    node = cls(**values)
    check_node(node)
    return node


@cache
def _hints(cls: type) -> Mapping[str, Any]:
    hints = get_type_hints(cls)
    return {name: hints[name] for name in _names(cls)}


def _fits(value: Any, hint: Any) -> bool:
    """Whether a value is of an annotated type; True and False are no integers."""
    parts = get_args(hint)
    match get_origin(hint):
        case None:
            return hint is Any or (type(value) is int if hint is int else isinstance(value, hint))
        case origin if origin is tuple:
            several = isinstance(value, tuple) and len(parts) == 2 and parts[1] is Ellipsis
            wanted = (parts[0],) * len(value) if several else parts
            return isinstance(value, tuple) and len(value) == len(wanted) and all(map(_fits, value, wanted))
        case origin if origin is Mapping:
            return isinstance(value, dict) and all(_fits(k, parts[0]) and _fits(v, parts[1]) for k, v in value.items())
    return any(_fits(value, part) for part in parts)


def _wrong(why: str) -> DefinitionError:
    return DefinitionError(f"this is no text of tensorlang's save_json: {why}", caller())


def _digest(body: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()[:16]


def _check(found: Any) -> None:
    if isinstance(found, ExternOp):
        raise DefinitionError(f"{found.name} calls a Python function, which is no data; save its inputs", caller())
    if type(found) is not _CLASSES.get(type(found).__name__):
        raise DefinitionError(f"save_json takes tensors and expressions, got {shown(found)}", caller())


@cache
def _names(cls: Any) -> tuple[str, ...]:
    """The fields that make an object of a class."""
    taken = inspect.signature(cls).parameters
    return tuple(f.name for f in fields(cls) if f.name in taken and f.name not in _LEFT_OUT)


def _written(value: Any, numbers: Mapping[int, int]) -> Any:
    match value:
        case None | bool() | int() | str():
            return value
        case float():
            return value if math.isfinite(value) else {"float": repr(value)}
        case Enum():
            return {"enum": [type(value).__name__, value.value]}
        case list() | tuple():
            return {"list" if isinstance(value, list) else "tuple": [_written(one, numbers) for one in value]}
        case Mapping():
            if not all(isinstance(key, str) for key in value):
                raise DefinitionError(f"save_json takes mappings from text, got keys {shown(list(value))}", caller())
            return {"map": [[key, _written(one, numbers)] for key, one in value.items()]}
    if id(value) not in numbers:
        raise DefinitionError(f"save_json takes tensors and expressions, got {shown(value)}", caller())
    return {"node": numbers[id(value)]}


def _read(value: Any, made: list[Any], depth: int = 0) -> Any:
    if not isinstance(value, dict):
        if isinstance(value, list):
            raise TypeError(f"{shown(value)} has no kind")
        return value
    ((kind, held),) = value.items()
    if kind in ("list", "tuple", "map") and depth == _DEEPEST:
        raise ValueError(f"lists are more than {_DEEPEST} deep")
    match kind:
        case "node":
            return made[held if held >= 0 else len(made)]
        case "float":
            return float(held)
        case "enum":
            return _ENUMS[held[0]](held[1])
        case "list" | "tuple":
            parts = [_read(one, made, depth + 1) for one in held]
            return parts if kind == "list" else tuple(parts)
        case "map":
            if not all(isinstance(key, str) for key, _ in held):
                raise TypeError("a key is no text")
            return {key: _read(one, made, depth + 1) for key, one in held}
    raise ValueError(f"{kind} is no kind of value")
