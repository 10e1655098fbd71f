"""TENSORLANG_DUMP: folders for any kernel name, and a clear error where nothing can be written."""

from __future__ import annotations

from pathlib import Path

import pytest

from tensorlang import config, lower, te
from tensorlang.config import SettingError
from tensorlang.schedule import Schedule


def program() -> tuple[Schedule, list[te.Tensor]]:
    A = te.placeholder((8,), name="A")
    C = te.compute((8,), lambda i: A[i] + 1, name="C")
    return te.create_schedule(C.op), [A, C]


def test_a_kernel_name_is_no_path(tmp_path: Path) -> None:
    s, args = program()
    with config.override(dump=tmp_path):
        lower(s, args, name="../a/b")
        lower(s, args, name="../a/b")
    assert sorted(p.name for p in tmp_path.iterdir()) == [".._a_b", ".._a_b_1"]


def test_a_folder_that_cannot_be_made_is_refused(tmp_path: Path) -> None:
    s, args = program()
    (tmp_path / "file").write_text("")
    with config.override(dump=tmp_path / "file"), pytest.raises(SettingError, match=r"TENSORLANG_DUMP=.*file"):
        lower(s, args)
