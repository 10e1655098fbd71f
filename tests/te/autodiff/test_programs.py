"""Gradients of whole programs against closed formulae and finite differences."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tensorlang import te
from tensorlang.ir.expr import Expr
from tensorlang.ir.intrinsics import TABLE
from tensorlang.te.program import canonical
from tensorlang.testing.check import check_schedule
from tensorlang.testing.strategies import ProgramCase, programs
from tests.te.autodiff.differences import Arrays, check_differences, lines, tensor, uniform, value

n, m = te.var("n"), te.var("m")


@given(programs(dtypes_from=("float64",)), st.integers(0, 99))
def test_random_programs_agree_with_differences(case: ProgramCase, seed: int) -> None:
    arrays = {
        t.name: uniform(a.shape, 100 * seed + k) if t.dtype == "float64" else a
        for k, (t, a) in enumerate(zip(case.placeholders, case.inputs, strict=True))
    }
    inputs = [t for t in case.placeholders if t.dtype == "float64"]
    for output in case.outputs:
        if output.dtype == "float64":
            used = {op.name for op in canonical([output])[0].ops}
            check_differences(output, [t for t in inputs if t.name in used], arrays)


SMOOTH = {"acosh": (1.2, 3.0), "asin": (-0.9, 0.9), "acos": (-0.9, 0.9), "atanh": (-0.9, 0.9)}
POSITIVE = {"log", "log2", "log10", "log1p", "sqrt", "rsqrt", "pow"}
STEPS = {"floor", "ceil", "round", "trunc"}


@pytest.mark.parametrize("name", [name for name, row in TABLE.items() if row.family == "float" or name == "abs"])
def test_every_intrinsic(name: str) -> None:
    low, high = (0.2, 3.0) if name in POSITIVE else SMOOTH.get(name, (-2.0, 2.0))
    inputs = [tensor(f"x{n}", 12) for n in range(TABLE[name].arity)]
    Y = te.compute((12,), lambda i: getattr(te, name)(*(x[i] for x in inputs)), name="Y")
    arrays = {x.name: uniform((12,), n, low, high) for n, x in enumerate(inputs)}
    grads = check_differences(Y, inputs, arrays)
    largest = max(float(np.abs(value(g, {**arrays, "head": np.ones(12)})).max()) for g in grads)
    assert (largest == 0) == (name in STEPS)


def softmax_loss(n: Any, m: Any) -> tuple[te.Tensor, te.Tensor, te.Tensor]:
    Z, labels = tensor("Z", n, m), tensor("labels", n, dtype="int32")
    k, k2, b = te.reduce_axis((0, m), "k"), te.reduce_axis((0, m), "k2"), te.reduce_axis((0, n), "b")
    top = te.compute((n,), lambda i: te.max(Z[i, k], axis=k), name="top")
    E = te.compute((n, m), lambda i, j: te.exp(Z[i, j] - top[i]), name="E")
    total = te.compute((n,), lambda i: te.sum(E[i, k2], axis=k2), name="total")
    loss = te.compute((), lambda: te.sum(te.log(total[b]) + top[b] - Z[b, labels[b]], axis=b), name="loss")
    return Z, labels, loss


def test_softmax_cross_entropy() -> None:
    Z, _, loss = softmax_loss(te.var("n"), te.var("m"))
    (grad,) = te.gradient(loss, [Z])
    te.create_schedule(grad.op)
    z, labels = uniform((5, 7)), np.array([0, 6, 3, 3, 1], np.int32)
    softmax = np.exp(z) / np.exp(z).sum(1, keepdims=True)
    expected = softmax - np.eye(7)[labels]
    np.testing.assert_allclose(value(grad, {"Z": z, "labels": labels}), expected, rtol=1e-10, atol=1e-12)


def test_embedding() -> None:
    W, words, H = tensor("W", n, 4), tensor("words", m, dtype="int32"), tensor("H", m, 4)
    Y = te.compute((m, 4), lambda t, d: W[words[t], d], name="Y")
    (grad,) = te.gradient(Y, [W], H)
    assert lines(grad) == [
        "W_grad: float64[n, 4] [e0 < n, e1 < 4] = sum(select(words[t] == e0, H[t, e1], float64(0.0)); t in [0, m))"
    ]
    check_schedule(
        te.create_schedule(grad.op),
        [words, H, grad],
        {"n": 3, "m": 6},
        inputs={"words": np.array([0, 2, 2, 1, 2, 0], np.int32)},
    )


def layer_norm() -> tuple[te.Tensor, list[te.Tensor], Arrays]:
    X, scale, shift = tensor("X", n, 6), tensor("scale", 6), tensor("shift", 6)
    k, k2 = te.reduce_axis((0, 6), "k"), te.reduce_axis((0, 6), "k2")
    total = te.compute((n,), lambda i: te.sum(X[i, k], axis=k), name="total")
    centred = te.compute((n, 6), lambda i, j: X[i, j] - total[i] / 6.0, name="centred")
    spread = te.compute((n,), lambda i: te.sum(centred[i, k2] * centred[i, k2], axis=k2), name="spread")
    body = lambda i, j: centred[i, j] * te.rsqrt(spread[i] / 6.0 + 1e-5) * scale[j] + shift[j]  # noqa: E731
    Y = te.compute((n, 6), body, name="Y")
    return Y, [X, scale, shift], {"X": uniform((4, 6)), "scale": uniform((6,), 1), "shift": uniform((6,), 2)}


def pooled(kind: Callable[..., Expr], **more: Any) -> tuple[te.Tensor, list[te.Tensor], Arrays]:
    X = tensor("X", n, 9)
    r = te.reduce_axis((0, 3), "r")
    Y = te.compute((n, 4), lambda i, j: kind(X[i, 2 * j + r], axis=r, **more), name="Y")
    return Y, [X], {"X": uniform((3, 9))}


def rounded_terms() -> tuple[te.Tensor, list[te.Tensor], Arrays]:
    """A maximum over terms that a compiler may contract."""
    A, B, c = tensor("A", 5, 4), tensor("B", 5, 4), tensor("c", 5)
    r = te.reduce_axis((1, 4), "r")
    value = lambda i: te.max(A[i, r] * B[i, r - 1] + c[i], axis=r, where=r != 2, init=c[i])  # noqa: E731
    return (
        te.compute((5,), value, name="Y"),
        [A, B, c],
        {"A": uniform((5, 4)), "B": uniform((5, 4), 1), "c": uniform((5,), 2)},
    )


def product_of_sums() -> tuple[te.Tensor, list[te.Tensor], Arrays]:
    A, b = tensor("A", 3, 2, 4), tensor("b", 3)
    r, s = te.reduce_axis((0, 2), "r"), te.reduce_axis((1, 4), "s")
    body = lambda i: te.prod(A[i, r, s] + b[i], axis=[r, s], where=r + s < 4, init=b[i] * 2.0)  # noqa: E731
    return te.compute((3,), body, name="Y"), [A, b], {"A": uniform((3, 2, 4)), "b": uniform((3,), 1)}


def recurrent_cell() -> tuple[te.Tensor, list[te.Tensor], Arrays]:
    """One step of an LSTM: four gates in one matrix."""
    x, h, c = tensor("x", 2, 3), tensor("h", 2, 4), tensor("c", 2, 4)
    W, U, bias = tensor("W", 4, 4, 3), tensor("U", 4, 4, 4), tensor("bias", 4, 4)
    k, l = te.reduce_axis((0, 3), "k"), te.reduce_axis((0, 4), "l")  # noqa: E741
    from_x = te.compute((2, 4, 4), lambda b, g, j: te.sum(x[b, k] * W[g, j, k], axis=k), name="from_x")
    from_h = te.compute((2, 4, 4), lambda b, g, j: te.sum(h[b, l] * U[g, j, l], axis=l), name="from_h")
    gate = te.compute((2, 4, 4), lambda b, g, j: from_x[b, g, j] + from_h[b, g, j] + bias[g, j], name="gate")
    cell = te.compute(
        (2, 4),
        lambda b, j: te.sigmoid(gate[b, 0, j]) * c[b, j] + te.sigmoid(gate[b, 1, j]) * te.tanh(gate[b, 2, j]),
        name="cell",
    )
    out = te.compute((2, 4), lambda b, j: te.sigmoid(gate[b, 3, j]) * te.tanh(cell[b, j]), name="out")
    inputs = [x, h, c, W, U, bias]
    return out, inputs, {t.name: uniform([int(str(e)) for e in t.shape], k) for k, t in enumerate(inputs)}


def several_outputs() -> tuple[te.Tensor, list[te.Tensor], Arrays]:
    A, B = tensor("A", 4), tensor("B", 4)
    P, Q = te.compute((4,), lambda i: (A[i] * B[i], A[i] - te.sin(B[i])), name="PQ")
    return te.compute((4,), lambda i: P[i] * Q[3 - i], name="Y"), [A, B], {"A": uniform((4,)), "B": uniform((4,), 1)}


def mixed_arithmetic() -> tuple[te.Tensor, list[te.Tensor], Arrays]:
    A, B, N = tensor("A", 8), tensor("B", 8), tensor("N", 8, dtype="int32")

    def body(i: Expr) -> Expr:
        a: Expr = A[i]
        b: Expr = B[i] * B[i] + 0.5
        smooth = a / b - (a % b) * 2.0 + te.fmod(a, b) * a + N[i].astype("float64") * b
        choice = te.select(te.any(a < 0.25, i == 3), te.minimum(a, b) * a, te.maximum(a * b, -a))
        made: Expr = smooth * choice + te.floor(a) * b + te.power(b, a) + te.power(a, 3) + (a > 0).astype("float64")
        return made

    arrays = {"A": uniform((8,)), "B": uniform((8,), 1), "N": np.arange(8, dtype=np.int32)}
    return te.compute((8,), body, name="Y"), [A, B], arrays


def renamed_reducer() -> tuple[te.Tensor, list[te.Tensor], Arrays]:
    add = te.comm_reducer(lambda x, y: y + x, lambda t: te.const(0, t), name="plus")
    A, r = tensor("A", 3, 4), te.reduce_axis((0, 4), "r")
    return te.compute((3,), lambda i: add(A[i, r] * A[i, 3 - r], axis=r), name="Y"), [A], {"A": uniform((3, 4))}


PROGRAMS: dict[str, Callable[[], tuple[te.Tensor, list[te.Tensor], Arrays]]] = {
    "layer norm": layer_norm,
    "max pooling": lambda: pooled(te.max),
    "min pooling of some": lambda: pooled(te.min, init=0.5),
    "sum pooling": lambda: pooled(te.sum, init=1.0),
    "product": lambda: pooled(te.prod),
    "maximum of rounded terms": rounded_terms,
    "product of sums": product_of_sums,
    "LSTM cell": recurrent_cell,
    "several outputs": several_outputs,
    "mixed arithmetic": mixed_arithmetic,
    "renamed reducer": renamed_reducer,
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_programs_agree_with_differences(name: str) -> None:
    output, inputs, arrays = PROGRAMS[name]()
    sizes = {"n": len(arrays["X"])} if "X" in arrays else None
    grads = check_differences(output, inputs, arrays, sizes)
    assert [g.name for g in grads] == [f"{t.name}_grad" for t in inputs]


@pytest.mark.parametrize("name", ["layer norm", "max pooling", "product of sums", "maximum of rounded terms"])
def test_kernels_of_gradients(name: str) -> None:
    output, inputs, arrays = PROGRAMS[name]()
    head = te.placeholder(output.shape, output.dtype, name="head")
    grads = te.gradient(output, inputs, head)
    schedule = te.create_schedule(grads)
    read = [t for t in [*inputs, head] if t.op in canonical_inputs(grads)]
    sizes = {"n": 3} if "X" in arrays else {}
    check_schedule(schedule, [*read, *grads], sizes)


def canonical_inputs(outputs: Sequence[te.Tensor]) -> set[te.Operation]:
    """The operations that outputs need."""
    found: set[te.Operation] = set()
    pending = [t.op for t in outputs]
    while pending:
        op = pending.pop()
        if op not in found:
            found.add(op)
            pending += [t.op for t in op.input_tensors]
    return found
