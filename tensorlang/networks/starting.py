"""Models that were compiled before start at once: their kernels and weights are kept on disk, by the model's content.

What is kept is the word of nobody but this user, by the rules of the cache (`runtime.cache`, docs/security.md): the
machine code of the kernels with the order of the calls under one key, the weights as kernels read them in a file of
their own beside it. The key names all that determines them: the bytes of the model and of its files of weights, shapes,
target and CPU, versions, the files of this package, settings, and the default store of tuned records.
"""

from __future__ import annotations

import contextlib
import json
import os
import pickle
import sys
from collections.abc import Callable, Mapping, Sequence
from contextvars import copy_context
from functools import partial
from itertools import accumulate
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import numpy.typing as npt

from tensorlang import config
from tensorlang.dataclass import dataclass
from tensorlang.errors import ArgumentError, DefinitionError
from tensorlang.networks.content import content_of, remember_files
from tensorlang.networks.crew import STEPS_OF_A_KERNEL, Crew, workers_for
from tensorlang.networks.model import Model, Shapes, Step
from tensorlang.networks.quantization import Quantization, quantization_of
from tensorlang.networks.signature import Array
from tensorlang.runtime import cache
from tensorlang.runtime.digest import digest_of
from tensorlang.runtime.executable import Executable
from tensorlang.runtime.histories import HISTORIES
from tensorlang.runtime.memory import ALIGNMENT, read_ahead
from tensorlang.runtime.ownership import Mapped
from tensorlang.runtime.pace import steady
from tensorlang.target import parse
from tensorlang.target.backend import backend
from tensorlang.target.detect import machine_options
from tensorlang.target.llvm.host import Machine, fingerprint
from tensorlang.target.spec import Target

if TYPE_CHECKING:
    from tensorlang.networks.compiling import Progress
    from tensorlang.networks.network import Network

T = TypeVar("T")
_ENDING = "weights"
_HEAD = b"tensorlang weights".ljust(ALIGNMENT, b"\0")
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
    quantize: Quantization | str | os.PathLike[str] | None = None,
    vendor: str | None = None,
) -> Model:
    """Return a network compiled for a target (this machine's CPU unless given).

    `model` is a network, or what `from_onnx` reads, with `shapes`, `known` and `fallback` for it. Every kernel takes
    the best tuned record of its program where there is one (`topi.schedule`), and is proven. Kernels of one program are
    built once. A file that was compiled before, on this machine, for the same shapes and target, starts from the cache
    of compiled kernels, but for models with nodes that onnxruntime runs.
    `quantize`: in fewer bits, as a `Quantization` says; "weights", "bfloat16", and a folder of samples for int8 are
    short for one. Models in files start from the cache for the same samples, without reading what they make.
    `vendor="onnxruntime"`: parts of the model that onnxruntime runs faster on this machine run there, chosen by time
    and raced in the whole network, which takes some seconds; `model.vendor` tells of each what it takes here and there.
    Convolutions of 3 * 3 in float32 are computed by Winograd's algorithm where that is estimated to be faster, with an
    error of 2e-6 to 4e-6 of the largest value; `numerics="strict"` has sums over windows only. Raises what `from_onnx`,
    `build` and the functions of quantization raise; ArgumentError for a network with shapes, and for other numerics.
    """
    if hasattr(model, "state_dict"):
        module = "tensorlang.compile(tensorlang.from_torch(module, example))"
        text = f"a module of PyTorch is read by an example of its input: {module}, or torch.compile(module, backend="
        raise ArgumentError(f"{text}'tensorlang'); got {type(model).__name__}")
    how = _Reading(shapes, known, fallback, quantization_of(quantize))
    if vendor is not None:
        return _with_vendor(model, parse(target), progress, numerics, how, vendor)
    if not isinstance(model, str | os.PathLike) or not _may_be_kept():
        return _compiled(model, parse(target), progress, numerics, how)
    digest = _beside(lambda: content_of(Path(model)))  # LLVM may be imported meanwhile
    machine = parse(target)
    if not machine.can.native:
        return _compiled(model, machine, progress, numerics, how)
    return _started(_File(Path(model), digest(), how), machine, progress, numerics)


def _beside(function: Callable[[], T]) -> Callable[[], T]:
    """Call a function that lets others run, in a thread with the settings of this one; its result is waited for."""
    made, raised, settings = list[T](), list[BaseException](), copy_context()

    def call() -> None:
        try:
            made.append(settings.run(function))
        except BaseException as error:  # raised where the result is wanted
            raised.append(error)

    thread = Thread(target=call)
    thread.start()

    def result() -> T:
        thread.join()
        if raised:
            raise raised.pop()
        return made.pop()

    return result


