"""Recurrent cells: LSTM, GRU and plain ones, as scans over time behind a product for all inputs at once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np

from tensorlang import te, topi
from tensorlang.dataclass import dataclass
from tensorlang.ir.expr import Expr
from tensorlang.networks.network import Array, Value
from tensorlang.networks.node import Node, Rule, shape_of
from tensorlang.networks.places import reshaped
from tensorlang.networks.refusal import Unsupported
from tensorlang.te.operation import Tensor

Gated: TypeAlias = Callable[[Expr, Expr, int, Expr], Expr]
"""What a state adds to a gate at a time, for a row of the batch and an element."""


@dataclass(frozen=True, slots=True)
class _Direction:
    """One direction of a cell: its number, and whether it runs from the last time on."""

    number: int
    reverse: bool

    def at(self, time: Any, length: int) -> Any:
        """The place in the input of a step."""
        return length - 1 - time if self.reverse else time


@dataclass(frozen=True, slots=True)
class _Cell:
    """What a node asks for: extents, weights by direction, first states, and names."""

    node: Node
    length: int
    batch: int
    hidden: int
    gates: int
    directions: tuple[_Direction, ...]
    batch_first: bool

    @property
    def is_step(self) -> bool:
        """Whether there is one time only, as in streams: then states are stages, and no scan."""
        return self.length == 1

    @property
    def back(self) -> int:
        """How far before a state the last one is: in the same array, or in that of the first states."""
        return 0 if self.is_step else 1

    @property
    def states(self) -> tuple[int, int, int]:
        """The shape of the states; those of a scan have the first one in front."""
        return (self.length + self.back, self.batch, self.hidden)

    def before(self, start: Tensor, name: str) -> Tensor:
        """The states as the next ones read them."""
        return start if self.is_step else te.placeholder(self.states, start.dtype, name)

    def place(self, time: Any, direction: _Direction) -> Any:
        """The row of the product of all inputs where those of a state begin."""
        return direction.at(time - self.back, self.length) * self.batch

    def weights(self, place: int) -> list[Array]:
        """The weights of an input, one array for each direction."""
        found = self.node.known(place, f"the input {place}")
        return [found[d.number] for d in self.directions]

    def start(self, place: int, direction: _Direction, name: str) -> Tensor:
        """The state before the first step, with an axis of time in front; zeros where it is not given."""
        shape = (1, self.batch, self.hidden)
        if not self.node.has(place):
            dtype = self.node.tensor(0).dtype
            zeros: Tensor = te.compute(shape, lambda *_: te.const(0, dtype), name=name)
            return zeros
        given, number = self.node.tensor(place), direction.number
        made: Tensor = te.compute(
            shape, lambda _, b, j: given(b, number, j) if self.batch_first else given(number, b, j), name=name
        )
        return made


def _cell(node: Node, gates: int, peepholes: bool) -> _Cell:
    """Read what the cells have in common; Unsupported for what is not taken."""
    if any(node.attrs.get(word) for word in ("clip", "input_forget", "activation_alpha", "activation_beta")):
        raise Unsupported(f"{node.op} with clip, input_forget, or parameters of its activations")
    usual = {4: ["Sigmoid", "Tanh", "Tanh"], 3: ["Sigmoid", "Tanh"], 1: ["Tanh"]}[gates]
    given = [a.decode() if isinstance(a, bytes) else a for a in node.attrs.get("activations", [])]
    if given and given != usual * (len(given) // len(usual)):
        raise Unsupported(f"{node.op} with the activations {', '.join(given)}; the usual ones are taken")
    if peepholes and node.has(7):
        raise Unsupported(f"{node.op} with peepholes")
    batch_first = bool(node.attrs.get("layout"))
    shape = node.shape(0)
    length, batch = (shape[1], shape[0]) if batch_first else shape[:2]
    if shape[-1] != node.shape(1)[-1]:
        raise Unsupported(f"{node.op} of inputs of {shape[-1]} elements with weights for {node.shape(1)[-1]}")
    if node.has(4) and not np.all(node.known(4, "the lengths of sequences") == length):
        raise Unsupported(f"{node.op} over sequences of different lengths")
    words = {"forward": [False], "reverse": [True], "bidirectional": [False, True]}
    turns = words[node.attrs.get("direction", "forward")]
    hidden = node.shape(2)[-1]
    return _Cell(node, length, batch, hidden, gates, tuple(_Direction(k, r) for k, r in enumerate(turns)), batch_first)


def _inputs(cell: _Cell, direction: _Direction, weight: Array, bias: Array | None) -> Tensor:
    """The part of all gates that inputs make, for all times in one product: [time * batch, gates * hidden]."""
    node, name = cell.node, f"{cell.node.stage}_{direction.number}_inputs"
    data = node.tensor(0)
    if cell.batch_first:
        data = topi.transpose(data, (1, 0, 2), f"{name}_times")
    rows = reshaped(data, (cell.length * cell.batch, shape_of(data)[-1]), f"{name}_rows")
    product = topi.matmul(rows, node.weights.tensor(np.ascontiguousarray(weight.T)), name=name)
    if bias is None:
        return product
    held = node.weights.tensor(bias)
    made: Tensor = te.compute(product.shape, lambda i, j: product(i, j) + held(j), name=f"{name}_bias")
    return made


def _by_gates(cell: _Cell, recurrent: Array) -> Array:
    """The weights of the state: [gate, element, element of the state]."""
    return recurrent.reshape(cell.gates, cell.hidden, cell.hidden)


def _product(cell: _Cell, factor: Tensor, back: int, weights: Array, gates: slice, name: str) -> Gated:
    """What a state, so many times back, makes of some gates: a product for one time, and a sum in each step of a scan.

    A scan has the sum over all gates of its weights, in which those that are wanted are read.
    """
    node, taken = cell.node, weights[gates]
    count = len(taken)
    if cell.is_step:
        held = node.weights.tensor(np.ascontiguousarray(taken.reshape(count * cell.hidden, cell.hidden).T))
        product = topi.matmul(reshaped(factor, (cell.batch, cell.hidden), f"{name}_state"), held, name=name)
        return lambda t, b, g, j: product(b, j + g * cell.hidden)
    k, held = te.reduce_axis((0, cell.hidden), "k"), node.weights.tensor(np.ascontiguousarray(weights))
    first = gates.start or 0
    made: Tensor = te.compute(  # rows of weights lie along memory, and are read once for the whole batch
        (cell.states[0], count, cell.hidden, cell.batch),
        lambda t, g, j, b: te.sum(factor(t - back, b, k) * held(g + first, j, k), axis=k),
        name=name,
    )
    return lambda t, b, g, j: made(t, g, j, b)


def _lstm(node: Node) -> tuple[Value, ...]:
    cell = _cell(node, 4, peepholes=True)
    biases = cell.weights(3) if node.has(3) else [None] * len(cell.directions)
    made = []
    for d, w, r, b in zip(cell.directions, cell.weights(1), cell.weights(2), biases, strict=True):
        made.append(_lstm_states(cell, d, w, r, None if b is None else b[: 4 * cell.hidden] + b[4 * cell.hidden :]))
    return _outputs(cell, made)


def _lstm_states(
    cell: _Cell, direction: _Direction, weight: Array, recurrent: Array, bias: Array | None
) -> list[Tensor]:
    """The states h and c over time; gates are in the order of ONNX: input, output, forget, cell."""
    name = f"{cell.node.stage}_{direction.number}"
    inputs, back = _inputs(cell, direction, weight, bias), cell.back
    starts = [cell.start(5, direction, f"{name}_h0"), cell.start(6, direction, f"{name}_c0")]
    state, memory = cell.before(starts[0], f"{name}_state"), cell.before(starts[1], f"{name}_memory")
    products = _product(cell, state, back, _by_gates(cell, recurrent), slice(0, 4), f"{name}_gates")

    def gate(t: Expr, b: Expr, g: int, j: Expr) -> Expr:
        return products(t, b, g, j) + inputs(cell.place(t, direction) + b, j + g * cell.hidden)

    def remembered(t: Expr, b: Expr, j: Expr) -> Expr:
        kept = te.sigmoid(gate(t, b, 2, j)) * memory(t - back, b, j)
        return kept + te.sigmoid(gate(t, b, 0, j)) * te.tanh(gate(t, b, 3, j))

    c = te.compute(cell.states, remembered, name=f"{name}_c")
    h = te.compute(cell.states, lambda t, b, j: te.sigmoid(gate(t, b, 1, j)) * te.tanh(c(t, b, j)), name=f"{name}_h")
    return [h, c] if cell.is_step else list(te.scan(starts, [h, c], [state, memory], name=name))


def _gru(node: Node) -> tuple[Value, ...]:
    cell = _cell(node, 3, peepholes=False)
    biases = cell.weights(3) if node.has(3) else [None] * len(cell.directions)
    made = []
    for d, w, r, b in zip(cell.directions, cell.weights(1), cell.weights(2), biases, strict=True):
        made.append([_gru_state(cell, d, w, r, b)])
    return _outputs(cell, made)


def _gru_state(cell: _Cell, direction: _Direction, weight: Array, recurrent: Array, bias: Array | None) -> Tensor:
    """The state over time; gates are in the order of ONNX: update, reset, hidden."""
    node, n = cell.node, cell.hidden
    name = f"{node.stage}_{direction.number}"
    linear = bool(node.attrs.get("linear_before_reset"))
    if bias is None:
        bias = np.zeros(6 * n, weight.dtype)
    ahead, behind = bias[: 3 * n].copy(), bias[3 * n :]
    ahead[: 2 * n] += behind[: 2 * n]
    if not linear:
        ahead[2 * n :] += behind[2 * n :]
    last = node.weights.tensor(np.ascontiguousarray(behind[2 * n :]))
    inputs, back, held = _inputs(cell, direction, weight, ahead), cell.back, _by_gates(cell, recurrent)
    start = cell.start(5, direction, f"{name}_h0")
    state = cell.before(start, f"{name}_state")
    products = _product(cell, state, back, held, slice(0, 3 if linear else 2), f"{name}_gates")

    def given(t: Expr, b: Expr, g: int, j: Expr) -> Expr:
        made: Expr = inputs(cell.place(t, direction) + b, j + g * n)
        return made

    def gate(t: Expr, b: Expr, g: int, j: Expr) -> Expr:
        return products(t, b, g, j) + given(t, b, g, j)

    if linear:

        def candidate(t: Expr, b: Expr, j: Expr) -> Expr:
            fresh = te.sigmoid(gate(t, b, 1, j)) * (products(t, b, 2, j) + last(j))
            return te.tanh(fresh + given(t, b, 2, j))

    else:
        reset = te.compute(
            cell.states, lambda t, b, j: te.sigmoid(gate(t, b, 1, j)) * state(t - back, b, j), name=f"{name}_reset"
        )
        mixed = _product(cell, reset, 0, held, slice(2, 3), f"{name}_mixed")

        def candidate(t: Expr, b: Expr, j: Expr) -> Expr:
            return te.tanh(mixed(t, b, 0, j) + given(t, b, 2, j))

    def updated(t: Expr, b: Expr, j: Expr) -> Expr:
        share = te.sigmoid(gate(t, b, 0, j))
        return share * state(t - back, b, j) + (te.const(1, state.dtype) - share) * candidate(t, b, j)

    h: Tensor = te.compute(cell.states, updated, name=f"{name}_h")
    return h if cell.is_step else te.scan(start, h, state, name=name)


def _rnn(node: Node) -> tuple[Value, ...]:
    cell = _cell(node, 1, peepholes=False)
    biases = cell.weights(3) if node.has(3) else [None] * len(cell.directions)
    made = []
    for d, w, r, b in zip(cell.directions, cell.weights(1), cell.weights(2), biases, strict=True):
        made.append([_rnn_state(cell, d, w, r, None if b is None else b[: cell.hidden] + b[cell.hidden :])])
    return _outputs(cell, made)


def _rnn_state(cell: _Cell, direction: _Direction, weight: Array, recurrent: Array, bias: Array | None) -> Tensor:
    """The state over time."""
    name = f"{cell.node.stage}_{direction.number}"
    inputs, back = _inputs(cell, direction, weight, bias), cell.back
    start = cell.start(5, direction, f"{name}_h0")
    state = cell.before(start, f"{name}_state")
    products = _product(cell, state, back, _by_gates(cell, recurrent), slice(0, 1), f"{name}_gates")

    def updated(t: Expr, b: Expr, j: Expr) -> Expr:
        return te.tanh(products(t, b, 0, j) + inputs(cell.place(t, direction) + b, j))

    h: Tensor = te.compute(cell.states, updated, name=f"{name}_h")
    return h if cell.is_step else te.scan(start, h, state, name=name)


def _outputs(cell: _Cell, states: Sequence[Sequence[Tensor]]) -> tuple[Value, ...]:
    """All states h, and the last h (and c), with an axis of directions."""
    node, length, count = cell.node, cell.length, len(states)

    def whole(t: Expr, d: Expr, b: Expr, j: Expr) -> Expr:
        places = [direction.at(t, length) + cell.back for direction in cell.directions]
        found = [s[0](place, b, j) for s, place in zip(states, places, strict=True)]
        return found[0] if count == 1 else te.select(d < 1, found[0], found[1])

    def last(place: int) -> Callable[[Expr, Expr, Expr], Expr]:
        def element(d: Expr, b: Expr, j: Expr) -> Expr:
            found = [s[place](length - 1 + cell.back, b, j) for s in states]
            return found[0] if count == 1 else te.select(d < 1, found[0], found[1])

        return element

    shape = (length, count, cell.batch, cell.hidden)
    made = [te.compute(shape, whole, name=f"{node.stage}_y")]
    made += [te.compute(shape[1:], last(k), name=f"{node.stage}_last{k}") for k in range(len(states[0]))]
    if cell.batch_first:
        orders = [(2, 0, 1, 3), (1, 0, 2), (1, 0, 2)]
        made = [topi.transpose(m, o, f"{m.name}_first") for m, o in zip(made, orders, strict=False)]
    return tuple(made[: node.outputs])


RULES: dict[str, Rule] = {"GRU": _gru, "LSTM": _lstm, "RNN": _rnn}
