"""`tvm.contrib.clang`: LLVM IR of C code, for the pragma `import_llvm`."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from tensorlang.errors import TargetError
from tensorlang.files import is_file


def find_clang(required: bool = True) -> list[str]:
    """Return the clang of this machine, if there is one; TargetError when it is required."""
    found = shutil.which("clang")
    if found is None and required:
        raise TargetError("there is no clang on this machine, which makes LLVM IR of C code; install it")
    return [found] if found else []


def create_llvm(
    inputs: str | Sequence[str],
    output: str | None = None,
    options: Sequence[str] | None = None,
    cc: str | None = None,
) -> str:
    """Return the LLVM IR of C code, or of files of it, written to `output` if asked for; TargetError without clang."""
    compiler = [cc] if cc else find_clang()
    with TemporaryDirectory() as folder:
        files = []
        for number, code in enumerate([inputs] if isinstance(inputs, str) else inputs):
            path = Path(code) if "\n" not in code and is_file(code) else Path(folder) / f"code{number}.cc"
            if path.parent == Path(folder):
                path.write_text(code, encoding="utf-8")
            files.append(str(path))
        made = Path(output) if output else Path(folder) / "code.ll"
        command = [*compiler, "-O3", "-emit-llvm", "-S", *(options or ()), "-o", str(made), *files]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise TargetError(f"clang refused the code:\n{done.stdout}{done.stderr}")
        return made.read_text(encoding="utf-8")
