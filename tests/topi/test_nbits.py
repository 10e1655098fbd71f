"""Weights of a few bits: what blocks of bytes mean, as gguf has it, and products that are exact up to scales."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import tensorlang
from tensorlang import dtypes, te, topi
from tensorlang.errors import DefinitionError
from tensorlang.te.operation import Tensor
from tensorlang.topi.block_formats import BLOCK_FORMATS, ArrayBytes, BlockFormat, codes_of, dequantized, fields_of
from tensorlang.topi.nbits import NbitsWeights
from tests.device_targets import on_cuda, on_opencl
from tests.topi.programs import shape_of

Array = npt.NDArray[Any]
FOUR = BLOCK_FORMATS["q4_0"]
FORMATS = pytest.mark.parametrize("name", BLOCK_FORMATS)


def every_byte(form: BlockFormat) -> Array:
    """Blocks [64, 4, bytes] in which each byte takes all values."""
    made = (np.arange(256)[:, None] + 37 * np.arange(form.bytes)) % 256
    return np.ascontiguousarray(made.reshape(64, 4, -1), np.uint8)


def some_blocks(form: BlockFormat, n: int, k: int) -> Array:
    """Blocks of n rows of any codes, whose scales are about one."""
    rng = np.random.default_rng(n + k + form.bytes)
    made = rng.integers(0, 256, (n, k // form.weights, form.bytes), dtype=np.uint8)
    for field in form.fields.values():
        if field.dtype == "float16":
            place = next(p for p in range(form.bytes - 1) if _reads(field.read, p, form.bytes))
            made[..., place + 1] = made[..., place + 1] & 0x83 | 0x2C
    if form.name == "mxfp4":
        made[..., 0] = 120 + made[..., 0] % 8
    return made


def _reads(read: Any, place: int, size: int) -> bool:
    """Whether a float16 begins at a place."""
    probe = np.zeros((1, size), np.uint8)
    probe[0, place + 1] = 0x3C
    return float(read(ArrayBytes(probe), np.arange(1))[0, 0]) == 1.0


def built(outputs: list[Tensor], inputs: list[Tensor], arrays: list[Array], target: str | None = None) -> list[Array]:
    kernel = tensorlang.build(topi.schedule(outputs, target, tuned=False), [*inputs, *outputs], target=target)
    made = [np.full(shape_of(t), 77, dtypes.info(t.dtype).numpy) for t in outputs]
    kernel(*arrays, *made)
    return made


def same_bits(made: Array, wanted: Array) -> None:
    with np.errstate(invalid="ignore"):
        equal = (made.view(np.uint32) == wanted.view(np.uint32)) | (np.isnan(made) & np.isnan(wanted))
    assert made.dtype == wanted.dtype == np.float32 and equal.all()


@FORMATS
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_blocks_mean_what_gguf_says(name: str) -> None:
    gguf = pytest.importorskip("gguf")
    form, kind = BLOCK_FORMATS[name], gguf.GGMLQuantizationType[name.upper()]
    assert gguf.GGML_QUANT_SIZES[kind] == (form.weights, form.bytes)
    blocks = every_byte(form)
    same_bits(dequantized(blocks, form), gguf.quants.dequantize(blocks.reshape(64, -1), kind).astype(np.float32))


@pytest.mark.sampled(5)
@FORMATS
@pytest.mark.parametrize("target", [None, "interpreter", on_opencl, on_cuda])
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_kernels_dequantize_bit_by_bit(name: str, target: str | None) -> None:
    form = BLOCK_FORMATS[name]
    blocks = every_byte(form)
    given = te.placeholder(blocks.shape, "uint8", "blocks")
    made = topi.dequantize(given, name)
    same_bits(built([made], [given], [blocks], target)[0], dequantized(blocks, form))


@cache
def quantized(x_bytes: bytes, m: int, block: int) -> Array:
    """Rows as products see them: bytes by scales, block by block."""
    x = np.frombuffer(x_bytes, np.float32).reshape(m, -1, block)
    most = abs(x).max(-1, keepdims=True)
    inverse = np.divide(np.float32(127), most, out=np.zeros_like(most), where=most > 0)
    scales = (most * np.float32(1 / 127)).astype(np.float64)
    return np.asarray(np.rint(x * inverse) * scales).reshape(m, -1)


def rows(m: int, k: int) -> Array:
    x = np.random.default_rng(m * k).standard_normal((m, k)).astype(np.float32)
    x[:, : k // 2] *= 100
    x[-1, -32:] = 0
    return x


def close(made: Array, x: Array, weights: Array, block: int) -> None:
    """A product, by its errors of sums of floats."""
    seen = quantized(x.tobytes(), len(x), block)
    size = abs(seen) @ abs(weights.astype(np.float64)).T
    assert (abs(made - seen @ weights.astype(np.float64).T) <= 2e-6 * size + 1e-30).all()


def multiplied(weights: NbitsWeights, arrays: list[Array], x: Array, target: str | None = None) -> tuple[Array, Any]:
    data = te.placeholder(x.shape, "float32", "x")
    made = topi.matmul_nbits(data, weights)
    out = built([made], [data, *weights.tensors], [x, *arrays], target)[0]
    return out, topi.schedule(made, tuned=False)


@pytest.mark.sampled(8)
@pytest.mark.covering(1)
@FORMATS
@pytest.mark.parametrize(("m", "n"), [(1, 48), (5, 37), (20, 16)])
def test_products_of_blocks(name: str, m: int, n: int) -> None:
    form, k = BLOCK_FORMATS[name], 512
    blocks = some_blocks(form, n, k)
    given = te.placeholder(blocks.shape, "uint8", "blocks")
    packed = topi.pack_nbits(given, name)
    arrays = built(packed.tensors, [given], [blocks])
    out, s = multiplied(topi.nbits_weights(n, k, form), arrays, x := rows(m, k))
    close(out, x, dequantized(blocks, form), form.block)
    assert "blocks" in [note.form for note in s.forms]


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", ["q4_0", "q6_k", "nvfp4"])
@pytest.mark.parametrize("target", ["interpreter", on_opencl, on_cuda])
def test_products_elsewhere(name: str, target: str) -> None:
    form, (m, n, k) = BLOCK_FORMATS[name], (2, 17, max(64, BLOCK_FORMATS[name].weights))
    blocks = some_blocks(form, n, k)
    given, data = te.placeholder(blocks.shape, "uint8", "blocks"), te.placeholder((m, k), "float32", "x")
    made = topi.matmul_nbits(data, topi.pack_nbits(given, name))
    out = built([made], [data, given], [x := rows(m, k), blocks], target)[0]
    close(out, x, dequantized(blocks, form), form.block)


GROUPS = [
    *((bits, 32, bits % 2 == 0, "float16") for bits in (1, 2, 3, 4, 5, 6, 8)),
    (4, 128, True, "float16"), (4, 16, False, "float32"), (8, 256, False, "float32"), (4, 64, True, "bfloat16"),
]  # fmt: skip


@pytest.mark.sampled(5)
@pytest.mark.parametrize(("bits", "block", "zeros", "scale"), GROUPS)
def test_groups_of_codes(bits: int, block: int, zeros: bool, scale: str) -> None:
    rng, (n, k) = np.random.default_rng(bits), (33, 256)
    codes = rng.integers(0, 1 << bits, (n, k), dtype=np.uint8)
    scales = (rng.random((n, k // block)) + 0.5).astype(dtypes.info(scale).numpy)
    points = rng.integers(0, 1 << bits, scales.shape, dtype=np.uint8)
    arrays = [codes, scales, *([points] if zeros else [])]
    given = [te.placeholder(a.shape, dtypes.canonical(a.dtype), f"a{i}") for i, a in enumerate(arrays)]
    packed = topi.pack_groups(given[0], given[1], given[2] if zeros else None, bits)
    laid_out = built(packed.tensors, given, arrays)
    form = topi.group_format(bits, block, scale, zeros)
    out, _ = multiplied(topi.nbits_weights(n, k, form), laid_out, x := rows(2, k))
    zero = np.repeat(points, block, 1).astype(np.float64) if zeros else float(1 << bits - 1)
    close(out, x, np.repeat(scales.astype(np.float64), block, 1) * (codes - zero), block)


@pytest.mark.parametrize("cpu", ["haswell", "alderlake", "neoverse-v1", "ivybridge"])
def test_other_cpus_multiply_words(cpu: str) -> None:
    weights = topi.nbits_weights(48, 256, FOUR)
    data = te.placeholder((2, 256), "float32", "x")
    made, target = topi.matmul_nbits(data, weights), f"llvm -mcpu={cpu}"
    s = topi.schedule(made, target, tuned=False)
    assert "blocks" in [note.form for note in s.forms]
    asm = tensorlang.build(s, [data, *weights.tensors, made], target).source("asm")
    wanted = {"haswell": "vpmaddubsw", "alderlake": "vpdpbusd", "neoverse-v1": "usdot"}.get(cpu, "")
    assert wanted in asm


@pytest.mark.parametrize(("name", "m", "far"), [("q4_0", 1, 0), ("q4_0", 2, 1), ("q8_0", 2, 0), ("q5_k", 4, 2)])
def test_codes_come_from_far_where_there_is_much_to_do(name: str, m: int, far: int) -> None:
    made = topi.matmul_nbits(te.placeholder((m, 512), name="x"), topi.nbits_weights(64, 512, BLOCK_FORMATS[name]))
    steps = [line for line in topi.schedule(made, tuned=False).trace.to_python().splitlines() if ".prefetch(" in line]
    assert sum("level=2" in line for line in steps) == far and len(steps) > far


def of_my_own(m: int, n: int, k: int) -> tuple[list[Tensor], Tensor]:
    """Three bits with two levels of scales: 4 bits for each 16 weights, under a float for each 64."""
    panels, groups = n // 16, k // 64
    low, high = (te.placeholder((panels, k // 32, b, 16, 4), "uint8", f"bits{b}") for b in (2, 1))
    small = te.placeholder((panels, groups, 2, 16), "uint8", "small")
    large = te.placeholder((panels, groups, 16), "float16", "large")
    x, xs = te.placeholder((m, k // 16, 4, 4), "int8", "x"), te.placeholder((m, k // 16), "float32", "xs")

    def code(q: Any, v: Any, lane: Any, t: Any) -> Any:
        word = v % 8
        top = low[q, v // 8, word % 2, lane, t] >> (word // 2 * 2).astype("uint8") & 3
        return top | (high[q, v // 8, 0, lane, t] >> word.astype("uint8") & 1) << 2

    codes = te.compute((panels, k // 4, 16, 4), code, name="codes")
    w, t, b = te.reduce_axis((0, 4), "w"), te.reduce_axis((0, 4), "t"), te.reduce_axis((0, k // 16), "b")
    dots = te.compute(
        (m, panels, k // 16, 16),
        lambda i, q, c, lane: te.sum(
            codes[q, c * 4 + w, lane, t].astype("int32") * x[i, c, w, t].astype("int32"), axis=[w, t]
        ),
        name="dots",
    )

    def under_scales(i: Any, q: Any, lane: Any) -> Any:
        scale = (small[q, b // 4, b % 4 // 2, lane] >> (b % 2 * 4).astype("uint8") & 15).astype("float32")
        both = scale * large[q, b // 4, lane].astype("float32")
        return te.sum(dots[i, q, b, lane].astype("float32") * (both * xs[i, b]), axis=b)

    return [low, high, small, large, x, xs], te.compute((m, panels, 16), under_scales, name="y")


@pytest.mark.parametrize("m", [1, 4])
def test_a_format_of_ones_own_has_the_form(m: int) -> None:
    inputs, made = of_my_own(m, 48, 128)
    s = topi.schedule(made, tuned=False)
    assert [note.form for note in s.forms] == ["blocks"]
    rng = np.random.default_rng(m)
    shapes = [(shape_of(t), t.dtype) for t in inputs]
    arrays = [(rng.random(n) if "float" in d else rng.integers(0, 100, n)).astype(d) for n, d in shapes]
    wanted, out = np.empty((m, 3, 16), np.float32), np.empty((m, 3, 16), np.float32)
    tensorlang.build(te.create_schedule(made.op), [*inputs, made])(*arrays, wanted)
    tensorlang.build(s, [*inputs, made])(*arrays, out)
    np.testing.assert_allclose(out, wanted, rtol=1e-5)


@pytest.mark.parametrize(("m", "n"), [(1, 48), (5, 48), (2, 40)])
def test_what_follows_is_made_in_the_tile(m: int, n: int) -> None:
    """A gate and its partner: the last product where it is read; columns that fill no panel are stored before."""
    rows_of_data = topi.quantize_blocks(data := te.placeholder((m, 64), name="x"))
    given = [topi.nbits_weights(n, 64, FOUR, name) for name in ("gate", "up")]
    gate, up = (topi.matmul_nbits(rows_of_data, w, f"{name}d") for w, name in zip(given, ("gate", "up"), strict=True))
    made = topi.multiply(topi.silu(gate), up, name="made")
    tensors = [data, *given[0].tensors, *given[1].tensors]
    s = topi.schedule(made, tuned=False)
    assert (("made", "blocks") in [(note.stage, note.form) for note in s.forms]) == (n % 16 == 0)
    rng = np.random.default_rng(n)
    shapes = [(shape_of(t), t.dtype) for t in tensors]
    arrays = [(rng.random(z) - 0.5 if "float" in d else rng.integers(0, 256, z)).astype(d) for z, d in shapes]
    wanted, out = np.empty((m, n), np.float32), np.empty((m, n), np.float32)
    tensorlang.build(te.create_schedule(made.op), [*tensors, made])(*arrays, wanted)
    tensorlang.build(s, [*tensors, made])(*arrays, out)
    np.testing.assert_allclose(out, wanted, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("shift", [0, 1])
def test_what_reads_other_columns_is_not(shift: int) -> None:
    made = topi.matmul_nbits(te.placeholder((2, 64), name="x"), topi.nbits_weights(48, 64, FOUR))
    after = te.compute((2, 48 - shift), lambda i, j: made[i, j + shift] * 2.0, name="after")
    s = topi.schedule(after, tuned=False)
    assert (("after", "blocks") in [(note.stage, note.form) for note in s.forms]) == (shift == 0)


def test_one_of_two_that_follow_is_made_in_the_tile() -> None:
    """A product that is an output itself, and what is made of it."""
    rows_of_data = topi.quantize_blocks(te.placeholder((2, 64), name="x"))
    product = topi.matmul_nbits(rows_of_data, topi.nbits_weights(48, 64, FOUR), "product")
    s = topi.schedule([topi.relu(product), product], tuned=False)
    assert [note.stage for note in s.forms if note.form == "blocks"].count("product") == 1


def test_fields_and_codes_are_those_of_the_table() -> None:
    form = BLOCK_FORMATS["q4_1"]
    blocks = some_blocks(form, 2, 64)
    assert codes_of(blocks, form).shape == (2, 64) and codes_of(blocks, form).max() < 16
    fields = fields_of(blocks, form)
    np.testing.assert_array_equal(fields["minimum"], blocks[..., 2:4].copy().view(np.float16)[..., 0])


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda b, x: topi.dequantize(b, "q9"), "unknown format 'q9' of blocks; known: q4_0, q4_1"),
        (lambda b, x: topi.dequantize(b, "q4_1"), r"blocks of q4_1 are uint8\[n, k / 32, 20\], got"),
        (lambda b, x: topi.pack_nbits(x, "q4_0"), r"blocks of q4_0 are uint8\[n, k / 32, 18\], got"),
        (lambda b, x: topi.quantize_blocks(x, 48), r"whole blocks of 48, a multiple of 4, got"),
        (
            lambda b, x: topi.matmul_nbits(x, topi.nbits_weights(4, 128, FOUR)),
            "no rows of 128 in blocks",
        ),
        (lambda b, x: topi.nbits_weights(4, 48, FOUR), r"whole rows of 32 and of 32, got \[4, 48\]"),
        (lambda b, x: topi.group_format(7, 32), "codes have 1, 2, 3, 4, 5, 6, 8 bits"),
        (lambda b, x: topi.pack_groups(x, x), r"wanted codes uint8\[n, k\]"),
    ],
)
def test_wrong_arguments(make: Any, message: str) -> None:
    blocks, x = te.placeholder((4, 2, 18), "uint8", "blocks"), te.placeholder((2, 64), "float32", "x")
    with pytest.raises(DefinitionError, match=message):
        make(blocks, x)


def test_a_norm_in_front_runs_in_vectors() -> None:
    """Its row is shaped with it, not computed where it is read, whose sums would stay as declared."""
    x, weight = rows(2, 128), np.linspace(0.5, 2, 128, dtype=np.float32)
    given = [te.placeholder((2, 128), name="x"), te.placeholder((128,), name="weight")]
    made = topi.quantize_blocks(topi.rms_norm(given[0], given[1]))
    outputs = [made.codes, made.scales, made.sums]
    assert ("rms_norm", "rows.keep") in [(note.stage, note.form) for note in topi.schedule(outputs, tuned=False).forms]
    codes, scales, sums = built(outputs, given, [x, weight])
    normed = x / np.sqrt((x.astype(np.float64) ** 2).mean(1, keepdims=True) + 1e-5) * weight
    np.testing.assert_array_equal(sums, codes.sum((2, 3), dtype=np.int32))
    off = abs((codes.reshape(2, 4, 32) * scales[..., None].astype(np.float64)).reshape(2, 128) - normed)
    assert (off <= np.repeat(scales, 32, 1) * 0.501).all()


@pytest.mark.sampled(2)
@pytest.mark.parametrize("target", [None, "interpreter", on_opencl, on_cuda])
@pytest.mark.parametrize("name", ["q4_0", "q6_k"])
def test_experts_that_a_table_chooses(name: str, target: str | None) -> None:
    """Of three with 32 rows each, two for each row of data; numbers that are no expert's are brought to the nearest."""
    form, (m, each, k) = BLOCK_FORMATS[name], (2, 32, max(64, BLOCK_FORMATS[name].weights))
    blocks, chosen = some_blocks(form, 3 * each, k), np.array([[2, 0], [-7, 9]], np.int32)
    given, data = te.placeholder(blocks.shape, "uint8", "blocks"), te.placeholder((m, k), "float32", "x")
    table = te.placeholder((m, 2), "int32", "table")
    made = topi.experts_nbits(data, topi.pack_nbits(given, name), table, 3)
    (out,) = built([made], [data, table, given], [x := rows(m, k), chosen, blocks], target)
    weights = dequantized(blocks, form).reshape(3, each, k)
    for i, row in enumerate(np.clip(chosen, 0, 2)):
        for e, expert in enumerate(row):
            close(out[i : i + 1, e], x[i : i + 1], weights[expert], form.block)


