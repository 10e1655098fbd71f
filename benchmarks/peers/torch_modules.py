"""Modules of PyTorch that take part as networks, with random weights that are the same in every process."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from benchmarks.peers.torch_detector import Detector

SEED = 0
WIDTH, HEADS, LAYERS = 768, 12, 12
"""Of BERT-base, and of GPT-2 small."""


class Layer(nn.Module):  # type: ignore[misc]
    """A layer of a transformer: attention and a perceptron, each with a residual; norms before them, or behind."""

    def __init__(self, causal: bool) -> None:
        super().__init__()
        self.causal = causal  # as GPT-2 has it, with norms before; else as BERT has it
        self.attended, self.joined = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.hidden, self.back = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)
        self.norms = nn.ModuleList(nn.LayerNorm(WIDTH) for _ in range(2))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Of states [batch, tokens, width]."""
        first, second = self.norms
        if self.causal:
            x = x + self.attention(first(x))
            return x + self.perceptron(second(x))
        x = first(x + self.attention(x))
        found: torch.Tensor = second(x + self.perceptron(x))
        return found

    def attention(self, x: torch.Tensor) -> torch.Tensor:
        """Of all tokens, or of those before."""
        batch, tokens, _ = x.shape
        q, k, v = (
            part.reshape(batch, tokens, HEADS, WIDTH // HEADS).transpose(1, 2) for part in self.attended(x).chunk(3, -1)
        )
        heads = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=self.causal)
        found: torch.Tensor = self.joined(heads.transpose(1, 2).reshape(batch, tokens, WIDTH))
        return found

    def perceptron(self, x: torch.Tensor) -> torch.Tensor:
        """Four times as wide inside."""
        found: torch.Tensor = self.back(nn.functional.gelu(self.hidden(x)))
        return found


def module_of(name: str) -> Any:
    """A transformer, the detector, or a network of torchvision, by name."""
    torch.manual_seed(SEED)
    if name == "detector":
        return Detector().eval()
    if name in ("bert_base", "gpt2_small"):
        return nn.Sequential(*(Layer(name == "gpt2_small") for _ in range(LAYERS))).eval()
    import torchvision

    module = torchvision.models.get_model(name, weights=None)
    for weight in module.parameters():
        if not weight.any() and weight.dim() > 1:  # heads that begin as zeros would hide all errors
            nn.init.normal_(weight, std=0.02)
    return module.eval()
