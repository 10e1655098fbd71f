"""Machine code of a module, loaded on the devices that run it, and what a launch must know of its kernels."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import field
from typing import Any

from tensorlang.dataclass import dataclass
from tensorlang.errors import TargetError
from tensorlang.target.c_source.source import BoxMap
from tensorlang.target.cuda import runtime

_ALLOWED_SHARED = 48 * 1024
"""Bytes of dynamic shared memory that a launch may ask for without having been allowed to."""


@dataclass(frozen=True, slots=True)
class KernelCode:
    """What a launch must know of a kernel's code.

    `shared`: bytes of dynamic shared memory. `fault`: its last parameter is a place for the number of a fault. `wide`:
    its arrays must begin at multiples of 16 bytes. `maps`: the tensor maps that it takes behind its scalars.
    """

    name: str
    shared: int = 0
    fault: bool = False
    wide: bool = False
    maps: tuple[BoxMap, ...] = ()


@dataclass(slots=True)
class Images:
    """The machine code of a module, and where it is loaded.

    `build` compiles it for another architecture; None when it is for `architecture` only. `messages` tell what fault
    number k + 1 is, in any of the kernels.
    """

    name: str
    architecture: str
    cubin: bytes
    codes: Mapping[str, KernelCode]
    messages: tuple[str, ...] = ()
    build: Callable[[str], bytes] | None = None
    loaded: dict[int, Mapping[str, Any]] = field(default_factory=dict)

    def functions(self, device: int) -> Mapping[str, Any]:
        """The kernels by name, loaded on a device, which is the current one; TargetError if it cannot run them."""
        found = self.loaded.get(device)
        if found is None:
            found = self.loaded[device] = self._load(self._cubin_for(device))
        return found

    def _cubin_for(self, device: int) -> bytes:
        own = runtime.architecture_of(device)
        if self.build is not None and self.architecture != own:
            return self.build(own)
        if not runtime.runs_on(self.architecture, own):
            raise TargetError(
                f"{self.name} was built for {self.architecture}, and CUDA device {device} is an {own}; build it for "
                f"target 'cuda -arch={own}', or for 'cuda', which takes the device of the arrays"
            )
        return self.cubin

    def _load(self, cubin: bytes) -> Mapping[str, Any]:
        module = runtime.load(cubin)
        functions = {name: module.get_function(name) for name in self.codes}
        for name, code in self.codes.items():
            if code.shared > _ALLOWED_SHARED:
                runtime.allow_shared(functions[name], code.shared)
        return functions
