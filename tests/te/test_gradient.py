"""te.gradient: exact forms, closed formulae, finite differences, and what it refuses."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tensorlang
from tensorlang import te
from tensorlang.errors import DefinitionError
from tensorlang.ir.expr import Expr
from tensorlang.ir.intrinsics import TABLE
from tensorlang.te.program import canonical
from tensorlang.te.reference import evaluate
from tensorlang.testing.check import check_schedule
from tensorlang.testing.strategies import ProgramCase, programs

Array = npt.NDArray[Any]
Arrays = Mapping[str, Array]


def tensor(name: str, *shape: Any, dtype: str = "float64") -> te.Tensor:
    return te.placeholder(shape, dtype, name=name)


def lines(*tensors: te.Tensor) -> list[str]:
    """The programs of tensors, without their inputs; the bounds of every read are proven on the way."""
    te.create_schedule(list(tensors))
    return [line for line in canonical(tensors)[0].text.splitlines() if not line.startswith(("input ", "return "))]


def value(result: te.Tensor, arrays: Arrays, sizes: Mapping[str, int] | None = None) -> Array:
    program = canonical([result])[0]
    inputs = {op.name: arrays[op.name] for op in program.ops if op.name in arrays}
    (array,) = evaluate(program, inputs, sizes).values()
    return array


def uniform(shape: Sequence[int], seed: int = 0, low: float = -2.0, high: float = 2.0) -> Array:
    return np.random.default_rng(seed).uniform(low, high, shape)


def check_differences(
    output: te.Tensor,
    inputs: Sequence[te.Tensor],
    arrays: Arrays,
    sizes: Mapping[str, int] | None = None,
    tolerance: float = 1e-5,
) -> list[te.Tensor]:
    """Compare the gradient, times a random head, with central differences along a random direction."""
    here = value(output, arrays, sizes)
    head = te.placeholder(output.shape, output.dtype, name="head")
    weights = uniform(here.shape, 1, -1.0, 1.0)
    grads: list[te.Tensor] = te.gradient(output, inputs, head)
    te.create_schedule([*grads, output])
    for source, grad in zip(inputs, grads, strict=True):
        at = arrays[source.name]
        step = uniform(at.shape, 2, -1.0, 1.0) * 1e-6
        up, down = (value(output, {**arrays, source.name: at + sign * step}, sizes) for sign in (1.0, -1.0))
        found = value(grad, {**arrays, "head": weights}, sizes)
        assert found.shape == at.shape
        scale = max(1.0, float(np.abs(found).max(initial=0.0)))
        want = float(((up - down) * weights).sum()) / 2e-6
        assert abs(float((found * step).sum()) / 1e-6 - want) <= tolerance * scale * max(1, at.size), source.name
    return grads


def matmul(n: Any, m: Any, k: Any, dtype: str = "float64") -> tuple[te.Tensor, te.Tensor, te.Tensor]:
    A, B = tensor("A", n, k, dtype=dtype), tensor("B", k, m, dtype=dtype)
    r = te.reduce_axis((0, k), "k")
    return A, B, te.compute((n, m), lambda i, j: te.sum(A[i, r] * B[r, j], axis=r), name="C")


def test_matmul() -> None:
    n, m, k = te.var("n"), te.var("m"), te.var("l")
    A, B, C = matmul(n, m, k)
    assert lines(*te.gradient(C, [A, B], tensor("H", n, m))) == [
        "A_grad: float64[n, l] [e0 < n, e1 < l] = sum(H[e0, j] * B[e1, j]; j in [0, m))",
        "B_grad: float64[l, m] [e0 < l, e1 < m] = sum(H[i, e1] * A[i, e0]; i in [0, n))",
    ]


def test_without_a_head_it_is_the_jacobian() -> None:
    A, _, C = matmul(4, 5, 3)
    (jacobian,) = te.gradient(C, A)
    assert lines(jacobian) == [
        "A_grad: float64[4, 5, 4, 3] [p0 < 4, p1 < 5, e0 < 4, e1 < 3] = select(e0 == p0, B[e1, p1], float64(0.0))"
    ]
    arrays = {"A": uniform((4, 3)), "B": uniform((3, 5), 1)}
    head = uniform((2, 4, 5), 2)
    (pulled,) = te.gradient(C, [A], tensor("H", 2, 4, 5))
    expected = np.tensordot(head, value(jacobian, arrays), 2)
    np.testing.assert_allclose(value(pulled, {**arrays, "H": head}), expected, rtol=1e-12)
    np.testing.assert_allclose(value(pulled, {**arrays, "H": head}), head @ arrays["B"].T, rtol=1e-12)


def test_strided_padded_convolution_is_gathered() -> None:
    X, W = tensor("X", 2, 3, 8, 8), tensor("W", 4, 3, 3, 3)
    c, p, q = te.reduce_axis((0, 3), "c"), te.reduce_axis((0, 3), "p"), te.reduce_axis((0, 3), "q")

    def inside(i: Expr) -> Expr:
        return te.all(i >= 0, i < 8)

    def body(b: Expr, o: Expr, y: Expr, x: Expr) -> Expr:
        u, v = y * 2 + p - 1, x * 2 + q - 1
        read = te.if_then_else(te.all(inside(u), inside(v)), X[b, c, u, v], 0.0)
        return te.sum(read * W[o, c, p, q], axis=[c, p, q])

    Y = te.compute((2, 4, 4, 4), body, name="Y")
    arrays = {"X": uniform((2, 3, 8, 8)), "W": uniform((4, 3, 3, 3), 1)}
    grads = check_differences(Y, [X, W], arrays)
    assert lines(grads[0]) == [
        "X_grad: float64[2, 3, 8, 8] [e0 < 2, e1 < 3, e2 < 8, e3 < 8] = sum(head[e0, o, (e2 - p + 1) // 2, "
        "(e3 - q + 1) // 2] * W[o, e1, p, q]; o in [0, 4), p in [0, 3), q in [0, 3), where=(e2 - p + 1) % 2 == 0 "
        "and e2 - p + 1 >= 0 and e2 - p + 1 < 8 and (e3 - q + 1) % 2 == 0 and e3 - q + 1 >= 0 and e3 - q + 1 < 8)"
    ]
    assert [axis.name for axis in grads[1].op.reduce_axis] == ["b", "y", "x"]


def reads(shape: Any, extents: Any, index: Callable[..., tuple[Any, ...]], dtype: str = "float64") -> te.Tensor:
    """The gradient of a tensor that only reads another, at `index`."""
    A = tensor("A", *shape, dtype=dtype)
    Y = te.compute(extents, lambda *i: A(*index(*i)), name="Y", varargs_names=["i", "j", "k"][: len(extents)])
    (grad,) = te.gradient(Y, [A], te.placeholder(extents, dtype, name="H"))
    return grad


n, m = te.var("n"), te.var("m")
GATHERS = {
    "transpose": (reads((n, m), (m, n), lambda i, j: (j, i)), "H[e1, e0]"),
    "reverse": (reads((n,), (n,), lambda i: (n - 1 - i,)), "H[n - e0 - 1]"),
    "broadcast": (reads((m,), (n, m), lambda i, j: (j,)), "sum(H[i, e0]; i in [0, n))"),
    "constant index": (reads((n, 4), (n,), lambda i: (i, 2)), "select(2 == e1, H[e0], float64(0.0))"),
    "diagonal": (reads((n, n), (n,), lambda i: (i, i)), "select(e0 == e1, H[e0], float64(0.0))"),
    "slice": (
        reads((n + 3,), (n,), lambda i: (i + 2,)),
        "select(e0 - 2 >= 0 and e0 - 2 < n, H[e0 - 2], float64(0.0))",
    ),
    "stride": (
        reads((2 * n,), (n,), lambda i: (2 * i,)),
        "select(e0 % 2 == 0, H[e0 // 2], float64(0.0))",
    ),
    "split": (reads((n, 4), (4 * n,), lambda i: (i // 4, i % 4)), "H[e1 + e0 * 4]"),
    "merge": (reads((n * 4,), (n, 4), lambda i, j: (i * 4 + j,)), "H[e0 // 4, e0 % 4]"),
    "three digits": (reads((2, 3, 8), (48,), lambda i: (i // 24, i // 8 % 3, i % 8)), "H[e2 + e1 * 8 + e0 * 24]"),
    "repeat": (reads((n,), (4 * n,), lambda i: (i // 4,)), "sum(H[m + e0 * 4]; m in [0, 4))"),
    "tile": (reads((4,), (4 * 5,), lambda i: (i % 4,)), "sum(H[e0 + q * 4]; q in [0, 5))"),
    "window": (
        reads((n + 2,), (n, 3), lambda i, j: (i + j,)),
        "sum(H[e0 - j, j]; j in [0, 3), where=e0 - j >= 0 and e0 - j < n)",
    ),
}


@pytest.mark.parametrize("name", GATHERS)
def test_index_maps_are_inverted(name: str) -> None:
    grad, expected = GATHERS[name]
    (line,) = lines(grad)
    assert line.split(" = ", 1)[1] == expected


@st.composite
def index_maps(draw: Any) -> tuple[tuple[int, ...], Callable[..., tuple[Any, ...]], tuple[int, ...]]:
    """Extents of one to three axes, one to three indices over them, and the shape that these need."""
    extents = tuple(draw(st.lists(st.integers(1, 7), min_size=1, max_size=3)))

    def index() -> Callable[..., Any]:
        weights = [draw(st.sampled_from((-3, -2, -1, 0, 0, 1, 1, 2, 3, 6))) for _ in extents]
        steps = draw(st.lists(st.tuples(st.sampled_from("/%"), st.integers(1, 8), st.integers(0, 4)), max_size=2))

        def function(*axes: Any) -> Any:
            total = sum((w * a for w, a in zip(weights, axes, strict=True)), axes[0] * 0)
            for kind, divisor, shift in steps:
                total = (total + shift) // divisor if kind == "/" else (total + shift) % divisor
            return total

        return function

    functions = [index() for _ in range(draw(st.integers(1, 3)))]
    grid = np.meshgrid(*map(np.arange, extents), indexing="ij")
    lows = [int(f(*grid).min()) for f in functions]
    shape = tuple(int(f(*grid).max()) - low + 1 for f, low in zip(functions, lows, strict=True))
    return extents, lambda *i: tuple(f(*i) - low for f, low in zip(functions, lows, strict=True)), shape


@given(index_maps(), st.booleans())
def test_a_gather_is_the_scatter(
    drawn: tuple[tuple[int, ...], Callable[..., tuple[Any, ...]], tuple[int, ...]], reduced: bool
) -> None:
    """Also when the last axis is summed over, as in the body of a reduction."""
    extents, index, shape = drawn
    A, kept = tensor("A", *shape), extents[: len(extents) - reduced]
    r = te.reduce_axis((3, 3 + extents[-1]), "r")
    body = (lambda *i: te.sum(A(*index(*i, r - 3)), axis=r)) if reduced else lambda *i: A(*index(*i))
    Y = te.compute(kept, body, name="Y")
    (grad,) = te.gradient(Y, [A], tensor("H", *kept))
    te.create_schedule(grad.op)
    head = np.random.default_rng(0).integers(-9, 10, kept).astype(float)
    spread = np.broadcast_to(head[..., None], extents) if reduced else head
    expected = np.zeros(shape)
    np.add.at(expected, index(*np.meshgrid(*map(np.arange, extents), indexing="ij")), spread)
    np.testing.assert_array_equal(value(grad, {"H": head}), expected)


@st.composite
def symbolic_maps(draw: Any) -> tuple[tuple[int, ...], Callable[..., tuple[Any, ...]], Callable[..., tuple[Any, ...]]]:
    """Sizes of one or two axes; indices, as a function of the axes and their extents; the shape, of the extents."""
    sizes = tuple(draw(st.lists(st.integers(1, 6), min_size=1, max_size=2)))
    rows = []
    for _ in range(draw(st.integers(1, 2))):
        weights = [draw(st.sampled_from((-2, -1, 0, 1, 1, 2, 3))) for _ in sizes]
        rows.append((weights, draw(st.sampled_from(("", "/", "%"))), draw(st.integers(1, 6))))

    def index(axes: Sequence[Any], extents: Sequence[Any]) -> tuple[Any, ...]:
        found = []
        for weights, kind, divisor in rows:
            total = axes[0] * 0
            for w, a, extent in zip(weights, axes, extents, strict=True):
                total = total + (w * a if w >= 0 else -w * (extent - 1 - a))
            found.append(total // divisor if kind == "/" else total % divisor if kind == "%" else total)
        return tuple(found)

    def shape(extents: Sequence[Any]) -> tuple[Any, ...]:
        found = []
        for weights, kind, divisor in rows:
            last = sum(abs(w) * (extent - 1) for w, extent in zip(weights, extents, strict=True))
            found.append(divisor if kind == "%" else (last // divisor if kind == "/" else last) + 1)
        return tuple(found)

    return sizes, index, shape


@given(symbolic_maps())
def test_a_gather_over_symbolic_sizes_is_the_scatter(
    drawn: tuple[tuple[int, ...], Callable[..., tuple[Any, ...]], Callable[..., tuple[Any, ...]]],
) -> None:
    sizes, index, shape = drawn
    extents = [te.var(f"n{k}") for k in range(len(sizes))]
    A = tensor("A", *shape(extents))
    Y = te.compute(extents, lambda *i: A(*index(i, extents)), name="Y")
    (grad,) = te.gradient(Y, [A], tensor("H", *extents))
    te.create_schedule(grad.op)
    head = np.random.default_rng(0).integers(-9, 10, sizes).astype(float)
    expected = np.zeros(shape(sizes))
    np.add.at(expected, index(np.meshgrid(*map(np.arange, sizes), indexing="ij"), sizes), head)
    known = {f"n{k}": size for k, size in enumerate(sizes)}
    np.testing.assert_array_equal(value(grad, {"H": head}, known), expected)


@given(programs(dtypes_from=("float64",)), st.integers(0, 99))
def test_random_programs_agree_with_differences(case: ProgramCase, seed: int) -> None:
    arrays = {
        t.name: uniform(a.shape, seed) if t.dtype == "float64" else a
        for t, a in zip(case.placeholders, case.inputs, strict=True)
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


def test_a_maximum_shares_its_gradient_among_equal_terms() -> None:
    A, r = tensor("A", 6), te.reduce_axis((0, 6), "r")
    Y = te.compute((), lambda: te.max(A[r], axis=r), name="Y")
    (grad,) = te.gradient(Y, [A])
    assert value(grad, {"A": np.array([1.0, 5.0, 2.0, 5.0, -1.0, 5.0])}).tolist() == [0, 1 / 3, 0, 1 / 3, 0, 1 / 3]


def test_a_product_is_right_where_terms_are_zero() -> None:
    A, r = tensor("A", 3, 4), te.reduce_axis((0, 4), "r")
    Y = te.compute((3,), lambda i: te.prod(A[i, r], axis=r), name="Y")
    (grad,) = te.gradient(Y, [A], tensor("H", 3))
    a = np.array([[2.0, 3.0, 5.0, 7.0], [2.0, 0.0, 5.0, 7.0], [0.0, 3.0, 0.0, 7.0]])
    expected = [[105, 70, 42, 30], [0, 70, 0, 0], [0, 0, 0, 0]]
    assert value(grad, {"A": a, "H": np.ones(3)}).tolist() == expected


def test_ties_of_two_operands_go_to_the_first_and_abs_has_zero() -> None:
    A = tensor("A", 3)
    Y = te.compute(
        (3,), lambda i: te.maximum(A[i], 0.0) + te.minimum(0.0, A[i]) * 10.0 + te.abs(A[i]) * 100.0, name="Y"
    )
    (grad,) = te.gradient(Y, [A], tensor("H", 3))
    assert value(grad, {"A": np.array([-1.0, 0.0, 1.0]), "H": np.ones(3)}).tolist() == [-90, 1, 101]


def test_guards_keep_values_that_are_not_taken_out_of_the_sum() -> None:
    """0 * infinity would be NaN: a branch that is not taken gives nothing."""
    A = tensor("A", 3)
    Y = te.compute((3,), lambda i: te.if_then_else(A[i] > 0, te.log(A[i]), 0.0), name="Y")
    (grad,) = te.gradient(Y, [A], tensor("H", 3))
    assert value(grad, {"A": np.array([-1.0, 0.0, 4.0]), "H": np.ones(3)}).tolist() == [0, 0, 0.25]


def test_paths_and_uses_are_added() -> None:
    A = tensor("A", n)
    B = te.compute((n,), lambda i: te.exp(A[i]), name="B")
    Y = te.compute((n,), lambda i: A[i] * A[i] + B[i] * A[n - 1 - i], name="Y")
    grads = te.gradient(Y, [A, B], tensor("H", n))
    assert lines(*grads) == [
        "B: float64[n] [i < n] = exp(A[i])",
        "B_grad: float64[n] [e0 < n] = H[e0] * A[n - e0 - 1]",
        "A_grad: float64[n] [e0 < n] = H[e0] * A[e0] + H[e0] * A[e0] + H[n - e0 - 1] * B[n - e0 - 1] "
        "+ B_grad[e0] * B[e0]",
    ]


def test_what_the_output_does_not_depend_on_has_zeros() -> None:
    A, B = tensor("A", n), tensor("B", m, 2)
    Y = te.compute((n,), lambda i: te.floor(A[i]) * te.select(A[i] < 2, 1.0, 0.0), name="Y")
    assert lines(*te.gradient(Y, [A, B], tensor("H", 5, n))) == [
        "A_grad: float64[5, n] [p0 < 5, e0 < n] = float64(0.0)",
        "B_grad: float64[5, m, 2] [p0 < 5, e0 < m, e1 < 2] = float64(0.0)",
    ]


def test_the_gradient_of_the_output_is_the_head_or_the_identity() -> None:
    A, H = tensor("A", 3), tensor("H", 2, 3)
    Y = te.compute((3,), lambda i: A[i] * 2.0, name="Y")
    assert te.gradient(Y, [Y], H) == [H]
    np.testing.assert_array_equal(value(te.gradient(Y, [Y])[0], {}), np.eye(3))
    np.testing.assert_array_equal(value(te.gradient(A, [A])[0], {}), np.eye(3))


def test_second_derivatives() -> None:
    A, r = tensor("A", 4), te.reduce_axis((0, 4), "r")
    Y = te.compute((), lambda: te.sum(A[r] * A[r] * A[3 - r] + te.sin(A[r]), axis=r), name="Y")
    (first,) = te.gradient(Y, [A])
    (hessian,) = te.gradient(first, [A])
    te.create_schedule(hessian.op)
    a = uniform((4,))
    found = value(hessian, {"A": a})
    columns = []
    for k in range(4):
        step = np.eye(4)[k] * 1e-6
        columns.append((value(first, {"A": a + step}) - value(first, {"A": a - step})) / 2e-6)
    np.testing.assert_allclose(found, np.stack(columns, 1), rtol=1e-6, atol=1e-6)
    check_differences(first, [A], {"A": a})


@pytest.mark.parametrize("kind", [te.max, te.prod, te.min])
def test_second_derivatives_of_reductions(kind: Callable[..., Expr]) -> None:
    A, r = tensor("A", 3, 4), te.reduce_axis((0, 4), "r")
    Y = te.compute((3,), lambda i: kind(A[i, r] * A[i, 3 - r] + A[i, r], axis=r), name="Y")
    (first,) = te.gradient(Y, [A], tensor("weights", 3))
    check_differences(first, [A], {"A": uniform((3, 4)), "weights": uniform((3,), 1)})


def test_sums_of_narrow_floats_stay_wide() -> None:
    A, B, H = (tensor(x, 4, 4, dtype=d) for x, d in (("A", "float16"), ("B", "float16"), ("H", "float32")))
    r = te.reduce_axis((0, 4), "k")

    def product(i: Expr, j: Expr) -> Expr:
        return te.sum(A[i, r].astype("float32") * B[r, j].astype("float32"), axis=r)

    Y = te.compute((4, 4), product, name="Y")
    assert lines(*te.gradient(Y, [A], H)) == [
        "A_grad_Y: float32[4, 4] [e0 < 4, e1 < 4] = sum(H[e0, j] * float32(B[e1, j]); j in [0, 4))",
        "A_grad: float16[4, 4] [e0 < 4, e1 < 4] = float16(A_grad_Y[e0, e1])",
    ]


def test_an_intrinsic_is_not_computed_twice() -> None:
    A, H = tensor("A", n), tensor("H", n)
    Y = te.compute((n,), lambda i: te.tanh(A[i] * 2.0), name="Y")
    assert lines(*te.gradient(Y, [A], H))[1:] == [
        "A_grad: float64[n] [e0 < n] = H[e0] * (float64(1.0) - Y[e0] * Y[e0]) * float64(2.0)"
    ]


def test_names_of_axes_do_not_collide() -> None:
    p0, e0 = te.var("p0"), te.var("e0")
    A, r = tensor("A", p0, e0), te.reduce_axis((0, e0), "q")
    Y = te.compute((p0,), lambda e1: te.sum(A[e1, r], axis=r), name="Y")
    assert lines(*te.gradient(Y, [A])) == [
        "A_grad: float64[p0, p0, e0] [p0_1 < p0, e0_1 < p0, e1_1 < e0] = "
        "select(e0_1 == p0_1, float64(1.0), float64(0.0))"
    ]


X, WHOLE = tensor("X", 4), tensor("WHOLE", 4, dtype="int32")
ROUNDED = te.compute((4,), lambda i: te.round(X[i]).astype("int32"), name="rounded")
LARGEST = te.comm_reducer(lambda x, y: te.select(x > y, x, y), te.min_value, name="largest")
K = te.reduce_axis((0, 4), "k")


def copy_into(source: Array, target: Array) -> None:
    target[...] = source


def plain(value: Callable[[Expr], Expr]) -> te.Tensor:
    made: te.Tensor = te.compute((4,), value, name="Y", varargs_names=["i"])
    return made


REFUSED = [
    (plain(lambda i: WHOLE[i]), [X], None, "the output Y of te.gradient has dtype int32; derivatives need floats"),
    (plain(lambda i: X[i]), [WHOLE], None, "the input WHOLE of te.gradient has dtype int32"),
    (plain(lambda i: X[i]), [X, 3.0], None, "the input of te.gradient must be a tensor, got 3.0"),
    (plain(lambda i: X[i]), [X], tensor("H", 4, 3), r"the head H has shape \(4, 3\), which does not end with \(4\)"),
    (plain(lambda i: X[i]), [X], tensor("H"), r"the head H has shape \(\), which does not end with \(4\)"),
    (plain(lambda i: X[i]), [X], tensor("H", 4, dtype="float32"), "the head is float32, but Y is float64; cast one"),
    (
        plain(lambda i: ROUNDED[i].astype("float64") * X[i]),
        [X],
        None,
        "rounded of dtype int32 lies between the output and an input .*; compute it in a float dtype",
    ),
    (plain(lambda i: LARGEST(X[K] * i, axis=K)), [X], None, "Y reduces with largest, .* it knows te.sum, te.prod"),
    (
        plain(lambda i: te.extern((4,), [X], copy_into, name="copied")[i]),
        [X],
        None,
        r"no derivative of copied, made by te.extern; take the gradient up to its result \(inputs=\[copied\]\)",
    ),
]


@pytest.mark.parametrize(("output", "inputs", "head", "message"), REFUSED)
def test_refusals_say_what_to_do(output: te.Tensor, inputs: list[Any], head: te.Tensor | None, message: str) -> None:
    with pytest.raises(DefinitionError, match=message) as caught:
        te.gradient(output, inputs, head)
    assert caught.value.where is not None and caught.value.where.file == __file__


def test_what_is_not_on_the_way_may_be_anything() -> None:
    """Integers, custom reducers and whole-array functions, where the inputs do not pass through them."""
    fixed = te.extern((4,), [WHOLE], copy_into, name="fixed", dtype="float64")
    Y = te.compute((4,), lambda i: X[WHOLE[i] % 4] * fixed[i] + WHOLE[i].astype("float64"), name="Y")
    check_differences(Y, [X], {"X": uniform((4,)), "WHOLE": np.array([3, -1, 0, 2], np.int32)})
    assert lines(*te.gradient(Y, [fixed], tensor("H", 4))) == [
        "fixed_grad: float64[4] [e0 < 4] = H[e0] * X[WHOLE[e0] % 4]"
    ]


def test_create_prim_func() -> None:
    A, B, C = matmul(4, 5, 3, "float32")
    function = te.create_prim_func([C, A, B])
    assert str(function) == str(tensorlang.lower(te.create_schedule(C.op), [C, A, B]))
    a, b, c = uniform((4, 3)).astype("float32"), uniform((3, 5)).astype("float32"), np.zeros((4, 5), "float32")
    for target in ("llvm", "interpreter"):
        tensorlang.build(function, target=target)(c, a, b)
        np.testing.assert_allclose(c, a @ b, rtol=1e-5)
        c[:] = 0
    D = te.compute((4, 5), lambda i, j: C[i, j] + 1, name="D")
    both = tensorlang.build(te.create_prim_func([A, B, C, D]))
    d = np.zeros_like(c)
    both(a, b, c, d)
    np.testing.assert_allclose(d, c + 1)
    assert c.any()
    with pytest.raises(DefinitionError, match="needs an output: a tensor that is computed"):
        te.create_prim_func([A, B])
    with pytest.raises(DefinitionError, match="args lack B"):
        te.create_prim_func([A, C])
    with pytest.raises(DefinitionError, match="build needs args"):
        tensorlang.build(te.create_schedule(C.op))


def test_the_example_of_the_page_runs() -> None:
    page = (Path(__file__).parents[2] / "docs" / "gradient.md").read_text(encoding="utf-8")
    (program,) = re.findall(r"^```python\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    exec(compile(program, "gradient.md", "exec"), {})
