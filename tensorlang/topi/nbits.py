"""Products of weights of a few bits with vectors, a panel of 16 rows at a time, in whole numbers block by block.

What is multiplied are bytes: the vectors are quantized block by block to eight bits and a scale (`quantize_blocks`),
and the sums of a block are exact. Weights are laid out ahead (`pack_nbits`) so that the lanes of a vector register are
rows: codes as [n / 16, k / 32, bits, 16, 4], where a word of four bytes holds the same bits of four neighbouring
terms; codes of five or six bits in two such arrays, the lower four bits and the others; the numbers of blocks as
[n / 16, k / block, 16]. Rows after the last are zeros.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from tensorlang import dtypes, te
from tensorlang.dataclass import dataclass
from tensorlang.errors import DefinitionError
from tensorlang.ir.expr import Expr, cast, const
from tensorlang.te.axis import extent_of
from tensorlang.te.operation import Tensor
from tensorlang.topi.block_formats import BLOCK_FORMATS, BlockFormat, Field
from tensorlang.topi.checked import checked

Array = npt.NDArray[Any]

LANES, WORD, CHUNK = 16, 4, 32
"""Rows of a panel, bytes of a word, and terms whose bits are laid out together."""
_PLANES: Mapping[int, tuple[int, ...]] = {1: (1,), 2: (2,), 3: (2, 1), 4: (4,), 5: (4, 1), 6: (4, 2), 8: (8,)}
"""The bits of a code in the arrays that hold them, the lowest first."""


@dataclass(frozen=True, slots=True)
class NbitsWeights:
    """Weights [n, k] of a format, laid out in panels: `planes` of bits, and the `fields` of the format by name."""

    form: BlockFormat
    n: int
    k: int
    planes: tuple[Tensor, ...]
    fields: Mapping[str, Tensor]

    @property
    def tensors(self) -> list[Tensor]:
        """All arrays, in the order in which a kernel is given them."""
        return [*self.planes, *self.fields.values()]


@dataclass(frozen=True, slots=True)
class DataBlock:
    """The numbers of a block of data: the sum of its codes, its scale, and its part of `data_shares`."""

    total: Any
    scale: Any
    share: Any


@dataclass(frozen=True, slots=True)
class QuantizedBlocks:
    """Rows of bytes, block by block: `codes` int8[m, k / block, block / 4, 4], `scales` float32[m, k / block].

    `sums`: of the codes of each block, int32[m, k / block].
    """

    codes: Tensor
    scales: Tensor
    sums: Tensor

    def at(self, i: Any, block: Any, shares: Tensor | None) -> DataBlock:
        """A block of a row, with its element of `shares`."""
        return DataBlock(self.sums[i, block], self.scales[i, block], None if shares is None else shares[i, block])


@dataclass(frozen=True, slots=True)
class _TensorBytes:
    """The bytes of a block of a tensor [rows, blocks, bytes]."""

    blocks: Tensor
    row: Expr
    block: Expr

    def __getitem__(self, place: Any) -> Any:
        return self.blocks[self.row, self.block, place]

    def half(self, place: Any) -> Any:
        """The float16 that begins at a place."""
        low, high = (self[place + n].astype("uint16") for n in range(2))
        return te.reinterpret("float16", low | high << 8)


@dataclass(frozen=True, slots=True)
class _Source:
    """Where codes and fields of weights come from: `code(row, term)`, and `number(name, row, n)` of the n-th block."""

    code: Callable[[Any, Any], Any]
    number: Callable[[str, Any, Any], Any]


def block_format(name: str) -> BlockFormat:
    """The format of that name; DefinitionError names those there are."""
    if name not in BLOCK_FORMATS:
        raise DefinitionError(f"unknown format {name!r} of blocks; known: {', '.join(BLOCK_FORMATS)}")
    return BLOCK_FORMATS[name]


@checked
def group_format(bits: int, block: int, scale: str = "float16", zero_points: bool = False) -> BlockFormat:
    """The format of weights that come as arrays: codes, a scale for each `block` neighbours, and perhaps a zero point.

    Without zero points, that of signed codes moved up: half of the codes there are. As AWQ, GPTQ and ONNX have it.

        >>> from tensorlang import topi
        >>> form = topi.group_format(4, 32)
        >>> form.weights, form.bits
        (32, 4)
    """
    if bits not in _PLANES or block < 1 or block % WORD:
        known = ", ".join(map(str, _PLANES))
        raise DefinitionError(f"codes have {known} bits, and blocks a multiple of 4 weights, got {bits} and {block}")
    fields = {"scale": Field(dtypes.canonical(scale), block, _nothing)}
    if zero_points:
        fields["zero_point"] = Field("uint8", block, _nothing)
    name = f"{bits} bits in groups of {block}"
    return BlockFormat(name, block, 0, block, bits, 1 << bits - 1, _nothing, fields, _own_scale)


def _nothing(*_: Any) -> Any:
    raise DefinitionError("weights of this format are no blocks of bytes; use pack_groups")


def _own_scale(values: Mapping[str, Any]) -> Any:
    return values["scale"].astype("float32")


@checked
def nbits_weights(n: int, k: int, form: BlockFormat, name: str = "weights") -> NbitsWeights:
    """Placeholders for weights [n, k] that `pack_nbits` or `pack_groups` has laid out.

    DefinitionError unless rows are whole blocks.

        >>> from tensorlang import te, topi
        >>> weights = topi.nbits_weights(64, 128, topi.group_format(4, 32))
        >>> topi.matmul_nbits(te.placeholder((2, 128)), weights).shape
        (2, 64)
    """
    _check_sizes(n, k, form)
    panels = -(-n // LANES)
    planes = (
        te.placeholder((panels, k // CHUNK, bits, LANES, WORD), "uint8", f"{name}_bits{part}")
        for part, bits in enumerate(_PLANES[form.bits])
    )
    fields = {
        each: te.placeholder((panels, k // one.per, LANES), one.dtype, f"{name}_{each}")
        for each, one in form.fields.items()
    }
    return NbitsWeights(form, n, k, tuple(planes), fields)


@checked
def pack_nbits(blocks: Tensor, format: str, name: str = "weights") -> NbitsWeights:
    """Lay out weights for `matmul_nbits`: blocks of bytes uint8[n, k / weights, bytes], as a file holds them.

    `format` is one of `q4_0`, `q4_1`, `q5_0`, `q5_1`, `q8_0`, `q2_k` to `q6_k`, `iq4_nl`, `mxfp4` and `nvfp4`; see
    `topi.block_formats`. DefinitionError for others, and for other shapes.

        >>> from tensorlang import te, topi
        >>> weights = topi.pack_nbits(te.placeholder((64, 4, 18), "uint8"), "q4_0")
        >>> topi.matmul_nbits(te.placeholder((2, 128)), weights).shape
        (2, 64)
    """
    form = block_format(format)
    rows, k = _check_blocks(blocks, form)

    def at(row: Any, block: Any) -> _TensorBytes:
        return _TensorBytes(blocks, row, block)

    def number(field: str, row: Any, n: Any) -> Any:
        one = form.fields[field]
        each = form.weights // one.per
        return one.read(at(row, n // each), n % each)

    source = _Source(lambda row, j: form.code(at(row, j // form.weights), j % form.weights), number)
    return _packed(source, form, rows, k, name)


@checked
def pack_groups(
    codes: Tensor, scales: Tensor, zero_points: Tensor | None = None, bits: int = 4, name: str = "weights"
) -> NbitsWeights:
    """Lay out weights for `matmul_nbits`: uint8 codes [n, k] of some bits, scales and zero points [n, k / block].

    A weight is `scale * (code - zero point)`; without zero points those are half of the codes there are. One block a
    row is a scale of each channel. DefinitionError for other shapes and dtypes.

        >>> from tensorlang import te, topi
        >>> codes, scales = te.placeholder((64, 128), "uint8"), te.placeholder((64, 4), "float16")
        >>> topi.matmul_nbits(te.placeholder((2, 128)), topi.pack_groups(codes, scales)).shape
        (2, 64)
    """
    (n, k), groups = (extent_of(e) for e in codes.shape[:2]), extent_of(scales.shape[-1])
    if codes.ndim != 2 or codes.dtype != "uint8" or scales.ndim != 2 or not n or not k or not groups or k % groups:
        raise DefinitionError(f"{name}: wanted codes uint8[n, k] and scales [n, k / block], got {codes} and {scales}")
    if zero_points is not None and (zero_points.dtype != "uint8" or list(zero_points.shape) != list(scales.shape)):
        raise DefinitionError(f"{name}: zero points are uint8 of the shape of {scales}, got {zero_points}")
    form = group_format(bits, k // groups, scales.dtype, zero_points is not None)
    given = {"scale": scales, "zero_point": zero_points}

    def number(field: str, row: Any, n: Any) -> Any:
        array = given[field]
        assert array is not None
        return array[row, n]

    return _packed(_Source(lambda row, j: codes[row, j], number), form, n, k, name)


def groups_laid_out(codes: Array, form: BlockFormat, fields: Mapping[str, Array]) -> tuple[list[Array], list[Array]]:
    """What `pack_groups` makes of arrays of NumPy: the planes of uint8 codes [n, k], and fields [n, k / block]."""
    rows = [(0, -len(codes) % LANES), (0, 0)]
    whole = (
        np.pad(codes, rows).reshape(-1, LANES, codes.shape[1] // CHUNK, CHUNK // WORD, WORD).transpose(0, 2, 3, 1, 4)
    )
    planes, low = list[Array](), 0
    for bits in _PLANES[form.bits]:
        parts = (whole >> low & (1 << bits) - 1).reshape(*whole.shape[:2], 8 // bits, bits, LANES, WORD)
        shifts = np.arange(0, 8, bits, dtype=np.uint8)[:, None, None, None]
        planes.append(np.bitwise_or.reduce(parts << shifts, axis=2).astype(np.uint8))
        low += bits
    numbers = [np.pad(fields[each], rows).reshape(-1, LANES, fields[each].shape[1]) for each in form.fields]
    return planes, [np.ascontiguousarray(array.transpose(0, 2, 1)) for array in numbers]


def _packed(source: _Source, form: BlockFormat, n: int, k: int, name: str) -> NbitsWeights:
    _check_sizes(n, k, form)
    wanted = nbits_weights(n, k, form, name)

    def inside(row: Any, value: Any) -> Any:
        return te.if_then_else(row < n, value, cast(const(0), value.dtype)) if n % LANES else value

    def plane(low: int, bits: int) -> Callable[..., Any]:
        def byte(q: Any, h: Any, i: Any, lane: Any, t: Any) -> Any:
            row, made = q * LANES + lane, cast(const(0), "uint8")
            for part in range(8 // bits):
                code = source.code(row, h * CHUNK + (i + part * bits) * WORD + t)
                made = made | ((code >> low) & (1 << bits) - 1) << part * bits
            return inside(row, made)

        return byte

    planes, low = list[Tensor](), 0
    for bits, like in zip(_PLANES[form.bits], wanted.planes, strict=True):
        planes.append(te.compute(like.shape, plane(low, bits), name=like.name))
        low += bits
    fields = {
        each: te.compute(
            like.shape,
            lambda q, g, lane, each=each: inside(q * LANES + lane, source.number(each, q * LANES + lane, g)),
            name=like.name,
        )
        for each, like in wanted.fields.items()
    }
    return replace(wanted, planes=tuple(planes), fields=fields)


@checked
def dequantize(blocks: Tensor, format: str, name: str = "dequantize") -> Tensor:
    """Return the weights of blocks of bytes uint8[n, k / weights, bytes] as float32[n, k], as the format defines them.

    `format`: see `pack_nbits`. DefinitionError for unknown ones, and for other shapes.

        >>> from tensorlang import te, topi
        >>> topi.dequantize(te.placeholder((64, 4, 18), "uint8"), "q4_0").shape
        (64, 128)
    """
    form = block_format(format)
    n, k = _check_blocks(blocks, form)

    def weight(i: Any, j: Any) -> Any:
        at, place = _TensorBytes(blocks, i, j // form.weights), j % form.weights
        values = {each: one.read(at, place // one.per).astype(one.dtype) for each, one in form.fields.items()}
        centred = form.value(form.code(at, place)).astype("int32") - form.zero
        made = form.scale(values) * centred.astype("float32")
        return made if form.offset is None else made + form.offset(values)

    made: Tensor = te.compute((n, k), weight, name=name)
    return made


@checked
def quantize_blocks(data: Tensor, block: int = 32, name: str = "quantized") -> QuantizedBlocks:
    """Quantize float rows [m, k]: each `block` neighbours to bytes of -127 to 127 and a scale, a 127th of the largest.

    What `matmul_nbits` multiplies, and what several products of the same rows share. DefinitionError for other shapes.

        >>> from tensorlang import te, topi
        >>> rows = topi.quantize_blocks(te.placeholder((2, 128)))
        >>> weights = topi.pack_nbits(te.placeholder((64, 4, 18), "uint8"), "q4_0")
        >>> topi.matmul_nbits(rows, weights).shape
        (2, 64)
    """
    k = extent_of(data.shape[-1])
    if data.ndim != 2 or k is None or block < 1 or block % WORD or k % block:
        raise DefinitionError(f"{name}: wanted rows [m, k] of whole blocks of {block}, a multiple of 4, got {data}")
    shape = (data.shape[0], k // block)
    j, w, t = te.reduce_axis((0, block), "j"), te.reduce_axis((0, block // WORD), "w"), te.reduce_axis((0, WORD), "t")
    most = te.compute(
        shape,
        lambda i, g: te.max(te.abs(data[i, g * block + j].astype("float32")), axis=j),
        name=f"{name}_largest",
    )
    scales = te.compute(shape, lambda i, g: most[i, g] * np.float32(1 / 127), name=f"{name}_scales")

    def code(i: Any, g: Any, word: Any, term: Any) -> Any:
        near = data[i, g * block + word * WORD + term].astype("float32") * te.select(
            most[i, g] > 0, te.const(127.0, "float32") / most[i, g], te.const(0.0, "float32")
        )
        return te.max(te.min(te.round(near), 127.0), -127.0).astype("int8")

    codes = te.compute((*shape, block // WORD, WORD), code, name=f"{name}_codes")
    sums = te.compute(shape, lambda i, g: te.sum(codes[i, g, w, t].astype("int32"), axis=[w, t]), name=f"{name}_sums")
    return QuantizedBlocks(codes, scales, sums)


@checked
def matmul_nbits(data: Tensor | QuantizedBlocks, weights: NbitsWeights, name: str = "matmul_nbits") -> Tensor:
    """Return `data[m, k] @ weights[n, k].T` as float32[m, n], with data in bytes, block by block as the weights are.

    `data`: float rows, quantized here, or what `quantize_blocks` made of them, in blocks of the weights' size. Sums of
    a block are exact; errors are those of data in eight bits (each at most a 254th of its block's largest number) and
    of sums of floats. DefinitionError for shapes that do not fit.

        >>> from tensorlang import te, topi
        >>> weights = topi.pack_nbits(te.placeholder((64, 4, 18), "uint8"), "q4_0")
        >>> topi.matmul_nbits(te.placeholder((2, 128)), weights).shape
        (2, 64)
    """
    form, k = weights.form, weights.k
    rows = quantize_blocks(data, form.block, f"{name}_data") if isinstance(data, Tensor) else data
    if list(map(extent_of, rows.codes.shape[1:])) != [k // form.block, form.block // WORD, WORD]:
        raise DefinitionError(f"{name}: {rows.codes} are no rows of {k} in blocks of {form.block}, as the weights are")
    m, panels, blocks, words = rows.codes.shape[0], weights.planes[0].shape[0], k // form.block, form.block // WORD
    codes = te.compute(
        (panels, k // WORD, LANES, WORD),
        lambda q, v, lane, t: form.value(code_of(weights, q, v, lane, t)),
        name=f"{name}_weights",
    )
    w, t, b = te.reduce_axis((0, words), "w"), te.reduce_axis((0, WORD), "t"), te.reduce_axis((0, blocks), "b")
    dots = te.compute(
        (m, panels, blocks, LANES),
        lambda i, q, c, lane: te.sum(
            rows.codes[i, c, w, t].astype("int32") * codes[q, c * words + w, lane, t].astype("int32"), axis=[w, t]
        ),
        name=f"{name}_dots",
    )

    shares = data_shares(rows, form, name)

    def term(i: Any, q: Any, lane: Any) -> Any:
        return te.sum(under_scales(weights, (q, b, lane), dots[i, q, b, lane], rows.at(i, b, shares)), axis=b)

    sums = te.compute((m, panels, LANES), term, name=f"{name}_sums")
    made: Tensor = te.compute((m, weights.n), lambda i, j: sums[i, j // LANES, j % LANES], name=name)
    return made


def data_shares(rows: QuantizedBlocks, form: BlockFormat, name: str) -> Tensor | None:
    """What a block of data adds to products with all rows of weights: for their zero point, or times their offset.

    Made once, ahead: products by panels would make it again for each of them.
    """
    if form.offset is not None:
        return te.compute(
            rows.sums.shape, lambda i, g: rows.sums[i, g].astype("float32") * rows.scales[i, g], name=f"{name}_shares"
        )
    if form.zero and "zero_point" not in form.fields:
        return te.compute(rows.sums.shape, lambda i, g: rows.sums[i, g] * form.zero, name=f"{name}_shares")
    return None


def under_scales(weights: NbitsWeights, place: tuple[Any, Any, Any], dot: Any, data: DataBlock) -> Any:
    """What a block adds to a product: its sum of products `dot`; `place`: the panel, block and lane of weights."""
    form, (q, b, lane) = weights.form, place
    values = {each: array[q, b * form.block // form.fields[each].per, lane] for each, array in weights.fields.items()}
    if "zero_point" in values:
        dot = dot - values.pop("zero_point").astype("int32") * data.total
    elif form.offset is None and form.zero:
        dot = dot - data.share
    made = dot.astype("float32") * (form.scale(values) * data.scale)
    return made if form.offset is None else made + form.offset(values) * data.share


def code_of(weights: NbitsWeights, q: Any, v: Any, lane: Any, t: Any) -> Any:
    """The code of the word v of a lane, put together of its planes."""
    word, low, found = v % 8, 0, None
    for bits, plane in zip(_PLANES[weights.form.bits], weights.planes, strict=True):
        part = plane[q, v // 8, word % bits, lane, t]
        if bits < 8:
            part = (part >> (word // bits * bits).astype("uint8")) & (1 << bits) - 1
        found = part if found is None else found | part << low
        low += bits
    return found


def _check_sizes(n: int, k: int, form: BlockFormat) -> None:
    if n < 1 or k < 1 or k % CHUNK or k % max(form.weights, form.block):
        per = max(form.weights, form.block)
        raise DefinitionError(f"weights of {form.name} are whole rows of {per} and of {CHUNK}, got [{n}, {k}]")


def _check_blocks(blocks: Tensor, form: BlockFormat) -> tuple[int, int]:
    sizes = [extent_of(e) for e in blocks.shape]
    if blocks.dtype != "uint8" or len(sizes) != 3 or None in sizes or sizes[2] != form.bytes:
        wanted = f"uint8[n, k / {form.weights}, {form.bytes}]"
        raise DefinitionError(f"blocks of {form.name} are {wanted}, got {blocks}")
    return int(sizes[0] or 0), int(sizes[1] or 0) * form.weights
