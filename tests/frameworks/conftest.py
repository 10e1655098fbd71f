"""PyTorch and JAX, imported by the tests that use them and not before: that takes seconds in each process."""

from __future__ import annotations

from typing import Any

import pytest


@pytest.fixture(scope="session")
def torch() -> Any:
    """PyTorch, on one thread."""
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    torch.set_num_threads(1)
    return torch


@pytest.fixture(scope="session")
def jax() -> Any:
    """JAX, which compiles without most optimisations of XLA: what it calls is compiled here."""
    jax = pytest.importorskip("jax", reason="JAX is not installed")
    jax.config.update("jax_disable_most_optimizations", True)
    return jax
