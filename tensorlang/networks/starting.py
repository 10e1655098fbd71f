"""Models that were compiled before start at once: their kernels and weights are kept on disk, by the model's content.

What is kept is the word of nobody but this user, by the rules of the cache (`runtime.cache`, docs/security.md): the
machine code of the kernels with the order of the calls under one key, the weights as kernels read them in a file of
their own beside it. The key names all that determines them: the bytes of the model, shapes, target and CPU, versions,
the files of this package, settings, and the default store of tuned records. Models with data in files of their own are
not kept.
"""

from __future__ import annotations

import contextlib
import json
import os
import pickle
import sys
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from hashlib import file_digest
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from tensorlang import config
from tensorlang.errors import ArgumentError, DefinitionError
from tensorlang.export.network import is_whole, sealed
from tensorlang.networks.arena import ALIGNMENT
from tensorlang.networks.compiling import Progress, compile_network
from tensorlang.networks.model import Model, Shapes, Step
from tensorlang.networks.network import Array, Network
from tensorlang.networks.onnx.fallback import check_fallback
from tensorlang.networks.onnx.reading import from_onnx, has_external_data
from tensorlang.runtime import cache
from tensorlang.runtime.executable import Executable
from tensorlang.schedule.history import in_use
from tensorlang.target import parse
from tensorlang.target.backend import backend
from tensorlang.target.detect import machine_options
from tensorlang.target.llvm import engine
from tensorlang.target.llvm.library.chain import SEAL_BYTES
from tensorlang.target.spec import Target

_ENDING = "weights"
_LARGEST = 1 << 30
"""Weights of more bytes are not kept."""
_SETTINGS = ("check", "budget", "statements", "scratch", "record_seconds", "num_threads")
"""Those that change kernels, or whether they are made."""


def compile_model(
    model: Network | str | os.PathLike[str] | Any,
    target: str | Target | None = None,
    progress: Progress | None = None,
    shapes: Mapping[str, Sequence[int]] | None = None,
    numerics: str = "default",
    known: Mapping[str, npt.ArrayLike] | None = None,
    fallback: str | None = None,
) -> Model:
    """Return a network compiled for a target (this machine's CPU unless given).

    `model` is a network, or what `from_onnx` reads, with `shapes`, `known` and `fallback` for it. Every kernel takes
    the best tuned record of its program where there is one (`topi.schedule`), and is proven. Kernels of one program are
    built once. A file that was compiled before, on this machine, for the same shapes and target, starts from the cache
    of compiled kernels, but for models with nodes that onnxruntime runs.
    Convolutions of 3 * 3 in float32 are computed by Winograd's algorithm where that is estimated to be faster, with an
    error of 2e-6 to 4e-6 of the largest value; `numerics="strict"` has sums over windows only. Raises what `from_onnx`
    and `build` raise; ArgumentError for a network with shapes, and for other numerics.
    """
    machine = parse(target)
    if isinstance(model, Network):
        if shapes is not None or known is not None:
            raise ArgumentError("a network has its shapes and what is known already; give them to from_onnx")
        if fallback is not None:
            raise ArgumentError("a network is read already; give fallback to from_onnx")
        return compile_network(model, machine, progress, numerics)
    if not isinstance(model, str | os.PathLike) or not _is_kept(machine):
        return compile_network(from_onnx(model, shapes, known, fallback), machine, progress, numerics)
    check_fallback(fallback)
    file = _File(Path(model), _digest(Path(model)), shapes or {}, known or {}, fallback)
    return _started(file, machine, progress, numerics)


def _is_kept(machine: Target) -> bool:
    """Whether models for a target are kept: without logs in use, whose records nobody could name, and without dumps."""
    return config.get("cache") and machine.can.native and not in_use() and config.get("dump") is None


@dataclass(frozen=True, slots=True)
class _Kept:
    """A compiled model as data. `weights`: dtype, shape and place of each; `seal`: how their file begins."""

    name: str
    kernels: tuple[bytes, ...]
    steps: tuple[tuple[int, tuple[Any, ...]], ...]
    shapes: Shapes
    weights: Mapping[str, tuple[Any, tuple[int, ...], int]]
    inputs: Mapping[str, str]
    outputs: Mapping[str, str]
    seal: bytes


@dataclass(frozen=True, slots=True)
class _File:
    """A model in a file with its digest, and what `from_onnx` is told of it."""

    path: Path
    digest: str
    shapes: Mapping[str, Sequence[int]]
    known: Mapping[str, npt.ArrayLike]
    fallback: str | None

    def compiled(self, machine: Target, progress: Progress | None, numerics: str) -> Model:
        """The model, read and compiled."""
        return compile_network(
            from_onnx(self.path, self.shapes, self.known, self.fallback), machine, progress, numerics
        )

    def to_json(self) -> list[Any]:
        """What is told of it as plain data; models that need another runtime are not kept."""
        arrays = {name: np.asarray(value) for name, value in self.known.items()}
        return [
            {name: [int(n) for n in shape] for name, shape in self.shapes.items()},
            {name: [str(a.dtype), a.shape, a.tobytes().hex()] for name, a in arrays.items()},
        ]


