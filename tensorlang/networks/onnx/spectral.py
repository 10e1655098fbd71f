"""Discrete Fourier transforms, as products by the matrix of their terms: of short rows that is one fast kernel."""

from __future__ import annotations

import numpy as np

from tensorlang import te
from tensorlang.ir.expr import Expr
from tensorlang.networks.network import Array, Value
from tensorlang.networks.node import Node, Rule, axis_of, element_of, shape_of
from tensorlang.networks.onnx.sums import product
from tensorlang.networks.places import reshaped
from tensorlang.networks.refusal import Unsupported
from tensorlang.te.operation import Tensor

_LONGEST = 4096
"""Elements of a row, whose matrix has four times the square of that."""


def _dft(node: Node) -> Value:
    """Along a dimension: numbers are real, or pairs of real and imaginary parts in the last dimension."""
    shape = node.shape(0)
    given = node.known(2, "the axis").item() if node.has(2) else node.attrs.get("axis", -2 if node.opset >= 20 else 1)
    axis = axis_of(int(given), len(shape), node.op)
    if axis == len(shape) - 1 or shape[-1] not in (1, 2):
        raise Unsupported(f"{node.op} along the axis {axis} of an array {shape}, whose last dimension is 1 or 2 parts")
    length = int(node.known(1, "the length").item()) if node.has(1) else shape[axis]
    inverse, onesided = bool(node.attrs.get("inverse")), bool(node.attrs.get("onesided"))
    if inverse and onesided:
        raise Unsupported(f"{node.op}: the inverse of one side")
    _refuse_long(node, max(length, shape[axis]))
    others = [d for d in range(len(shape) - 1) if d != axis]
    data, order = node.tensor(0), [*others, axis, len(shape) - 1]
    moved: Tensor = te.compute(
        tuple(shape[d] for d in order), lambda *i: data(*(i[order.index(d)] for d in range(len(shape)))),
        name=f"{node.stage}_moved",
    )  # fmt: skip
    made = _transformed(node, moved, _terms(shape[axis], length, shape[-1], inverse, onesided))
    whole = [*shape[:-1], 2]
    whole[axis] = shape_of(made)[-2]
    return node.compute(whole, lambda *i: made(*(i[d] for d in order)))


def _stft(node: Node) -> Value:
    """Of frames that begin step by step, under a window."""
    data, shape, step = node.tensor(0), node.shape(0), int(node.known(1, "the step").item())
    batch, samples, parts = shape if len(shape) == 3 else (*shape, 1)
    length = node.shape(2)[0] if node.has(2) else 0
    length = int(node.known(3, "the length of frames").item()) if node.has(3) else length
    if not 0 < length <= samples or step < 1:
        raise Unsupported(f"{node.op} of frames of {length} elements, one every {step}, of {samples}")
    _refuse_long(node, length)
    count = (samples - length) // step + 1
    window = node.value(2) if node.has(2) else np.ones(length, np.float32)

    def element(b: Expr, f: Expr, j: Expr, p: Expr) -> Expr:
        value = data(b, f * step + j, p) if len(shape) == 3 else data(b, f * step + j)
        return value * element_of(window, lambda: node.tensor(2), [j]) if isinstance(window, Tensor) else value

    frames: Tensor = te.compute((batch, count, length, parts), element, name=f"{node.stage}_frames")
    terms = _terms(length, length, parts, False, bool(node.attrs.get("onesided", 1)))
    known = terms if isinstance(window, Tensor) else terms * window.astype(np.float64).reshape(-1, 1, 1, 1)
    return _transformed(node, frames, known)


def _refuse_long(node: Node, length: int) -> None:
    if length > _LONGEST:
        raise Unsupported(f"{node.op} of {length} elements; up to {_LONGEST} are taken")


def _terms(extent: int, length: int, parts: int, inverse: bool, onesided: bool) -> Array:
    """What [element, part] adds to [frequency, part]; elements behind the length count for nothing."""
    elements, frequencies = np.arange(extent), np.arange(length // 2 + 1 if onesided else length)
    turns = np.exp((2j if inverse else -2j) * np.pi * (np.outer(elements, frequencies) % length) / length)
    turns[length:] = 0
    turns /= length if inverse else 1
    real, imaginary = (np.stack([t.real, t.imag], -1) for t in (turns, 1j * turns))
    return np.stack([real, imaginary][:parts], 1)


def _transformed(node: Node, data: Tensor, terms: Array) -> Tensor:
    """Rows [..., element, part] as [..., frequency, part]."""
    *around, extent, parts = shape_of(data)
    matrix = np.ascontiguousarray(terms.reshape(extent * parts, -1), str(data.dtype))
    rows = reshaped(data, (int(np.prod(around)), extent * parts), f"{node.stage}_rows")
    made = product(f"{node.stage}_sums", rows, node.weights.tensor(matrix))
    return reshaped(made, (*around, terms.shape[2], 2), f"{node.stage}_pairs")


RULES: dict[str, Rule] = {"DFT": _dft, "STFT": _stft}
