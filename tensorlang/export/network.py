"""A network as a library: what it is made of, its weights as bytes, and all that is known of it as data."""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from dataclasses import field
from hashlib import sha256
from typing import Any

from tensorlang.dataclass import dataclass
from tensorlang.errors import TargetError
from tensorlang.export.compiling import Call, Compiled, finished
from tensorlang.export.metadata import FIRST_KEY, NETWORK, Variant, extents, machine_data, program_data, variant_data
from tensorlang.ir.expr import Buffer, Const
from tensorlang.target.llvm.library import chain
from tensorlang.target.llvm.library.build import Wanted, draft_chain
from tensorlang.target.llvm.library.chain import SEAL_BYTES, Chain, Place
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
    steps: Sequence[Use]
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
    call = Call(parts.name, calls.arrays, calls.kernel, beside)
    return finished(call, made, known, about, files={} if weightless else {WEIGHTS: parts.weights})


def _chain(parts: Parts) -> Chain:
    shown = [_buffer(name, parts.arrays[name].dtype, parts.arrays[name].shape) for name in parts.arguments]
    if parts.weights and not parts.embedded:
        shown.append(_buffer(WEIGHTS, "uint8", (len(parts.weights),)))
    written = tuple(name for name in parts.arguments if name in parts.outputs.values())
    calls = tuple(
        chain.Call(
            use.kernel,
            tuple(parts.arrays[name].place for name in use.arrays),
            tuple(chain.Test(parts.arrays[g.array].place, g.at, g.holds) for g in use.guards),
        )
        for use in parts.steps
    )
    embedded = parts.weights if parts.embedded else b""
    return Chain(parts.name, tuple(shown), written, calls, parts.arena, parts.weights[:SEAL_BYTES], embedded)


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
        "steps": [
            {
                "kernel": use.kernel,
                "arrays": list(use.arrays),
                "guards": [[g.array, g.at, g.holds] for g in use.guards],
                **use.about,
            }
            for use in parts.steps
        ],
    }