@dataclass(frozen=True, slots=True)
class _Reading:
    """What `from_onnx` is told of a model, and how many bits it is to have."""

    shapes: Mapping[str, Sequence[int]] | None
    known: Mapping[str, npt.ArrayLike] | None
    fallback: str | None
    quantize: Quantization | None

    def network(self, model: Any, machine: Target, opened: list[Any]) -> Network:
        """The network of a model, which may be `opened` already, and is let go when it is read.

        What that takes is imported here: models that are kept need none of it.
        """
        from tensorlang.networks.network import Network
        from tensorlang.networks.onnx.reading import from_onnx

        def read(shapes: Mapping[str, Sequence[int]] | None) -> Network:
            return from_onnx(opened.pop() if opened else model, shapes, self.known, self.fallback)

        if not isinstance(model, Network):
            made = read(self.shapes)
            return made if self.quantize is None else self.quantize.applied(made, machine, read)
        if self.shapes is not None or self.known is not None:
            raise ArgumentError("a network has its shapes and what is known already; give them to from_onnx")
        if self.fallback is not None:
            raise ArgumentError("a network is read already; give fallback to from_onnx")
        return model if self.quantize is None else self.quantize.applied(model, machine, None)

    def to_json(self) -> list[Any]:
        """All of it as plain data; models that need another runtime are not kept."""
        arrays = {name: np.asarray(value) for name, value in (self.known or {}).items()}
        return [
            {name: [int(n) for n in shape] for name, shape in (self.shapes or {}).items()},
            {name: [str(a.dtype), a.shape, a.tobytes().hex()] for name, a in arrays.items()},
            None if self.quantize is None else self.quantize.to_json(),
        ]


def _with_vendor(
    model: Any, machine: Target, progress: Progress | None, numerics: str, how: _Reading, vendor: str
) -> Model:
    """A model of ONNX compiled, with parts that another library runs faster."""
    from tensorlang.networks.network import Network
    from tensorlang.networks.onnx.vendor import check_vendor, compile_with_vendor

    check_vendor(vendor)
    if isinstance(model, Network) or how.quantize is not None:
        raise ArgumentError(f"vendor={vendor!r} takes nodes of a model of ONNX as they are: give its file, or quantize")
    return compile_with_vendor(model, machine, progress, numerics, how.shapes, how.known, how.fallback)


def _compiled(model: Any, machine: Target, progress: Progress | None, numerics: str, how: _Reading) -> Model:
    """A network compiled."""
    with steady():
        from tensorlang.networks.compiling import compile_network

        return compile_network(how.network(model, machine, []), machine, progress, numerics)


