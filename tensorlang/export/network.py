"""A network as a library: what it is made of, its weights as bytes, and all that is known of it as data."""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from dataclasses import field
from hashlib import sha256
from math import prod
from typing import Any

from tensorlang import dtypes
from tensorlang.dataclass import dataclass
from tensorlang.errors import TargetError
from tensorlang.export import compiling
from tensorlang.export.compiling import Compiled, finished
from tensorlang.export.metadata import (
    FIRST_KEY,
    NETWORK,
    REPEAT,
    Variant,
    extents,
    machine_data,
    program_data,
    variant_data,
)
from tensorlang.ir.expr import Buffer, Const
from tensorlang.target.llvm.library.build import Wanted, draft_chain
from tensorlang.target.llvm.library.calls import ENDLESS, Call, Copy, Loop, Place, Step, Test
from tensorlang.target.llvm.library.chain import SEAL_BYTES, Chain
from tensorlang.target.llvm.library.front import ABI
from tensorlang.te.branches import Guard
from tensorlang.te.data import to_data
from tensorlang.version import VERSION

WEIGHTS = "weights"
"""The argument, the key of metadata, and the ending of the file."""
_MAGIC = b"tensorlang weigh"
_LARGEST = 1 << 30
"""Bytes of weights that code with addresses of 31 bits can have in itself, and room for the rest."""


@dataclass(frozen=True, slots=True)
class Held:
    """An array of a network: its dtype and shape, and where it is."""

    dtype: str
    shape: tuple[int, ...]
    place: Place

    @property
    def size(self) -> int:
        """Its bytes."""
        return prod(self.shape) * dtypes.info(self.dtype).bytes


@dataclass(frozen=True, slots=True)
class Use:
    """A call of a kernel: its number, the arrays in the order of its parameters, and what is said of it.

    It runs where all `guards` are as they say.
    """

    kernel: int
    arrays: tuple[str, ...]
    guards: tuple[Guard, ...] = ()
    about: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Repeat:
    """Steps that run again and again, with arrays by name.

    As often as `trips` says, while `condition` holds, and then what an iteration leaves in `tells`, if it does. An
    iteration finds its `number`, that it `goes_on`, and its states. `states` gives for each state the array that it is
    at first, `following` the one that an iteration makes of it; `last` the state of each array that is made, `rows`
    what an iteration makes of each array that they are collected in. It runs where all `guards` are as they say.
    """

    trips: str
    condition: str
    number: str
    goes_on: str
    tells: str | None
    states: Mapping[str, str]
    following: Mapping[str, str]
    last: Mapping[str, str]
    rows: Mapping[str, str]
    steps: Sequence[Use | Repeat]
    guards: tuple[Guard, ...] = ()
    about: Mapping[str, Any] = field(default_factory=dict)

    @property
    def arrays(self) -> dict[str, Any]:
        """The arrays of the loop itself, as data."""
        words = "trips", "condition", "number", "goes_on", "tells"
        maps = "states", "following", "last", "rows"
        return {word: getattr(self, word) for word in words} | {word: dict(getattr(self, word)) for word in maps}


@dataclass(frozen=True, slots=True)
class Parts:
    """A network that is exported. `arguments` are the arrays that a call is given, in order, those of `outputs` last.

    `kernels` has the variants of each, the best first, for the same targets; `inputs` and `outputs` are arrays by the
    model's names. `weights` begin with their seal, and are `embedded` in the library or written beside it. `left_out`
    are instruction sets that some kernel has no variant for, with the reason.
    """

    name: str
    arrays: Mapping[str, Held]
    arguments: tuple[str, ...]
    inputs: Mapping[str, str]
    outputs: Mapping[str, str]
    kernels: Sequence[Sequence[Variant]]
    steps: Sequence[Use | Repeat]
    arena: int
    weights: bytes
    embedded: bool
    left_out: Mapping[str, str]


def sealed(pieces: Sequence[bytes]) -> bytes:
    """Weights with the bytes before them that tell their size and digest: what a library looks at in each call."""
    digest = sha256()
    for piece in pieces:
        digest.update(piece)
    head = _MAGIC + struct.pack("<QQ", ABI, sum(map(len, pieces))) + digest.digest()
    assert len(head) == SEAL_BYTES
    return b"".join([head, *pieces])


def is_whole(weights: bytes | memoryview) -> bool:
    """Whether weights are those that their first bytes tell of."""
    payload = memoryview(weights)[SEAL_BYTES:]
    (size,) = struct.unpack_from("<Q", weights, len(_MAGIC) + 8) if len(weights) >= SEAL_BYTES else (-1,)
    return size == len(payload) and sha256(payload).digest() == bytes(weights[SEAL_BYTES - 32 : SEAL_BYTES])


