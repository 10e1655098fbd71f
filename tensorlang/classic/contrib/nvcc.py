"""`tvm.contrib.nvcc`: what a compute capability has. Kernels are compiled by NVRTC, so there is no nvcc to call."""

from __future__ import annotations


def parse_compute_version(compute_version: str) -> tuple[int, int]:
    """Return the numbers of a compute capability, such as 8.6 or sm_86."""
    plain = compute_version.removeprefix("sm_").rstrip("af")
    major, point, minor = plain.partition(".") if "." in plain else (plain[:-1], ".", plain[-1:])
    return int(major), int(minor) if point else 0


def have_fp16(compute_version: str) -> bool:
    """Return whether there is arithmetic of float16, which is from 5.3 on."""
    return parse_compute_version(compute_version) >= (5, 3)


def have_int8(compute_version: str) -> bool:
    """Return whether there are dot products of bytes, which is from 6.1 on."""
    return parse_compute_version(compute_version) >= (6, 1)


def have_tensorcore(compute_version: str | None = None) -> bool:
    """Return whether there are tensor cores, which is from 7.0 on; without a version, of no device."""
    return compute_version is not None and parse_compute_version(compute_version) >= (7, 0)


def have_bf16(compute_version: str) -> bool:
    """Return whether there is arithmetic of bfloat16, which is from 8.0 on."""
    return parse_compute_version(compute_version) >= (8, 0)
