"""Tensors of other libraries for machine code: the types that offer DLPack's C exchange table, and how to ask them.

A library puts a capsule with C functions at its tensor type (`__dlpack_c_exchange_api__`, DLPack 1.3); one of them
describes a tensor as a DLTensor, without a Python object between. Compiled code finds the functions in `TYPES`, and the
NumPy dtype of each DLPack dtype in `_dtypes`; `READER` holds the function that reads both, once there is one.
"""

from __future__ import annotations

import ctypes
from functools import cache
from typing import Any

import numpy as np

from tensorlang import dtypes

ATTRIBUTE = "__dlpack_c_exchange_api__"
_CAPSULE = b"dlpack_exchange_api"
_MOST_TYPES = 4
_CODES = {"int": 0, "uint": 1, "float": 2, "bool": 6}
_OWN_CODES = {"bfloat16": 4, "float8_e4m3fn": 10, "float8_e5m2": 12}
_USUAL = ("float32", "int64", "float64", "int32")


class Table(ctypes.Structure):
    """DLPackExchangeAPI: addresses of functions, as far as they are used here."""

    _fields_ = (
        ("major", ctypes.c_uint32),
        ("minor", ctypes.c_uint32),
        ("older", ctypes.c_void_p),
        ("allocate", ctypes.c_void_p),
        ("managed_from_object", ctypes.c_void_p),
        ("object_from_managed", ctypes.c_void_p),
        ("describe", ctypes.c_void_p),
        ("stream", ctypes.c_void_p),
    )


class _Type(ctypes.Structure):
    """A tensor type, the function that describes a tensor of it, and its method `is_neg`, or 0.

    Types with that method are torch's: theirs may require a gradient, and hold the negatives of the values in memory.
    """

    _fields_ = (("type", ctypes.c_void_p), ("describe", ctypes.c_void_p), ("negated", ctypes.c_void_p))


class _DType(ctypes.Structure):
    """A dtype as DLPack writes it in 32 bits, the bits of an address that have to be 0, and NumPy's object."""

    _fields_ = (("key", ctypes.c_uint32), ("misaligned", ctypes.c_uint32), ("numpy", ctypes.c_void_p))


def key_of(d: dtypes.DType) -> int:
    """A dtype as DLPack writes it: code, bits and lanes."""
    return _OWN_CODES.get(d.name, _CODES[d.kind]) | 8 * d.bytes << 8 | 1 << 16


KEYS = {key_of(d): d.name for d in dtypes.TABLE.values()}
"""The dtypes by the 32 bits that DLPack writes."""
TYPES = (_Type * (_MOST_TYPES + 1))()
"""Ends with a row of zeros."""
READER = ctypes.c_void_p()
_known: dict[type, object] = {}
_requires_grad = "requires_grad"


def addresses() -> dict[str, int]:
    """The address of the cell of the reader, by its symbol."""
    return {"tensorlang_reader": ctypes.addressof(READER)}


@cache
def tables() -> dict[str, int]:
    """Addresses of the tables and the objects that the reader uses, by symbol."""
    return {
        "tensorlang_types": ctypes.addressof(TYPES),
        "tensorlang_dtypes": ctypes.addressof(_dtypes()),
        "tensorlang_requires_grad": id(_requires_grad),
        "tensorlang_false": id(False),
    }


@cache
def _dtypes() -> ctypes.Array[_DType]:
    """The rows of all dtypes, those that are met most first; ends with a row of zeros."""
    _held.update({d.name: d.numpy for d in dtypes.TABLE.values()})
    names = dict.fromkeys((*_USUAL, *_held))
    rows = [_DType(key_of(dtypes.TABLE[n]), _held[n].itemsize - 1, id(_held[n])) for n in names]
    return (_DType * (len(rows) + 1))(*rows)


_held: dict[str, np.dtype[Any]] = {}
"""What rows have the addresses of."""


def offers(kind: type) -> bool:
    """Whether machine code could read tensors of this very type, and does not yet; what a subclass does is its own."""
    return kind not in _known and _capsule(kind) is not None


def learn(kind: type) -> bool:
    """Enter a type that offers itself to the table; False when its functions are not those that we know."""
    table = table_of(kind)
    negated = getattr(kind, "is_neg", None)
    number = sum(map(bool, _known.values()))
    usable = table is not None and bool(table.describe) and number < _MOST_TYPES
    _known[kind] = (negated, table) if usable else ()
    if usable and table is not None:
        TYPES[number] = _Type(None, table.describe, None if negated is None else id(negated))
        TYPES[number].type = id(kind)  # last: a row counts from here on
    return usable


def table_of(kind: type) -> Table | None:
    """The functions that a type offers of its own, if they are those that we know."""
    capsule = _capsule(kind)
    if capsule is None:
        return None
    wanted = (ctypes.py_object, ctypes.c_char_p)
    is_valid = ctypes.PYFUNCTYPE(ctypes.c_int, *wanted)(("PyCapsule_IsValid", ctypes.pythonapi))
    if not is_valid(capsule, _CAPSULE):
        return None
    pointer = ctypes.PYFUNCTYPE(ctypes.c_void_p, *wanted)(("PyCapsule_GetPointer", ctypes.pythonapi))
    table = Table.from_address(pointer(capsule, _CAPSULE))
    return table if table.major == 1 and table.minor >= 3 else None


def _capsule(kind: type) -> Any:
    """The capsule of a type; a parameter of PyTorch's networks is a tensor by another name."""
    if f"{kind.__module__}.{kind.__qualname__}" == "torch.nn.parameter.Parameter":
        kind = kind.__base__ or kind
    return vars(kind).get(ATTRIBUTE)
