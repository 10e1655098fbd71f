# %% [markdown]
# # An operator of your own in PyTorch and in JAX
#
# Written once, with te, and trained in both: its gradient is a kernel, too. What needs torch or jax is left out where
# they are not installed.

# %%
from importlib.util import find_spec
from typing import Any

import numpy as np

import tensorlang
from tensorlang import te, topi

# %% [markdown]
# ## A function of tensors becomes a function of arrays
#
# It is called with placeholders, once for each kind of arguments; the kernel is scheduled, proven, built and kept.

# %%


@tensorlang.kernel
def gated(x: Any, w: Any, v: Any, slope: float = 1.0) -> Any:
    """(x w') * sigmoid(slope * x v'): a gated linear unit."""
    values, gates = topi.dense(x, w, name="values"), topi.dense(x, v, name="gates")
    return te.compute(values.shape, lambda i, j: values[i, j] * te.sigmoid(gates[i, j] * slope), name="gated")


random = np.random.default_rng(0)
X, W, V = (random.standard_normal(shape).astype("float32") for shape in ((64, 8), (4, 8), (4, 8)))
wanted = (X @ W.T) / (1 + np.exp(-(X @ V.T)))
print("NumPy: right:", bool(np.allclose(gated(X, W, V), wanted, atol=1e-5)))
print(repr(gated))

# %% [markdown]
# ## PyTorch: the gradient is a kernel, too
#
# `te.gradient` writes it, and it is scheduled like any program. Compilers of PyTorch take the call as one operator.

# %%
if find_spec("torch"):
    import torch

    def loss_of(w: torch.Tensor, v: torch.Tensor, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return ((gated(x, w, v) - y) ** 2).mean()

    x, y = torch.from_numpy(X), torch.from_numpy(wanted)
    w, v = (torch.zeros(4, 8, requires_grad=True) for _ in range(2))
    with torch.no_grad():
        w += 0.1
    optimizer = torch.optim.Adam([w, v], lr=0.1)
    losses = []
    for _ in range(200):
        optimizer.zero_grad()
        loss = loss_of(w, v, x, y)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    print("PyTorch: the loss falls a hundred times:", losses[-1] < losses[0] / 100)

    # A kernel that was built by hand is an operator under a name of its own: `torch.ops.tutorial.scaled`.
    n = te.var("n")
    A, F = te.placeholder((n, 16), name="A"), te.placeholder((16,), name="F")
    B = te.compute((n, 16), lambda i, j: A[i, j] * te.exp(F[j]), name="B")
    scaled = tensorlang.build([A, F, B], schedule="default").torch_op("tutorial::scaled")
    a = torch.randn(5, 16, dtype=torch.float32)
    f = torch.zeros(16, requires_grad=True)
    scaled(a, f).sum().backward()
    print("PyTorch: its gradient is right:", bool(f.grad is not None and torch.allclose(f.grad, a.sum(0), atol=1e-5)))
else:
    print("PyTorch: not installed")

# %% [markdown]
# ## JAX: the same function

# %%
if find_spec("jax"):
    import jax
    import jax.numpy as jnp

    def loss_in_jax(weights: Any, x: Any, y: Any) -> Any:
        return jnp.mean((gated(x, *weights) - y) ** 2)

    step = jax.jit(jax.value_and_grad(loss_in_jax))
    weights = [jnp.full((4, 8), 0.1), jnp.zeros((4, 8))]
    first, _ = step(weights, jnp.asarray(X), jnp.asarray(wanted))
    for _ in range(300):
        last, slopes = step(weights, jnp.asarray(X), jnp.asarray(wanted))
        weights = [w - 0.5 * g for w, g in zip(weights, slopes, strict=True)]
    print("JAX: the loss falls ten times:", bool(last < first / 10))
else:
    print("JAX: not installed")
