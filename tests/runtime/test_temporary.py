"""Temporary folders go with their owners, and those of killed ones with the next run."""

from __future__ import annotations

import os
import signal
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tensorlang.runtime.temporary import TemporaryFolder, clear_abandoned

OWNER = """
import os, signal
from pathlib import Path
from tensorlang.runtime.temporary import TemporaryFolder
folder = TemporaryFolder("tune")
Path(folder.name, "arrays").write_bytes(bytes(1000))
print(folder.name, flush=True)
input()
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    yield tmp_path


def test_a_folder_is_for_us_and_goes_at_the_end(place: Path) -> None:
    with TemporaryFolder("tune") as name:
        folder = Path(name)
        assert (folder.parent, stat.S_IMODE(folder.stat().st_mode)) == (place, 0o700)
        assert folder.name.startswith("tensorlang-tune-")
        clear_abandoned(place)
        assert folder.exists()
    assert not folder.exists()


def test_what_a_killed_process_left_goes_with_the_next_folder(place: Path) -> None:
    owner = subprocess.Popen(
        [sys.executable, "-c", OWNER],
        env={**os.environ, "TMPDIR": str(place)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert owner.stdout is not None
    left = Path(owner.stdout.readline().strip())
    TemporaryFolder("tune").cleanup()
    assert left.exists()  # its owner lives
    owner.communicate("\n")
    assert owner.returncode == -signal.SIGKILL
    assert Path(left, "arrays").exists()
    TemporaryFolder("tasks").cleanup()
    assert list(place.iterdir()) == []


def test_what_is_not_ours_stays(place: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    target = tmp_path_factory.mktemp("target")
    (target / "owner.lock").touch()
    (place / "tensorlang-tune-link").symlink_to(target)
    for name in ("tensorlang-tune-made-now", "other"):
        (place / name).mkdir()
    (place / "other" / "owner.lock").touch()
    (place / "tensorlang-tune-file").touch()
    before = sorted(place.rglob("*"))
    clear_abandoned(place)
    assert sorted(place.rglob("*")) == before
    assert (target / "owner.lock").exists()


def test_a_folder_taken_for_abandoned_while_it_is_made_is_made_again(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first: list[Path] = []
    make = Path.open

    def cleared(path: Path, mode: str) -> object:
        opened = make(path, mode)
        if not first:
            first.append(path.parent)
            clear_abandoned(place)
        return opened

    monkeypatch.setattr(Path, "open", cleared)
    with TemporaryFolder("tune") as name:
        assert not first[0].exists()
        assert [p.name for p in Path(name).iterdir()] == ["owner.lock"]
