"""Every tutorial runs as it stands, in a process and a folder of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
TUTORIALS = sorted((ROOT / "tutorials").glob("*.py"))


SHOWN = {
    "01_custom_operator": (
        "parallel i_o in range(4)",
        "IllegalParallel: s['C.local'].parallel('k')",
        "float32: equal to NumPy",
        "int32: equal to NumPy",
    )
}
"""What a tutorial must print, besides coming to its end."""


@pytest.mark.parametrize("tutorial", TUTORIALS, ids=lambda path: path.stem)
def test_runs(tutorial: Path, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, str(tutorial)],
        check=False,
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT), "PYTHONIOENCODING": "utf-8"},
        capture_output=True,
        encoding="utf-8",
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip()
    assert [text for text in SHOWN.get(tutorial.stem, ()) if text not in done.stdout] == []


def test_every_tutorial_is_in_the_readme() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert TUTORIALS
    assert [path.name for path in TUTORIALS if path.name not in readme] == []
