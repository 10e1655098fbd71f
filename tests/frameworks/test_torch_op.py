"""Kernels as operators of PyTorch: values, gradients, transforms, the compiler, and what is refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tensorlang
from tensorlang import te
from tensorlang.errors import ArgumentError, DefinitionError, MissingDependency
from tests import profiles
from tests.frameworks import programs
from tests.frameworks.programs import K, M, N, built


@pytest.fixture(scope="module")
def layer(torch: Any) -> Any:
    """A layer as an operator."""
    return built(programs.layer(), "layer").torch_op("tests::layer")


@pytest.fixture(scope="module")
def arrays(torch: Any) -> tuple[Any, ...]:
    """Its arguments."""
    torch.manual_seed(0)
    return torch.randn(N, K), torch.randn(M, K), torch.randn(M)


@pytest.fixture
def ours_and_torchs(torch: Any, layer: Any) -> Callable[[Callable[[Any], Any]], None]:
    """Compare what a function makes of our layer with what it makes of torch's."""

    def theirs(x: Any, w: Any, b: Any) -> Any:
        return torch.nn.functional.gelu(torch.nn.functional.linear(x, w, b))

    def compare(use: Callable[[Any], Any]) -> None:
        torch.testing.assert_close(use(layer), use(theirs), rtol=1e-4, atol=1e-5)

    return compare


Compare = Callable[[Callable[[Any], Any]], None]


def _gradients(function: Any, arrays: tuple[Any, ...], wanted: tuple[int, ...] = (0, 1, 2)) -> list[Any]:
    given = [a.clone().requires_grad_(n in wanted) for n, a in enumerate(arrays)]
    (function(*given) ** 2).sum().backward()
    return [a.grad for a in given]


def test_values(ours_and_torchs: Compare, arrays: tuple[Any, ...], torch: Any) -> None:
    x, w, b = arrays
    ours_and_torchs(lambda f: f(x, w, b))
    ours_and_torchs(lambda f: f(x.t().contiguous().t(), w.t().contiguous().t(), b))
    assert str(torch.ops.tests.layer.default._schema) == "tests::layer(Tensor x, Tensor w, Tensor b) -> Tensor"
    with torch.no_grad():
        assert torch.ops.tests.layer(x, w.clone().requires_grad_(), b).requires_grad is False
    with torch.inference_mode():
        ours_and_torchs(lambda f: f(x + 0, w, b))


@pytest.mark.parametrize("wanted", [(0, 1, 2), (1,), (0, 2)])
def test_gradients(ours_and_torchs: Compare, arrays: tuple[Any, ...], wanted: tuple[int, ...]) -> None:
    ours_and_torchs(lambda f: [g for g in _gradients(f, arrays, wanted) if g is not None])


def test_only_gradients_that_are_wanted_are_computed(layer: Any, arrays: tuple[Any, ...], torch: Any) -> None:
    _gradients(layer, arrays, (1,))
    assert str(torch.ops.tests.layer_backward_1.default._schema).endswith("-> Tensor")
    assert _gradients(layer, arrays, (1,))[0] is None


def test_second_derivatives(ours_and_torchs: Compare, arrays: tuple[Any, ...], torch: Any) -> None:
    x, w, b = arrays

    def twice(f: Any) -> Any:
        given = w.clone().requires_grad_()
        (first,) = torch.autograd.grad((f(x, given, b) ** 2).sum(), given, create_graph=True)
        return torch.autograd.grad((first**2).sum(), given)

    ours_and_torchs(twice)


def test_transforms(ours_and_torchs: Compare, arrays: tuple[Any, ...], torch: Any) -> None:
    x, w, b = arrays
    grad, vmap = torch.func.grad, torch.vmap
    batch = torch.stack([x, 2 * x, -x], dim=1)

    def loss(f: Any, w: Any, x: Any = x) -> Any:
        return (f(x, w, b) ** 2).sum()

    ours_and_torchs(lambda f: vmap(f, in_dims=(1, None, None), out_dims=1)(batch, w, b))
    ours_and_torchs(lambda f: grad(lambda w: loss(f, w))(w))
    ours_and_torchs(lambda f: grad(lambda w: (grad(lambda w: loss(f, w))(w) ** 2).sum())(w))
    ours_and_torchs(lambda f: vmap(grad(lambda w, x: loss(f, w, x)), in_dims=(None, 1))(w, batch))
    ours_and_torchs(lambda f: grad(lambda s: vmap(lambda x: loss(f, w, x * s), in_dims=1)(batch).sum())(torch.ones(())))


def test_forward_mode_is_refused(layer: Any, arrays: tuple[Any, ...], torch: Any) -> None:
    x, w, b = arrays
    with pytest.raises(NotImplementedError, match="jvp"):
        torch.func.jacfwd(lambda w: layer(x, w, b))(w)


