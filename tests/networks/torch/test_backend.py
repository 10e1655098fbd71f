"""torch.compile(backend="tensorlang"): equal to PyTorch, forward and backward; what stays with it is told."""

from __future__ import annotations

import configparser
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from tensorlang import config
from tensorlang.networks.torch import forget, report
from tensorlang.networks.torch.backend import compile_graph

torch = pytest.importorskip("torch")
nn = torch.nn
F = nn.functional
ROOT = Path(__file__).parents[3]


@pytest.fixture(autouse=True)
def _anew() -> Iterator[None]:
    torch._dynamo.reset()
    forget()
    yield
    torch._dynamo.reset()


class Mixed(nn.Module):  # type: ignore[misc, name-defined]
    """Layers that have rules around one that has none."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.norm, self.last = nn.Linear(6, 8), nn.LayerNorm(8), nn.Linear(8, 3, bias=False)

    def forward(self, x: Any) -> Any:
        """Running maxima of features, and their product."""
        hidden = torch.cummax(F.gelu(self.norm(self.first(x))), dim=-1).values
        return self.last(hidden).log_softmax(-1), hidden.transpose(0, 1)


def near(made: Any, wanted: Any) -> None:
    torch.testing.assert_close(made, wanted, rtol=1e-4, atol=1e-5)


def test_inference_with_a_call_that_has_no_rule() -> None:
    torch.manual_seed(0)
    module, x = Mixed().eval(), torch.randn(5, 6)
    compiled = torch.compile(module, backend=compile_graph)
    with torch.no_grad():
        made, wanted = compiled(x), module(x)
        near(made, wanted)
        assert made[1].stride() == wanted[1].stride()
        (graph,) = report()
        assert graph.graph == "inference" and len(graph.kernels) == 2 and graph.taken >= 6
        assert [(r.op, r.why) for r in graph.left] == [("cummax.default", "this operator is not known yet")]
        module.first.weight.mul_(2.0)
        near(compiled(x), module(x))
        near(compiled(x[:3]), module(x[:3]))
        near(compiled(x[:2]), module(x[:2]))
    assert [g.graph for g in report()] == ["inference"] * 3


def test_what_is_passed_on_has_the_strides_of_torch() -> None:
    def passing(x: Any) -> Any:
        doubled = x * 2
        wide, turned = doubled[:, :1].expand(4, 6), doubled.t()
        return torch.cummax(wide, -1).values, turned.cummax(-1).values, wide.as_strided((4,), (wide.stride(0),))

    x = torch.randn(4, 3)
    near(torch.compile(passing, backend=compile_graph)(x), passing(x))
    (graph,) = report()
    assert graph.taken and {r.op for r in graph.left} == {"cummax.default"}


class Small(nn.Module):  # type: ignore[misc, name-defined]
    """A convolution with a norm in training, a residual, a pool, and a classifier behind a layer norm."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm = nn.Conv2d(3, 4, 3, padding=1), nn.BatchNorm2d(4)
        self.layer, self.head = nn.LayerNorm(4), nn.Linear(4, 3)

    def forward(self, x: Any) -> Any:
        """Logits."""
        x = self.norm(self.conv(x))
        x = F.max_pool2d(x + F.silu(x), 2)
        return self.head(self.layer(F.gelu(x.mean((2, 3)))))


def test_training_goes_the_way_of_torch() -> None:
    torch.manual_seed(0)
    plain, other = Small(), Small()
    other.load_state_dict(plain.state_dict())
    compiled = torch.compile(other, backend=compile_graph)
    for step in range(2):
        x, y = torch.randn(2, 3, 6, 6), torch.tensor([step, 2])
        for module, call in ((plain, plain), (other, compiled)):
            module.zero_grad()
            F.cross_entropy(call(x), y).backward()
            with torch.no_grad():
                for parameter in module.parameters():
                    parameter -= 0.1 * parameter.grad
        for (name, one), two in zip(plain.named_parameters(), other.parameters(), strict=True):
            torch.testing.assert_close(
                two.grad, one.grad, rtol=1e-4, atol=1e-5, msg=lambda text, name=name: name + text
            )
        near(dict(other.named_buffers()), dict(plain.named_buffers()))
    forward, backward = report()
    assert (forward.graph, backward.graph) == ("forward", "backward")
    assert backward.taken > 10 and {r.op for r in backward.left} == {
        "convolution_backward.default", "max_pool2d_with_indices_backward.default"
    }  # fmt: skip
    told = {r.op: r.why for r in forward.left}
    assert told["max_pool2d_with_indices.default"] == "where the largest elements are is asked for as well"


def test_frozen_weights_are_folded() -> None:
    torch.manual_seed(0)
    module, x = Small().eval(), torch.randn(2, 3, 6, 6)
    compiled = torch.compile(module, backend=compile_graph, options={"freeze": True})
    with torch.no_grad():
        before = module(x)
        near(compiled(x), before)
        module.norm.running_mean.add_(1.0)  # in the factors of the convolution since the first call
        near(compiled(x), before)


def test_options_and_the_log(capsys: pytest.CaptureFixture[str]) -> None:
    def double(x: Any) -> Any:
        return x * 2

    with pytest.raises(torch._dynamo.exc.BackendCompilerFailed, match="has the options freeze; got fast"):
        torch.compile(double, backend=compile_graph, options={"fast": 1})(torch.ones(2))
    with config.override(log="networks"):
        near(torch.compile(double, backend=compile_graph)(torch.ones(2)), torch.full((2,), 2.0))
    assert "networks: inference: 1 calls in 1 networks of 1 kernels, 0 left to PyTorch" in capsys.readouterr().err


def test_the_entry_point_is_the_backend() -> None:
    setup = configparser.ConfigParser()
    setup.read(ROOT / "setup.cfg")
    name, place = setup["options.entry_points"]["torch_dynamo_backends"].split("=")
    module, function = place.strip().split(":")
    assert name.strip() == "tensorlang" and getattr(import_module(module), function) is compile_graph
