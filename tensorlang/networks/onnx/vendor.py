"""Parts of a model that a library of others runs faster on this machine: chosen by time, tried in the whole network.

The nodes that a kernel computes are a part. onnxruntime runs these alone, and where that takes less time, they are
called there (`fallback`), parts side by side in one call. Then the networks with and without run by turns. Of parts
that do not make it faster together, the better half is tried, and so on.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from tensorlang import dtypes
from tensorlang.dataclass import dataclass
from tensorlang.errors import ArgumentError, DefinitionError
from tensorlang.networks.compiling import Progress, compile_network
from tensorlang.networks.model import Model, VendorPart
from tensorlang.networks.network import Array, Value
from tensorlang.networks.node import shape_of
from tensorlang.networks.onnx.fallback import RUNTIME
from tensorlang.networks.onnx.foreign import onnxruntime_package, part_of_model, session_of
from tensorlang.networks.onnx.graphs import RANDOM, inner_graphs, label_of, reads_of
from tensorlang.networks.onnx.reading import read_model, recent
from tensorlang.networks.onnx.scopes import Reading
from tensorlang.target.detect import runs_here
from tensorlang.target.spec import Target

_WORTH = 0.9
"""The share of a kernel's time that a call may take: what is around it grows, since less is computed in its tiles."""
_BETTER = 0.98
"""The share of the whole network's time."""
_SECONDS = 0.05
_ROUNDS = 15
_RACE = 2.0  # seconds


def check_vendor(vendor: str | None) -> None:
    """ArgumentError for a library that can run no parts."""
    if vendor not in (None, RUNTIME):
        raise ArgumentError(f"vendor is {RUNTIME!r} or None, got {vendor!r}")


