"""What calls cost in PyTorch and in JAX: kernels with tensors, operators, functions of arrays."""

from __future__ import annotations

import importlib.util
from typing import Any

import numpy as np

import tensorlang
from benchmarks.exports import Call, best
from benchmarks.figure import Figure
from tensorlang import te
from tensorlang.runtime.executable import Executable

CALLS, ROUNDS = 20, 400
_SIZE = 1024


def measure() -> list[Figure]:
    """All figures; those of a library that is missing are left out."""
    kernel, added = _kernel(), tensorlang.kernel(_sum)
    turns: dict[str, Call] = {}
    goals: dict[str, float] = {}
    if importlib.util.find_spec("torch"):
        turns |= _in_pytorch(kernel, added)
        goals |= {"kernel with tensors of PyTorch": 1e-6, "operator of PyTorch without a gradient": 5e-6}
    if importlib.util.find_spec("jax"):
        turns |= _in_jax(kernel)
    a, b, c = (np.ones(_SIZE, np.float32) for _ in range(3))
    turns["kernel with arrays of NumPy"] = lambda: kernel(a, b, c)
    turns["function of arrays of NumPy"] = lambda: added(a, b)
    times = best(turns, CALLS, ROUNDS)
    return [
        Figure(f"add {_SIZE} floats: {name}", 1e9 * time, "ns", 1e9 * goals[name] if name in goals else None)
        for name, time in times.items()
    ]


def _sum(x: Any, y: Any) -> Any:
    return te.compute(x.shape, lambda i: x[i] + y[i], name="out")


def _kernel() -> Executable:
    a, b = te.placeholder((_SIZE,), name="a"), te.placeholder((_SIZE,), name="b")
    made: Executable = tensorlang.build([a, b, _sum(a, b)], schedule="default", target="llvm -num-cores=1", name="add")
    return made


def _in_pytorch(kernel: Executable, added: Any) -> dict[str, Call]:
    import torch

    torch.set_num_threads(1)
    x, y, z = (torch.ones(_SIZE) for _ in range(3))
    w = torch.ones(_SIZE, requires_grad=True)
    operator = kernel.torch_op("benchmarks::add").default
    bare = kernel.torch_op("benchmarks::bare_add", backward=False).default
    return {
        "torch.add": lambda: torch.add(x, y),
        "torch.add, a gradient needed": lambda: torch.add(x, w),
        "kernel with tensors of PyTorch": lambda: kernel(x, y, z),
        "operator of PyTorch without a gradient": lambda: bare(x, y),
        "operator of PyTorch, no gradient needed": lambda: operator(x, y),
        "operator of PyTorch, a gradient needed": lambda: operator(x, w),
        "function of tensors of PyTorch": lambda: added(x, y),
    }


def _in_jax(kernel: Executable) -> dict[str, Call]:
    import jax

    x, y, function = jax.numpy.ones(_SIZE), jax.numpy.ones(_SIZE), kernel.jax_op()
    return {"function of JAX": lambda: function(x, y).block_until_ready()}
