"""The NumPy reference equals plain NumPy, plain Python integers, and itself under any block size."""

from __future__ import annotations

import operator
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings

from tensorlang import dtypes, te
from tensorlang.errors import ArgumentError, KernelError
from tensorlang.ir.expr import Expr
from tensorlang.te import reference
from tensorlang.te.program import canonical
from tensorlang.te.reference import evaluate
from tensorlang.testing.strategies import ProgramCase, programs

INTEGERS = tuple(f"{kind}{bits}" for kind in ("int", "uint") for bits in (8, 16, 32, 64))
Array = npt.NDArray[Any]


def run(outputs: Any, *inputs: Array, **sizes: int) -> Array:
    """The first output of a program."""
    tensors = outputs if isinstance(outputs, tuple) else (outputs,)
    return next(iter(evaluate(canonical(tensors)[0], inputs, sizes).values()))


def wrap(value: int, dtype: str) -> int:
    """An exact integer in two's complement."""
    bits = dtypes.info(dtype).bits
    value %= 2**bits
    return value - 2**bits if dtypes.info(dtype).kind == "int" and value >= 2 ** (bits - 1) else value


def trunc_quotient(a: int, b: int) -> int:
    return abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)


ORACLE: dict[str, tuple[Callable[[Any, Any], Expr], Callable[[int, int, int], int]]] = {
    "add": (operator.add, lambda a, b, w: a + b),
    "sub": (operator.sub, lambda a, b, w: a - b),
    "mul": (operator.mul, lambda a, b, w: a * b),
    "floordiv": (te.floordiv, lambda a, b, w: a // b if b else 0),
    "floormod": (te.floormod, lambda a, b, w: a % b if b else 0),
    "truncdiv": (te.truncdiv, lambda a, b, w: trunc_quotient(a, b) if b else 0),
    "truncmod": (te.truncmod, lambda a, b, w: a - b * trunc_quotient(a, b) if b else 0),
    "min": (te.minimum, lambda a, b, w: min(a, b)),
    "max": (te.maximum, lambda a, b, w: max(a, b)),
    "and": (operator.and_, lambda a, b, w: a & b),
    "or": (operator.or_, lambda a, b, w: a | b),
    "xor": (operator.xor, lambda a, b, w: a ^ b),
    "shl": (operator.lshift, lambda a, b, w: a << b if 0 <= b < w else 0),
    "shr": (operator.rshift, lambda a, b, w: a >> (b if 0 <= b < w else w)),
}


@pytest.mark.parametrize("dtype", INTEGERS)
@pytest.mark.parametrize("name", ORACLE)
def test_integer_operators_equal_python_integers(name: str, dtype: str) -> None:
    build, oracle = ORACLE[name]
    low, high = (int(v) for v in dtypes.limits(dtype))
    wanted = (low, low + 1, -7, -3, -1, 0, 1, 2, 3, 5, 7, 8, 63, 64, 100, high // 2, high - 1, high)
    points = sorted({x for x in wanted if low <= x <= high})
    A, B = (te.placeholder((len(points),), dtype, name=n) for n in "AB")
    made = te.compute((len(points),) * 2, lambda i, j: build(A[i], B[j]), name="C")
    column = np.array(points, dtype)
    got = run(made, column, column)
    assert got.dtype == np.dtype(dtype)
    width = dtypes.info(dtype).bits
    for i, a in enumerate(points):
        assert got[i].tolist() == [wrap(oracle(a, b, width), dtype) for b in points], a


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
def test_float_operators_round_every_operation(dtype: str) -> None:
    element = dtypes.info(dtype).numpy
    x = np.array([1.0, 1.5, -2.25, 3.1, 100.7, 0.001, np.inf, np.nan]).astype(element)
    y = np.array([3.0, -0.3, 7.7, 0.1, -0.01, 5.5, 1.0, 2.0]).astype(element)
    A, B = (te.placeholder((8,), dtype, name=n) for n in "AB")
    parts = {
        "sum": lambda i: A[i] + B[i] * A[i],
        "quotient": lambda i: A[i] / B[i],
        "floor": lambda i: A[i] // B[i],
        "remainder": lambda i: te.truncmod(A[i], B[i]),
        "least": lambda i: te.minimum(A[i], B[i]),
        "chosen": lambda i: te.select(A[i] < B[i], -A[i], 1),
    }
    made = tuple(te.compute((8,), part, name=name) for name, part in parts.items())
    with np.errstate(all="ignore"):
        wanted = (x + (y * x), x / y, x // y, np.fmod(x, y), np.minimum(x, y), np.where(x < y, -x, element.type(1)))
    got = evaluate(canonical(made)[0], {"A": x, "B": y})
    for name, expected in zip(parts, wanted):
        assert got[name].dtype == element
        np.testing.assert_array_equal(got[name].astype(np.float64), expected.astype(np.float64), err_msg=name)


@pytest.mark.parametrize("source", list(dtypes.TABLE))
@pytest.mark.parametrize("target", list(dtypes.TABLE))
def test_casts_are_numpys(source: str, target: str) -> None:
    x = np.array([0, 1, 3, 7, 100]).astype(dtypes.info(source).numpy)
    A = te.placeholder((5,), source, name="A")
    got = run(te.compute((5,), lambda i: A[i].astype(target)), x)
    assert got.dtype == dtypes.info(target).numpy
    assert np.array_equal(got, x.astype(dtypes.info(target).numpy))


def test_bool_operators() -> None:
    A = te.placeholder((4,), "bool", name="A")
    x = np.array([True, False, True, False])
    made = te.compute((4,), lambda i: (A[i] & (i < 2), A[i] | (i == 3), A[i] ^ True, ~A[i], A[i] + A[i], -A[i]))
    program = canonical([made[0]])[0]
    got = [v.tolist() for v in evaluate(program, [x]).values()]
    assert got == [
        [True, False, False, False],
        [True, False, True, True],
        [False, True, False, True],
        [False, True, False, True],
        [2, 0, 2, 0],
        [-1, 0, -1, 0],
    ]


def test_matmul_with_odd_sizes() -> None:
    n = te.var("n")
    A, B = te.placeholder((n, 53), name="A"), te.placeholder((53, 61), name="B")
    k = te.reduce_axis((0, 53), "k")
    rng = np.random.default_rng(0)
    a, b = rng.standard_normal((37, 53), np.float32), rng.standard_normal((53, 61), np.float32)
    sums = te.compute((n, 61), lambda i, j: te.sum(A[i, k] * B[k, j], axis=k), name="C")
    np.testing.assert_allclose(run(sums, a, b), a.astype(np.float64) @ b, rtol=1e-5, atol=1e-5)
    bottleneck = te.compute((n, 61), lambda i, j: te.max(te.minimum(A[i, k], B[k, j]), axis=k), name="C")
    wanted = np.minimum(a[:, :, None], b[None]).max(axis=1)
    assert np.array_equal(run(bottleneck, a, b), wanted)


def test_padded_strided_convolution() -> None:
    rng = np.random.default_rng(1)
    image, weights = (
        rng.integers(-4, 5, (3, 9, 9)).astype("float32"),
        rng.integers(-4, 5, (2, 3, 3, 3)).astype("float32"),
    )
    X, W = te.placeholder((3, 9, 9), name="X"), te.placeholder((2, 3, 3, 3), name="W")

    def padded(c: Expr, y: Expr, x: Expr) -> Expr:
        inside = te.all(y >= 1, y < 10, x >= 1, x < 10)
        return te.if_then_else(inside, X[c, y - 1, x - 1], 0)

    P = te.compute((3, 11, 11), padded, name="P")
    c, r, s = te.reduce_axis((0, 3), "c"), te.reduce_axis((0, 3), "r"), te.reduce_axis((0, 3), "s")
    Y = te.compute(
        (2, 5, 5), lambda o, y, x: te.sum(P[c, 2 * y + r, 2 * x + s] * W[o, c, r, s], axis=[c, r, s]), name="Y"
    )
    full = np.pad(image, ((0, 0), (1, 1), (1, 1)))
    windows = np.lib.stride_tricks.sliding_window_view(full, (3, 3), axis=(1, 2))[:, ::2, ::2]
    assert np.array_equal(run(Y, image, weights), np.einsum("cyxrs,ocrs->oyx", windows, weights))


def test_argmax_takes_the_first_of_equals() -> None:
    argmax = te.comm_reducer(
        lambda x, y: (te.select(x[1] >= y[1], x[0], y[0]), te.select(x[1] >= y[1], x[1], y[1])),
        lambda t0, t1: (te.const(-1, t0), te.min_value(t1)),
        name="argmax",
    )
    A = te.placeholder((5, 101), "int32", name="A")
    k = te.reduce_axis((0, 101), "k")
    index, _ = te.compute((5,), lambda i: argmax((k, A[i, k]), axis=k), name="T")
    a = np.random.default_rng(2).integers(0, 4, (5, 101)).astype("int32")
    got = evaluate(canonical([index])[0], [a])
    assert np.array_equal(got["T.v0"], a.argmax(axis=1)) and np.array_equal(got["T.v1"], a.max(axis=1))


def test_where_and_init_of_a_reduction() -> None:
    A = te.placeholder((6, 7), "int32", name="A")
    S = te.placeholder((6,), "int32", name="S")
    k = te.reduce_axis((2, 7), "k")
    made = te.compute((6,), lambda i: te.sum(A[i, k], axis=k, where=k > i, init=S[i]), name="T")
    a, s = np.arange(42, dtype="int32").reshape(6, 7), np.arange(6, dtype="int32") * 100
    columns = np.arange(7)
    keep = (columns >= 2) & (columns > np.arange(6)[:, None])
    assert np.array_equal(run(made, a, s), s + (a * keep).sum(axis=1))


def test_where_guards_the_reads_of_a_reduction() -> None:
    A = te.placeholder((4,), "int32", name="A")
    k = te.reduce_axis((-1, 2), "k")
    made = te.compute((4,), lambda i: te.max(A[i + k], axis=k, where=te.all(i + k >= 0, i + k < 4)), name="T")
    assert run(made, np.array([3, 1, 2, 9], "int32")).tolist() == [3, 3, 9, 9]


@pytest.mark.parametrize(("name", "wanted"), [("sum", 0.0), ("prod", 1.0), ("max", -np.inf), ("min", np.inf)])
def test_empty_reductions_give_the_identity(name: str, wanted: float) -> None:
    A = te.placeholder((3, 0), name="A")
    k = te.reduce_axis((0, 0), "k")
    assert (
        run(te.compute((3,), lambda i: getattr(te, name)(A[i, k], axis=k)), np.zeros((3, 0), "f")).tolist()
        == [wanted] * 3
    )


def test_logical_reductions() -> None:
    A = te.placeholder((3, 4), "bool", name="A")
    k = te.reduce_axis((0, 4), "k")
    a = np.array([[1, 1, 1, 1], [0, 0, 1, 0], [0, 0, 0, 0]], bool)
    assert run(te.compute((3,), lambda i: te.all(A[i, k], axis=k)), a).tolist() == [True, False, False]
    assert run(te.compute((3,), lambda i: te.any(A[i, k], axis=k)), a).tolist() == [True, True, False]
    assert run(te.compute((3,), lambda i: te.sum(A[i, k], axis=k)), a).tolist() == [4, 1, 0]


def test_maximum_propagates_nan() -> None:
    A = te.placeholder((3,), name="A")
    k = te.reduce_axis((0, 3), "k")
    assert np.isnan(run(te.compute((), lambda: te.max(A[k], axis=k)), np.array([1, np.nan, 2], "f")))


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float32", "int8", "uint16"])
def test_long_sums(dtype: str) -> None:
    x = np.random.default_rng(3).integers(0, 5, 5000).astype(dtypes.info(dtype).numpy)
    A = te.placeholder((5000,), dtype, name="A")
    k = te.reduce_axis((0, 5000), "k")
    got = run(te.compute((), lambda: te.sum(A[k], axis=k)), x)
    if dtypes.info(dtype).is_float:
        assert got == x.astype(np.float64).sum().astype(x.dtype)
    else:
        assert int(got) == wrap(int(x.astype(np.int64).sum()), dtype)


def test_gather_and_its_bounds() -> None:
    A, N = te.placeholder((5,), name="A"), te.placeholder((3,), "int32", name="N")
    made = te.compute((3,), lambda i: A[N[i]], name="G")
    a = np.arange(5, dtype="f")
    assert run(made, a, np.array([4, 0, 2], "int32")).tolist() == [4, 0, 2]
    with pytest.raises(KernelError, match=r"A\[N\[i\]\] reads index 5 of dimension 0 of A, of 5"):
        run(made, a, np.array([4, 5, 2], "int32"))
    with pytest.raises(KernelError, match=r"reads index -1"):
        run(made, a, np.array([4, -1, 2], "int32"))


def test_guarded_reads_of_an_empty_array() -> None:
    A = te.placeholder((0,), "int32", name="A")
    made = te.compute((3,), lambda i: te.if_then_else(i < 0, A[i], 7))
    assert run(made, np.zeros(0, "int32")).tolist() == [7, 7, 7]


def test_rank_zero_and_zero_extents() -> None:
    n = te.var("n")
    A = te.placeholder((), name="A")
    B = te.placeholder((n, 3), name="B")
    assert run(te.compute((), lambda: A() * 2), np.array(3, "f")) == 6
    assert run(te.compute((n, 3), lambda i, j: B[i, j] + A()), np.zeros((0, 3), "f"), np.array(1, "f")).shape == (0, 3)


def test_symbolic_sizes_are_values() -> None:
    n = te.var("n")
    A = te.placeholder((n,), "int32", name="A")
    made = te.compute((n * 2 + 1,), lambda i: A[i // 2 % n] + n, name="B")
    assert run(made, np.array([1, 2], "int32")).tolist() == [3, 3, 4, 4, 3]


def test_sizes_that_no_shape_gives_are_asked_for() -> None:
    n = te.var("n")
    made = te.compute((n,), lambda i: i * i, name="B")
    program = canonical([made])[0]
    assert evaluate(program, [], {"n": 4})["B"].tolist() == [0, 1, 4, 9]
    with pytest.raises(ArgumentError, match=r"no input shape gives n; pass sizes=\{'n': ...\}"):
        evaluate(program, [])


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        ([], r"takes A: float32\[n, n\], B: float32\[4\]; got 0 arrays"),
        ([np.zeros((4, 4), "f")], r"got 1 arrays"),
        ([np.zeros((4, 4)), np.zeros(4, "f")], r"A: float32\[n, n\] got an array of float64\[4, 4\]"),
        ([np.zeros(4, "f"), np.zeros(4, "f")], r"got an array of float32\[4\]"),
        ([np.zeros((4, 5), "f"), np.zeros(4, "f")], r"A: float32\[n, n\] has shape \(4, 4\) here, got \(4, 5\)"),
        ([np.zeros((4, 4), "f"), np.zeros(5, "f")], r"B: float32\[4\] has shape \(4,\) here, got \(5,\)"),
    ],
)
def test_inputs_that_do_not_fit(inputs: list[Array], message: str) -> None:
    n = te.var("n")
    A, B = te.placeholder((n, n), name="A"), te.placeholder((4,), name="B")
    program = canonical([te.compute((n,), lambda i: A[i, i] + B[i % 4])])[0]
    with pytest.raises(ArgumentError, match=message):
        evaluate(program, inputs)


def test_where_of_an_operation_leaves_zeros() -> None:
    A = te.placeholder((4,), "int32", name="A")
    program = canonical([te.compute((6,), lambda i: A[i] + 1, name="B")])[0]
    op = program["B"]
    assert isinstance(op, te.ComputeOp)
    padded = program.replacing({"B": replace(op, where=(op.axes[0] < 4,))})
    assert evaluate(padded, [np.arange(4, dtype="int32")])["B"].tolist() == [1, 2, 3, 4, 0, 0]


def test_bfloat16_arrays_keep_their_dtype() -> None:
    A = te.placeholder((4,), "bfloat16", name="A")
    x = np.array([1, 2, 3, 4], ml_dtypes.bfloat16)
    got = run(te.compute((4,), lambda i: te.exp(A[i]) + 1), x)
    assert got.dtype == ml_dtypes.bfloat16
    rounded = np.exp(x.astype("f")).astype(ml_dtypes.bfloat16) + ml_dtypes.bfloat16(1)
    assert np.array_equal(got, rounded)


@settings(max_examples=60)
@given(programs())
def test_blocks_do_not_change_values(case: ProgramCase) -> None:
    whole = case.expected()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(reference, "_BLOCK", 4)
        cut = case.expected()
    for a, b in zip(whole, cut):
        assert np.array_equal(a, b)


def test_blocks_cut_in_order() -> None:
    box = [(0, 3), (5, 7), (0, 2)]
    points = [
        (i, j, k)
        for block in reference.blocks(box, 6)
        for i in range(block[0][0], sum(block[0]))
        for j in range(block[1][0], sum(block[1]))
        for k in range(block[2][0], sum(block[2]))
    ]
    assert points == [(i, j, k) for i in range(3) for j in range(5, 12) for k in range(2)]
    assert all(np.prod([n for _, n in block]) <= 6 for block in reference.blocks(box, 6))
    assert list(reference.blocks([(0, 0), (0, 4)], 6)) == []
    assert list(reference.blocks([], 6)) == [[]]