def compile_with_vendor(
    model: Any,
    target: Target,
    progress: Progress | None,
    numerics: str,
    shapes: Mapping[str, Sequence[int]] | None = None,
    known: Mapping[str, Any] | None = None,
    fallback: str | None = None,
) -> Model:
    """Return a model of ONNX compiled, with those parts in onnxruntime that it runs faster; `vendor` tells of each.

    Raises what `from_onnx` and `compile_network` raise, MissingDependency without onnxruntime, and ArgumentError for a
    target that is not this machine, where nothing can be timed.
    """
    if not (target.can.native and runs_here(target)):
        raise ArgumentError(f"vendor={RUNTIME!r} chooses by time on this machine, and cannot run {target}")
    package, proto = onnxruntime_package(()), recent(model)

    def compiled(chosen: Mapping[int, str]) -> tuple[Model, Reading]:
        reading = read_model(proto, shapes, known, fallback, chosen)
        return compile_network(reading.network(), target, progress, numerics), reading

    best, reading = compiled({})
    inputs = [_drawn(shape, dtype) for shape, dtype in best.input_shapes.values()]
    offers = sorted(_offers(proto, reading, best, inputs, package), key=lambda offer: offer.there - offer.here)
    rivals = [offer for offer in offers if offer.there < _WORTH * offer.here]
    taken: list[_Offer] = []
    while rivals and not taken:
        other, _ = compiled({number: offer.why for offer in rivals for number in offer.numbers})
        if _is_faster(other, best, inputs):
            best, taken = other, rivals
        rivals = rivals[: len(rivals) // 2]
    best.vendor = tuple(VendorPart(o.labels, o.here, o.there, o in taken) for o in offers)
    return best


@dataclass(frozen=True, slots=True)
class _Offer:
    """The nodes of a kernel by number, with their labels, and the seconds that they take here and there."""

    numbers: tuple[int, ...]
    labels: tuple[str, ...]
    here: float
    there: float

    @property
    def why(self) -> str:
        """Why they run there."""
        return f"onnxruntime takes {self.there * 1e6:.1f} us for the nodes of this kernel, and we {self.here * 1e6:.1f}"


def _offers(proto: Any, reading: Reading, model: Model, inputs: Sequence[Array], package: Any) -> Iterator[_Offer]:
    """What the kernels of a model take, and their nodes in onnxruntime; nothing of what it does not run alone."""
    nodes, timed = list(proto.graph.node), dict[tuple[Any, ...], float | None]()
    for numbers, seconds in _parts(nodes, model, inputs).items():
        part = [nodes[n] for n in numbers]
        key = tuple(_kind(node, reading.values) for node in part)
        if key not in timed:
            outside = {name for n, node in enumerate(nodes) if n not in numbers for name in reads_of(node)}
            results = {output.name for output in proto.graph.output}
            timed[key] = _seconds_there(part, outside | results, reading.values, proto, package)
        there = timed[key]
        if there is not None:
            yield _Offer(numbers, tuple(map(label_of, part)), seconds, there)


def _parts(nodes: Sequence[Any], model: Model, inputs: Sequence[Array]) -> dict[tuple[int, ...], float]:
    """The nodes of each kernel by number, and its seconds: those that name it, and those behind that name none."""
    labels = [label_of(node) for node in nodes]
    known = {label: n for n, label in enumerate(labels) if labels.count(label) == 1}
    kernel_of: dict[int, int] = {}
    times = model.profile(*inputs)
    for k, kernel in enumerate(times):
        named = [known.get(label) for label in kernel.node.split(" + ")]
        kernel_of |= dict.fromkeys((n for n in named if n is not None), k)
    makers: dict[str, int] = {}
    for n, node in enumerate(nodes):
        before = [makers[name] for name in reads_of(node) if name in makers]
        if n not in kernel_of and before and max(before) in kernel_of and not _is_apart(node):
            kernel_of[n] = kernel_of[max(before)]
        makers |= dict.fromkeys(node.output, n)
    members: dict[int, list[int]] = {}
    for n, k in sorted(kernel_of.items()):
        members.setdefault(k, []).append(n)
    return {
        tuple(found): times[k].seconds for k, found in members.items() if not any(_is_apart(nodes[n]) for n in found)
    }


def _is_apart(node: Any) -> bool:
    """Whether a node is never called alone: it has graphs of its own, or makes something else at each call."""
    return bool(inner_graphs(node)) or node.op_type in RANDOM


def _kind(node: Any, values: Mapping[str, Value]) -> tuple[Any, ...]:
    """What tells how long a node takes: its operator, its attributes, and what it reads."""
    reads = [(shape_of(values[name]), str(values[name].dtype)) if name in values else None for name in node.input]
    return node.domain, node.op_type, tuple(sorted(a.SerializeToString() for a in node.attribute)), *reads


def _seconds_there(
    part: Sequence[Any], outside: set[str], values: Mapping[str, Value], proto: Any, package: Any
) -> float | None:
    """The seconds of nodes in onnxruntime; None where they cannot be called there alone."""
    made = {name for node in part for name in node.output if name}
    names = list(dict.fromkeys(name for node in part for name in reads_of(node) if name not in made))
    if not all(name in values for name in (*names, *made)):
        return None
    inputs, outputs = {name: values[name] for name in names}, sorted(made & outside)
    try:
        data, given = part_of_model(part, inputs, outputs, proto)
        session = session_of(package, data)
        feed = {name: _drawn(shape_of(inputs[name]), dtypes.info(str(inputs[name].dtype)).numpy) for name in given}
        return _least(lambda: session.run(outputs, feed))
    except DefinitionError:
        return None
    except Exception:  # onnxruntime's errors have no common class: whatever it is, the part stays here
        return None


def _drawn(shape: tuple[int, ...], dtype: Any) -> Array:
    """Numbers between 0 and 1, or zeros where these are no floats: places that every array has."""
    if np.issubdtype(dtype, np.floating):
        return np.random.default_rng(0).random(shape).astype(dtype)
    return np.zeros(shape, dtype)


def _least(call: Callable[[], object]) -> float:
    """The least seconds of a call, of as many as take a moment."""
    found, end = list[float](), time.perf_counter() + _SECONDS
    while len(found) < 3 or time.perf_counter() < end:
        begin = time.perf_counter()
        call()
        found.append(time.perf_counter() - begin)
    return min(found)


def _is_faster(other: Model, best: Model, inputs: Sequence[Array]) -> bool:
    """Whether a network is faster than another one, by turns."""
    times: tuple[list[float], list[float]] = ([], [])
    end = time.perf_counter() + _RACE
    while len(times[0]) < _ROUNDS or time.perf_counter() < end:
        for model, found in zip((other, best), times, strict=True):
            begin = time.perf_counter()
            model.run(inputs)
            found.append(time.perf_counter() - begin)
    return min(times[0]) < _BETTER * min(times[1])