def _opened_and_compiled(
    file: _File, machine: Target, progress: Progress | None, numerics: str, key_of: Callable[[str], tuple[str, ...]]
) -> Model:
    """The model of a file compiled, and kept where its content is known. Workers begin before it is read."""
    with steady(), Crew() as crew:
        from tensorlang.networks.onnx.reading import data_files, opened, with_data

        proto = opened(file.path)
        crew.begin(workers_for(len(proto.graph.node) // STEPS_OF_A_KERNEL))
        files = data_files(proto)
        known, content = not files or remember_files(file.path, files), content_of(file.path)
        key, held = key_of(content), [with_data(proto, file.path)]
        del proto
        from tensorlang.networks.compiling import compile_with

        network, kept = [file.how.network(file.path, machine, held)], list[_Weights]()
        known = known and not network[0].fallback and content_of(file.path) == content != ""

        def keep(weights: Mapping[str, Array]) -> None:
            if known and (written := _written(weights, key)) is not None:
                kept.append(written)

        made = compile_with(crew, network.pop(), machine, progress, numerics, keep)
    for weights in kept:
        _keep(made, key, weights)
    return made


def _may_be_kept() -> bool:
    """Whether models are kept: without logs in use, whose records nobody could name, and without dumps."""
    return config.get("cache") and not HISTORIES.get() and config.get("dump") is None


@dataclass(frozen=True, slots=True)
class _Weights:
    """Weights in a file: dtype, shape and place of each, the bytes of its parts, and its digest by these."""

    places: Mapping[str, tuple[Any, tuple[int, ...], int]]
    parts: tuple[int, ...]
    digest: str


@dataclass(frozen=True, slots=True)
class _Kept:
    """A compiled model as data."""

    name: str
    kernels: tuple[bytes, ...]
    steps: tuple[tuple[int, tuple[Any, ...]], ...]
    shapes: Shapes
    weights: _Weights
    inputs: Mapping[str, str]
    outputs: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class _File:
    """A model in a file with its digest, and what is told of it."""

    path: Path
    digest: str
    how: _Reading


def _started(file: _File, machine: Target, progress: Progress | None, numerics: str) -> Model:
    """A model from the cache; compiled, and kept there, where it is not. ArgumentError for a fallback that is none."""
    if file.how.fallback is not None:
        from tensorlang.networks.onnx.fallback import check_fallback

        check_fallback(file.how.fallback)
    said = file.how.to_json()
    key_of = partial(_key, said=said, machine=machine, numerics=numerics)
    key = key_of(file.digest)

    def anew() -> Model:
        if content_of(file.path) != file.digest:
            raise DefinitionError(f"{file.path} has changed since it was compiled")
        if file.how.to_json() != said:
            raise DefinitionError(f"the samples of {file.path} have changed since it was compiled")
        return _compiled(file.path, machine, None, numerics, file.how)

    found = cache.find(key)
    if found is not None:
        with contextlib.suppress(_Unusable):
            made = _restored(found, key, machine)
            made.again = anew
            if progress is not None:
                progress(len(made.steps), len(made.steps), "")
            return made
    return _opened_and_compiled(file, machine, progress, numerics, key_of)


class _Unusable(Exception):
    """What was kept is of no use; it is made again."""


def _key(digest: str, said: list[Any], machine: Target, numerics: str) -> tuple[str, ...]:
    code = fingerprint(Machine(*machine_options(machine)))
    parts = [numerics, said, machine.to_json(), {name: str(config.get(name)) for name in _SETTINGS}]  # type: ignore[call-overload]
    store = _files(config.get("store"), ".jsonl")
    package = _files(Path(__file__).parents[1], ".py")
    return ("model", digest, json.dumps(parts, sort_keys=True), code, sys.version, np.__version__, store, package)


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


def _written(weights: Mapping[str, Array], key: tuple[str, ...]) -> _Weights | None:
    """Weights in a file of their own, where there is room for them."""
    if sum(array.nbytes for array in weights.values()) > _LARGEST:
        return None
    places, parts, end = dict[str, tuple[Any, tuple[int, ...], int]](), [memoryview(_HEAD)], len(_HEAD)
    for name, array in weights.items():
        places[name] = array.dtype, array.shape, end
        parts += [_bytes(array), memoryview(bytes(-array.nbytes % ALIGNMENT))]
        end += len(parts[-2]) + len(parts[-1])
    digest = _beside(lambda: digest_of(parts))
    kept = cache.keep_file(key, _ENDING, parts)
    made = _Weights(places, tuple(map(len, parts)), digest())
    return made if kept else None


def _keep(model: Model, key: tuple[str, ...], weights: _Weights) -> None:
    """Keep a model whose weights are kept, where its kernels can be."""
    runs = list(dict.fromkeys(step.run for step in model.steps))
    packed = [run.packed() for run in runs if run.packed is not None and not run.assumes]
    if len(packed) < len(runs):
        return
    steps = tuple((runs.index(s.run), _said(s)) for s in model.steps)
    kept = _Kept(model.name, tuple(packed), steps, model.shapes, weights, model.inputs, model.outputs)
    try:
        payload = pickle.dumps(kept)
    except Exception:  # whatever there is that nobody can pickle
        return
    cache.keep(key, payload)


def _said(step: Step) -> tuple[Any, ...]:
    """A step without its kernel."""
    return step.arrays, step.stage, step.origin, step.operations, step.algorithm, step.guards


def _restored(found: bytes, key: tuple[str, ...], machine: Target) -> Model:
    """The model that was kept; _Unusable for one that is not whole."""
    try:
        kept: _Kept = pickle.loads(found)
        mapped = cache.find_file(key, _ENDING)
        if mapped is None or len(mapped.content) != sum(kept.weights.parts):
            raise _Unusable
        weights = {name: _weight(mapped.content, *place) for name, place in kept.weights.places.items()}
        whole = _beside(lambda: _are_whole(mapped, kept.weights))
        runs = [_unpacked(packed, machine) for packed in kept.kernels]
        if not whole():
            raise _Unusable
    except _Unusable:
        raise
    except Exception as error:  # whatever is wrong with it, it can be made again
        raise _Unusable from error
    steps = [Step(runs[k], *said) for k, said in kept.steps]
    return Model(kept.name, steps, kept.shapes, weights, kept.inputs, kept.outputs)


def _are_whole(mapped: Mapped, kept: _Weights) -> bool:
    """Whether weights are those that were kept: they were when this was looked at last, and have not changed since."""
    key = ("weights are whole", kept.digest, mapped.state)
    if mapped.state and cache.find(key) is not None:
        read_ahead(mapped.content)
        return True
    begins = accumulate(kept.parts, initial=0)
    same = digest_of([mapped.content[at : at + size] for at, size in zip(begins, kept.parts)]) == kept.digest
    if same and mapped.state:
        cache.keep(key, b"")
    return same


def _unpacked(packed: bytes, machine: Target) -> Executable:
    return backend(machine.kind).unpack(packed, machine)


def _bytes(array: Array) -> memoryview:
    """The bytes of an array of any dtype, without a copy where they lie in order."""
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8).data


def _weight(mapped: memoryview, dtype: Any, shape: tuple[int, ...], place: int) -> Array:
    return np.frombuffer(mapped, dtype, int(np.prod(shape, dtype=np.int64)), place).reshape(shape)