def _started(file: _File, machine: Target, progress: Progress | None, numerics: str) -> Model:
    """A model from the cache; compiled, and kept there, where it is not."""
    key = _key(file, machine, numerics)

    def anew() -> Model:
        if _digest(file.path) != file.digest:
            raise DefinitionError(f"{file.path} has changed since it was compiled")
        return file.compiled(machine, None, numerics)

    found = cache.find(key)
    if found is not None:
        with contextlib.suppress(_Unusable):
            made = _restored(found, key, machine)
            made.again = anew
            if progress is not None:
                progress(len(made.steps), len(made.steps), "")
            return made
    made = file.compiled(machine, progress, numerics)
    if not made.fallback and not has_external_data(file.path):
        _keep(made, key)
    return made


class _Unusable(Exception):
    """What was kept is of no use; it is made again."""


def _digest(path: Path) -> str:
    """The content of a model, as text; what is no file has none, and is refused by whoever reads it."""
    try:
        with path.open("rb") as file:
            return file_digest(file, "sha256").hexdigest()
    except OSError:
        return ""


def _key(file: _File, machine: Target, numerics: str) -> tuple[str, ...]:
    code = engine.fingerprint(engine.Machine(*machine_options(machine)))
    parts = [numerics, file.to_json(), machine.to_json(), {name: str(config.get(name)) for name in _SETTINGS}]  # type: ignore[call-overload]
    store = _files(config.get("store"), ".jsonl")
    package = _files(Path(__file__).parents[1], ".py")
    return ("model", file.digest, json.dumps(parts, sort_keys=True), code, sys.version, np.__version__, store, package)


def _files(folder: Path, ending: str) -> str:
    """Names, sizes and times of the files of an ending in a folder and those below, as text."""
    found, waiting = list[str](), [os.fspath(folder)]
    while waiting:
        with contextlib.suppress(OSError), os.scandir(waiting.pop()) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    waiting.append(entry.path)
                elif entry.name.endswith(ending):
                    status = entry.stat()
                    found.append(f"{entry.path} {status.st_size} {status.st_mtime_ns}")
    return "\n".join(sorted(found))


def _keep(model: Model, key: tuple[str, ...]) -> None:
    """Keep a model, where all of it can be."""
    runs = list(dict.fromkeys(step.run for step in model.steps))
    if any(run.packed is None or run.assumes for run in runs):
        return
    used = dict.fromkeys(name for step in model.steps for name in step.used if name in model.weights)
    if sum(model.weights[name].nbytes for name in used) > _LARGEST:
        return
    pieces, places, end = list[bytes](), dict[str, tuple[Any, tuple[int, ...], int]](), SEAL_BYTES
    for name in used:
        array = model.weights[name]
        places[name] = array.dtype, array.shape, end
        pieces.append(array.tobytes() + bytes(-array.nbytes % ALIGNMENT))
        end += len(pieces[-1])
    weights = sealed(pieces)
    try:
        payload = pickle.dumps(
            _Kept(
                model.name,
                tuple(run.packed() for run in runs if run.packed is not None),
                tuple((runs.index(s.run), _said(s)) for s in model.steps),
                model.shapes,
                places,
                model.inputs,
                model.outputs,
                weights[:SEAL_BYTES],
            )
        )
    except Exception:  # a kernel that calls Python functions, which nobody can pickle
        return
    if cache.keep_file(key, _ENDING, weights):
        cache.keep(key, payload)


def _said(step: Step) -> tuple[Any, ...]:
    """A step without its kernel."""
    return step.arrays, step.stage, step.origin, step.operations, step.algorithm, step.guards


def _restored(found: bytes, key: tuple[str, ...], machine: Target) -> Model:
    """The model that was kept; _Unusable for one that is not whole."""
    try:
        kept: _Kept = pickle.loads(found)
        mapped = cache.find_file(key, _ENDING)
        if mapped is None or bytes(mapped[:SEAL_BYTES]) != kept.seal:
            raise _Unusable
        with ThreadPoolExecutor(1) as beside:  # the digest is of a hundred megabytes, and lets others run
            whole = beside.submit(is_whole, mapped)
            runs = [_unpacked(packed, machine) for packed in kept.kernels]
            if not whole.result():
                raise _Unusable
    except _Unusable:
        raise
    except Exception as error:  # whatever is wrong with it, it can be made again
        raise _Unusable from error
    steps = [Step(runs[k], *said) for k, said in kept.steps]
    weights = {name: _weight(mapped, *place) for name, place in kept.weights.items()}
    return Model(kept.name, steps, kept.shapes, weights, kept.inputs, kept.outputs)


def _unpacked(packed: bytes, machine: Target) -> Executable:
    return backend(machine.kind).unpack(packed, machine)


def _weight(mapped: memoryview, dtype: Any, shape: tuple[int, ...], place: int) -> Array:
    return np.frombuffer(mapped, dtype, int(np.prod(shape, dtype=np.int64)), place).reshape(shape)
