"""The kinds of targets in one table: the module of each kind's backend, and what its targets can do.

Whoever wants to know what a target can do asks that (`target.can`); only a kind's own room (`target/<kind>`) goes by
its name.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from dataclasses import field, replace
from functools import cache
from types import MappingProxyType

from tensorlang.dataclass import dataclass
from tensorlang.errors import TargetError

DEFAULT_CUDA = "sm_80"
"""The architecture whose figures hold where no architecture is named and there is no device to ask."""


@dataclass(frozen=True, slots=True)
class Capabilities:
    """What targets can do, and how it is done there.

    - `native`: kernels are machine code of a CPU, run by threads of its cores, with its vectors and caches.
    - `device`: kernels run on a device, in blocks of threads and in memory of its own. All that a program computes is a
      kernel there, and the host launches them.
    - `blocks`: loops that are bound to blocks and threads run as those. Elsewhere such loops are as any other.
    - `python_calls`: a program may call Python functions (`te.extern`).
    - `chosen_limits`: what a block may use is whatever the target's text says.
    - `cold_timing`: a kernel is timed with cold caches, on the device's own clock.
    - `async_copies`: copies to shared memory run by themselves. `bulk_copies`: one thread begins that of a whole tile.
    - `tensor_cores`: a warp multiplies matrices; `float8_products`: those of floats of 8 bits too; `warp_groups`: so do
      several warps together, while their threads go on.
    """

    native: bool = False
    device: bool = False
    blocks: bool = False
    python_calls: bool = False
    chosen_limits: bool = False
    cold_timing: bool = False
    async_copies: bool = False
    bulk_copies: bool = False
    tensor_cores: bool = False
    float8_products: bool = False
    warp_groups: bool = False


@dataclass(frozen=True, slots=True)
class Kind:
    """A row of the table.

    `backend` is the module that holds its `BACKEND`, imported when first used; `option` names the machine in a target's
    text. `architectures` says from which architecture on its targets can do more: one that ends in a letter is the only
    one. `usual` is the architecture of a target that names none.
    """

    backend: str
    can: Capabilities
    option: str = "-mcpu"
    architectures: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    usual: str = ""


KINDS: Mapping[str, Kind] = MappingProxyType(
    {
        "llvm": Kind("tensorlang.target.llvm.backend", Capabilities(native=True, python_calls=True)),
        "interpreter": Kind(
            "tensorlang.target.interpreter.backend",
            Capabilities(blocks=True, python_calls=True, chosen_limits=True, bulk_copies=True),
        ),
        "cuda": Kind(
            "tensorlang.target.cuda.backend",
            Capabilities(device=True, blocks=True, cold_timing=True),
            "-arch",
            MappingProxyType(
                {
                    "async_copies": "sm_80",
                    "tensor_cores": "sm_80",
                    "float8_products": "sm_89",
                    "warp_groups": "sm_90a",
                }
            ),
            DEFAULT_CUDA,
        ),
        "opencl": Kind("tensorlang.target.opencl.backend", Capabilities(device=True, blocks=True), "-device"),
    }
)
"""First word of a target text -> what is known of its kind. Bulk copies of CUDA are among the limits of a GPU."""

_OTHER = Kind("", Capabilities())
"""What is known of machines that tensorlang does not compile for, as records of others name them: nothing."""


def kind_of(name: str) -> Kind:
    """The row of a kind."""
    return KINDS.get(name, _OTHER)


@cache
def capabilities(name: str, architecture: str = "") -> Capabilities:
    """What targets of a kind can do, on an architecture of which kinds have several."""
    row = kind_of(name)
    own = architecture or row.usual
    more = {word: True for word, first in row.architectures.items() if _has(own, first, row.usual)}
    return replace(row.can, **more)


def _has(own: str, first: str, usual: str) -> bool:
    if first[-1].isalpha():
        return own == first
    return (_number(own) or _number(usual)) >= _number(first)


def _number(architecture: str) -> int:
    """The number in the name of an architecture; 0 where there is none."""
    found = re.match(r"sm_(\d+)", architecture)
    return int(found[1]) if found else 0


def check_kind(kind: str) -> None:
    """Raise TargetError, naming the nearest kind, unless `kind` is in the table."""
    if kind not in KINDS:
        near = difflib.get_close_matches(kind, KINDS, n=1)
        hint = f"; did you mean {near[0]!r}?" if near else ""
        raise TargetError(f"unknown target kind {kind!r}; known: {', '.join(KINDS)}{hint}")
