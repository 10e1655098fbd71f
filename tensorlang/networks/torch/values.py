"""Tensors of PyTorch as arrays, and arrays as tensors, of the same memory."""

from __future__ import annotations

from typing import Any

import numpy as np

from tensorlang import dtypes
from tensorlang.errors import DefinitionError
from tensorlang.networks.network import Array
from tensorlang.networks.refusal import Unsupported
from tensorlang.networks.torch.package import torch_package


def dtype_of(dtype: Any) -> str:
    """The dtype of a dtype of PyTorch; Unsupported for one that programs do not have."""
    name = str(dtype).removeprefix("torch.")
    try:
        return dtypes.info(name).name
    except DefinitionError:
        raise Unsupported(f"elements of {dtype}") from None


def array_of(tensor: Any) -> Array:
    """A tensor as an array: of its memory where it is a plain one of this machine's, otherwise of a copy."""
    plain = tensor.detach().resolve_conj().resolve_neg().cpu()
    wanted = dtypes.info(dtype_of(tensor.dtype)).numpy
    if wanted.isbuiltin == 1:
        array: Array = plain.numpy()
        return array
    return np.asarray(plain.view(_words(wanted)).numpy()).view(wanted)


def tensor_of(array: Array) -> Any:
    """An array as a tensor of its memory."""
    torch = torch_package()
    if array.dtype.isbuiltin == 1:
        return torch.from_numpy(array)
    words = torch.from_numpy(array.view(f"int{8 * array.dtype.itemsize}"))
    return words.view(getattr(torch, array.dtype.name))


def _words(dtype: Any) -> Any:
    """The whole numbers of PyTorch that are as wide as a dtype that NumPy does not have."""
    return getattr(torch_package(), f"int{8 * dtype.itemsize}")
