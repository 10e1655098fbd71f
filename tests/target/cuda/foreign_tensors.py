"""Tensors in the memory of a device, by a library that describes them to C as PyTorch does."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy.typing as npt

from tensorlang.runtime.exchange import ATTRIBUTE, Table
from tests.export.exported import DLTensor, dl_tensor

STREAM = 77
"""What the library works on."""
_NAME = ctypes.c_char_p(b"dlpack_exchange_api")


class Tensor:
    """A tensor over memory that stands for that of a device."""

    requires_grad = negative = False

    def __init__(self, memory: npt.NDArray[Any], device: int = 0) -> None:
        self.memory, self.number = memory, device
        self.kept: DLTensor | None = None

    def is_neg(self) -> bool:
        return self.negative

    def __dlpack_device__(self) -> tuple[int, int]:
        raise AssertionError("the C function tells")

    __dlpack__ = __dlpack_device__


def _describe(tensor: Any, to: int) -> int:
    tensor.kept = dl_tensor(tensor.memory, device=2, device_id=tensor.number)
    ctypes.memmove(to, ctypes.addressof(tensor.kept), ctypes.sizeof(DLTensor))
    return 0


def _stream(kind: int, device: int, to: Any) -> int:
    to[0] = STREAM
    return 0


_FUNCTIONS = (
    ctypes.CFUNCTYPE(ctypes.c_int, ctypes.py_object, ctypes.c_void_p)(_describe),
    ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_int32, ctypes.c_int32, ctypes.POINTER(ctypes.c_void_p))(_stream),
)
_TABLE = Table(1, 3, None, None, None, None, *(ctypes.cast(f, ctypes.c_void_p).value for f in _FUNCTIONS))
_new = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)
setattr(Tensor, ATTRIBUTE, _new(("PyCapsule_New", ctypes.pythonapi))(ctypes.addressof(_TABLE), _NAME, None))
