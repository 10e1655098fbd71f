"""te.gradient and te.create_prim_func: exact forms, what derivatives are where there is a choice, and refusals."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tensorlang
from tensorlang import te, topi
from tensorlang.errors import DefinitionError
from tensorlang.ir.expr import Expr
from tests.te.autodiff.differences import Array, check_differences, lines, matmul, tensor, uniform, value


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


n, m = te.var("n"), te.var("m")


def test_a_maximum_shares_its_gradient_among_equal_terms() -> None:
    A, r = tensor("A", 6), te.reduce_axis((0, 6), "r")
    Y = te.compute((), lambda: te.max(A[r], axis=r), name="Y")
    (grad,) = te.gradient(Y, [A])
    assert value(grad, {"A": np.array([1.0, 5.0, 2.0, 5.0, -1.0, 5.0])}).tolist() == [0, 1 / 3, 0, 1 / 3, 0, 1 / 3]


@pytest.mark.parametrize(
    ("combine", "kind"),
    [
        (lambda x, y: te.select(y > x, y, x), "max"),
        (lambda x, y: te.select(x >= y, x, y), "max"),
        (lambda x, y: te.select(y > x, x, y), "min"),
        (lambda x, y: te.select(y <= x, y, x), "min"),
    ],
)
def test_choices_between_two_terms_are_maxima_and_minima(combine: Callable[..., Expr], kind: str) -> None:
    worst = float("-inf" if kind == "max" else "inf")
    reducer = te.comm_reducer(combine, lambda dtype: te.const(worst, dtype), name="chosen")
    A, k = tensor("A", 2, 4), te.reduce_axis((0, 4), "k")
    B = te.compute((2,), lambda i: reducer(A[i, k], axis=k), name="B")
    arrays, head = {"A": uniform((2, 4))}, np.array([2.0, 3.0])
    (grad,) = te.gradient(B, [A], tensor("H", 2))
    chosen = (np.argmax if kind == "max" else np.argmin)(arrays["A"], axis=1)
    expected = np.zeros((2, 4))
    expected[[0, 1], chosen] = head
    np.testing.assert_allclose(value(grad, {**arrays, "H": head}), expected)


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
FARTHEST = te.comm_reducer(lambda x, y: te.select(x * x > y * y, x, y), te.min_value, name="farthest")
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
    (
        plain(lambda i: te.reinterpret("float64", te.reinterpret("int64", X[i]) & 2**62)),
        [X],
        None,
        "no derivative of bits that te.reinterpret takes as float64, .* write it as arithmetic",
    ),
    (plain(lambda i: FARTHEST(X[K] * i, axis=K)), [X], None, "Y reduces with farthest, .* it knows te.sum, te.prod"),
    (
        plain(lambda i: te.extern((4,), [X], copy_into, name="copied")[i]),
        [X],
        None,
        r"no derivative of copied, made by te.extern; take the gradient up to its result \(inputs=\[copied\]\)",
    ),
]


def test_statements_in_order_are_refused() -> None:
    state = tensor("state", 4, 3)
    first = te.compute((1, 3), lambda t, i: X[i], name="first")
    update = te.compute((4, 3), lambda t, i: state[t - 1, i] * 2.0, name="update")
    powers = te.scan(first, update, state, name="powers")
    Y = te.compute((3,), lambda i: powers[3, i], name="Y")
    with pytest.raises(DefinitionError, match=r"derivative of powers, made by te.hybrid.script.* te.recurrence; take"):
        te.gradient(Y, [X])
    assert [str(e) for e in te.gradient(Y, [powers], tensor("H", 3))[0].shape] == ["4", "3"]


@pytest.mark.parametrize(("output", "inputs", "head", "message"), REFUSED)
def test_refusals_say_what_to_do(output: te.Tensor, inputs: list[Any], head: te.Tensor | None, message: str) -> None:
    with pytest.raises(DefinitionError, match=message) as caught:
        te.gradient(output, inputs, head)
    assert caught.value.where is not None and caught.value.where.file == __file__


def test_what_is_not_on_the_way_may_be_anything() -> None:
    """Integers, bits, custom reducers and whole-array functions, where the inputs do not pass through them."""
    fixed = te.extern((4,), [WHOLE], copy_into, name="fixed", dtype="float64")

    def bits(i: Expr) -> Expr:
        """The exponent of an element, which does not change near it; and a number of bits."""
        exponent = te.reinterpret("int64", X[i]) >> 52
        return exponent.astype("float64") + te.reinterpret("float64", (WHOLE[i] & 3).astype("int64") << 60)

    Y = te.compute((4,), lambda i: X[WHOLE[i] % 4] * fixed[i] + bits(i) + WHOLE[i].astype("float64"), name="Y")
    check_differences(Y, [X], {"X": uniform((4,)), "WHOLE": np.array([3, -1, 0, 2], np.int32)})
    assert lines(*te.gradient(Y, [fixed], tensor("H", 4))) == [
        "fixed_grad: float64[4] [e0 < 4] = H[e0] * X[WHOLE[e0] % 4]"
    ]


def test_the_greatest_of_a_row_cancels_out_of_its_softmax() -> None:
    A = tensor("A", 2, 4)
    (grad,) = te.gradient(topi.softmax(A), [A], tensor("H", 2, 4))
    assert not any("ties" in line for line in lines(grad))
    arrays, head = {"A": uniform((2, 4))}, uniform((2, 4), 1)
    y = np.exp(arrays["A"]) / np.exp(arrays["A"]).sum(1, keepdims=True)
    np.testing.assert_allclose(value(grad, {**arrays, "H": head}), y * (head - (head * y).sum(1, keepdims=True)))


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
