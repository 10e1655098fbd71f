"""Norms, and softmax."""

from __future__ import annotations

import math

import numpy as np

from tensorlang import dtypes, te, topi
from tensorlang.ir.expr import Expr
from tensorlang.networks.network import Array, Value
from tensorlang.networks.node import shape_of
from tensorlang.networks.places import reshaped
from tensorlang.networks.refusal import Unsupported
from tensorlang.networks.torch.call import Call, Rule
from tensorlang.te.operation import Tensor


def _softmax(op: str) -> Rule:
    def rule(call: Call) -> Value:
        data = call.cast(call["self"], call.dtype)
        if not call.shape:
            data = reshaped(call.tensor(data), (1,), f"{call.stage}_one")
        return reshaped(call.onnx(op, data, part="rows", axis=call["dim"]), call.shape, call.stage)

    return rule


def _batch_norm(call: Call) -> tuple[Value | None, ...]:
    """By statistics that are kept: folded into one factor and one summand for each channel."""
    call.only_first("the mean")
    data = call.tensor(call["input"])
    channels, dtype = shape_of(data)[1], data.dtype
    given = [call[name] for name in ("weight", "bias", "running_mean", "running_var")]
    usual = [_constant(v, dtype, channels) for v in (1, 0, 0, 1)]
    scale, shift, mean, var = (u if v is None else v for v, u in zip(given, usual, strict=True))
    if not any(isinstance(v, Tensor) for v in given):
        return (call.onnx("BatchNormalization", data, scale, shift, mean, var, epsilon=call["eps"]), None, None)
    wide = dtypes.at_least_float32(dtype)
    eps = te.const(call["eps"], wide)
    times = call.pointwise(lambda s, v: s * te.rsqrt(v + eps), scale, var, dtype=wide, part="times")
    plus = call.pointwise(lambda b, m, t: b - m * t, shift, mean, times, dtype=wide, part="plus")
    made = call.compute(
        call.shape, lambda *i: (data(*i).astype(wide) * times(i[1]) + plus(i[1])).astype(dtype)
    )  # fmt: skip
    return made, None, None


def _batch_norm_in_training(call: Call) -> tuple[Value | None, ...]:
    """By the mean and the variance of the batch, which are outputs, and go into the running ones."""
    if not call["training"]:
        raise Unsupported("outside of training")
    given = call.tensor(call["input"])
    shape, wide = shape_of(given), call.made[1][1]
    data = call.tensor(call.cast(given, wide, "wide"))
    axes = [d for d in range(len(shape)) if d != 1]
    count, channels = math.prod(shape[d] for d in axes), (shape[1],)
    mean = topi.mean(data, axes, name=f"{call.stage}_mean")
    squares = call.compute(shape, lambda *i: (data(*i) - mean(i[1])) * (data(*i) - mean(i[1])), "squares")
    var = topi.mean(squares, axes, name=f"{call.stage}_var")
    scale = call.compute(channels, lambda c: te.rsqrt(var(c) + te.const(call["eps"], wide)), "scale")
    weight, bias = (None if call[w] is None else call.tensor(call[w]) for w in ("weight", "bias"))

    def element(*index: Expr) -> Expr:
        value = (data(*index) - mean(index[1])) * scale(index[1])
        value = value if weight is None else value * weight(index[1]).astype(wide)
        return (value if bias is None else value + bias(index[1]).astype(wide)).astype(given.dtype)

    def running(name: str, new: Tensor, factor: float) -> Tensor:
        old, share = call.tensor(call[name]), float(call["momentum"])

        def mixed(c: Expr) -> Expr:
            return old(c) * te.const(1 - share, old.dtype) + (new(c) * te.const(share * factor, wide)).astype(old.dtype)

        return call.compute(channels, mixed, name)

    unbiased = count / max(1, count - 1)
    kept = running("running_mean", mean, 1), running("running_var", var, unbiased)
    return call.compute(shape, element), mean, scale, *kept


