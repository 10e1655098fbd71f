"""Operators on integers that stand for other numbers: what floats would be, rounded again."""

from __future__ import annotations

from collections.abc import Callable

from tensorlang.networks.onnx.bodies import Body, Written


def _meant(body: Body, place: int) -> str:
    """The floats of three inputs: integers, their scale and their zero."""
    return body.add("DequantizeLinear", body.needed(place), body.needed(place + 1), body.input(place + 2))


def _rounded(body: Body, name: str, place: int) -> str:
    """The integers of floats, by an input that is their scale, and one that is their zero."""
    return body.add("QuantizeLinear", name, body.needed(place), body.input(place + 1))


def _pair(op: str) -> Written:
    return lambda body: _rounded(body, body.add(op, _meant(body, 0), _meant(body, 3)), 6)


def _single(function: Callable[[Body, str], str]) -> Written:
    return lambda body: _rounded(body, function(body, _meant(body, 0)), 3)


def _pool(op: str) -> Callable[[Body, str], str]:
    def function(body: Body, data: str) -> str:
        body.only(channels_last=0)
        kept = {k: v for k, v in body.attrs.items() if k != "channels_last"}
        return body.add(op, data, **kept)

    return function


def _joined(body: Body) -> str:
    """The scale and the zero of the result come first, then threes."""
    parts = [_meant(body, place) for place in range(2, len(body.values), 3)]
    return _rounded(body, body.add("Concat", *parts, axis=int(body.attrs["axis"])), 0)


def _gemm(body: Body) -> str:
    """The bias is in units of both scales; without a scale of the result it stays in floats."""
    kept = {k: v for k, v in body.attrs.items() if k in ("transA", "transB", "alpha")}
    bias = body.input(6)
    if bias is not None:
        scale = body.add("Mul", body.needed(1), body.needed(4))
        bias = body.add("Mul", body.add("Cast", bias, to=1), scale)
    made = body.add("Gemm", _meant(body, 0), _meant(body, 3), bias, **kept)
    return made if body.input(7) is None else _rounded(body, made, 7)


def _softmax(body: Body, data: str) -> str:
    return body.add("Softmax", data, axis=int(body.attrs.get("axis", -1)))


def _quantize(body: Body) -> str:
    return body.add("QuantizeLinear", body.needed(0), body.needed(1), body.input(2), **_axis(body))


def _dequantize(body: Body) -> str:
    return body.add("DequantizeLinear", body.needed(0), body.needed(1), body.input(2), **_axis(body))


def _axis(body: Body) -> dict[str, int]:
    return {"axis": int(body.attrs["axis"])} if "axis" in body.attrs else {}


WRITTEN: dict[str, Written] = {
    "DequantizeLinear": _dequantize,
    "QGemm": _gemm,
    "QLinearAdd": _pair("Add"),
    "QLinearAveragePool": _single(_pool("AveragePool")),
    "QLinearConcat": _joined,
    "QLinearGlobalAveragePool": _single(_pool("GlobalAveragePool")),
    "QLinearLeakyRelu": _single(lambda b, x: b.add("LeakyRelu", x, alpha=float(b.attrs.get("alpha", 0.01)))),
    "QLinearMul": _pair("Mul"),
    "QLinearSigmoid": _single(lambda b, x: b.add("Sigmoid", x)),
    "QLinearSoftmax": _single(_softmax),
    "QuantizeLinear": _quantize,
}
