"""Linear algebra solvers: decompositions and triangular systems."""

from __future__ import annotations

import numpy as np

from examples.polybench.case import WIDTH, Array, Arrays, Case, Mistake, Pairs, Size, Tensor, as_vectors
from tensorlang import te
from tensorlang.errors import IllegalOrder, IllegalParallel
from tensorlang.schedule import Schedule


@te.hybrid.script
def cholesky(n: Size, A: Tensor) -> Tensor:
    """A = L L', with L in the place of A's lower triangle."""
    for i in range(n):
        for j in range(i):
            for k in range(j):
                A[i, j] -= A[i, k] * A[j, k]
            A[i, j] /= A[j, j]
        for k in range(i):
            A[i, i] -= A[i, k] * A[i, k]
        A[i, i] = te.sqrt(A[i, i])
    return A


@te.hybrid.script
def durbin(n: Size, r: Tensor) -> Tensor:
    """Solve the Yule-Walker equations: T y = -r, where T is Toeplitz with 1, r[0], r[1], ... in its first column."""
    y = te.output_tensor((n,), "float64")
    z = te.allocate((n,), "float64")
    alpha = 0.0
    beta = 1.0
    for k in range(n):
        beta = (1 - alpha * alpha) * beta
        total = 0.0
        for i in range(k):
            total += r[k - i - 1] * y[i]
        alpha = -(r[k] + total) / beta
        for i in range(k):
            z[i] = y[i] + alpha * y[k - i - 1]
        for i in range(k):
            y[i] = z[i]
        y[k] = alpha
    return y


@te.hybrid.script
def gramschmidt(m: Size, n: Size, A: Tensor) -> Tensor:
    """A = Q R, with orthonormal columns in Q and an upper triangle R; A is used up."""
    R = te.output_tensor((n, n), "float64")
    Q = te.output_tensor((m, n), "float64")
    for k in range(n):
        norm = 0.0
        for i in range(m):
            norm += A[i, k] * A[i, k]
        R[k, k] = te.sqrt(norm)
        for i in range(m):
            Q[i, k] = A[i, k] / R[k, k]
        for j in range(k + 1, n):
            R[k, j] = 0.0
            for i in range(m):
                R[k, j] += Q[i, k] * A[i, j]
            for i in range(m):
                A[i, j] = A[i, j] - Q[i, k] * R[k, j]
    return A, R, Q


@te.hybrid.script
def lu(n: Size, A: Tensor) -> Tensor:
    """A = L U, both in the place of A; the ones on the diagonal of L are not stored."""
    for i in range(n):
        for j in range(i):
            for k in range(j):
                A[i, j] -= A[i, k] * A[k, j]
            A[i, j] /= A[j, j]
        for j in range(i, n):
            for k in range(i):
                A[i, j] -= A[i, k] * A[k, j]
    return A


@te.hybrid.script
def ludcmp(n: Size, A: Tensor, b: Tensor) -> Tensor:
    """Solve A x = b: decompose A to L U, then forwards L y = b, then backwards U x = y."""
    x = te.output_tensor((n,), "float64")
    y = te.allocate((n,), "float64")
    for i in range(n):
        for j in range(i):
            w = A[i, j]
            for k in range(j):
                w -= A[i, k] * A[k, j]
            A[i, j] = w / A[j, j]
        for j in range(i, n):
            w = A[i, j]
            for k in range(i):
                w -= A[i, k] * A[k, j]
            A[i, j] = w
    for i in range(n):
        w = b[i]
        for j in range(i):
            w -= A[i, j] * y[j]
        y[i] = w
    for i in range(n - 1, -1, -1):
        w = y[i]
        for j in range(i + 1, n):
            w -= A[i, j] * x[j]
        x[i] = w / A[i, i]
    return A, x


@te.hybrid.script
def trisolv(n: Size, L: Tensor, b: Tensor) -> Tensor:
    """Solve L x = b, forwards."""
    x = te.output_tensor((n,), "float64")
    for i in range(n):
        x[i] = b[i]
        for j in range(i):
            x[i] -= L[i, j] * x[j]
        x[i] = x[i] / L[i, i]
    return x


def positive_definite(drawn: Arrays) -> Arrays:
    """A symmetric matrix of large eigenvalues."""
    A = drawn["A"]
    return {**drawn, "A": A @ A.T + len(A) * np.eye(len(A))}


def dominant(drawn: Arrays) -> Arrays:
    """A matrix whose diagonal outweighs its rows: no pivots are needed."""
    name = "L" if "L" in drawn else "A"
    square = drawn[name]
    return {**drawn, name: square + 2 * len(square) * np.eye(len(square))}


def correlated(drawn: Arrays) -> Arrays:
    """Small autocorrelations, for which the Toeplitz matrix is positive definite."""
    return {"r": drawn["r"] / (4 * len(drawn["r"]))}


def independent(drawn: Arrays) -> Arrays:
    """Columns that are far from each other."""
    A = drawn["A"]
    return {"A": A + 4 * np.eye(*A.shape)}


def _unit_lower(A: Array) -> Array:
    lower: Array = np.tril(A, -1) + np.eye(len(A))
    return lower


def cholesky_law(given: Arrays, got: Arrays) -> Pairs:
    """The factor times itself is the matrix; the upper triangle is left alone."""
    L = np.tril(got["A"])
    yield L @ L.T, given["A"]
    yield np.triu(got["A"], 1), np.triu(given["A"], 1)


