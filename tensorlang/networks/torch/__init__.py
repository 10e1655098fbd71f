"""Models of PyTorch: graphs of ATen operators, read into networks."""

from tensorlang.networks.torch.modules import from_torch
from tensorlang.networks.torch.report import Compiled, forget, report

__all__ = ["Compiled", "forget", "from_torch", "report"]
