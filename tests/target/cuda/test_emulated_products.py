"""Every kind of matrix instruction, and the two products by hand, run on the CPU: layouts, descriptors, pipelines."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from numpy.typing import NDArray

from tensorlang.errors import KernelError
from tensorlang.ir.fragment import Digit, Fragment
from tensorlang.target.cuda.fragments import (
    GROUP,
    PACKED,
    WARP,
    Multiply,
    group_multiply,
    warp_multiply,
)
from tensorlang.target.cuda.intrinsics import declarations
from tensorlang.testing.cuda_emulation import TensorMap, emulate, unavailable

pytestmark = pytest.mark.skipif(unavailable() is not None, reason=str(unavailable()))

Array = NDArray[Any]
FOLDER = Path(__file__).parent / "kernels"
DTYPES = {
    "bf16": ml_dtypes.bfloat16, "f16": np.float16, "tf32": np.float32, "s8": np.int8, "u8": np.uint8,
    "e4m3": ml_dtypes.float8_e4m3fn, "e5m2": ml_dtypes.float8_e5m2, "f32": np.float32, "s32": np.int32,
}  # fmt: skip
WORDS = {1: "unsigned", 2: "unsigned short", 4: "unsigned char"}
"""Elements in a register -> the C type of one."""

ACCUMULATOR = {"s8": "s32", "u8": "s32"}
WARPS = [*(warp_multiply(e, ACCUMULATOR.get(e, "f32")) for e in PACKED), warp_multiply("f16", "f16")]


def operands(element: str, m: int, n: int, k: int) -> tuple[Array, Array, Array]:
    """Matrices of small whole numbers, which every type has, and their product."""
    rng = np.random.default_rng(11)
    least = 0 if element == "u8" else -4
    a, b = rng.integers(least, 5, (m, k)), rng.integers(least, 5, (k, n))
    return a.astype(DTYPES[element]), b.astype(DTYPES[element]), a @ b


def bits(array: Array, words: str = "uint16") -> Array:
    """An array as the words that a kernel takes."""
    return np.ascontiguousarray(array).view(words)


def written(digits: Sequence[Digit], **numbers: int | str) -> str:
    """The sum of digits in C."""
    return " + ".join(f"({numbers[d.of]}) / {d.divisor} % {d.modulus} * {d.scale}" for d in digits)


def moves(fragment: Fragment, registers: str, array: str, row_length: int) -> str:
    """C that gathers the registers of an operand from a row-major array."""
    lines = []
    for register in range(fragment.registers):
        parts = []
        for element in range(fragment.elements):
            at: dict[str, int | str] = {"lane": "lane", "register": register, "element": element}
            row, column = written(fragment.row, **at), written(fragment.column, **at)
            place = f"({row}) * {row_length} + {column}"
            parts.append(f"(unsigned){array}[{place}] << {32 // fragment.elements * element}")
        lines.append(f"{registers}[{register}] = {' | '.join(parts)};")
    return "\n".join(lines)


def stores(fragment: Fragment, registers: str, array: str) -> str:
    """C that puts an accumulator into an array."""
    lines = []
    for register in range(fragment.registers):
        for element in range(fragment.elements):
            at: dict[str, int | str] = {"lane": "lane", "register": register, "element": element}
            value = f"{registers}[{register}]" + (f" >> {16 * element}" if fragment.elements > 1 else "")
            row, column = written(fragment.row, **at), written(fragment.column, **at)
            lines.append(f"{array}[({row}) * {fragment.columns} + {column}] = {value};")
    return "\n".join(lines)


def accumulator_type(multiply: Multiply) -> tuple[str, str]:
    """C types of an accumulator's register and of its elements in memory."""
    if multiply.accumulator == "f16":
        return "unsigned", "unsigned short"
    return ("float", "float") if multiply.accumulator == "f32" else ("int", "int")


def warp_kernel(multiply: Multiply) -> str:
    assert multiply.b is not None
    word = WORDS[PACKED[multiply.element]]
    register, stored = accumulator_type(multiply)
    return f"""
__device__ void {multiply.name}_tile(const {word}* a, const {word}* b, {stored}* c) {{
const int lane = threadIdx.x;
unsigned left[4], right[2];
{register} sum[{multiply.c.registers}] = {{}};
{moves(multiply.a, "left", "a", multiply.k)}
{moves(multiply.b, "right", "b", multiply.n)}
{multiply.name}(sum, left, right);
{multiply.name}(sum, left, right);
{stores(multiply.c, "sum", "c")}
}}
"""


