"""The files of an exported kernel: headers that C and C++ read without a word, archives, linkers, metadata."""

from __future__ import annotations

import ctypes
import json
import platform
import shutil
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tensorlang
from tensorlang import te, tir
from tensorlang.errors import ArgumentError, TargetError
from tensorlang.export import linking
from tensorlang.export.archive import undefined
from tensorlang.export.words import c_names, c_type
from tensorlang.export.writing import NoLinker
from tests.export.exported import layer, rows

CC = shutil.which("cc")
needs_cc = pytest.mark.skipif(CC is None, reason="needs a C compiler")
PROGRAM = """
#include "rows.h"
#include "layer.h"
#include <stdio.h>
#include <stdlib.h>

static void in_turn(void *user, int64_t tasks, void (*task)(void *, int64_t, int64_t), void *arg) {
  for (int64_t k = 0; k < tasks; ++k) task(arg, k, tasks);
  *(int *)user += 1;
}

int main(void) {
  float a[6] = {1, 5, 2, 4, 4, 0}, out[6], x[48 * 64] = {0}, w[96 * 64] = {0}, b[96] = {1}, y[48 * 96];
  int calls = 0, code;
  tl_host host = {TL_HOST, 3, &calls, in_turn};
  int64_t size = rows_workspace_bytes(2, 3, 3);
  void *room = aligned_alloc(64, (size_t)size);
  code = rows_run(a, out, 2, 3, room, &host);
  free(room);
  if (code) return puts(rows_message(code)), 1;
  code = layer(x, w, b, y);
  if (code) return puts(layer_message(code)), 1;
  for (int k = 0; k < 6; ++k) printf("%g ", (double)out[k]);
  printf("%d %.4f %g\\n", calls, (double)y[96], (double)y[1]);
  return 0;
}
"""


@needs_cc
def test_two_kernels_in_one_program(tmp_path: Path) -> None:
    layer().export(tmp_path / "layer", formats=("o", "h"))
    rows().export(tmp_path / "rows", formats=("a", "h"))
    (tmp_path / "main.c").write_text(PROGRAM)
    assert CC is not None
    strict = [CC, "-std=c11", "-pedantic", "-Wall", "-Wextra", "-Wmissing-prototypes", "-Werror"]
    subprocess.run([*strict, "main.c", "layer.o", "rows.a", "-o", "main"], cwd=tmp_path, check=True)
    told = subprocess.run([tmp_path / "main"], capture_output=True, text=True, check=True).stdout
    assert told == f"{spelt()} 1 0.8413 0\n"


def spelt() -> str:
    """What `rows` makes of the array in the program."""
    a = np.array([[1, 5, 2], [4, 4, 0]], np.float32)
    below = a - a.max(axis=1, keepdims=True)
    return " ".join(f"{v:g}" for v in (below * below[:, ::-1]).ravel())


@pytest.mark.parametrize("language", ["c99", "c++11"])
def test_headers_are_plain(language: str, tmp_path: Path) -> None:
    compiler = shutil.which("c++" if "+" in language else "cc")
    if compiler is None:
        pytest.skip(f"needs a compiler for {language}")
    names = ("double", "double_", "class", "out")
    args = [te.placeholder((te.var("int"), 3), "float16" if n == "class" else "bool", name=n) for n in names[:3]]
    out = te.compute(args[0].shape, lambda i, j: te.all(args[0][i, j], args[1][i, j], args[2][i, j] > 0), name="out")
    kernel = tensorlang.build(te.create_schedule(out.op), [*args, out])
    header = kernel.export(tmp_path / "named", formats=("h",)).files["h"]
    source = tmp_path / ("a.cpp" if "+" in language else "a.c")
    source.write_text('#include "named.h"\n#include "named.h"\nint main(void) { return 0; }\n')
    strict = [f"-std={language}", "-pedantic", "-Wall", "-Wextra", "-Werror", "-fsyntax-only"]
    subprocess.run([compiler, *strict, str(source)], check=True)
    assert "const uint8_t *TL_RESTRICT double_," in header.read_text()
    assert "const uint16_t *TL_RESTRICT class_," in header.read_text()


def test_names_and_types() -> None:
    assert c_names(["a", "a", "2x", "_x", "__y", "x.y", "host"]) == ["a", "a_", "_2x", "_x", "y_", "x_y", "host_"]
    kinds = {"float32": "float", "float64": "double", "bfloat16": "uint16_t", "float8_e5m2": "uint8_t"}
    assert {dtype: c_type(dtype) for dtype in kinds} == kinds
    assert [c_type(d) for d in ("int8", "uint64", "bool")] == ["int8_t", "uint64_t", "uint8_t"]


@pytest.mark.parametrize("name", list(linking.LINKERS))
def test_every_linker_makes_the_same(name: str, tmp_path: Path) -> None:
    if linking.LINKERS[name]() is None:
        pytest.skip(f"needs {name}")
    made = rows().export(tmp_path / "rows", formats=("so",), linker=name, threads="openmp")
    assert b"libgomp.so.1\0" in made.files["so"].read_bytes()
    assert set(made.files) == {"json", "so"} and [p.name for p in sorted(tmp_path.iterdir())] == [
        "rows.json",
        "rows.so",
    ]
    made = rows().export(tmp_path / "rows", formats=("so",), linker=name)
    kernel = ctypes.CDLL(str(made.files["so"]))
    a, out = np.array([[1, 5, 2]], np.float32), np.zeros((1, 3), np.float32)
    places = [ctypes.c_void_p(v.ctypes.data) for v in (a, out)]
    assert kernel.rows(*places, ctypes.c_int64(1), ctypes.c_int64(3)) == 0
    np.testing.assert_array_equal(out, [[12, 0, 12]])


