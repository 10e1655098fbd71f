"""Loops that are no part of the program: a network for an iteration, and a stage that runs it again and again."""

from __future__ import annotations

import numpy as np

from tensorlang import te
from tensorlang.dataclass import dataclass
from tensorlang.networks.network import Array, Network, Value, Weights
from tensorlang.networks.node import own_stages, shape_of
from tensorlang.networks.onnx.control.inner import Values, kinds_of, outputs_of, tensor_of
from tensorlang.networks.onnx.control.iterations import Iterations
from tensorlang.networks.onnx.graphs import free_names
from tensorlang.networks.onnx.scopes import Read, Reading
from tensorlang.networks.refusal import Unsupported
from tensorlang.networks.repeating import Repeated
from tensorlang.te.operation import ExternOp, Tensor

_ENDLESS = np.asarray(2**63 - 1, np.int64)


@dataclass(frozen=True, slots=True)
class _Body:
    """An iteration as it is read: what it takes, whether another one follows, where that is computed, the rest."""

    inputs: tuple[Tensor, ...]
    goes_on: Tensor | Array | None
    states: Values
    rows: Values
    reading: Reading

    def network(self, label: str) -> Network:
        """The iteration as a network."""
        made = [*([] if self.goes_on is None else [self.goes_on]), *self.states, *self.rows]
        outputs = own_stages(made, self.reading.weights)
        names = tuple(t.name for t in self.inputs), tuple(f"made{k}" for k in range(len(made)))
        return Network(label, self.inputs, outputs, self.reading.weights.arrays, *names, self.reading.origins)


def repeated(loop: Iterations, trips: Value | None, condition: Value | None, reading: Reading, read: Read) -> Values:
    """The last states of a loop that runs, and its rows along a first axis; nothing where nodes of it are refused."""
    captured = {name: v for name in sorted(free_names(loop.graph)) if (v := reading.values.get(name)) is not None}
    outer = {name: v for name, v in captured.items() if isinstance(v, Tensor)}
    body = _body(loop, captured, reading, read)
    if body is None:
        return []
    if (before := kinds_of(loop.states)) != (after := kinds_of(body.states)):
        raise Unsupported(f"its states are {', '.join(before)}, and {', '.join(after)} after an iteration")
    is_counted = body.goes_on is None and not isinstance(trips, Tensor) and not isinstance(condition, Tensor)
    if body.rows and (trips is None or not is_counted):
        raise Unsupported("it collects rows in as many iterations as the network computes, and so of unknown number")
    count = _ENDLESS if trips is None else trips
    first = [count, np.asarray(True) if condition is None else condition]
    given = [tensor_of(v, reading) for v in (*first, *loop.states, *loop.sequences.arrays, *outer.values())]
    number = 0 if isinstance(count, Tensor) else int(count.item())
    shapes = [*map(shape_of, loop.states), *((number, *shape_of(row)) for row in body.rows)]
    extents = tuple(tuple(te.const(n, "int64") for n in shape) for shape in shapes)
    kinds = tuple(str(value.dtype) for value in (*loop.states, *body.rows))
    repeats = Repeated(body.network(loop.label), len(loop.states), body.goes_on is not None)
    op = ExternOp(reading.stage(loop.label, "Loop"), tuple(given), extents, kinds, repeats)
    return [op.output(k) for k in range(op.num_outputs)]


def _body(loop: Iterations, captured: dict[str, Value], outer: Reading, read: Read) -> _Body | None:
    """An iteration, with placeholders for what differs between iterations and for what the outer network computes."""
    number, condition = te.placeholder((), "int64", "number"), te.placeholder((), "bool", "condition")
    states = [te.placeholder(shape_of(s), str(s.dtype), f"state{k}") for k, s in enumerate(loop.states)]
    arrays = [te.placeholder(shape_of(s), str(s.dtype), f"sequence{k}") for k, s in enumerate(loop.sequences.arrays)]
    values = {
        name: te.placeholder(v.shape, v.dtype, f"outer{k}") if isinstance(v, Tensor) else v
        for k, (name, v) in enumerate(captured.items())
    }
    taken = [number, condition, *states, *arrays, *(v for v in values.values() if isinstance(v, Tensor))]
    inner = Reading(
        loop.graph, Weights(), outer.opsets, dict(values), {}, outer.refused, outer.skipped, allowance=outer.allowance
    )
    inner = inner.inside(loop.graph, loop.given(number, condition, states, arrays, inner))
    made = outputs_of(loop.graph, inner, read)
    if made is None:
        return None
    goes_on = made.pop(0) if loop.tells else None
    if goes_on is not None and (str(goes_on.dtype) != "bool" or np.prod(shape_of(goes_on)) != 1):
        raise Unsupported("its graph makes no single truth value that tells whether it goes on")
    if goes_on is condition or (isinstance(goes_on, np.ndarray) and goes_on.all()):
        goes_on = None
    return _Body(tuple(taken), goes_on, made[: len(states)], made[len(states) :], inner)
