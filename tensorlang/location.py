"""Where in the user's file something was written."""

from __future__ import annotations

import sys
from pathlib import Path

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
    frame = sys._getframe(1)
    while frame.f_back is not None and frame.f_code.co_filename.startswith(_PACKAGE):
        frame = frame.f_back
    return Location(frame.f_code.co_filename, frame.f_lineno)
