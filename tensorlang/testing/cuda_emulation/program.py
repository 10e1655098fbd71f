"""Run a device program on the CPU: its host part as it is, each of its launches as printed CUDA C on the emulation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import Any

import numpy as np
import numpy.typing as npt

from tensorlang import dtypes
from tensorlang.dataclass import dataclass
from tensorlang.errors import KernelError
from tensorlang.ir.stmt import Kernel
from tensorlang.runtime.host_program import Extents, host_program
from tensorlang.target.c_source import CUDA, Source, module_source
from tensorlang.testing.cuda_emulation.binary import TensorMap
from tensorlang.testing.cuda_emulation.runner import Mode, emulate


def emulate_program(
    kernel: Kernel,
    arrays: Mapping[str, npt.NDArray[Any]],
    sizes: Mapping[str, int] | None = None,
    *,
    mode: Mode = "late",
    seed: int = 0,
    arch: str = "sm_90a",
) -> None:
    """Run a lowered kernel whose loops over threads are launches; `arrays` are its params by name, changed in place.

    `sizes`: its sizes by name. The rest is as in `emulate`. Raises KernelError as `emulate` does, and for a fault that
    the program records.
    """
    program = host_program(kernel)
    sources = {source.name: source for source in module_source(program.kernels, CUDA).kernels}
    device = _Emulation(sources, mode, seed, arch)
    program(device, [arrays[p.name] for p in kernel.params], [(sizes or {})[v.name] for v in kernel.sizes])


@dataclass(slots=True)
class _Emulation:
    """The device of a host program."""

    sources: Mapping[str, Source]
    mode: Mode
    seed: int
    arch: str
    launches: int = field(default=0)

    def allocate(self, shape: tuple[int, ...], dtype: str) -> Any:
        """Scratch memory that begins as garbage."""
        made = np.empty(shape, dtypes.info(dtype).numpy)
        made.reshape(-1).view(np.uint8)[...] = 0xFF
        return made

    def free(self, array: Any) -> None:
        """Nothing: Python gives it back."""

    def launch(self, name: str, grid: Extents, block: Extents, arrays: Sequence[Any], scalars: Sequence[int]) -> None:
        """Emulate one kernel; the order of its threads is drawn anew in each launch."""
        source = self.sources[name]
        fault = np.zeros(1, np.int32)
        maps = [TensorMap(np.ascontiguousarray(arrays[m.param]), m.box, m.span) for m in source.maps]
        args = [*arrays, *scalars, *maps, *((fault,) if source.uses_fault else ())]
        dynamic = source.shared_bytes if source.dynamic else 0
        seed = self.seed * 1009 + self.launches
        emulate(source.text, name, grid, block, args, dynamic, mode=self.mode, seed=seed, arch=self.arch)
        self.launches += 1
        if fault[0]:
            raise KernelError(f"{name}: {source.messages[fault[0] - 1]}")
