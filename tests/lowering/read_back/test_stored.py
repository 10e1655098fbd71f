"""Stores are of the elements that their instances write: a store that a pass moved is noticed."""

from __future__ import annotations

from dataclasses import replace

import pytest

import tensorlang
from tensorlang import config
from tensorlang.errors import InternalError
from tensorlang.ir.expr import binary
from tensorlang.ir.stmt import Stmt, Store
from tensorlang.lowering import pipeline
from tests.seeded_faults.mutations import MUTATIONS
from tests.seeded_faults.sowing import PROGRAMS, Sower, passes_of
from tests.thoroughness import draws

KIND = "a store beside its element"
OF_KERNELS = {word for word, _ in pipeline.KERNEL_PASSES}
CASES = [(name, word) for name in PROGRAMS for word in passes_of(name) if word not in OF_KERNELS]
DEAD = ("pipelined", "peel_prologue", 1)
"""A store under a test that is known to fail behind this pass: the next one drops it."""


def beside(stmt: Stmt) -> Stmt | None:
    """A store of the next element, by a leaf that says that it runs the same instance."""
    if isinstance(stmt, Store) and stmt.runs and stmt.index:
        return replace(stmt, index=(*stmt.index[:-1], binary("add", stmt.index[-1], 1)))
    return None


def who(name: str, word: str, place: int) -> str | None:
    """Who notices such a store; None where there is none."""
    make, target = PROGRAMS[name]
    case = make()
    with pytest.MonkeyPatch.context() as patch, config.override(check=True, cache=False):
        patch.setitem(MUTATIONS, KIND, beside)
        sower = Sower(patch, word, KIND, place)
        try:
            tensorlang.lower(case.s, list(case.args), target=target)
        except InternalError as error:
            return str(error)
    return "" if sower.sown else None


@pytest.mark.sampled(10)
@pytest.mark.parametrize("number", range(len(CASES)), ids=[f"{name}-{word}" for name, word in CASES])
def test_a_store_beside_its_element_is_noticed(number: int) -> None:
    name, word = CASES[number]
    places = range(3) if draws(1, 2) > 1 else (number % 2,)
    found = [who(name, word, place) for place in places if (name, word, place) != DEAD]
    assert all(why is None or "and it is to store" in why for why in found), found


def test_ordinary_builds_do_not_compare() -> None:
    make, target = PROGRAMS["tiled"]
    case = make()
    with pytest.MonkeyPatch.context() as patch, config.override(check=False, cache=False):
        patch.setitem(MUTATIONS, KIND, beside)
        sower = Sower(patch, "clean", KIND, 0)
        tensorlang.lower(case.s, list(case.args), target=target)
    assert sower.sown
