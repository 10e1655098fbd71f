"""A CUDA device on the CPU: the fake CuPy, whose kernels are the CUDA text itself, run by the emulation.

All else is as on a machine with a GPU: NVRTC compiles, `build`, calls, graphs, timers and the tuner's processes do what
they do there. The fixture is `emulated_cuda`. Its clock counts the seconds of the emulation: no time of any GPU.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from tensorlang import config
from tensorlang.autotune.measuring import jobs
from tensorlang.target.c_source.source import BoxMap
from tensorlang.target.cuda import nvrtc, runtime
from tensorlang.target.cuda.nvrtc import Compiled, compile_cuda
from tensorlang.testing.cuda_emulation import TensorMap, emulate, runner, unavailable
from tensorlang.testing.cuda_emulation.runner import Mode, prepare
from tests.target.cuda.fake_cupy import FakeArray, FakeCupy, FakeFunction, FakeModule, FakeStream, Reported

_ROOT = Path(__file__).parents[3]
_TEXT = b"\0the CUDA text:\0"
_ALLOWED_SHARED = 48 * 1024
_INVALID_VALUE = 1


def why_not() -> str:
    """Why nothing can be emulated here; empty when it can."""
    return unavailable() or ("" if nvrtc.is_available() else "no NVRTC: pip install nvidia-cuda-nvrtc")


class EmulatedCupy(FakeCupy):
    """The module `cupy` of a machine with these devices. `mode` and `seed` are those of `emulate`."""

    def __init__(self, capabilities: Sequence[str] = ("90",), mode: Mode = "late", seed: int = 0) -> None:
        super().__init__(capabilities)
        self.mode, self.seed, self.launches = mode, seed, 0
        self.allowed: dict[Any, int] = {}
        self.cuda.function.Module = lambda: EmulatedModule(self)
        self.cuda.driver.funcSetAttribute = lambda function, what, amount: self.allowed.update({function: amount})
        self.cuda.Stream.null = FakeStream(self, 0)

    def asarray(self, value: Any) -> FakeArray:
        """A copy of what is in the memory of the CPU, on the current device; a view of all else."""
        if isinstance(value, np.ndarray):
            return self.array(value, self.cuda.runtime.getDevice())
        return super().asarray(value)


class EmulatedModule(FakeModule):
    """A module that runs the text which its cubin was compiled from."""

    text = ""

    def load(self, cubin: bytes) -> None:
        super().load(cubin)
        self.text = cubin.partition(_TEXT)[2].decode()

    def get_function(self, name: str) -> FakeFunction:
        assert isinstance(self._cupy, EmulatedCupy)
        return EmulatedFunction(self._cupy, name, self.text)


class EmulatedFunction(FakeFunction):
    """A kernel of a text. What it does wrong is a KernelError of the emulation, and of the launch."""

    def __init__(self, cupy: EmulatedCupy, name: str, text: str) -> None:
        super().__init__(cupy, name)
        self.ptr = (name, id(self))
        self._emulated, self._name, self._text = cupy, name, text

    def compute(self, grid: Any, block: Any, shared: int, arguments: Sequence[npt.NDArray[Any] | np.generic]) -> float:
        """Milliseconds that the emulation of one launch took."""
        device = self._emulated
        if shared > device.allowed.get(self.ptr, _ALLOWED_SHARED):
            raise Reported(_INVALID_VALUE)
        arch = runtime.architecture_of(device.cuda.runtime.getDevice())
        device.launches += 1
        seed = device.seed * 1009 + device.launches
        begin = time.perf_counter()
        emulate(self._text, self._name, grid, block, arguments, shared, mode=device.mode, seed=seed, arch=arch)
        return (time.perf_counter() - begin) * 1e3


def compile_with_text(text: str, architecture: str, options: Sequence[str] = ()) -> Compiled:
    """What NVRTC makes of a text, which follows the machine code wherever that goes."""
    code = compile_cuda(text, architecture, options)
    prepare(text, architecture)  # in the time of a build, and of no launch
    return replace(code, cubin=code.cubin + _TEXT + text.encode())


def map_of(array: FakeArray, boxes: BoxMap) -> TensorMap:
    """A tensor map as the emulation takes it."""
    return TensorMap(array.memory, boxes.box, boxes.span)


@dataclass(frozen=True, slots=True)
class Job:
    """A job of a tuner's process, which has the device of the process that tunes, and what that has compiled ahead."""

    function: Callable[[Any], Any]
    capabilities: tuple[str, ...]
    mode: Mode
    seed: int
    cache: str = field(default_factory=lambda: str(config.get("cache_dir")))

    def __call__(self, job: Any) -> Any:
        """Run it."""
        _in_this_process(self.capabilities, self.mode, self.seed, self.cache)
        return self.function(job)


@cache
def _in_this_process(capabilities: tuple[str, ...], mode: Mode, seed: int, cache: str) -> EmulatedCupy:
    """A device for good: a worker has no other."""
    patch, made = pytest.MonkeyPatch(), getattr(runner, "_made")  # noqa: B009
    patch.setattr(runner, "_made", config.override(cache=True, cache_dir=cache)(made))
    return install(patch, EmulatedCupy(capabilities, mode, seed))


def install(patch: pytest.MonkeyPatch, device: EmulatedCupy) -> EmulatedCupy:
    """Let tensorlang take the device for that of this machine, in this process and in those of its tuners."""
    patch.setattr(runtime, "cupy", lambda: device)
    for module in list(sys.modules.values()):
        if module.__name__ != __name__ and getattr(module, "compile_cuda", None) is compile_cuda:
            patch.setattr(module, "compile_cuda", compile_with_text)
    patch.setattr("tensorlang.target.cuda.launch.map_of", map_of)
    for function in (jobs.build_candidate, jobs.run_candidate, jobs.compare_with_numpy):
        job = Job(function, tuple(device.capabilities), device.mode, device.seed)
        patch.setattr(f"tensorlang.autotune.measuring.measurer.{function.__name__}", job)
    patch.setenv("PYTHONPATH", str(_ROOT), prepend=os.pathsep)
    return device
