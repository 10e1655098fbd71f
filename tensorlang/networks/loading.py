"""An exported network in this process again: a model whose one step is the library."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from tensorlang.errors import RecordError
from tensorlang.export.network import WEIGHTS, is_whole
from tensorlang.networks.model import Memory, Model, Step
from tensorlang.networks.signature import LIBRARY, Array, Origin
from tensorlang.runtime.executable import Executable


def network_of_library(kernel: Executable, known: Mapping[str, Any], path: Path) -> Model:
    """The model of a library, by its metadata: its weights are mapped from the file beside it, and looked at once.

    RecordError where that is missing, or not what the library was written with.
    """
    arguments = [b.name for b in kernel.kernel.params]
    shapes = {name: (tuple(a["shape"]), a["dtype"]) for name, a in known["arrays"].items() if name in arguments}
    weights: dict[str, Array] = {}
    if WEIGHTS in arguments:
        weights[WEIGHTS] = _mapped(path.with_suffix(f".{WEIGHTS}"), bytes.fromhex(known[WEIGHTS]["seal"]))
        shapes[WEIGHTS] = weights[WEIGHTS].shape, "uint8"
    operations = sum(step["operations"] for step in known["steps"])
    name = kernel.entry_name
    step = Step(kernel, tuple(arguments), name, Origin(name, LIBRARY), operations)
    return Model(name, [step], shapes, weights, known["inputs"], known["outputs"], inner=Memory(0, known["arena"]))


def _mapped(file: Path, seal: bytes) -> Array:
    try:
        found = np.asarray(np.memmap(file, np.uint8, "r"))
    except (OSError, ValueError) as error:
        raise RecordError(f"the weights of the network cannot be read: {error}") from None
    if found[: len(seal)].tobytes() != seal or not is_whole(found.data):
        raise RecordError(f"{file} holds other weights than those that the library was exported with")
    return found
