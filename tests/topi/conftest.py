"""The library is tested by what its kernels compute, and by their assembly: few need be fast."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.llvm_builds import build_quickly


@pytest.fixture(scope="module", autouse=True)
def quick_builds() -> Iterator[None]:
    """Leave out the optimisations of LLVM, mostly."""
    with pytest.MonkeyPatch.context() as patch:
        build_quickly(patch)
        yield
