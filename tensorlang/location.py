"""Where in the user's file something was written."""

from __future__ import annotations

import ast
import linecache
import sys
from itertools import islice
from pathlib import Path
from types import FrameType

from tensorlang.dataclass import dataclass

_PACKAGE = str(Path(__file__).parent)


@dataclass(frozen=True, slots=True)
class Location:
    """A line of the user's source. Equal to any other location: places never change a program."""

    file: str
    line: int

    def __str__(self) -> str:
        return f"{Path(self.file).name}:{self.line}"


def caller() -> Location:
    """Return the innermost line outside the tensorlang package."""
    frame = _frame()
    return Location(frame.f_code.co_filename, frame.f_lineno)


def evaluated() -> ast.expr | None:
    """Return the expression of the user's that is being evaluated; None where there is no text of it."""
    frame = _frame()
    place = next(islice(frame.f_code.co_positions(), frame.f_lasti // 2, None), (None,) * 4)
    if None in place:
        return None
    first, last, start, end = (n or 0 for n in place)
    lines = [linecache.getline(frame.f_code.co_filename, n, frame.f_globals).encode() for n in range(first, last + 1)]
    text = b"".join([*lines[:-1], lines[-1][:end]])[start:]
    try:
        return ast.parse(f"({text.decode()})", mode="eval").body
    except SyntaxError:
        return None


def _frame() -> FrameType:
    """The innermost frame outside the tensorlang package."""
    frame = sys._getframe(1)
    while frame.f_back is not None and frame.f_code.co_filename.startswith(_PACKAGE):
        frame = frame.f_back
    return frame
