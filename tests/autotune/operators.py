"""Operators of users, as files of theirs hold them."""

from __future__ import annotations

from typing import Any

from tensorlang import te
from tensorlang.te.hybrid import output_tensor


def max_of_min(m: int, n: int, k: int, dtype: str = "float32") -> list[te.Tensor]:
    """C[i, j] = max over k of min(A[i, k], B[k, j])."""
    A = te.placeholder((m, k), name="A", dtype=dtype)
    B = te.placeholder((k, n), name="B", dtype=dtype)
    r = te.reduce_axis((0, k), name="k")
    return [A, B, te.compute((m, n), lambda i, j: te.max(te.minimum(A[i, r], B[r, j]), axis=r), name="C")]


def times_transposed(m: int, n: int, k: int) -> list[te.Tensor]:
    """C[i, j] = sum over k of A[i, k] * B[j, k]."""
    A, B = te.placeholder((m, k), name="A"), te.placeholder((n, k), name="B")
    r = te.reduce_axis((0, k), name="k")
    return [A, B, te.compute((m, n), lambda i, j: te.sum(A[i, r] * B[j, r], axis=r), name="C")]


def convolve_and_clip(c: int, h: int, o: int) -> list[te.Tensor]:
    """A padded 3x3 convolution and a clipping at zero."""
    X, W = te.placeholder((c, h, h), name="X"), te.placeholder((o, c, 3, 3), name="W")

    def padded(q: te.Expr, y: te.Expr, x: te.Expr) -> te.Expr:
        return te.if_then_else(te.all(y >= 1, y <= h, x >= 1, x <= h), X[q, y - 1, x - 1], 0.0)

    P = te.compute((c, h + 2, h + 2), padded, name="P")
    q, dy, dx = (te.reduce_axis((0, n), name=name) for n, name in ((c, "q"), (3, "dy"), (3, "dx")))
    Y = te.compute(
        (o, h, h), lambda f, y, x: te.sum(P[q, y + dy, x + dx] * W[f, q, dy, dx], axis=[q, dy, dx]), name="Y"
    )
    return [X, W, te.compute((o, h, h), lambda f, y, x: te.maximum(Y[f, y, x], 0.0), name="R")]


def softmax(m: int, n: int) -> list[te.Tensor]:
    """Rows of exponentials that sum to one."""
    A = te.placeholder((m, n), name="A")
    k, q = te.reduce_axis((0, n), name="k"), te.reduce_axis((0, n), name="q")
    M = te.compute((m,), lambda i: te.max(A[i, k], axis=k), name="M")
    E = te.compute((m, n), lambda i, j: te.exp(A[i, j] - M[i]), name="E")
    S = te.compute((m,), lambda i: te.sum(E[i, q], axis=q), name="S")
    return [A, te.compute((m, n), lambda i, j: E[i, j] / S[i], name="O")]


def pool(c: int, h: int) -> list[te.Tensor]:
    """The largest of every two by two elements."""
    X = te.placeholder((c, 2 * h, 2 * h), name="X")
    dy, dx = te.reduce_axis((0, 2), name="dy"), te.reduce_axis((0, 2), name="dx")
    return [X, te.compute((c, h, h), lambda q, y, x: te.max(X[q, 2 * y + dy, 2 * x + dx], axis=[dy, dx]), name="Y")]


def channel_means(b: int, c: int, h: int) -> list[te.Tensor]:
    """The mean of each channel over images, whose rows lie side by side in memory."""
    X = te.placeholder((b, c, h, h), name="X")
    axes = [te.reduce_axis((0, n), name=name) for n, name in ((b, "q"), (h, "y"), (h, "x"))]
    q, y, x = axes
    S = te.compute((c,), lambda i: te.sum(X[q, i, y, x], axis=axes), name="S")
    return [X, te.compute((c,), lambda i: S[i] * (1.0 / (b * h * h)), name="M")]


def contraction(a: int, b: int, c: int, d: int, e: int, f: int) -> list[te.Tensor]:
    """Two tensors over two axes that they share."""
    A, B = te.placeholder((a, b, c, d), name="A"), te.placeholder((a, e, b, f), name="B")
    p, q = te.reduce_axis((0, a), name="p"), te.reduce_axis((0, b), name="q")
    C = te.compute((c, d, e, f), lambda i, j, k, n: te.sum(A[p, q, i, j] * B[p, k, q, n], axis=[p, q]), name="C")
    return [A, B, C]


def total(n: int) -> list[te.Tensor]:
    """The sum of all elements."""
    A, k = te.placeholder((n,), name="A"), te.reduce_axis((0, n), name="k")
    return [A, te.compute((), lambda: te.sum(A[k], axis=k), name="T")]


