"""An architecture both ways: through ONNX beside onnxruntime, and from PyTorch beside PyTorch."""

from __future__ import annotations

import contextlib
import io
import logging
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from benchmarks.zoo.architectures import ARCHITECTURES, Architecture
from tensorlang.networks.compiling import compile_network
from tensorlang.networks.model import Model
from tensorlang.networks.network import Array

TOLERANCE = 1e-4
"""Of half the range of an output: errors of Winograd's algorithm add up over layers."""
WAYS = ("onnx", "torch")


@dataclass(frozen=True, slots=True)
class Run:
    """What came of an architecture in one way: kernels, and the largest error of an output over half of its range.

    `why`: what went wrong; empty where all is equal within the tolerance.
    """

    name: str
    package: str
    way: str
    kernels: int = 0
    error: float = 0.0
    why: str = ""

    @property
    def equal(self) -> bool:
        """Whether it runs, and makes what others make."""
        return not self.why


def run(name: str, way: str) -> Run:
    """Compile and compare an architecture."""
    (architecture,) = (a for a in ARCHITECTURES if a.name == name)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        logging.disable(logging.WARNING)
        try:
            model, made, wanted = {"onnx": through_onnx, "torch": from_pytorch}[way](architecture)
        except Exception as raised:  # whatever it is, the next architecture is looked at
            return Run(name, architecture.package, way, why=f"{type(raised).__name__}: {raised}")
        finally:
            logging.disable(logging.NOTSET)
    why, error = differences(made, wanted)
    return Run(name, architecture.package, way, len(model.steps), error, why)


def through_onnx(architecture: Architecture) -> tuple[Model, Sequence[Array], Sequence[Array]]:
    """The model of what `torch.onnx.export` writes, its outputs, and those of onnxruntime."""
    import onnxruntime
    import torch

    import tensorlang

    inputs, quiet = architecture.example(), io.StringIO()
    with torch.no_grad(), contextlib.redirect_stdout(quiet), contextlib.redirect_stderr(quiet):
        program = torch.onnx.export(architecture.module(), (), kwargs=inputs, dynamo=True, verbose=False)
    proto = program.model_proto
    session: Any = onnxruntime.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"])
    given = {i.name: inputs[i.name].numpy() for i in session.get_inputs()}
    network = tensorlang.from_onnx(proto)
    model = compile_network(network)
    return model, model.run([given[name] for name in model.input_names]), session.run(list(model.output_names), given)


def from_pytorch(architecture: Architecture) -> tuple[Model, Sequence[Array], Sequence[Array]]:
    """The model of a module, its outputs, and those of PyTorch."""
    import torch

    import tensorlang

    module, inputs = architecture.module(), architecture.example()
    with torch.no_grad():
        model = compile_network(tensorlang.from_torch(module, (), inputs))
        return model, _arrays(model(**inputs).values()), _arrays(module(**inputs).values())


def _arrays(tensors: Iterable[Any]) -> list[Array]:
    return [tensor.numpy() for tensor in tensors]


def differences(made: Sequence[Array], wanted: Sequence[Array]) -> tuple[str, float]:
    """What is wrong with outputs, nothing where they are equal, and the largest error over half the range of one."""
    worst = 0.0
    for got, want in zip(made, wanted, strict=True):
        if (got.shape, got.dtype) != (want.shape, want.dtype):
            return f"{got.dtype}{list(got.shape)} in place of {want.dtype}{list(want.shape)}", float("inf")
        wide = want.astype(np.float64)
        half = float(wide.max() - wide.min()) / 2
        if not half:
            return "an output is the same number everywhere, and so says nothing", 0.0
        error = float(np.abs(got - wide).max()) / half
        worst = max(worst, error if np.isfinite(error) else float("inf"))
    return "" if worst <= TOLERANCE else f"it differs by {worst:.1e} of the range", worst


def chosen(matches: Callable[[str], bool]) -> Mapping[str, str]:
    """The package of each architecture that is asked for, by name; without those whose package is missing."""
    return {a.name: a.package for a in ARCHITECTURES if matches(a.name) and not a.missing}
