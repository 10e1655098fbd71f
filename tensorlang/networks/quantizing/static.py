"""Networks whose products are made of 8-bit integers, with levels from samples of inputs."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tensorlang.errors import ArgumentError, DefinitionError
from tensorlang.networks.network import Network
from tensorlang.networks.quantizing.integers import Integers
from tensorlang.networks.quantizing.plan import Plan, plan_of
from tensorlang.networks.quantizing.probing import Opened, kept_nodes, opened, probed
from tensorlang.networks.quantizing.ranges import METHODS, Histogram, histogram_of, levels_of
from tensorlang.networks.quantizing.samples import Samples
from tensorlang.networks.quantizing.writing import written


def quantize(
    network: Network,
    data: Samples,
    method: str = "minmax",
    keep: Sequence[str] = (),
    percentile: float = 99.999,
) -> Network:
    """Return the network with products of 8-bit integers, for inputs like those of `data`.

    `data`: a folder, each of whose .npy (of the only input) and .npz files (by names of inputs) is a sample, or an
    iterable of samples: an array, a tuple of inputs, or a mapping of their names to arrays. Products and convolutions
    by known weights are sums of uint8 data by int8 weights in 32 bits; weights are symmetric with a scale for each
    column, data have a scale and a zero for each array, and the kernels of these products pass bytes on to each other,
    through sums with residuals, joins, and the largest of windows. Sums over each channel by itself and all else
    are made in floats, of bytes where these are what there is. `method`: how the range of an array is taken from
    samples, "minmax", "percentile" (of all numbers `percentile` percent, which cuts off both ends alike), or "entropy"
    (of least Kullback-Leibler divergence, as TensorRT has it). `keep`: nodes that stay in floats, by name or pattern
    (`/head/*`), with what is computed in their kernels; `layer_errors` tells which are worth it.

    Raises ArgumentError for samples that do not fit, or are not finite, for other methods, and for names that no node
    has; DefinitionError where there is no product to quantize.
    """
    if method not in METHODS:
        raise ArgumentError(f"methods are {', '.join(METHODS)}, got {method!r}")
    if not 0 < percentile <= 100:
        raise ArgumentError(f"percentile is above 0 and at most 100, got {percentile}")
    found = opened(network)
    plan = plan_of(network, found.program, found.weights, kept_nodes(network, keep))
    if not plan.products:
        raise DefinitionError(f"{network.name} has no products by known weights to quantize")
    ranges = {name: METHODS[method](made, percentile) for name, made in _histograms(found, plan, data).items()}
    levels = {name: levels_of(*ranges[first]) for name, first in plan.held.items()}
    return found.closed(*written(found.program, found.weights, plan, Integers(levels)))


def _histograms(found: Opened, plan: Plan, data: Samples) -> dict[str, Histogram]:
    """The numbers of all samples, for each class of arrays with the same levels."""
    made: dict[str, Histogram] = {}
    arrays = [name for name in plan.held if name not in plan.moves]
    for label, results in probed(found, arrays, data):
        for name in arrays:
            array, first = results[name], plan.held[name]
            if not np.isfinite(array).all():
                node = found.network.origin(name).node
                raise ArgumentError(f"{label}: {node} makes numbers that are not finite")
            one = histogram_of(array)
            made[first] = made[first].joined(one) if first in made else one
    return made
