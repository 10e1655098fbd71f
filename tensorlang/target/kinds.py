"""The kinds of targets, and the module of each kind's backend."""

from __future__ import annotations

import difflib

from tensorlang.errors import TargetError

KINDS: dict[str, str] = {
    "llvm": "tensorlang.target.llvm.backend",
    "interpreter": "tensorlang.target.interpreter.backend",
    "cuda": "tensorlang.target.cuda.backend",
    "opencl": "tensorlang.target.opencl.backend",
}
"""First word of a target text -> module that holds its `BACKEND`; imported when first used."""


def check_kind(kind: str) -> None:
    """Raise TargetError, naming the nearest kind, unless `kind` is in the table."""
    if kind not in KINDS:
        near = difflib.get_close_matches(kind, KINDS, n=1)
        hint = f"; did you mean {near[0]!r}?" if near else ""
        raise TargetError(f"unknown target kind {kind!r}; known: {', '.join(KINDS)}{hint}")
