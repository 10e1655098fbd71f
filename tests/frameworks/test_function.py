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


def test_tuned_and_exported(jax: Any, tmp_path: Path) -> None:
    log = tmp_path / "log.jsonl"

    @kernel(log=log, target="llvm -num-cores=1")
    def total(x: Any) -> Any:
        return topi.sum(x, 0)

    before, called = total.executable(X), str(jax.make_jaxpr(lambda x: total(x) + 1)(jax.numpy.asarray(X)))
    np.testing.assert_allclose(total(X), X.sum(0), rtol=1e-5)
    result = total.tune(X, trials=2)
    assert result.records
    after = total.executable(X)
    assert after is not before
    assert str(jax.make_jaxpr(lambda x: total(x) + 1)(jax.numpy.asarray(X))) != called
    np.testing.assert_allclose(total(X), X.sum(0), rtol=1e-5)
    total.export(tmp_path / "total", X, formats=("o", "h"))
    assert {"total.o", "total.h", "total.json"} <= {f.name for f in tmp_path.iterdir()}


@kernel(shapes={"x": "n, k", "w": "m, k", "b": "m"}, target="llvm -num-cores=1")
def open_layer(x: Any, w: Any, b: Any) -> Any:
    """The same for all sizes."""
    z = topi.dense(x, w)
    return topi.tanh(te.compute(z.shape, lambda i, j: z[i, j] + b[j], name="biased"))


def _drawn(n: int, k: int, m: int) -> list[Any]:
    return [r.standard_normal(shape).astype("float32") for shape in ((n, k), (m, k), (m,))]


def test_one_kernel_for_all_values_of_open_sizes(torch: Any, jax: Any, tmp_path: Path) -> None:
    for sizes in ((6, 5, 4), (7, 33, 18), (0, 2, 3), (1, 1, 1)):
        x, w, b = _drawn(*sizes)
        wanted = np.tanh(x @ w.T + b)
        np.testing.assert_allclose(open_layer(x, w, b), wanted, rtol=1e-4, atol=1e-5)
        slope = (1 - wanted**2).T @ x
        tensors = list(map(torch.from_numpy, (x, w, b)))
        tensors[1].requires_grad_()
        made = open_layer(*tensors)
        np.testing.assert_allclose(made.detach(), wanted, rtol=1e-4, atol=1e-5)
        made.sum().backward()
        np.testing.assert_allclose(tensors[1].grad, slope, rtol=1e-3, atol=1e-4)
        found = jax.grad(lambda w, x=x, b=b: open_layer(x, w, b).sum())(jax.numpy.asarray(w))
        np.testing.assert_allclose(found, slope, rtol=1e-3, atol=1e-4)
    assert ", 1 built)" in repr(open_layer)
    header = open_layer.export(tmp_path / "layer", x, w, b, formats=("h",)).files["h"].read_text()
    assert "int64_t n, int64_t k, int64_t m);" in header


def test_compilers_keep_open_sizes_open(torch: Any, jax: Any) -> None:
    from torch._dynamo.testing import CompileCounterWithBackend

    backend = CompileCounterWithBackend("aot_eager")
    step = torch.compile(lambda *a: open_layer(*a).sum(), fullgraph=True, backend=backend)
    for n in (6, 7, 8, 9):
        x, w, b = _drawn(n, 5, 4)
        got = step(*map(torch.from_numpy, (x, w, b)))
        np.testing.assert_allclose(got, np.tanh(x @ w.T + b).sum(), rtol=1e-4)
    assert backend.frame_count == 2  # a graph for 6, and when 7 comes one for all

    open_layer(*map(jax.numpy.asarray, _drawn(1, 2, 3)))
    (function,) = open_layer._functions.values()
    allowed = jax.export.DisabledSafetyCheck.custom_call(function.target)
    n = jax.export.symbolic_shape("n")[0]
    shapes = [jax.ShapeDtypeStruct(shape, "float32") for shape in ((n, 5), (4, 5), (4,))]
    exported = jax.export.export(jax.jit(open_layer), disabled_checks=[allowed])(*shapes)
    np.testing.assert_allclose(exported.call(x, w, b), np.tanh(x @ w.T + b), rtol=1e-4, atol=1e-5)


def test_open_sizes_that_are_tuned_get_a_kernel_of_their_own(torch: Any, tmp_path: Path) -> None:
    @kernel(shapes={"x": "n, 5"}, log=tmp_path / "log.jsonl", target="llvm -num-cores=1")
    def doubled(x: Any) -> Any:
        return te.compute(x.shape, lambda i, j: x[i, j] * 2, name="doubled")

    calls = doubled(X), doubled(torch.from_numpy(X))
    whole = doubled.executable(X)
    doubled.tune(X, trials=1)
    own = doubled.executable(X)
    assert "x: float32[6, 5]" in repr(own) and "x: float32[n, 5]" in repr(whole)
    assert doubled.executable(X[:4]) is whole
    for value in (*calls, doubled(X), doubled(torch.from_numpy(X))):
        np.testing.assert_array_equal(value, X * 2)


def test_functions_are_made_of_functions() -> None:
    @kernel
    def two(x: Any, w: Any, b: Any) -> Any:
        return layer(open_layer(x, w, b), w, b)

    x, w, b = _drawn(3, 4, 4)
    np.testing.assert_allclose(two(x, w, b), np.tanh(np.tanh(x @ w.T + b) @ w.T + b), rtol=1e-4, atol=1e-5)


def test_libraries_are_not_mixed(torch: Any, jax: Any) -> None:
    x, w, b = map(torch.from_numpy, (X, W, B))
    for args, got in (((x, W, b), "Tensor and ndarray"), ((X, w, b), "ndarray and Tensor")):
        with pytest.raises(ArgumentError, match=f"layer wants arrays of one library, got {got}"):
            layer(*args)
    np.testing.assert_allclose(layer(X, jax.numpy.asarray(W), B), _expected(X), rtol=1e-5)


def test_attributes_of_kernels_are_found_by_their_way() -> None:
    with pytest.raises(AttributeError, match=r"that has profile, as layer.executable\(x, w, b, factor\).profile"):
        layer.profile
    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        layer.nothing
    assert layer.executable(X, W, B).warnings() == ()


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


def test_shapes_that_do_not_fit() -> None:
    wrong: Any
    for wrong, message in (
        ({"y": "n"}, "has no parameter 'y'; it has x"),
        ({"x": "n, x"}, "the shape of x is 'n, x'; write its sizes as names, numbers, or _"),
        ({"x": (3,)}, r"the shape of x is \(3,\)"),
        ("n", "shapes are those of parameters"),
    ):
        with pytest.raises(DefinitionError, match=message):
            kernel(shapes=wrong)(lambda x: x)
    rows = kernel(shapes={"x": "n, 5, _"})(lambda x: topi.sum(x, 2))
    for shape in ((2, 5), (2, 4, 3)):
        with pytest.raises(ArgumentError, match=r"x: expected an array of the shape \(n, 5, _\), got one of \(2, "):
            rows(np.ones(shape, "float32"))
    with pytest.raises(ArgumentError, match=r"open_layer: w has 5 \(k\) in dimension 1, got 4"):
        open_layer(X, W[:, :4], B)
