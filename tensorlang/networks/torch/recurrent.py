"""Recurrent layers: LSTM and GRU, layer by layer, through the cells of ONNX."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tensorlang import topi
from tensorlang.networks.network import Array, Value
from tensorlang.networks.node import shape_of
from tensorlang.networks.places import reshaped
from tensorlang.networks.refusal import Unsupported
from tensorlang.networks.torch.call import Call, Rule
from tensorlang.te.operation import Tensor

_ORDERS = {"LSTM": (0, 3, 1, 2), "GRU": (1, 0, 2)}
"""Gates of ONNX by their places in ATen: input, forget, cell, output there, and reset, update, new."""


def _recurrent(op: str) -> Rule:
    def rule(call: Call) -> tuple[Value, ...]:
        if call["train"] and call["dropout"] and call["num_layers"] > 1:
            raise Unsupported("with dropout between its layers")
        data = call.tensor(call["input"])
        if call["batch_first"]:
            data = topi.transpose(data, (1, 0, 2), f"{call.stage}_times")
        starts = [call.tensor(t) for t in (call["hx"] if op == "LSTM" else [call["hx"]])]
        directions = 2 if call["bidirectional"] else 1
        lasts: list[tuple[Tensor, ...]] = []
        for layer in range(call["num_layers"]):
            data, last = _layer(call, op, data, starts, layer, directions)
            lasts.append(last)
        if call["batch_first"]:
            data = topi.transpose(data, (1, 0, 2), f"{call.stage}_out")
        return data, *(_joined(call, [last[k] for last in lasts], k) for k in range(len(starts)))

    return rule


def _layer(
    call: Call, op: str, data: Tensor, starts: Sequence[Tensor], layer: int, directions: int
) -> tuple[Tensor, tuple[Tensor, ...]]:
    """The states of a layer over time, those of its directions side by side, and its last states."""
    per = 4 if call["has_biases"] else 2
    given = [_known(call, k) for k in range(layer * directions * per, (layer + 1) * directions * per)]
    sides = [given[d * per : (d + 1) * per] for d in range(directions)]
    weights, recurrents = (np.stack([_in_order(op, side[k]) for side in sides]) for k in (0, 1))
    biases = None
    if per == 4:
        biases = np.stack([np.concatenate([_in_order(op, side[2]), _in_order(op, side[3])]) for side in sides])
    first = [_part(call, t, layer * directions, directions, f"start{k}_{layer}") for k, t in enumerate(starts)]
    made = call.onnx_all(
        op, data, weights, recurrents, biases, None, *first, outputs=1 + len(starts), part=f"layer{layer}",
        direction="forward" if directions == 1 else "bidirectional", linear_before_reset=1,
    )  # fmt: skip
    time, _, batch, hidden = shape_of(made[0])
    sideways = topi.transpose(made[0], (0, 2, 1, 3), f"{call.stage}_sides{layer}")
    return reshaped(sideways, (time, batch, directions * hidden), f"{call.stage}_states{layer}"), made[1:]


def _known(call: Call, place: int) -> Array:
    array = call["params"][place]
    if isinstance(array, Tensor):
        raise Unsupported("with weights that are computed by the network")
    found: Array = array
    return found


def _in_order(op: str, array: Array) -> Array:
    """The gates of a weight or of a bias in the order of ONNX."""
    order = _ORDERS[op]
    parts = array.reshape(len(order), -1, *array.shape[1:])
    return parts[list(order)].reshape(array.shape)


def _part(call: Call, states: Tensor, first: int, count: int, part: str) -> Tensor:
    shape = (count, *shape_of(states)[1:])
    return call.compute(shape, lambda d, b, j: states(d + first, b, j), part)


def _joined(call: Call, parts: Sequence[Tensor], number: int) -> Tensor:
    return parts[0] if len(parts) == 1 else topi.concatenate(list(parts), 0, f"{call.stage}_last{number}")


RULES: dict[str, Rule] = {"gru.input": _recurrent("GRU"), "lstm.input": _recurrent("LSTM")}
