"""Caches and scopes that do not fit."""

from __future__ import annotations

import pytest

from tests.error.refusal import Refusal, refused
from tests.programs import chain, row_sum, two_consumers, with_extern

CACHE_READ = {
    "unknown tensor": Refusal(
        chain, (), lambda s: s.cache_read("X", "local", ["C"]), ("no tensor 'X'; there are A, B, C",)
    ),
    "unknown reader": Refusal(
        chain, (), lambda s: s.cache_read("A", "local", ["Z"]), ("no stage 'Z'", "there are A, B, C")
    ),
    "reader that does not read": Refusal(
        chain, (), lambda s: s.cache_read("A", "local", ["B", "C"]), ("C does not read A",)
    ),
    "no reader": Refusal(chain, (), lambda s: s.cache_read("A", "local", []), ("needs at least one reader",)),
    "unknown scope": Refusal(
        chain,
        (),
        lambda s: s.cache_read("A", "locl", ["B"]),
        ("unknown scope 'locl'; there are global, local, shared",),
    ),
    "extern reader": Refusal(with_extern, (), lambda s: s.cache_read("B", "local", ["S"]), ("S is an extern stage",)),
    "input as reader": Refusal(chain, (), lambda s: s.cache_read("B", "local", ["A"]), ("A is an input",)),
    "reader served by another cache": Refusal(
        chain,
        (lambda s: s.cache_read("A", "local", ["B"]),),
        lambda s: s.cache_read("A", "shared", ["B"]),
        ("B does not read A",),
    ),
}

CACHE_WRITE = {
    "input": Refusal(chain, (), lambda s: s.cache_write("A", "local"), ("A is an input",)),
    "extern stage": Refusal(with_extern, (), lambda s: s.cache_write("S", "local"), ("S is an extern stage",)),
    "unknown scope": Refusal(chain, (), lambda s: s.cache_write("C", "register"), ("unknown scope 'register'",)),
    "after a stage was computed inside": Refusal(
        chain,
        (lambda s: s["B"].compute_at(s["C"], "i"),),
        lambda s: s.cache_write("C", "local"),
        ("cache_write must come first: B is computed inside it",),
    ),
    "inlined stage": Refusal(
        chain, (lambda s: s["B"].compute_inline(),), lambda s: s.cache_write("B", "local"), ("no stage 'B' (inlined?)",)
    ),
}

SET_SCOPE = {
    "unknown scope": Refusal(
        chain,
        (),
        lambda s: s["B"].set_scope("register"),
        ("unknown scope 'register'; there are global, local, shared",),
    ),
    "output": Refusal(
        two_consumers,
        (),
        lambda s: s["D"].set_scope("local"),
        ("D is an output; set_scope would leave it incomplete",),
        legal=("T = s.cache_write('D', 'global'); s[T].set_scope('local')",),
    ),
    "input": Refusal(row_sum, (), lambda s: s["A"].set_scope("local"), ("no stage 'A'",)),
}

ALL = {f"{group} {name}": case for group, cases in (
    ("cache_read", CACHE_READ), ("cache_write", CACHE_WRITE), ("set_scope", SET_SCOPE)
) for name, case in cases.items()}  # fmt: skip


@pytest.mark.parametrize("name", ALL)
def test_refused(name: str) -> None:
    refused(ALL[name])
