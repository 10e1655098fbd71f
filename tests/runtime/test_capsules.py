"""Arrays of dtypes that NumPy's DLPack lacks, from other libraries and to them."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytest

import tensorlang
from tensorlang import dtypes, te
from tensorlang.errors import ArgumentError
from tensorlang.runtime.arrays import as_array

NARROW = ["bool", "bfloat16", "float8_e4m3fn", "float8_e5m2", "float16"]


@cache
def copy(dtype: str) -> Any:
    A = te.placeholder((2, 3), dtype, name="A")
    B = te.compute((2, 3), lambda i, j: A[i, j], name="B")
    return tensorlang.build(te.create_schedule(B.op), [A, B])


def values(dtype: str) -> Any:
    return (np.arange(6).reshape(2, 3) % 2).astype(dtypes.info(dtype).numpy)


@pytest.mark.parametrize("dtype", NARROW)
def test_arrays_of_jax_are_taken_as_they_are(dtype: str) -> None:
    jnp = pytest.importorskip("jax.numpy")
    given = jnp.asarray(values(dtype))
    assert not as_array(given).flags.writeable and as_array(given).dtype == values(dtype).dtype
    np.testing.assert_array_equal(copy(dtype)(given), values(dtype))
    with pytest.raises(ArgumentError, match="read-only"):
        copy(dtype)(values(dtype), given)


@pytest.mark.parametrize("dtype", NARROW)
def test_tensors_of_torch_go_in_and_out(dtype: str) -> None:
    torch = pytest.importorskip("torch")
    given = torch.tensor(values(dtype).astype(np.float32)).to(getattr(torch, dtype))
    made, result = torch.zeros_like(given), copy(dtype)(given)
    copy(dtype)(given, made)
    assert result.dtype == given.dtype and torch.equal(result.float(), given.float())
    assert torch.equal(made.float(), given.float())
    shared = torch.from_dlpack(tensorlang.nd.array(values(dtype)))
    assert shared.dtype == given.dtype and torch.equal(shared.float(), given.float())


def test_memory_stays_for_as_long_as_somebody_looks_at_it() -> None:
    jnp = pytest.importorskip("jax.numpy")
    view = as_array(jnp.asarray(values("bfloat16")) + 1)[:, 1:]
    jnp.zeros((1000,)).block_until_ready()
    np.testing.assert_array_equal(view.astype(np.float32), values("bfloat16").astype(np.float32)[:, 1:] + 1)


def test_parameters_are_taken_where_no_gradient_is_recorded() -> None:
    torch = pytest.importorskip("torch")
    weights = torch.nn.Parameter(torch.tensor(values("float32")))
    for mode in (torch.no_grad, torch.inference_mode):
        with mode():
            assert torch.equal(copy("float32")(weights), weights)
    with pytest.raises(ArgumentError, match=r"pass tensor\.detach\(\), or call inside torch\.no_grad\(\)"):
        copy("float32")(weights)
