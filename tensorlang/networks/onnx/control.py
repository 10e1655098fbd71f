"""Control flow: the branch that is taken and iterations that are known ahead are read in place of their node.

A branch that is chosen when the network runs is a choice between the results of both (`te.branches`): what is needed
for one of them alone is skipped where the other one is taken.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import count
from typing import Any, TypeAlias

import numpy as np

from tensorlang import te, topi
from tensorlang.ir.expr import Expr
from tensorlang.networks.network import Value
from tensorlang.networks.node import axis_of, element_of, shape_of
from tensorlang.networks.onnx.graphs import inner_graphs
from tensorlang.networks.onnx.scopes import Read, Reading
from tensorlang.networks.places import reshaped
from tensorlang.networks.refusal import Unsupported
from tensorlang.te.branches import BRANCH
from tensorlang.te.operation import Tensor

Values: TypeAlias = list[Value]
Control: TypeAlias = Callable[[Any, str, Reading, Read], Values]
"""What a node makes, by its proto and its label; nothing where a node within it is refused."""


def _if(proto: Any, label: str, reading: Reading, read: Read) -> Values:
    condition = _input(proto, reading, 0)
    if condition is None or np.prod(shape_of(condition)) != 1 or str(condition.dtype) != "bool":
        raise Unsupported("its condition is no single truth value")
    then, other = _graph(proto, "then_branch"), _graph(proto, "else_branch")
    for branch in (then, other):
        _expect(branch, 0, len(proto.output))
    if not isinstance(condition, Tensor):
        return _outputs(then if condition.any() else other, [], reading, read) or []
    before = len(reading.refused)
    found = [_outputs(graph, [], reading, read) for graph in (then, other)]
    for k, refusal in enumerate(reading.refused[before:], before):
        reading.refused[k] = replace(refusal, why=f"{refusal.why} (in a branch of {label}, {_AHEAD})")
    if found[0] is None or found[1] is None:
        return []
    return [
        _chosen(condition, a, b, reading, reading.stage(label, "If")) for a, b in zip(found[0], found[1], strict=True)
    ]


_AHEAD = (
    "of which the network takes one when it runs; if an input decides which, the same in all calls, tell it ahead: "
    "from_onnx(..., known={name: value})"
)


def _chosen(condition: Tensor, then: Value, other: Value, reading: Reading, stage: str) -> Value:
    """One of two values, by a condition that is known when the network runs."""
    if then is other:
        return then
    kinds = [f"{value.dtype}{list(shape_of(value))}" for value in (then, other)]
    if kinds[0] != kinds[1]:
        raise Unsupported(f"its branches give {kinds[0]} and {kinds[1]}, {_AHEAD}")

    def element(*index: Expr) -> Expr:
        read = [element_of(value, lambda v=value: _tensor(v, reading), index) for value in (then, other)]  # type: ignore[misc]
        return te.select(condition(*[0] * len(condition.shape)), *read)

    made: Tensor = te.compute(shape_of(then), element, name=stage, tag=BRANCH)
    return made


def _loop(proto: Any, label: str, reading: Reading, read: Read) -> Values:
    trips, condition = _input(proto, reading, 0), _input(proto, reading, 1)
    if isinstance(trips, Tensor) or isinstance(condition, Tensor):
        raise Unsupported(_COMPUTED)
    most = None if trips is None else int(trips.max(initial=0))
    states = [reading.values[name] for name in proto.input[2:]]
    body, going = _graph(proto, "body"), condition is None or bool(condition.any())
    _expect(body, len(states) + 2, len(states) + 1)
    rows: list[Values] = []
    for number in count():
        if not going or (most is not None and number >= most):
            break
        given = [np.asarray(number, np.int64), np.asarray(True), *states]
        made = _outputs(body, given, reading, read)
        if made is None:
            return []
        condition, states, row = made[0], made[1 : len(given) - 1], made[len(given) - 1 :]
        if isinstance(condition, Tensor):
            raise Unsupported(_COMPUTED)
        going = bool(condition.any())
        rows.append(row)
    return states + _stacked(rows, [0] * (len(body.output) - 1 - len(states)), label, reading)


_COMPUTED = "how often it runs is computed by the network; only what is known ahead is taken"


def _scan(proto: Any, label: str, reading: Reading, read: Read) -> Values:
    if reading.opset < 9:
        raise Unsupported("Scan of opset 8, which has other inputs; convert the model to a newer one")
    attrs: Mapping[str, Any] = {a.name: list(a.ints) or a.i for a in proto.attribute}
    body, scanned = _graph(proto, "body"), int(attrs["num_scan_inputs"])
    inputs = [reading.values[name] for name in proto.input]
    if not 0 < scanned <= len(inputs):
        raise Unsupported(f"it goes through {scanned} of {len(inputs)} inputs")
    states, sequences = inputs[: len(inputs) - scanned], inputs[len(inputs) - scanned :]
    _expect(body, len(inputs), len(states))
    scans = len(body.output) - len(states)
    axes = [
        axis_of(a, len(shape_of(s)), "Scan")
        for a, s in zip(attrs.get("scan_input_axes") or [0] * scanned, sequences, strict=True)
    ]
    lengths = {shape_of(s)[a] for a, s in zip(axes, sequences, strict=True)}
    if len(lengths) != 1:
        raise Unsupported(f"it goes through sequences of the lengths {sorted(lengths)} at once")
    (length,) = lengths
    back = attrs.get("scan_input_directions") or [0] * scanned
    rows: list[Values] = []
    for number in range(length):
        at = [length - 1 - number if b else number for b in back]
        taken = [_row(s, a, k, reading.stage(label, "Scan")) for s, a, k in zip(sequences, axes, at, strict=True)]
        made = _outputs(body, [*states, *taken], reading, read)
        if made is None:
            return []
        states = made[: len(states)]
        rows.append(made[len(states) :])
    for k, turned in enumerate(attrs.get("scan_output_directions") or []):
        column = [row[k] for row in rows]
        for row, value in zip(rows, reversed(column) if turned else column, strict=True):
            row[k] = value
    return states + _stacked(rows, attrs.get("scan_output_axes") or [0] * scans, label, reading)


def _row(value: Value, axis: int, at: int, stage: str) -> Value:
    """A value at one place along an axis."""
    if not isinstance(value, Tensor):
        return np.asarray(np.take(value, at, axis))
    shape = shape_of(value)
    made: Tensor = te.compute(
        (*shape[:axis], *shape[axis + 1 :]), lambda *i: value(*i[:axis], at, *i[axis:]), name=stage
    )
    return made


def _stacked(rows: Sequence[Values], axes: Sequence[int], label: str, reading: Reading) -> Values:
    """What iterations gave, joined along new axes."""
    if axes and not rows:
        raise Unsupported("it runs no iteration, and so nothing tells the shape of what it collects")
    return [
        _joined([row[k] for row in rows], axis, reading.stage(label, "Loop"), reading) for k, axis in enumerate(axes)
    ]


def _joined(values: Values, axis: int, stage: str, reading: Reading) -> Value:
    shape = shape_of(values[0])
    if any(shape_of(value) != shape for value in values):
        raise Unsupported("what it collects has not the same shape in all iterations")
    at = axis_of(axis, len(shape) + 1, "Scan")
    if all(isinstance(value, np.ndarray) for value in values):
        return np.stack([np.asarray(value) for value in values], at)
    longer = (*shape[:at], 1, *shape[at:])
    rows = [reshaped(_tensor(value, reading), longer, f"{stage}_row{k}") for k, value in enumerate(values)]
    return topi.concatenate(rows, at, stage)


def _expect(graph: Any, inputs: int, outputs: int) -> None:
    """Unsupported for a graph with other inputs, or with fewer outputs."""
    if len(graph.input) != inputs or len(graph.output) < outputs:
        found = f"{len(graph.input)} inputs and {len(graph.output)} outputs"
        raise Unsupported(f"its graph {graph.name} has {found}; {inputs} and at least {outputs} are wanted")


def _outputs(graph: Any, given: Sequence[Value], reading: Reading, read: Read) -> Values | None:
    """What an inner graph makes of its inputs; None where some of its nodes are refused."""
    before = len(reading.refused), len(reading.skipped)
    inner = reading.inside(graph, given)
    for node in graph.node:
        read(node, inner)
    missing = [out.name for out in graph.output if out.name not in inner.values]
    if missing and before == (len(reading.refused), len(reading.skipped)):
        raise Unsupported(f"no node of its graph {graph.name} makes {', '.join(missing)}")
    return None if missing else [inner.values[out.name] for out in graph.output]


def _input(proto: Any, reading: Reading, place: int) -> Value | None:
    name = proto.input[place] if place < len(proto.input) else ""
    return reading.values[name] if name else None


def _graph(proto: Any, word: str) -> Any:
    if (graph := inner_graphs(proto).get(word)) is None:
        raise Unsupported(f"it has no graph {word}")
    return graph


def _tensor(value: Value, reading: Reading) -> Tensor:
    return value if isinstance(value, Tensor) else reading.weights.tensor(value)


CONTROL: Mapping[str, Control] = {"If": _if, "Loop": _loop, "Scan": _scan}
"""Operators with graphs of their own."""
