"""CUDA texts run on the CPU: what is right passes, and every mistake planted in them is found."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from tensorlang.errors import ArgumentError, KernelError
from tensorlang.testing.cuda_emulation import emulate, unavailable
from tensorlang.testing.cuda_emulation.runner import Mode

pytestmark = pytest.mark.skipif(unavailable() is not None, reason=str(unavailable()))

Array = npt.NDArray[Any]
MODES: tuple[Mode, ...] = ("late", "at_once")


def drawn(*shape: int, dtype: str = "float32", seed: int = 0) -> Array:
    return np.random.default_rng(seed).integers(-4, 5, shape).astype(dtype)


ADD = """
extern "C" __global__ void __launch_bounds__(128)
add(const float *__restrict__ a, const float *__restrict__ b, float *__restrict__ c, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;  // "no comment" ends a text
  if (i < n) c[i] = a[i] + b[i];
}
extern "C" __global__ void shifted(float *a, int by) { a[(int)threadIdx.x + by] = 1.f; }
"""


def test_vectors_are_added() -> None:
    a, b, c = drawn(300), drawn(300, seed=1), np.zeros(300, np.float32)
    emulate(ADD, "add", 3, 128, [a, b, c, 300])
    assert np.array_equal(c, a + b)


@pytest.mark.parametrize(
    ("by", "message"),
    [
        (1, r"touches byte 256 of array 0 \(float32\[64\]\), which has 256"),
        (1000, r"touches byte \d+ of array 0"),
        (-1, r"array 0 .* was written \d+ bytes before its first byte"),
        (-10000, r"touches byte -\d+ of array 0"),
    ],
)
def test_an_access_outside_of_an_array_is_found(by: int, message: str) -> None:
    a = np.zeros(64, np.float32)
    with pytest.raises(KernelError, match=message):
        emulate(ADD, "shifted", 1, 64, [a, by])


def test_a_launch_leaves_no_memory_mapped() -> None:
    """Threads have stacks between pages that nobody may touch, and Linux gives a process 65,530 mappings."""

    def mappings() -> int:
        return Path("/proc/self/maps").read_text().count("\n")

    before = mappings()
    for by in (0, 10000):
        with suppress(KernelError):
            emulate(ADD, "shifted", 1, 1024, [np.zeros(1024, np.float32), by])
    assert mappings() < before + 100


def test_arguments_have_to_fit_the_kernel() -> None:
    a = np.zeros(64, np.float32)
    with pytest.raises(KernelError, match="the kernel has 2 parameters, and there are 1 arguments"):
        emulate(ADD, "shifted", 1, 64, [a])
    with pytest.raises(KernelError, match="elements of 4 bytes, and those of the array have 8"):
        emulate(ADD, "shifted", 1, 64, [np.zeros(64), 0])
    with pytest.raises(KernelError, match="parameter 2 of the kernel is an integer"):
        emulate(ADD, "shifted", 1, 64, [a, 1.0])
    with pytest.raises(ArgumentError, match="contiguous"):
        emulate(ADD, "shifted", 1, 64, [np.zeros((64, 2), np.float32)[:, 0], 0])
    with pytest.raises(ArgumentError, match="overlap"):
        emulate(ADD, "add", 1, 64, [a, a[1:], np.zeros(64, np.float32), 63])
    with pytest.raises(ArgumentError, match="at most 1024 threads"):
        emulate(ADD, "shifted", 1, (64, 32), [a, 0])


def test_what_is_no_cuda_is_named() -> None:
    with pytest.raises(ArgumentError, match=r"kernel.cu:2:\d+: error: .*'?undeclared"):
        emulate('\nextern "C" __global__ void f() { undeclared(); }', "f", 1, 1, [])
    with pytest.raises(ArgumentError, match=r"line 3 of the CUDA text: the emulation does not know .* vote\.all"):
        emulate('\nextern "C" __global__ void f(int *x) {\n asm("vote.all.pred p, q;"); }', "f", 1, 1, [])


TILED = """
// c = a b, all n x n; a tile of 8 x 8 a block. What is wrong is chosen by the number `mistake`.
extern "C" __global__ void matmul(const float *a, const float *b, float *c, int n, int mistake) {
  __shared__ float left[8][8];
  __shared__ __align__(16) float right[8][9];
  const int x = threadIdx.x, y = threadIdx.y, row = blockIdx.y * 8 + y, column = blockIdx.x * 8 + x;
  float sum = 0.f;
  for (int k = 0; k < n; k += 8) {
    left[y][x] = a[row * n + k + x];
    right[y][x] = b[(k + y) * n + column];
    if (mistake != 1) __syncthreads();
    if (mistake == 3 && y < 4) __syncthreads();
#pragma unroll
    for (int kk = 0; kk < (mistake == 4 ? 9 : 8); ++kk) sum += left[y][kk] * right[kk][x];
    if (mistake == 5 && y < 4) continue;
    if (mistake != 2) __syncthreads();
  }
  if (mistake == 6) sum += *(float2 *)(&right[0][1]).x;
  c[row * n + column] = sum;
}
""".replace("*(float2 *)(&right[0][1]).x", "((float2 *)&right[0][1])->x")


def run_tiled(mistake: int, seed: int) -> bool:
    a, b, c = drawn(24, 24), drawn(24, 24, seed=1), np.zeros((24, 24), np.float32)
    emulate(TILED, "matmul", (3, 3), (8, 8), [a, b, c, 24, mistake], seed=seed)
    return np.array_equal(c, a @ b)


@pytest.mark.parametrize("seed", range(3))
def test_a_product_through_shared_memory(seed: int) -> None:
    assert run_tiled(0, seed)


@pytest.mark.parametrize("mistake", [1, 2])
def test_a_dropped_barrier_gives_a_wrong_result(mistake: int) -> None:
    assert not any(run_tiled(mistake, seed) for seed in range(3))


@pytest.mark.parametrize(
    ("mistake", "message"),
    [
        (3, r"wait at different barriers, in line 1[126] and in line 1[126]"),
        (4, r"line 14: index 8 of an array 'float ?\[8\]"),
        (5, r"wait at __syncthreads\(\) in line 16|wait at different barriers"),
        (6, r"line 18: an access of '.*float2' at an address .* no multiple of 8"),
    ],
)
def test_mistakes_stop_the_kernel(mistake: int, message: str) -> None:
    with pytest.raises(KernelError, match=message):
        run_tiled(mistake, 0)


def test_threads_that_have_returned_never_come_to_a_barrier() -> None:
    text = 'extern "C" __global__ void f() { if (threadIdx.x >= 40) return; __syncthreads(); }'
    message = (
        r"block \(0, 0, 0\) cannot go on: 40 threads wait at __syncthreads\(\) in line 1 \(the first is thread "
        r"\(0, 0, 0\)\), 24 threads have returned \(the first is thread \(40, 0, 0\)\)"
    )
    with pytest.raises(KernelError, match=message):
        emulate(text, "f", 1, 64, [])


PIPELINE = """
template <int PENDING>
__device__ __forceinline__ void wait() { asm volatile("cp.async.wait_group %0;" ::"n"(PENDING) : "memory"); }
__device__ __forceinline__ void copy(void *to, const void *from, int bytes) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;"
               ::"r"((unsigned)__cvta_generic_to_shared(to)), "l"(from), "r"(bytes) : "memory");
}
// Sums of columns of a (steps x 128), 4 columns a thread, rows in two stages.
extern "C" __global__ void sums(const float *a, float *c, int steps, int mistake) {
  extern __shared__ __align__(16) float tiles[];
  const int t = threadIdx.x, other = 31 - t;
  float sum[4] = {0.f, 0.f, 0.f, 0.f};
  copy(tiles + t * 4, a + t * 4, 16);
  asm volatile("cp.async.commit_group;" ::: "memory");
  for (int s = 0; s < steps; ++s) {
    float *now = tiles + s % 2 * 128, *next = tiles + (s + 1) % 2 * 128;
    if (mistake == 2 && s + 1 < steps) copy(now + t * 4, a + (s + 1) * 128 + t * 4, 16);
    if (mistake != 2) copy(next + t * 4, a + min(s + 1, steps - 1) * 128 + t * 4, s + 1 < steps ? 16 : 0);
    asm volatile("cp.async.commit_group;" ::: "memory");
    if (mistake == 1) wait<2>(); else wait<1>();
    __syncthreads();
    const float4 row = *(const float4 *)(now + other * 4);
    sum[0] += row.x, sum[1] += row.y, sum[2] += row.z, sum[3] += row.w;
    if (mistake != 3) __syncthreads();
  }
  if (mistake == 4) asm volatile("cp.async.ca.shared.global [%0], [%1], 8;"
      ::"r"((unsigned)__cvta_generic_to_shared(tiles + 1)), "l"(a));
  if (mistake == 5) copy(tiles + 256, a, 16);
  *(float4 *)(c + other * 4) = make_float4(sum[0], sum[1], sum[2], sum[3]);
}
"""


def run_pipeline(mistake: int, mode: Mode, seed: int = 0) -> bool:
    a, c = drawn(6, 128), np.zeros(128, np.float32)
    emulate(PIPELINE, "sums", 1, 32, [a, c, 6, mistake], 1024, mode=mode, seed=seed)
    return np.array_equal(c, a.sum(0))


@pytest.mark.parametrize("mode", MODES)
def test_copies_run_ahead_in_two_stages(mode: Mode) -> None:
    assert all(run_pipeline(0, mode, seed) for seed in range(3))


def test_a_wait_for_too_few_copies_is_found_when_they_are_late() -> None:
    assert run_pipeline(1, "at_once")
    assert not run_pipeline(1, "late")


@pytest.mark.parametrize("mode", MODES)
def test_a_stage_filled_while_it_is_read_is_found(mode: Mode) -> None:
    assert not run_pipeline(2, mode)


@pytest.mark.parametrize("mode", MODES)
def test_a_stage_filled_before_all_have_read_it_is_found(mode: Mode) -> None:
    assert not all(run_pipeline(3, mode, seed) for seed in range(6))


def test_copies_are_aligned_and_inside_of_shared_memory() -> None:
    with pytest.raises(KernelError, match=r"cp\.async at shared address \d+; it has to be a multiple of 8"):
        run_pipeline(4, "late")
    with pytest.raises(KernelError, match=r"cp\.async of 16 bytes at shared address \d+, outside of"):
        run_pipeline(5, "late")


WARPS = """
__device__ float block_sum(float value, float *partial, int mistake) {
  for (int step = 16; step; step /= 2) value += __shfl_xor_sync(0xffffffffu, value, step);
  if (threadIdx.x % 32 == 0) partial[threadIdx.x / 32] = value;
  if (mistake != 1) __syncthreads();
  if (threadIdx.x < 32) {
    value = threadIdx.x < blockDim.x / 32 ? partial[threadIdx.x] : 0.f;
    for (int step = 16; step; step /= 2)
      value += __shfl_down_sync(mistake == 2 && threadIdx.x == 7 ? 0xffu : 0xffffffffu, value, step);
    if (threadIdx.x == 0) partial[0] = value;
  }
  __syncthreads();
  value = partial[0];
  if (mistake != 3) __syncthreads();
  return value;
}
extern "C" __global__ void sums(const float *a, float *sum, float *squares, int mistake) {
  __shared__ float partial[32];
  const float x = a[blockIdx.x * blockDim.x + threadIdx.x];
  const float s = block_sum(x, partial, mistake), q = block_sum(x * x, partial, mistake);
  if (threadIdx.x % 50 == 0) atomicAdd(sum, s), atomicAdd(squares, q);
}
extern "C" __global__ void votes(unsigned *out, int n) {
  const unsigned all = 0xffffffffu, t = threadIdx.x;
  out[t] = __ballot_sync(all, t % 3 == 0);
  out[t + 32] = __shfl_up_sync(all, t, 3, 8);
  out[t + 64] = __shfl_sync(all, t, 5, 16);
  out[t + 96] = __any_sync(all, t == 31) + 2 * __all_sync(all, t < 31);
  out[t + 128] = t < 16 ? __shfl_xor_sync(0xffffu, t, 1) : __shfl_xor_sync(0xffff0000u, t, 2);
}
"""


def run_sums(mistake: int, seed: int = 0) -> bool:
    a, sums = drawn(400).repeat(2)[:768], np.zeros((2, 1), np.float32)
    first, second = sums[0].copy(), sums[1].copy()
    emulate(WARPS, "sums", 3, 256, [a, first, second, mistake], seed=seed)
    return bool(first[0] == 6 * a.sum() and second[0] == 6 * (a * a).sum())


def test_a_block_sums_by_shuffles() -> None:
    assert all(run_sums(0, seed) for seed in range(3))


@pytest.mark.parametrize("mistake", [1, 3])
def test_a_reduction_without_its_barrier_is_wrong(mistake: int) -> None:
    assert not all(run_sums(mistake, seed) for seed in range(4))


def test_lanes_that_do_not_agree_who_takes_part_are_found() -> None:
    with pytest.raises(KernelError, match=r"lanes of a warp are at different instructions: __shfl_down_sync"):
        run_sums(2)


def test_votes_and_shuffles() -> None:
    out = np.zeros((5, 32), np.uint32)
    emulate(WARPS, "votes", 1, 32, [out, 0])
    t = np.arange(32)
    assert (out[0] == sum(1 << i for i in range(0, 32, 3))).all()
    assert np.array_equal(out[1], np.where(t % 8 >= 3, t - 3, t))
    assert np.array_equal(out[2], t // 16 * 16 + 5)
    assert (out[3] == 1).all()
    assert np.array_equal(out[4], np.where(t < 16, t ^ 1, t ^ 2))


MATHEMATICS = """
extern "C" __global__ void functions(const float *x, float *out, int n) {
  const int i = threadIdx.x;
  float least;
  asm("min.NaN.f32 %0, %1, %2;" : "=f"(least) : "f"(x[i]), "f"(1.f));
  out[i] = rsqrtf(x[i]), out[n + i] = erff(x[i]), out[2 * n + i] = fmaf(x[i], 2.f, 1.f);
  out[3 * n + i] = __uint_as_float(__float_as_uint(x[i]) ^ 0x80000000u), out[4 * n + i] = least;
  out[5 * n + i] = (float)__float2int_rz(x[i] * 1e9f), out[6 * n + i] = (float)__clz((int)x[i]);
}
extern "C" __global__ void halves(const float *x, unsigned short *half, unsigned short *brain, float *back) {
  const int i = blockIdx.x * 32 + threadIdx.x;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(half[i]) : "f"(x[i]));
  asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(brain[i]) : "f"(x[i]));
  asm("cvt.f32.f16 %0, %1;" : "=f"(back[i]) : "h"(half[i]));
}
"""


def test_mathematics() -> None:
    x = np.array([0.25, 1, 2, 3.5, 7, 0.5, np.nan, np.inf], np.float32)
    out = np.zeros((7, 8), np.float32)
    emulate(MATHEMATICS, "functions", 1, 8, [x, out, 8])
    np.testing.assert_allclose(out[0], 1 / np.sqrt(x), rtol=1e-6)
    np.testing.assert_allclose(out[1, :3], [0.27632639, 0.84270079, 0.99532227], rtol=1e-6)
    assert np.array_equal(out[2], x * 2 + 1, equal_nan=True) and np.array_equal(out[3], -x, equal_nan=True)
    assert np.array_equal(out[4], np.minimum(x, np.float32(1)), equal_nan=True)
    assert out[5].tolist() == [250000000, 1e9, 2e9, 2**31, 2**31, 5e8, 0, 2**31]
    assert out[6, 1:5].tolist() == [31, 30, 30, 29]


def test_halves_are_rounded_as_numpy_and_ml_dtypes_do() -> None:
    import ml_dtypes

    bits = np.random.default_rng(0).integers(0, 2**32, 4096, dtype=np.uint64).astype(np.uint32)
    exponents = np.random.default_rng(1).integers(100, 146, 4096, dtype=np.uint32)  # where halves are, and around
    bits[::2] = (bits[::2] & np.uint32(0x807FFFFF)) | (exponents[::2] << np.uint32(23))
    bits[1::4] &= np.uint32(0xFFFFF000)  # ties
    x = bits.view(np.float32)
    x = np.where(np.isnan(x), np.float32(65520), x)
    half, brain, back = np.zeros(4096, np.uint16), np.zeros(4096, np.uint16), np.zeros(4096, np.float32)
    emulate(MATHEMATICS, "halves", 128, 32, [x, half, brain, back])
    with np.errstate(over="ignore"):
        assert np.array_equal(half.view(np.float16), x.astype(np.float16))
    assert np.array_equal(brain, x.astype(ml_dtypes.bfloat16).view(np.uint16))
    assert np.array_equal(back, half.view(np.float16).astype(np.float32))


def test_what_c_leaves_undefined_is_found() -> None:
    text = 'extern "C" __global__ void f(int *x, int *y) { y[0] = x[0] / x[1]; y[1] = x[2] * x[2]; }'
    y = np.zeros(2, np.int32)
    emulate(text, "f", 1, 1, [np.array([7, 2, 5], np.int32), y])
    assert y.tolist() == [3, 25]
    with pytest.raises(KernelError, match="line 1: division by zero"):
        emulate(text, "f", 1, 1, [np.array([7, 0, 5], np.int32), y])
    with pytest.raises(KernelError, match="line 1: overflow of 'int'"):
        emulate(text, "f", 1, 1, [np.array([7, 2, 2**20], np.int32), y])
    assert y.tolist() == [3, 25]


REGISTERS = """
extern __shared__ __align__(16) int memory[];
__device__ unsigned lane() { unsigned l; asm("mov.u32 %0, %%laneid;" : "=r"(l)); return l; }
extern "C" __global__ void registers(const unsigned long long *in, unsigned *out, int flag) {
  unsigned low, high, chosen = 1;
  asm("mov.b64 {%0, %1}, %2;" : "=r"(low), "=r"(high) : "l"(in[threadIdx.x]));
  asm volatile("{\\n"
               ".reg .pred p;  // set by the flag\\n"
               "setp.ne.b32 p, %1, 0;\\n"
               "@p bra TAKEN;\\n"
               "add.u32 %0, %0, 10;\\n"
               "TAKEN:\\n"
               "@!p add.u32 %0, %0, 100;\\n"
               "selp.u32 %0, %0, 7, p;\\n"
               "}" : "+r"(chosen) : "r"(flag));
  memory[threadIdx.x] = (int)lane();
  if (threadIdx.x < 64)
    asm volatile("bar.sync 1, 64;" ::: "memory");
  else
    asm volatile("bar.sync 2, %0;" :: "n"(32) : "memory");
  out[threadIdx.x * 4] = low, out[threadIdx.x * 4 + 1] = high, out[threadIdx.x * 4 + 2] = chosen;
  out[threadIdx.x * 4 + 3] = memory[threadIdx.x ^ 32 & -(threadIdx.x < 64)] * 1000 + lane();
}
"""


@pytest.mark.parametrize(("flag", "chosen"), [(1, 1), (0, 7)])
def test_registers_guards_and_barriers_of_some_threads(flag: int, chosen: int) -> None:
    given = np.random.default_rng(0).integers(0, 2**63, 96, dtype=np.uint64)
    out = np.zeros((96, 4), np.uint32)
    emulate(REGISTERS, "registers", 1, 96, [given, out, flag], 384)
    assert np.array_equal(out[:, :2].copy().view(np.uint64)[:, 0], given)
    assert (out[:, 2] == chosen).all()
    assert np.array_equal(out[:, 3], np.arange(96) % 32 * 1001)
