"""te.recurrence: what it declares, what it means, and what it refuses."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import numpy as np
import pytest

from tensorlang import te
from tensorlang.errors import DefinitionError
from tensorlang.te.program import canonical
from tensorlang.te.reference import evaluate
from tensorlang.testing import check_schedule


def run(outputs: Any, *inputs: Any, **sizes: int) -> list[Any]:
    """The reference of a program."""
    program, _ = canonical(outputs)
    return list(evaluate(program, list(inputs), sizes).values())


def checked(outputs: Any, args: Any, inputs: Any = None, **sizes: int) -> None:
    """Both targets agree with the reference under the default schedule."""
    check_schedule(te.create_schedule([o.op for o in outputs]), args, sizes=sizes, inputs=inputs)


def prefix(n: Any) -> tuple[Any, Any]:
    """A, and the sums of all its beginnings."""
    A = te.placeholder((n,), name="A")
    return A, te.recurrence((n,), lambda self, i: te.if_then_else(i > 0, self[i - 1] + A[i], A[i]), name="prefix")


@pytest.mark.parametrize("n", [0, 1, 7])
def test_prefix_sum(n: int) -> None:
    A, P = prefix(te.var("n"))
    data = np.arange(n, dtype="float32")
    np.testing.assert_array_equal(run([P], data)[0], np.cumsum(data))
    checked([P], [A, P], n=n)


def test_prefix_sum_as_text() -> None:
    assert canonical([prefix(te.var("n"))[1]])[0].text == (
        "input A: float32[n]\n"
        "hybrid prefix: float32[n]:\n"
        "  for i in range(n):\n"
        "    prefix[i] = select(i > 0, prefix[i - 1] + A[i], A[i])\n"
        "return prefix\n"
    )


def test_filter_of_order_two() -> None:
    X = te.placeholder((40,), "float64", name="X")

    def step(self: Any, i: Any) -> Any:
        first = te.if_then_else(i > 0, 0.5 * self[i - 1], 0.0)
        second = te.if_then_else(i > 1, -0.25 * self[i - 2], 0.0)
        return X[i] + first + second

    Y = te.recurrence((40,), step, name="Y")
    assert Y.dtype == "float64"
    x = np.random.default_rng(0).standard_normal(40)
    want = np.zeros(40)
    for i in range(40):
        want[i] = x[i] + (0.5 * want[i - 1] if i > 0 else 0) - (0.25 * want[i - 2] if i > 1 else 0)
    np.testing.assert_allclose(run([Y], x)[0], want, rtol=1e-12)
    checked([Y], [X, Y], {"X": x})


def smith_waterman(m: Any, n: Any) -> tuple[Any, Any, Any]:
    """Two texts, and the scores of their local alignments (match 2, mismatch -1, gap -1)."""
    P, Q = te.placeholder((m,), "int32", name="P"), te.placeholder((n,), "int32", name="Q")

    def score(self: Any, i: Any, j: Any) -> Any:
        fit = te.if_then_else(P[i] == Q[j], 2, -1)
        corner = te.if_then_else(te.all(i > 0, j > 0), self[i - 1, j - 1], 0) + fit
        up = te.if_then_else(i > 0, self[i - 1, j], 0) - 1
        left = te.if_then_else(j > 0, self[i, j - 1], 0) - 1
        return te.max(te.max(corner, up), te.max(left, 0))

    return P, Q, te.recurrence((m, n), score, name="H")


def aligned(p: Any, q: Any) -> Any:
    """The scores in NumPy, with a border of zeros."""
    H = np.zeros((len(p) + 1, len(q) + 1), "int32")
    for i, a in enumerate(p, 1):
        for j, b in enumerate(q, 1):
            H[i, j] = max(H[i - 1, j - 1] + (2 if a == b else -1), H[i - 1, j] - 1, H[i, j - 1] - 1, 0)
    return H[1:, 1:]


def test_smith_waterman() -> None:
    P, Q, H = smith_waterman(te.var("m"), te.var("n"))
    assert H.dtype == "int32"
    p, q = (np.random.default_rng(s).integers(0, 4, n).astype("int32") for s, n in ((0, 12), (1, 9)))
    np.testing.assert_array_equal(run([H], p, q)[0], aligned(p, q))
    checked([H], [P, Q, H], {"P": p, "Q": q}, m=12, n=9)


def lstm(steps: Any, batch: int, hidden: int) -> tuple[list[Any], Any, Any]:
    """Inputs, and the output and the cell of an LSTM over time, each element from those of the time before."""
    X = te.placeholder((steps, batch, 4, hidden), name="X")
    W = te.placeholder((4, hidden, hidden), name="W")
    k = te.reduce_axis((0, hidden), "k")

    def cell(self: Any, t: Any, b: Any, j: Any) -> Any:
        h, c = self

        def gate(g: int) -> Any:
            state = te.if_then_else(t > 0, te.sum(h[t - 1, b, k] * W[g, j, k], axis=k), 0.0)
            return X[t, b, g, j] + state

        kept = te.if_then_else(t > 0, te.sigmoid(gate(2)) * c[t - 1, b, j], 0.0)
        new = kept + te.sigmoid(gate(0)) * te.tanh(gate(1))
        return te.sigmoid(gate(3)) * te.tanh(new), new

    h, c = te.recurrence((steps, batch, hidden), cell, name="lstm", dtype=["float32", "float32"])
    return [X, W], h, c


def lstm_by_numpy(x: Any, w: Any) -> tuple[Any, Any]:
    """The same by matrix products."""
    outputs, cells = [], []
    h = c = np.zeros(x.shape[1::2])
    for step in x.astype("float64"):
        gates = step + np.einsum("bk,gjk->bgj", h, w)
        inside, forget, out = (1 / (1 + np.exp(-gates[:, g])) for g in (0, 2, 3))
        c = forget * c + inside * np.tanh(gates[:, 1])
        h = out * np.tanh(c)
        outputs.append(h)
        cells.append(c)
    return np.array(outputs), np.array(cells)


def test_lstm_over_time() -> None:
    inputs, h, c = lstm(te.var("n"), 2, 5)
    rng = np.random.default_rng(0)
    x, w = rng.standard_normal((6, 2, 4, 5)).astype("float32"), rng.standard_normal((4, 5, 5)).astype("float32")
    program, _ = canonical([h])
    got_h, got_c = evaluate(program, {"X": x, "W": w}).values()
    want_h, want_c = lstm_by_numpy(x, w)
    np.testing.assert_allclose(got_h, want_h, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(got_c, want_c, rtol=1e-4, atol=1e-5)
    checked([h], [*inputs, h, c], {"X": x, "W": w}, n=6)


def test_triangular_solve_reduces_over_earlier_elements() -> None:
    """The range of the reduction ends at the element that is computed."""
    n = te.var("n")
    L, b = te.placeholder((n, n), "float64", name="L"), te.placeholder((n,), "float64", name="b")
    k = te.reduce_axis((0, n), "k")
    X = te.recurrence((n,), lambda self, i: (b[i] - te.sum(L[i, k] * self[k], axis=k, where=k < i)) / L[i, i], name="X")
    rng = np.random.default_rng(0)
    lower, right = np.tril(rng.standard_normal((6, 6))) + 4 * np.eye(6), rng.standard_normal(6)
    program, _ = canonical([X])
    (got,) = evaluate(program, {"L": lower, "b": right}).values()
    np.testing.assert_allclose(lower @ got, right, rtol=1e-9)
    checked([X], [L, b, X], {"L": lower, "b": right}, n=6)


def test_reductions_under_a_condition_on_data() -> None:
    """What is read only where a condition holds is read nowhere else, in a reduction, too; a shared one runs once."""
    A = te.placeholder((6,), "int32", name="A")
    k, q = te.reduce_axis((0, 6), "k"), te.reduce_axis((0, 6), "k")

    def element(self: Any, i: Any) -> Any:
        total = te.sum(self[k], axis=k, where=te.all(k < i, A[k] > 0))
        far = te.max(self[i - 1] - A[q], axis=q)
        return te.if_then_else(A[i] < 0, total * total, te.if_then_else(i > 0, far, A[i]))

    R = te.recurrence((6,), element, name="R")
    program, _ = canonical([R])
    assert program.text.count("allocate") == 2 and "for k_1 in range(6)" in program.text
    a = np.array([2, -1, 3, -2, 1, -3], "int32")
    want: list[int] = []
    for i in range(6):
        total = sum(want[j] for j in range(i) if a[j] > 0)
        want.append(total * total if a[i] < 0 else int(max(want[i - 1] - a)) if i else int(a[i]))
    assert list(run([R], a)[0]) == want
    checked([R], [A, R], {"A": a})


def test_a_scalar_and_two_outputs_in_order() -> None:
    """The second element of a point may use the first one of the same point."""
    A = te.placeholder((5,), "int32", name="A")

    def both(self: Any, i: Any) -> Any:
        low, _ = self
        return te.if_then_else(i > 0, te.min(low[te.max(i - 1, 0)], A[i]), A[i]), low[i] == A[i]

    low, seen = te.recurrence((5,), both, name="R", dtype=["int32", "bool"])
    a = np.array([4, 2, 3, 1, 2], "int32")
    got_low, got_seen = run([low], a)
    assert (list(got_low), list(got_seen)) == ([4, 2, 2, 1, 1], [True, True, False, True, False])
    checked([low], [A, low, seen], {"A": a})
    alone = te.recurrence((), lambda self: A[0] + 1, name="alone")
    assert int(run([alone], a)[0]) == 5


@pytest.mark.parametrize(
    ("body", "dtype"),
    [
        (lambda A, U, self, i: te.if_then_else(i > 0, self[i - 1], A[i]), "float64"),
        (lambda A, U, self, i: te.if_then_else(i > 0, self[i - 1] + U[i], U[i]), "uint8"),
        (lambda A, U, self, i: te.if_then_else(i > 0, self[i - 1] * U[i], A[i]), "float64"),
        (lambda A, U, self, i: te.if_then_else(i > 0, self[i - 1] ^ (U[i] > 3), U[i] > 1), "bool"),
        (lambda A, U, self, i: te.if_then_else(i > 0, self[i - 1] * 2, 1), "float32"),
        (lambda A, U, self, i: te.if_then_else(i > 0, self[i - 1] + i, 0), "int32"),
        (lambda A, U, self, i: te.if_then_else(i > 0, self[i - 1] + U[i].astype("int16"), 0), "int16"),
    ],
)
def test_dtypes_follow_from_the_body(body: Callable[..., Any], dtype: str) -> None:
    A, U = te.placeholder((4,), "float64", name="A"), te.placeholder((4,), "uint8", name="U")
    R = te.recurrence((4,), lambda self, i: body(A, U, self, i))
    assert R.dtype == dtype
    checked([R], [*R.op.input_tensors, R])


def test_the_tensor_under_definition_has_a_shape() -> None:
    A = te.placeholder((4, 3), name="A")

    def element(self: Any, i: Any, j: Any) -> Any:
        assert (self.ndim, [int(e.value) for e in self.shape], self.dtype) == (2, [4, 3], "float32")
        return te.if_then_else(i > 0, self(i - 1, j), A[i, j])

    R = te.recurrence((4, 3), element, name="R", tag="first", attrs={"who": "me"})
    assert (R.op.tag, R.op.attrs, [str(a) for a in R.op.axis]) == ("first", {"who": "me"}, ["i", "j"])


def test_what_reads_no_earlier_element_is_a_compute_in_order() -> None:
    A = te.placeholder((3, 4), name="A")
    R = te.recurrence((3, 4), lambda self, *index: A(*index) * 2, name="R")
    B = te.compute((3, 4), lambda i, j: R[i, j] + 1, name="B")
    assert [str(a) for a in R.op.axis] == ["i0", "i1"]
    checked([B], [A, B])


A = te.placeholder((8,), name="A")
K = te.reduce_axis((0, 8), "k")
WRONG: dict[str, tuple[Callable[[], Any], str]] = {
    "no function": (lambda: te.recurrence((8,), cast(Any, 3)), "recurrence needs a function from itself and indices"),
    "indices": (
        lambda: te.recurrence((8,), lambda self, i, j: A[i]),
        r"has 1 dimensions, but its function takes 2 indices \(i, j\)",
    ),
    "rank": (lambda: te.recurrence((8,), lambda self, i: self[i, i], dtype="int32"), "1 dimensions, indexed with 2"),
    "dtype": (
        lambda: te.recurrence((8,), lambda self, i: self[i] + A[i], dtype="int32"),
        "recurrence computes float32, and its dtype is int32; cast the result",
    ),
    "no dtype": (
        lambda: te.recurrence((8,), lambda self, i: A[i] if self.dtype == "int32" else te.cast(A[i], "int32")),
        r"the dtype of recurrence does not follow from its body .*; give dtype=",
    ),
    "several": (
        lambda: te.recurrence((8,), lambda self, i: (A[i], A[i]), dtype="float32"),
        r"computes 2 elements for 1 tensors; list the dtype of each tensor in dtype=\[",
    ),
    "unknown": (
        lambda: te.recurrence((8,), lambda self, i: A[i] + te.var("n") + K),
        "recurrence uses k, n, which is neither an axis of it, nor a reduce axis of a reduction around that use",
    ),
    "axis of a size": (
        lambda: te.recurrence((te.var("i"),), lambda self, i: A[i]),
        "axis i of recurrence has the name of a size",
    ),
    "tuples": (
        lambda: te.recurrence(
            (8,),
            lambda self, i: te.comm_reducer(lambda x, y: (x[0] + y[0], x[1]), lambda a, b: (0.0, 0.0), "two")(
                (A[K], A[K]), axis=K
            )[0],
        ),
        r"recurrence reduces tuples \(two\)",
    ),
    "result": (lambda: te.recurrence((8,), lambda self, i: "x", dtype="int32"), "expected a number or an expression"),
}  # fmt: skip


@pytest.mark.parametrize("case", WRONG)
def test_wrong_recurrences_are_refused(case: str) -> None:
    make, text = WRONG[case]
    with pytest.raises(DefinitionError, match=text):
        make()
