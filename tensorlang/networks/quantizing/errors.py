"""How far layers of a network in fewer bits are from those in floats."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import replace

import numpy as np

from tensorlang.dataclass import dataclass
from tensorlang.errors import ArgumentError
from tensorlang.networks.compiling import compile_network
from tensorlang.networks.network import Array, Network
from tensorlang.networks.quantizing.probing import Opened, network_of, opened
from tensorlang.networks.quantizing.products import product_of
from tensorlang.networks.quantizing.samples import Samples, samples_of
from tensorlang.te.operation import ComputeOp, Operation, PlaceholderOp
from tensorlang.te.program import unique


@dataclass(frozen=True, slots=True)
class LayerError:
    """How far the output of a node is from that in floats, over all samples.

    `own`: the ratio of signal to noise, in dB, that the layer makes of what layers in floats gave it; `snr`: that with
    the noise of all layers before; 20 dB are an error of a tenth, 40 dB of a hundredth. `greatest`: the largest
    difference with all noise. Exact results have infinite ratios.
    """

    node: str
    op: str
    own: float
    snr: float
    greatest: float

    def __str__(self) -> str:
        return f"{self.own:6.1f} dB own, {self.snr:6.1f} dB, greatest {self.greatest:.2e}: {self.node} ({self.op})"


@dataclass(slots=True)
class _Noise:
    """Sums of squares of an array and of its errors, and the greatest of these."""

    signal: float = 0.0
    noise: float = 0.0
    greatest: float = 0.0

    def add(self, wanted: Array, got: Array) -> None:
        """Take in the results of a sample."""
        exact = wanted.astype(np.float64)
        errors = got.astype(np.float64) - exact
        self.signal += float((exact * exact).sum())
        self.noise += float((errors * errors).sum())
        self.greatest = max(self.greatest, float(np.abs(errors).max(initial=0.0)))

    @property
    def ratio(self) -> float:
        """Of signal to noise, in dB."""
        if not self.noise:
            return math.inf
        return 10 * math.log10(self.signal / self.noise) if self.signal else -math.inf


def layer_errors(network: Network, other: Network, data: Samples) -> tuple[LayerError, ...]:
    """Return how far each product, convolution and output of `other` is from that of `network`, the worst first.

    `other` was made of `network` (`quantize`); `data` are samples as for `quantize`. Worst is what has most noise of
    its own. Raises ArgumentError for samples that do not fit, and for networks that have no layers in common.
    """
    exact, changed = opened(network), opened(other)
    layers = _layers(exact, changed)
    if not layers or other.input_shapes != network.input_shapes:
        raise ArgumentError(f"{other.name} was not made of {network.name}: they have no layers in common")
    found = {name: (_Noise(), _Noise()) for name in layers}
    for wanted, own, got in _results(exact, changed, layers, data):
        for name, (alone, whole) in found.items():
            alone.add(wanted[name], own[name])
            whole.add(wanted[name], got[name])
    rows = []
    for name, (alone, whole) in found.items():
        origin = network.origin(name)
        rows.append(LayerError(origin.node, origin.op, alone.ratio, whole.ratio, whole.greatest))
    return tuple(sorted(rows, key=lambda row: row.own))


def _layers(exact: Opened, changed: Opened) -> tuple[str, ...]:
    """The last stages of nodes with products, and outputs, that both programs have."""
    sums = [op.name for op in exact.program.ops if product_of(op, exact.weights) is not None]
    nodes = {exact.network.origin(name).node for name in sums}
    last: dict[str, str] = {}
    for op in exact.program.ops:
        node = exact.network.origin(op.name).node
        if node in nodes and _is_float(op) and op.name in changed.program.by_name:
            last[node] = op.name
    outputs = [name for name in exact.wanted if _is_float(exact.program[name])]
    return tuple(dict.fromkeys([*last.values(), *outputs]))


def _is_float(op: Operation) -> bool:
    return isinstance(op, ComputeOp) and op.num_outputs == 1 and op.dtype == "float32"


def _results(
    exact: Opened, changed: Opened, layers: tuple[str, ...], data: Samples
) -> Iterator[tuple[Mapping[str, Array], Mapping[str, Array], Mapping[str, Array]]]:
    """Of each sample what layers make in floats, what changed layers make of that, and what these make one by one."""
    plain, alone, whole = (
        compile_network(made)
        for made in (network_of(exact, layers), _apart(changed, layers), network_of(changed, layers))
    )
    for _, sample in samples_of(exact.network, data):
        wanted = plain.run(sample)
        own = alone.run([*sample, *wanted])
        yield tuple(dict(zip(layers, r, strict=True)) for r in (wanted, own, whole.run(sample)))  # type: ignore[misc]


def _apart(changed: Opened, layers: tuple[str, ...]) -> Network:
    """The network that takes the output of each layer as an input, and makes that of each of what it is given."""
    taken = {op.name for op in changed.program.ops}
    names = {name: unique(f"{name}_own", taken) for name in layers}
    ops: list[Operation] = []
    for op in changed.program.ops:
        if op.name in names:
            assert isinstance(op, ComputeOp)
            ops = [PlaceholderOp(op.name, op.shape, op.dtype), *ops, replace(op, name=names[op.name])]
        else:
            ops.append(op)
    made = tuple(names.values())
    program = replace(changed.program, ops=tuple(ops), outputs=made)
    return network_of(replace(changed, program=program), made, layers)
