"""Matrix instructions and bulk copies on the CPU: they do what the layouts say, and kernels of them run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt
import pytest

from tensorlang.errors import ArgumentError, KernelError
from tensorlang.ir.fragment import Fragment
from tensorlang.target.cuda.fragments import group_multiply, warp_multiply
from tensorlang.target.cuda.intrinsics import declarations
from tensorlang.target.cuda.swizzle import Descriptor, descriptor_along_k, descriptor_along_n, hardware_address
from tensorlang.testing.cuda_emulation import TensorMap, emulate, unavailable
from tensorlang.testing.cuda_emulation.runner import Argument, Mode

pytestmark = pytest.mark.skipif(unavailable() is not None, reason=str(unavailable()))

Array = npt.NDArray[Any]
MODES: tuple[Mode, ...] = ("late", "at_once")
KERNELS = Path(__file__).parent.parent / "target" / "cuda" / "kernels"
TYPES: dict[str, Any] = {
    "bf16": ml_dtypes.bfloat16, "f16": np.float16, "tf32": np.float32, "s8": np.int8, "u8": np.uint8,
    "e4m3": ml_dtypes.float8_e4m3fn, "e5m2": ml_dtypes.float8_e5m2, "f32": np.float32, "s32": np.int32,
}  # fmt: skip


def drawn(element: str, *shape: int, seed: int = 0) -> Array:
    low = 0 if element == "u8" else -4
    return np.random.default_rng(seed).integers(low, 5, shape).astype(TYPES[element])


def whole(text: str) -> str:
    """A text with the device functions that it calls."""
    return declarations(text, "sm_90a") + text


def distribute(fragment: Fragment, tile: Array) -> Array:
    """The registers that hold a tile, 32 bits each."""
    held = np.zeros((fragment.lanes, fragment.registers, fragment.elements), tile.dtype)
    for at in np.ndindex(held.shape):
        held[at] = tile[fragment.place(*at)]
    return held.view(np.uint32).reshape(fragment.lanes, fragment.registers)


def collect(fragment: Fragment, registers: Array, dtype: Any) -> Array:
    """The tile that registers hold."""
    held = registers.view(dtype).reshape(fragment.lanes, fragment.registers, fragment.elements)
    tile = np.zeros((fragment.rows, fragment.columns), dtype)
    for at in np.ndindex(held.shape):
        tile[fragment.place(*at)] = held[at]
    return tile


PRODUCTS = [("bf16", "f32"), ("f16", "f32"), ("f16", "f16"), ("tf32", "f32"), ("s8", "s32"), ("u8", "s32")]
PRODUCTS += [("e4m3", "f32"), ("e5m2", "f32")]
ONE_PRODUCT = """
extern "C" __global__ void products(const unsigned *a, const unsigned *b, unsigned *c, int which) {
  unsigned left[4], right[2], sum[4];
  for (int r = 0; r < 4; ++r) left[r] = a[threadIdx.x * 4 + r], sum[r] = c[threadIdx.x * 4 + r];
  for (int r = 0; r < 2; ++r) right[r] = b[threadIdx.x * 2 + r];
CASES
  for (int r = 0; r < 4; ++r) c[threadIdx.x * 4 + r] = sum[r];
}
"""
C_TYPES = {"f32": "float", "f16": "unsigned", "s32": "int"}


def product_text() -> str:
    cases = [
        f"  if (which == {n}) {warp_multiply(e, acc).name}(({C_TYPES[acc]} *)sum, left, right);"
        for n, (e, acc) in enumerate(PRODUCTS)
    ]
    return whole(ONE_PRODUCT.replace("CASES", "\n".join(cases)))


@pytest.mark.parametrize("which", range(len(PRODUCTS)), ids=["-".join(p) for p in PRODUCTS])
def test_a_product_of_a_warp(which: int) -> None:
    element, accumulator = PRODUCTS[which]
    multiply = warp_multiply(element, accumulator)
    a, b = drawn(element, 16, multiply.k), drawn(element, multiply.k, 8, seed=1)
    c = drawn(accumulator, 16, 8, seed=2)
    sums = np.zeros((32, 4), np.uint32)
    sums[:, : multiply.c.registers] = distribute(multiply.c, c)
    assert multiply.b is not None
    emulate(product_text(), "products", 1, 32, [distribute(multiply.a, a), distribute(multiply.b, b), sums, which])
    got = collect(multiply.c, np.ascontiguousarray(sums[:, : multiply.c.registers]), TYPES[accumulator])
    wide = np.int64 if accumulator == "s32" else np.float64
    assert np.array_equal(got.astype(wide), a.astype(wide) @ b.astype(wide) + c.astype(wide))


def test_a_product_takes_a_whole_warp() -> None:
    registers = [np.zeros((32, n), np.uint32) for n in (4, 2, 4)]
    with pytest.raises(KernelError, match="mma in a warp of fewer than 32 threads"):
        emulate(product_text(), "products", 1, 24, [*registers, 0])


ROWS = """
extern "C" __global__ void rows(const unsigned *in, unsigned *out, int off) {
  __shared__ __align__(16) unsigned matrices[32][4], stored[32][4];
  unsigned r[4];
  for (int k = 0; k < 4; ++k) matrices[threadIdx.x][k] = in[threadIdx.x * 4 + k];
  __syncwarp();
  tl_ldmatrix_x4(r, (const char *)matrices[threadIdx.x] + off);
  for (int k = 0; k < 4; ++k) out[threadIdx.x * 4 + k] = r[k];
  tl_ldmatrix_x2_trans(r, matrices[threadIdx.x]);
  for (int k = 0; k < 2; ++k) out[128 + threadIdx.x * 2 + k] = r[k];
  tl_stmatrix_x2_trans(stored[threadIdx.x], r);
  __syncwarp();
  for (int k = 0; k < 4; ++k) out[192 + threadIdx.x * 4 + k] = stored[threadIdx.x][k];
}
"""


def test_matrices_of_rows_come_to_the_lanes_and_back() -> None:
    given = np.arange(256, dtype=np.uint16).reshape(4, 8, 8)
    out = np.zeros(320, np.uint32)
    emulate(whole(ROWS), "rows", 1, 32, [given.view(np.uint32), out, 0])
    halves = out.view(np.uint16)
    plain = halves[:256].reshape(8, 4, 4, 2)  # row, quarter of it, matrix
    assert np.array_equal(plain.transpose(2, 0, 1, 3).reshape(4, 8, 8), given)
    turned = halves[256:384].reshape(8, 4, 2, 2)
    assert np.array_equal(turned.transpose(2, 0, 1, 3).reshape(2, 8, 8), given[:2].transpose(0, 2, 1))
    assert np.array_equal(halves[384:512].reshape(2, 8, 8), given[:2])
    with pytest.raises(KernelError, match=r"a row of ldmatrix at shared address \d+; it has to be a multiple of 16"):
        emulate(whole(ROWS), "rows", 1, 32, [given.view(np.uint32), out, 4])


GROUP = [("bf16", ""), ("bf16", "_kn"), ("bf16", "_ra"), ("tf32", ""), ("s8", ""), ("e4m3", "")]
GROUP_PRODUCT = """
// d = a b, where descriptors are to addresses from the beginning of the image of shared memory.
extern "C" __global__ void group(const uint4 *image, int chunks, unsigned long long a, unsigned long long b,
                                 const unsigned *left, unsigned *out, int which, int mistake) {
  extern __shared__ __align__(1024) uint4 shared[];
  for (int i = threadIdx.x; i < chunks; i += 128) shared[i] = image[i];
  const unsigned long long base = __cvta_generic_to_shared(shared) >> 4;
  unsigned d[32], registers[4];
  for (int r = 0; r < 4; ++r) registers[r] = left[threadIdx.x * 4 + r];
  tl_fence_proxy_async();
  __syncthreads();
  if (mistake != 1) tl_wgmma_fence();
  a += base, b += base;
CASES
  tl_wgmma_commit();
  if (mistake == 2) d[5] = 0;
  if (mistake == 3) tl_wgmma_wait<1>(); else tl_wgmma_wait<0>();
  for (int r = 0; r < 32; ++r) out[threadIdx.x * 32 + r] = d[r];
}
"""


def group_text() -> str:
    cases = []
    for n, (element, suffix) in enumerate(GROUP):
        multiply = group_multiply(element, 64, "s32" if element == "s8" else "f32")
        left = "registers" if suffix == "_ra" else "a"
        call = f"{multiply.name}{suffix}(({C_TYPES[multiply.accumulator]} *)d, {left}, b, 0);"
        cases.append(f"  if (which == {n}) {call}")
    return whole(GROUP_PRODUCT.replace("CASES", "\n".join(cases)))


def laid(tile: Array, at: int, image: Array, span: int) -> None:
    """Put rows of at most `span` bytes at an address of the image of shared memory, as the hardware swizzles them."""
    data = np.ascontiguousarray(tile).view(np.uint8).reshape(len(tile), -1)
    for row, byte in np.ndindex(data.shape):
        address = at + row * max(span, 16) + byte
        image[hardware_address(address, span) if span else address] = data[row, byte]


def run_group(which: int, span: int = 128, mistake: int = 0) -> tuple[Array, Array]:
    """What a product of 64 x 64 gives, and what it should."""
    element, suffix = GROUP[which]
    multiply = group_multiply(element, 64, "s32" if element == "s8" else "f32")
    a, b = drawn(element, 64, multiply.k), drawn(element, multiply.k, 64, seed=1)
    image = np.zeros(32768, np.uint8)
    if span:
        laid(a, 0, image, span)
        left = descriptor_along_k(0, span)
        right = descriptor_along_k(16384, span)
        laid(b.T, 16384, image, span)
    else:  # chunks of 16 bytes of k: those of 64 rows together
        half = 16 // a.itemsize
        for k in range(2):
            laid(a[:, k * half : (k + 1) * half], k * 1024, image, 0)
            laid(b.T[:, k * half : (k + 1) * half], 16384 + k * 1024, image, 0)
        left, right = (Descriptor(at, 1024, 128, 0) for at in (0, 16384))
    if suffix == "_kn":
        image[16384:] = 0
        laid(b, 16384, image, 128)
        right = descriptor_along_n(16384, 8192)
    out = np.zeros((128, 32), np.uint32)
    held = distribute(multiply.a, a)
    words = image.view(np.uint32)
    args: list[Argument] = [words, len(image) // 16, left.encoded(), right.encoded(), held, out, which, mistake]
    emulate(group_text(), "group", 1, 128, args, len(image))
    wide = a.astype(np.float64) @ b.astype(np.float64)
    return collect(multiply.c, out, TYPES[multiply.accumulator]).astype(np.float64), wide


@pytest.mark.parametrize("which", range(len(GROUP)), ids=[f"{e}{s}" for e, s in GROUP])
def test_a_product_of_a_group(which: int) -> None:
    got, wanted = run_group(which)
    assert np.array_equal(got, wanted)


@pytest.mark.parametrize("span", [0, 32, 64])
def test_descriptors_name_the_other_swizzles(span: int) -> None:
    got, wanted = run_group(0, span)
    assert np.array_equal(got, wanted)


def test_products_of_groups_are_fenced_and_waited_for() -> None:
    with pytest.raises(KernelError, match=r"wgmma without a wgmma\.fence before it"):
        run_group(0, mistake=1)
    with pytest.raises(KernelError, match="an accumulator of wgmma was written between the product and the wait"):
        run_group(0, mistake=2)
    assert np.isnan(run_group(0, mistake=3)[0]).all()


BOXES = """
extern "C" __global__ void move(const __grid_constant__ tl_tensor_map from, const __grid_constant__ tl_tensor_map to,
                                int x, int y, int mistake) {
  __shared__ __align__(1024) unsigned char box[16 * 64];
  __shared__ __align__(8) unsigned long long full;
  if (threadIdx.x == 0) {
    if (mistake != 1) tl_mbarrier_init(&full, 1);
    tl_mbarrier_fence_init();
  }
  __syncthreads();
  if (threadIdx.x == 0) {
    tl_mbarrier_arrive_expect_tx(&full, mistake == 2 ? 64 : sizeof box);
    tl_tma_load_2d(box + (mistake == 3 ? 64 : 0), &from, x, y, &full);
  }
  while (!tl_mbarrier_try_wait(&full, 0)) { }
  if (threadIdx.x == 0) {
    tl_tma_store_2d(&to, x, y, box);
    tl_tma_store_commit();
    tl_tma_store_wait<0>();
  }
}
"""


def run_boxes(mode: Mode, swizzle: int, mistake: int = 0) -> bool:
    source, target = drawn("f32", 24, 36), np.full((24, 36), 7, np.float32)
    maps = [TensorMap(array, (16, 16), swizzle) for array in (source, target)]
    emulate(whole(BOXES), "move", 1, 64, [*maps, 24, 12, mistake], mode=mode)
    wanted = np.full((24, 36), 7, np.float32)
    wanted[12:, 24:] = source[12:, 24:]
    return np.array_equal(target, wanted)


@pytest.mark.parametrize("swizzle", [0, 64])
@pytest.mark.parametrize("mode", MODES)
def test_boxes_go_through_shared_memory(mode: Mode, swizzle: int) -> None:
    """The box hangs over two edges of the tensor: what is outside arrives as zero, and is not stored."""
    assert run_boxes(mode, swizzle)


@pytest.mark.parametrize(
    ("mistake", "message"),
    [
        (1, r"before mbarrier\.init"),
        (2, r"64 threads wait at mbarrier\.try_wait of the barrier at shared address \d+"),
        (3, r"a bulk copy .*at shared address \d+"),
    ],
)
def test_bulk_copies_need_their_barrier(mistake: int, message: str) -> None:
    with pytest.raises(KernelError, match=message):
        run_boxes("late", 64, mistake)


def test_tensor_maps_are_checked() -> None:
    with pytest.raises(ArgumentError, match="a box of the array's rank"):
        TensorMap(np.zeros((4, 4), np.float32), (4,))
    with pytest.raises(ArgumentError, match="a multiple of 16 bytes"):
        TensorMap(np.zeros((4, 4), np.float32), (4, 3))
    with pytest.raises(ArgumentError, match="swizzled by 32 bytes have at most as many"):
        TensorMap(np.zeros((4, 16), np.float32), (4, 16), 32)


def run_gemm(text: str, mode: Mode, seed: int) -> bool:
    """gemm_bf16_mma on a shape with tails in m and n."""
    a, b, c = drawn("bf16", 72, 224), drawn("bf16", 224, 136, seed=1), np.zeros((72, 136), np.float32)
    emulate(whole(text), "gemm_bf16_mma", (2, 1), 256, [a, b, c, 72, 136, 224], 65536, mode=mode, seed=seed)
    return np.array_equal(c, a.astype(np.float32) @ b.astype(np.float32))


def run_group_gemm(text: str, mode: Mode, seed: int) -> bool:
    """gemm_bf16_wgmma: six steps through four stages, with tails in m and k."""
    a, b, c = drawn("bf16", 120, 344), drawn("bf16", 256, 344, seed=1), np.zeros((120, 256), np.float32)
    maps = [TensorMap(a, (128, 64), 128), TensorMap(b, (256, 64), 128)]
    args: list[Argument] = [*maps, c, 120, 256, 344]
    emulate(whole(text), "gemm_bf16_wgmma", 1, 384, args, 192 * 1024 + 1088, mode=mode, seed=seed)
    return np.array_equal(c, a.astype(np.float32) @ b.astype(np.float32).T)


RUNS = {"gemm_bf16_mma": run_gemm, "gemm_bf16_wgmma": run_group_gemm}


@pytest.mark.covering(1)
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", RUNS)
def test_the_kernels_written_by_hand_are_right(name: str, mode: Mode) -> None:
    text = (KERNELS / f"{name}.cu").read_text(encoding="utf-8")
    assert all(RUNS[name](text, mode, seed) for seed in range(3))


@pytest.mark.parametrize(
    ("name", "right", "wrong"),
    [
        ("gemm_bf16_mma", "    __syncthreads();\n", ""),
        ("gemm_bf16_mma", "tl_cp_async_wait<STAGES - 2>", "tl_cp_async_wait<STAGES - 1>"),
        ("gemm_bf16_mma", "lane >> 4)));", "lane >> 4) ^ 1));"),
        (
            "gemm_bf16_wgmma",
            "step > 0 && (t & 31) == 0) tl_mbarrier_arrive(empty + (step - 1)",
            "(t & 31) == 0) tl_mbarrier_arrive(empty + step",
        ),
    ],
)
def test_mistakes_in_them_are_found(name: str, right: str, wrong: str) -> None:
    text = (KERNELS / f"{name}.cu").read_text(encoding="utf-8")
    assert text.count(right) >= 1
    assert not RUNS[name](text.replace(right, wrong, 1), "late", 0)
