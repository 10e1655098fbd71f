"""Linear algebra, BLAS: products of matrices and vectors, dense, symmetric and triangular."""

from __future__ import annotations

import numpy as np

from examples.polybench.case import WIDTH, Arrays, Case, Mistake, Pairs, Scalar, Size, Tensor, as_vectors
from tensorlang import te
from tensorlang.errors import IllegalOrder, IllegalParallel
from tensorlang.schedule import Schedule


@te.hybrid.script
def gemm(ni: Size, nj: Size, nk: Size, alpha: Scalar, beta: Scalar, C: Tensor, A: Tensor, B: Tensor) -> Tensor:
    """C = alpha A B + beta C."""
    for i in range(ni):
        for j in range(nj):
            C[i, j] *= beta
        for k in range(nk):
            for j in range(nj):
                C[i, j] += alpha * A[i, k] * B[k, j]
    return C


@te.hybrid.script
def gemver(
    n: Size,
    alpha: Scalar,
    beta: Scalar,
    A: Tensor,
    u1: Tensor,
    v1: Tensor,
    u2: Tensor,
    v2: Tensor,
    w: Tensor,
    x: Tensor,
    y: Tensor,
    z: Tensor,
) -> Tensor:
    """A = A + u1 v1' + u2 v2'; x = x + beta A' y + z; w = w + alpha A x."""
    for i in range(n):
        for j in range(n):
            A[i, j] = A[i, j] + u1[i] * v1[j] + u2[i] * v2[j]
    for i in range(n):
        for j in range(n):
            x[i] = x[i] + beta * A[j, i] * y[j]
    for i in range(n):
        x[i] = x[i] + z[i]
    for i in range(n):
        for j in range(n):
            w[i] = w[i] + alpha * A[i, j] * x[j]
    return A, w, x


@te.hybrid.script
def gesummv(n: Size, alpha: Scalar, beta: Scalar, A: Tensor, B: Tensor, x: Tensor) -> Tensor:
    """y = alpha A x + beta B x."""
    tmp = te.allocate((n,), "float64")
    y = te.output_tensor((n,), "float64")
    for i in range(n):
        tmp[i] = 0.0
        y[i] = 0.0
        for j in range(n):
            tmp[i] = A[i, j] * x[j] + tmp[i]
            y[i] = B[i, j] * x[j] + y[i]
        y[i] = alpha * tmp[i] + beta * y[i]
    return y


@te.hybrid.script
def symm(m: Size, n: Size, alpha: Scalar, beta: Scalar, C: Tensor, A: Tensor, B: Tensor) -> Tensor:
    """C = alpha A B + beta C, where A is symmetric and only its lower triangle is read."""
    for i in range(m):
        for j in range(n):
            total = 0.0
            for k in range(i):
                C[k, j] += alpha * B[i, j] * A[i, k]
                total += B[k, j] * A[i, k]
            C[i, j] = beta * C[i, j] + alpha * B[i, j] * A[i, i] + alpha * total
    return C


@te.hybrid.script
def syr2k(n: Size, m: Size, alpha: Scalar, beta: Scalar, C: Tensor, A: Tensor, B: Tensor) -> Tensor:
    """C = alpha A B' + alpha B A' + beta C, lower triangle."""
    for i in range(n):
        for j in range(i + 1):
            C[i, j] *= beta
        for k in range(m):
            for j in range(i + 1):
                C[i, j] += A[j, k] * alpha * B[i, k] + B[j, k] * alpha * A[i, k]
    return C


@te.hybrid.script
def syrk(n: Size, m: Size, alpha: Scalar, beta: Scalar, C: Tensor, A: Tensor) -> Tensor:
    """C = alpha A A' + beta C, lower triangle."""
    for i in range(n):
        for j in range(i + 1):
            C[i, j] *= beta
        for k in range(m):
            for j in range(i + 1):
                C[i, j] += alpha * A[i, k] * A[j, k]
    return C


@te.hybrid.script
def trmm(m: Size, n: Size, alpha: Scalar, A: Tensor, B: Tensor) -> Tensor:
    """B = alpha A' B, where A is lower triangular with ones on its diagonal."""
    for i in range(m):
        for j in range(n):
            for k in range(i + 1, m):
                B[i, j] += A[k, i] * B[k, j]
            B[i, j] = alpha * B[i, j]
    return B


ALPHA, BETA = 1.5, 1.2
_SCALARS = {"alpha": ALPHA, "beta": BETA}


def gemm_law(given: Arrays, got: Arrays) -> Pairs:
    """One matrix product."""
    yield got["C"], ALPHA * given["A"] @ given["B"] + BETA * given["C"]


def gemver_law(given: Arrays, got: Arrays) -> Pairs:
    """Outer products, and products with vectors."""
    A = given["A"] + np.outer(given["u1"], given["v1"]) + np.outer(given["u2"], given["v2"])
    x = given["x"] + BETA * A.T @ given["y"] + given["z"]
    yield got["A"], A
    yield got["x"], x
    yield got["w"], given["w"] + ALPHA * A @ x


def gesummv_law(given: Arrays, got: Arrays) -> Pairs:
    """One product with a sum of matrices."""
    yield got["y"], (ALPHA * given["A"] + BETA * given["B"]) @ given["x"]


def symm_law(given: Arrays, got: Arrays) -> Pairs:
    """A product with the full symmetric matrix."""
    full = np.tril(given["A"]) + np.tril(given["A"], -1).T
    yield got["C"], ALPHA * full @ given["B"] + BETA * given["C"]


