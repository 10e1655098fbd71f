"""Models with nodes that are not taken: these run in onnxruntime, in the largest parts that leave no circle.

A model is read twice. The first time tells which nodes are not taken, what they make stands in its place where its
shape is known, and reading goes on. The second time each part is one stage that calls onnxruntime (`te.extern`), and
so a kernel like others: what it reads and makes has places in the network's memory. Outputs without a fixed shape are
made at the end, of outputs of the network.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import field, replace
from typing import Any, TypeAlias

import numpy as np

from tensorlang import config, te
from tensorlang.dataclass import dataclass
from tensorlang.errors import ArgumentError, DefinitionError
from tensorlang.networks.network import Array, Tail, Value
from tensorlang.networks.node import shape_of
from tensorlang.networks.onnx.foreign import (
    caller_of,
    fixed,
    made_types,
    onnxruntime_package,
    part_of_model,
    session_of,
)
from tensorlang.networks.onnx.graphs import RANDOM, label_of, reads_of
from tensorlang.networks.onnx.scopes import Read, Reading
from tensorlang.networks.refusal import Refusal
from tensorlang.te.operation import Tensor
from tensorlang.words import printable

RUNTIME = "onnxruntime"
_SHOWN = 3


def check_fallback(fallback: str | None) -> None:
    """ArgumentError for what can run no nodes."""
    if fallback not in (None, RUNTIME):
        raise ArgumentError(f"fallback is {RUNTIME!r} or None, got {fallback!r}")


@dataclass(slots=True)
class _Foreign:
    """Nodes by number that are not taken, and why, with what they make: `kinds` of fixed shapes, and what is `loose`.

    `types`: those that are known of the latter. `ahead`: nodes whose inputs are known, and `made`, what they give.
    """

    nodes: dict[int, tuple[Refusal, ...]] = field(default_factory=dict)
    ahead: dict[int, tuple[Refusal, ...]] = field(default_factory=dict)
    made: dict[str, Array] = field(default_factory=dict)
    loose: set[str] = field(default_factory=set)
    kinds: dict[str, tuple[tuple[int, ...], str]] = field(default_factory=dict)
    types: dict[str, Any] = field(default_factory=dict)


def read_with_fallback(
    model: Any, fresh: Callable[[], Reading], read: Read, refused: Sequence[Refusal], chosen: Mapping[int, str]
) -> Reading:
    """A model as far as it can be read, with parts of it that run in onnxruntime.

    `fresh` begins to read it anew, `refused` is what was refused before, `chosen` are nodes that are to run there, by
    number, and why. MissingDependency without onnxruntime.
    """
    package = onnxruntime_package(refused)
    nodes = list(model.graph.node)
    said = {value.name: value.type for value in (*model.graph.value_info, *model.graph.output)}
    first = fresh()
    found = _foreign(model, first, read, said, package, chosen)
    results = [output.name for output in model.graph.output]
    last = _last(nodes, found, results)
    stages = _stages(nodes, found, first.values)
    reading = fresh()
    reading.values |= found.made
    reading.fallen += [refusal for refusals in found.ahead.values() for refusal in refusals]

    def part_of(numbers: Sequence[int]) -> _Part:
        others = {name for n, node in enumerate(nodes) if n not in numbers for name in reads_of(node)}
        return _Part(model, [nodes[n] for n in numbers], {*others, *results}, found.kinds)

    for stage in range(max(stages, default=0) + 1):
        part = [n for n in found.nodes if stages[n] == stage]
        if part:
            refusals = [refusal for n in part for refusal in found.nodes[n]]
            _add_part(part_of(part), refusals, reading, package, _call)
        for number, node in enumerate(nodes):
            if stages[number] == stage and number not in {*found.nodes, *found.ahead, *last}:
                read(node, reading)
    if last:
        refusals = [refusal for refusals in last.values() for refusal in refusals]
        _add_part(part_of(list(last)), refusals, reading, package, _end)
    if "networks" in config.get("log"):
        lines = "".join(f"\n  {refusal}" for refusal in reading.fallen)
        print(f"networks: onnxruntime runs {len(reading.fallen)} nodes of {reading.name}:{lines}", file=sys.stderr)
    return reading


def _foreign(
    model: Any, reading: Reading, read: Read, said: Mapping[str, Any], package: Any, chosen: Mapping[int, str]
) -> _Foreign:
    """The nodes that are not taken, or `chosen`; what they make stands in its place, where its shape is known.

    Where nothing can be inferred, the type counts that is `said` of a name.
    """
    found = _Foreign()
    for number, node in enumerate(model.graph.node):
        before = len(reading.refused), len(reading.skipped)
        read(node, reading)
        if before == (len(reading.refused), len(reading.skipped)):
            if number in chosen and all(name in reading.values for name in node.output if name):
                found.nodes[number] = (_refusal(node, chosen[number]),)
                made = {name: reading.values[name] for name in node.output if name}
                found.kinds |= {name: (shape_of(value), str(value.dtype)) for name, value in made.items()}
            continue
        unknown = ", ".join(name for name in reads_of(node) if name in found.loose)
        why = f"the shape of its input {unknown} is known only when the network runs"
        refusals = tuple(reading.refused[before[0] :]) or (_refusal(node, why),)
        known_ahead = _made_ahead(model, node, reading, package)
        if known_ahead is not None:
            found.ahead[number] = refusals
            found.made |= known_ahead
            reading.values |= known_ahead
            continue
        found.nodes[number] = refusals
        types = {n: said[n] for n in node.output if n in said and said[n].HasField("tensor_type")}
        types |= made_types(node, reading.values, found.types, reading.opsets)
        for name in filter(None, node.output):
            known = fixed(types[name]) if name in types else None
            if known is not None:
                found.kinds[name] = known
                reading.values[name] = te.placeholder(*known, f"foreign{len(reading.values)}")
            else:
                found.loose.add(name)
                found.types |= {name: types[name]} if name in types else {}
    return found


def _made_ahead(model: Any, node: Any, reading: Reading, package: Any) -> dict[str, Array] | None:
    """What onnxruntime makes of a node whose inputs are known; None where they are not, or it cannot."""
    inputs = {name: value for name in reads_of(node) if isinstance(value := reading.values.get(name), np.ndarray)}
    if len(inputs) < len(set(reads_of(node))) or node.op_type in RANDOM:
        return None
    outputs = [name for name in node.output if name]
    data, _ = part_of_model([node], inputs, outputs, model)
    try:
        return dict(zip(outputs, map(np.asarray, session_of(package, data).run(outputs, {})), strict=True))
    except Exception:  # whatever it is, it is said where the node is called
        return None


def _refusal(node: Any, why: str) -> Refusal:
    return Refusal(label_of(node), printable(node.op_type, 200), printable(why))


def _last(nodes: Sequence[Any], found: _Foreign, results: Sequence[str]) -> dict[int, tuple[Refusal, ...]]:
    """The nodes that run at the end, taken out of the others: whatever makes, or is made of, results of no fixed shape.

    They get values that have one.
    """
    makers = {name: n for n, node in enumerate(nodes) for name in node.output}
    last, more = set[int](), {makers[name] for name in results if name in found.loose}
    while more:
        last |= more
        made = {name for n in last for name in nodes[n].output}
        more = {makers[name] for n in last for name in reads_of(nodes[n]) if name in found.loose}
        more |= {n for n, node in enumerate(nodes) if made & set(reads_of(node))}
        more -= last
    return {n: found.nodes.pop(n, (_refusal(nodes[n], _BEHIND),)) for n in sorted(last)}


_BEHIND = "it is behind a value whose shape is known only when the network runs"


def _stages(nodes: Sequence[Any], found: _Foreign, values: Mapping[str, Value]) -> list[int]:
    """A number for each node: foreign ones of one number are a part, and others run behind the part of theirs.

    Whatever lies between nodes that pass on a value without a fixed shape becomes foreign, too.
    """
    makers = {name: n for n, node in enumerate(nodes) for name in node.output}
    while True:
        stages = _numbered(nodes, found.nodes)
        between: set[int] = set()
        for number in found.nodes:
            loose = [stages[makers[name]] for name in reads_of(nodes[number]) if name in found.loose]
            if loose and min(loose) < stages[number]:
                between |= {n for n in _before(nodes, number) if stages[n] >= min(loose)} - found.nodes.keys()
        if not between:
            return stages
        for number in sorted(between):
            found.nodes[number] = (_refusal(nodes[number], _BETWEEN),)
            made = {name: values[name] for name in nodes[number].output if name in values}
            found.kinds |= {name: (shape_of(value), str(value.dtype)) for name, value in made.items()}
        found.nodes = dict(sorted(found.nodes.items()))


_BETWEEN = "it lies between nodes that pass on a value whose shape is known only when the network runs"


def _numbered(nodes: Sequence[Any], foreign: Mapping[int, object]) -> list[int]:
    """How often a way to each node enters foreign ones, at most, the node itself included."""
    stages: list[int] = []
    makers: dict[str, int] = {}
    for number, node in enumerate(nodes):
        before = [makers[name] for name in reads_of(node) if name in makers]
        stage = max((stages[m] + (number in foreign and m not in foreign) for m in before), default=0)
        stages.append(max(stage, 1) if number in foreign else stage)
        makers |= dict.fromkeys(node.output, number)
    return stages


def _before(nodes: Sequence[Any], last: int) -> set[int]:
    """The nodes that one needs, directly or not."""
    makers = {name: n for n, node in enumerate(nodes) for name in node.output}
    found, waiting = set[int](), [last]
    while waiting:
        more = {makers[name] for name in reads_of(nodes[waiting.pop()]) if name in makers} - found
        found |= more
        waiting += more
    return found


@dataclass(frozen=True, slots=True)
class _Part:
    """Nodes of a model that are called together, the names that are read outside of it, and the kinds of arrays."""

    model: Any
    nodes: Sequence[Any]
    others: Collection[str]
    kinds: Mapping[str, tuple[tuple[int, ...], str]]

    @property
    def inputs(self) -> list[str]:
        """The names that it reads."""
        made = {name for node in self.nodes for name in node.output if name}
        return list(dict.fromkeys(name for node in self.nodes for name in reads_of(node) if name not in made))

    @property
    def outputs(self) -> list[str]:
        """The names that it makes for others."""
        return [name for node in self.nodes for name in node.output if name and name in self.others]

    @property
    def label(self) -> str:
        """Some of its nodes."""
        more = f" and {len(self.nodes) - _SHOWN} more" if len(self.nodes) > _SHOWN else ""
        return ", ".join(map(label_of, self.nodes[:_SHOWN])) + more


Add: TypeAlias = Callable[[_Part, Mapping[str, Value], Reading, Any], None]
"""Adds the call of a part, on values by name, to what is read."""


def _add_part(part: _Part, refusals: Sequence[Refusal], reading: Reading, package: Any, add: Add) -> None:
    """Add a part to what is read; refuse its nodes where it cannot be called."""
    missing = [name for name in part.inputs if name not in reading.values]
    try:
        if missing:
            raise DefinitionError(f"nothing makes its input {', '.join(missing)}")
        add(part, {name: reading.values[name] for name in part.inputs}, reading, package)
    except DefinitionError as error:
        reading.refused += [replace(r, why=f"{r.why}; {error.message}") for r in refusals]
        return
    reading.fallen += refusals


def _call(part: _Part, inputs: Mapping[str, Value], reading: Reading, package: Any) -> None:
    """A stage that runs a part in onnxruntime."""
    outputs = part.outputs
    data, names = part_of_model(part.nodes, inputs, outputs, part.model)
    session = session_of(package, data)
    unknown = [name for name in outputs if name not in part.kinds]
    if unknown:
        raise DefinitionError(f"the shape of what it makes, {', '.join(unknown)}, is known only when the network runs")
    tensors = [value for name in names if isinstance(value := inputs[name], Tensor)]
    shapes, dtypes = [part.kinds[name][0] for name in outputs], [part.kinds[name][1] for name in outputs]
    stage = reading.stage(part.label, RUNTIME)
    found = te.extern(shapes, tensors, caller_of(session, data, names, outputs), stage, dtypes)
    reading.values |= dict(zip(outputs, found if isinstance(found, tuple) else (found,), strict=True))


def _end(part: _Part, inputs: Mapping[str, Value], reading: Reading, package: Any) -> None:
    """A call of a part in onnxruntime behind the network."""
    outputs = part.outputs
    data, names = part_of_model(part.nodes, inputs, outputs, part.model)
    session = session_of(package, data)
    if not names:
        raise DefinitionError("nothing that it reads is computed by the network")

    def call(arrays: Sequence[Array]) -> Sequence[Array]:
        return [np.asarray(made) for made in session.run(outputs, dict(zip(names, arrays, strict=True)))]

    results = tuple(output.name for output in part.model.graph.output)
    reading.tail = Tail(results, tuple(names), tuple(outputs), call)
