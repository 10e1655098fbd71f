"""Updates at places that are data, against NumPy, in every reduction and on every kind of target."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tensorlang
from tensorlang import te, topi
from tensorlang.errors import DefinitionError, KernelError
from tests.device_targets import on_cuda, on_opencl
from tests.topi.calls import Call, N, check, floats, ran, whole
from tests.topi.programs import Array

COMBINED: dict[str, Callable[[Any, Any], Any]] = {
    "update": lambda old, new: new,
    "add": lambda old, new: old + new,
    "mul": lambda old, new: old * new,
    "mean": lambda old, new: (old + new) / 2,
    "min": np.minimum,
    "max": np.maximum,
}


def elements(data: Array, at: Array, updates: Array, axis: int, how: str) -> Array:
    made = data.copy()
    for place in np.ndindex(*at.shape):
        target = (*place[:axis], at[place], *place[axis + 1 :])
        made[target] = COMBINED[how](made[target], updates[place])
    return made


def points(data: Array, at: Array, updates: Array, how: str) -> Array:
    made = data.copy()
    for place in np.ndindex(*at.shape[1:]):
        target = tuple(at[(slice(None), *place)])
        made[target] = COMBINED[how](made[target], updates[place])
    return made


def dense(at: Array, values: Array, default: float) -> Array:
    made = np.full((6, 4), np.float32(default))
    for place, value in zip(at, np.broadcast_to(values, len(at)), strict=True):
        made[tuple(place)] = value
    return made


def vector(at: Array, values: Array, default: Array) -> Array:
    made = np.full(6, default)
    made[at] = values
    return made


def along(axis: int, how: str, rows: int = N) -> Call:
    def inputs(n: int) -> list[Array]:
        at = (min(rows, n), 8) if axis else (9, 6)
        return [floats(n, 6), whole(*at, high=6 if axis else n, low=-6 if axis else -n), floats(*at) + 2]

    return Call(
        lambda x, i, u: topi.scatter_elements(x, i, u, axis, how),
        lambda x, i, u: elements(x, i, u, axis, how),
        inputs,
        empty=bool(axis),
    )


def at_points(how: str) -> Call:
    return Call(
        lambda x, i, u: topi.scatter_nd(x, i, u, how),
        lambda x, i, u: points(x, i, u, how),
        lambda n: [floats(5, 6, 3), whole(2, n, 4, high=5, low=-5), floats(n, 4, 3)],
    )


CALLS: dict[str, Call] = {
    **{f"{how} along rows": along(1, how) for how in COMBINED},
    "add along columns": along(0, "add"),
    "update of fewer rows": along(1, "update", rows=3),
    "max of fewer rows": along(1, "max", rows=3),
    **{f"{how} at points": at_points(how) for how in ("update", "add", "min")},
    "scatter of a middle axis": Call(
        lambda x, i, u: topi.scatter(x, i, u, -2),
        lambda x, i, u: elements(x, i, u, 1, "update"),
        lambda n: [whole(n, 4, 3), whole(n, 7, 3, high=4), whole(n, 7, 3, high=90)],
    ),
    "scatter of large unsigned indices": Call(
        topi.scatter,
        lambda x, i, u: elements(x, i, u, 0, "update"),
        lambda n: [floats(7), whole(n, high=7).astype(np.uint64), floats(n)],
    ),
    "scatter_add of bytes": Call(
        topi.scatter_add,
        lambda x, i, u: elements(x, i, u, 0, "add"),
        lambda n: [np.arange(7, dtype=np.uint8), whole(n, high=7).astype(np.int64), whole(n, high=99).astype(np.uint8)],
    ),
    "sparse_to_dense": Call(
        lambda i, v: topi.sparse_to_dense(i, (6, 4), v, 2.5),
        lambda i, v: dense(i, v, 2.5),
        lambda n: [whole(n, 2, high=4), floats(n)],
    ),
    "sparse_to_dense of one value": Call(
        lambda i, v: topi.sparse_to_dense(i, (6, 4), v, 0),
        lambda i, v: dense(i, v, 0),
        lambda n: [whole(n, 2, high=4), floats()],
    ),
    "sparse_to_dense of a default": Call(
        lambda i, v, d: topi.sparse_to_dense(i, (6,), v, d),
        vector,
        lambda n: [whole(n, high=6), floats(n), floats()],
    ),
}


@pytest.mark.parametrize("name", CALLS)
def test_calls(name: str) -> None:
    check(CALLS[name], "llvm", N)


@pytest.mark.sampled(4)
@pytest.mark.parametrize("name", [name for name, call in CALLS.items() if call.empty])
def test_calls_without_elements(name: str) -> None:
    check(CALLS[name], "llvm", 0)


@pytest.mark.sampled(6)
@pytest.mark.parametrize("target", ["interpreter", on_opencl, on_cuda])
@pytest.mark.parametrize("name", CALLS)
def test_calls_on_devices(name: str, target: str) -> None:
    check(CALLS[name], target, N)


@pytest.mark.parametrize("place", [-7, 6])
def test_places_outside_are_found_when_the_kernel_runs(place: int) -> None:
    at = np.full((1, 6), place, np.int32)
    with pytest.raises(KernelError):
        ran(along(0, "add"), "llvm", [floats(6, 6), at, floats(1, 6)])
    with pytest.raises(KernelError):
        ran(at_points("update"), "llvm", [floats(5, 6, 3), np.array([[[1]], [[place]]], np.int32), floats(1, 1, 3)])


@pytest.mark.parametrize("target", ["llvm", "interpreter"])
@pytest.mark.parametrize("function", [topi.scatter_elements, topi.scatter_nd])
def test_unsigned_places_do_not_wrap(function: Callable[..., Any], target: str) -> None:
    at = np.array([(1 << 64) - 1], np.uint64).reshape((1, 1) if function is topi.scatter_nd else 1)
    with pytest.raises(KernelError):
        ran(Call(function, points), target, [floats(4), at, floats(1)])


M: Any = te.placeholder((4, 6), name="M")
AT = te.placeholder((4, 6), "int32", name="AT")
REFUSED: dict[str, tuple[Callable[[], Any], str]] = {
    "another shape": (lambda: topi.scatter_elements(M, AT, te.placeholder((4, 5))), "updates that fit both"),
    "more rows": (
        lambda: topi.scatter_elements(M, te.placeholder((5, 6), "int32"), te.placeholder((5, 6)), 1),
        "integer indices for",
    ),
    "no integers": (lambda: topi.scatter_elements(M, M, M), "integer indices for"),
    "another dtype": (lambda: topi.scatter_elements(M, AT, te.placeholder((4, 6), "float64")), "updates that fit"),
    "means of integers": (lambda: topi.scatter_elements(AT, AT, AT, 0, "mean"), "takes means of floats"),
    "means of integers at points": (lambda: topi.scatter_nd(AT, AT, AT, "mean"), "takes means of floats"),
    "another word": (lambda: topi.scatter_elements(M, AT, M, 0, "sum"), "got 'sum'"),
    "bools": (
        lambda: topi.scatter_elements(te.placeholder((4, 6), "bool"), AT, te.placeholder((4, 6), "bool"), 0, "add"),
        "bools by update",
    ),
    "symbolic": (lambda: topi.scatter_elements(te.placeholder((te.var("n"),)), AT, AT), "extents that are numbers"),
    "too many coordinates": (
        lambda: topi.scatter_nd(M, te.placeholder((3, 2), "int32"), te.placeholder((2,))),
        "integer indices for",
    ),
    "no coordinates": (lambda: topi.scatter_nd(M, te.placeholder((), "int32"), M), "integer indices for"),
    "places of another rank": (lambda: topi.sparse_to_dense(AT, (3, 4), M), "places of 2 coordinates"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_makes_no_sense_is_refused(name: str) -> None:
    call, message = REFUSED[name]
    with pytest.raises(DefinitionError, match=message):
        call()


def test_threads_share_the_columns_of_updates_that_wait_for_each_other() -> None:
    data, updates = te.placeholder((30, 80)), te.placeholder((2000, 80))
    at = te.placeholder((2000, 80), "int32")
    made = topi.scatter_elements(data, at, updates, 0, "add")
    s = topi.schedule(made, target="llvm -num-cores=2")
    assert "parallel a_1_o in range(2)" in str(tensorlang.lower(s, [data, at, updates, made]))
    given = [floats(30, 80), np.random.default_rng(3).integers(-30, 30, (2000, 80), np.int32), floats(2000, 80)]
    wanted, found = given[0].copy(), np.empty_like(given[0])
    np.add.at(wanted, (given[1], np.arange(80)), given[2])
    tensorlang.build(s, [data, at, updates, made])(*given, found)
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-4)
