"""A kernel as a module of classic te's runtime: its function by name, and files that hold it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from tensorlang.errors import TargetError
from tensorlang.files import writing

if TYPE_CHECKING:
    from tensorlang.runtime.executable import Executable

MAIN = "main"
"""The name of a kernel that was given none; in a library it is `main_`."""
_LIBRARIES = {".so": "so", ".o": "o", ".a": "a"}
_TEXTS = {".ll": "ll", ".s": "asm"}


class ClassicModule:
    """The methods of a kernel by their names in classic te."""

    __slots__ = ()

    @property
    def entry_func(self) -> ClassicModule:
        """The function: the kernel itself."""
        return self

    @property
    def type_key(self) -> str:
        """The kind of the target."""
        target: Any = self.target  # type: ignore[attr-defined]
        return str(target.kind)

    def get_function(self, name: str, query_imports: bool = False) -> Executable:
        """The function of a name; KeyError when the kernel has another one."""
        found: Executable = self[name]  # type: ignore[index]
        return found

    def export_library(
        self, file_name: str | Path, fcompile: Any = None, addons: Any = None, workspace_dir: str | None = None
    ) -> Path:
        """Write the kernel to a shared library (`.so`), an object (`.o`) or an archive (`.a`), under its own name.

        `tensorlang.runtime.load_module` loads a shared library again; `export` writes more, for those who call C. What
        else classic te takes is accepted. TargetError for another kind of file, for a kernel of a GPU, and where there
        is no linker.
        """
        path = Path(file_name)
        if path.suffix not in _LIBRARIES:
            raise TargetError(f"export_library writes {', '.join(_LIBRARIES)}, got {path.name}")
        kernel: Any = self
        import shutil
        import tempfile

        with tempfile.TemporaryDirectory() as folder:
            name = (
                f"{MAIN}_" if kernel.entry_name == MAIN else kernel.entry_name
            )  # a program in C has a main of its own
            written = Path(folder, f"{name}{path.suffix}")
            kernel.export(written.with_suffix(""), formats=(_LIBRARIES[path.suffix],))
            if not written.exists():
                raise TargetError(f"{path.name} takes a linker, and there is none; pip install 'tensorlang[export]'")
            with writing(path):
                path.parent.mkdir(parents=True, exist_ok=True)
                shutil.move(written, path)
        return path

    def save(self, file_name: str | Path, fmt: str = "") -> None:
        """Write the text of the kernel (`.ll`, `.s`), or what `export_library` writes; TargetError for another kind."""
        path = Path(file_name)
        suffix = f".{fmt}" if fmt else path.suffix
        if suffix in _TEXTS:
            source: Any = self.source  # type: ignore[attr-defined]
            with writing(path):
                path.write_text(source(_TEXTS[suffix]), encoding="utf-8")
        else:
            self.export_library(path)
