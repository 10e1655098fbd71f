"""What a target is: a frozen description, its text form, and its JSON form for tuning records."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping
from contextvars import ContextVar
from dataclasses import asdict, field, fields, replace
from types import TracebackType
from typing import Any

from tensorlang.dataclass import dataclass
from tensorlang.errors import RecordError, TargetError
from tensorlang.target.kinds import Capabilities, capabilities, kind_of


@dataclass(frozen=True, slots=True)
class GpuLimits:
    """Limits of a GPU: threads and shared bytes of a block, threads of a warp.

    `block`: threads of a block along x, y, z; `grid`: blocks along x, y, z. `registers` are those of a multiprocessor
    (32 bits each), `thread_registers` those of a thread. A multiprocessor holds `threads_per_core` threads,
    `blocks_per_core` blocks and `shared_per_core` bytes. `bulk_copies`: one thread can begin the copy of a whole tile.
    """

    max_threads: int = 1024
    shared_bytes: int = 49152
    warp: int = 32
    block: tuple[int, int, int] = (1024, 1024, 64)
    grid: tuple[int, int, int] = (2**31 - 1, 65535, 65535)
    registers: int = 65536
    thread_registers: int = 255
    threads_per_core: int = 2048
    blocks_per_core: int = 32
    shared_per_core: int = 65536
    bulk_copies: bool = False

    def lowered(self, asked: GpuLimits, usual: GpuLimits) -> GpuLimits:
        """These limits, with threads and shared bytes of a block as asked, where that is not usual, and lower."""
        threads = asked.max_threads if asked.max_threads != usual.max_threads else self.max_threads
        shared = asked.shared_bytes if asked.shared_bytes != usual.shared_bytes else self.shared_bytes
        return replace(self, max_threads=min(threads, self.max_threads), shared_bytes=min(shared, self.shared_bytes))

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> GpuLimits:
        """Restore limits from JSON values; TypeError names a value that is none."""
        if not isinstance(data, Mapping):
            raise TypeError(f"the limits of a GPU are an object, got {data!r}")
        return GpuLimits(**_values(GpuLimits, data))


class TargetKind(str):
    """The first word of a target; `.name` is classic te's way to read it."""

    __slots__ = ()

    @property
    def name(self) -> str:
        """The word itself."""
        return str(self)