def rows_by_index(n: int, m: int, picks: int) -> list[te.Tensor]:
    """Rows of A, picked by an array of indices."""
    A, index = te.placeholder((n, m), name="A"), te.placeholder((picks,), dtype="int32", name="I")
    return [A, index, te.compute((picks, m), lambda i, j: A[index[i], j] * 2.0, name="G")]


def bags(n: int, m: int, count: int, picks: int) -> list[te.Tensor]:
    """Sums of rows of A, picked by an array of indices."""
    A, index = te.placeholder((n, m), name="A"), te.placeholder((count, picks), dtype="int32", name="I")
    p = te.reduce_axis((0, picks), name="p")
    return [A, index, te.compute((count, m), lambda i, j: te.sum(A[index[i, p], j], axis=p), name="G")]


def transpose(n: int, m: int) -> list[te.Tensor]:
    """A program that only moves data."""
    A = te.placeholder((n, m), name="A")
    return [A, te.compute((m, n), lambda i, j: A[j, i], name="T")]


def no_list(n: int) -> int:
    """Not a workload: it returns no tensors."""
    return n


def symbolic() -> list[te.Tensor]:
    """Sizes without numbers."""
    A = te.placeholder((te.var("n"),), name="A")
    return [A, te.compute(A.shape, lambda i: A[i] + 1.0, name="B")]


def forgets_an_input(n: int) -> list[te.Tensor]:
    """Returns its output alone."""
    A = te.placeholder((n,), name="A")
    return [te.compute((n,), lambda i: A[i] + 1.0, name="B")]


def fails(n: int) -> list[te.Tensor]:
    """A mistake of the user's own."""
    return [te.placeholder((n // 0,), name="A")]


def two_products(m: int, n: int, k: int, p: int) -> list[te.Tensor]:
    """(A B) C: two matrix products in a row."""
    A, B, C = te.placeholder((m, k), name="A"), te.placeholder((k, n), name="B"), te.placeholder((n, p), name="C")
    r, q = te.reduce_axis((0, k), name="r"), te.reduce_axis((0, n), name="q")
    D = te.compute((m, n), lambda i, j: te.sum(A[i, r] * B[r, j], axis=r), name="D")
    return [A, B, C, te.compute((m, p), lambda i, j: te.sum(D[i, q] * C[q, j], axis=q), name="E")]


@te.hybrid.script
def _smoothed(steps: Any, A: Any) -> Any:
    for t in range(steps):  # noqa: B007
        for i in range(1, A.shape[0] - 1):
            for j in range(1, A.shape[1] - 1):
                A[i, j] = (A[i - 1, j] + A[i, j - 1] + A[i, j] + A[i, j + 1] + A[i + 1, j]) * 0.2
    return A


@te.hybrid.script
def _to_and_fro(steps: Any, A: Any, B: Any) -> Any:
    for t in range(steps):  # noqa: B007
        for i in range(1, A.shape[0] - 1):
            B[i] = (A[i - 1] + A[i] + A[i + 1]) * 0.25
        for i in range(1, A.shape[0] - 1):
            A[i] = (B[i - 1] + B[i] + B[i + 1]) * 0.25
    return A, B


@te.hybrid.script
def _running(A: Any) -> Any:
    S = output_tensor(A.shape, "float32")
    for i in range(A.shape[0]):
        S[i, 0] = A[i, 0]
        for j in range(1, A.shape[1]):
            S[i, j] = S[i, j - 1] + A[i, j]
    return S


def running_sums(m: int, n: int) -> list[te.Tensor]:
    """Sums from the beginning of each row."""
    A = te.placeholder((m, n), name="A")
    return [A, _running(A)]


def smooth_in_place(n: int, steps: int) -> list[te.Tensor]:
    """A grid that is smoothed in place: ordered statements."""
    A = te.placeholder((n, n), name="A")
    return [A, _smoothed(steps, A)]


def smooth_to_and_fro(n: int, steps: int) -> list[te.Tensor]:
    """Two statements in each step, from one array to the other and back."""
    A, B = te.placeholder((n,), name="A"), te.placeholder((n,), name="B")
    return [A, B, *_to_and_fro(steps, A, B)]


def separable_filter(height: int, width: int) -> list[te.Tensor]:
    """Weighted sums of neighbours along rows, and then along columns, written out."""
    x = te.placeholder((height, width), name="x")
    along = te.compute(
        (height, width - 2), lambda i, j: x[i, j] * 0.25 + x[i, j + 1] * 0.5 + x[i, j + 2] * 0.25, "along"
    )
    y = te.compute(
        (height - 2, width - 2), lambda i, j: along[i, j] * 0.25 + along[i + 1, j] * 0.5 + along[i + 2, j] * 0.25, "y"
    )
    return [x, y]
