"""One step of a decoder: some tokens of each sequence through all layers, whose keys and values go into the caches.

The calls of kernels are prepared once. Behind the weights of a layer nothing of Python is in the caches of a CPU, and
what is done anew for each token takes ten times as long as it would there.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from examples.llm import kernels
from examples.llm.parameters import Parameters
from examples.llm.weights import Weights

Array = npt.NDArray[Any]
_Call = tuple[Any, tuple[Any, ...]]


@dataclass(frozen=True, slots=True)
class Layer:
    """The norms and weights of a layer, and its caches of keys and values: float16[batch, groups, context, depth]."""

    norms: list[Array]
    weights: list[Weights]
    caches: list[Array]


@dataclass(frozen=True, slots=True)
class _Calls:
    """Those of a layer: before attention, attention, and behind it; `caches` are those of the sequences."""

    before: _Call
    attend: _Call
    behind: list[_Call]
    caches: list[Array]


class Step:
    """`n` tokens of each of `batch` sequences: arrays of their rows, which all layers share, and the calls on them."""

    def __init__(
        self,
        p: Parameters,
        layers: Sequence[Layer],
        tables: tuple[Array, Array],
        which: slice,
        batch: int,
        n: int,
    ) -> None:
        rows = batch * n
        self._positions, self._lengths = np.empty((batch, n), np.int32), np.empty(batch, np.int32)
        self._new = [np.empty((batch, p.groups, n, p.depth), np.float16) for _ in range(2)]
        self._rows, heads, behind = (np.empty((rows, p.width), np.float32) for _ in range(3))
        queries, hidden = np.empty((batch, p.heads, n, p.depth), np.float32), np.empty((rows, p.hidden), np.float32)

        def calls(layer: Layer) -> _Calls:
            query, key, value, output, gate, up, down = layer.weights
            caches = [cache[which] for cache in layer.caches]
            projected = [array for weights in (query, key, value) for array in weights.arrays]
            ahead = (self._rows, layer.norms[0], *projected, self._positions, *tables, queries, *self._new)
            through = (behind, layer.norms[1], *gate.arrays, *up.arrays, hidden)
            return _Calls(
                (kernels.before(p, batch, n, query.shape, key.shape, value.shape), ahead),
                (kernels.attend(p, batch, n), (queries, *caches, self._lengths, heads)),
                [
                    (kernels.added(rows, output.shape), (heads, self._rows, *output.arrays, behind)),
                    (kernels.gated(p, rows, gate.shape, up.shape), through),
                    (kernels.added(rows, down.shape), (hidden, behind, *down.arrays, self._rows)),
                ],
                caches,
            )

        self._layers = [calls(layer) for layer in layers]

    def run(self, rows: Array, begin: Array, count: int) -> Array:
        """The rows float32[batch * n, width] behind all layers, of rows whose sequences have `begin` tokens yet.

        The first `count` of each are put into the caches. What is returned is overwritten by the next step.
        """
        self._rows[...] = rows
        self._positions[...] = begin[:, None] + np.arange(self._positions.shape[1])
        self._lengths[...] = self._positions[:, -1] + 1
        most, places = int(self._lengths.max()), [(b, int(first)) for b, first in enumerate(begin)]
        for layer in self._layers:
            kernel, arrays = layer.before
            kernel(*arrays)
            for cache, made in zip(layer.caches, self._new, strict=True):
                for b, first in places:
                    cache[b, :, first : first + count] = made[b, :, :count]
            kernel, (*given, heads) = layer.attend
            kernel(*given, most, heads)
            for kernel, arrays in layer.behind:
                kernel(*arrays)
        return self._rows
