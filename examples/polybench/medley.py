"""Medley: image filters, graphs, and strings."""

from __future__ import annotations

import math

import numpy as np

from examples.polybench.case import Array, Arrays, Case, Mistake, Pairs, Scalar, Size, Tensor, as_vectors
from tensorlang import te
from tensorlang.errors import IllegalOrder, IllegalParallel
from tensorlang.schedule import Schedule


@te.hybrid.script
def deriche(
    w: Size, h: Size, a1: Scalar, a2: Scalar, a3: Scalar, a4: Scalar, b1: Scalar, b2: Scalar, image: Tensor
) -> Tensor:
    """Deriche's recursive smoothing: along the rows to and fro, then along the columns of the result."""
    out = te.output_tensor((w, h), "float64")
    y1 = te.allocate((w, h), "float64")
    y2 = te.allocate((w, h), "float64")
    for i in range(w):
        ym1 = 0.0
        ym2 = 0.0
        xm1 = 0.0
        for j in range(h):
            y1[i, j] = a1 * image[i, j] + a2 * xm1 + b1 * ym1 + b2 * ym2
            xm1 = image[i, j]
            ym2 = ym1
            ym1 = y1[i, j]
    for i in range(w):
        yp1 = 0.0
        yp2 = 0.0
        xp1 = 0.0
        xp2 = 0.0
        for j in range(h - 1, -1, -1):
            y2[i, j] = a3 * xp1 + a4 * xp2 + b1 * yp1 + b2 * yp2
            xp2 = xp1
            xp1 = image[i, j]
            yp2 = yp1
            yp1 = y2[i, j]
    for i in range(w):
        for j in range(h):
            out[i, j] = y1[i, j] + y2[i, j]
    for j in range(h):
        tm1 = 0.0
        ym1 = 0.0
        ym2 = 0.0
        for i in range(w):
            y1[i, j] = a1 * out[i, j] + a2 * tm1 + b1 * ym1 + b2 * ym2
            tm1 = out[i, j]
            ym2 = ym1
            ym1 = y1[i, j]
    for j in range(h):
        tp1 = 0.0
        tp2 = 0.0
        yp1 = 0.0
        yp2 = 0.0
        for i in range(w - 1, -1, -1):
            y2[i, j] = a3 * tp1 + a4 * tp2 + b1 * yp1 + b2 * yp2
            tp2 = tp1
            tp1 = out[i, j]
            yp2 = yp1
            yp1 = y2[i, j]
    for i in range(w):
        for j in range(h):
            out[i, j] = y1[i, j] + y2[i, j]
    return out


@te.hybrid.script
def floyd_warshall(n: Size, path: Tensor) -> Tensor:
    """The shortest paths between all pairs of nodes."""
    for k in range(n):
        for i in range(n):
            for j in range(n):
                path[i, j] = min(path[i, j], path[i, k] + path[k, j])
    return path


@te.hybrid.script
def nussinov(n: Size, seq: Tensor) -> Tensor:
    """The most base pairs that a strand of RNA can fold to: a table over its substrings."""
    table = te.output_tensor((n, n), "int32")
    for i in range(n):
        for j in range(n):
            table[i, j] = 0
    for i in range(n - 1, -1, -1):
        for j in range(i + 1, n):
            table[i, j] = max(table[i, j], table[i, j - 1])
            table[i, j] = max(table[i, j], table[i + 1, j])
            if i < j - 1:
                paired = 1 if seq[i] + seq[j] == 3 else 0
                table[i, j] = max(table[i, j], table[i + 1, j - 1] + paired)
            else:
                table[i, j] = max(table[i, j], table[i + 1, j - 1])
            for k in range(i + 1, j):
                table[i, j] = max(table[i, j], table[i, k] + table[k + 1, j])
    return table


def filter_coefficients(alpha: float = 0.25) -> dict[str, float]:
    """The coefficients of the filter of width alpha."""
    decay = math.exp(-alpha)
    k = (1 - decay) ** 2 / (1 + 2 * alpha * decay - math.exp(2 * alpha))
    return {
        "a1": k,
        "a2": k * decay * (alpha - 1),
        "a3": k * decay * (alpha + 1),
        "a4": -k * decay**2,
        "b1": 2.0**-alpha,
        "b2": -(decay**2),
    }


