"""Partial results that cannot be: rfactor."""

from __future__ import annotations

import pytest

from tensorlang import te
from tests.error.refusal import Refusal, refused
from tests.programs import argmax, chain, matmul, row_sum, with_extern

n, m = te.var("n"), te.var("m")

RFACTOR = {
    "spatial axis": Refusal(
        matmul, (), lambda s: s.rfactor("C", "i"), ("rfactor needs a reduce axis, and i of C is spatial",)
    ),
    "spatial part": Refusal(
        matmul, (lambda s: s["C"].split("j", 2),), lambda s: s.rfactor("C", "j_i"), ("j_i of C is spatial",)
    ),
    "no reduction": Refusal(chain, (), lambda s: s.rfactor("B", "i"), ("i of B is spatial",)),
    "unknown axis": Refusal(
        row_sum, (), lambda s: s.rfactor("B", "kk"), ("no axis 'kk' in B; there are i, k; did you mean k?",)
    ),
    "split axis": Refusal(
        row_sum,
        (lambda s: s["B"].split("k", 4),),
        lambda s: s.rfactor("B", "k"),
        ("axis k of B was already transformed; its loops are i, k_o, k_i",),
    ),
    "factor_axis too large": Refusal(
        matmul, (), lambda s: s.rfactor("C", "k", 3), ("factor_axis must be a whole number between 0 and 2, got 3",)
    ),
    "factor_axis negative": Refusal(matmul, (), lambda s: s.rfactor("C", "k", -4), ("between 0 and 2, got -4",)),
    "factor_axis fraction": Refusal(
        matmul,
        (),
        lambda s: s.rfactor("C", "k", 0.5),  # type: ignore[arg-type]
        ("factor_axis must be a whole number between 0 and 2, got 0.5",),
    ),
    "stage computed inside": Refusal(
        row_sum,
        (lambda s: s.cache_read("A", "local", ["B"]), lambda s: s["A.local"].compute_at(s["B"], "i")),
        lambda s: s.rfactor("B", "k"),
        ("A.local is computed inside B; rfactor first",),
    ),
    "pairs with a bad factor_axis": Refusal(argmax, (), lambda s: s.rfactor("T", "k", 2), ("between 0 and 1, got 2",)),
    "input": Refusal(row_sum, (), lambda s: s.rfactor("A", "k"), ("A is an input",)),
    "extern stage": Refusal(with_extern, (), lambda s: s.rfactor("S", "i"), ("S is an extern stage",)),
}


@pytest.mark.parametrize("name", RFACTOR)
def test_refused(name: str) -> None:
    refused(RFACTOR[name])
