"""Products, convolutions and activations that onnxruntime has joined."""

from __future__ import annotations

import numpy as np

from tensorlang.networks.onnx.bodies import Body, Written
from tensorlang.networks.refusal import Unsupported

_ACTIVATIONS = {
    "Clip": ("min", "max"),
    "Elu": ("alpha",),
    "HardSigmoid": ("alpha", "beta"),
    "LeakyRelu": ("alpha",),
    "Relu": (),
    "Sigmoid": (),
    "Softplus": (),
    "Tanh": (),
}
"""The numbers that an activation has, in order."""


def _gelu(body: Body) -> str:
    return body.add("Gelu", body.sum(body.needed(0), body.input(1)))


def _fast_gelu(body: Body) -> str:
    return body.add("Gelu", body.sum(body.needed(0), body.input(1)), approximate="tanh")


def _quick_gelu(body: Body) -> str:
    data = body.needed(0)
    return body.add("Mul", data, body.add("Sigmoid", _times(body, data, float(body.attrs.get("alpha", 1.702)))))


def _matmul(body: Body) -> str:
    body.only(transBatchA=0, transBatchB=0)
    factors = []
    for place, word in enumerate(("transA", "transB")):
        name, rank = body.needed(place), len(body.shape(place))
        if body.attrs.get(word) and rank > 1:
            name = body.add("Transpose", name, perm=[*range(rank - 2), rank - 1, rank - 2])
        factors.append(name)
    return _times(body, body.add("MatMul", *factors), float(body.attrs.get("alpha", 1.0)))


def _times(body: Body, name: str, factor: float) -> str:
    return name if factor == 1 else body.add("Mul", name, body.constant(factor, body.dtype(0)))


def _gemm(body: Body) -> str:
    kept = {k: v for k, v in body.attrs.items() if k in ("alpha", "beta", "transA", "transB")}
    made = body.add("Gemm", body.needed(0), body.needed(1), body.input(2), **kept)
    numbers = [body.attrs.get(f"activation_{word}") for word in ("alpha", "beta")]
    return _activated(body, made, [float(n) for n in numbers if n is not None])


def _conv(body: Body) -> str:
    kept = {k: v for k, v in body.attrs.items() if not k.startswith("activation")}
    made = body.add("Conv", body.needed(0), body.needed(1), body.input(2), **kept)
    return _activated(body, body.sum(made, body.input(3)), list(body.attrs.get("activation_params", [])))


def _activated(body: Body, name: str, numbers: list[float]) -> str:
    op = str(body.attrs.get("activation", ""))
    if not op:
        return name
    if op not in _ACTIVATIONS:
        raise Unsupported(f"{body.op} with the activation {op}; {', '.join(_ACTIVATIONS)} are taken")
    if op == "Clip":
        return body.add(op, name, *(body.constant(n, np.float32) for n in numbers))
    return body.add(op, name, **dict(zip(_ACTIVATIONS[op], numbers, strict=False)))


WRITTEN: dict[str, Written] = {
    "BiasGelu": _gelu,
    "FastGelu": _fast_gelu,
    "FusedConv": _conv,
    "FusedGemm": _gemm,
    "FusedMatMul": _matmul,
    "Gelu": _gelu,
    "QuickGelu": _quick_gelu,
    "TransposeMatMul": _matmul,
}
