"""What the comparison with the schedule leaves out, since isl takes too long: it is said, not hidden."""

from __future__ import annotations

import sys

from tensorlang import config


def tell(what: str) -> None:
    """Say on standard error what was left out, for TENSORLANG_LOG=passes."""
    if "passes" in config.get("log"):
        print(f"{'read back':<15} {what}", file=sys.stderr)