def _layer_norm(call: Call) -> tuple[Value | None, ...]:
    data = call.tensor(call["input"])
    shape = shape_of(data)
    inner = math.prod(call["normalized_shape"])
    rows = reshaped(data, (math.prod(shape) // inner, inner), f"{call.stage}_rows")
    weight, bias = (None if call[w] is None else _flat(call, w, inner) for w in ("weight", "bias"))
    if call.used <= {0}:
        made = topi.layer_norm(rows, weight, bias, epsilon=call["eps"], name=f"{call.stage}_norm")
        return reshaped(made, shape, call.stage), *[None] * (len(call.made) - 1)
    return _layer_norm_with_statistics(call, rows, weight, bias)


def _layer_norm_with_statistics(
    call: Call, rows: Tensor, weight: Tensor | None, bias: Tensor | None
) -> tuple[Value | None, ...]:
    """The norm, and the mean and the reciprocal deviation that gradients read."""
    count, inner = shape_of(rows)
    wide = call.made[1][1]
    data = call.tensor(call.cast(rows, wide, "wide"))
    mean = topi.mean(data, [1], name=f"{call.stage}_mean")
    squares = call.compute((count, inner), lambda i, j: (data(i, j) - mean(i)) * (data(i, j) - mean(i)), "squares")
    var = topi.mean(squares, [1], name=f"{call.stage}_var")
    scale = call.compute((count,), lambda i: te.rsqrt(var(i) + te.const(call["eps"], wide)), "scale")

    def element(i: Expr, j: Expr) -> Expr:
        value = (data(i, j) - mean(i)) * scale(i)
        value = value if weight is None else value * weight(j).astype(wide)
        return (value if bias is None else value + bias(j).astype(wide)).astype(rows.dtype)

    made = call.compute((count, inner), element, "norm")
    whole = [
        reshaped(t, s, f"{call.stage}_out{k}") for k, (t, (s, _)) in enumerate(zip((made, mean, scale), call.made))
    ]
    return tuple(whole)


def _rms_norm(call: Call) -> Value | tuple[Value | None, ...]:
    call.only_first("the deviation")
    data = call.tensor(call["input"])
    inner = math.prod(call["normalized_shape"])
    rows = reshaped(data, (math.prod(call.shape) // inner, inner), f"{call.stage}_rows")
    eps = call["eps"]
    eps = float(np.finfo(dtypes.info(data.dtype).numpy).eps) if eps is None else eps
    weight = None if call["weight"] is None else _flat(call, "weight", inner)
    made = reshaped(topi.rms_norm(rows, weight, epsilon=eps, name=f"{call.stage}_norm"), call.shape, call.stage)
    return (made, *[None] * (len(call.made) - 1))


def _flat(call: Call, name: str, inner: int) -> Tensor:
    return reshaped(call.tensor(call[name]), (inner,), f"{call.stage}_{name}")


def _group_norm(call: Call) -> tuple[Value | None, ...]:
    call.only_first("the mean")
    data = call.given.get("input")
    assert data is not None
    channels, groups = shape_of(data)[1], call.given.get("group", call.given.get("num_groups"))
    usual = [_constant(v, call.dtype, channels) for v in (1, 0)]
    scale, shift = (u if call[n] is None else call[n] for n, u in zip(("weight", "bias"), usual, strict=True))
    made = call.onnx("GroupNormalization", data, scale, shift, num_groups=groups, epsilon=call["eps"])
    return (made, *[None] * (len(call.made) - 1))


def _constant(value: float, dtype: str, extent: int) -> Array:
    return np.full(extent, value, dtypes.info(dtype).numpy)


RULES: dict[str, Rule] = {
    "_fused_rms_norm.default": _rms_norm,
    "_log_softmax.default": _softmax("LogSoftmax"),
    "_native_batch_norm_legit_no_training.default": _batch_norm,
    "_softmax.default": _softmax("Softmax"),
    "_native_batch_norm_legit_functional.default": _batch_norm_in_training,
    "group_norm.default": _group_norm,
    "layer_norm.default": _layer_norm,
    "native_group_norm.default": _group_norm,
    "native_layer_norm.default": _layer_norm,
    "rms_norm.default": _rms_norm,
}
