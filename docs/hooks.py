"""What MkDocs shows besides docs/*.md: README, changelog, the API from its docstrings, and notebooks as they run.

Links between pages are written for a code host; those to files that are no pages lead to a copy of the file.
"""

from __future__ import annotations

import inspect
import posixpath
import re
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

from tensorlang.schedule.primitive import REGISTRY

ROOT = Path(__file__).parent.parent
COPIED = {"README.md": "index.md", "CHANGELOG.md": "CHANGELOG.md", "CONTRIBUTING.md": "CONTRIBUTING.md"}
"""Files beside docs/ that are pages."""
API = {
    "tensorlang": ("tensorlang",),
    "te": ("tensorlang.te", "tensorlang.te.hybrid"),
    "schedule": (
        "tensorlang.schedule:Schedule",
        "tensorlang.schedule:Stage",
        "tensorlang.schedule.explain:Explanation",
    ),
    "topi": ("tensorlang.topi", "tensorlang.topi.random", "tensorlang.topi.sparse", "tensorlang.topi.vision"),
    "autotune": ("tensorlang.autotune",),
    "networks": ("tensorlang.networks:Network", "tensorlang.networks:Model", "tensorlang.networks:DynamicModel"),
    "kernels": ("tensorlang.runtime.executable:Executable", "tensorlang.profiling.profile:Profile"),
    "targets": ("tensorlang.target",),
    "gguf": ("tensorlang.gguf",),
    "testing": ("tensorlang.testing",),
    "errors": ("tensorlang.errors",),
}
"""Pages of the API, and the modules and classes on them."""
_ELSEWHERE = {part.partition(":")[2] for parts in API.values() for part in parts if ":" in part}
"""Classes that are on a page of their own."""
FOLDERS = {"tutorials": "Tutorials", "notebooks": "Notebooks", "design": "Design notes"}


def on_config(config: Any) -> Any:
    """Put the files of folders into the navigation, in their order."""
    pages = {f"{folder}/": _listed(folder) for folder in FOLDERS}
    pages["api/"] = [f"api/{name}.md" for name in API]
    _fill(config.nav, pages)
    return config


def _listed(folder: str) -> list[str]:
    found = {
        path.with_suffix(".md").name for path in (ROOT / "docs" / folder).glob("*") if path.suffix in (".md", ".ipynb")
    }
    return [f"{folder}/{name}" for name in sorted(found)]


def _fill(nav: Any, pages: dict[str, list[str]]) -> None:
    for entry in nav:
        for title, value in entry.items():
            if isinstance(value, list):
                _fill(value, pages)
            elif value in pages:
                entry[title] = pages[value]


def on_files(files: Files, config: Any) -> Files:
    """Add the pages that are made."""
    for source, name in COPIED.items():
        files.append(File.generated(config, name, content=(ROOT / source).read_text(encoding="utf-8")))
    for name, parts in API.items():
        files.append(File.generated(config, f"api/{name}.md", content=api_page(name, parts)))
    for path in sorted((ROOT / "docs" / "notebooks").glob("*.ipynb")):
        files.append(File.generated(config, f"notebooks/{path.stem}.md", content=notebook_page(path)))
    return files


def on_page_markdown(markdown: str, *, page: Page, config: Any, files: Files) -> str:
    """Let links lead to pages of the site; a file that is none is copied beside them."""
    here = {to: of for of, to in COPIED.items()}.get(page.file.src_uri, f"docs/{page.file.src_uri}")

    def link(found: re.Match[str]) -> str:
        text, path, anchor = found.groups()
        goal = posixpath.normpath(posixpath.join(posixpath.dirname(here), path))
        name = COPIED.get(goal) or _page_of(goal, page.file.src_uri)
        if name is None:
            if (ROOT / goal).is_dir():
                goal = f"{goal}/README.md" if (ROOT / goal / "README.md").exists() else ""
            if not (ROOT / goal).is_file():
                return text if not goal else found[0]
            name = f"files/{goal}" + (".txt" if goal.endswith((".py", ".md")) else "")
            if files.get_file_from_path(name) is None:
                files.append(File.generated(config, name, content=(ROOT / goal).read_bytes()))
        return f"{text}({posixpath.relpath(name, posixpath.dirname(page.file.src_uri) or '.')}{anchor or ''})"

    return re.sub(r"(\[[^\[\]]*\])\(((?!\w+:|#)[^)#\s]+)(#[^)\s]*)?\)", link, markdown)


def _page_of(goal: str, asking: str) -> str | None:
    """The page of a file of the repository, or None."""
    if match := re.fullmatch(r"tutorials/(\w+)\.py", goal):
        name = f"tutorials/{match[1]}.md"
        return None if name == asking else name
    if goal.startswith("docs/") and (ROOT / goal).is_dir():
        return _listed(goal.removeprefix("docs/"))[0]
    return goal.removeprefix("docs/").replace(".ipynb", ".md") if goal.startswith("docs/") else None


