"""The net of CUDA kernels: nothing that is printed or lowered escapes it, and what NVRTC refuses fails a test."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import tensorlang
from tensorlang.ir.construct import array, store
from tensorlang.ir.stmt import CallMachine, DeviceKernel, MachineCode, Seq
from tensorlang.lowering import pipeline
from tensorlang.target.c_source import CUDA, OPENCL, device_source, kernel
from tensorlang.target.cuda import nvrtc
from tensorlang.target.cuda.nvrtc import Compiled
from tests import cuda_kernels
from tests.cuda_kernels import CudaKernels, architectures, chosen, compiled
from tests.programs import row_sum
from tests.target.c_source.device_programs import TX, device_kernel
from tests.target.cuda.compiled import ARCHITECTURES, needs_nvrtc

A = array("a", (8,))
RIGHT = device_kernel((A,), store(A, TX, 1.0), (), (8,), name="right")


def net_of(request: pytest.FixtureRequest) -> CudaKernels:
    """The net of this run."""
    found = [plugin for plugin in request.config.pluginmanager.get_plugins() if isinstance(plugin, CudaKernels)]
    assert len(found) == 1
    return found[0]


def machine(architecture: str, *features: str) -> DeviceKernel:
    """A kernel with machine code."""
    code = MachineCode("code", (), Seq(()), architecture, features)
    return device_kernel((A,), CallMachine(code, (), Seq(())), (), (32,))


def test_every_module_tells_what_it_makes() -> None:
    watched: tuple[Callable[..., Any], ...] = kernel.module_source, pipeline.lower_state, pipeline.to_device
    bare = [inspect.unwrap(function) for function in watched]
    assert not set(bare) & set(watched)
    for name, module in list(sys.modules.items()):
        held = [key for key, value in vars(module).items() if any(value is function for function in bare)]
        assert held == [], name


def test_what_is_printed_or_lowered_is_noticed(request: pytest.FixtureRequest) -> None:
    net = net_of(request)
    device_source(RIGHT, OPENCL)
    assert [text for text in net.texts() if " right(" in text]
    s, args = row_sum(7, 5)
    tensorlang.lower(s, args, target="interpreter", name="on_no_thread")
    s["B"].bind("i", "threadIdx.x")
    tensorlang.lower(s, args, target="interpreter", name="on_threads")
    assert [text for text in net.texts() if "on_threads_kernel0(" in text]
    assert not [text for text in net.texts() if "on_no_thread" in text]


@needs_nvrtc
def test_a_text_is_compiled_once_a_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    compiled: list[str] = []

    def compile_text(text: str, arch: str) -> Compiled:
        compiled.append(arch)
        return told(0)

    monkeypatch.setattr(cuda_kernels, "compile_without_spills", compile_text)
    for _ in range(2):  # two processes of a run
        net = CudaKernels(tmp_path)
        net.notice((RIGHT, machine("cuda", "sm_80")), "two kernels")
        net.compile()
    assert compiled == list(ARCHITECTURES)
    assert net.counts() == dict.fromkeys(ARCHITECTURES, (1, 2))


def told(spilled: int) -> Compiled:
    """What a compiler says of a kernel that keeps so many bytes in local memory."""
    lines = (
        "ptxas info    : Compiling entry function 'right' for 'sm_80'",
        "ptxas info    : Function properties for right",
        f"    0 bytes stack frame, {spilled} bytes spill stores, 0 bytes spill loads",
    )
    return Compiled("", "sm_80", (), b"", "\n".join(lines))


@needs_nvrtc
def test_only_products_on_tensor_cores_may_not_spill(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("compile_without_spills", "compile_cuda"):
        monkeypatch.setattr(cuda_kernels, name, lambda *_: told(8))
    monkeypatch.setattr(cuda_kernels, "is_optimised", lambda text: True)
    code = MachineCode("cuda.mma.m16n8k16.bf16", (), Seq(()), "cuda", ("sm_80",))
    product = device_kernel((A,), CallMachine(code, (), Seq(())), (), (32,), name="right")
    net = CudaKernels(tmp_path)
    net.notice((RIGHT,), "a kernel")
    net.compile()
    net.notice((product,), "a product")
    with pytest.raises(pytest.fail.Exception, match=r"spills on sm_80: right: .* 8 \+ 0 bytes spilled"):
        net.compile()


@needs_nvrtc
def test_what_nvrtc_refuses_fails_each_of_its_tests(tmp_path: Path) -> None:
    net = CudaKernels(tmp_path)
    for _ in range(2):
        net.notice((RIGHT,), "no C at all;")
        with pytest.raises(pytest.fail.Exception, match=r'compile for sm_80: [\s\S]*"no" is undefined'):
            net.compile()
    assert set(net.counts().values()) == {(0, 0)}


@pytest.mark.not_for_nvrtc("this text is no C at all")
def test_wrong_texts_are_let_through_where_they_are_meant(request: pytest.FixtureRequest) -> None:
    net_of(request).notice((RIGHT,), "no C at all;")


def test_kernels_are_for_the_architectures_that_have_their_instructions() -> None:
    assert architectures((RIGHT, machine("cuda", "sm_80"))) == ARCHITECTURES
    assert architectures((RIGHT, machine("cuda", "sm_89"))) == ("sm_90a",)
    assert architectures((machine("cuda", "sm_90a"),)) == ("sm_90a",)
    assert architectures((machine("x86", "avx2"), RIGHT)) == ()


@needs_nvrtc
def test_by_day_texts_without_machine_code_are_compiled_quickly(monkeypatch: pytest.MonkeyPatch) -> None:
    if nvrtc.version() < (13, 0):
        pytest.skip("this NVRTC may not know the option")
    monkeypatch.setattr(cuda_kernels, "NIGHTLY", False)
    text = device_source(RIGHT, CUDA).text
    for whole in (False, True):
        monkeypatch.setattr(cuda_kernels, "is_optimised", lambda text, whole=whole: whole)
        made = compiled(text, "sm_80", (RIGHT,))
        assert "--Ofast-compile=max" in made.options
        assert bool(made.cubin) == whole
    assert "--Ofast-compile=max" not in compiled(text, "sm_80", (RIGHT, machine("cuda", "sm_80"))).options
    monkeypatch.setattr(cuda_kernels, "NIGHTLY", True)
    assert "--Ofast-compile=max" not in compiled(text, "sm_80", (RIGHT,)).options


def test_by_day_one_architecture_will_do_where_a_text_tells_none_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cuda_kernels, "NIGHTLY", False)
    plain, told = "#if __CUDA_ARCH__ >= 800", "#if __CUDA_ARCH__ >= 890"
    assert [chosen(text, (RIGHT,)) for text in ("", plain, told)] == [("sm_80",), ("sm_80",), ARCHITECTURES]
    assert chosen(plain, (RIGHT, machine("cuda", "sm_80"))) == ARCHITECTURES
    assert chosen(told, (machine("cuda", "sm_90a"),)) == ("sm_90a",)
    monkeypatch.setattr(cuda_kernels, "NIGHTLY", True)
    assert chosen(plain, (RIGHT,)) == ARCHITECTURES
