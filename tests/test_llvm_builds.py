"""By day LLVM optimises one module of four in tests of results, by night all."""

from __future__ import annotations

import pytest

from tensorlang.target.llvm import engine
from tensorlang.target.llvm.host import Machine
from tests import profiles
from tests.llvm_builds import build_quickly
from tests.profiles import is_optimised

MODULE = """
define i64 @f{n}(i64 %a) {{
  %place = alloca i64
  store i64 %a, ptr %place
  %b = load i64, ptr %place
  ret i64 %b
}}
"""
HOST = Machine("", *engine._native())


def test_the_others_are_compiled_as_they_stand(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(profiles, "NIGHTLY", False)
    whole = engine.compile_object
    build_quickly(monkeypatch.setattr)
    texts = [MODULE.format(n=n) for n in range(20)]
    same = [engine.compile_object(text, HOST) == whole(text, HOST) for text in texts]
    assert same == [is_optimised(text) for text in texts]
    assert 0 < sum(same) < 20
    monkeypatch.setattr(profiles, "NIGHTLY", True)
    assert all(engine.compile_object(text, HOST) == whole(text, HOST) for text in texts)
