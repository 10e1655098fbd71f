"""Dense layers by name, with weights as they are and laid out ahead."""

from __future__ import annotations

import pytest

from tests.topi.images import check_operator


@pytest.mark.parametrize("name", ["dense", "dense_packed"])
@pytest.mark.parametrize("sizes", [(13, 37, 19), (1, 5, 3), (24, 64, 32)])
def test_the_named_operators(name: str, sizes: tuple[int, ...]) -> None:
    check_operator(name, *sizes)


@pytest.mark.parametrize("sizes", [(37, 19), (5, 1), (64, 32)])
def test_the_named_layout(sizes: tuple[int, ...]) -> None:
    check_operator("pack_weight", *sizes)
