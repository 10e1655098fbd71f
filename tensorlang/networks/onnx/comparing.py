"""What a network makes beside what onnxruntime makes of the same model."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

from tensorlang.errors import MissingDependency
from tensorlang.networks.model import Model
from tensorlang.networks.network import Array, Network
from tensorlang.networks.onnx.peers import error_of


def errors_of(
    model: str | os.PathLike[str], network: Network | Model, inputs: Sequence[Array], outputs: Mapping[str, Array]
) -> dict[str, float]:
    """By output the largest difference from onnxruntime's, over its largest value; infinite for another shape.

    MissingDependency without onnxruntime.
    """
    wanted = outputs_of(model, network, inputs)
    return {name: error_of([got], [want]) for (name, got), want in zip(outputs.items(), wanted, strict=True)}


def outputs_of(model: str | os.PathLike[str], network: Network | Model, inputs: Sequence[Array]) -> list[Array]:
    """What onnxruntime makes of a model. MissingDependency without it."""
    try:
        import onnxruntime
    except ImportError as error:
        raise MissingDependency("comparing needs onnxruntime: pip install 'tensorlang[onnx]'") from error
    session: Any = onnxruntime.InferenceSession(os.fspath(model), providers=["CPUExecutionProvider"])
    found: list[Array] = session.run(list(network.output_names), dict(zip(network.input_names, inputs, strict=True)))
    return found
