"""Control flow: what is known ahead is read in place of its node, and the rest is decided when the network runs.

A branch that is chosen then is a choice between the results of both (`te.branches`): what is needed for one of them
alone is skipped where the other one is taken.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, TypeAlias

import numpy as np

from tensorlang import te
from tensorlang.ir.expr import Expr
from tensorlang.networks.network import Value
from tensorlang.networks.node import element_of, shape_of
from tensorlang.networks.onnx.control.inner import Values, graph_of, input_of, kinds_of, outputs_of, tensor_of
from tensorlang.networks.onnx.control.loops import loop, scan
from tensorlang.networks.onnx.scopes import Read, Reading
from tensorlang.networks.refusal import Unsupported
from tensorlang.te.branches import BRANCH
from tensorlang.te.operation import Tensor

Control: TypeAlias = Callable[[Any, str, Reading, Read], Values]
"""What a node makes, by its proto and its label; nothing where a node within it is refused."""
_AHEAD = (
    "of which the network takes one when it runs; if an input decides which, the same in all calls, tell it ahead: "
    "from_onnx(..., known={name: value})"
)


def _if(proto: Any, label: str, reading: Reading, read: Read) -> Values:
    condition = input_of(proto, reading, 0)
    if condition is None or np.prod(shape_of(condition)) != 1 or str(condition.dtype) != "bool":
        raise Unsupported("its condition is no single truth value")
    then, other = (graph_of(proto, word, 0, len(proto.output)) for word in ("then_branch", "else_branch"))
    if not isinstance(condition, Tensor):
        taken = then if condition.any() else other
        return outputs_of(taken, reading.inside(taken, []), read) or []
    before = len(reading.refused)
    found = [outputs_of(graph, reading.inside(graph, []), read) for graph in (then, other)]
    for k, refusal in enumerate(reading.refused[before:], before):
        reading.refused[k] = replace(refusal, why=f"{refusal.why} (in a branch of {label}, {_AHEAD})")
    if found[0] is None or found[1] is None:
        return []
    return [_chosen(condition, a, b, reading, reading.stage(label, "If")) for a, b in zip(*found, strict=True)]


def _chosen(condition: Tensor, then: Value, other: Value, reading: Reading, stage: str) -> Value:
    """One of two values, by a condition that is known when the network runs."""
    if then is other:
        return then
    kinds = kinds_of([then, other])
    if kinds[0] != kinds[1]:
        raise Unsupported(f"its branches give {kinds[0]} and {kinds[1]}, {_AHEAD}")

    def element(*index: Expr) -> Expr:
        read = [element_of(value, lambda v=value: tensor_of(v, reading), index) for value in (then, other)]  # type: ignore[misc]
        return te.select(condition(*[0] * len(condition.shape)), *read)

    made: Tensor = te.compute(shape_of(then), element, name=stage, tag=BRANCH)
    return made


CONTROL: Mapping[str, Control] = {"If": _if, "Loop": loop, "Scan": scan}
"""Operators with graphs of their own."""
