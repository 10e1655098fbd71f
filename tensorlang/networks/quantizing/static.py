"""Networks whose products are made of 8-bit integers, with levels from samples of inputs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

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
    return quantize_by(network, [(network, data)], method, keep, percentile)


def quantize_by(
    network: Network,
    groups: Sequence[tuple[Network, Samples]],
    method: str,
    keep: Sequence[str],
    percentile: float,
) -> Network:
    """As `quantize`, with samples in groups: each with the network for its shapes, this one or another of its model.

    Ranges belong to arrays by their names. DefinitionError where the others have none of some array.
    """
    if method not in METHODS:
        raise ArgumentError(f"methods are {', '.join(METHODS)}, got {method!r}")
    if not 0 < percentile <= 100:
        raise ArgumentError(f"percentile is above 0 and at most 100, got {percentile}")
    found = opened(network)
    plan = plan_of(network, found.program, found.weights, kept_nodes(network, keep))
    if not plan.products:
        raise DefinitionError(f"{network.name} has no products by known weights to quantize")
    made: dict[str, Histogram] = {}
    for other, data in groups:
        same = found if other is network else opened(other)
        arrays = [name for name in plan.held if name not in plan.moves and name in same.program.by_name]
        _add_histograms(made, same, arrays, data)
    ranges = {first: METHODS[method](one, percentile) for first, one in _by_class(network, plan, made).items()}
    levels = {name: levels_of(*ranges[first]) for name, first in plan.held.items()}
    return found.closed(*written(found.program, found.weights, plan, Integers(levels)))


def _add_histograms(made: dict[str, Histogram], found: Opened, arrays: Sequence[str], data: Samples) -> None:
    """Count the numbers of arrays in all samples."""
    for label, results in probed(found, arrays, data):
        for name in arrays:
            array = results[name]
            if not np.isfinite(array).all():
                node = found.network.origin(name).node
                raise ArgumentError(f"{label}: {node} makes numbers that are not finite")
            one = histogram_of(array)
            made[name] = made[name].joined(one) if name in made else one


def _by_class(network: Network, plan: Plan, made: Mapping[str, Histogram]) -> dict[str, Histogram]:
    """The histogram of each class of arrays with the same levels."""
    found: dict[str, Histogram] = {}
    for name, first in plan.held.items():
        if name in made:
            found[first] = found[first].joined(made[name]) if first in found else made[name]
    for first in set(plan.held.values()) - found.keys():
        node = network.origin(first).node
        raise DefinitionError(
            f"{node} makes an array that it does not make for the shapes of samples: give some of its"
        )
    return found
