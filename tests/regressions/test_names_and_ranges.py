"""Names that steps make up, and ranges that a placement gives."""

from __future__ import annotations

from typing import Any

import pytest

from tensorlang import config, lower, te
from tensorlang.errors import IllegalParallel, TooComplex
from tensorlang.testing.check import check_schedule


def test_the_axis_of_partial_results_takes_no_name_in_use() -> None:
    A, k = te.placeholder((8, 8), name="A"), te.reduce_axis((0, 8), "k")
    C = te.compute((8,), lambda k_v: te.sum(A[k_v, k], axis=k), name="C")
    s = te.create_schedule(C.op)
    s.rfactor(C, k)
    check_schedule(s, [A, C])


def test_an_axis_takes_no_name_of_a_size() -> None:
    n = te.var("k_o")
    A, k = te.placeholder((n, 12), name="A"), te.reduce_axis((0, 12), "k")
    C = te.compute((n,), lambda i: te.sum(A[i, k] * n.astype("float32"), axis=k), name="C")
    s = te.create_schedule(C.op)
    k_o, k_i = s[C].split(k, factor=4)
    assert (k_o.name, k_i.name) == ("k_o_1", "k_i")
    s.rfactor(C, k_i)
    check_schedule(s, [A, C], {"k_o": 5})


@te.hybrid.script
def paths(n: Any, a: Any) -> Any:
    for i in range(1, n):
        for j in range(1, n):
            a[i, j] = a[i - 1, j] + a[i, j - 1]
    return a


@pytest.mark.parametrize("size", ["ax0", "ax1", "ax_0"])
def test_copies_in_another_layout_take_no_name_of_a_size(size: str) -> None:
    n = te.var(size)
    A = te.placeholder((n, n), "int32", name="A")
    s = te.create_schedule(paths(n, A).op)
    s["paths"].cache_inplace(lambda i, j: (i + j, i))
    for value in (0, 1, 2, 5):
        check_schedule(s, [A], {size: value})


def test_a_tile_of_constant_size_can_be_vectorised_whatever_the_size_of_the_array() -> None:
    n, m, p = te.var("n"), te.var("m"), te.var("p")
    A, B = te.placeholder((n, p), name="A"), te.placeholder((p, m), name="B")
    k = te.reduce_axis((0, p), "k")
    C = te.compute((n, m), lambda i, j: te.sum(A[i, k] * B[k, j], axis=k), name="C")
    s = te.create_schedule(C.op)
    T = s.cache_write(C, "local")
    _, j_o, _, j_i = s[C].tile(*C.op.axis, 4, 16)
    s[T].compute_at(s[C], j_o)
    i, j = s[T].op.axis
    s[T].reorder(*s[T].op.reduce_axis, i, j)
    s[T].vectorize(j)
    s[T].unroll(i)
    s[C].vectorize(j_i)
    assert "vectorized j in range(16)" in str(lower(s, [A, B, C]))
    for sizes in ((0, 3, 2), (3, 5, 0), (4, 16, 3), (5, 17, 2)):
        check_schedule(s, [A, B, C], dict(zip(("n", "m", "p"), sizes, strict=True)))


def test_loops_that_take_too_long_to_generate_are_refused_clearly() -> None:
    A = te.placeholder((8,), name="A")
    s = te.create_schedule(te.compute((8,), lambda i: A[i] + 1, name="C").op)
    with config.override(budget=10), pytest.raises(TooComplex, match="lower main"):
        lower(s, [A, s.outputs[0].output(0)])


def test_a_product_of_sizes_elsewhere_does_not_hide_the_smallest_case() -> None:
    n = te.var("n")

    @te.hybrid.script
    def last(y: Any, b: Any) -> None:
        for i in range(b.shape[0]):
            for j in range(b.shape[0]):
                b[j] = y[i, j]

    A, B = te.placeholder((n, n), "int32", name="A"), te.placeholder((n,), "int32", name="B")
    Y = te.compute((n, n), lambda i, j: A[i, j] + 1, name="Y")
    s = te.create_schedule(last(Y, B).op)
    s[Y].fuse("i", "j")
    with pytest.raises(IllegalParallel, match="smallest case"):
        s["last"].parallel("i")


def test_fusing_with_a_loop_of_no_iterations() -> None:
    a = te.placeholder((4, 0), name="A")
    b = te.compute((4, 0), lambda i, j: a[i, j] + 1, name="B")
    s = te.create_schedule(b.op)
    s[b].fuse("i", "j")
    check_schedule(s, [a, b])
