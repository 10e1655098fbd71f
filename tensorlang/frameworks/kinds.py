"""What calls of a function of arrays are told apart by, and shapes with open sizes: `"n, 64, _"`."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping
from typing import Any, TypeAlias

import numpy as np

from tensorlang import dtypes
from tensorlang.errors import ArgumentError, DefinitionError, shown

Extents: TypeAlias = tuple[str | int | None, ...]
"""A shape as it is declared: sizes by name, numbers, and None for what each array has."""


class Array(tuple[Any, str]):
    """Shape and dtype of an array: a key, and another one than that of a tuple which is an argument.

    A size that is open is a name.
    """

    __slots__ = ()

    @property
    def shape(self) -> Any:
        return self[0]

    @property
    def dtype(self) -> str:
        return self[1]


def is_array(value: Any) -> bool:
    """Whether a value has what all arrays have."""
    return hasattr(value, "shape") and hasattr(value, "dtype")


def kind(value: Any, extents: Extents | None = None) -> Any:
    """What programs are made for: shape and dtype of an array; another argument with its type, as 1 is True and 1.0.

    Sizes that `extents` names are open; ArgumentError for an array of another shape than they say.
    """
    if not is_array(value):
        return type(value), value
    shape = tuple(value.shape)
    if extents is None:
        return Array((tuple(map(int, shape)), dtype_name(value.dtype)))
    numbers = [(w, e) for w, e in zip(extents, shape, strict=False) if isinstance(w, int)]
    if len(extents) != len(shape) or any(w != e for w, e in numbers):
        raise ArgumentError(f"expected an array of the shape ({spelt(extents)}), got one of {shape}")
    opened = (w if isinstance(w, str) else int(e) for w, e in zip(extents, shape, strict=True))
    return Array((tuple(opened), dtype_name(value.dtype)))


def declared(name: str, parameters: Iterable[str], shapes: Mapping[str, str] | None) -> dict[str, Extents]:
    """The shapes that a function's parameters are declared to have, read; DefinitionError for what says nothing."""
    if not isinstance(shapes or {}, Mapping):
        raise DefinitionError(f"{name}: shapes are those of parameters, as in {{'x': 'n, 64'}}, got {shown(shapes)}")
    known = list(parameters)
    found = {}
    for parameter, text in (shapes or {}).items():
        if parameter not in known:
            raise DefinitionError(f"{name} has no parameter {shown(parameter)}; it has {', '.join(known)}")
        found[parameter] = _read(name, known, parameter, text)
    return found


def spelt(extents: Extents) -> str:
    """Extents as they are declared."""
    return ", ".join("_" if e is None else str(e) for e in extents)


def _read(name: str, taken: list[str], parameter: str, text: object) -> Extents:
    found: list[str | int | None] = []
    for word in text.split(",") if isinstance(text, str) else [""]:
        word = word.strip()
        if word.isdecimal():
            found.append(int(word))
        elif word == "_":
            found.append(None)
        elif word.isidentifier() and word.isascii() and word not in taken:
            found.append(word)
        else:
            text = f"the shape of {parameter} is {shown(text)}"
            raise DefinitionError(f"{name}: {text}; write its sizes as names, numbers, or _, as in 'n, 64, _'")
    return tuple(found)


@functools.lru_cache(maxsize=64)
def dtype_name(dtype: Any) -> str:
    """The name that a dtype of NumPy, PyTorch or JAX has here."""
    text = str(dtype)
    return dtypes.canonical(text.removeprefix("torch.") if text.startswith("torch.") else np.dtype(dtype))
