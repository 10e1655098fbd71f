"""Tests of CUDA launches on machines without a GPU."""

from __future__ import annotations

import pytest

from tensorlang.target.cuda import runtime
from tests.target.cuda.fake_cupy import FakeCupy


@pytest.fixture
def cupy(monkeypatch: pytest.MonkeyPatch) -> FakeCupy:
    """A CuPy with one Hopper, in place of this machine's."""
    return in_place_of_cupy(monkeypatch, FakeCupy())


@pytest.fixture
def two_devices(monkeypatch: pytest.MonkeyPatch) -> FakeCupy:
    """A CuPy with a Hopper and an Ampere, in place of this machine's."""
    return in_place_of_cupy(monkeypatch, FakeCupy(("90", "80")))


def in_place_of_cupy(monkeypatch: pytest.MonkeyPatch, fake: FakeCupy) -> FakeCupy:
    """Let tensorlang take the fake for CuPy until the test ends."""
    monkeypatch.setattr(runtime, "cupy", lambda: fake)
    return fake
