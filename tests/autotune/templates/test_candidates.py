"""Candidates of knobs come in AutoTVM's order, and large sets of them are counted, not stored."""

from __future__ import annotations

import itertools
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tensorlang.autotune.templates import candidates as c
from tensorlang.errors import DefinitionError


def reference_splits(extent: int, parts: int, factors: list[int], no_tail: bool) -> list[list[int]]:
    """AutoTVM's rule, spelt out: every choice of inner parts, the innermost counting slowest."""
    found = []
    for choice in itertools.product(factors, repeat=parts - 1):
        product = math.prod(choice)
        if product <= extent and (extent % product == 0 or (not no_tail and product < extent)):
            found.append([-1, *reversed(choice)])
    return found


@given(st.integers(1, 96), st.integers(1, 4), st.sampled_from(["factors", "power2", "verbose"]), st.booleans())
def test_splits_are_those_of_autotvm_in_its_order(extent: int, parts: int, policy: str, no_tail: bool) -> None:
    factors = c.split_factors(extent, policy, None)
    made = [entity.size for entity in c.splits(extent, parts, policy, no_tail=no_tail)]
    assert made == reference_splits(extent, parts, factors, no_tail)


@pytest.mark.parametrize(
    ("policy", "factors"),
    [("factors", [1, 2, 3, 4, 6, 12]), ("power2", [1, 2, 4, 8]), ("verbose", [1, 2, 3, 4, 6, 8, 12])],
)
def test_policies_of_splits(policy: str, factors: list[int]) -> None:
    assert c.split_factors(12, policy, None) == factors
    assert c.split_factors(12, policy, 4) == [f for f in factors if f <= 4]


def test_factors_leave_nothing_over_and_others_may() -> None:
    assert [e.size for e in c.splits(10, 2, "factors")] == [[-1, 1], [-1, 2], [-1, 5], [-1, 10]]
    assert [e.size for e in c.splits(10, 2, "power2")] == [[-1, 1], [-1, 2], [-1, 4], [-1, 8]]
    assert [e.size for e in c.splits(10, 2, "power2", no_tail=True)] == [[-1, 1], [-1, 2]]


@given(st.integers(1, 5), st.data())
def test_orders_are_the_permutations_in_lexicographic_order(axes: int, data: st.DataObject) -> None:
    begin = data.draw(st.integers(0, axes))
    end = data.draw(st.integers(begin, axes))
    wanted = [[*range(begin), *middle, *range(end, axes)] for middle in itertools.permutations(list(range(begin, end)))]
    assert [entity.perm for entity in c.Orders(axes, begin, end)] == wanted


def test_orders_of_many_axes_are_not_stored() -> None:
    orders = c.Orders(16, 0, 16)
    assert len(orders) == math.factorial(16)
    assert orders[0].perm == list(range(16))
    assert orders[len(orders) - 1].perm == list(range(16))[::-1]
    with pytest.raises(IndexError):
        orders[len(orders)]


def test_interleaving_takes_from_the_longest_chain() -> None:
    assert c.interleaved([[0, 1, 2], [3, 4], [5]]) == [0, 1, 3, 2, 4, 5]
    spatial, reduce = [[0, 1, 2], [3, 4, 5]], [[6, 7]]
    assert c.interleave(spatial, reduce, "interleave").perm == [0, 3, 1, 4, 6, 2, 5, 7]
    assert c.interleave(spatial, reduce, "interleave_cuda").perm == [0, 3, 1, 4, 6, 7, 2, 5]


def test_annotations_have_one_vector_loop_at_most() -> None:
    assert [e.anns for e in c.axis_annotations(2, "try_vec")] == [["none", "none"], ["none", "vec"], ["vec", "none"]]
    assert [e.anns for e in c.axis_annotations(1, "try_unroll_vec")] == [["none"], ["unroll"], ["vec"]]
    assert [e.anns for e in c.axis_annotations(2, "unroll")] == [["unroll", "unroll"]]
    assert [e.anns for e in c.axis_annotations(1, "vectorize")] == [["vec"]]
    with pytest.raises(DefinitionError, match=r"no policy 'try_tile' of define_annotate; .* as in 'try_unroll_vec'"):
        c.axis_annotations(1, "try_tile")


@pytest.mark.parametrize(
    ("axes", "virtual", "words"),
    [
        (2, False, ["blockIdx.x", "threadIdx.x"]),
        (5, False, ["fuse", "blockIdx.y", "blockIdx.x", "threadIdx.y", "threadIdx.x"]),
        (3, True, ["blockIdx.x", "vthread", "threadIdx.x"]),
    ],
)
def test_binding_to_a_gpu(axes: int, virtual: bool, words: list[str]) -> None:
    assert c.gpu_binding(axes, virtual).anns == words


def test_too_few_axes_cannot_be_bound() -> None:
    with pytest.raises(DefinitionError, match="at least 3 axes, got 2"):
        c.gpu_binding(2, True)
