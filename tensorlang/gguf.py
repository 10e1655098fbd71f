"""Weights of GGUF files: `tensorlang.gguf.load(path)` maps a file, and shows its tensors and its metadata.

Nothing in a file is believed: every length, count and offset is compared with how long the file is before anything is
made of it, so that a hostile file is refused, and no more memory is taken than in proportion to it. Tensors are views
of the mapped file, not copies; who truncates it meanwhile takes them away.

Source: the GGUF specification (docs/gguf.md of ggml), versions 2 and 3, little-endian.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Mapping
from math import prod
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from tensorlang import dtypes
from tensorlang.dataclass import dataclass
from tensorlang.errors import DefinitionError, shown
from tensorlang.topi.block_formats import BLOCK_FORMATS

Array = npt.NDArray[Any]
Metadata: TypeAlias = bool | int | float | str | list[str] | Array
"""A value of a file: numbers and texts, and arrays of them."""
_Declared: TypeAlias = tuple[tuple[int, ...], int, int]
"""The shape, the type and the offset of a tensor."""

_MAGIC = b"GGUF"
_VERSIONS = (2, 3)
_ALIGNMENT = 32
_MOST_DIMENSIONS = 4
_MOST_NAME = 1 << 16
_STRING, _ARRAY, _BOOL = 8, 9, 7
_SCALARS: Mapping[int, str] = {
    0: "u1", 1: "i1", 2: "<u2", 3: "<i2", 4: "<u4", 5: "<i4", 6: "<f4", _BOOL: "u1", 10: "<u8", 11: "<i8", 12: "<f8"
}  # fmt: skip
_TYPES: Mapping[int, str] = {
    0: "float32", 1: "float16", 2: "q4_0", 3: "q4_1", 6: "q5_0", 7: "q5_1", 8: "q8_0", 10: "q2_k", 11: "q3_k",
    12: "q4_k", 13: "q5_k", 14: "q6_k", 20: "iq4_nl", 24: "int8", 25: "int16", 26: "int32", 27: "int64",
    28: "float64", 30: "bfloat16", 39: "mxfp4", 40: "nvfp4",
}  # fmt: skip
_LEAST_PAIR = 8 + 4 + 1
_LEAST_TENSOR = 8 + 4 + 4 + 8
"""Bytes that an entry takes at least: a file has no more of them than fit."""


@dataclass(frozen=True, slots=True)
class GgufTensor:
    """A tensor of a file: its `shape`, that of rows last, and its `format`, a dtype or a name of BLOCK_FORMATS.

    `array`: numbers of the shape; of a format of blocks uint8[..., k / weights, bytes], which `topi.pack_nbits` takes.
    """

    name: str
    shape: tuple[int, ...]
    format: str
    array: Array


@dataclass(frozen=True, slots=True)
class GgufFile:
    """The `metadata` and the `tensors` of a file by name; `unknown`: the types of tensors that are not read."""

    path: str
    metadata: Mapping[str, Metadata]
    tensors: Mapping[str, GgufTensor]
    unknown: Mapping[str, int]


def load(path: str | os.PathLike[str]) -> GgufFile:
    """Map a GGUF file: its tensors are views of it, with nothing read yet.

    Raises DefinitionError for what is none, is damaged, or is no regular file, and OSError as `open` does.
    """
    with os.fdopen(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
        status = os.fstat(file.fileno())
        if not stat.S_ISREG(status.st_mode):
            raise DefinitionError(f"{shown(os.fspath(path))} is no regular file")
        if status.st_size < len(_MAGIC):
            raise DefinitionError(f"{shown(os.fspath(path))} is no GGUF file: it has {status.st_size} bytes")
        data: Array = np.memmap(file, np.uint8, "r").view(np.ndarray)  # what kernels take as it is, in 0.1 us
    return _Reader(os.fspath(path), data).file()


@dataclass(slots=True)
class _Reader:
    """The bytes of a file, and the `place` of the next one that is read."""

    path: str
    data: Array
    place: int = 0

    def file(self) -> GgufFile:
        if self._bytes(len(_MAGIC), "its magic").tobytes() != _MAGIC:
            raise self._fault("it does not begin with GGUF")
        version = self._number("<u4", "its version")
        if version not in _VERSIONS:
            swapped = " (of the other byte order)" if version & 0xFFFF == 0 else ""
            raise self._fault(f"version {version}{swapped}; {' and '.join(map(str, _VERSIONS))} are read")
        tensors, pairs = (self._number("<u8", "a count") for _ in range(2))
        if pairs * _LEAST_PAIR + tensors * _LEAST_TENSOR > len(self.data) - self.place:
            raise self._fault(f"{pairs} values and {tensors} tensors do not fit into {len(self.data)} bytes")
        metadata = self._each(pairs, "value", self._value)
        declared = self._each(tensors, "tensor", self._tensor)
        return self._whole(metadata, declared)

    def _each(self, count: int, what: str, read: Callable[[str], Any]) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for _ in range(count):
            name = self._text(f"the name of a {what}", _MOST_NAME)
            if name in found:
                raise self._fault(f"two {what}s are called {shown(name)}")
            found[name] = read(name)
        return found

    def _whole(self, metadata: Mapping[str, Metadata], declared: Mapping[str, _Declared]) -> GgufFile:
        alignment = metadata.get("general.alignment", _ALIGNMENT)
        if not isinstance(alignment, int) or alignment < 1 or alignment & (alignment - 1):
            raise self._fault(f"its alignment is {shown(alignment)}, no power of two")
        begin = -(-self.place // alignment) * alignment
        tensors, unknown = dict[str, GgufTensor](), dict[str, int]()
        for name, (shape, kind, offset) in declared.items():
            if kind not in _TYPES:
                unknown[name] = kind
            elif offset % alignment:
                raise self._fault(f"the tensor {shown(name)} begins at {offset}, no multiple of {alignment}")
            else:
                tensors[name] = self._mapped(name, shape, _TYPES[kind], begin + offset)
        return GgufFile(self.path, metadata, tensors, unknown)

    def _mapped(self, name: str, shape: tuple[int, ...], form: str, begin: int) -> GgufTensor:
        """A view of the elements of a tensor, once they are known to lie in the file."""
        dtype, held = np.dtype(np.uint8), shape
        if form in BLOCK_FORMATS:
            blocks = BLOCK_FORMATS[form]
            if not shape or shape[-1] % blocks.weights:
                why = f"the tensor {shown(name)} {shape} of {form} has rows that are no blocks of {blocks.weights}"
                raise self._fault(why)
            held = (*shape[:-1], shape[-1] // blocks.weights, blocks.bytes)
        else:
            dtype = dtypes.info(form).numpy
        size = prod(held) * dtype.itemsize
        if begin + size > len(self.data):
            raise self._fault(f"the tensor {shown(name)} {shape} of {form} ends behind the file")
        return GgufTensor(name, shape, form, self.data[begin : begin + size].view(dtype).reshape(held))

    def _tensor(self, name: str) -> _Declared:
        count = self._number("<u4", "how many dimensions a tensor has")
        if not 1 <= count <= _MOST_DIMENSIONS:
            raise self._fault(f"the tensor {shown(name)} has {count} dimensions, more than {_MOST_DIMENSIONS} or none")
        shape = tuple(int(n) for n in reversed(self._numbers("<u8", count, "the shape of a tensor")))
        if 0 in shape:
            raise self._fault(f"the tensor {shown(name)} {shape} has no elements")
        return shape, self._number("<u4", "the type of a tensor"), self._number("<u8", "the offset of a tensor")

    def _value(self, name: str) -> Metadata:
        kind = self._number("<u4", "the type of a value")
        if kind == _STRING:
            return self._text(f"the text {shown(name)}")
        if kind == _ARRAY:
            return self._array(name)
        if kind not in _SCALARS:
            raise self._fault(f"the value {shown(name)} has the unknown type {kind}")
        number = self._numbers(_SCALARS[kind], 1, f"the value {shown(name)}")[0].item()
        return bool(number) if kind == _BOOL else number

    def _array(self, name: str) -> Metadata:
        kind, count = self._number("<u4", "the type of an array"), self._number("<u8", "the length of an array")
        what = f"the array {shown(name)}"
        if kind == _STRING:
            if 8 * count > len(self.data) - self.place:
                raise self._fault(f"{what} of {count} texts ends behind the file")
            return [self._text(what) for _ in range(count)]
        if kind not in _SCALARS:
            raise self._fault(f"{what} has elements of the type {kind}, no numbers or texts")
        numbers = self._numbers(_SCALARS[kind], count, what)
        return numbers.astype(bool) if kind == _BOOL else numbers

    def _text(self, what: str, most: int | None = None) -> str:
        length = self._number("<u8", what)
        if most is not None and not 0 < length <= most:
            raise self._fault(f"{what} has {length} bytes")
        try:
            return self._bytes(length, what).tobytes().decode()
        except UnicodeDecodeError as error:
            raise self._fault(f"{what} is no UTF-8: {error.reason}") from None

    def _number(self, dtype: str, what: str) -> int:
        return int(self._numbers(dtype, 1, what)[0])

    def _numbers(self, dtype: str, count: int, what: str) -> Array:
        return self._bytes(np.dtype(dtype).itemsize * count, what).view(dtype)

    def _bytes(self, count: int, what: str) -> Array:
        if count > len(self.data) - self.place:
            raise self._fault(f"{what} ends behind the file")
        self.place += count
        return self.data[self.place - count : self.place]

    def _fault(self, why: str) -> DefinitionError:
        return DefinitionError(f"{shown(self.path)} is no GGUF file that can be read: {why}")
