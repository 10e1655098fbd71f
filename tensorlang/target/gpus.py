"""GPUs by the names of their architectures, with what a block of threads may use there."""

from __future__ import annotations

from tensorlang.target.spec import GpuLimits, Target

_KB = 1024


def _cuda(
    shared: int, threads_per_core: int, blocks_per_core: int, shared_per_core: int, *, bulk: bool = False
) -> GpuLimits:
    return GpuLimits(
        shared_bytes=shared * _KB,
        registers=65536,
        threads_per_core=threads_per_core,
        blocks_per_core=blocks_per_core,
        shared_per_core=shared_per_core * _KB,
        bulk_copies=bulk,
    )


CUDA: dict[str, GpuLimits] = {
    "sm_75": _cuda(64, 1024, 16, 64),
    "sm_80": _cuda(163, 2048, 32, 164),
    "sm_86": _cuda(99, 1536, 16, 100),
    "sm_87": _cuda(163, 1536, 16, 164),
    "sm_89": _cuda(99, 1536, 24, 100),
    "sm_90": _cuda(227, 2048, 32, 228, bulk=True),
    "sm_90a": _cuda(227, 2048, 32, 228, bulk=True),
    "sm_100": _cuda(227, 2048, 32, 228, bulk=True),
    "sm_100a": _cuda(227, 2048, 32, 228, bulk=True),
    "sm_120": _cuda(99, 1536, 24, 100, bulk=True),
    "sm_120a": _cuda(99, 1536, 24, 100, bulk=True),
}
"""CUDA architectures: CUDA C++ Programming Guide, technical specifications per compute capability."""

_MULTIPROCESSORS = {
    "sm_75": 40,
    "sm_80": 108,
    "sm_86": 82,
    "sm_87": 16,
    "sm_89": 128,
    "sm_90": 132,
    "sm_100": 148,
    "sm_120": 170,
}

OPENCL = GpuLimits(max_threads=1024, shared_bytes=32 * _KB, grid=(2**31 - 1, 2**31 - 1, 2**31 - 1))
"""What is taken for granted of an OpenCL device that is not known; a known one tells its own limits."""


def multiprocessors(target: Target) -> int | None:
    """Multiprocessors of a usual product of a target's architecture; None where none is named that is known.

    T4, A100, GeForce 3090, Orin, GeForce 4090, H100, B200, GeForce 5090, by the vendor's data sheets.
    """
    return _MULTIPROCESSORS.get(target.architecture.rstrip("a"))