def one_of(names: Sequence[str], texts: Sequence[str], multiplies: Sequence[Multiply], arch: str) -> str:
    """A text whose one kernel runs the tile with a number, so that it is built once."""
    cases = []
    for k, (name, multiply) in enumerate(zip(names, multiplies, strict=True)):
        word, stored = WORDS[PACKED[multiply.element]], accumulator_type(multiply)[1]
        cases.append(f"case {k}: {name}_tile((const {word}*)a, (const {word}*)b, ({stored}*)c); break;")
    lines = "\n".join(cases)
    head = (
        'extern "C" __global__ void tile(int which, const unsigned char* a, const unsigned char* b, unsigned char* c)'
    )
    body = "".join(texts) + f"{head} {{\nswitch (which) {{\n{lines}\n}}\n}}\n"
    return declarations(body, arch) + body


@pytest.fixture(scope="module")
def warp_text() -> str:
    return one_of([m.name for m in WARPS], [warp_kernel(m) for m in WARPS], WARPS, "sm_89")


@pytest.mark.sampled(2)
@pytest.mark.parametrize("number", range(len(WARPS)), ids=[m.name for m in WARPS])
def test_a_warp_multiplies_what_its_fragments_say(number: int, warp_text: str) -> None:
    multiply = WARPS[number]
    a, b, product = operands(multiply.element, multiply.m, multiply.n, multiply.k)
    c = np.zeros((multiply.m, multiply.n), DTYPES[multiply.accumulator])
    result = bits(c, "uint8")
    emulate(warp_text, "tile", 1, WARP, [number, bits(a, "uint8"), bits(b, "uint8"), result], arch="sm_89")
    np.testing.assert_array_equal(result.view(c.dtype), 2 * product)


def group_kernel(multiply: Multiply, *, registers: bool, rows_along_n: bool) -> str:
    """Rows of 128 bytes of k: four products. B is [n][k], or [k][n] in atoms of 64 columns."""
    packed, n = PACKED[multiply.element], multiply.n
    word, k = WORDS[packed], 32 * packed
    register, stored = accumulator_type(multiply)
    name = multiply.name + "_ra" * registers + "_kn" * rows_along_n
    if registers:
        step = f"unsigned left[4];\n{moves(multiply.a, 'left', f'(a + kk * {multiply.k})', k)}"
        left = "left"
    else:
        step, left = "", "tl_wgmma_descriptor(a_tile + kk * 32, 16, 1024, 1)"
    if rows_along_n:
        right = "tl_wgmma_descriptor(b_tile + kk * 2048, 8192, 1024, 1)"
        source = f"(i / 8 % 64) * {n} + i / 512 * 64 + i % 8 * 8"
    else:
        right = "tl_wgmma_descriptor(b_tile + kk * 32, 16, 1024, 1)"
        source = f"(i / 8) * {k} + i % 8 * {4 * packed}"
    return f"""
__device__ void {name}_tile(const {word}* a, const {word}* b, {stored}* c) {{
extern __shared__ __align__(1024) unsigned char shared[];
unsigned char* a_tile = shared;
unsigned char* b_tile = shared + 8192;
const int lane = threadIdx.x;
for (int i = lane; i < 512; i += {GROUP})
  *(uint4*)(a_tile + i / 8 * 128 + (i % 8 ^ i / 8 % 8) * 16) = *(const uint4*)(a + i * {4 * packed});
for (int i = lane; i < {n * 8}; i += {GROUP})
  *(uint4*)(b_tile + i / 8 * 128 + (i % 8 ^ i / 8 % 8) * 16) = *(const uint4*)(b + {source});
tl_fence_proxy_async();
__syncthreads();
{register} sum[{multiply.c.registers}];
tl_wgmma_fence();
#pragma unroll
for (int kk = 0; kk < 4; ++kk) {{
{step}
{"tl_wgmma_fence();" if registers else ""}
{name}(sum, {left}, {right}, kk != 0);
{"tl_wgmma_commit(); tl_wgmma_wait<0>();" if registers else ""}
}}
tl_wgmma_commit();
tl_wgmma_wait<0>();
{stores(multiply.c, "sum", "c")}
}}
"""


@dataclass(frozen=True, slots=True)
class Form:
    """A product of a group: A in registers or not, B along n or along k."""

    multiply: Multiply
    registers: bool = False
    rows_along_n: bool = False

    @property
    def name(self) -> str:
        """The device function."""
        return self.multiply.name + "_ra" * self.registers + "_kn" * self.rows_along_n

    @property
    def text(self) -> str:
        """The tile in CUDA C."""
        return group_kernel(self.multiply, registers=self.registers, rows_along_n=self.rows_along_n)


FORMS = [
    *(Form(group_multiply(e, 64, ACCUMULATOR.get(e, "f32"))) for e in PACKED),
    *(Form(group_multiply(e, 64, ACCUMULATOR.get(e, "f32")), registers=True) for e in ("bf16", "s8")),
    *(Form(group_multiply("bf16", 128), registers, rows_along_n=True) for registers in (False, True)),
]


