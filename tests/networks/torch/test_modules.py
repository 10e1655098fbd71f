"""Modules of PyTorch as networks: called as the modules are, equal to them; what is not taken is said."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tensorlang
from tensorlang.errors import ArgumentError, DefinitionError
from tensorlang.networks.compiling import compile_network
from tensorlang.networks.refusal import UnsupportedModel
from tensorlang.networks.torch.modules import from_torch

torch = pytest.importorskip("torch")
nn = torch.nn
F = nn.functional


class Nested(nn.Module):  # type: ignore[misc, name-defined]
    """Convolutions with a norm and a residual, whose inputs and outputs are nests."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.norm = nn.Conv2d(3, 6, 3, padding=1), nn.BatchNorm2d(6)
        self.second, self.head = nn.Conv2d(6, 6, 3, padding=1, groups=6), nn.Linear(6, 4, bias=False)
        self.register_buffer("shift", torch.linspace(-1, 1, 6).view(6, 1, 1))

    def forward(self, images: Any, more: dict[str, Any], scale: float = 1.0, *, bias: Any = None) -> dict[str, Any]:
        """Logits and the images before them."""
        x = F.relu(self.norm(self.first(images))) + self.shift * scale
        x = F.hardswish(x + self.second(x))
        logits = self.head(x.mean((2, 3))) + more["logits"][0]
        return {"logits": logits if bias is None else logits + bias, "rest": (x, None, images)}


def example() -> tuple[tuple[Any, ...], dict[str, Any]]:
    torch.manual_seed(1)
    more = {"logits": [torch.randn(4), torch.randn(2)]}
    return (torch.randn(2, 3, 8, 8), more), {"bias": torch.randn(2, 4)}


def test_a_network_is_called_as_its_module_is() -> None:
    module = Nested().eval()
    inputs, keywords = example()
    model = compile_network(from_torch(module, inputs, keywords))
    made, wanted = model(*inputs, **keywords), module(*inputs, **keywords)
    torch.testing.assert_close(made, wanted, rtol=1e-4, atol=1e-5)
    arrays = model(*torch.utils._pytree.tree_map(lambda t: t.numpy(), inputs), bias=keywords["bias"].numpy())
    assert isinstance(arrays["logits"], np.ndarray) and isinstance(arrays["rest"], tuple)
    np.testing.assert_array_equal(arrays["rest"][0], made["rest"][0].numpy())
    with pytest.raises(ArgumentError, match="takes inputs like its example"):
        model(inputs[0])
    with pytest.raises(ArgumentError, match=r"is float32\[2, 3, 8, 8\], got float32\[1, 3, 8, 8\]"):
        model(inputs[0][:1], inputs[1], **keywords)
    assert "convolution.default" in {time.op for time in model.profile(*inputs, repeat=1, **keywords)}


def test_what_a_module_was_read_for_is_held() -> None:
    inputs, keywords = example()
    model = compile_network(from_torch(Nested().eval(), (*inputs, 2.0), keywords), "interpreter")
    with pytest.raises(ArgumentError, match=r"was read for 2\.0, got 3\.0"):
        model(*inputs, 3.0, **keywords)


def test_weights_are_those_of_the_module() -> None:
    module = Nested().eval()
    network = from_torch(module, *example())
    held = {array.ctypes.data for array in network.weights.values()}
    assert {module.head.weight.data_ptr(), module.first.bias.data_ptr()} <= held


def test_attention_over_heads_in_between() -> None:
    class Heads(nn.Module):  # type: ignore[misc, name-defined]
        def forward(self, x: Any) -> Any:
            h = x.transpose(1, 2)
            return F.scaled_dot_product_attention(h, h, h), F.scaled_dot_product_attention(F.relu(h), h, h)

    x = torch.randn(2, 6, 3, 4)
    torch.testing.assert_close(compile_network(from_torch(Heads().eval(), x))(x), Heads()(x), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("dtype", ["float64", "float16", "bfloat16"])
def test_other_floats(dtype: str) -> None:
    own = getattr(torch, dtype)
    module = (
        nn.Sequential(nn.Linear(16, 32), nn.GELU(), nn.LayerNorm(32), nn.Linear(32, 8), nn.Softmax(-1)).eval().to(own)
    )
    x = torch.randn(5, 16, dtype=own)
    made = compile_network(from_torch(module, x))(x)
    near = {"float64": 1e-10, "float16": 2e-3, "bfloat16": 2e-2}[dtype]
    torch.testing.assert_close(made, module(x), rtol=near, atol=near)


def test_all_that_is_not_taken_is_told_at_once() -> None:
    class Odd(nn.Module):  # type: ignore[misc, name-defined]
        def forward(self, x: Any) -> Any:
            return torch.linalg.det(x @ x.T), torch.cummax(x, -1).values, x + torch.rand(4)

    with pytest.raises(UnsupportedModel) as caught:
        from_torch(Odd().eval(), torch.randn(3, 4))
    told = {refusal.op: refusal.why for refusal in caught.value.refusals}
    assert told == {
        "_linalg_det.default": "this operator is not known yet",
        "cummax.default": "this operator is not known yet",
        "rand.default": "it draws random numbers",
    }


class Counting(nn.Module):  # type: ignore[misc, name-defined]
    """A module that changes a buffer."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("calls", torch.zeros(1))

    def forward(self, x: Any) -> Any:
        """x, and one more call."""
        self.calls += 1
        return x * self.calls


class Branching(nn.Module):  # type: ignore[misc, name-defined]
    """A module whose way depends on values."""

    def forward(self, x: Any) -> Any:
        """x, or its negative."""
        return x if x.sum() > 0 else -x


@pytest.mark.parametrize(
    ("module", "why"),
    [
        (nn.Dropout(), "is in training mode; call its eval"),
        (Counting().eval(), "changes its buffers or inputs when it is called: calls"),
        (Branching().eval(), "export does not take Branching: "),
        (abs, "takes a torch.nn.Module, got builtin_function_or_method"),
    ],
)
def test_modules_that_cannot_be_taken(module: Any, why: str) -> None:
    with pytest.raises(DefinitionError, match=why):
        tensorlang.from_torch(module, torch.randn(3))
