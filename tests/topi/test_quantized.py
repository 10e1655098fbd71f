"""Products of bfloat16 and of bytes, summed in 32 bits by dot instructions where there are some, and requantize."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given as drawn
from hypothesis import settings
from hypothesis import strategies as st

import tensorlang
from tensorlang import dtypes, te, topi
from tensorlang.errors import DefinitionError
from tensorlang.ir.stmt import CallMachine
from tensorlang.ir.stmt import walk as statements
from tensorlang.schedule.rewrites.narrow_product import SUMS
from tensorlang.schedules.cpu.narrow_product import dot_instruction, operand_dtype, panel_of
from tensorlang.schedules.cpu.register_tile import whole_width
from tensorlang.schedules.default import apply_forms
from tensorlang.target.detect import host_cpu, parse, runs_here
from tensorlang.te.operation import Tensor
from tensorlang.topi.quantized import quantized_dense_numpy, quantized_dense_reference
from tests.topi.programs import Given, run, shape_of

Array = npt.NDArray[Any]

PAIRS = [("bfloat16", "bfloat16"), ("int8", "int8"), ("uint8", "int8")]
VNNI = "llvm -mcpu=cooperlake"
PLAIN = ["llvm -mcpu=haswell", "llvm -mcpu=neoverse-n1", "llvm -mcpu=core2", "llvm -mcpu=alderlake"]


def factor(name: str, *shape: int, dtype: str) -> Given:
    """Bytes of any value; bfloat16 small enough that all sums are exact."""
    rng = np.random.default_rng(sum(map(ord, name)) + sum(shape))
    low, high = (-16, 16) if dtype == "bfloat16" else dtypes.limits(dtype)
    values = rng.integers(int(low), int(high) + 1, shape)
    return te.placeholder(shape, dtype, name), values.astype(dtypes.info(dtype).numpy)


def exact(x: Array, y: Array) -> Array:
    """The product in whole numbers."""
    return np.asarray(x.astype(np.int64) @ y.astype(np.int64))


def narrow_matmul(a: Given, b: Given, transpose_a: bool = False, transpose_b: bool = False, target: str = "") -> Array:
    """The product in panels, whatever the target would choose; scheduled and run."""
    (x, _), (y, _), machine = a, b, parse(target or None)
    made = topi.matmul(x, y, transpose_a, transpose_b, out_dtype=SUMS[x.dtype, y.dtype])
    s = te.create_schedule(made.op)
    n = int(str(made.shape[1]))
    s[made].narrow_product(panel_of(n, machine), operand_dtype(x.dtype, y.dtype, machine) or x.dtype)
    if target != "interpreter":
        apply_forms(s, machine)
    out = np.full(shape_of(made), 77, made.dtype)
    tensorlang.build(s, [x, y, made], target or None)(a[1], b[1], out)
    return out


def check(
    m: int, n: int, k: int, dtype: str, weight: str, transpose_a: bool = False, transpose_b: bool = False
) -> None:
    a = factor("a", *((k, m) if transpose_a else (m, k)), dtype=dtype)
    b = factor("b", *((n, k) if transpose_b else (k, n)), dtype=weight)
    x, y = a[1].T if transpose_a else a[1], b[1].T if transpose_b else b[1]
    np.testing.assert_array_equal(narrow_matmul(a, b, transpose_a, transpose_b), exact(x, y))


@pytest.mark.sampled(2)
@pytest.mark.covering(2)
@pytest.mark.parametrize(("dtype", "weight"), PAIRS)
@pytest.mark.parametrize("transpose_a", [False, True])
@pytest.mark.parametrize("transpose_b", [False, True])
@pytest.mark.parametrize(("m", "n", "k"), [(48, 96, 128), (37, 101, 83)])
def test_products(m: int, n: int, k: int, transpose_a: bool, transpose_b: bool, dtype: str, weight: str) -> None:
    check(m, n, k, dtype, weight, transpose_a, transpose_b)


@settings(max_examples=8)
@drawn(st.integers(1, 40), st.integers(1, 90), st.integers(1, 90), st.booleans(), st.booleans(), st.sampled_from(PAIRS))
def test_odd_shapes(m: int, n: int, k: int, transpose_a: bool, transpose_b: bool, pair: tuple[str, str]) -> None:
    check(m, n, k, *pair, transpose_a, transpose_b)


@pytest.mark.parametrize(("a", "b"), [(-128, -128), (-128, 127), (127, -128), (127, 127)])
def test_extremes_of_signed_bytes(a: int, b: int) -> None:
    A, B = te.placeholder((9, 1001), "int8", "A"), te.placeholder((1001, 17), "int8", "B")
    x, y = np.full((9, 1001), a, "int8"), np.full((1001, 17), b, "int8")
    assert (run(topi.matmul(A, B, out_dtype="int32"), (A, x), (B, y)) == 1001 * a * b).all()


def test_extremes_of_unsigned_bytes() -> None:
    A, B = te.placeholder((9, 1001), "uint8", "A"), te.placeholder((17, 1001), "int8", "B")
    x, y = np.full((9, 1001), 255, "uint8"), np.full((17, 1001), -128, "int8")
    assert (run(topi.dense(A, B, out_dtype="int32"), (A, x), (B, y)) == -1001 * 255 * 128).all()


def test_sums_of_bfloat16_are_those_of_float32() -> None:
    """Products are exact in float32, so 500 of them are off by at most 500 roundings of 2^-24 of their sizes."""
    rng = np.random.default_rng(0)
    x, y = (rng.standard_normal(shape).astype(dtypes.info("bfloat16").numpy) for shape in ((40, 500), (500, 70)))
    A, B = te.placeholder(x.shape, "bfloat16", "A"), te.placeholder(y.shape, "bfloat16", "B")
    made = run(topi.matmul(A, B, out_dtype="float32"), (A, x), (B, y))
    wide, sizes = (f(x.astype(np.float64)) @ f(y.astype(np.float64)) for f in (np.positive, np.abs))
    assert (np.abs(made - wide) <= 500 * 2.0**-24 * sizes).all()
    assert np.abs(made - wide).max() < 1e-4


def calls(output: Tensor, *inputs: Tensor) -> int:
    """The calls of machine code in a scheduled program."""
    lowered = tensorlang.lower(topi.schedule(output), [*inputs, output])
    return sum(isinstance(s, CallMachine) for s in statements(lowered.kernel.body))


@pytest.mark.parametrize(("dtype", "weight"), PAIRS)
def test_matmul_takes_the_dot_instructions_of_this_machine(dtype: str, weight: str) -> None:
    A, B = te.placeholder((64, 64), dtype, "A"), te.placeholder((64, 64), weight, "B")
    sums = "float32" if dtype == "bfloat16" else "int32"
    operand = "uint8" if dtype == "int8" and "avx512vnni" in host_cpu().features else dtype
    has = dot_instruction(operand, weight, parse()) is not None
    assert (calls(topi.matmul(A, B, out_dtype=sums), A, B) > 0) == has
    assert calls(topi.matmul(A, B, out_dtype="int64" if sums == "int32" else "float64"), A, B) == 0


def test_a_product_is_the_same_program_on_every_machine() -> None:
    """And what a machine makes of it is a step of the trace: on a GPU none, for its tensor cores take it as it is."""
    A, B = te.placeholder((64, 64), "int8", "A"), te.placeholder((64, 64), "int8", "B")
    made, traces = [], {}
    for target in (VNNI, PLAIN[0], "cuda -arch=sm_80"):
        with parse(target):
            s = topi.schedule(topi.matmul(A, B, out_dtype="int32"), target, tuned=False)
        made.append(s.original.key)
        traces[target] = str(s)
    assert len(set(made)) == 1
    assert traces[VNNI].startswith("s['C'].narrow_product(width=32, data='uint8')\n")
    assert not [t for t, text in traces.items() if t != VNNI and "narrow_product" in text]


@pytest.mark.covering(1)
@pytest.mark.parametrize("shape", [(512, 512, 512), (500, 300, 700)])
@pytest.mark.parametrize(
    ("dtype", "weight", "word"), [("bfloat16", "bfloat16", "vdpbf16ps"), ("uint8", "int8", "vpdpbusd")]
)
def test_sums_stay_in_registers(dtype: str, weight: str, word: str, shape: tuple[int, int, int]) -> None:
    m, n, k = shape
    A = te.placeholder((m, k), dtype, "A")
    W = topi.pack_narrow(te.placeholder((n, k), weight, "B"), target=VNNI)
    P = te.placeholder(W.shape, weight, "P")
    C = topi.dense_narrow(A, P, n, target=VNNI)
    asm = tensorlang.build(topi.schedule(C, VNNI), [A, P, C], VNNI).source("asm")
    loops = [part for part in re.split(r"\n\.LBB\w+:", asm) if part.count(word) >= 16]
    assert loops
    for body in loops:
        inside = body[body.index(word) : body.rindex(word)]
        assert not re.search(r"zmm.*%rsp|%rsp.*zmm", inside)


def packed_product(dtype: str, weight: str, target: str) -> tuple[Tensor, tuple[Given, Given], Array]:
    """A dense layer made for a target, its inputs, and what it is."""
    (A, x), (B, y) = factor("A", 30, 70, dtype=dtype), factor("B", 50, 70, dtype=weight)
    C = topi.dense_narrow(A, topi.pack_narrow(B, target=target), 50, target=target)
    return C, ((A, x), (B, y)), exact(x, y.T)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("target", PLAIN)
@pytest.mark.parametrize(("dtype", "weight"), PAIRS)
def test_other_machines(dtype: str, weight: str, target: str) -> None:
    C, inputs, wanted = packed_product(dtype, weight, target)
    if runs_here(parse(target)):
        np.testing.assert_array_equal(run(C, *inputs, target=target), wanted)
        return
    asm = tensorlang.build(topi.schedule(C, target), [*(t for t, _ in inputs), C], target).source("asm")
    has = {("llvm -mcpu=neoverse-n1", "int8"): "sdot", ("llvm -mcpu=alderlake", "int8"): "vpdpbusd"}.get(
        (target, dtype)
    )
    assert has is None or has in asm


@pytest.mark.parametrize(("dtype", "weight"), PAIRS)
def test_panels_of_one_machine_are_scheduled_for_another(dtype: str, weight: str) -> None:
    a, b = factor("A", 20, 30, dtype=dtype), factor("B", 30, 40, dtype=weight)
    for target in ("interpreter", PLAIN[0]):
        if target == "interpreter" or runs_here(parse(target)):
            np.testing.assert_array_equal(narrow_matmul(a, b, target=target), exact(a[1], b[1]))


def test_rows_of_unknown_number() -> None:
    m = te.var("m")
    A, (B, y) = te.placeholder((m, 37), "int8", "A"), factor("B", 37, 41, dtype="int8")
    C = topi.matmul(A, B, out_dtype="int32")
    kernel = tensorlang.build(topi.schedule(C), [A, B, C])
    for rows in (1, 12, 31):
        (_, x), made = factor("A", rows, 37, dtype="int8"), np.zeros((rows, 41), "int32")
        kernel(x, y, made)
        np.testing.assert_array_equal(made, exact(x, y))


@pytest.mark.parametrize(("m", "n"), [(240, 100), (13, 400)])
def test_threads(m: int, n: int) -> None:
    """Shared out by rows, and by panels."""
    a, b = factor("A", m, 300, dtype="int8"), factor("B", 300, n, dtype="int8")
    np.testing.assert_array_equal(narrow_matmul(a, b, target="llvm -num-cores=2"), exact(a[1], b[1]))


@pytest.mark.sampled(2)
@pytest.mark.parametrize(("dtype", "zero_point"), [("uint8", 128), ("uint8", 0), ("int8", -7), ("int8", 0)])
@pytest.mark.parametrize("ahead", [False, True])
def test_zero_points(dtype: str, zero_point: int, ahead: bool) -> None:
    (A, x), (B, y) = factor("A", 21, 90, dtype=dtype), factor("B", 90, 70, dtype="int8")
    W = topi.pack_narrow(B, transposed=False)
    offsets = topi.narrow_offsets(W, dtype, zero_point) if ahead else None
    C = topi.dense_narrow(A, W, 70, offsets=offsets, zero_point=0 if ahead else zero_point)
    wanted = exact(x.astype(np.int64) - zero_point, y)
    np.testing.assert_array_equal(run(C, (A, x), (B, y)), wanted)


def test_what_follows_is_computed_in_the_tile() -> None:
    (A, x), (B, y) = factor("A", 50, 64, dtype="int8"), factor("B", 75, 64, dtype="int8")
    bias, offset = te.placeholder((75,), "int32", "bias"), np.arange(75, dtype="int32") * 1000
    scale, factors = te.placeholder((75,), "float32", "scale"), np.linspace(1e-4, 1e-2, 75, dtype="float32")
    product = topi.dense_narrow(A, topi.pack_narrow(B), 75, bias)
    made = topi.requantize(topi.relu(product), scale, 3, "uint8")
    sums = np.maximum(exact(x, y.T) + offset, 0).astype("float32")
    wanted = np.clip(np.rint(sums * factors) + 3, 0, 255).astype("uint8")
    np.testing.assert_array_equal(run(made, (A, x), (B, y), (bias, offset), (scale, factors)), wanted)
    s = topi.schedule(made)
    assert s.state.stages[made.op.name].attach is not None
    assert not {"dense", "dense_product", "relu"} & set(s.state.stages)


def test_requantize_rounds_halves_to_even_and_stops_at_the_limits() -> None:
    sums = np.array([[1, 3, 5, -1, -3, 7], [253, 255, 1 << 30, -255, -257, -(1 << 30)]], "int32")
    D = te.placeholder(sums.shape, "int32", "D")
    made = run(topi.requantize(D, 0.5), (D, sums))
    assert made.tolist() == [[0, 2, 2, 0, -2, 4], [126, 127, 127, -128, -128, -128]]
    unsigned = run(topi.requantize(D, 0.5, 10, "uint8"), (D, sums))
    assert unsigned.tolist() == [[10, 12, 12, 10, 8, 14], [136, 138, 255, 0, 0, 0]]


@pytest.mark.parametrize("axis", [0, 1, -1])
def test_requantize_per_channel(axis: int) -> None:
    (D, _), n = factor("D", 7, 5, dtype="int32"), (7, 5)[axis]
    sums = np.arange(35, dtype="int32").reshape(7, 5) * 37 - 600
    scale, zero = te.placeholder((n,), "float32", "scale"), te.placeholder((n,), "int32", "zero")
    factors, zeros = np.linspace(0.05, 0.3, n, dtype="float32"), np.arange(n, dtype="int32") - 3
    made = run(topi.requantize(D, scale, zero, axis=axis), (D, sums), (scale, factors), (zero, zeros))
    along = (slice(None), None) if axis == 0 else (None, slice(None))
    wanted = np.clip(np.rint(sums * factors[along]) + zeros[along], -128, 127)
    np.testing.assert_array_equal(made, wanted)


def test_the_named_operator() -> None:
    data, weight, scale, out = topi.operator("quantized_dense").tensors((23, 45, 67), "int8")
    (_, x), (_, y) = factor("x", 23, 67, dtype="int8"), factor("y", 45, 67, dtype="int8")
    factors = np.linspace(1e-4, 2e-2, 45, dtype="float32")
    (wanted,) = quantized_dense_reference(x, y, factors)
    np.testing.assert_array_equal(run(out, (data, x), (weight, y), (scale, factors)), wanted)
    written = np.empty_like(wanted)
    quantized_dense_numpy(x, y, factors, written)
    np.testing.assert_array_equal(written, wanted)


@pytest.mark.parametrize(("n", "width"), [(1, 16), (33, 48), (64, 32), (72, 80), (1024, 32)])
def test_panels_waste_little(n: int, width: int) -> None:
    assert whole_width(n, parse(VNNI), 32) == width


def refused(what: str) -> Tensor:
    """Uses that do not fit."""
    A, B = te.placeholder((4, 30), "int8", "A"), te.placeholder((20, 30), "int8", "B")
    P, C = topi.pack_narrow(B), te.placeholder((4, 20), "int32", "C")
    match what:
        case "float32":
            return topi.pack_narrow(te.placeholder((4, 4), "float32", "W"))
        case "dtypes":
            return topi.dense_narrow(te.placeholder((4, 30), "float32", "A"), P, 20)
        case "terms":
            return topi.dense_narrow(te.placeholder((4, 40), "int8", "A"), P, 20)
        case "units":
            return topi.dense_narrow(A, P, 999)
        case "bias":
            return topi.dense_narrow(A, P, 20, te.placeholder((21,), "int32", "bias"))
        case "offsets":
            return topi.dense_narrow(A, P, 20, offsets=te.placeholder((20,), "int32", "offsets"))
        case "zero":
            return topi.dense_narrow(A, P, 20, zero_point=128)
        case "twice":
            return topi.dense_narrow(A, P, 20, offsets=topi.narrow_offsets(P), zero_point=3)
        case "uint16":
            return topi.narrow_offsets(P, "uint16")
        case "channels":
            return topi.requantize(C, te.placeholder((4,), "float32", "scale"))
        case "axis":
            return topi.requantize(C, 1.0, axis=2)
    return topi.requantize(C, 1.0, dtype=what)


@pytest.mark.parametrize(
    ("what", "message"),
    [
        ("float32", "pack_narrow wants a matrix of bfloat16 or int8"),
        ("dtypes", "multiplies bfloat16 by bfloat16, int8 by int8, uint8 by int8, got float32 by int8"),
        ("terms", r"dense wants data\[m, k\] and packed"),
        ("units", "does not hold 999 units in panels of"),
        ("bias", "the bias of dense has 20 elements"),
        ("offsets", r"the offsets are those of narrow_offsets\(packed\)"),
        ("zero", "has to be a value of their dtype, got 128"),
        ("twice", "give the zero point 3 to narrow_offsets"),
        ("uint16", "wanted int8 or uint8 data and int8 weights of pack_narrow, got uint16"),
        ("channels", "or one for each of 20 channels"),
        ("axis", "has no axis 2"),
        ("int16", "makes int8 or uint8 of integers, got int16"),
    ],
)
def test_refusals(what: str, message: str) -> None:
    with pytest.raises(DefinitionError, match=message):
        refused(what)


def test_bfloat16_has_no_zero_point() -> None:
    A, B = te.placeholder((4, 30), "bfloat16", "A"), te.placeholder((20, 30), "bfloat16", "B")
    with pytest.raises(DefinitionError, match="bfloat16 has no zero point"):
        topi.dense_narrow(A, topi.pack_narrow(B), 20, zero_point=1)


@pytest.mark.parametrize(("n", "k"), [(45, 67), (64, 64), (3, 1)])
@pytest.mark.parametrize("dtype", ["int8", "bfloat16"])
def test_the_named_layout(n: int, k: int, dtype: str) -> None:
    row = topi.operator("pack_narrow")
    weight, output = row.tensors((n, k), dtype)
    _, values = factor("weight", n, k, dtype=dtype)
    (wanted,) = row.reference(values)
    np.testing.assert_array_equal(run(output, (weight, values)), wanted)
    made = np.empty_like(wanted)
    row.numpy(values, made)
    np.testing.assert_array_equal(made, wanted)


@pytest.mark.covering(1)
@pytest.mark.parametrize(("m", "n", "k"), [(12, 45, 67), (9, 64, 64)])
@pytest.mark.parametrize("dtype", ["int8", "uint8", "bfloat16"])
def test_the_named_packed_product(m: int, n: int, k: int, dtype: str) -> None:
    """What lies behind the last term of a panel is multiplied by zero points, and does not matter."""
    row = topi.operator("dense_narrow")
    *inputs, output = row.tensors((m, n, k), dtype)
    arrays = [factor(t.name, *shape_of(t), dtype=t.dtype)[1] for t in inputs[:2]]
    arrays.append(np.arange(n).astype(inputs[2].dtype))
    (wanted,) = row.reference(*arrays)
    np.testing.assert_array_equal(run(output, *zip(inputs, arrays, strict=True)), wanted)
    made = np.empty_like(wanted)
    row.numpy(*arrays, made)
    np.testing.assert_array_equal(made, wanted)


def test_operators_of_other_dtypes() -> None:
    with pytest.raises(DefinitionError, match="quantized_dense takes data of int8 or uint8, got float32"):
        topi.operator("quantized_dense").tensors((2, 3, 4), "float32")
    with pytest.raises(DefinitionError, match="narrow numbers are bfloat16, int8, uint8, got float32"):
        topi.operator("dense_narrow").tensors((2, 3, 4), "float32")


@pytest.mark.parametrize("target", [None, VNNI])
def test_sums_over_words_that_users_lay_out(target: str | None) -> None:
    """Panels of words under other names: the form of the library, its dot instruction, and what follows in its tile."""
    (X, x), (P, p) = factor("x", 13, 32, dtype="uint8"), factor("p", 2, 8, 16, 4, dtype="int8")
    t = te.reduce_axis((0, 32), "t")

    def total(row: Any, block: Any, column: Any) -> Any:
        term = P[block, te.floordiv(t, 4), column, te.floormod(t, 4)]
        return te.sum(X[row, t].astype("int32") * term.astype("int32"), axis=t)

    sums = te.compute((13, 2, 16), total, name="sums")
    whole = te.compute((13, 30), lambda r, c: sums[r, te.floordiv(c, 16), te.floormod(c, 16)], name="whole")
    made = te.compute((13, 30), lambda r, c: te.max(whole[r, c], 0), name="made")
    s = topi.schedule(made, target, tuned=False)
    assert [note.form for note in s.forms] == ["words"]
    assert s.state.stages["made"].attach is not None
    if target == VNNI:
        assert "vpdpbusd" in tensorlang.build(s, [X, P, made], target).source("asm")
        return
    columns = p.astype(np.int64).transpose(0, 2, 1, 3).reshape(32, 32)[:30]
    wanted = np.maximum(x.astype(np.int64) @ columns.T, 0)
    np.testing.assert_array_equal(run(made, (X, x), (P, p)), wanted)


def test_a_product_of_bytes_by_hand_takes_the_dot_instruction() -> None:
    """Whatever its stages are called; the library's definition has no more to say."""
    X, W = te.placeholder((64, 32), "uint8", "X"), te.placeholder((40, 32), "int8", "W")
    t = te.reduce_axis((0, 32), "t")
    made = te.compute(
        (64, 40), lambda r, c: te.sum(X[r, t].astype("int32") * W[c, t].astype("int32"), axis=t), name="y"
    )
    assert "narrow_product" in topi.schedule(made, VNNI, tuned=False).trace.to_python()
    assert "narrow_product" not in topi.schedule(made, "llvm -mcpu=haswell", tuned=False).trace.to_python()
