"""Kernels as functions of JAX: values, gradients, transforms, and what is refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tensorlang import te
from tensorlang.errors import ArgumentError, DefinitionError, MissingDependency, TargetError
from tests.frameworks.programs import K, M, N, built, layer

Compare = Callable[[Callable[[Any], Any]], None]


@pytest.fixture(scope="module")
def ours(jax: Any) -> Any:
    """A layer as a function."""
    return built(layer(), "layer").jax_op()


@pytest.fixture(scope="module")
def arrays(jax: Any) -> tuple[Any, ...]:
    """Its arguments."""
    r = np.random.default_rng(0)
    return tuple(jax.numpy.asarray(r.standard_normal(s), "float32") for s in ((N, K), (M, K), (M,)))


@pytest.fixture
def compare(jax: Any, ours: Any) -> Compare:
    """Compare what a function makes of our layer with what it makes of JAX's."""

    def theirs(x: Any, w: Any, b: Any) -> Any:
        return jax.nn.gelu(x @ w.T + b, approximate=False)

    def check(use: Callable[[Any], Any]) -> None:
        for a, b in zip(*(jax.tree_util.tree_leaves(use(f)) for f in (ours, theirs)), strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5 * float(abs(b).max()) + 1e-6)

    return check


def test_values_and_gradients(compare: Compare, arrays: tuple[Any, ...], jax: Any) -> None:
    compare(lambda f: f(*arrays))
    compare(lambda f: f(*map(np.asarray, arrays)))
    for wanted in ((0, 1, 2), (1,), (0, 2)):
        compare(lambda f, wanted=wanted: jax.grad(lambda *a: (f(*a) ** 2).sum(), wanted)(*arrays))  # type: ignore[misc]


def test_transforms(compare: Compare, arrays: tuple[Any, ...], jax: Any) -> None:
    x, w, b = arrays
    batch = jax.numpy.stack([x, 2 * x, -x], 1)

    def loss(f: Any, w: Any) -> Any:
        return (f(x, w, b) ** 2).sum()

    compare(lambda f: jax.jit(lambda *a: f(*a) + 1)(*arrays))
    compare(lambda f: jax.vmap(f, (1, None, None), 1)(batch, w, b))
    compare(lambda f: jax.jit(jax.grad(lambda w: (jax.grad(lambda w: loss(f, w))(w) ** 2).sum()))(w))
    compare(lambda f: jax.vmap(jax.grad(lambda x: f(x, w, b).sum()), 1)(batch))


def test_check_grads(ours: Any, arrays: tuple[Any, ...], jax: Any) -> None:
    from jax.test_util import check_grads

    check_grads(ours, arrays, order=2, modes=["rev"], rtol=2e-2, atol=2e-2)


def test_export(ours: Any, arrays: tuple[Any, ...], jax: Any) -> None:
    from jax import export

    allowed = export.DisabledSafetyCheck.custom_call(ours.target)
    exported = export.export(jax.jit(lambda *a: ours(*a) + 1), disabled_checks=[allowed])(*arrays)
    again = export.deserialize(exported.serialize())
    np.testing.assert_allclose(again.call(*arrays), ours(*arrays) + 1, rtol=1e-6)


def test_sizes_integers_and_several_outputs(jax: Any) -> None:
    n, r = te.var("n"), te.var("r")
    x, i = te.placeholder((n, 3), name="x"), te.placeholder((n,), dtype="int32", name="i")
    taken = te.compute((n, 3), lambda a, b: x[i[a], b] * x[a, b], name="taken")
    many = te.compute((n, r), lambda a, b: te.tanh(x[a, 0]) * (b + 1).astype("float32"), name="many")
    signs = te.compute((n,), lambda a: (x[a, 1] > 0).astype("int32"), name="signs")
    function = built([x, i, taken, many, signs], "several", r).jax_op()
    index = jax.numpy.array([1, 0, 3, 3])

    def theirs(r: int, x: Any, i: Any) -> Any:
        many = jax.numpy.tanh(x[:, :1]) * jax.numpy.arange(1.0, r + 1)
        return x[i] * x, many, (x[:, 1] > 0).astype("int32")

    def all_of(f: Any) -> Any:
        x = jax.numpy.asarray(np.random.default_rng(1).standard_normal((4, 3)), "float32")

        def loss(x: Any, which: int) -> Any:
            return (f(2, x, index)[which] ** 2).sum()

        return [*f(2, x, index), *(jax.grad(loss)(x, which) for which in (0, 1))]

    for a, b in zip(all_of(function), all_of(theirs), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)


def test_a_parallel_loop_and_scratch(jax: Any) -> None:
    import tensorlang

    x = te.placeholder((64, 64), name="x")
    y = te.compute((64, 64), lambda i, j: te.exp(x[i, j]), name="y")
    z = te.compute((64, 64), lambda i, j: y[j, i] + y[i, j], name="z")
    s = te.create_schedule(z.op)
    for stage in (y, z):
        s[stage].parallel(stage.op.axis[0])
    function = tensorlang.build(s, [x, z], "llvm -num-cores=2", name="turned").jax_op(backward=False)
    given = np.random.default_rng(2).random((64, 64), np.float32)
    np.testing.assert_allclose(function(given), np.exp(given) + np.exp(given).T, rtol=1e-5)
    with pytest.raises(ValueError, match="cannot be differentiated"):
        jax.grad(lambda x: function(x).sum())(given)


def test_refusals(ours: Any, arrays: tuple[Any, ...], jax: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    x, w, b = arrays
    with pytest.raises(ArgumentError, match=r"layer: b has 4 \(4\) in dimension 0, got 3"):
        ours(x, w, b[:3])
    with pytest.raises(ArgumentError, match=r"x: expected dtype float32, got int32; use \.astype"):
        ours(x.astype("int32"), w, b)
    with pytest.raises(ArgumentError, match=r"layer takes 3 arguments \(x, w, b\), got 2"):
        ours(x, w)
    with pytest.raises(DefinitionError, match="backward is True, False or a kernel, got 3"):
        built(layer(), "layer").jax_op(backward=3)  # type: ignore[arg-type]
    extern = te.extern((N,), [te.placeholder((N,), name="a")], lambda a, o: np.copyto(o, a), name="e")
    with pytest.raises(TargetError, match="e calls Python: XLA cannot call it"):
        built([extern.op.input_tensors[0], extern], "e").jax_op(backward=False)(np.ones(N, "float32"))
    from tensorlang.frameworks import jax_op

    monkeypatch.setitem(__import__("sys").modules, "jax", None)
    jax_op.jax.cache_clear()
    with pytest.raises(MissingDependency, match="pip install jax"):
        built(layer(), "layer").jax_op()
