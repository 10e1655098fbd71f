"""What a target is, in auto_scheduler's words."""

from __future__ import annotations

from typing import Self

from tensorlang.dataclass import dataclass
from tensorlang.target.spec import Target


@dataclass(frozen=True, slots=True)
class HardwareParams:
    """Cores, bytes of vectors and of cache lines. The cores are the threads of a kernel; a target knows the rest."""

    num_cores: int | None = None
    vector_unit_bytes: int | None = None
    cache_line_bytes: int | None = None
    max_shared_memory_per_block: int | None = None
    max_local_memory_per_block: int | None = None
    max_threads_per_block: int | None = None
    max_vthread_extent: int | None = None
    warp_size: int | None = None
    target: Target | str | None = None
    target_host: Target | str | None = None

    @classmethod
    def of(cls, target: Target) -> Self:
        """Those of a target."""
        gpu = target.gpu
        return cls(
            num_cores=target.cores,
            vector_unit_bytes=target.vector_bytes,
            cache_line_bytes=64,
            max_shared_memory_per_block=None if gpu is None else gpu.shared_bytes,
            max_threads_per_block=None if gpu is None else gpu.max_threads,
            warp_size=None if gpu is None else target.thread_warp_size,
            target=target,
        )
