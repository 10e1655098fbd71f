"""What becomes of a record on its way through other hands: fields gone, of other types, huge, deep, torn."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from copy import deepcopy
from random import Random
from typing import Any

_NUMBERS = (0, -1, 1, 2, 3, 7, 64, 10**6, 2**31, 2**32 + 1, 2**62, 2**63, -(2**63), 10**30, 10**400)
_VALUES: tuple[Any, ...] = (
    *(None, True, False, 1.5, -0.0, 1e308, float("nan"), float("inf"), "", "x", "i0", "T0", "A0", [], {}, [[]], [None]),
    *({"": 0}, "\x00", "\x1b[2J\n", "é" * 50, "\ud800", "a" * 10_000, "0 // 0", "i0 % 0", "__import__('os')", "1e9"),
    *("i0_o + 10**18", "((((((((i0))))))))", "9" * 5000, "(" * 300),
)
_Place = tuple[Any, Any]
"""A list or an object, and an index or a key of it."""


def damaged(record: dict[str, Any], rng: Random) -> bytes:
    """The line of a record after one to three damages; most are to the steps of its trace."""
    data = deepcopy(record)
    for _ in range(rng.choice((1, 1, 2, 3))):
        steps = data.get("trace")
        inside = {"trace": steps} if rng.random() < 0.8 and steps else data
        places = list(_places(inside))
        if places:
            where, key = rng.choice(places)
            if where is inside:
                where = data
            rng.choice(_DAMAGES)(where, key, rng)
    return json.dumps(data, ensure_ascii=rng.random() < 0.8).encode(errors="surrogatepass")


def torn(line: bytes, rng: Random) -> bytes:
    """A line cut off, with a byte changed, or twice without a newline."""
    at = rng.randrange(len(line))
    return rng.choice((line[:at], line[:at] + bytes([rng.randrange(256)]) + line[at + 1 :], line + line))


def _places(data: Any) -> Iterator[_Place]:
    """All elements of nested data."""
    items = data.items() if isinstance(data, dict) else enumerate(data) if isinstance(data, list) else ()
    for key, value in list(items):
        yield data, key
        yield from _places(value)


def _drop(where: Any, key: Any, rng: Random) -> None:
    del where[key]


def _number(where: Any, key: Any, rng: Random) -> None:
    where[key] = rng.choice(_NUMBERS)


def _value(where: Any, key: Any, rng: Random) -> None:
    where[key] = deepcopy(rng.choice(_VALUES))  # lists among them are changed later


def _nest(where: Any, key: Any, rng: Random) -> None:
    for _ in range(rng.choice((1, 1, 2, 50, 100))):  # as deep as Python's own recursion can take three times
        where[key] = [where[key]]


def _other(where: Any, key: Any, rng: Random) -> None:
    """The value of another element of the same list or object."""
    keys = list(where) if isinstance(where, dict) else range(len(where))
    where[key] = deepcopy(where[rng.choice(keys)])


def _exchange(where: Any, key: Any, rng: Random) -> None:
    keys = list(where) if isinstance(where, dict) else range(len(where))
    other = rng.choice(keys)
    where[key], where[other] = where[other], where[key]


def _again(where: Any, key: Any, rng: Random) -> None:
    """An element once more."""
    if isinstance(where, list):
        where.insert(key, deepcopy(where[key]))
    else:
        where[f"{key}_"] = deepcopy(where[key])


def _near(where: Any, key: Any, rng: Random) -> None:
    """Something that may well be legal: a number changed a little, a text with another axis."""
    match where[key]:
        case bool(value):
            where[key] = not value
        case int(value):
            where[key] = value + rng.choice((-1, 1, 2))
        case str(value) if value:
            where[key] = rng.choice((value + "_o", value + "_i", value[:-1], value.replace("0", "1"), value + ".local"))
        case _:
            _value(where, key, rng)


_DAMAGES: tuple[Callable[[Any, Any, Random], None], ...] = (
    *(_drop, _number, _number, _value, _value, _nest, _other, _exchange, _exchange, _again, _near, _near, _near),
)