@pytest.fixture(scope="module")
def group_text() -> str:
    return one_of([f.name for f in FORMS], [f.text for f in FORMS], [f.multiply for f in FORMS], "sm_90a")


@pytest.mark.parametrize("number", range(len(FORMS)), ids=[f.name for f in FORMS])
def test_a_group_multiplies_what_its_descriptors_say(number: int, group_text: str) -> None:
    form, multiply = FORMS[number], FORMS[number].multiply
    a, b, product = operands(multiply.element, 64, multiply.n, 32 * PACKED[multiply.element])
    c = np.zeros((64, multiply.n), DTYPES[multiply.accumulator])
    arrays = [bits(a, "uint8"), bits(b if form.rows_along_n else b.T, "uint8"), bits(c, "uint8")]
    emulate(group_text, "tile", 1, GROUP, [number, *arrays], 8192 + multiply.n * 128)
    np.testing.assert_array_equal(arrays[2].view(c.dtype), product)


def text(name: str, arch: str, *changes: tuple[str, str]) -> str:
    """A kernel by hand with its declarations, some of its text changed."""
    body = (FOLDER / f"{name}.cu").read_text(encoding="utf-8")
    for before, after in changes:
        assert body.count(before) == 1
        body = body.replace(before, after)
    return declarations(body, arch) + body


def by_mma(source: str, mode: Any, seed: int, sizes: tuple[int, int, int] = (150, 136, 200)) -> bool:
    """Whether gemm_bf16_mma gives the product of matrices that no tile divides."""
    m, n, k = sizes
    a, b, product = operands("bf16", m, n, k)
    c = np.full((m, n), np.nan, np.float32)
    grid = (-(-n // 128), -(-m // 128))
    emulate(source, "gemm_bf16_mma", grid, 256, [bits(a), bits(b), c, m, n, k], 65536, mode=mode, seed=seed)
    return bool((c == product).all())


def by_wgmma(source: str, mode: Any, seed: int, sizes: tuple[int, int, int] = (200, 320, 456)) -> bool:
    """Whether gemm_bf16_wgmma gives the product of matrices that no tile divides."""
    m, n, k = sizes
    a, b, product = operands("bf16", m, n, k)
    maps = [TensorMap(bits(a), (128, 64), 128), TensorMap(bits(b.T), (256, 64), 128)]
    c = np.full((m, n), np.nan, np.float32)
    grid, shared = (-(-n // 256), -(-m // 128)), 4 * 49152 + 1088
    emulate(source, "gemm_bf16_wgmma", grid, 384, [*maps, c, m, n, k], shared, mode=mode, seed=seed)
    return bool((c == product).all())


@pytest.mark.sampled(1)
@pytest.mark.parametrize("mode", ["late", "at_once"])
def test_the_products_by_hand_are_right_in_any_order(mode: str) -> None:
    for seed in range(3):
        assert by_mma(text("gemm_bf16_mma", "sm_80"), mode, seed)
        assert by_wgmma(text("gemm_bf16_wgmma", "sm_90a"), mode, seed)


@pytest.mark.parametrize("k", [8, 32, 96, 128])
def test_short_sums_do_not_upset_the_pipelines(k: int) -> None:
    assert by_mma(text("gemm_bf16_mma", "sm_80"), "late", 0, (40, 24, k))
    assert by_wgmma(text("gemm_bf16_wgmma", "sm_90a"), "late", 0, (40, 24, k))


def test_a_wait_too_short_is_found_when_copies_are_late() -> None:
    wrong = text("gemm_bf16_mma", "sm_80", ("tl_cp_async_wait<STAGES - 2>", "tl_cp_async_wait<STAGES - 1>"))
    assert not by_mma(wrong, "late", 0)


def test_a_stage_given_back_too_early_is_found_when_copies_are_at_once() -> None:
    early = ("tl_mbarrier_arrive(empty + (step - 1) % STAGES)", "tl_mbarrier_arrive(empty + step % STAGES)")
    wrong = text("gemm_bf16_wgmma", "sm_90a", early, ("if (step > 0 && (t & 31) == 0)", "if ((t & 31) == 0)"))
    assert not all(by_wgmma(wrong, "at_once", seed) for seed in range(3))


def test_a_stage_that_is_never_given_back_stops_the_kernel() -> None:
    wrong = text("gemm_bf16_wgmma", "sm_90a", ("if (step > 0 && (t & 31) == 0)", "if (step > 0 && t == 0)"))
    with pytest.raises(KernelError):
        by_wgmma(wrong, "late", 0)
