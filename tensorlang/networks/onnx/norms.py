"""Norms, and softmax."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from tensorlang import te, topi
from tensorlang.ir.expr import Expr, binary
from tensorlang.networks.network import Value
from tensorlang.networks.node import Node, Rule, axis_of, shape_of
from tensorlang.networks.places import reshaped
from tensorlang.networks.refusal import Unsupported
from tensorlang.te.operation import Tensor


def _batch_norm(node: Node) -> tuple[Value, ...]:
    if node.attrs.get("training_mode") or node.outputs > 1:
        raise Unsupported("BatchNormalization in training mode; export the model for inference")
    eps = float(node.attrs.get("epsilon", 1e-5))
    data, given = node.tensor(0), [node.value(k) for k in range(1, 5)]
    if any(isinstance(v, Tensor) for v in given):
        return (node.compute(node.shape(0), partial(_normal, data, [node.tensor(k) for k in range(1, 5)], eps)),)
    scale, shift, mean, var = (np.asarray(v, np.float64) for v in given)
    factor = scale / np.sqrt(var + eps)
    times, plus = (node.weights.tensor(a.astype(data.dtype)) for a in (factor, shift - mean * factor))
    return (node.compute(node.shape(0), lambda *i: data(*i) * times(i[1]) + plus(i[1])),)


def _normal(data: Tensor, statistics: Sequence[Tensor], eps: float, *i: Expr) -> Expr:
    """An element with scale, shift, mean and variance of its channel."""
    scale, shift, mean, var = (t(i[1]) for t in statistics)
    return (data(*i) - mean) * scale / te.sqrt(var + te.const(eps, var.dtype)) + shift


def _instance_norm(node: Node) -> Value:
    data, shape = node.tensor(0), node.shape(0)
    eps = float(node.attrs.get("epsilon", 1e-5))
    scale, shift = node.tensor(1), node.tensor(2)
    return _normalized(node, data, list(range(2, len(shape))), eps, lambda v, i: v * scale(i[1]) + shift(i[1]))


def _group_norm(node: Node) -> Value:
    data, shape = node.tensor(0), node.shape(0)
    groups, eps = int(node.attrs["num_groups"]), float(node.attrs.get("epsilon", 1e-5))
    scale, shift = node.tensor(1), node.tensor(2)
    per = shape[1] // groups
    parts = reshaped(data, (shape[0], groups, per, *shape[2:]), f"{node.stage}_groups")
    each = 1 if shape_of(scale)[0] == shape[1] else per

    def affine(value: Expr, i: Sequence[Expr]) -> Expr:
        at = i[1] * per + i[2] if each == 1 else i[1]
        return value * scale(at) + shift(at)

    made = _normalized(node, parts, list(range(2, len(shape) + 1)), eps, affine)
    return reshaped(made, shape, f"{node.stage}_whole")


def _normalized(
    node: Node, data: Tensor, axes: Sequence[int], eps: float, affine: Callable[[Expr, Sequence[Expr]], Expr]
) -> Tensor:
    """Data less its mean over some axes, over its deviation there."""
    shape, count = shape_of(data), math.prod(shape_of(data)[d] for d in axes)
    mean = topi.mean(data, list(axes), keepdims=True, name=f"{node.stage}_mean")
    at = _kept(axes)
    reduced = [te.reduce_axis((0, shape[d]), f"k{d}") for d in axes]

    def square(*i: Expr) -> Any:
        index = list(i)
        for d, axis in zip(axes, reduced, strict=True):
            index[d] = axis.var
        less = data(*index) - mean(*i)
        return te.sum(less * less, axis=reduced)

    kept = [1 if d in axes else n for d, n in enumerate(shape)]
    total: Tensor = te.compute(tuple(kept), square, name=f"{node.stage}_squares")

    def element(*i: Expr) -> Expr:
        spread = te.sqrt(total(*at(i)) / te.const(count, data.dtype) + te.const(eps, data.dtype))
        return affine((data(*i) - mean(*at(i))) / spread, i)

    return node.compute(shape, element)


def _kept(axes: Sequence[int]) -> Callable[[Sequence[Expr]], list[Any]]:
    return lambda index: [0 if d in axes else v for d, v in enumerate(index)]


def _layer_norm(node: Node) -> tuple[Value, ...]:
    if node.outputs > 1:
        raise Unsupported("LayerNormalization with its mean and deviation as outputs")
    data, shape = node.tensor(0), node.shape(0)
    axis = axis_of(node.attrs.get("axis", -1), len(shape), node.op)
    eps, scale = float(node.attrs.get("epsilon", 1e-5)), node.tensor(1)
    inner = math.prod(shape[axis:])
    if axis != len(shape) - 1 or shape_of(scale) != (inner,):
        scale = reshaped(scale, (inner,), f"{node.stage}_scale")
    rows = reshaped(data, (math.prod(shape[:axis]), inner), f"{node.stage}_rows")
    shift = None
    if node.has(2):
        shift = (
            node.tensor(2)
            if shape_of(node.tensor(2)) == (inner,)
            else reshaped(node.tensor(2), (inner,), f"{node.stage}_shift")
        )
    made = topi.layer_norm(rows, scale, shift, axis=-1, epsilon=eps, name=node.stage)
    return (reshaped(made, shape, f"{node.stage}_whole"),)


def _rms_norm(node: Node) -> Value:
    shape = node.shape(0)
    axis = axis_of(node.attrs.get("axis", -1), len(shape), node.op)
    if axis != len(shape) - 1:
        raise Unsupported("RMSNormalization over more than the last dimension")
    rows = reshaped(node.tensor(0), (math.prod(shape[:-1]), shape[-1]), f"{node.stage}_rows")
    made = topi.rms_norm(rows, node.tensor(1), epsilon=float(node.attrs.get("epsilon", 1e-5)), name=node.stage)
    return reshaped(made, shape, f"{node.stage}_whole")


def _softmax(function: Callable[..., Tensor]) -> Rule:
    def rule(node: Node) -> Value:
        shape = node.shape(0)
        old = node.opset < 13
        axis = axis_of(node.attrs.get("axis", 1 if old else -1), len(shape), node.op)
        if old or axis != len(shape) - 1:
            return _softmax_along(node, function, shape, axis, old)
        rows = reshaped(node.tensor(0), (math.prod(shape[:-1]), shape[-1]), f"{node.stage}_rows")
        return reshaped(function(rows, -1, name=node.stage), shape, f"{node.stage}_whole")

    return rule


def _softmax_along(node: Node, function: Callable[..., Tensor], shape: Sequence[int], axis: int, flat: bool) -> Value:
    """Along an axis; old opsets take all dimensions from that one on as one."""
    if flat:
        rows = reshaped(node.tensor(0), (math.prod(shape[:axis]), math.prod(shape[axis:])), f"{node.stage}_rows")
        return reshaped(function(rows, -1, name=node.stage), shape, f"{node.stage}_whole")
    return function(node.tensor(0), axis, name=node.stage)


def _lp_norm(node: Node) -> Value:
    shape, order = node.shape(0), int(node.attrs.get("p", 2))
    axis = axis_of(node.attrs.get("axis", -1), len(shape), node.op)
    data = node.tensor(0)
    k = te.reduce_axis((0, shape[axis]), "k")

    def total(*i: Expr) -> Any:
        value = data(*i[:axis], k, *i[axis + 1 :])
        return te.sum(te.abs(value) if order == 1 else value * value, axis=k)

    kept = [1 if d == axis else n for d, n in enumerate(shape)]
    made: Tensor = te.compute(tuple(kept), total, name=f"{node.stage}_sum")
    at = _kept([axis])

    def element(*i: Expr) -> Expr:
        size = made(*at(i)) if order == 1 else te.sqrt(made(*at(i)))
        return te.select(binary("eq", size, te.const(0, data.dtype)), size, data(*i) / size)

    return node.compute(shape, element)


RULES: dict[str, Rule] = {
    "BatchNormalization": _batch_norm,
    "GroupNormalization": _group_norm,
    "InstanceNormalization": _instance_norm,
    "LayerNormalization": _layer_norm,
    "LogSoftmax": _softmax(topi.log_softmax),
    "LpNormalization": _lp_norm,
    "RMSNormalization": _rms_norm,
    "Softmax": _softmax(topi.softmax),
}
