"""Networks as programs and back, nodes by their names, and what stages make of samples."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from fnmatch import fnmatchcase

from tensorlang.dataclass import dataclass
from tensorlang.errors import ArgumentError
from tensorlang.networks.compiling import compile_network, program_of
from tensorlang.networks.network import Array, Network
from tensorlang.networks.quantizing.samples import Samples, samples_of
from tensorlang.networks.scaling import scaled
from tensorlang.te.declared import all_declared
from tensorlang.te.operation import PlaceholderOp, Tensor
from tensorlang.te.program import Program, read_buffers


@dataclass(frozen=True, slots=True)
class Opened:
    """A network as a program: folded, with factors of channels in its weights. `wanted`: its outputs in order."""

    network: Network
    program: Program
    weights: Mapping[str, Array]
    wanted: tuple[str, ...]

    def closed(self, program: Program, weights: Mapping[str, Array]) -> Network:
        """The network of another program with the same inputs and outputs."""
        made = all_declared(program)
        inputs = tuple(Tensor(made[t.op.name], 0) for t in self.network.inputs)
        outputs = tuple(
            Tensor(made[name], t.value_index) for name, t in zip(self.wanted, self.network.outputs, strict=True)
        )
        return replace(self.network, inputs=inputs, outputs=outputs, weights=dict(weights))


def opened(network: Network) -> Opened:
    """A network as a program; ArgumentError for what is none, as the file of a model."""
    if not isinstance(network, Network):
        read = "read a model first, as in tensorlang.quantize(tensorlang.from_onnx(path), ...)"
        raise ArgumentError(f"networks are quantized, got {type(network).__name__}; {read}")
    program, wanted = program_of(network)
    program, weights = scaled(program, network.weights)
    return Opened(network, program, weights, wanted)


def kept_nodes(network: Network, keep: Sequence[str]) -> set[str]:
    """The nodes that some names and patterns mean; ArgumentError for those that mean none."""
    nodes = dict.fromkeys(origin.node for origin in network.origins.values())
    kept = set[str]()
    for word in [keep] if isinstance(keep, str) else keep:
        meant = {node for node in nodes if node == word or fnmatchcase(node, word)}
        if not meant:
            raise ArgumentError(f"no node is called {word!r}; there are {_some(nodes)}")
        kept |= meant
    return kept


def _some(names: Iterable[str], most: int = 8) -> str:
    names = list(names)
    return ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")


def probed(found: Opened, stages: Sequence[str], data: Samples) -> Iterator[tuple[str, dict[str, Array]]]:
    """What stages make of each sample, and what to call that; of inputs, what they are."""
    network = found.network
    inputs = {word: t.op.name for word, t in zip(network.input_names, network.inputs, strict=True)}
    made = tuple(name for name in stages if not isinstance(found.program[name], PlaceholderOp))
    model = compile_network(network_of(found, made)) if made else None
    for label, sample in samples_of(network, data):
        given = dict(zip(inputs.values(), sample, strict=True))
        results = model.run(sample) if model is not None else ()
        yield label, {**given, **dict(zip(made, results, strict=True))}


def network_of(found: Opened, stages: tuple[str, ...], given: tuple[str, ...] = ()) -> Network:
    """The network whose outputs are some stages; its inputs are all inputs, and the placeholders that are `given`."""
    inputs = (*(t.op.name for t in found.network.inputs), *given)
    program = replace(found.program, outputs=stages)
    needed = {*inputs, *stages}
    for op in reversed(program.ops):
        if op.name in needed:
            needed |= {program.producer[b] for b in read_buffers(op)}
    made = all_declared(replace(program, ops=tuple(op for op in program.ops if op.name in needed)))
    return Network(
        found.network.name,
        tuple(Tensor(made[name], 0) for name in inputs),
        tuple(Tensor(made[name], 0) for name in stages),
        {name: array for name, array in found.weights.items() if name in made},
        (*found.network.input_names, *given),
        stages,
        found.network.origins,
    )
