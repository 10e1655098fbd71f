"""Where in the user's file something was written."""

from __future__ import annotations

import ast
import linecache
import sys
from collections import ChainMap
from itertools import islice
from pathlib import Path
from types import TracebackType

from tensorlang.dataclass import dataclass

_PACKAGE = str(Path(__file__).parent)


@dataclass(frozen=True, slots=True)
class Location:
    """A line of the user's source. Equal to any other location: places never change a program."""

    file: str
    line: int

    def __str__(self) -> str:
        return f"{Path(self.file).name}:{self.line}"


def caller(raised: BaseException | None = None) -> Location:
    """Return the innermost line outside the tensorlang package, or that of what was raised."""
    at = _place(raised)
    return Location(at.tb_frame.f_code.co_filename, at.tb_lineno)


def evaluated(raised: BaseException | None = None) -> ast.expr | None:
    """Return the expression that `caller` is evaluating, or that raised; None where there is no text of it."""
    at = _place(raised)
    frame = at.tb_frame
    place = next(islice(frame.f_code.co_positions(), at.tb_lasti // 2, None), (None,) * 4)
    if None in place:
        return None
    first, last, start, end = (n or 0 for n in place)
    lines = [linecache.getline(frame.f_code.co_filename, n, frame.f_globals).encode() for n in range(first, last + 1)]
    text = b"".join([*lines[:-1], lines[-1][:end]])[start:]
    try:
        return ast.parse(f"({text.decode()})", mode="eval").body
    except SyntaxError:
        return None


def meaning(part: ast.expr, raised: BaseException | None = None) -> object:
    """Return what a name, an attribute or a literal in what is `evaluated` stands for; None for all else."""
    match part:
        case ast.Constant(value=value):
            return value
        case ast.Attribute(value=owner, attr=name):
            return getattr(meaning(owner, raised), name, None)
        case ast.Name(id=name):
            frame = _place(raised).tb_frame
            return ChainMap(frame.f_locals, frame.f_globals).get(name)
    return None


def _place(raised: BaseException | None) -> TracebackType:
    """Where something was raised, or the innermost place outside the tensorlang package."""
    if raised is not None and (at := raised.__traceback__) is not None:
        while at.tb_next is not None:
            at = at.tb_next
        return at
    frame = sys._getframe(1)
    while frame.f_back is not None and frame.f_code.co_filename.startswith(_PACKAGE):
        frame = frame.f_back
    return TracebackType(None, frame, frame.f_lasti, frame.f_lineno)