def syr2k_law(given: Arrays, got: Arrays) -> Pairs:
    """Two full products, cut to the lower triangle."""
    product = given["A"] @ given["B"].T
    full = ALPHA * (product + product.T) + BETA * given["C"]
    yield got["C"], np.tril(full) + np.triu(given["C"], 1)


def syrk_law(given: Arrays, got: Arrays) -> Pairs:
    """A full product, cut to the lower triangle."""
    full = ALPHA * given["A"] @ given["A"].T + BETA * given["C"]
    yield got["C"], np.tril(full) + np.triu(given["C"], 1)


def trmm_law(given: Arrays, got: Arrays) -> Pairs:
    """A product with the triangle written out."""
    yield got["B"], ALPHA * (np.tril(given["A"], -1) + np.eye(len(given["A"]))).T @ given["B"]


def gemm_schedule(s: Schedule) -> None:
    """The product in tiles of the result, in registers along k, rows of tiles in parallel."""
    stage = s["gemm"]
    scaled, product = stage.fission("i")
    stage.parallel(scaled)
    as_vectors(stage, "j")
    rows, row = stage.split(product, factor=4)
    columns, column = stage.split("j_1", factor=WIDTH)
    stage.reorder(rows, columns, "k", row, column)
    stage.parallel(rows)
    stage.unroll(row)
    stage.vectorize(column)


def gemver_schedule(s: Schedule) -> None:
    """Rows in parallel; the product with the transpose runs along the rows of A."""
    stage = s["gemver"]
    stage.parallel("i")
    as_vectors(stage, "j")
    stage.reorder("j_1", "i_1")
    as_vectors(stage, "i_1")
    stage.parallel("i_3")


def gesummv_schedule(s: Schedule) -> None:
    """Rows in parallel."""
    s["gesummv"].parallel("i")


def symm_schedule(s: Schedule) -> None:
    """Columns in parallel, each from top to bottom."""
    stage = s["symm"]
    stage.reorder("j", "i")
    stage.parallel("j")


def syr2k_schedule(s: Schedule) -> None:
    """Rows in parallel, columns as vectors."""
    stage = s["syr2k"]
    stage.parallel("i")
    as_vectors(stage, "j_1")


def syrk_schedule(s: Schedule) -> None:
    """Rows in parallel, columns as vectors."""
    stage = s["syrk"]
    stage.parallel("i")
    as_vectors(stage, "j_1")


def trmm_schedule(s: Schedule) -> None:
    """Vectors of columns in parallel, each from top to bottom."""
    stage = s["trmm"]
    outer, inner = stage.split("j", factor=WIDTH)
    stage.reorder(outer, "i", inner)
    stage.parallel(outer)


CASES = (
    Case(
        name="gemm",
        script=gemm,
        shapes={"C": ("ni", "nj"), "A": ("ni", "nk"), "B": ("nk", "nj")},
        sizes={"ni": 9, "nj": 10, "nk": 7},
        outputs=("C",),
        law=gemm_law,
        schedule=gemm_schedule,
        mistakes={
            "the terms of a sum at once": Mistake(
                lambda s: s["gemm"].parallel("k"), IllegalParallel, "reduction", "C[0, 0]", (0, 1, 0)
            ),
        },
        scalars=_SCALARS,
    ),
    Case(
        name="gemver",
        script=gemver,
        shapes={"A": ("n", "n"), **dict.fromkeys(("u1", "v1", "u2", "v2", "w", "x", "y", "z"), ("n",))},
        sizes={"n": 11},
        outputs=("A", "w", "x"),
        law=gemver_law,
        schedule=gemver_schedule,
        mistakes={
            "the product before the matrix": Mistake(
                lambda s: s["gemver"].fuse_with("i", "i_1"), IllegalOrder, "flow", "A[1, 0]"
            ),
        },
        scalars=_SCALARS,
    ),
    Case(
        name="gesummv",
        script=gesummv,
        shapes={"A": ("n", "n"), "B": ("n", "n"), "x": ("n",)},
        sizes={"n": 11},
        outputs=("y",),
        law=gesummv_law,
        schedule=gesummv_schedule,
        scalars=_SCALARS,
    ),
    Case(
        name="symm",
        script=symm,
        shapes={"C": ("m", "n"), "A": ("m", "m"), "B": ("m", "n")},
        sizes={"m": 7, "n": 10},
        outputs=("C",),
        law=symm_law,
        schedule=symm_schedule,
        mistakes={
            "rows in parallel, which also update the rows above": Mistake(
                lambda s: s["symm"].parallel("i"), IllegalParallel, "anti", "C[0, 0]", (1, 0)
            ),
        },
        scalars=_SCALARS,
    ),
    Case(
        name="syr2k",
        script=syr2k,
        shapes={"C": ("n", "n"), "A": ("n", "m"), "B": ("n", "m")},
        sizes={"n": 10, "m": 7},
        outputs=("C",),
        law=syr2k_law,
        schedule=syr2k_schedule,
        scalars=_SCALARS,
    ),
    Case(
        name="syrk",
        script=syrk,
        shapes={"C": ("n", "n"), "A": ("n", "m")},
        sizes={"n": 10, "m": 7},
        outputs=("C",),
        law=syrk_law,
        schedule=syrk_schedule,
        scalars=_SCALARS,
    ),
    Case(
        name="trmm",
        script=trmm,
        shapes={"A": ("m", "m"), "B": ("m", "n")},
        sizes={"m": 9, "n": 7},
        outputs=("B",),
        law=trmm_law,
        schedule=trmm_schedule,
        mistakes={
            "upwards: rows below are new already": Mistake(
                lambda s: s["trmm"].reverse("i"), IllegalOrder, "anti", "B[1, 0]", (1, 0)
            ),
        },
        scalars={"alpha": ALPHA},
    ),
)