def bases(drawn: Arrays) -> Arrays:
    """The four bases of RNA, as 0..3."""
    return {"seq": drawn["seq"] % 4}


def _smoothing(length: int) -> Array:
    """The matrix of the filter along one line: (I - B)^-1 A, forwards plus backwards."""
    c = filter_coefficients()
    one, back, back2 = (np.eye(length, k=-k) for k in range(3))
    recursion = one - c["b1"] * back - c["b2"] * back2
    forwards = np.linalg.solve(recursion, c["a1"] * one + c["a2"] * back)
    backwards = np.linalg.solve(recursion.T, c["a3"] * back.T + c["a4"] * back2.T)
    return forwards + backwards


def deriche_law(given: Arrays, got: Arrays) -> Pairs:
    """The filter is linear: a matrix from the left for the columns, one from the right for the rows."""
    w, h = given["image"].shape
    yield got["out"], _smoothing(w) @ given["image"] @ _smoothing(h).T


def floyd_warshall_law(given: Arrays, got: Arrays) -> Pairs:
    """Squaring, n times, in the algebra where + is min and * is +."""
    path = given["path"]
    for _ in range(len(path)):
        path = np.minimum(path, np.min(path[:, :, None] + path[None, :, :], axis=1))
    yield got["path"], path


def nussinov_law(given: Arrays, got: Arrays) -> Pairs:
    """A recursion over substrings, from short to long: the last base stays alone, or pairs with an earlier one."""
    seq = given["seq"]
    n = len(seq)
    best = np.zeros((n + 1, n + 1), np.int32)  # best[i, j]: the substring from i up to, without, j
    for length in range(2, n + 1):
        for i in range(n - length + 1):
            j = i + length
            alone = best[i, j - 1]
            pairs = [best[i, k] + best[k + 1, j - 1] + 1 for k in range(i, j - 2) if seq[k] + seq[j - 1] == 3]
            best[i, j] = max([alone, *pairs])
    yield got["table"], best[:-1, 1:]


def deriche_schedule(s: Schedule) -> None:
    """Lines in parallel."""
    stage = s["deriche"]
    for line in ("i", "i_1", "i_2", "i_5"):
        stage.parallel(line)
    for column in ("j_3", "j_4"):
        as_vectors(stage, column)


def floyd_warshall_schedule(s: Schedule) -> None:
    """Tiles of the table, for every node in between."""
    s["floyd_warshall"].tile("i", "j", 4, 4)


def nussinov_schedule(s: Schedule) -> None:
    """The substrings of one length in parallel."""
    stage = s["nussinov"]
    _, along = stage.affine(("i_1", "j_1"), ((1, 1), (1, 0)))
    stage.parallel(along)


CASES = (
    Case(
        name="deriche",
        script=deriche,
        shapes={"image": ("w", "h")},
        sizes={"w": 9, "h": 7},
        outputs=("out",),
        law=deriche_law,
        schedule=deriche_schedule,
        mistakes={
            "a line in parallel": Mistake(
                lambda s: s["deriche"].parallel("j"), IllegalParallel, "flow", "deriche.ym1[0]", (0, 1)
            ),
        },
        scalars=filter_coefficients(),
    ),
    Case(
        name="floyd-warshall",
        script=floyd_warshall,
        shapes={"path": ("n", "n")},
        sizes={"n": 9},
        outputs=("path",),
        law=floyd_warshall_law,
        schedule=floyd_warshall_schedule,
        mistakes={
            "a node of the table before the nodes in between": Mistake(
                lambda s: s["floyd_warshall"].reorder("i", "k"), IllegalOrder, "flow", "path[1, 0]", (1, -1, 0)
            ),
        },
        dtype="int32",
    ),
    Case(
        name="nussinov",
        script=nussinov,
        shapes={"seq": ("n",)},
        sizes={"n": 11},
        outputs=("table",),
        law=nussinov_law,
        schedule=nussinov_schedule,
        mistakes={
            "long substrings first": Mistake(
                lambda s: s["nussinov"].reverse("j_1"), IllegalOrder, "flow", "nussinov[0, 1]", (0, 1)
            ),
        },
        prepare=bases,
        dtype="int32",
    ),
)
