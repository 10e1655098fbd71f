"""Formats of quantized weights: one table that says what each byte of a block means, for kernels and for NumPy alike.

A weight is `scale * (code - zero) + offset`. Codes are small unsigned numbers, scales and offsets belong to blocks of
neighbouring weights of a row, and are made of numbers that the file holds (`Field`): a float of a block, or small
integers of blocks under a float of several. All expressions are written once, over values that know `+`, `>>`, `&` and
`astype`: those of te, and arrays of NumPy.

Sources: ggml's block formats (ggml-common.h and ggml-quants.c of llama.cpp, whose Python package `gguf` the tests
compare with, bit by bit), OCP Microscaling Formats 1.0 for MXFP4, NVIDIA's NVFP4.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from tensorlang import te
from tensorlang.dataclass import dataclass
from tensorlang.ir.expr import Expr

Array = npt.NDArray[Any]
Values = Mapping[str, Any]
"""What the fields of a block are, by name."""


class Bytes(Protocol):
    """The bytes of a block, by their places."""

    def __getitem__(self, place: Any) -> Any: ...

    def half(self, place: Any) -> Any:
        """The float16 that begins at a place."""


@dataclass(frozen=True, slots=True)
class Field:
    """A number that `per` weights share, and how it is `read` off the bytes of a block for the n-th such weights."""

    dtype: str
    per: int
    read: Callable[[Bytes, Any], Any]


@dataclass(frozen=True, slots=True)
class BlockFormat:
    """Rows of blocks of `bytes` bytes for `weights` weights, of which each `block` ones share a scale.

    `code(bytes, j)` is the number of `bits` bits of weight j; `value(code)` is what it stands for, plus `zero`, as
    uint8. `scale` and `offset` are made of the fields; without an `offset` it is 0.
    """

    name: str
    weights: int
    bytes: int
    block: int
    bits: int
    zero: int
    code: Callable[[Bytes, Any], Any]
    fields: Mapping[str, Field] = field(hash=False)
    scale: Callable[[Values], Any]
    offset: Callable[[Values], Any] | None = None
    value: Callable[[Any], Any] = lambda code: code


def _choose(condition: Any, then: Any, otherwise: Any) -> Any:
    if isinstance(condition, Expr):
        return te.select(condition, then, otherwise)
    return np.where(condition, then, otherwise)


def _bits(byte: Any, shift: Any, bits: int) -> Any:
    """Some bits of a byte."""
    return (byte >> _byte(shift)) & (1 << bits) - 1


def _byte(number: Any) -> Any:
    return np.uint8(number) if isinstance(number, int) else number.astype("uint8")


def _half_at(place: int) -> Callable[[Bytes, Any], Any]:
    return lambda b, n: b.half(n * 0 + place)


def _single(number: Any) -> Any:
    return number.astype("float32")


def _nibbles(start: int) -> Callable[[Bytes, Any], Any]:
    """32 codes: the first 16 in the lower halves of 16 bytes, the others in the upper ones."""
    return lambda b, j: _bits(b[start + j % 16], j // 16 * 4, 4)


def _with_fifth_bit(start: int) -> Callable[[Bytes, Any], Any]:
    """The same behind 32 bits, the highest ones of the codes."""
    return lambda b, j: _nibbles(start + 4)(b, j) | _bits(b[start + j // 8], j % 8, 1) << 4


def _pairs_of_32(start: int) -> Callable[[Bytes, Any], Any]:
    """256 codes: of each 32 bytes first the lower halves, then the upper ones."""
    return lambda b, j: _bits(b[start + j // 64 * 32 + j % 32], j // 32 % 2 * 4, 4)


def _quarters(start: int) -> Callable[[Bytes, Any], Any]:
    """256 codes: of each 32 bytes first the lowest two bits, and so on."""
    return lambda b, j: _bits(b[start + j // 128 * 32 + j % 32], j // 32 % 4 * 2, 2)


def _six_bits(start: int, place: int) -> Callable[[Bytes, Any], Any]:
    """Eight numbers of six bits in 12 bytes: scales (place 0) or minima (1), the last four in parts."""

    def number(b: Bytes, n: Any) -> Any:
        whole = b[start + 4 * place + n % 4]
        rest = _bits(b[start + 8 + n % 4], 4 * place, 4)
        return _choose(n < 4, whole & 63, rest | whole >> 6 << 4)

    return number


def _three_bit_scale(b: Bytes, n: Any) -> Any:
    low, high = _bits(b[96 + n % 8], n // 8 * 4, 4), _bits(b[104 + n % 4], n // 4 * 2, 2)
    return (low | high << 4).astype("int8") - 32


_CURVE = (-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113)
"""What the codes of IQ4_NL stand for."""
_E2M1 = (0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12)
"""Twice what a sign, two bits of exponent and one of fraction stand for."""


def _looked_up(numbers: Sequence[int], zero: int) -> Callable[[Any], Any]:
    """The number of a code, plus zero."""
    moved = [number + zero for number in numbers]
    return lambda code: te.lookup(code, moved) if isinstance(code, Expr) else np.take(np.array(moved, np.uint8), code)


def _power_of_two(values: Values) -> Any:
    """Half of 2 to the power of a byte less 127: of twice the numbers."""
    power = values["power"].astype("uint32")
    subnormal = (power + 1) << 21
    return _float32(_choose(power < 2, subnormal, (power - 1) << 23))


def _unsigned_e4m3(values: Values) -> Any:
    """Half of a float of four bits of exponent and three of fraction without a sign; 0 for its NaN.

    Those bits are the highest of a float16 of 2 to the power of -8 of the number, the subnormal ones too.
    """
    bits = values["scale"].astype("uint16")
    half = _choose(bits == 127, np.uint16(0), bits & 127) << 7
    return _single(_float16(half)) * np.float32(128)


def _float16(bits: Any) -> Any:
    return te.reinterpret("float16", bits) if isinstance(bits, Expr) else np.asarray(bits).view(np.float16)


def _float32(bits: Any) -> Any:
    return te.reinterpret("float32", bits) if isinstance(bits, Expr) else np.asarray(bits).view(np.float32)


def _plain(values: Values) -> Any:
    return _single(values["scale"])


def _two_levels(values: Values) -> Any:
    return _single(values["super_scale"]) * _single(values["scale"])


def _minimum(values: Values) -> Any:
    return _single(values["minimum"])


def _two_minima(values: Values) -> Any:
    return _single(values["super_minimum"]) * _single(values["minimum"]) * np.float32(-1)


def _halves(per: int, **places: int) -> dict[str, Field]:
    return {name: Field("float16", per, _half_at(place)) for name, place in places.items()}


def _six_bit_fields() -> dict[str, Field]:
    own = {"scale": Field("uint8", 32, _six_bits(4, 0)), "minimum": Field("uint8", 32, _six_bits(4, 1))}
    return {**_halves(256, super_scale=0, super_minimum=2), **own}


def _rows() -> tuple[BlockFormat, ...]:
    plain, signed = _halves(32, scale=0), "int8"
    minima = _halves(32, scale=0, minimum=2)
    return (
        BlockFormat("q4_0", 32, 18, 32, 4, 8, _nibbles(2), plain, _plain),
        BlockFormat("q4_1", 32, 20, 32, 4, 0, _nibbles(4), minima, _plain, _minimum),
        BlockFormat("q5_0", 32, 22, 32, 5, 16, _with_fifth_bit(2), plain, _plain),
        BlockFormat("q5_1", 32, 24, 32, 5, 0, _with_fifth_bit(4), minima, _plain, _minimum),
        BlockFormat("q8_0", 32, 34, 32, 8, 128, lambda b, j: b[2 + j] ^ 128, plain, _plain),
        BlockFormat(
            "q2_k", 256, 84, 16, 2, 0, _quarters(16),
            {
                **_halves(256, super_scale=80, super_minimum=82),
                "scale": Field("uint8", 16, lambda b, n: b[n] & 15),
                "minimum": Field("uint8", 16, lambda b, n: b[n] >> 4),
            },
            _two_levels, _two_minima,
        ),
        BlockFormat(
            "q3_k", 256, 110, 16, 3, 4, lambda b, j: _quarters(32)(b, j) | _bits(b[j % 32], j // 32, 1) << 2,
            {**_halves(256, super_scale=108), "scale": Field(signed, 16, _three_bit_scale)},
            _two_levels,
        ),
        BlockFormat("q4_k", 256, 144, 32, 4, 0, _pairs_of_32(16), _six_bit_fields(), _two_levels, _two_minima),
        BlockFormat(
            "q5_k", 256, 176, 32, 5, 0, lambda b, j: _pairs_of_32(48)(b, j) | _bits(b[16 + j % 32], j // 32, 1) << 4,
            _six_bit_fields(), _two_levels, _two_minima,
        ),
        BlockFormat(
            "q6_k", 256, 210, 16, 6, 32,
            lambda b, j: _bits(b[j // 128 * 64 + j % 64], j // 64 % 2 * 4, 4) | _quarters(128)(b, j) << 4,
            {**_halves(256, super_scale=208), "scale": Field(signed, 16, lambda b, n: b[192 + n].astype("int8"))},
            _two_levels,
        ),
        BlockFormat("iq4_nl", 32, 18, 32, 4, 128, _nibbles(2), plain, _plain, value=_looked_up(_CURVE, 128)),
        BlockFormat(
            "mxfp4", 32, 17, 32, 4, 12, _nibbles(1),
            {"power": Field("uint8", 32, lambda b, n: b[n * 0])}, _power_of_two, value=_looked_up(_E2M1, 12),
        ),
        BlockFormat(
            "nvfp4", 64, 36, 16, 4, 12, lambda b, j: _bits(b[4 + j // 16 * 8 + j % 8], j // 8 % 2 * 4, 4),
            {"scale": Field("uint8", 16, lambda b, n: b[n])}, _unsigned_e4m3, value=_looked_up(_E2M1, 12),
        ),
    )  # fmt: skip


BLOCK_FORMATS: Mapping[str, BlockFormat] = {row.name: row for row in _rows()}
"""The formats by name."""


@dataclass(frozen=True, slots=True)
class ArrayBytes:
    """Blocks of bytes of NumPy, the last dimension of an array."""

    array: Array

    def __getitem__(self, place: Any) -> Array:
        return np.asarray(self.array[..., place])

    def half(self, place: Any) -> Array:
        """The float16 that begins at a place."""
        pairs = np.stack([self.array[..., place], self.array[..., place + 1]], -1)
        return np.asarray(pairs.view(np.float16)[..., 0])


def codes_of(blocks: Array, form: BlockFormat) -> Array:
    """The codes of blocks uint8[n, k / weights, bytes], as uint8[n, k]."""
    return np.asarray(form.code(ArrayBytes(blocks), np.arange(form.weights))).reshape(len(blocks), -1)


def fields_of(blocks: Array, form: BlockFormat) -> dict[str, Array]:
    """The fields of blocks by name, each [n, k / per]."""
    read = ArrayBytes(blocks)
    return {
        name: np.asarray(one.read(read, np.arange(form.weights // one.per))).reshape(len(blocks), -1).astype(one.dtype)
        for name, one in form.fields.items()
    }


def scales_of(blocks: Array, form: BlockFormat) -> tuple[Array, Array]:
    """The scales and the offsets of blocks of `form.block` weights, as float32[n, k / block]."""
    found = {n: np.repeat(a, form.fields[n].per // form.block, axis=1) for n, a in fields_of(blocks, form).items()}
    scale = np.asarray(form.scale(found), np.float32)
    return scale, np.zeros_like(scale) if form.offset is None else np.asarray(form.offset(found), np.float32)


def dequantized(blocks: Array, form: BlockFormat) -> Array:
    """The weights of blocks uint8[n, k / weights, bytes], as float32[n, k]."""
    scale, offset = (np.repeat(part, form.block, axis=1) for part in scales_of(blocks, form))
    centred = np.asarray(form.value(codes_of(blocks, form))).astype(np.int16) - form.zero
    made = scale * centred.astype(np.float32)
    return made if form.offset is None else made + offset
