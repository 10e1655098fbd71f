"""Linear algebra kernels: products after one another, and products of higher rank."""

from __future__ import annotations

import numpy as np

from examples.polybench.case import Arrays, Case, Pairs, Scalar, Size, Tensor, as_vectors
from tensorlang import te
from tensorlang.schedule import Schedule


@te.hybrid.script
def two_mm(
    ni: Size,
    nj: Size,
    nk: Size,
    nl: Size,
    alpha: Scalar,
    beta: Scalar,
    A: Tensor,
    B: Tensor,
    C: Tensor,
    D: Tensor,
) -> Tensor:
    """D = alpha A B C + beta D."""
    tmp = te.allocate((ni, nj), "float64")
    for i in range(ni):
        for j in range(nj):
            tmp[i, j] = 0.0
            for k in range(nk):
                tmp[i, j] += alpha * A[i, k] * B[k, j]
    for i in range(ni):
        for j in range(nl):
            D[i, j] *= beta
            for k in range(nj):
                D[i, j] += tmp[i, k] * C[k, j]
    return D


@te.hybrid.script
def three_mm(ni: Size, nj: Size, nk: Size, nl: Size, nm: Size, A: Tensor, B: Tensor, C: Tensor, D: Tensor) -> Tensor:
    """G = (A B) (C D)."""
    E = te.allocate((ni, nj), "float64")
    F = te.allocate((nj, nl), "float64")
    G = te.output_tensor((ni, nl), "float64")
    for i in range(ni):
        for j in range(nj):
            E[i, j] = 0.0
            for k in range(nk):
                E[i, j] += A[i, k] * B[k, j]
    for i in range(nj):
        for j in range(nl):
            F[i, j] = 0.0
            for k in range(nm):
                F[i, j] += C[i, k] * D[k, j]
    for i in range(ni):
        for j in range(nl):
            G[i, j] = 0.0
            for k in range(nj):
                G[i, j] += E[i, k] * F[k, j]
    return G


@te.hybrid.script
def atax(m: Size, n: Size, A: Tensor, x: Tensor) -> Tensor:
    """y = A' (A x)."""
    tmp = te.allocate((m,), "float64")
    y = te.output_tensor((n,), "float64")
    for i in range(n):
        y[i] = 0.0
    for i in range(m):
        tmp[i] = 0.0
        for j in range(n):
            tmp[i] = tmp[i] + A[i, j] * x[j]
        for j in range(n):
            y[j] = y[j] + A[i, j] * tmp[i]
    return y


@te.hybrid.script
def bicg(m: Size, n: Size, A: Tensor, p: Tensor, r: Tensor) -> Tensor:
    """s = A' r; q = A p."""
    s = te.output_tensor((m,), "float64")
    q = te.output_tensor((n,), "float64")
    for i in range(m):
        s[i] = 0.0
    for i in range(n):
        q[i] = 0.0
        for j in range(m):
            s[j] = s[j] + r[i] * A[i, j]
            q[i] = q[i] + A[i, j] * p[j]
    return s, q


@te.hybrid.script
def doitgen(nr: Size, nq: Size, np: Size, A: Tensor, C4: Tensor) -> Tensor:
    """A[r, q, :] = A[r, q, :] C4, in place."""
    total = te.allocate((np,), "float64")
    for r in range(nr):
        for q in range(nq):
            for p in range(np):
                total[p] = 0.0
                for s in range(np):
                    total[p] += A[r, q, s] * C4[s, p]
            for p in range(np):
                A[r, q, p] = total[p]
    return A


@te.hybrid.script
def mvt(n: Size, x1: Tensor, x2: Tensor, y1: Tensor, y2: Tensor, A: Tensor) -> Tensor:
    """x1 = x1 + A y1; x2 = x2 + A' y2."""
    for i in range(n):
        for j in range(n):
            x1[i] = x1[i] + A[i, j] * y1[j]
    for i in range(n):
        for j in range(n):
            x2[i] = x2[i] + A[j, i] * y2[j]
    return x1, x2


ALPHA, BETA = 1.5, 1.2


def two_mm_law(given: Arrays, got: Arrays) -> Pairs:
    """Two matrix products."""
    yield got["D"], ALPHA * given["A"] @ given["B"] @ given["C"] + BETA * given["D"]


