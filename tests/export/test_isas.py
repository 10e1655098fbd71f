"""Several instruction sets in one file, CMake packages, and the C program that tests a kernel on stored arrays."""

from __future__ import annotations

import json
import platform
import shutil
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tensorlang
from tensorlang import dtypes, te
from tensorlang.errors import ArgumentError, TargetError
from tensorlang.export.loading import prove
from tests.export.exported import layer, narrow, rows

CC, CMAKE, EMULATOR = (shutil.which(name) for name in ("cc", "cmake", "qemu-x86_64"))
needs_cc = pytest.mark.skipif(CC is None, reason="needs a C compiler")
on_x86 = pytest.mark.skipif(platform.machine() != "x86_64", reason="several instruction sets are for x86-64")
LEVELS = ("x86-64-v2", "x86-64-v4", "x86-64-v3")


def given() -> list[Any]:
    rng = np.random.default_rng(3)
    return [rng.standard_normal(shape, np.float32) for shape in ((48, 64), (96, 64), (96,), (48, 96))]


def program(folder: Path, name: str) -> Path:
    """The C test of a kernel, compiled without a warning."""
    strict = ["-std=c99", "-pedantic", "-Wall", "-Wextra", "-Wmissing-prototypes", "-Werror", "-O1"]
    out = folder / f"{name}_test"
    subprocess.run([str(CC), *strict, f"{name}_test.c", f"{name}.a", "-lm", "-o", out], cwd=folder, check=True)
    return out


@pytest.fixture(scope="module")
def several(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("several")
    layer().export(folder / "layer", formats=("so", "cmake", "c"), isas=LEVELS, check=given())
    return folder


@on_x86
def test_the_best_that_runs_is_taken(several: Path) -> None:
    known = json.loads((several / "layer.json").read_text())
    assert [v["cpu"] for v in known["variants"]] == ["x86-64-v4", "x86-64-v3", "x86-64-v2"]
    assert [v["multiply_add"] for v in known["variants"]] == ["fused", "fused", "in two steps"]
    assert len({v["schedule"] for v in known["variants"]}) == 3  # the library's for each machine
    assert [str(p.target) for p in prove(several / "layer.json")] == [
        f"llvm -mcpu={v['cpu']}" for v in known["variants"]
    ]
    *inputs, out = given()
    wanted = out.copy()
    tensorlang.load(several / "layer.so")(*inputs, out)
    layer()(*inputs, wanted)
    np.testing.assert_allclose(out, wanted, rtol=1e-5, atol=1e-5)


@on_x86
@needs_cc
@pytest.mark.skipif(EMULATOR is None, reason="needs qemu-user")
def test_old_cpus_have_theirs(several: Path) -> None:
    runs = program(several, "layer")
    for cpu, code, words in (("core2duo", 1, "none of the instruction sets"), ("Nehalem", 0, ""), ("Haswell", 0, "")):
        done = subprocess.run(
            [str(EMULATOR), "-cpu", cpu, runs, several, "0"], capture_output=True, text=True, check=False
        )
        assert done.returncode == code and words in done.stderr, (cpu, done)


@needs_cc
def test_the_program_finds_what_is_wrong(several: Path) -> None:
    runs = program(several, "layer")
    right = subprocess.run([runs, several, "0.02"], capture_output=True, text=True, check=True).stdout
    assert right.startswith("layer: as expected, ") and "us of one CPU a call" in right
    wanted = several / "layer_data/wanted_made_gelu.bin"
    values = np.fromfile(wanted, np.float32)
    values[5] += 1
    wanted.write_bytes(values.tobytes())
    done = subprocess.run([runs, several, "0"], capture_output=True, text=True, check=False)
    assert done.returncode == 1 and "[5] is " in done.stderr and "1 elements are wrong" in done.stderr


@needs_cc
def test_the_program_reads_every_dtype(tmp_path: Path) -> None:
    kernel, arrays = narrow()
    kernel.export(tmp_path / "narrow", formats=("c",), check=arrays)
    runs = program(tmp_path, "narrow")
    assert "as expected" in subprocess.run([runs, tmp_path, "0"], capture_output=True, text=True, check=True).stdout
    for name in ("float16", "bfloat16", "float8_e4m3fn", "float8_e5m2", "int8", "bool"):
        wanted = tmp_path / f"narrow_data/wanted_made_as_{name}.bin"
        right = wanted.read_bytes()
        values = np.frombuffer(right, dtypes.info(name).numpy).copy()
        values[3] = 0
        wanted.write_bytes(values.tobytes())
        done = subprocess.run([runs, tmp_path, "0"], capture_output=True, text=True, check=False)
        assert done.returncode == 1 and f"made_as_{name}[3] is " in done.stderr
        wanted.write_bytes(right)


@needs_cc
@pytest.mark.skipif(CMAKE is None, reason="needs CMake")
def test_cmake_package(several: Path, tmp_path: Path) -> None:
    (tmp_path / "main.cpp").write_text(
        '#include "layer.h"\n#include <vector>\n'
        "int main() {\n"
        "  std::vector<float> x(48 * 64, 0.5f), w(96 * 64, 0.25f), b(96, 1), y(48 * 96);\n"
        "  if (layer(x.data(), w.data(), b.data(), y.data())) return 1;\n"
        "  for (float v : y) if (v != 9) return 2;\n"
        "}\n"
    )
    (tmp_path / "CMakeLists.txt").write_text(
        "cmake_minimum_required(VERSION 3.13)\nproject(uses CXX)\nfind_package(layer CONFIG REQUIRED)\n"
        "add_executable(uses main.cpp)\ntarget_link_libraries(uses layer::layer)\n"
    )
    for words in ([f"-Dlayer_DIR={several}", "-S", ".", "-B", "build"], ["--build", "build"]):
        subprocess.run([str(CMAKE), *words], cwd=tmp_path, check=True, capture_output=True)
    subprocess.run([tmp_path / "build/uses"], check=True)


@on_x86
def test_what_cannot_run_is_left_out(tmp_path: Path) -> None:
    a = te.placeholder((8,), "float16", name="a")
    out = te.compute((8,), lambda i: a[i] + a[i], name="out")
    kernel = tensorlang.build([a, out], schedule="default")
    made = kernel.export(tmp_path / "half", formats=("h",), isas=("x86-64-v2", "x86-64-v3"))
    assert made.note.startswith("left out x86-64-v2: ") and "f16c" in made.note
    assert list(json.loads(made.files["json"].read_text())["left_out"]) == ["x86-64-v2"]
    with pytest.raises(TargetError, match="none of x86-64-v2 can run"):
        kernel.export(tmp_path / "half", isas=("x86-64-v2",))


def test_wrong_names(tmp_path: Path) -> None:
    with pytest.raises(ArgumentError, match=r"write isas=\('haswell',\)"):
        rows().export(tmp_path / "rows", isas="haswell")
    with pytest.raises(TargetError, match="unknown CPU"):
        rows().export(tmp_path / "rows", isas=("x86-64-v9",))
    with pytest.raises(TargetError, match="of one architecture"):
        rows().export(tmp_path / "rows", isas=("haswell", "cortex-a76"))
    with pytest.raises(ArgumentError, match="give the arrays of a call"):
        rows().export(tmp_path / "rows", formats=("c",))
