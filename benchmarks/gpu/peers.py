"""The libraries that kernels are compared with on a GPU, all in this process, on the same arrays."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from typing import Any, TypeAlias

from benchmarks.gpu import cupy_calls, torch_calls, triton_calls
from benchmarks.gpu.given import Builder, Given

Calls: TypeAlias = Mapping[str, Callable[[], Any]]
"""What a library offers for a workload: calls that return the result, by a word that tells them apart."""


@dataclass(frozen=True, slots=True)
class Library:
    """A library, the distribution it comes in, and its builders by operator.

    `vendor`: whether it calls the libraries of the GPU's vendor, which are what is compared with.
    """

    name: str
    distribution: str
    builders: Mapping[str, Builder]
    vendor: bool = False
    others: tuple[str, ...] = ()

    def versions(self) -> dict[str, str]:
        """The version that is installed; nothing where none is."""
        for name in (self.distribution, *self.others):
            try:
                return {name: version(name)}
            except PackageNotFoundError:
                continue
        return {}

    def offers(self, given: Given) -> dict[str, Callable[[], Any]]:
        """Calls by the names of contestants; no names for an operator that is not written for this library."""
        builder = self.builders.get(given.workload.operator)
        calls = {} if builder is None else builder(given)
        return {f"{self.name} {word}".rstrip(): call for word, call in calls.items()}


LIBRARIES: tuple[Library, ...] = (
    Library("CuPy", "cupy-cuda13x", cupy_calls.BUILDERS, vendor=True, others=("cupy-cuda12x", "cupy")),
    Library("PyTorch", "torch", torch_calls.EAGER, vendor=True),
    Library("PyTorch compiled", "torch", torch_calls.COMPILED),
    Library("Triton", "triton", triton_calls.BUILDERS),
)
