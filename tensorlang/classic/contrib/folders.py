"""`tvm.contrib.utils`: folders that are there for as long as somebody holds them."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory


class TempDirectory:
    """A folder that is removed with what it holds: by `remove`, or when nobody holds it any more."""

    def __init__(self) -> None:
        self._folder = TemporaryDirectory(prefix="tensorlang_")
        self.temp_dir = self._folder.name

    def remove(self) -> None:
        """Remove the folder."""
        self._folder.cleanup()

    @property
    def path(self) -> str:
        """Where it is."""
        return self.temp_dir

    def relpath(self, name: str) -> str:
        """Return the path of a file in the folder."""
        return str(Path(self.temp_dir) / name)

    def listdir(self) -> list[str]:
        """Return the names of what it holds."""
        return sorted(path.name for path in Path(self.temp_dir).iterdir())

    def __truediv__(self, name: str) -> Path:
        return Path(self.temp_dir) / name


def tempdir() -> TempDirectory:
    """Return a new folder for files that nobody keeps."""
    return TempDirectory()
