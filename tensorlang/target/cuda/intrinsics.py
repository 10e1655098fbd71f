"""The table of CUDA device functions that each wrap an instruction of PTX: matrix products, copies, conversions.

Generated code calls them by name and stays plain CUDA C itself; `declarations` gives the texts of those that it calls.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType

from tensorlang.errors import TargetError
from tensorlang.ir.stmt import BoxCopy, CallMachine, DeviceKernel, walk
from tensorlang.target.c_source.ptx import Intrinsic
from tensorlang.target.c_source.tensor_copies import TENSOR_MAP, TENSOR_MAP_TEXT
from tensorlang.target.cuda.conversions import number_rows
from tensorlang.target.cuda.copies import copy_rows
from tensorlang.target.cuda.warp_matrix import warp_matrix_rows
from tensorlang.target.cuda.wgmma import wgmma_rows

INTRINSICS: Mapping[str, Intrinsic] = MappingProxyType(
    {row.name: row for rows in (warp_matrix_rows, number_rows, copy_rows, wgmma_rows) for row in rows()}
)
"""Name -> device function."""

TYPES: Mapping[str, str] = MappingProxyType({TENSOR_MAP: TENSOR_MAP_TEXT})
"""Name -> definition of the types that device functions take."""

_BULK = "sm_90"
"""The first architecture with bulk tensor copies."""

_NAME = re.compile(r"\btl_\w+\b")
_DEFINITION = re.compile(r"\b__device__\b[^;{}()]*\b(tl_\w+)\(")


def used(text: str) -> tuple[str, ...]:
    """Return the names of the device functions that a CUDA text calls and does not define, in the table's order."""
    found = set(_NAME.findall(text)) - set(_DEFINITION.findall(text))
    return tuple(name for name in INTRINSICS if name in found)


def declarations(text: str, arch: str) -> str:
    """Return the definitions that a CUDA text needs in front of it to be compiled for an architecture (`sm_90a`).

    Raises TargetError when the text calls a function whose instruction the architecture does not have.
    """
    names = used(text)
    for name in sorted(names, key=_demand, reverse=True):
        check(name, arch)
    types = {*_NAME.findall(text), *(t for name in names for t in INTRINSICS[name].requires)}
    return "\n".join([*(TYPES[name] for name in TYPES if name in types), *(INTRINSICS[name].text for name in names)])


def check(name: str, arch: str) -> None:
    """Raise TargetError unless an architecture has the instruction of a device function."""
    row = INTRINSICS[name]
    if not has(arch, row.architecture):
        only = "runs on no other" if row.architecture[-1].isalpha() else "or a later one"
        raise TargetError(
            f"{name} ({row.meaning}) needs {row.architecture}, {only}, and the target is {arch}; name an architecture "
            f"that has it (cuda -arch={row.architecture}), or leave out the step of the schedule that asks for it"
        )


def check_machine_code(kernels: Sequence[DeviceKernel], arch: str) -> None:
    """Raise TargetError unless an architecture has what the machine code and the bulk copies of kernels ask for."""
    if any(isinstance(s, BoxCopy) for kernel in kernels for s in walk(kernel.body)) and not has(arch, _BULK):
        raise TargetError(
            f"bulk copies need {_BULK}, or a later one, and the target is {arch}; name an architecture that has them "
            f"(cuda -arch={_BULK}), or leave out bulk_copy"
        )
    for code in (s.code for kernel in kernels for s in walk(kernel.body) if isinstance(s, CallMachine)):
        for feature in (f for f in code.features if f.startswith("sm_")):
            if not has(arch, feature):
                only = "runs on no other" if feature[-1].isalpha() else "or a later one"
                raise TargetError(
                    f"intrinsic {code.name} needs {feature}, {only}, and the target is {arch}; name an architecture "
                    f"that has it (cuda -arch={feature}), or leave out the tensorize step"
                )


def has(arch: str, wanted: str) -> bool:
    """Tell whether an architecture runs what another one is the lowest, or with a letter the only, one to have."""
    if wanted[-1].isalpha():
        return arch == wanted
    return _number(arch) >= _number(wanted)


def available(arch: str, names: Iterable[str] = INTRINSICS) -> tuple[str, ...]:
    """Return those of the names that an architecture has."""
    return tuple(name for name in names if has(arch, INTRINSICS[name].architecture))


def _demand(name: str) -> tuple[bool, int]:
    """What orders functions by how new an architecture they need."""
    architecture = INTRINSICS[name].architecture
    return architecture[-1].isalpha(), _number(architecture)


def _number(arch: str) -> int:
    found = re.fullmatch(r"sm_(\d+)[a-z]?", arch)
    if found is None:
        raise TargetError(f"CUDA architectures are named like sm_80 or sm_90a, got {arch!r}")
    return int(found[1])
