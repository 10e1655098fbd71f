"""Write docs/tutorials/*.md: the tutorials as pages, what each cell prints and draws below it.

Run `python docs/make_tutorials.py [names]` after a change of a tutorial; a test compares the pages with the cells.
Times in them are those of the machine that ran it last.
"""

from __future__ import annotations

import ast
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
PAGES = ROOT / "docs" / "tutorials"
MARK = "\x1e"
"""Between the outputs of cells."""
_MOST_LINES = 120
"""Lines of an output that a page shows."""


def cells(text: str) -> list[tuple[str, str]]:
    """The cells of a script in the percent format: `markdown` or `python`, and the text."""
    parts = re.split(r"^# %%(.*)\n", text, flags=re.MULTILINE)[1:]
    found = []
    for head, body in zip(parts[::2], parts[1::2], strict=True):
        if "[markdown]" in head:
            found.append(("markdown", "\n".join(line.removeprefix("#")[1:] for line in body.strip().splitlines())))
        else:
            found.append(("python", body.strip("\n")))
    return found


def run(script: Path) -> None:
    """Run a tutorial in this process as a script of that name, and print a mark after each cell."""
    text = script.read_text(encoding="utf-8")
    starts = [n for n, line in enumerate(text.splitlines(), 1) if line.startswith("# %%")]
    body = ast.parse(text).body
    main: dict[str, Any] = vars(sys.modules["__main__"])
    main |= {"__file__": str(script)}
    sys.path[0] = str(script.parent)
    for start, end in zip(starts, [*starts[1:], sys.maxsize], strict=True):
        if "[markdown]" in text.splitlines()[start - 1]:
            continue
        here = [node for node in body if start < node.lineno < end]
        exec(compile(ast.Module(here, []), str(script), "exec", dont_inherit=True), main)
        for drawn in sorted(Path().glob("*.svg")):
            if (ROOT / "docs" / "images" / drawn.name).exists():
                continue
            shutil.move(drawn, PAGES / f"{script.stem}-{drawn.name}")
            print(f"\x1d{script.stem}-{drawn.name}")
        print(end=MARK, flush=True)


def outputs(script: Path) -> list[str]:
    """What each code cell of a tutorial prints, in a folder and a store of its own."""
    with tempfile.TemporaryDirectory() as folder:
        environment = {
            **os.environ,
            "PYTHONPATH": str(ROOT),
            "COLUMNS": "110",
            "TENSORLANG_CACHE_DIR": f"{folder}/.cache",
        }
        done = subprocess.run(
            [sys.executable, __file__, "--run", str(script)],
            check=True,
            cwd=folder,
            env=environment,
            stdout=subprocess.PIPE,
            encoding="utf-8",
        )
        plain = done.stdout.replace(folder + "/", "").replace(str(ROOT) + "/", "")
    return plain.split(MARK)[:-1]


def page(script: Path, printed: list[str]) -> str:
    """A tutorial as Markdown."""
    return "\n\n".join(_parts(script, iter(printed))) + "\n"


def _parts(script: Path, printed: Iterator[str]) -> Iterator[str]:
    for kind, text in cells(script.read_text(encoding="utf-8")):
        if kind == "markdown":
            yield re.sub(r"\]\((\w+)\.py\)", r"](\1.md)", text.replace("](../docs/", "](../"))
            if text.startswith("# "):
                yield f"*This page is [tutorials/{script.name}](../../tutorials/{script.name}), as it ran.*"
            continue
        yield f"```python\n{text}\n```"
        shown = next(printed)
        words = "".join(line for line in shown.splitlines(keepends=True) if line[0] != "\x1d").strip("\n")
        lines = [line.rstrip() for line in words.splitlines()]
        if len(lines) > _MOST_LINES:
            lines = [*lines[:_MOST_LINES], f"... ({len(lines) - _MOST_LINES} lines more)"]
        if lines:
            yield "```text\n" + "\n".join(lines) + "\n```"
        for name in re.findall("\x1d(.*)", shown):
            yield f"![{Path(name).stem}]({name})"


def write(names: list[str]) -> None:
    """Write the pages of some tutorials, of all without names."""
    for script in sorted((ROOT / "tutorials").glob("*.py")):
        if not names or any(script.stem.startswith(name) for name in names):
            (PAGES / f"{script.stem}.md").write_text(page(script, outputs(script)), encoding="utf-8")


if __name__ == "__main__":
    if sys.argv[1:2] == ["--run"]:
        run(Path(sys.argv[2]))
    else:
        write(sys.argv[1:])
