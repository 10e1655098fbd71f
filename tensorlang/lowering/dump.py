"""`TENSORLANG_DUMP=dir`: every stage of one build as a numbered file, from the trace to the assembly."""

from __future__ import annotations

import re
from collections.abc import Callable
from itertools import count
from pathlib import Path

from tensorlang import config

_LONGEST = 64
"""Characters of a kernel's name in that of a folder."""


class Dump:
    """Writes the stages of one build; does nothing when the setting is empty."""

    def __init__(self, name: str) -> None:
        folder = config.get("dump")
        self.folder: Path | None = None
        self._numbers = count()
        if folder is not None:
            try:
                folder.mkdir(parents=True, exist_ok=True)
                self.folder = _new_folder(folder, re.sub(r"[^\w.-]", "_", name)[:_LONGEST])
            except OSError as error:
                raise config.SettingError(f"TENSORLANG_DUMP={folder}: cannot write there ({error.strerror})") from None

    def write(self, stage: str, suffix: str, text: Callable[[], str]) -> None:
        """Write one stage: `03_unroll.loops`."""
        if self.folder is not None:
            (self.folder / f"{next(self._numbers):02d}_{stage}.{suffix}").write_text(text())


def _new_folder(parent: Path, name: str) -> Path:
    for n in count():
        folder = parent / (name if n == 0 else f"{name}_{n}")
        try:
            folder.mkdir()
        except FileExistsError:
            continue
        return folder
    raise AssertionError("count() does not end")