def test_modes_see_the_operator(layer: Any, arrays: tuple[Any, ...], torch: Any) -> None:
    from torch.fx.experimental.proxy_tensor import make_fx
    from torch.utils._python_dispatch import TorchDispatchMode

    seen = []

    class Log(TorchDispatchMode):  # type: ignore[misc]
        def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            seen.append(str(function))
            return function(*args, **(kwargs or {}))

    with Log():
        layer(*arrays)
    assert seen == ["tests.layer.default"]
    assert "tests.layer.default" in str(make_fx(layer)(*arrays).graph)


def test_the_compiler_takes_it_whole(ours_and_torchs: Compare, arrays: tuple[Any, ...], torch: Any) -> None:
    backend = "inductor" if profiles.NIGHTLY else "aot_eager"

    def compiled(f: Any) -> Any:
        step = torch.compile(lambda *a: f(*a).sin(), fullgraph=True, backend=backend)
        return [step(*arrays), *_gradients(step, arrays)]

    ours_and_torchs(compiled)


def test_export(layer: Any, arrays: tuple[Any, ...], torch: Any) -> None:
    class Model(torch.nn.Module):  # type: ignore[misc]
        def forward(self, x: Any, w: Any, b: Any) -> Any:
            return layer(x, w, b) + 1

    exported = torch.export.export(Model(), arrays)
    assert next(n.target for n in exported.graph.nodes if n.op == "call_function") == torch.ops.tests.layer.default
    torch.testing.assert_close(exported.module()(*arrays), layer(*arrays) + 1)


