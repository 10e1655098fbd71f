"""Programs of users that reduce rows and read them again: the library's form, told by what they read, without a tag."""

from __future__ import annotations

import re
from collections.abc import Callable

import numpy as np
import pytest

import tensorlang
from tensorlang import te, topi
from tensorlang.ir.expr import Expr, Var
from tensorlang.te.operation import Tensor
from tensorlang.testing import check_schedule


def columns_between() -> list[Tensor]:
    """A softmax along the first of two axes, of a sum, and clipped behind."""
    x, y = (te.placeholder((9, 21), name=name) for name in "XY")
    t = te.compute((9, 21), lambda i, j: x[i, j] + y[i, j], name="T")
    k, q = te.reduce_axis((0, 9), "k"), te.reduce_axis((0, 9), "q")
    most = te.compute((21,), lambda j: te.max(t[k, j], axis=k), name="M")
    e = te.compute((9, 21), lambda i, j: te.exp(t[i, j] - most[j]), name="E")
    total = te.compute((21,), lambda j: te.sum(e[q, j], axis=q), name="S")
    p = te.compute((9, 21), lambda i, j: e[i, j] / total[j], name="P")
    return [x, y, te.compute((9, 21), lambda i, j: te.minimum(p[i, j], 0.25), name="out")]


def images() -> list[Tensor]:
    """The root mean square over channels and columns, for each image and row."""
    x = te.placeholder((3, 5, 4, 17), name="X")
    c, w = te.reduce_axis((0, 5), "c"), te.reduce_axis((0, 17), "w")
    square = te.compute((3, 4), lambda n, h: te.sum(x[n, c, h, w] * x[n, c, h, w], axis=[c, w]), name="S")
    scale = te.compute((3, 4), lambda n, h: te.rsqrt(square[n, h] / 85.0 + 1e-5), name="R")
    return [x, te.compute((3, 5, 4, 17), lambda n, f, h, v: x[n, f, h, v] * scale[n, h], name="out")]


def all_of_it() -> list[Tensor]:
    """Exponentials over their sum, which is one number: the exponentials cost too much to be made twice."""
    x = te.placeholder((70,), name="X")
    k = te.reduce_axis((0, 70), "k")
    e = te.compute((70,), lambda i: te.exp(x[i]), name="E")
    total = te.compute((), lambda: te.sum(e[k], axis=k), name="S")
    return [x, te.compute((70,), lambda i: e[i] / total[()], name="out")]


def wanted_too() -> list[Tensor]:
    """Rows less their means, which are wanted as well, over the sum of their sizes."""
    x = te.placeholder((6, 33), name="X")
    k, q = te.reduce_axis((0, 33), "k"), te.reduce_axis((0, 33), "q")
    mean = te.compute((6,), lambda i: te.sum(x[i, k], axis=k), name="M")
    less = te.compute((6, 33), lambda i, j: x[i, j] - mean[i] / 33.0, name="L")
    size = te.compute((6,), lambda i: te.sum(te.abs(less[i, q]), axis=q), name="S")
    return [x, less, te.compute((6, 33), lambda i, j: less[i, j] / size[i], name="out")]


def weighted() -> list[Tensor]:
    """Rows times weights that cost much to make, which all rows share, over their sums."""
    x, w = te.placeholder((12, 19), name="X"), te.placeholder((19,), name="W")
    k = te.reduce_axis((0, 19), "k")
    weight = te.compute((19,), lambda j: te.exp(w[j]), name="E")
    total = te.compute((12,), lambda i: te.sum(te.abs(x[i, k]) * weight[k], axis=k), name="S")
    return [x, w, te.compute((12, 19), lambda i, j: x[i, j] * weight[j] / (total[i] + 1.0), name="out")]


PROGRAMS: dict[str, tuple[Callable[[], list[Tensor]], int, set[str]]] = {
    "columns, between others": (columns_between, 1, {"T", "P"}),
    "rows that lie apart": (images, 1, set()),
    "a single row": (all_of_it, 1, set()),
    "what all rows share": (weighted, 1, set()),
    "what is wanted too": (wanted_too, 2, set()),
}
"""Programs, how many outputs they have, and the stages that are computed where they are read."""


@pytest.mark.covering(1)
@pytest.mark.parametrize("target", ["llvm -mcpu=haswell", "opencl"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_rows_are_made_where_they_are_read(name: str, target: str) -> None:
    make, count, inlined = PROGRAMS[name]
    args = make()
    s = topi.schedule(args[-count:], target, tuned=False)
    assert any(note.form.startswith("rows.") for note in s.forms), s.forms
    assert all(s.state.stages.get(name) is None for name in inlined)
    check_schedule(s, args, targets=("interpreter",))


def normalized(shape: tuple[int, ...], channel: int, folded: bool = False) -> list[Tensor]:
    """What a channel is less its mean, over its deviation; or, `folded`, both of these side by side."""
    x = te.placeholder(shape, name="X")
    others = [d for d in range(len(shape)) if d != channel]
    count = int(np.prod([shape[d] for d in others]))

    def total(name: str, element: Callable[[Expr], Expr]) -> Tensor:
        axes = {d: te.reduce_axis((0, shape[d]), f"{name}{d}") for d in others}

        def summed(c: Var) -> Expr:
            index = [axes[d].as_expr() if d in axes else c for d in range(len(shape))]
            return te.sum(element(x(*index)), axis=[*axes.values()])

        return te.compute((shape[channel],), summed, name=name)

    one, two = total("one", lambda v: v), total("two", lambda v: v * v)
    if folded:
        return [x, te.compute((shape[channel], 2), lambda c, k: te.select(k < 1, one[c], two[c]) / count, name="out")]

    def element(*index: Var) -> Expr:
        mean = one[index[channel]] / count
        return (x(*index) - mean) * te.rsqrt(two[index[channel]] / count - mean * mean + 1e-3)

    return [x, te.compute(shape, element, name="out")]


@pytest.mark.parametrize(
    ("shape", "channel", "folded", "form", "lanes"),
    [
        ((3, 4, 5, 16), 1, False, "rows.keep", 8),
        ((3, 4, 3, 5), 1, False, "rows.keep", 4),
        ((3, 4, 5, 16), 1, True, "rows.keep", 8),
        ((2, 150, 120, 5), 3, False, "rows.passes", 5),
    ],
)
@pytest.mark.parametrize("cores", [1, 2])
def test_statistics_of_channels_are_sums_in_vectors(
    shape: tuple[int, ...], channel: int, folded: bool, form: str, lanes: int, cores: int
) -> None:
    """Whether a channel is planes of many images, or lies across memory and stays in no cache."""
    args = normalized(shape, channel, folded)
    s = topi.schedule(args[-1], f"llvm -mcpu=x86-64-v3 -num-cores={cores}", tuned=False)
    assert [note.form for note in s.forms if note.stage == "out"] == [form]
    text = str(tensorlang.lower(s, args))
    assert "prefetch" not in text
    sums = re.findall(r"vectorized \w+ in range\((\d+)\):\n\s+(?:one|two)", text)
    assert max(map(int, sums)) >= lanes
    check_schedule(s, args, targets=("llvm",))
