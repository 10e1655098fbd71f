"""Whether a run is by day or by night (HYPOTHESIS_PROFILE=nightly), and which programs it has compilers optimise."""

from __future__ import annotations

import hashlib
import os

PROFILE = os.environ.get("HYPOTHESIS_PROFILE", "default")
NIGHTLY = PROFILE == "nightly"


def is_optimised(text: str) -> bool:
    """Whether a compiler optimises a program: one of four by day, told by its text so that runs agree; by night all."""
    return NIGHTLY or hashlib.sha256(text.encode()).digest()[0] % 4 == 0