def api_page(name: str, parts: tuple[str, ...]) -> str:
    """The reference of some modules and classes, from their docstrings."""
    return "\n\n".join([f"# {name}", *(text for part in parts for text in _part(part))]) + "\n"


def _part(part: str) -> Iterator[str]:
    path, _, attribute = part.partition(":")
    module = import_module(path)
    if attribute:
        yield from _class(attribute, getattr(module, attribute), 2)
        return
    yield _text(inspect.getdoc(module) or "")
    prefix = path.removeprefix("tensorlang.")
    families: dict[str, list[tuple[str, Any]]] = {}
    for name in sorted(n for n in dir(module) if not n.startswith("_")):
        value = getattr(module, name)
        if name in _ELSEWHERE:
            continue
        if inspect.isroutine(value) or inspect.isclass(value):
            families.setdefault(value.__module__, []).append((name, value))
    for family, members in sorted(families.items()):
        found = import_module(family)
        if len(families) > 3:
            yield f"## {(inspect.getdoc(found) or family).partition(chr(10))[0].rstrip('.').partition(': ')[0]}"
        for name, value in members:
            yield from _class(name, value, 3) if inspect.isclass(value) else _function(f"{prefix}.{name}", value, 3)


def _class(name: str, cls: type, level: int) -> Iterator[str]:
    yield f"{'#' * level} {name}"
    yield _text(inspect.getdoc(cls) or "")
    for member in sorted(n for n in dir(cls) if not n.startswith("_")):
        value = inspect.getattr_static(cls, member)
        if inspect.isfunction(value) and value.__module__.startswith("tensorlang"):
            yield from _function(f"{name}.{member}", value, level + 1)
        elif isinstance(value, property) and inspect.getdoc(value):
            yield f"`{name}.{member}`: {_text(inspect.getdoc(value) or '')}"


def _function(name: str, function: Any, level: int) -> Iterator[str]:
    yield f"{'#' * level} {name}"
    try:
        signature = re.sub(r"\btensorlang(\.\w+)*\.(\w+)", r"\2", str(inspect.signature(function)).replace("'", ""))
    except (TypeError, ValueError):
        signature = "(...)"
    yield f"```python\n{_broken(name + signature)}\n```"
    doc = inspect.getdoc(function) or ""
    primitive = REGISTRY.get(function.__name__) if name.startswith(("Stage", "Schedule")) else None
    yield _text(inspect.getdoc(primitive) or "" if primitive and ">>> " not in doc else doc)


def _broken(call: str) -> str:
    """A signature, a parameter a line where it is long."""
    if len(call) <= 90:
        return call
    head, _, rest = call.partition("(")
    inside, _, result = rest.rpartition(") -> ") if ") -> " in rest else (rest[:-1], "", "")
    parameters = re.split(r", (?=\*{0,2}\w+(?::|=|,|$)|[*/],)", inside)
    return f"{head}(\n    " + ",\n    ".join(parameters) + "\n)" + (f" -> {result}" if result else "")


def _text(doc: str) -> str:
    """A docstring as Markdown: examples are code, what is no markup is text."""
    plain = re.sub(r"(`[^`]*`)|<(?=[\w/])", lambda m: m[1] or "&lt;", doc)
    plain = re.sub(r"^(Rewrite|Legal when|Source|Note):", r"**\1:**", plain, flags=re.MULTILINE)
    plain = re.sub(r"^Example:$\n", "**Example:**\n\n", plain, flags=re.MULTILINE)

    def code(found: re.Match[str]) -> str:
        return f"```pycon\n{inspect.cleandoc(found[0])}\n```\n"

    return re.sub(r"^( *)>>> .*\n?(?:\1\S.*\n?|\1 .*\n?)*", code, plain, flags=re.MULTILINE)


def notebook_page(path: Path) -> str:
    """A notebook as Markdown, run here: an error in a cell ends the build."""
    import nbformat
    from nbclient import NotebookClient

    notebook = nbformat.read(path, as_version=4)
    NotebookClient(notebook, timeout=600, resources={"metadata": {"path": str(ROOT)}}).execute()
    parts: list[str] = []
    for cell in notebook.cells:
        parts.append(cell.source if cell.cell_type == "markdown" else f"```python\n{cell.source}\n```")
        parts += [_output(output) for output in cell.get("outputs", ())]
    parts.insert(1, f"*This page is [{path.name}]({path.name}), as it ran.*")
    return "\n\n".join(parts) + "\n"


def _output(output: Any) -> str:
    data = output.get("data", {})
    for kind in ("text/html", "image/svg+xml"):
        if kind in data:
            return f'<div class="output">{re.sub(chr(10) + "+", "&#10;", data[kind])}</div>'
    return f"```text\n{output.get('text') or data.get('text/plain', '')}\n```"