@dataclass(frozen=True, slots=True)
class Target:
    """A machine to compile for.

    `kind`: llvm, interpreter, cuda or opencl. `cpu` as LLVM spells it; `features` are changes to that CPU's features,
    as LLVM spells them (`+avx512bf16,-fma`); `triple` is empty for this machine. For cuda, `cpu` is the architecture
    (`sm_90a`), for opencl a part of the device's name; empty for the device that the arrays are on. `gpu`: its limits.
    `vector_bytes`: widest vector register. `cores`: threads of a parallel loop. `caches`: bytes of L1, L2, L3.
    """

    kind: TargetKind | str
    triple: str = ""
    cpu: str = ""
    features: str = ""
    vector_bytes: int = 16
    vector_registers: int = 16
    cores: int = 1
    caches: tuple[int, ...] = field(default=(32768, 1048576, 33554432))
    gpu: GpuLimits | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "kind", TargetKind(self.kind))

    def __enter__(self) -> Target:
        """Make this the target of what names none: `with target:`."""
        _in_use.set((*_in_use.get(), self))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        _in_use.set(_in_use.get()[:-1])

    @staticmethod
    def current(allow_none: bool = True) -> Target | None:
        """The target of the innermost `with target:`; outside of all None, or TargetError unless that is allowed."""
        found = next(reversed(_in_use.get()), None)
        if found is None and not allow_none:
            raise TargetError("no target is in use here; write `with tensorlang.target.Target('cuda'):` around it")
        return found

    @property
    def keys(self) -> tuple[str, ...]:
        """What the target is, in classic te's words: its kind and `gpu`, or `cpu`."""
        return (str(self.kind), "gpu") if self.can.device else ("cpu",)

    @property
    def can(self) -> Capabilities:
        """What the target can do: all that code outside of its own room asks of its kind."""
        known = capabilities(str(self.kind), self.cpu if self.architecture else "")
        bulk = known.bulk_copies or (self.gpu is not None and self.gpu.bulk_copies)
        return known if bulk == known.bulk_copies else replace(known, bulk_copies=bulk)

    @property
    def architecture(self) -> str:
        """The architecture whose figures hold, the one named or the usual one; empty where the kind has none."""
        usual = kind_of(str(self.kind)).usual
        return (self.cpu or usual) if usual else ""

    @property
    def max_num_threads(self) -> int:
        """The threads that a block may have; 1 where there are no blocks."""
        return 1 if self.gpu is None else self.gpu.max_threads

    @property
    def thread_warp_size(self) -> int:
        """The threads of a warp; 1 where there are none."""
        return 1 if self.gpu is None else self.gpu.warp

    @property
    def max_shared_memory_per_block(self) -> int:
        """Bytes of shared memory that a block may have; 0 where there are no blocks."""
        return 0 if self.gpu is None else self.gpu.shared_bytes

    @property
    def second_cache(self) -> int:
        """Bytes of L2, or of the only cache; 0 where none is known."""
        return self.caches[min(1, len(self.caches) - 1)] if self.caches else 0

    @property
    def register_bytes(self) -> int:
        """Bytes of all vector registers of a core."""
        return self.vector_registers * self.vector_bytes

    def lanes(self, bits: int) -> int:
        """Elements of `bits` bits in one vector register."""
        return max(1, self.vector_bytes * 8 // bits)

    def __str__(self) -> str:
        options = [f"-mtriple={self.triple}"] if self.triple else []
        options += [f"{kind_of(str(self.kind)).option}={shlex.quote(self.cpu)}"] if self.cpu else []
        options += [f"-mattr={self.features}"] if self.features else []
        return " ".join([self.kind, *options])

    def to_json(self) -> dict[str, Any]:
        """Return the fields as JSON values; `from_json` restores an equal target."""
        data = asdict(self) | {"caches": list(self.caches)}
        if self.gpu is not None:
            data["gpu"] |= {"block": list(self.gpu.block), "grid": list(self.gpu.grid)}
        return data

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> Target:
        """Restore a target; RecordError names a missing or unknown field."""
        known = {f.name for f in fields(Target)}
        if "kind" not in data or not known >= set(data):
            wrong = ", ".join(sorted(set(data) - known)) or "kind is missing"
            raise RecordError(f"not a target record ({wrong}); its fields are {', '.join(sorted(known))}")
        gpu = data.get("gpu")
        try:
            limits = None if gpu is None else GpuLimits.from_json(gpu)
            return Target(**_values(Target, {name: value for name, value in data.items() if name != "gpu"}), gpu=limits)
        except TypeError as error:
            raise RecordError(f"malformed target record: {error}") from error


_PLAIN: dict[str, Callable[[Any], bool]] = {
    "TargetKind | str": lambda value: isinstance(value, str),
    "str": lambda value: isinstance(value, str),
    "bool": lambda value: isinstance(value, bool),
    "int": lambda value: type(value) is int and value >= 0,
    "tuple[int, ...]": lambda value: _is_row(value, None),
    "tuple[int, int, int]": lambda value: _is_row(value, 3),
}
"""What JSON has for a field, by its annotation."""


def _is_row(value: Any, length: int | None) -> bool:
    return isinstance(value, list | tuple) and length in (None, len(value)) and all(map(_PLAIN["int"], value))


def _values(kind: type[Target | GpuLimits], data: Mapping[str, Any]) -> dict[str, Any]:
    """The values of fields, from JSON; TypeError where one is not of its field's type."""
    annotations = {f.name: str(f.type) for f in fields(kind)}
    for name, value in data.items():
        if name not in annotations or not _PLAIN[annotations[name]](value):
            raise TypeError(f"{name} = {value!r}, wanted {annotations.get(name, 'no such field')}")
    return {name: tuple(value) if isinstance(value, list) else value for name, value in data.items()}


_in_use: ContextVar[tuple[Target, ...]] = ContextVar("tensorlang_target", default=())
