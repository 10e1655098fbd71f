"""Digests by pieces: of all bytes, in order, wherever they are cut."""

from __future__ import annotations

import mmap
import os
import time
from pathlib import Path

import pytest

from tensorlang import config
from tensorlang.runtime import digest, ownership
from tensorlang.runtime.digest import PIECE, digest_of, digest_of_file, known_digest
from tests.thoroughness import draws

SIZES = [0, 1, PIECE - 1, PIECE, PIECE + 1, 2 * PIECE + 5]
CONTENT = bytes(range(256)) * (SIZES[-1] // 256 + 1)


@pytest.mark.parametrize("size", SIZES)
def test_a_file_has_the_digest_of_its_bytes(size: int, tmp_path: Path) -> None:
    file = tmp_path / "content"
    file.write_bytes(CONTENT[:size])
    assert digest_of_file(file) == digest_of([memoryview(CONTENT)[:size]])


def test_no_byte_is_left_out() -> None:
    content = bytearray(CONTENT[: SIZES[-1]])
    wanted = digest_of([memoryview(content)])
    found = {wanted}
    for at in {0, PIECE - 1, PIECE, len(content) - 1, *range(7, len(content), len(content) // draws(3, 50))}:
        content[at] ^= 1
        found.add(digest_of([memoryview(content)]))
        content[at] ^= 1
    assert len(found) > 4 and digest_of([memoryview(content)]) == wanted
    first, last = memoryview(content)[:PIECE], memoryview(content)[PIECE:]
    assert digest_of([memoryview(content), memoryview(b"")]) == digest_of([first, last]) == wanted
    assert wanted not in {
        digest_of([last, first]),
        digest_of([first[:-1], last]),
        digest_of([first[:9], first[9:], last]),
    }


def test_a_file_that_has_not_changed_is_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file, read = tmp_path / "content", list[Path]()

    def reading(path: Path) -> str:
        read.append(path)
        return digest_of_file(path)

    monkeypatch.setattr(digest, "digest_of_file", reading)
    with config.override(cache_dir=tmp_path / "cache"):
        file.write_bytes(CONTENT[:9])
        assert known_digest(file) == known_digest(file) == digest_of_file(file)
        assert len(read) == 2  # it was written just now, and may be written again at the same time
        monkeypatch.setattr(ownership, "SETTLED", -1_000_000_000)
        assert known_digest(file) == known_digest(file) == digest_of_file(file)
        assert len(read) == 3
        before = file.stat()
        file.write_bytes(CONTENT[1:10])
        os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))  # which is a change of its own
        assert known_digest(file) == digest_of_file(file) and len(read) == 4
        with pytest.raises(FileNotFoundError):
            known_digest(tmp_path / "none")


def test_a_file_that_is_changed_through_a_map_has_another_digest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A page that waits to be written is changed once more, which says nothing of itself."""
    file = tmp_path / "content"
    file.write_bytes(CONTENT[:9])
    monkeypatch.setattr(ownership, "SETTLED", -1_000_000_000)
    with file.open("r+b") as handle, mmap.mmap(handle.fileno(), 0) as content, config.override(cache_dir=tmp_path):

        def change() -> bool:
            before = file.stat().st_ctime_ns
            time.sleep(0.01)  # clocks of files go in steps
            content[0] += 1
            return file.stat().st_ctime_ns > before

        os.fsync(handle.fileno())
        if not change():
            pytest.skip("maps change no times of files here, as in memory (tmpfs)")
        assert not change(), "the page waits to be written"
        first = known_digest(file)
        change()
        assert known_digest(file) == digest_of_file(file) != first
