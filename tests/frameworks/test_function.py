"""`@tensorlang.kernel`: functions of tensors on the arrays of NumPy, PyTorch and JAX."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tensorlang
from tensorlang import te, topi
from tensorlang.errors import ArgumentError, DefinitionError
from tensorlang.frameworks.function import kernel

r = np.random.default_rng(0)
X, W, B = (r.standard_normal(s).astype("float32") for s in ((6, 5), (4, 5), (4,)))


@kernel
def layer(x: Any, w: Any, b: Any, factor: float = 1.0) -> Any:
    """tanh(x w' factor + b)."""
    z = topi.dense(x, w)
    return topi.tanh(te.compute(z.shape, lambda i, j: z[i, j] * factor + b[j], name="biased"))


@kernel
def both(x: Any, axis: int) -> Any:
    return topi.sum(x, axis), topi.max(x, axis)


def _expected(x: Any, factor: float = 1.0) -> Any:
    return np.tanh(x @ W.T * factor + B)


def test_arrays() -> None:
    np.testing.assert_allclose(layer(X, W, B), _expected(X), rtol=1e-5)
    np.testing.assert_allclose(layer(X[::2], W, b=B, factor=2.0), _expected(X[::2], 2.0), rtol=1e-5)
    total, most = both(X, axis=1)
    np.testing.assert_allclose(total, X.sum(1), rtol=1e-5)
    np.testing.assert_array_equal(most, X.max(1))
    assert tensorlang.kernel is kernel
    assert layer.__doc__ == "tanh(x w' factor + b)."
    assert repr(both) == "tensorlang.kernel(both(x: 'Any', axis: 'int') -> 'Any', 1 built)"


def test_a_kernel_for_each_kind_of_arguments() -> None:
    calls = []

    @kernel
    def twice(x: Any, factor: Any) -> Any:
        calls.append((tuple(map(int, x.shape)), x.dtype, factor))
        return te.compute(x.shape, lambda *i: x(*i) * factor, name="twice")

    for given in (X, X + 1, X[:3], X.astype("float64"), X.astype("float16")):
        for factor in (1, 1.0, True):
            assert twice(given, factor).dtype == given.dtype
    assert len(calls) == len(set(map(str, calls))) == 12
    assert twice.executable(X, 1) is twice.executable(X + 3, 1)
    assert len(calls) == 12


def test_tensors(torch: Any) -> None:
    x, w, b = map(torch.from_numpy, (X, W, B))
    np.testing.assert_allclose(layer(x, w, b), _expected(X), rtol=1e-5)
    assert [t.shape for t in both(x, 0)] == [(5,), (5,)]
    given = w.clone().requires_grad_()
    layer(x, given, b, 2.0).sum().backward()
    slope = 1 - torch.tanh(x @ w.T * 2 + b) ** 2
    torch.testing.assert_close(given.grad, 2 * slope.T @ x)
    torch.testing.assert_close(torch.func.grad(lambda w: layer(x, w, b, 2.0).sum())(w), given.grad)


def test_compiled_tensors(torch: Any) -> None:
    """The compiler meets a function first, and asks for other sizes then."""

    @kernel
    def scaled(x: Any, factor: float) -> Any:
        return te.compute(x.shape, lambda *i: te.exp(x(*i) * factor), name="scaled")

    step = torch.compile(lambda x: scaled(x + 1, 0.5).sum(), fullgraph=True, backend="aot_eager")
    for size in (3, 4, 5):
        x = torch.rand(size, requires_grad=True)
        loss = step(x)
        loss.backward()
        torch.testing.assert_close(loss, ((x + 1) * 0.5).exp().sum())
        torch.testing.assert_close(x.grad, ((x + 1) * 0.5).exp() * 0.5)


def test_what_has_no_gradient_says_so_when_one_is_wanted(torch: Any) -> None:
    @kernel
    def copied(x: Any) -> Any:
        return te.extern(x.shape, [x], lambda a, o: np.copyto(o, a), name="copied")

    x = torch.ones(3)
    assert torch.equal(copied(x), x)
    with pytest.raises(DefinitionError, match="knows no derivative of copied"):
        copied(x.requires_grad_())


def test_arrays_of_jax(jax: Any) -> None:
    x, w, b = map(jax.numpy.asarray, (X, W, B))
    np.testing.assert_allclose(layer(x, w, b), _expected(X), rtol=1e-5)
    np.testing.assert_allclose(jax.jit(layer, static_argnums=3)(x, w, b, 2.0), _expected(X, 2.0), rtol=1e-5)
    slope = 1 - _expected(X) ** 2
    grad = jax.grad(lambda w: layer(x, w, b).sum())(w)
    np.testing.assert_allclose(grad, slope.T @ X, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(jax.vmap(lambda x: both(x, 0)[0])(x[None]), X.sum(0)[None], rtol=1e-5)


def test_tuned_and_exported(tmp_path: Path) -> None:
    log = tmp_path / "log.jsonl"

    @kernel(log=log, target="llvm -num-cores=1")
    def total(x: Any) -> Any:
        return topi.sum(x, 0)

    before = total.executable(X)
    np.testing.assert_allclose(total(X), X.sum(0), rtol=1e-5)
    result = total.tune(X, trials=2)
    assert result.records
    after = total.executable(X)
    assert after is not before
    np.testing.assert_allclose(total(X), X.sum(0), rtol=1e-5)
    total.export(tmp_path / "total", X, formats=("o", "h"))
    assert {"total.o", "total.h", "total.json"} <= {f.name for f in tmp_path.iterdir()}


def test_libraries_are_not_mixed(torch: Any, jax: Any) -> None:
    x, w, b = map(torch.from_numpy, (X, W, B))
    for args, got in (((x, W, b), "Tensor and ndarray"), ((X, w, b), "ndarray and Tensor")):
        with pytest.raises(ArgumentError, match=f"layer wants arrays of one library, got {got}"):
            layer(*args)
    np.testing.assert_allclose(layer(X, jax.numpy.asarray(W), B), _expected(X), rtol=1e-5)


def test_refusals() -> None:
    with pytest.raises(ArgumentError, match="layer wants arrays of NumPy, PyTorch or JAX, got 1, 2, 3"):
        layer(1, 2, 3, 4)
    with pytest.raises(ArgumentError, match=r"layer\(x: .*\) -> 'Any': missing a required argument: 'w'"):
        layer(X)
    with pytest.raises(ArgumentError, match=r"both takes arrays, and values that can be hashed, got \[1\]"):
        both(X, [1])
    for wrong, got in ((lambda x: 3, "3"), (lambda x: x, "Tensor"), (lambda x: (), r"\(\)")):
        with pytest.raises(DefinitionError, match=f"returns a tensor that is computed, or several, got .*{got}"):
            kernel(wrong)(X)
    with pytest.raises(DefinitionError, match="takes any number of arguments; name each"):
        kernel(lambda *x: x)