def durbin_law(given: Arrays, got: Arrays) -> Pairs:
    """The solution solves the Toeplitz system."""
    r = given["r"]
    column = np.concatenate([[1.0], r[:-1]])
    rows = np.arange(len(r))
    yield column[np.abs(rows[:, None] - rows)] @ got["y"], -r


def gramschmidt_law(given: Arrays, got: Arrays) -> Pairs:
    """The factors multiply to the matrix, Q is orthonormal, R a triangle; the last column of A is what is left."""
    Q, R = got["Q"], got["R"]
    yield Q @ R, given["A"]
    yield Q.T @ Q, np.eye(Q.shape[1])
    yield got["A"], Q * np.diag(R)


def lu_law(given: Arrays, got: Arrays) -> Pairs:
    """The factors multiply to the matrix."""
    yield _unit_lower(got["A"]) @ np.triu(got["A"]), given["A"]


def ludcmp_law(given: Arrays, got: Arrays) -> Pairs:
    """The factors multiply to the matrix, and the solution solves."""
    yield _unit_lower(got["A"]) @ np.triu(got["A"]), given["A"]
    yield given["A"] @ got["x"], given["b"]


def trisolv_law(given: Arrays, got: Arrays) -> Pairs:
    """The solution solves; the upper triangle counts as zero."""
    yield np.tril(given["L"]) @ got["x"], given["b"]


def cholesky_schedule(s: Schedule) -> None:
    """The sums in blocks of four terms."""
    stage = s["cholesky"]
    for total in ("k", "k_1"):
        _, inner = stage.split(total, factor=4)
        stage.unroll(inner)


def durbin_schedule(s: Schedule) -> None:
    """The update of the solution by vectors."""
    stage = s["durbin"]
    as_vectors(stage, "i_1")
    as_vectors(stage, "i_2")


def gramschmidt_schedule(s: Schedule) -> None:
    """The later columns in parallel."""
    s["gramschmidt"].parallel("j")


def lu_schedule(s: Schedule) -> None:
    """A row of U in parallel, by vectors of columns."""
    stage = s["lu"]
    outer, inner = stage.split("j_1", factor=WIDTH)
    stage.reorder(outer, "k_1", inner)
    stage.parallel(outer)
    stage.vectorize(inner)


def ludcmp_schedule(s: Schedule) -> None:
    """A row of U in parallel."""
    s["ludcmp"].parallel("j_1")


def trisolv_schedule(s: Schedule) -> None:
    """The right hand side by vectors, then the sums in blocks of four terms."""
    stage = s["trisolv"]
    start, _ = stage.fission("i", after="S0")
    as_vectors(stage, start)
    _, inner = stage.split("j", factor=4)
    stage.unroll(inner)


CASES = (
    Case(
        name="cholesky",
        script=cholesky,
        shapes={"A": ("n", "n")},
        sizes={"n": 9},
        outputs=("A",),
        law=cholesky_law,
        schedule=cholesky_schedule,
        mistakes={
            "rows in parallel": Mistake(
                lambda s: s["cholesky"].parallel("i"), IllegalParallel, "flow", "A[0, 0]", (1,)
            ),
        },
        prepare=positive_definite,
    ),
    Case(
        name="durbin",
        script=durbin,
        shapes={"r": ("n",)},
        sizes={"n": 10},
        outputs=("y",),
        law=durbin_law,
        schedule=durbin_schedule,
        mistakes={
            "the new solution where the old one is still read": Mistake(
                lambda s: s["durbin"].fuse_with("i_1", "i_2"), IllegalOrder, "anti", "durbin[0]", (0,)
            ),
        },
        prepare=correlated,
    ),
    Case(
        name="gramschmidt",
        script=gramschmidt,
        shapes={"A": ("m", "n")},
        sizes={"m": 9, "n": 6},
        outputs=("A", "R", "Q"),
        law=gramschmidt_law,
        schedule=gramschmidt_schedule,
        mistakes={
            "columns in parallel": Mistake(
                lambda s: s["gramschmidt"].parallel("k"), IllegalParallel, "flow", "A[0, 1]", (1,)
            ),
        },
        prepare=independent,
    ),
    Case(
        name="lu",
        script=lu,
        shapes={"A": ("n", "n")},
        sizes={"n": 9},
        outputs=("A",),
        law=lu_law,
        schedule=lu_schedule,
        mistakes={
            "a row of L from right to left": Mistake(
                lambda s: s["lu"].reverse("j"), IllegalOrder, "flow", "A[2, 0]", (0, 1)
            ),
        },
        prepare=dominant,
    ),
    Case(
        name="ludcmp",
        script=ludcmp,
        shapes={"A": ("n", "n"), "b": ("n",)},
        sizes={"n": 9},
        outputs=("A", "x"),
        law=ludcmp_law,
        schedule=ludcmp_schedule,
        mistakes={
            "the forward substitution in parallel": Mistake(
                lambda s: s["ludcmp"].parallel("i_1"), IllegalParallel, "flow", "ludcmp.y[0]", (1,)
            ),
        },
        prepare=dominant,
    ),
    Case(
        name="trisolv",
        script=trisolv,
        shapes={"L": ("n", "n"), "b": ("n",)},
        sizes={"n": 11},
        outputs=("x",),
        law=trisolv_law,
        schedule=trisolv_schedule,
        mistakes={
            "backwards": Mistake(lambda s: s["trisolv"].reverse("i"), IllegalOrder, "flow", "trisolv[0]", (1,)),
        },
        prepare=dominant,
    ),
)
