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
from typing import Any

from tensorlang.errors import DefinitionError, shown
from tensorlang.ir import expr, stmt
from tensorlang.location import caller
from tensorlang.te.axis import Axis, AxisKind
from tensorlang.te.operation import ComputeOp, ExternOp, HybridOp, Member, PlaceholderOp, Read, Reduce, Tensor
from tensorlang.te.reducer import Reducer

VERSION = 1
_CLASSES: Mapping[str, type] = {
    cls.__name__: cls
    for cls in (
        *(expr.Const, expr.Var, expr.Unary, expr.Binary, expr.Cast, expr.Select, expr.Call, expr.Buffer, expr.Load),
        *(stmt.For, stmt.Store, stmt.If, stmt.Seq, stmt.Allocate, stmt.Let),
        *(Axis, Reducer, Reduce, Read, Tensor, PlaceholderOp, ComputeOp, HybridOp, Member),
    )
}
"""What a file may be made of."""
_ENUMS: Mapping[str, type[Enum]] = {cls.__name__: cls for cls in (AxisKind, stmt.LoopKind)}
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
    held: list[Any] = []  # an address is somebody's as long as that is there
    waiting = [(node, False)]
    while waiting:
        found: Any
        found, told = waiting.pop()
        if isinstance(found, list | tuple):
            waiting += [(one, False) for one in reversed(found)]
        elif isinstance(found, Mapping):
            waiting += [(one, False) for one in found.values()]
        elif is_dataclass(found) and id(found) not in numbers:
            _check(found)
            if told:
                nodes.append(
                    [type(found).__name__, {n: _written(getattr(found, n), numbers) for n in _names(found.__class__)}]
                )
                numbers[id(found)] = len(nodes) - 1
                held.append(found)
            else:
                waiting += [(found, True), *((getattr(found, n), False) for n in reversed(_names(found.__class__)))]
    body = {"nodes": nodes, "root": _written(node, numbers)}
    return json.dumps({"tensorlang": VERSION, "digest": _digest(body), **body})


def load_json(json_str: str) -> Any:
    """Return what `save_json` was given, made anew; DefinitionError for other text, versions, and what was changed."""
    try:
        data = json.loads(json_str)
    except (TypeError, ValueError, RecursionError) as error:
        raise _wrong(str(error)) from None
    if not isinstance(data, dict) or data.get("tensorlang") != VERSION:
        version = data.get("tensorlang") if isinstance(data, dict) else None
        raise _wrong(f"its version is {version}, and this is {VERSION}")
    body = {"nodes": data.get("nodes"), "root": data.get("root")}
    if data.get("digest") != _digest(body) or not isinstance(body["nodes"], list):
        raise _wrong("it was changed since it was written")
    made: list[Any] = []
    try:
        for name, given in body["nodes"]:
            cls = _CLASSES[name]
            made.append(cls(**{str(n): _read(value, made) for n, value in given.items() if n in _names(cls)}))
        return _read(body["root"], made)
    except (KeyError, IndexError, TypeError, ValueError, AttributeError) as error:
        raise _wrong(f"{type(error).__name__}: {error}") from None


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
            return {"map": [[str(key), _written(one, numbers)] for key, one in value.items()]}
    if id(value) not in numbers:
        raise DefinitionError(f"save_json takes tensors and expressions, got {shown(value)}", caller())
    return {"node": numbers[id(value)]}


def _read(value: Any, made: list[Any]) -> Any:
    if not isinstance(value, dict):
        return value
    ((kind, held),) = value.items()
    match kind:
        case "node":
            return made[held if held >= 0 else len(made)]
        case "float":
            return float(held)
        case "enum":
            return _ENUMS[held[0]](held[1])
        case "list" | "tuple":
            parts = [_read(one, made) for one in held]
            return parts if kind == "list" else tuple(parts)
        case "map":
            return {key: _read(one, made) for key, one in held}
    raise ValueError(f"{kind} is no kind of value")