def test_opcheck_of_symbolic_sizes(torch: Any) -> None:
    """Sizes from shapes, and one that is an argument."""
    n, m, r = te.var("n"), te.var("m"), te.var("r")
    x = te.placeholder((n, m), name="x")
    y = te.compute((n * r, m), lambda i, j: te.tanh(x[i // r, j]), name="y")
    op = built([x, y], "repeat", r).torch_op("tests::repeat")
    for shape, times in (((3, 4), 2), ((2, 5), 3)):
        given = torch.randn(shape)
        torch.testing.assert_close(op(times, given), given.tanh().repeat_interleave(times, 0))
        torch.library.opcheck(op.default, (times, given.requires_grad_()))


@pytest.mark.parametrize("shape", [(), (1,), (2, 1, 3, 1)])
def test_results_of_few_elements(torch: Any, shape: tuple[int, ...]) -> None:
    x, k = te.placeholder((N,), name="x"), te.reduce_axis((0, N), "k")
    y = te.compute(shape, lambda *i: te.sum(x[k] * x[k] + sum(i), axis=k), name="y")
    op = built([x, y], "few").torch_op(f"tests::few{len(shape)}")
    given = torch.arange(float(N), requires_grad=True)
    torch.library.opcheck(op.default, (given,))
    made = op(given)
    assert (made.shape, made.stride()) == (shape, torch.empty(shape).stride())
    made.sum().backward()
    torch.testing.assert_close(given.grad, 2 * given.detach() * made.numel())


def test_several_outputs_and_integers(torch: Any) -> None:
    x, i = te.placeholder((N, M), name="x"), te.placeholder((N,), dtype="int64", name="i")
    taken = te.compute((N, M), lambda a, b: x[i[a], b] * x[a, b], name="taken")
    total = te.compute((N,), lambda a: x[a, 0] * x[a, 1], name="total")
    signs = te.compute((N, M), lambda a, b: (x[a, b] > 0).astype("int32"), name="signs")
    op = built([x, i, taken, total, signs], "several").torch_op("tests::several")
    index = torch.tensor([0, 5, 5, 1, 2, 0])

    def theirs(x: Any, i: Any) -> Any:
        return x[i] * x, x[:, 0] * x[:, 1], (x > 0).to(torch.int32)

    def both(f: Any) -> Any:
        x = torch.randn(N, M, generator=torch.Generator().manual_seed(1)).requires_grad_()
        taken, total, signs = f(x, index)
        ((taken.sum() + (total**2).sum()) * 2).backward()
        return taken, total, signs, x.grad

    torch.testing.assert_close(both(op), both(theirs))
    x = torch.randn(N, M, requires_grad=True)
    assert [t.requires_grad for t in op(x, index)] == [True, True, False]
    torch.library.opcheck(op.default, (x, index))
    torch.testing.assert_close(torch.vmap(op)(torch.stack([x, x]), torch.stack([index] * 2))[0][1], op(x, index)[0])


def test_outputs_at_hand_are_not_computed_again(torch: Any) -> None:
    x = te.placeholder((N, M), name="x")
    k = te.reduce_axis((0, M), "k")
    total = te.compute((N,), lambda i: te.sum(x[i, k], axis=k), name="total")
    op = built([x, te.compute((N,), lambda i: te.tanh(total[i]), name="y")], "row").torch_op("tests::row")
    x = torch.randn(N, M, requires_grad=True)
    op(x).sum().backward()
    torch.testing.assert_close(x.grad, (1 - x.sum(1).tanh() ** 2)[:, None].expand(N, M))
    assert "row_backward(Tensor y_saved, Tensor head0) -> Tensor" in str(torch.ops.tests.row_backward.default._schema)
    (first,) = torch.autograd.grad(op(x).sum(), x, create_graph=True)
    (second,) = torch.autograd.grad(first.sum(), x)
    y = x.sum(1).tanh()
    torch.testing.assert_close(second, (M * -2 * y * (1 - y**2))[:, None].expand(N, M))


def test_updates_in_place(torch: Any) -> None:
    @te.hybrid.script
    def scaled(a: Any) -> Any:
        for i in range(N):
            a[i] = a[i] * 2.0
        return a

    a = te.placeholder((N,), name="a")
    updated = scaled(a)
    kernel = tensorlang.build(te.create_schedule(updated.op), [updated], name="scaled")
    op = kernel.torch_op("tests::scaled", backward=False)
    assert str(op.default._schema) == "tests::scaled(Tensor(a!) a) -> ()"
    values = torch.arange(N, dtype=torch.float32)
    op(values)
    assert values.tolist() == [2.0 * n for n in range(N)]
    spread = torch.ones(2 * N)
    op(spread[::2])
    assert spread.tolist() == [2.0, 1.0] * N
    torch.library.opcheck(op.default, (torch.ones(N),))
    with pytest.raises(DefinitionError, match="updates an input in place: it has no gradient"):
        kernel.torch_op("tests::scaled2")


def test_a_backward_of_ones_own(torch: Any) -> None:
    x, h = te.placeholder((N,), name="x"), te.placeholder((N,), name="h")
    forward = built([x, te.compute((N,), lambda i: x[i] * x[i], name="y")], "square")
    own = built([x, h, te.compute((N,), lambda i: 3.0 * x[i] * h[i], name="g")], "own")
    op = forward.torch_op("tests::square", backward=own)
    given = torch.arange(N, dtype=torch.float32, requires_grad=True)
    (grad,) = torch.autograd.grad(op(given).sum(), given, create_graph=True)
    assert grad.tolist() == [3.0 * n for n in range(N)]
    assert torch.autograd.grad(grad.sum(), given)[0].tolist() == [3.0] * N
    with pytest.raises(
        DefinitionError, match=r"takes float32\[6\], float32\[6\] and makes .*; square takes float32\[6\] and"
    ):
        forward.torch_op("tests::square2", backward=forward)


def test_refusals(torch: Any, layer: Any, arrays: tuple[Any, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    x, w, b = arrays
    kernel = built(programs.layer(), "layer")
    for name in ("layer", "a::b::c", "a::", "a::b c", 3):
        with pytest.raises(DefinitionError, match="named 'namespace::name', got"):
            kernel.torch_op(name)  # type: ignore[arg-type]
    with pytest.raises(DefinitionError, match="tests::layer is an operator already"):
        kernel.torch_op("tests::layer")
    with pytest.raises(DefinitionError, match="backward is True, False or a kernel, got 'auto'"):
        kernel.torch_op("tests::other", backward="auto")  # type: ignore[arg-type]
    with pytest.raises(ArgumentError, match="expected dtype float32, got float64"):
        layer(x.double(), w, b)
    with pytest.raises(Exception, match=r"layer: w has 5 \(5\) in dimension 1, got 3"):
        torch.compile(layer, fullgraph=True, backend="eager")(x, w[:, :3], b)
    extern = te.extern((N,), [te.placeholder((N,), name="a")], lambda a, o: np.copyto(o, a), name="e")
    with pytest.raises(DefinitionError, match=r"te.gradient knows no derivative of e, made by te\.extern"):
        built([extern.op.input_tensors[0], extern], "e").torch_op("tests::extern")
    from tensorlang.frameworks import torch_op

    monkeypatch.setitem(__import__("sys").modules, "torch", None)
    torch_op.pytorch.cache_clear()
    with pytest.raises(MissingDependency, match="pip install torch"):
        kernel.torch_op("tests::missing")


@pytest.mark.parametrize("target", ["llvm", "interpreter"])
def test_a_plain_kernel_breaks_the_graph_of_the_compiler(torch: Any, target: str) -> None:
    a, b = te.placeholder((3,), name="a"), te.placeholder((3,), name="b")
    c = te.compute((3,), lambda i: a[i] + b[i], name="c")
    kernel = tensorlang.build(te.create_schedule(c.op), [a, b, c], target=target)

    def step(x: Any) -> Any:
        made = torch.empty(3)
        kernel(x + 1, x, made)
        return made * 2

    x = torch.ones(3)
    torch._dynamo.reset()
    for _ in range(2):
        assert torch.compile(step, backend="eager")(x).tolist() == [6.0] * 3
    with pytest.raises(ArgumentError, match="takes 3 arguments"):
        torch.compile(lambda x: kernel(x) or x, backend="eager")(x)
    torch._dynamo.reset()
    with pytest.raises(torch._dynamo.exc.Unsupported):
        torch.compile(step, backend="eager", fullgraph=True)(x)
