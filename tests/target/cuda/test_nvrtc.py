"""NVRTC: cubins and logs for architectures, its refusals, and the disk cache."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tensorlang import config
from tensorlang.errors import InternalError, MissingDependency, TargetError
from tensorlang.target.cuda import nvrtc
from tensorlang.target.cuda.sass import disassembler, sass
from tests.target.cuda.compiled import check_compiles, compiled, needs_nvrtc

pytestmark = needs_nvrtc

ADD = 'extern "C" __global__ void add(float* x, int n) {\n  if (threadIdx.x < n) x[threadIdx.x] += 1.0f;\n}\n'
WRONG = 'extern "C" __global__ void wrong(float* x) {\n\n\n\n\n  x[0] = missing(x[0]);\n  x[1] = 1.0f;\n}\n'


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    with config.override(cache=True, cache_dir=tmp_path):
        yield tmp_path


def test_every_architecture_gets_machine_code_of_its_own() -> None:
    reports = check_compiles(ADD)
    assert {arch: report["add"].architecture for arch, report in reports.items()} == {
        "sm_80": "sm_80",
        "sm_90a": "sm_90a",
    }
    assert all(0 < report["add"].registers <= 32 and report.clean for report in reports.values())
    assert compiled(ADD, "sm_80").cubin != compiled(ADD, "sm_90a").cubin


def test_the_default_architecture_of_targets_is_one_of_nvrtc() -> None:
    assert {"sm_80", "sm_90", "sm_90a"} <= set(nvrtc.supported_architectures())
    assert "sm_80a" not in nvrtc.supported_architectures()
    assert nvrtc.version() >= (12, 0)


def test_only_a_newer_nvrtc_is_asked_to_leave_declarations_out(monkeypatch: pytest.MonkeyPatch) -> None:
    for number, wanted in (((12, 3), False), ((12, 4), True), ((13, 0), True)):
        monkeypatch.setattr(nvrtc, "version", lambda number=number: number)
        assert ("--minimal" in nvrtc.compile_cuda(ADD, "sm_80").options) == wanted


def test_names_are_those_of_the_kernels() -> None:
    assert compiled(ADD + ADD.replace("add", "sum"), "sm_80").names == ("sum", "add")


def test_ptx_is_made_when_it_is_asked_for() -> None:
    text = compiled(ADD, "sm_90a").ptx()
    assert ".target sm_90a" in text
    assert ".visible .entry add(" in text


def test_a_refused_text_is_a_bug_that_shows_its_lines() -> None:
    with pytest.raises(InternalError) as caught:
        nvrtc.compile_cuda(WRONG, "sm_80")
    text = str(caught.value)
    assert "NVRTC_ERROR_COMPILATION" in text
    assert 'kernel.cu(6): error: identifier "missing" is undefined' in text
    assert "    6    x[0] = missing(x[0]);\n    7    x[1] = 1.0f;" in text
    assert "    2  " not in text


def test_the_assembler_s_refusals_are_shown() -> None:
    large = 'extern "C" __global__ void large(float* x) { __shared__ float s[20000]; s[threadIdx.x] = x[1];'
    with pytest.raises(InternalError, match=r"large' uses too much shared data"):
        nvrtc.compile_cuda(f"{large} __syncthreads(); x[0] = s[threadIdx.x ^ 1]; }}", "sm_80")


def test_an_unknown_architecture_is_refused() -> None:
    with pytest.raises(TargetError, match=r"NVRTC .* has no architecture -arch=sm_20; it compiles for .*sm_90a"):
        nvrtc.compile_cuda(ADD, "sm_20")


def test_an_unknown_option_is_refused() -> None:
    with pytest.raises(TargetError, match=r"NVRTC refuses the options .*--fast-and-wrong"):
        nvrtc.compile_cuda(ADD, "sm_80", ("--fast-and-wrong",))


def test_options_reach_the_compiler() -> None:
    with pytest.raises(InternalError, match="defined on purpose"):
        nvrtc.compile_cuda("#ifdef WRONG\n#error defined on purpose\n#endif\n", "sm_80", ("-DWRONG",))


def test_code_is_kept_on_disk(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = nvrtc.compile_cuda(ADD, "sm_80")
    monkeypatch.setattr(nvrtc, "_compiled", lambda *_: pytest.fail("compiled again"))
    found = nvrtc.compile_cuda(ADD, "sm_80")
    assert found == made
    assert found.report["add"].registers == made.report["add"].registers > 0
    assert len(list(folder.iterdir())) == 1


@pytest.mark.parametrize(
    "change", [{"architecture": "sm_90"}, {"options": ("-lineinfo",)}, {"text": ADD.replace("1.0f", "2.0f")}]
)
def test_the_key_names_all_that_changes_code(folder: Path, change: dict[str, object]) -> None:
    given: dict[str, object] = {"text": ADD, "architecture": "sm_80", "options": ()}
    for arguments in (given, given | change):
        nvrtc.compile_cuda(**arguments)  # type: ignore[arg-type]
    assert len(list(folder.iterdir())) == 2


def test_the_key_names_the_compiler(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    nvrtc.compile_cuda(ADD, "sm_80")
    monkeypatch.setattr(nvrtc, "version", lambda: (99, 0))
    nvrtc.compile_cuda(ADD, "sm_80")
    assert len(list(folder.iterdir())) == 2


def test_without_nvrtc_the_message_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nvrtc, "_candidates", lambda: iter(("libnvrtc-of-nobody.so",)))
    with pytest.raises(MissingDependency, match=r"pip install 'tensorlang\[cuda\]'"):
        nvrtc._library.__wrapped__()


def test_the_wheel_is_looked_at_before_the_toolkit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "lib64").mkdir()
    (tmp_path / "lib64" / "libnvrtc.so.13").touch()
    monkeypatch.setenv("CUDA_PATH", str(tmp_path))
    found = list(nvrtc._candidates())
    assert found.index(str(tmp_path / "lib64" / "libnvrtc.so.13")) < found.index("libnvrtc.so.13")
    if importlib.util.find_spec("nvidia"):
        assert "site-packages" in found[0] or "dist-packages" in found[0]


@pytest.mark.skipif(disassembler() is None, reason="no nvdisasm: pip install nvidia-cuda-nvdisasm")
def test_declarations_beside_the_compiler_are_loaded_before_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("libnvrtc.so.13", "libnvrtc-builtins.so.13.0"):
        (tmp_path / name).touch()
    loaded: list[str] = []

    def load(path: str) -> Any:
        loaded.append(Path(path).name)
        return SimpleNamespace(nvrtcGetErrorString=SimpleNamespace())

    monkeypatch.setattr("ctypes.CDLL", load)
    monkeypatch.setattr(nvrtc, "_candidates", lambda: iter([str(tmp_path / "libnvrtc.so.13")]))
    nvrtc._library.__wrapped__()
    assert loaded == ["libnvrtc-builtins.so.13.0", "libnvrtc.so.13"]


def test_sass_shows_the_instructions() -> None:
    text = sass(compiled(ADD, "sm_80").cubin)
    assert ".text.add" in text
    assert "LDG.E" in text
    assert "FADD" in text


def test_sass_needs_the_disassembler(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tensorlang.target.cuda.sass.disassembler", lambda: None)
    with pytest.raises(TargetError, match="pip install nvidia-cuda-nvdisasm"):
        sass(b"")


@pytest.mark.skipif(disassembler() is None, reason="no nvdisasm: pip install nvidia-cuda-nvdisasm")
def test_what_is_no_cubin_is_refused() -> None:
    with pytest.raises(InternalError, match="cannot read a cubin"):
        sass(b"nothing")
