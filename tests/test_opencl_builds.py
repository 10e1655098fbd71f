"""By day drivers optimise one OpenCL program of four, by night all."""

from __future__ import annotations

from typing import Any

import pytest

from tensorlang.target.opencl import runtime
from tests import profiles
from tests.opencl_builds import build_quickly
from tests.profiles import is_optimised

TEXTS = [f"kernel void f{n}() {{}}" for n in range(400)]


def test_one_of_four_texts_is_optimised_by_day(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(profiles, "NIGHTLY", False)
    assert 60 < sum(map(is_optimised, TEXTS)) < 140
    monkeypatch.setattr(profiles, "NIGHTLY", True)
    assert all(map(is_optimised, TEXTS))


def test_the_others_are_built_as_they_stand(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: dict[str, list[str]] = {}

    def build(context: Any, device: Any, text: str, options: list[str]) -> None:
        asked[text] = [*options]

    monkeypatch.setattr(runtime, "build", build)
    build_quickly(monkeypatch)
    for text in TEXTS:
        runtime.build(None, None, text, ["-own"])  # type: ignore[arg-type]
    assert asked == {text: ["-own"] if is_optimised(text) else ["-own", "-cl-opt-disable"] for text in TEXTS}
