"""Weights that are laid out when they are wanted, as kernels read them in the end: what comes before is of shapes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, MutableMapping
from typing import TypeAlias

from tensorlang.networks.network import Array

Change: TypeAlias = Callable[[Array], Array]
"""How an array is laid out; its dtype stays."""


class Pending(MutableMapping[str, Array]):
    """Arrays by name. What is to become of one `later` is done when it is first asked for."""

    def __init__(self, arrays: Mapping[str, Array]) -> None:
        """A copy of `arrays`, with what is pending of them."""
        pending = isinstance(arrays, Pending)
        self._arrays: dict[str, Array] = dict(arrays._arrays if pending else arrays)  # type: ignore[attr-defined]
        self._changes: dict[str, tuple[Change, ...]] = dict(arrays._changes) if pending else {}  # type: ignore[attr-defined]
        self._shapes: dict[str, tuple[int, ...]] = dict(arrays._shapes) if pending else {}  # type: ignore[attr-defined]

    def shape(self, name: str) -> tuple[int, ...]:
        """The shape that an array has at the end."""
        return self._shapes[name] if name in self._shapes else self._arrays[name].shape

    def later(self, name: str, change: Change, shape: tuple[int, ...] | None = None) -> None:
        """Change an array once it is asked for; `shape`: that which it has then, if another one."""
        self._changes[name] = (*self._changes.get(name, ()), change)
        self._shapes[name] = self.shape(name) if shape is None else shape

    def __getitem__(self, name: str) -> Array:
        array = self._arrays[name]
        if name in self._changes:
            for change in self._changes.pop(name):
                array = change(array)
            del self._shapes[name]
            self._arrays[name] = array
        return array

    def __setitem__(self, name: str, array: Array) -> None:
        self._changes.pop(name, None)
        self._shapes.pop(name, None)
        self._arrays[name] = array

    def __delitem__(self, name: str) -> None:
        del self._arrays[name]
        self._changes.pop(name, None)
        self._shapes.pop(name, None)

    def __contains__(self, name: object) -> bool:
        return name in self._arrays  # the mapping's own would ask for the array

    def __iter__(self) -> Iterator[str]:
        return iter(self._arrays)

    def __len__(self) -> int:
        return len(self._arrays)
