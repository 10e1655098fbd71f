"""Random inputs of a network, for those who want its time and not its answer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import numpy as np

from tensorlang.networks.network import Array

_SEED = 0


class Shaped(Protocol):
    """What has inputs: a network, or a model."""

    @property
    def input_shapes(self) -> dict[str, tuple[tuple[int, ...], Any]]:
        """Shape and NumPy dtype of each input, by the model's name for it."""


def drawn_inputs(network: Shaped, given: Mapping[str, Array] | None = None) -> Sequence[Array]:
    """Normal floats, and zeros and ones for what may be indices, in order; arrays that are `given` stay."""
    rng, known = np.random.default_rng(_SEED), given or {}
    return [known[n] if n in known else _drawn(rng, *facts) for n, facts in network.input_shapes.items()]


def _drawn(rng: np.random.Generator, shape: tuple[int, ...], dtype: Any) -> Array:
    if np.issubdtype(dtype, np.floating):
        return rng.standard_normal(shape).astype(dtype)
    return rng.integers(0, 2, shape).astype(dtype)