def three_mm_law(given: Arrays, got: Arrays) -> Pairs:
    """Three matrix products."""
    yield got["G"], given["A"] @ given["B"] @ (given["C"] @ given["D"])


def atax_law(given: Arrays, got: Arrays) -> Pairs:
    """Two products with vectors."""
    yield got["y"], given["A"].T @ (given["A"] @ given["x"])


def bicg_law(given: Arrays, got: Arrays) -> Pairs:
    """Two products with vectors."""
    yield got["s"], given["A"].T @ given["r"]
    yield got["q"], given["A"] @ given["p"]


def doitgen_law(given: Arrays, got: Arrays) -> Pairs:
    """One contraction."""
    yield got["A"], np.einsum("rqs,sp->rqp", given["A"], given["C4"])


def mvt_law(given: Arrays, got: Arrays) -> Pairs:
    """Two products with vectors."""
    yield got["x1"], given["x1"] + given["A"] @ given["y1"]
    yield got["x2"], given["x2"] + given["A"].T @ given["y2"]


def two_mm_schedule(s: Schedule) -> None:
    """Rows in parallel, the products in tiles."""
    stage = s["two_mm"]
    stage.parallel("i")
    stage.parallel("i_1")


def three_mm_schedule(s: Schedule) -> None:
    """Rows of each product in parallel."""
    stage = s["three_mm"]
    for row in ("i", "i_1", "i_2"):
        stage.parallel(row)


def atax_schedule(s: Schedule) -> None:
    """The update with a row runs by vectors."""
    as_vectors(s["atax"], "j_1")


def bicg_schedule(s: Schedule) -> None:
    """x"""
    s["bicg"].parallel("i")


def doitgen_schedule(s: Schedule) -> None:
    """Elements of a fibre in parallel."""
    stage = s["doitgen"]
    stage.parallel("p")
    as_vectors(stage, "p_1")


def mvt_schedule(s: Schedule) -> None:
    """Rows in parallel; the product with the transpose runs along the rows of A."""
    stage = s["mvt"]
    stage.parallel("i")
    stage.reorder("j_1", "i_1")
    as_vectors(stage, "i_1")


CASES = (
    Case(
        name="2mm",
        script=two_mm,
        shapes={"A": ("ni", "nk"), "B": ("nk", "nj"), "C": ("nj", "nl"), "D": ("ni", "nl")},
        sizes={"ni": 6, "nj": 7, "nk": 9, "nl": 8},
        outputs=("D",),
        law=two_mm_law,
        schedule=two_mm_schedule,
        scalars={"alpha": ALPHA, "beta": BETA},
    ),
    Case(
        name="3mm",
        script=three_mm,
        shapes={"A": ("ni", "nk"), "B": ("nk", "nj"), "C": ("nj", "nm"), "D": ("nm", "nl")},
        sizes={"ni": 6, "nj": 7, "nk": 9, "nl": 8, "nm": 5},
        outputs=("G",),
        law=three_mm_law,
        schedule=three_mm_schedule,
    ),
    Case(
        name="atax",
        script=atax,
        shapes={"A": ("m", "n"), "x": ("n",)},
        sizes={"m": 9, "n": 11},
        outputs=("y",),
        law=atax_law,
        schedule=atax_schedule,
    ),
    Case(
        name="bicg",
        script=bicg,
        shapes={"A": ("n", "m"), "p": ("m",), "r": ("n",)},
        sizes={"m": 9, "n": 11},
        outputs=("s", "q"),
        law=bicg_law,
        schedule=bicg_schedule,
    ),
    Case(
        name="doitgen",
        script=doitgen,
        shapes={"A": ("nr", "nq", "np"), "C4": ("np", "np")},
        sizes={"nr": 5, "nq": 4, "np": 7},
        outputs=("A",),
        law=doitgen_law,
        schedule=doitgen_schedule,
    ),
    Case(
        name="mvt",
        script=mvt,
        shapes={"x1": ("n",), "x2": ("n",), "y1": ("n",), "y2": ("n",), "A": ("n", "n")},
        sizes={"n": 11},
        outputs=("x1", "x2"),
        law=mvt_law,
        schedule=mvt_schedule,
    ),
)
