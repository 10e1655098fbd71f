"""A compiled network beside other runtimes that read its model: the same inputs, by turns, in one process."""

from __future__ import annotations

import importlib.util
import os
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np

from tensorlang.dataclass import dataclass
from tensorlang.networks.network import Array

Call: TypeAlias = Callable[[], Sequence[Array]]


@dataclass(frozen=True, slots=True)
class Timed:
    """Seconds of a call, one for each turn, and the largest error of an output over its largest value."""

    seconds: tuple[float, ...]
    error: float

    @property
    def median(self) -> float:
        """The median of the turns."""
        return statistics.median(self.seconds)


def installed() -> list[str]:
    """The other runtimes that are here."""
    return [name for name in PEERS if importlib.util.find_spec(name) is not None]


def compared(own: Call, peers: Mapping[str, Call], rounds: int = 7, seconds: float = 0.2) -> dict[str, Timed]:
    """Time a network, as `tensorlang`, and others by turns of so many seconds; their outputs are held against its own.

    A turn begins with a call that is not timed, so that nobody pays for what the one before has left in caches, or for
    threads of it that still spin.
    """
    calls = {"tensorlang": own, **peers}
    made = {name: list(call()) for name, call in calls.items()}
    found: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(rounds):
        for name, call in calls.items():
            found[name].append(_turn(call, seconds))
    errors = {name: error_of(made["tensorlang"], outputs) for name, outputs in made.items()}
    return {name: Timed(tuple(times), errors[name]) for name, times in found.items()}


def error_of(made: Sequence[Array], wanted: Sequence[Array]) -> float:
    """The largest difference of outputs, over their largest value; infinite for other shapes."""
    return max((_error(got, want) for got, want in zip(made, wanted, strict=True)), default=0.0)


def _error(got: Array, want: Array) -> float:
    if got.shape != want.shape:
        return float("inf")
    wide = want.astype(np.float64)
    return float(np.abs(got.astype(np.float64) - wide).max(initial=0.0) / max(np.abs(wide).max(initial=0.0), 1e-30))


def _turn(call: Call, seconds: float) -> float:
    call()
    count, start = 0, time.perf_counter()
    while (spent := time.perf_counter() - start) < seconds or count == 0:
        call()
        count += 1
    return spent / count


def _onnxruntime(model: str | os.PathLike[str], inputs: Mapping[str, Array], threads: int) -> Call:
    import onnxruntime

    options: Any = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    session: Any = onnxruntime.InferenceSession(os.fspath(model), options, providers=["CPUExecutionProvider"])
    return lambda: [np.asarray(made) for made in session.run(None, dict(inputs))]


def _openvino(model: str | os.PathLike[str], inputs: Mapping[str, Array], threads: int) -> Call:
    openvino: Any = importlib.import_module("openvino")
    settings = {
        "PERFORMANCE_HINT": "LATENCY",
        "INFERENCE_NUM_THREADS": threads,
        "INFERENCE_PRECISION_HINT": openvino.Type.f32,
    }
    read = openvino.Core().read_model(os.fspath(model))
    read.reshape({name: array.shape for name, array in inputs.items()})
    request = openvino.Core().compile_model(read, "CPU", settings).create_infer_request()
    for name, array in inputs.items():
        request.set_tensor(name, openvino.Tensor(array))

    def call() -> list[Array]:
        request.infer()
        return [np.asarray(tensor.data) for tensor in request.output_tensors]

    return call


PEERS: Mapping[str, Callable[[str | os.PathLike[str], Mapping[str, Array], int], Call]] = {
    "onnxruntime": _onnxruntime,
    "openvino": _openvino,
}
"""What makes a call of a model, by the name of the package: its inputs by name, and so many threads."""
