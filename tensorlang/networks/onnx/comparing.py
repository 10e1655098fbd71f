"""What a network makes beside what onnxruntime makes of the same model."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from tensorlang.errors import MissingDependency
from tensorlang.networks.model import Model
from tensorlang.networks.network import Array, Network
from tensorlang.networks.onnx.peers import error_of

_DTYPES = {"float": "float32", "double": "float64"}
"""Those that onnxruntime names in its own way."""


def errors_of(
    model: str | os.PathLike[str],
    network: Network | Model,
    inputs: Sequence[Array],
    outputs: Mapping[str, Array],
    known: Mapping[str, npt.ArrayLike] | None = None,
) -> dict[str, float]:
    """By output the largest difference from onnxruntime's, over its largest value; infinite for another shape.

    MissingDependency without onnxruntime.
    """
    wanted = outputs_of(model, network, inputs, known)
    return {name: error_of([got], [want]) for (name, got), want in zip(outputs.items(), wanted, strict=True)}


def outputs_of(
    model: str | os.PathLike[str],
    network: Network | Model,
    inputs: Sequence[Array],
    known: Mapping[str, npt.ArrayLike] | None = None,
) -> list[Array]:
    """What onnxruntime makes of a model, and of what is `known` of other inputs. MissingDependency without it."""
    try:
        import onnxruntime
    except ImportError as error:
        raise MissingDependency("comparing needs onnxruntime: pip install 'tensorlang[onnx]'") from error
    session: Any = onnxruntime.InferenceSession(os.fspath(model), providers=["CPUExecutionProvider"])
    types = {i.name: i.type.removeprefix("tensor(").rstrip(")") for i in session.get_inputs()}
    given = {name: np.asarray(v, _DTYPES.get(types[name], types[name])) for name, v in (known or {}).items()}
    given |= dict(zip(network.input_names, inputs, strict=True))
    found: list[Array] = session.run(list(network.output_names), given)
    return found
