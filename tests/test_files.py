"""Names of files that are too long for the system: refused in one line, by the library and by the command line."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest

import tensorlang
from tensorlang import autotune, te, topi
from tensorlang.cli.main import main
from tensorlang.errors import TensorlangError
from tensorlang.files import exists, is_file, is_folder, writing

LONG = "x" * 300


@cache
def kernel() -> Any:
    a = te.placeholder((4,), name="a")
    b = topi.relu(a)
    return tensorlang.build(topi.schedule(b, "llvm"), [a, b])


def test_nothing_has_a_name_that_is_too_long(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.touch()
    assert exists(file) and is_file(file) and not is_folder(file) and is_folder(tmp_path)
    assert not any(there(tmp_path / LONG) for there in (exists, is_file, is_folder))
    with pytest.raises(OSError, match="too long"):
        (tmp_path / LONG).exists()


def test_what_cannot_be_written_is_named(tmp_path: Path) -> None:
    with writing(tmp_path / "file"):
        (tmp_path / "file").touch()
    with pytest.raises(TensorlangError, match=r"cannot write .*/file/inner: Not a directory"), writing("a/file/inner"):
        (tmp_path / "file" / "inner").touch()


READERS: dict[str, tuple[Callable[[str], Any], str]] = {
    "compile": (lambda path: tensorlang.compile(f"{path}.onnx"), "there is no file"),
    "compile_dynamic": (lambda path: tensorlang.compile_dynamic(f"{path}.onnx"), "there is no file"),
    "from_onnx": (lambda path: tensorlang.from_onnx(f"{path}.onnx"), "there is no file"),
    "load": (tensorlang.load, "no such file"),
    "apply_history_best": (autotune.apply_history_best, "no such log|cannot read"),
    "read_log": (autotune.read_log, r"cannot read .*: File name too long"),
}
WRITERS: dict[str, Callable[[Any, str], Any]] = {
    "export": lambda made, path: made.export(path, formats=("o",)),
    "export_library": lambda made, path: made.export_library(f"{path}.o"),
    "save": lambda made, path: made.save(f"{path}.ll"),
}


@pytest.mark.parametrize("name", READERS)
def test_reading(name: str, tmp_path: Path) -> None:
    call, text = READERS[name]
    with pytest.raises(TensorlangError, match=text):
        call(str(tmp_path / LONG))


@pytest.mark.parametrize("name", WRITERS)
def test_writing(name: str, tmp_path: Path) -> None:
    with pytest.raises(TensorlangError, match=r"cannot write .*: File name too long"):
        WRITERS[name](kernel(), str(tmp_path / LONG))
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    "arguments",
    [
        *(
            ("compile", f"{LONG}.onnx", "-o", "x"),
            ("run", f"{LONG}.onnx"),
            ("bench", f"{LONG}.onnx"),
            ("inspect", f"{LONG}.onnx"),
        ),
        *(("tune", f"{LONG}.py:f"), ("check", f"{LONG}.py"), ("check", LONG), ("profile", f"{LONG}.py:f")),
        ("export", f"{LONG}.py:f", "-o", "x"),
        *(("log", "best", LONG), ("explain", LONG), ("report", LONG), ("lower", f"{LONG}.py:f")),
    ],
    ids=lambda words: words[0],
)
def test_command_lines(arguments: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(list(arguments))
    err = capsys.readouterr().err
    assert ended.value.code == 2
    assert err.startswith("error: ") and err.count("\n") == 1 and "xxx" in err