def test_weights_of_experts_are_read_as_they_lie() -> None:
    """In the form of blocks, no byte by itself: their panel is data, but the same for a vector."""
    weights, data = topi.nbits_weights(8 * 128, 256, FOUR), te.placeholder((1, 256), "float32", "x")
    table = te.placeholder((1, 2), "int32", "table")
    made, target = topi.experts_nbits(data, weights, table, 8), "llvm -num-cores=1"
    s = topi.schedule(made, target, tuned=False)
    assert ("experts", "blocks") in [(note.stage, note.form) for note in s.forms]
    text = tensorlang.build(s, [data, table, *weights.tensors, made], target).get_source("ll")
    assert "load i8" not in text and "insertelement <64 x i8>" not in text


def test_refused_experts() -> None:
    weights, data = topi.nbits_weights(96, 64, FOUR), te.placeholder((2, 64), "float32", "x")
    for table, experts in ((te.placeholder((2, 1), "int32"), 4), (te.placeholder((2, 1), "int64"), 3)):
        with pytest.raises(DefinitionError, match="a multiple of 16 rows of each of"):
            topi.experts_nbits(data, weights, table, experts)
    with pytest.raises(DefinitionError, match="are no rows of 64 in blocks of 32 for each of"):
        topi.experts_nbits(data, weights, te.placeholder((3, 1), "int32"), 3)
