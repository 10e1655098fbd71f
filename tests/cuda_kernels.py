"""Every CUDA kernel of a run, compiled by NVRTC: what tests print for a device, and what they lower for one.

Both are noticed where they are made: each text of a device program in CUDA C, for whatever target it was made, is
compiled once a run, at the end of the test that made it first. All architectures that have its instructions get it, by
day one of them where they make no difference to what NVRTC reads. A text that NVRTC refuses is an error of that test.
Programs of other processes (builders of tuners, tutorials) go unseen.
"""

from __future__ import annotations

import hashlib
import inspect
import os
import re
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import wraps
from pathlib import Path
from types import FunctionType
from typing import Any

import pytest

from tensorlang.errors import TargetError, TensorlangError
from tensorlang.ir.stmt import BoxCopy, CallMachine, DeviceKernel, Kernel, walk
from tensorlang.lowering import pipeline
from tensorlang.runtime.host_program import device_kernels
from tensorlang.target.c_source import kernel as printing
from tensorlang.target.c_source.dialect import CUDA, Dialect
from tensorlang.target.c_source.source import Module
from tensorlang.target.cuda import nvrtc
from tensorlang.target.cuda.intrinsics import check_machine_code
from tensorlang.target.cuda.nvrtc import Compiled, compile_cuda
from tensorlang.target.cuda.spills import compile_without_spills
from tests.profiles import NIGHTLY, is_optimised
from tests.target.cuda.compiled import ARCHITECTURES

_ASKED = re.compile(r"__CUDA_ARCH__ >= (\d+)")
_QUICK = ("--Ofast-compile=max",), (13, 0)
"""Options, and the oldest NVRTC that is known to take them."""
_MARKER = "not_for_nvrtc"
"""Marks tests whose texts are wrong on purpose; its argument is the reason."""


class CudaKernels:
    """A plugin of pytest. `folder` belongs to the run: a file for each text and architecture that one of its processes
    has compiled, with the number of kernels in it.
    """

    def __init__(self, folder: Path) -> None:
        folder.mkdir(exist_ok=True)
        self.folder = folder
        self.waiting: dict[str, Sequence[DeviceKernel]] = {}
        self._made: dict[tuple[int, ...], tuple[DeviceKernel, ...]] = {}
        self._printed: set[tuple[int, ...]] = set()

    def notice(self, kernels: Sequence[DeviceKernel], text: str | None = None) -> None:
        """Have kernels compiled when the running test ends: their text, which is printed then if nobody has before."""
        same = tuple(map(id, kernels))
        self._made[same] = tuple(kernels)  # and with them their ids
        if text is not None:
            self._printed.add(same)
            self.waiting.setdefault(text, tuple(kernels))

    def texts(self) -> Mapping[str, Sequence[DeviceKernel]]:
        """What waits, with the kernels that were lowered and that nobody printed; those CUDA C cannot say are left."""
        module_source = inspect.unwrap(printing.module_source)
        for same, kernels in self._made.items():
            if same not in self._printed:
                with suppress(TargetError):
                    self.waiting.setdefault(module_source(kernels, CUDA).text, kernels)
        self._made, self._printed = {}, set()
        return self.waiting

    def forget(self) -> None:
        """Let nothing wait."""
        self.waiting, self._made, self._printed = {}, {}, set()

    def compile(self) -> None:
        """Compile what waits and no process of the run has compiled; fails with the log of what NVRTC refuses."""
        waiting = self.texts()
        self.forget()
        for text, kernels in waiting.items():
            for arch in chosen(text, kernels):
                place = self.folder / f"{arch}-{hashlib.sha256(text.encode()).hexdigest()}"
                if not _claimed(place, len(kernels)):
                    continue
                try:
                    made = compiled(text, arch, kernels)
                except TensorlangError as error:
                    place.unlink()
                    pytest.fail(f"a device program of this test does not compile for {arch}: {error}", pytrace=False)
                if spilled := _spilled_products(kernels, made):
                    place.unlink()
                    pytest.fail(f"a product of this test spills on {arch}: {spilled}", pytrace=False)

    def counts(self) -> dict[str, tuple[int, int]]:
        """Texts and kernels compiled so far, by architecture."""
        texts: Counter[str] = Counter()
        kernels: Counter[str] = Counter()
        for place in self.folder.iterdir():
            arch = place.name.partition("-")[0]
            texts[arch] += 1
            kernels[arch] += int(place.read_text(encoding="utf-8"))
        return {arch: (texts[arch], kernels[arch]) for arch in ARCHITECTURES}

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_teardown(self, item: pytest.Item) -> Iterator[None]:
        """Compile what a test made, when all that it put in place of ours is gone."""
        result = yield
        if item.get_closest_marker(_MARKER):
            self.forget()
        elif nvrtc.is_available():
            self.compile()
        else:
            self.forget()
        return result

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Say how many there were."""
        if not nvrtc.is_available():
            terminalreporter.write_line("CUDA kernels were not compiled: no NVRTC (pip install nvidia-cuda-nvrtc)")
        elif any(texts for texts, _ in self.counts().values()):
            parts = [f"{kernels} for {arch} ({texts} texts)" for arch, (texts, kernels) in self.counts().items()]
            terminalreporter.write_line(f"CUDA kernels compiled by NVRTC: {', '.join(parts)}")


def architectures(kernels: Sequence[DeviceKernel]) -> tuple[str, ...]:
    """Those that have the instructions of all kernels; none where another machine's are among them."""
    codes = [s.code for kernel in kernels for s in walk(kernel.body) if isinstance(s, CallMachine)]
    if any(code.architecture != "cuda" for code in codes):
        return ()
    found = []
    for arch in ARCHITECTURES:
        with suppress(TargetError):
            check_machine_code(kernels, arch)
            found.append(arch)
    return tuple(found)