def compiled_network(parts: Parts, threads: str, faces: tuple[str, ...]) -> Compiled:
    """Compile a network that is exported. TargetError for what cannot leave this process."""
    if parts.embedded and len(parts.weights) > _LARGEST:
        raise TargetError(
            f"weights of {len(parts.weights) / 1e9:.1f} GB are too large to be embedded; leave them in a file beside"
        )
    calls = _chain(parts)
    targets = [v.target for v in parts.kernels[0]] if parts.kernels else []
    if not targets:
        raise TargetError(f"{parts.name} has no kernel: its outputs are known without it")
    variants = [([kernel[k].kernel for kernel in parts.kernels], target) for k, target in enumerate(targets)]
    made = draft_chain(calls, variants, Wanted(parts.name, calls.arrays, threads, faces))
    known = {
        FIRST_KEY: ABI,
        "name": parts.name,
        "version": VERSION,
        "arguments": [
            {"name": b.name, "dtype": b.dtype, "shape": extents(b), "written": b.name in calls.outputs}
            for b in calls.arrays
        ],
        "sizes": {},
        "threads": threads,
        "variants": [machine_data(target) for target in targets],
        "left_out": dict(parts.left_out),
        "externs": list(made.externs),
        "assumes": [],
        "messages": {str(code): text for code, text in made.messages.items()},
        "call": to_data((calls.arrays, (), calls.arrays, calls.outputs)),
        "tests_facts": False,
        "facts": [],
        NETWORK: _network(parts),
    }
    weightless = parts.embedded or not parts.weights
    beside = {} if weightless else {WEIGHTS: WEIGHTS}
    about = f"{parts.name}: a network of tensorlang, {len(parts.steps)} calls of kernels with fixed sizes."
    call = compiling.Call(parts.name, calls.arrays, calls.kernel, beside)
    return finished(call, made, known, about, files={} if weightless else {WEIGHTS: parts.weights})


def _chain(parts: Parts) -> Chain:
    shown = [_buffer(name, parts.arrays[name].dtype, parts.arrays[name].shape) for name in parts.arguments]
    if parts.weights and not parts.embedded:
        shown.append(_buffer(WEIGHTS, "uint8", (len(parts.weights),)))
    written = tuple(name for name in parts.arguments if name in parts.outputs.values())
    embedded, steps = parts.weights if parts.embedded else b"", _called(parts.steps, parts.arrays)
    return Chain(parts.name, tuple(shown), written, steps, parts.arena, parts.weights[:SEAL_BYTES], embedded)


def _called(steps: Sequence[Use | Repeat], arrays: Mapping[str, Held]) -> tuple[Step, ...]:
    """Steps as calls and loops."""
    made: list[Step] = []
    for step in steps:
        tests = tuple(Test(arrays[g.array].place, g.at, g.holds) for g in step.guards)
        if isinstance(step, Use):
            made.append(Call(step.kernel, tuple(arrays[name].place for name in step.arrays), tests))
        else:
            made.append(_loop(step, arrays, tests))
    return tuple(made)


def _loop(step: Repeat, arrays: Mapping[str, Held], tests: tuple[Test, ...]) -> Loop:
    def copies(pairs: Mapping[str, str]) -> tuple[Copy, ...]:
        """To the keys, from what they are of."""
        found = [(arrays[source], arrays[target]) for target, source in pairs.items()]
        return tuple(Copy(source.place, target.place, source.size) for source, target in found if source.size)

    return Loop(
        arrays[step.trips].place,
        arrays[step.condition].place,
        min((arrays[name].shape[0] for name in step.rows), default=ENDLESS),
        arrays[step.number].place,
        arrays[step.goes_on].place,
        _called(step.steps, arrays),
        None if step.tells is None else arrays[step.tells].place,
        copies(step.states),
        copies(step.following),
        copies(step.rows),
        copies(step.last),
        tests,
    )


def _buffer(name: str, dtype: str, shape: Sequence[int]) -> Buffer:
    return Buffer(name, tuple(Const(n, "int64") for n in shape), dtype)


def _network(parts: Parts) -> dict[str, Any]:
    """The kernels with their programs and schedules, the calls, and where every array is."""
    return {
        "inputs": dict(parts.inputs),
        "outputs": dict(parts.outputs),
        "arena": parts.arena,
        WEIGHTS: {"bytes": len(parts.weights), "embedded": parts.embedded, "seal": parts.weights[:SEAL_BYTES].hex()},
        "arrays": {
            name: {"dtype": a.dtype, "shape": list(a.shape), "in": a.place.block, "at": a.place.at}
            for name, a in parts.arrays.items()
        },
        "kernels": [
            {
                "parameters": [p.name for p in variants[0].kernel.params],
                "program": program_data(variants[0]),
                "variants": [variant_data(v) for v in variants],
            }
            for variants in parts.kernels
        ],
        "steps": [_step(step) for step in parts.steps],
    }


def _step(step: Use | Repeat) -> dict[str, Any]:
    said = {"guards": [[g.array, g.at, g.holds] for g in step.guards], **step.about}
    if isinstance(step, Use):
        return {"kernel": step.kernel, "arrays": list(step.arrays), **said}
    return {REPEAT: step.arrays, "steps": [_step(inner) for inner in step.steps], **said}
