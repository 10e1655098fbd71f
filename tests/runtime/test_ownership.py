"""What others can change is not trusted, whichever part of its path they can change."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from tensorlang.runtime.ownership import Untrusted, own_folder, read_own


def give_away(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Make a path somebody else's: really as root, else by being somebody else."""
    if os.geteuid() == 0:
        os.chown(path, 65534, 65534, follow_symlinks=False)
    else:
        monkeypatch.setattr(os, "geteuid", lambda: 65534)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "above" / "kernels"
    made.mkdir(parents=True, mode=0o700)
    made.parent.chmod(0o755)
    return made


def test_what_is_made_is_for_us_alone(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        made = own_folder(tmp_path / "a" / "b", make=True)
    finally:
        os.umask(before)
    assert [stat.S_IMODE(p.stat().st_mode) for p in (made, made.parent)] == [0o700, 0o700]
    with pytest.raises(FileNotFoundError):
        own_folder(tmp_path / "missing")


@pytest.mark.parametrize("mode", [0o777, 0o702, 0o1777, 0o722])
def test_a_folder_that_others_can_write(folder: Path, mode: int) -> None:
    folder.chmod(mode)
    with pytest.raises(Untrusted, match=f"{folder} can be written by others .*; chmod go-w {folder}"):
        own_folder(folder)


def test_a_folder_whose_parent_others_can_write(folder: Path) -> None:
    folder.parent.chmod(0o777)
    with pytest.raises(Untrusted, match=f"{folder.parent} can be written by others"):
        own_folder(folder)
    folder.parent.chmod(0o1777)  # as /tmp is: nobody else can rename what is ours
    assert own_folder(folder) == folder.resolve()


def test_a_folder_of_another_user(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    give_away(folder, monkeypatch)
    with pytest.raises(Untrusted, match="belongs to another user"):
        own_folder(folder)


def test_links_are_followed_where_nobody_else_can_turn_them(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    link = tmp_path / "link"
    link.symlink_to(Path("above", "..", "above", "kernels"))
    assert own_folder(link) == own_folder(tmp_path / "link" / ".." / "kernels") == folder.resolve()
    folder.parent.chmod(0o777)
    with pytest.raises(Untrusted, match="above can be written by others"):
        own_folder(link)
    folder.parent.chmod(0o755)
    give_away(link, monkeypatch)
    with pytest.raises(Untrusted, match="belongs to another user"):
        own_folder(link)


def test_links_in_circles_are_no_folder(tmp_path: Path) -> None:
    (tmp_path / "a").symlink_to("b")
    (tmp_path / "b").symlink_to("a")
    with pytest.raises(OSError, match="symbolic links"):
        own_folder(tmp_path / "a")


def test_files(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = folder / "entry"
    assert read_own(file) is None
    file.write_bytes(b"code")
    file.chmod(0o600)
    assert read_own(file) == b"code"
    (folder / "link").symlink_to(file)
    os.mkfifo(folder / "fifo")
    for name, why in (("link", "a link"), ("fifo", "no plain file"), (".", "no plain file")):
        with pytest.raises(Untrusted, match=why):
            read_own(folder / name)
    file.chmod(0o606)
    with pytest.raises(Untrusted, match="can be written by others"):
        read_own(file)
    file.chmod(0o600)
    give_away(file, monkeypatch)
    with pytest.raises(Untrusted, match="belongs to another user"):
        read_own(file)
