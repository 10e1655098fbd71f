"""What is done after every pass: it is checked, dumped for `TENSORLANG_DUMP`, and timed for `TENSORLANG_LOG=passes`."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable
from functools import partial
from typing import Generic, TypeAlias, TypeVar

from tensorlang import config
from tensorlang.dataclass import dataclass
from tensorlang.errors import InternalError
from tensorlang.lowering.dump import Dump

T = TypeVar("T")
Pass: TypeAlias = tuple[str, Callable[[T], T]]
"""A pass and its name: from an immutable value to another one, or, where it only checks, the same."""


@dataclass(frozen=True, slots=True)
class Watch(Generic[T]):
    """Passes over values of one kind: `text` of a value is dumped, `checks` get the name of a pass and what it made.

    Checks raise InternalError for what no pass may make.
    """

    dump: Dump
    text: Callable[[T], str]
    checks: tuple[Callable[[str, T], None], ...] = ()

    def run(self, passes: Iterable[Pass[T]], value: T) -> T:
        """Return the value after passes, one after the other."""
        for word, function in passes:
            start, before = time.perf_counter(), value
            value = function(value)
            self.done(word, start, value, before)
        return value

    def done(self, word: str, start: float, value: T, before: T | None = None) -> None:
        """Check, dump and log what a pass has made that began at `start`; with no value before, all of it is new."""
        spent = time.perf_counter() - start
        if value is not before:
            self._check(word, value)
        self.dump.write(word, "loops", partial(self.text, value))
        if "passes" in config.get("log"):
            same = before is not None and (value is before or self.text(value) == self.text(before))
            print(f"{word:<15} {1e3 * spent:8.2f} ms{'  (unchanged)' if same else ''}", file=sys.stderr)

    def _check(self, word: str, value: T) -> None:
        for check in self.checks:
            try:
                check(word, value)
            except InternalError as error:
                error.add_note(f"after the pass {word}")
                raise