def chosen(text: str, kernels: Sequence[DeviceKernel]) -> tuple[str, ...]:
    """Those that a text is compiled for: by day the oldest alone, if it says the same to all and has no machine code.

    What differs is then the assembler's choice of registers, which counts for products on tensor cores only.
    """
    found = architectures(kernels)
    numbers = [10 * int(re.findall(r"\d+", arch)[0]) for arch in found]
    asked = [int(number) for number in _ASKED.findall(text)]
    same = all(len({number >= n for number in numbers}) == 1 for n in asked)
    return found if NIGHTLY or not same or _has_machine_code(kernels) else found[:1]


def compiled(text: str, arch: str, kernels: Sequence[DeviceKernel]) -> Compiled:
    """Compile a text: by day quickly, without most optimisations, if it has no machine code.

    Of those, three of four end where the assembler would begin.
    """
    if NIGHTLY or nvrtc.version() < _QUICK[1] or _has_machine_code(kernels):
        return compile_without_spills(text, arch)
    if is_optimised(text):
        return compile_cuda(text, arch, _QUICK[0])
    made = Compiled(text, arch, (*nvrtc.OPTIONS, "--minimal", *_QUICK[0]), b"", "")
    made.ptx()
    return made


def _has_machine_code(kernels: Sequence[DeviceKernel]) -> bool:
    return any(isinstance(s, CallMachine | BoxCopy) for kernel in kernels for s in walk(kernel.body))


def _spilled_products(kernels: Sequence[DeviceKernel], made: Compiled) -> str:
    """What the assembler says of kernels that spill although they multiply on tensor cores."""
    products = {
        kernel.name
        for kernel in kernels
        if any(isinstance(s, CallMachine) and "mma" in s.code.name for s in walk(kernel.body))
    }
    return "; ".join(str(k) for k in made.report.kernels if k.spills and k.name in products)


def watch(kernels: CudaKernels) -> None:
    """Have every module's printer and lowering tell of what they make."""
    module_source, lower_state, to_device = printing.module_source, pipeline.lower_state, pipeline.to_device

    @wraps(module_source)
    def printed(made: Sequence[DeviceKernel], dialect: Dialect) -> Module:
        found = module_source(made, dialect)
        kernels.notice(made, found.text if dialect is CUDA else None)
        return found

    def telling(lower: Callable[..., Kernel]) -> Callable[..., Kernel]:
        def lowered(*args: Any, **options: Any) -> Kernel:
            found = lower(*args, **options)
            if made := device_kernels(found):
                kernels.notice(made)
            return found

        # Warnings name the first line outside of the package, which is not to be this one.
        code = lowered.__code__.replace(co_filename=lower.__code__.co_filename)
        return wraps(lower)(FunctionType(code, globals(), closure=lowered.__closure__))

    _replace(module_source, printed)
    _replace(lower_state, telling(lower_state))
    _replace(to_device, telling(to_device))


def _replace(function: Callable[..., Any], by: Callable[..., Any]) -> None:
    """Put a function in place of another one in all modules there are."""
    for module in list(sys.modules.values()):
        for name, value in list(vars(module).items()):
            if value is function:
                setattr(module, name, by)


def _claimed(place: Path, kernels: int) -> bool:
    """Whether this process is the first to make a file."""
    try:
        handle = os.open(place, os.O_CREAT | os.O_EXCL | os.O_WRONLY)
    except FileExistsError:
        return False
    with os.fdopen(handle, "w") as file:
        file.write(str(kernels))
    return True
