"""Linear algebra kernels: products after one another, and products of higher rank."""

from __future__ import annotations

import numpy as np

from examples.polybench.case import WIDTH, Arrays, Case, Mistake, Pairs, Scalar, Size, Tensor, as_vectors
from tensorlang import te
from tensorlang.errors import IllegalOrder, IllegalParallel
from tensorlang.schedule import Schedule, Stage


@te.hybrid.script
def two_mm(
    ni: Size, nj: Size, nk: Size, nl: Size, alpha: Scalar, beta: Scalar, A: Tensor, B: Tensor, C: Tensor, D: Tensor
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
    """Rows in parallel, each a sum of rows, by vectors."""
    for row, column, k in (("i", "j", "k"), ("i_1", "j_1", "k_1")):
        _rows_of_product(s["two_mm"], row, column, k)


def three_mm_schedule(s: Schedule) -> None:
    """Rows of each product in parallel, each a sum of rows, by vectors."""
    for row, column, k in (("i", "j", "k"), ("i_1", "j_1", "k_1"), ("i_2", "j_2", "k_2")):
        _rows_of_product(s["three_mm"], row, column, k)


def _rows_of_product(stage: Stage, row: str, column: str, k: str) -> None:
    first, sums = stage.fission(column)
    stage.reorder(k, sums)
    stage.parallel(row)
    for axis in (first, sums):
        as_vectors(stage, axis)


def atax_schedule(s: Schedule) -> None:
    """All of A x first, rows in parallel; then the sum of rows, by vectors in parallel."""
    stage = s["atax"]
    product, update = stage.fission("i_1", after="j")
    stage.parallel(product)
    outer, inner = stage.split("j_1", factor=WIDTH)
    stage.reorder(outer, update, inner)
    stage.parallel(outer)
    stage.vectorize(inner)


def bicg_schedule(s: Schedule) -> None:
    """The two products apart: one adds up rows by vectors, the other has its rows in parallel."""
    stage = s["bicg"]
    _, sums = stage.fission("j")
    _, _, rows = stage.fission("i_1")
    as_vectors(stage, "j")
    stage.parallel(rows)
    _, inner = stage.split(sums, factor=WIDTH)
    stage.unroll(inner)


def doitgen_schedule(s: Schedule) -> None:
    """Each new fibre is a sum of rows of C4, by vectors."""
    stage = s["doitgen"]
    first, sums = stage.fission("p")
    stage.reorder("s", sums)
    for axis in (first, sums, "p_1"):
        as_vectors(stage, axis)


def mvt_schedule(s: Schedule) -> None:
    """Rows in parallel; the product with the transpose runs along the rows of A."""
    stage = s["mvt"]
    stage.parallel("i")
    stage.reorder("j_1", "i_1")
    as_vectors(stage, "i_1")


def _half_a_row(s: Schedule) -> None:
    s["two_mm"].fuse_with("i", "i_1")
    s["two_mm"].fuse_with("j", "j_1")


def _sum_as_lanes(s: Schedule) -> None:
    as_vectors(s["bicg"], "j")


CASES = (
    Case(
        name="2mm",
        script=two_mm,
        shapes={"A": ("ni", "nk"), "B": ("nk", "nj"), "C": ("nj", "nl"), "D": ("ni", "nl")},
        sizes={"ni": 6, "nj": 7, "nk": 9, "nl": 8},
        outputs=("D",),
        law=two_mm_law,
        schedule=two_mm_schedule,
        mistakes={
            "half a row of the first product": Mistake(_half_a_row, IllegalOrder, "flow", "two_mm.tmp[0, 1]"),
        },
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
        mistakes={
            "rows in parallel, which all add to y": Mistake(
                lambda s: s["atax"].parallel("i_1"), IllegalParallel, "reduction", "atax[0]", (1, 0)
            ),
        },
    ),
    Case(
        name="bicg",
        script=bicg,
        shapes={"A": ("n", "m"), "p": ("m",), "r": ("n",)},
        sizes={"m": 9, "n": 11},
        outputs=("s", "q"),
        law=bicg_law,
        schedule=bicg_schedule,
        mistakes={
            "the terms of a sum as lanes": Mistake(_sum_as_lanes, IllegalParallel, "reduction", "bicg.v1[0]", (0, 1)),
        },
    ),
    Case(
        name="doitgen",
        script=doitgen,
        shapes={"A": ("nr", "nq", "np"), "C4": ("np", "np")},
        sizes={"nr": 5, "nq": 4, "np": 7},
        outputs=("A",),
        law=doitgen_law,
        schedule=doitgen_schedule,
        mistakes={
            "planes in parallel, which share the fibre of sums": Mistake(
                lambda s: s["doitgen"].parallel("r"), IllegalParallel, "flow", "doitgen.total[0]", (1, 0)
            ),
        },
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
