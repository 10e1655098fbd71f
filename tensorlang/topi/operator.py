"""What the library knows of an operator, and what a rule that schedules it is given."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import field, replace
from functools import partial
from typing import Any, TypeAlias

import numpy.typing as npt

from tensorlang.dataclass import dataclass
from tensorlang.errors import DefinitionError
from tensorlang.te.operation import Tensor

Array: TypeAlias = npt.NDArray[Any]


Option: TypeAlias = int | str | tuple[int, ...]
"""The value of an option: a number, several, or a word."""


@dataclass(frozen=True, slots=True)
class Operator:
    """An operator by name, as the command line and tuning logs know it.

    `compute(*sizes, dtype)` returns the tensors, inputs first; `sizes` names its integers.
    `reference(*inputs)` returns the outputs; `numpy(*inputs, *outputs)` is what a NumPy user would run.
    `options` are named arguments of all three, with what they are when they are left out.
    """

    name: str
    sizes: tuple[str, ...]
    compute: Callable[..., list[Tensor]]
    reference: Callable[..., list[Array]]
    numpy: Callable[..., None]
    options: Mapping[str, Option] = field(default_factory=dict, hash=False)

    def tensors(self, sizes: Sequence[int], dtype: str, **options: Option) -> list[Tensor]:
        """Build the tensors; DefinitionError when the number or the sign of `sizes` is wrong."""
        if len(sizes) != len(self.sizes) or any(n < 1 for n in sizes):
            wanted, got = ",".join(self.sizes), ",".join(map(str, sizes))
            raise DefinitionError(f"{self.name} wants the shape {wanted} as positive integers, got {got or 'nothing'}")
        return self.compute(*sizes, dtype, **options)

    def with_options(self, options: Mapping[str, Option]) -> Operator:
        """The operator with options set for good."""
        if not options:
            return self
        return replace(
            self,
            compute=partial(self.compute, **options),
            reference=partial(self.reference, **options),
            numpy=partial(self.numpy, **options),
            options={},
        )

    def read_options(self, words: Iterable[str]) -> dict[str, Option]:
        """Options as they are written: `stride=2`, `padding=1,2`, `padding=SAME`; DefinitionError says what exists."""
        found: dict[str, Option] = {}
        for word in words:
            name, _, text = map(str.strip, word.partition("="))
            if name not in self.options:
                raise DefinitionError(f"{self.name} has no option {name!r}; {self._known_options(name)}")
            if name in found:
                raise DefinitionError(f"{self.name} was given its option {name} twice")
            found[name] = _read_option(text)
        return found

    def write_options(self, options: Mapping[str, Option]) -> tuple[str, ...]:
        """Options as `read_options` takes them, in a fixed order, without those that are as when left out."""
        given = ((name, options.get(name, usual), usual) for name, usual in self.options.items())
        return tuple(f"{name}={value}" for name, value, usual in given if value != usual)

    def _known_options(self, name: str) -> str:
        if not self.options:
            return "it takes none"
        near = difflib.get_close_matches(name, self.options, 1)
        usual = ", ".join(f"{known}={value}" for known, value in self.options.items())
        return f"{f'did you mean {near[0]}? It has' if near else 'it has'} {usual}"


def _read_option(text: str) -> Option:
    parts = [part.strip() for part in text.strip("()[]").rstrip(",").split(",")]
    try:
        numbers = tuple(map(int, parts))
    except ValueError:
        return text
    return numbers if len(numbers) > 1 else numbers[0]
