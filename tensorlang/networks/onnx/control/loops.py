"""Loops of a model: their iterations, written out where they are few and known ahead, and run otherwise."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import count
from typing import Any

import numpy as np

from tensorlang import te, topi
from tensorlang.networks.network import Value
from tensorlang.networks.node import axis_of, shape_of
from tensorlang.networks.onnx.control.inner import Values, graph_of, input_of, outputs_of, tensor_of
from tensorlang.networks.onnx.control.iterations import Iterations, Sequences
from tensorlang.networks.onnx.control.repeated import repeated
from tensorlang.networks.onnx.graphs import free_names, graphs_of
from tensorlang.networks.onnx.scopes import Read, Reading
from tensorlang.networks.places import reshaped
from tensorlang.networks.refusal import Unsupported
from tensorlang.te.operation import Tensor

_WRITTEN_OUT = 512
"""Nodes of a loop of which something is computed; with more of them it is a network that runs again and again."""


def loop(proto: Any, label: str, reading: Reading, read: Read) -> Values:
    """What a Loop makes: states, then rows."""
    states = [reading.values[name] for name in proto.input[2:]]
    body = graph_of(proto, "body", len(states) + 2, len(states) + 1)
    iterations = Iterations(label, body, states, tells=True)
    return _iterated(iterations, input_of(proto, reading, 0), input_of(proto, reading, 1), reading, read)


def scan(proto: Any, label: str, reading: Reading, read: Read) -> Values:
    """What a Scan makes: states, then rows along their axes."""
    if reading.opset < 9:
        raise Unsupported("Scan of opset 8, which has other inputs; convert the model to a newer one")
    attrs: Mapping[str, Any] = {a.name: list(a.ints) or a.i for a in proto.attribute}
    inputs, scanned = [reading.values[name] for name in proto.input], int(attrs.get("num_scan_inputs", 0))
    if not 0 < scanned <= len(inputs):
        raise Unsupported(f"it goes through {scanned} of {len(inputs)} inputs")
    states, arrays = inputs[: len(inputs) - scanned], inputs[len(inputs) - scanned :]
    body = graph_of(proto, "body", len(inputs), len(states))
    axes, turned = (attrs.get(f"scan_input_{word}") or [0] * scanned for word in ("axes", "directions"))
    along = [axis_of(a, len(shape_of(s)), "Scan") for a, s in zip(axes, arrays, strict=True)]
    lengths = {shape_of(s)[a] for a, s in zip(along, arrays, strict=True)}
    if len(lengths) != 1:
        raise Unsupported(f"it goes through sequences of the lengths {sorted(lengths)} at once")
    iterations = Iterations(label, body, states, False, Sequences(arrays, along, turned))
    made = _iterated(iterations, np.asarray(lengths.pop(), np.int64), None, reading, read)
    rows = made[len(states) :]
    if not made:
        return []
    axes, turned = (attrs.get(f"scan_output_{word}") or [0] * len(rows) for word in ("axes", "directions"))
    laid = zip(rows, axes, turned, strict=True)
    made[len(states) :] = [_laid(row, axis, bool(back), reading.stage(label, "Scan")) for row, axis, back in laid]
    return made


def _laid(rows: Value, axis: int, back: bool, stage: str) -> Value:
    """Rows along another axis than the first, the last one first if they are collected so."""
    shape = shape_of(rows)
    at, length = axis_of(axis, len(shape), "Scan"), shape[0]
    if not isinstance(rows, Tensor):
        return np.moveaxis(rows[::-1] if back else rows, 0, at)
    if not at and not back:
        return rows
    rest = shape[1:]
    made: Tensor = te.compute(
        (*rest[:at], length, *rest[at:]),
        lambda *i: rows(length - 1 - i[at] if back else i[at], *i[:at], *i[at + 1 :]),
        name=stage,
    )
    return made


def _iterated(loop: Iterations, trips: Value | None, condition: Value | None, reading: Reading, read: Read) -> Values:
    """What a loop makes: its last states, and rows along a first axis."""
    for value in (trips, condition):
        if value is not None and np.prod(shape_of(value)) != 1:
            raise Unsupported(f"its number of iterations or its condition has the shape {shape_of(value)}")
    most = None if trips is None or isinstance(trips, Tensor) else int(trips.item())
    if not isinstance(trips, Tensor) and not isinstance(condition, Tensor):
        nodes = sum(1 + len(graph.node) for graph in graphs_of(loop.graph))
        if most is None or most * nodes <= _WRITTEN_OUT or _is_known(loop, reading):
            made = _written_out(loop, most, condition is None or bool(condition.any()), reading, read)
            if made is not None:
                return made
    return repeated(loop, trips, condition, reading, read)


def _is_known(loop: Iterations, reading: Reading) -> bool:
    read = [*loop.states, *loop.sequences.arrays, *map(reading.values.get, free_names(loop.graph))]
    return not any(isinstance(value, Tensor) for value in read)


def _written_out(loop: Iterations, most: int | None, goes_on: bool, reading: Reading, read: Read) -> Values | None:
    """The iterations one after the other; None where the network computes whether there is a next one."""
    states, rows = loop.states, list[Values]()
    for number in count():
        if not goes_on or (most is not None and number >= most):
            break
        given = loop.given(np.asarray(number, np.int64), np.asarray(True), states, loop.sequences.arrays, reading)
        made = outputs_of(loop.graph, reading.inside(loop.graph, given), read)
        if made is None:
            return []
        condition = made.pop(0) if loop.tells else np.asarray(True)
        if isinstance(condition, Tensor):
            return None
        goes_on = bool(condition.any())
        states = made[: len(states)]
        rows.append(made[len(states) :])
    if loop.rows and not rows:
        return _never_run(loop, reading, read)
    stacked = [_stacked([row[k] for row in rows], reading.stage(loop.label, "Loop"), reading) for k in range(loop.rows)]
    return states + stacked


def _never_run(loop: Iterations, reading: Reading, read: Read) -> Values:
    """The states as they are, and no rows, of the shapes that an iteration would make."""
    longer = [
        np.zeros([max(1, n) if d == axis else n for d, n in enumerate(shape_of(array))], str(array.dtype))
        for array, axis in zip(loop.sequences.arrays, loop.sequences.axes, strict=True)
    ]
    given = loop.given(np.asarray(0, np.int64), np.asarray(True), loop.states, longer, reading)
    made = outputs_of(loop.graph, reading.inside(loop.graph, given), read)
    if made is None:
        return []
    rows = made[loop.tells + len(loop.states) :]
    return [*loop.states, *(np.empty((0, *shape_of(row)), str(row.dtype)) for row in rows)]


def _stacked(values: Sequence[Value], stage: str, reading: Reading) -> Value:
    """Rows along a new first axis."""
    shape = shape_of(values[0])
    if any(shape_of(value) != shape for value in values):
        raise Unsupported("what it collects has not the same shape in all iterations")
    if all(isinstance(value, np.ndarray) for value in values):
        return np.stack([np.asarray(value) for value in values])
    longer = [reshaped(tensor_of(v, reading), (1, *shape), f"{stage}_row{k}") for k, v in enumerate(values)]
    return topi.concatenate(longer, 0, stage)
