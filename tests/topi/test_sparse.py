"""Sparse matrices against NumPy's, row by row and in blocks, with room behind the last element."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

import tensorlang
from tensorlang import te, topi
from tensorlang.classic.sparse_data import random_bsr_matrix
from tensorlang.errors import DefinitionError, KernelError
from tensorlang.topi.sparse.matrices import CSRPlaceholder
from tests.device_targets import on_cuda, on_opencl
from tests.topi.calls import Call, check, floats, ran
from tests.topi.programs import Array, close

N = 6


def sparse(n: int, m: int = 7, blocks: tuple[int, ...] = (), room: int = 0) -> list[Array]:
    """Elements or blocks, columns, and begins of `n` rows of `m` columns, of which one has none."""
    rng = np.random.default_rng(n)
    kept = rng.random((n, m)) < 0.4
    kept[n // 2 :][:1] = False
    rows, columns = np.nonzero(kept)
    begins = np.concatenate([[0], np.cumsum(kept.sum(1))]).astype(np.int32)
    data = rng.integers(-4, 5, (len(rows) + room, *blocks)).astype(np.float32)
    return [data, np.r_[columns, np.zeros(room, int)].astype(np.int32), begins]


def whole(data: Array, columns: Array, begins: Array, width: int) -> Array:
    """The matrix with its zeros."""
    blocks = data.reshape(len(data), *(data.shape[1:] or (1, 1)))
    high, wide = blocks.shape[1:]
    made = np.zeros((len(begins) - 1, width // wide, high, wide), data.dtype)
    for row, (first, last) in enumerate(pairwise(begins)):
        for k in range(first, last):
            made[row, columns[k]] += blocks[k]
    return made.transpose(0, 2, 1, 3).reshape(-1, width)


def turned(data: Array, columns: Array, begins: Array) -> list[Array]:
    n = len(begins) - 1
    rows = np.repeat(np.arange(n), np.diff(begins))
    order = np.argsort(columns[: len(rows)], kind="stable")
    made = [np.zeros_like(data), np.zeros_like(columns)]
    made[0][: len(rows)], made[1][: len(rows)] = data[order], rows[order]
    counts = np.bincount(columns[: len(rows)], minlength=n)
    return [*made, np.r_[0, np.cumsum(counts)].astype(np.int32)]


def matrix(a: Any, b: Any, c: Any, rows: int = N) -> Any:
    """The three tensors as a matrix of topi.sparse."""
    shape = te.placeholder((rows, 7), name="shape").shape
    return topi.sparse.CSRPlaceholder(shape, a, b, c)


CALLS: dict[str, Call] = {
    "rows of elements": Call(
        topi.nn.sparse_dense, lambda x, d, i, p: x @ whole(d, i, p, 7).T, lambda n: [floats(3, 7), *sparse(n)]
    ),
    "rows of blocks": Call(
        topi.nn.sparse_dense,
        lambda x, d, i, p: x @ whole(d, i, p, 14).T,
        lambda n: [floats(3, 14), *sparse(n, blocks=(3, 2), room=2)],
    ),
    "sparse data": Call(
        lambda w, d, i, p: topi.nn.sparse_dense(w, d, i, p, sparse_lhs=True),
        lambda w, d, i, p: whole(d, i, p, 7) @ w.T,
        lambda n: [floats(5, 7), *sparse(n, room=1)],
    ),
    "sum": Call(
        topi.nn.sparse_add, lambda x, d, i, p: x + whole(d, i, p, 7), lambda n: [floats(n, 7), *sparse(n, room=2)]
    ),
    "transpose": Call(topi.nn.sparse_transpose, turned, lambda n: sparse(n, n, room=2)),
    "times a vector": Call(
        lambda x, y, d, i, p: topi.sparse.csrmv(matrix(d, i, p), x, y),
        lambda x, y, d, i, p: whole(d, i, p, 7) @ x + y,
        lambda n: [floats(7, 1), floats(1), *sparse(n)],
        empty=False,
    ),
    "times a vector, plus one": Call(
        lambda x, y, d, i, p: topi.sparse.csrmv(matrix(d, i, p), x, y),
        lambda x, y, d, i, p: whole(d, i, p, 7) @ x + y[:, None],
        lambda n: [floats(7, 1), floats(n), *sparse(n)],
        empty=False,
    ),
    "times a matrix": Call(
        lambda x, y, d, i, p: topi.sparse.csrmm(matrix(d, i, p), x, y),
        lambda x, y, d, i, p: whole(d, i, p, 7) @ x + y[:, None],
        lambda n: [floats(7, 4), floats(n), *sparse(n)],
        empty=False,
    ),
    "weights with a bias": Call(
        lambda x, b, d, i, p: topi.sparse.dense(x, matrix(d, i, p), b),
        lambda x, b, d, i, p: x @ whole(d, i, p, 7).T + b,
        lambda n: [floats(3, 7), floats(n), *sparse(n)],
        empty=False,
    ),
    "data with weights": Call(
        lambda w, d, i, p: topi.sparse.dense(matrix(d, i, p), w),
        lambda w, d, i, p: whole(d, i, p, 7) @ w.T,
        lambda n: [floats(5, 7), *sparse(n)],
        empty=False,
    ),
}


@pytest.mark.sampled(5)
@pytest.mark.parametrize("name", CALLS)
def test_calls(name: str) -> None:
    check(CALLS[name], "llvm", N)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", [name for name, call in CALLS.items() if call.empty])
def test_calls_without_rows(name: str) -> None:
    check(CALLS[name], "llvm", 0)


@pytest.mark.sampled(4)
@pytest.mark.parametrize("target", ["interpreter", on_opencl, on_cuda])
@pytest.mark.parametrize("name", CALLS)
def test_calls_on_devices(name: str, target: str) -> None:
    check(CALLS[name], target, N)


def test_matrices_of_any_number_of_elements_go_to_a_kernel_as_they_are() -> None:
    rows, nonzeros = te.size_var("rows"), te.size_var("nonzeros")
    A = topi.sparse.placeholder((rows, 7), nonzeros, name="A")
    B = te.placeholder((7, 4), name="B")
    C = topi.sparse.csrmm(A, B)
    kernel = tensorlang.build(topi.schedule(C, tuned=False), [A.data, A.indices, A.indptr, B, C])
    for n in (4, 9):
        made, b = topi.sparse.array(np.round(floats(n, 7))), floats(7, 4)
        out = np.empty((n, 4), np.float32)
        kernel(made.data, made.indices, made.indptr, b, out)
        close(out, made.numpy() @ b)


def test_columns_outside_are_found_when_the_kernel_runs() -> None:
    x, data, columns, begins = CALLS["rows of elements"].inputs(N)
    with pytest.raises(KernelError):
        ran(CALLS["rows of elements"], "llvm", [x, data, columns + 6, begins])


@pytest.mark.parametrize("target", ["llvm", "interpreter"])
@pytest.mark.parametrize("column", [np.int32(-1), np.int32(-(1 << 31)), np.int32(1 << 30), np.int64(-(1 << 63))])
def test_columns_of_blocks_do_not_wrap(column: Any, target: str) -> None:
    x, data = floats(1, 4), floats(1, 1, 2)
    with pytest.raises(KernelError):
        ran(CALLS["rows of blocks"], target, [x, data, np.array([column]), np.array([0, 1], column.dtype)])


@pytest.mark.parametrize("target", ["llvm", "interpreter"])
@pytest.mark.parametrize("column", [-1, 7])
def test_columns_of_a_sum_do_not_count_from_the_end(column: int, target: str) -> None:
    arrays = [floats(1, 7), floats(1), np.array([column], np.int32), np.array([0, 1], np.int32)]
    with pytest.raises(KernelError):
        ran(CALLS["sum"], target, arrays)


A, X = topi.sparse.placeholder((6, 7), 9, name="A"), te.placeholder((7, 4), name="X")
REFUSED: dict[str, tuple[Callable[[], Any], str]] = {
    "a matrix that does not fit": (lambda: topi.sparse.csrmm(A, te.placeholder((6, 4))), "do not fit a matrix"),
    "a vector of columns": (lambda: topi.sparse.csrmv(A, X), "do not fit a matrix"),
    "another dtype": (lambda: topi.sparse.csrmm(A, te.placeholder((7, 4), "float64")), "wants tensors of float32"),
    "no sparse matrix": (lambda: topi.sparse.dense(X, X), "wants one sparse matrix"),
    "no number of elements": (lambda: topi.sparse.placeholder((6, 7)), "nonzeros and the stype csr"),
    "a cube": (lambda: topi.sparse.array(np.zeros((2, 2, 2))), "is made of a matrix"),
    "rows of two lengths": (lambda: topi.sparse.array([[1, 2], [3]]), "rows of one length"),
    "no numbers": (lambda: topi.sparse.array([[None]]), "is made of numbers"),  # type: ignore[arg-type]
    "columns of floats": (lambda: topi.nn.sparse_dense(X, A.data, A.data, A.indptr), "their columns"),
    "blocks to turn": (
        lambda: topi.nn.sparse_transpose(te.placeholder((9, 2, 2)), A.indices, A.indptr),
        "takes elements",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_makes_no_sense_is_refused(name: str) -> None:
    call, message = REFUSED[name]
    with pytest.raises(DefinitionError, match=message):
        call()


def test_blocks_without_elements_are_refused() -> None:
    with pytest.raises(ValueError, match="blocks of 0 by 1 do not divide a matrix of 4 by 4"):
        random_bsr_matrix(4, 4, 0, 1, 0.5)


def test_rows_of_sparse_matrices_end_where_their_elements_do() -> None:
    """Vectors of columns, over the elements of one row: rows side by side would run as long as the longest could be."""
    data, indices, indptr = (
        te.placeholder(shape, dtype, name)
        for shape, dtype, name in (
            ((1000,), "float32", "data"),
            ((1000,), "int32", "indices"),
            ((257,), "int32", "indptr"),
        )
    )
    matrix = CSRPlaceholder((te.const(256), te.const(256)), data, indices, indptr)
    for made in (
        topi.sparse.csrmm(matrix, te.placeholder((256, 128), name="dense")),
        topi.nn.sparse_dense_sp_lhs(data, indices, indptr, te.placeholder((64, 256), name="y")),
    ):
        assert [note.form for note in topi.schedule(made, "llvm -mcpu=znver4", tuned=False).forms] == ["lanes"]
