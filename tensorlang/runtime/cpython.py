"""Machine code as a Python builtin (METH_FASTCALL | METH_KEYWORDS) that reads NumPy's array structs itself.

Offsets follow from `object.__basicsize__`; `layout_is_known` compares them with this interpreter's arrays, and
where they differ calls take the slower road through ctypes.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np

from tensorlang import dtypes

HEADER = object.__basicsize__
"""Bytes of the header of every Python object."""
TYPE = HEADER - 8
DATA, RANK, DIMENSIONS, DESCRIPTION, FLAGS = HEADER, HEADER + 8, HEADER + 16, HEADER + 40, HEADER + 48
"""Offsets into an array: data pointer, number of dimensions, their sizes, dtype, flags."""
TYPE_NUMBER, BYTE_ORDER = HEADER + 12, HEADER + 10
"""Offsets into a dtype."""
CONTIGUOUS_ALIGNED, WRITEABLE = 0x101, 0x400
"""Flag bits of an array."""

_FASTCALL_KEYWORDS = 0x82
_FUNCTIONS = (
    "PyEval_SaveThread",
    "PyEval_RestoreThread",
    "PyErr_Clear",
    "PyObject_GetAttr",
    "PyObject_Vectorcall",
    "PyLong_AsLongLong",
    "PyLong_FromLongLong",
    "Py_IncRef",
    "Py_DecRef",
)
STATUS = object()
"""The first of two arguments with which machine code passes on a status: it is in no other hands."""


class MethodDef(ctypes.Structure):
    """CPython's PyMethodDef."""

    _fields_ = (
        ("name", ctypes.c_char_p),
        ("function", ctypes.c_void_p),
        ("flags", ctypes.c_int),
        ("doc", ctypes.c_char_p),
    )


@cache
def layout_is_known() -> bool:
    """Whether this interpreter and this NumPy lay their objects out as the offsets here say."""
    if sys.implementation.name != "cpython" or not hasattr(ctypes.pythonapi, "PyObject_Vectorcall"):
        return False
    array = np.arange(12, dtype=np.float32).reshape(3, 4)[:, ::2]

    def at(owner: object, offset: int, kind: Any) -> Any:
        return kind.from_address(id(owner) + offset).value

    # In this order: nothing is followed that has not proven to be a pointer.
    if (
        at(array, TYPE, ctypes.c_void_p) != id(np.ndarray)
        or at(array, DATA, ctypes.c_void_p) != array.ctypes.data
        or at(array, RANK, ctypes.c_int) != array.ndim
        or at(array, DESCRIPTION, ctypes.c_void_p) != id(array.dtype)
    ):
        return False
    sizes = (ctypes.c_ssize_t * array.ndim).from_address(at(array, DIMENSIONS, ctypes.c_void_p))
    flags = at(array, FLAGS, ctypes.c_int)
    return bool(
        tuple(sizes) == array.shape
        and at(array.dtype, TYPE_NUMBER, ctypes.c_int) == array.dtype.num
        and at(array.dtype, BYTE_ORDER, ctypes.c_char) == b"="
        and flags & WRITEABLE
        and flags & CONTIGUOUS_ALIGNED == 0x100
    )


@cache
def addresses() -> dict[str, int]:
    """Addresses of the interpreter's functions and objects that a fast entry uses, by symbol."""
    found = {name: ctypes.cast(getattr(ctypes.pythonapi, name), ctypes.c_void_p).value or 0 for name in _FUNCTIONS}
    return found | {
        "tensorlang_ndarray": id(np.ndarray),
        "tensorlang_none": id(None),
        "tensorlang_int": id(int),
        "tensorlang_status": id(STATUS),
    }


@cache
def numbers() -> dict[str, int]:
    """Addresses of the numbers that NumPy has given to dtypes of ml_dtypes in this process, by symbol."""
    return {number_symbol(name): ctypes.addressof(number) for name, number in _numbers().items()}


@cache
def _numbers() -> dict[str, ctypes.c_int]:
    return {d.name: ctypes.c_int(d.numpy.num) for d in dtypes.TABLE.values() if d.is_extension}


def number_symbol(dtype: str) -> str:
    """The symbol of the number that NumPy has given to a dtype of ml_dtypes in this process."""
    return f"tensorlang_{dtype}_number"


def builtin(address: int, slow: Callable[..., Any], fail: Callable[[int], Any], name: str) -> Callable[..., Any]:
    """Wrap the function at an address.

    What the function does not take goes to `slow`, keywords too; a status that is not 0 to `fail`, which raises.
    """
    definition = MethodDef(name.encode(errors="replace"), address, _FASTCALL_KEYWORDS, None)
    make = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.POINTER(MethodDef), ctypes.py_object, ctypes.c_void_p)(
        ("PyCFunction_NewEx", ctypes.pythonapi)
    )
    owner = Owner(slow, fail, definition)
    made: Callable[..., Any] = make(ctypes.byref(definition), owner, None)
    return made


class Owner:
    """Keeps a method definition alive for as long as its function, and passes calls on."""

    __slots__ = ("definition", "fail", "slow")

    def __init__(self, slow: Callable[..., Any], fail: Callable[[int], Any], definition: MethodDef) -> None:
        self.slow = slow
        self.fail = fail
        self.definition = definition

    def __call__(self, *args: Any, **named: Any) -> Any:
        if len(args) == 2 and args[0] is STATUS:
            return self.fail(args[1])
        return self.slow(*args, **named)
