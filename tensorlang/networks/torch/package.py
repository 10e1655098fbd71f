"""PyTorch, which is an extra."""

from __future__ import annotations

from functools import cache
from typing import Any

from tensorlang.errors import MissingDependency


@cache
def torch_package() -> Any:
    """The package; MissingDependency says how it is installed."""
    try:
        import torch
        import torch.export
        import torch.fx
        import torch.utils._pytree
    except ImportError as error:
        wanted = "pip install 'tensorlang[frameworks]'"
        raise MissingDependency(f"reading models of PyTorch needs it: {wanted}") from error
    return torch