def test_without_a_linker_a_line_says_how(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(linking, "LINKERS", {"cc": lambda: None})
    with pytest.warns(NoLinker, match=r"cc -shared -o rows.so rows.o -lgomp .*tensorlang\[export\]") as told:
        made = rows().export(tmp_path / "rows", formats=("so",), threads="openmp")
    assert set(made.files) == {"o", "a", "h", "json"} and made.note in str(made)
    assert told[0].filename == __file__
    with pytest.raises(TargetError, match="linker cc is not here"):
        rows().export(tmp_path / "rows", linker="cc")


def test_metadata(tmp_path: Path) -> None:
    made = rows().export(tmp_path / "rows")
    known: dict[str, Any] = json.loads(made.files["json"].read_text())
    assert known["arguments"] == [
        {"name": "a", "dtype": "float32", "shape": ["m", "n"], "written": False},
        {"name": "back", "dtype": "float32", "shape": ["m", "n"], "written": True},
    ]
    assert set(known["sizes"]) == {"m", "n"} and known["threads"] == "host"
    (variant,) = known["variants"]
    assert variant["verdict"] == {"legal": True, "for": "all sizes"}
    assert "s['back'].parallel('i')" in variant["schedule"] and "back" in known["program"]["text"]
    library = ctypes.CDLL(str(made.files["so"]))
    library.rows_metadata.restype = ctypes.c_char_p
    inside = json.loads(library.rows_metadata())
    assert inside == {k: v for k, v in known.items() if k not in ("imports", "libraries", "sha256")}
    assert set(known["imports"]) <= {"aligned_alloc", "free", "memset", "memcpy"} and known["libraries"] == []


def test_what_c_gives_is_listed(tmp_path: Path) -> None:
    a = te.placeholder((8,), name="a")
    out = te.compute((8,), lambda i: te.fmod(a[i], te.const(3.0)), name="out")
    made = tensorlang.build(te.create_schedule(out.op), [a, out]).export(tmp_path / "rest")
    known = json.loads(made.files["json"].read_text())
    assert known["libraries"] == ["m"] and "fmodf" in undefined(made.files["o"].read_bytes())
    assert b"libm.so.6\0" in made.files["so"].read_bytes()
    values, found = np.linspace(0, 7, 8, dtype=np.float32), np.zeros(8, np.float32)
    assert (
        ctypes.CDLL(str(made.files["so"])).rest(ctypes.c_void_p(values.ctypes.data), ctypes.c_void_p(found.ctypes.data))
        == 0
    )
    np.testing.assert_array_equal(found, np.fmod(values, 3))


def test_wrong_words(tmp_path: Path) -> None:
    for how, words in (
        ({"formats": ("dll",)}, "formats has 'dll'; there are so, o, a, h"),
        ({"threads": "pool"}, "threads has 'pool'; there are host, openmp, serial"),
        ({"faces": ("c", "rust")}, "faces has 'rust'"),
    ):
        with pytest.raises(ArgumentError, match=words):
            rows().export(tmp_path / "rows", **how)
    for name in ("2rows", "my-rows", "double", "main", "rows.v2"):
        with pytest.raises(ArgumentError, match="name the file with"):
            rows().export(tmp_path / name)
    with pytest.raises(TargetError, match="unknown linker 'gold'"):
        rows().export(tmp_path / "rows", linker="gold")
    with pytest.raises(TargetError, match="for CPUs"):
        a = te.placeholder((8,), name="a")
        out = te.compute((8,), lambda i: a[i] + 1, name="out")
        tensorlang.build([a, out], schedule="default", target="interpreter").export(tmp_path / "rows")
    assert not list(tmp_path.iterdir())


TWICE = """
define float @twice(float %x) {
  %y = fadd float %x, %x
  ret float %y
}
"""


@pytest.mark.parametrize(("called", "source", "externs"), [("cbrtf", "", ["cbrtf"]), ("twice", TWICE, [])])
def test_c_functions_that_are_called_by_name(called: str, source: str, externs: list[str], tmp_path: Path) -> None:
    a = te.placeholder((8,), name="a")
    out = te.compute((8,), lambda i: a[i] + a[i] if source else te.power(a[i], 1 / 3), name="out")

    def body(ins: Any, outs: Any) -> Any:
        ib = tir.ir_builder.create()
        data, made = ib.buffer_ptr(ins[0]), ib.buffer_ptr(outs[0])
        with ib.for_range(0, 8) as i:
            made[i] = tir.call_extern("float32", called, data[i])
        return ib.get()

    s = te.create_schedule(out.op)
    s[out].tensorize(out.op.axis[0], te.decl_tensor_intrin(out.op, body, f"by_{called}", source=source))
    levels = ("haswell", "nehalem") if platform.machine() == "x86_64" else ()
    made = tensorlang.build(s, [a, out]).export(tmp_path / "named", isas=levels)
    known = json.loads(made.files["json"].read_text())
    assert known["externs"] == externs and known["libraries"] == (["m"] if externs else [])
    assert ("Calls C functions that you link to it: cbrtf." in made.files["h"].read_text()) is bool(externs)
    values, found = np.arange(8, dtype=np.float32), np.zeros(8, np.float32)
    tensorlang.load(made.files["so"])(values, found)
    np.testing.assert_allclose(found, values * 2 if source else np.cbrt(values), rtol=1e-6)
