"""Sparse tensors of other shapes and with filled rows, against NumPy, on every kind of target."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tensorlang import te, topi
from tensorlang.errors import DefinitionError, KernelError
from tests.device_targets import on_cuda, on_opencl
from tests.topi.calls import Call, N, check, floats, ran_all
from tests.topi.programs import Array

OLD = (4, 3, 2)


def places(n: int, *shape: int, dtype: type = np.int32) -> Array:
    """Some places in rising order."""
    flat = np.sort(np.random.default_rng(n).choice(int(np.prod(shape)), n, replace=False))
    return np.stack(np.unravel_index(flat, shape), 1).astype(dtype)


def reshaped(at: Array, old: Array, new: Array) -> list[Array]:
    size = int(np.prod(old))
    rest = -size // int(np.prod(new))
    shape = np.where(new == -1, rest, new).astype(old.dtype)
    flat = np.ravel_multi_index(tuple(at.T), tuple(old))
    return [np.stack(np.unravel_index(flat, tuple(shape)), 1).astype(at.dtype), shape]


def filled(at: Array, values: Array, default: Array, rows: int, room: int) -> list[Array]:
    empty = np.array([int(r not in at[:, 0]) for r in range(rows)])
    found = [(*map(int, place), value) for place, value in zip(at, values, strict=True)]
    found += [(r, *[0] * (at.shape[1] - 1), default.reshape(-1)[0]) for r in range(rows) if empty[r]]
    found.sort(key=lambda one: one[:-1])
    new = np.full((room, at.shape[1]), -1, np.int64)
    made = np.zeros(room, values.dtype)
    for k, (*place, value) in enumerate(found):
        new[k], made[k] = place, value
    return [new, made, empty.astype(np.int64), np.array([len(found)], np.int32)]


def to_shape(*new: int, dtype: type = np.int32) -> Call:
    return Call(
        topi.sparse_reshape,
        reshaped,
        lambda n: [places(n, *OLD, dtype=dtype), np.array(OLD, dtype), np.array(new, dtype)],
    )


CALLS: dict[str, Call] = {
    "sparse_reshape to fewer axes": to_shape(8, -1),
    "sparse_reshape to more axes": to_shape(2, -1, 3, 2),
    "sparse_reshape to one axis": to_shape(-1, dtype=np.int64),
    "sparse_reshape to the same": to_shape(*OLD),
    "sparse_fill_empty_rows": Call(
        lambda at, x, d: topi.sparse_fill_empty_rows(at, x, (8, 3), d, with_count=True),
        lambda at, x, d: filled(at, x, d, 8, len(x) + 8),
        lambda n: [places(n, 8, 3), floats(n), floats(1)],
    ),
    "sparse_fill_empty_rows of bytes": Call(
        lambda at, x, d: topi.sparse_fill_empty_rows(at, x, (4, 3, 2), d, with_count=True),
        lambda at, x, d: filled(at, x, d, 4, len(x) + 4),
        lambda n: [places(n, *OLD, dtype=np.int64), np.arange(n, dtype=np.int8), np.array(-7, np.int8)],
    ),
    "sparse_fill_empty_rows of rows in sizes": Call(
        lambda at, x, shape, d: topi.sparse_fill_empty_rows(at, x, shape, d, (12, 2), (12,), (6,)),
        lambda at, x, shape, d: filled(at, x, d, 6, 12)[:3],
        lambda n: [places(n, 6, 3), floats(n), np.array([6, 3]), floats()],
    ),
}


@pytest.mark.parametrize("name", CALLS)
def test_calls(name: str) -> None:
    check(CALLS[name], "llvm", N)


@pytest.mark.parametrize("name", CALLS)
def test_calls_without_elements(name: str) -> None:
    check(CALLS[name], "llvm", 0)


@pytest.mark.sampled(4)
@pytest.mark.parametrize("target", ["interpreter", on_opencl, on_cuda])
@pytest.mark.parametrize("name", CALLS)
def test_calls_on_devices(name: str, target: str) -> None:
    check(CALLS[name], target, N)


def test_rows_out_of_range_and_too_little_room_are_found_when_the_kernel_runs() -> None:
    call = CALLS["sparse_fill_empty_rows"]
    with pytest.raises(KernelError):
        ran_all(call, "llvm", [np.array([[8, 0]], np.int32), floats(1), floats(1)])
    small = Call(lambda at, x, d: topi.sparse_fill_empty_rows(at, x, (3, 3), d, (2, 2), (2,)), filled)
    with pytest.raises(KernelError):
        ran_all(small, "llvm", [np.array([[1, 0]], np.int32), floats(1), floats(1)])


AT, X, ONE = te.placeholder((5, 2), "int32", "AT"), te.placeholder((5,), name="X"), te.placeholder((1,), name="ONE")
SHAPE = te.placeholder((2,), "int32", "SHAPE")
REFUSED: dict[str, tuple[Callable[[], Any], str]] = {
    "places of another rank": (
        lambda: topi.sparse_reshape(AT, ONE.astype("int32"), SHAPE),
        "no coordinates of a shape",
    ),
    "floats": (lambda: topi.sparse_reshape(X, SHAPE, SHAPE), "two shapes, all integers"),
    "another shape asked for": (lambda: topi.sparse_reshape(AT, SHAPE, SHAPE, (5, 3)), r"makes the shape \(5, 2\)"),
    "unknown rows": (lambda: topi.sparse_fill_empty_rows(AT, X, SHAPE, ONE), "rows whose number is known"),
    "rows said twice": (
        lambda: topi.sparse_fill_empty_rows(AT, X, (4, 4), ONE, empty_row_indicator_shape=(5,)),
        "rows whose number is known",
    ),
    "another default": (lambda: topi.sparse_fill_empty_rows(AT, X, (4, 4), SHAPE), "and one more value"),
    "another room": (
        lambda: topi.sparse_fill_empty_rows(AT, X, (4, 4), ONE, (7, 2), (8,)),
        r"makes the shape \(8, 2\)",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_makes_no_sense_is_refused(name: str) -> None:
    call, message = REFUSED[name]
    with pytest.raises(DefinitionError, match=message):
        call()
