"""Programs with what GPUs make hard: order, data-dependent elements, and stages between threads."""

from __future__ import annotations

from typing import Any

from tensorlang import te
from tests.programs import Case


@te.hybrid.script
def smooth(a: Any) -> Any:
    out = output_tensor((4, 16), "float32")  # type: ignore[name-defined]  # noqa: F821
    for r in range(4):
        for j in range(16):
            out[r, j] = a[j]
    for t in range(3):
        for i in range(14):
            out[t + 1, i + 1] = out[t, i] + out[t, i + 1] + out[t, i + 2]
    return out


@te.hybrid.script
def relax(a: Any) -> Any:
    out = output_tensor((16,), "float32")  # type: ignore[name-defined]  # noqa: F821
    for j in range(16):
        out[j] = a[j]
    for i in range(1, 15):
        out[i] = out[i - 1] + out[i + 1]
    return out


@te.hybrid.script
def count(x: Any) -> Any:
    h = output_tensor((8,), "int32")  # type: ignore[name-defined]  # noqa: F821
    for b in range(8):
        h[b] = 0
    for i in range(32):
        h[x[i]] = h[x[i]] + 1
    return h


def _scheduled(made: Any, *inputs: Any) -> Case:
    return Case(te.create_schedule(made.op), (*inputs, made))


def smoothed() -> Case:
    """Three time steps of a stencil; each makes a row from the one before."""
    A = te.placeholder((16,), name="A")
    return _scheduled(smooth(A), A)


def in_place() -> Case:
    """A stencil that overwrites what it reads."""
    A = te.placeholder((16,), name="A")
    return _scheduled(relax(A), A)


def counts() -> Case:
    """A histogram."""
    X = te.placeholder((32,), "int32", name="X")
    return _scheduled(count(X), X)


def prefix(n: int = 32) -> Case:
    """Sums of all beginnings."""
    A = te.placeholder((n,), name="A")
    P = te.recurrence((n,), lambda own, i: te.if_then_else(i > 0, own[i - 1] + A[i], A[i]), name="P")
    return _scheduled(P, A)


def over_time(n: int = 8) -> Case:
    """Sums over time; columns are independent."""
    X, state = te.placeholder((6, n), name="X"), te.placeholder((6, n), name="state")
    init = te.compute((1, n), lambda _, i: X[0, i], name="init")
    update = te.compute((6, n), lambda t, i: state[t - 1, i] + X[t, i], name="update")
    return _scheduled(te.scan(init, update, state, inputs=[X], name="sums"), X)


def rows(n: Any = 32, m: int = 32, dtype: str = "float32") -> Case:
    """B = A + 1; C = each element of B and the next one in its row."""
    A = te.placeholder((n, m + 1), dtype, name="A")
    B = te.compute((n, m + 1), lambda i, j: A[i, j] + 1, name="B")
    C = te.compute((n, m), lambda i, j: B[i, j] + B[i, j + 1], name="C")
    return _scheduled(C, A)
