"""What a target is: a frozen description, its text form, and its presets."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class GpuLimits:
    """Limits of a GPU: threads and shared bytes of a block, threads of a warp."""

    max_threads: int = 1024
    shared_bytes: int = 49152
    warp: int = 32


@dataclass(frozen=True, slots=True)
class Target:
    """A machine to compile for.

    `kind`: llvm or interpreter. `cpu` and `features` as LLVM spells them; `triple` empty for this machine.
    `vector_bytes`: widest vector register. `cores`: threads of a parallel loop. `caches`: bytes of L1, L2, L3.
    """

    kind: str
    triple: str = ""
    cpu: str = ""
    features: str = ""
    vector_bytes: int = 16
    vector_registers: int = 16
    cores: int = 1
    caches: tuple[int, ...] = field(default=(32768, 1048576, 33554432))
    gpu: GpuLimits | None = None

    def lanes(self, bits: int) -> int:
        """Elements of `bits` bits in one vector register."""
        return max(1, self.vector_bytes * 8 // bits)

    def __str__(self) -> str:
        options = [f"-mtriple={self.triple}"] if self.triple else []
        options += [f"-mcpu={self.cpu}"] if self.cpu else []
        return " ".join([self.kind, *options])
