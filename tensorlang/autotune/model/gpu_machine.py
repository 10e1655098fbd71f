"""What the estimate knows of GPUs: how fast each part is, by architecture.

Nominal figures of a usual product of each architecture, from the vendor's data sheets. They set the proportions of
arithmetic and traffic; the model learns what they miss from measurements of the run.
"""

from __future__ import annotations

from tensorlang.dataclass import dataclass
from tensorlang.target.gpus import multiprocessors
from tensorlang.target.spec import GpuLimits, Target


@dataclass(frozen=True, slots=True)
class GpuMachine:
    """Multiprocessors (`cores`), cycles a second, and what a core does in a cycle.

    `lanes`: multiply-adds of float32; `shared_bytes`: bytes of shared memory read; `memory` and `l2`: bytes a second of
    the whole device; `l2_size` in bytes. `limits` are those of blocks.
    """

    cores: int
    clock: float
    lanes: int
    memory: float
    l2: float
    l2_size: float
    limits: GpuLimits
    shared_bytes: int = 128

    @staticmethod
    def of(target: Target) -> GpuMachine:
        """The machine of a target; for devices that are not in the table a middling one."""
        limits = target.gpu or GpuLimits()
        row = _ROWS.get(target.architecture.rstrip("a"))
        return GpuMachine(multiprocessors(target) or _MIDDLING_CORES, *(row or _MIDDLING), limits)

    @property
    def flops(self) -> float:
        """Operations a second in float32, two for a multiply-add."""
        return 2.0 * self.cores * self.lanes * self.clock


_MB = float(1 << 20)
_ROWS: dict[str, tuple[float, int, float, float, float]] = {
    "sm_75": (1.59e9, 64, 320e9, 1.3e12, 4 * _MB),
    "sm_80": (1.41e9, 64, 1555e9, 4.5e12, 40 * _MB),
    "sm_86": (1.70e9, 128, 936e9, 2.5e12, 6 * _MB),
    "sm_87": (1.30e9, 128, 204e9, 0.6e12, 4 * _MB),
    "sm_89": (2.52e9, 128, 1008e9, 5.0e12, 72 * _MB),
    "sm_90": (1.83e9, 128, 3350e9, 5.5e12, 50 * _MB),
    "sm_100": (1.85e9, 128, 8000e9, 10e12, 126 * _MB),
    "sm_120": (2.41e9, 128, 1792e9, 8.0e12, 96 * _MB),
}
"""Of the products that `target.gpus.multiprocessors` names."""
_MIDDLING_CORES = 48
_MIDDLING = (1.5e9, 64, 500e9, 2e12, 4 * _MB)
