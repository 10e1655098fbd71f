"""What a network makes beside what onnxruntime makes of the same model."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tensorlang.errors import MissingDependency
from tensorlang.networks.network import Array, Network


def errors_of(
    model: str | os.PathLike[str], network: Network, inputs: Sequence[Array], outputs: Mapping[str, Array]
) -> dict[str, float]:
    """By output the largest difference from onnxruntime's, over its largest value; infinite for another shape.

    MissingDependency without onnxruntime.
    """
    try:
        import onnxruntime
    except ImportError as error:
        raise MissingDependency("comparing needs onnxruntime: pip install 'tensorlang[onnx]'") from error
    session: Any = onnxruntime.InferenceSession(os.fspath(model), providers=["CPUExecutionProvider"])
    wanted = session.run(list(outputs), dict(zip(network.input_names, inputs, strict=True)))
    return {name: _error(got, want) for (name, got), want in zip(outputs.items(), wanted, strict=True)}


def _error(got: Array, want: Array) -> float:
    if got.shape != want.shape:
        return float("inf")
    wide = want.astype(np.float64)
    return float(np.abs(got.astype(np.float64) - wide).max(initial=0.0) / max(np.abs(wide).max(initial=0.0), 1e-30))
