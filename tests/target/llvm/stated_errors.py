"""The errors that docs/design/009-vector-mathematics.md states: tests hold the code to them."""

from __future__ import annotations

import re
from pathlib import Path

_PAGE = Path(__file__).parents[3] / "docs" / "design" / "009-vector-mathematics.md"
_ROW = re.compile(r"^\| `(\w+)` \| ([\d.]+) \| ([\d.]+) \|$", re.MULTILINE)
IN_FLOAT64 = ("tan", "asin", "acos", "atan", "atan2", "sinh", "cosh", "asinh", "acosh", "atanh", "hypot")
"""What float32 computes in float64 (as it does `pow`)."""


def stated() -> dict[tuple[str, str], float]:
    """(function, dtype) -> units in the last place."""
    rows = _ROW.findall(_PAGE.read_text(encoding="utf-8"))
    return {(name, dtype): float(e) for name, *errors in rows for dtype, e in zip(("float32", "float64"), errors)}
