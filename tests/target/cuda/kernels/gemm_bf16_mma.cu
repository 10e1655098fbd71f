// c = a b: a is m x k and b is k x n in bf16, c is m x n in f32; n and k are multiples of 8.
// A block of 8 warps computes 128 x 128, a warp 64 x 32. Four stages of 32 k each, 64 KB of dynamic shared memory.
constexpr int BM = 128, BN = 128, BK = 32, STAGES = 4;
constexpr int A_BYTES = BM * BK * 2, STAGE_BYTES = A_BYTES + BK * BN * 2;

// Byte offset of a 16-byte chunk in a swizzled tile with rows of 64 and of 256 bytes.
__device__ __forceinline__ int a_offset(int row, int chunk) { return row * 64 + ((chunk ^ (row >> 1 & 3)) << 4); }
__device__ __forceinline__ int b_offset(int row, int chunk) { return row * 256 + ((chunk ^ (row & 7)) << 4); }

extern "C" __global__ void __launch_bounds__(256)
gemm_bf16_mma(const unsigned short* __restrict__ a, const unsigned short* __restrict__ b, float* __restrict__ c,
              int m, int n, int k) {
  extern __shared__ __align__(1024) unsigned char shared[];
  const int t = threadIdx.x, lane = t & 31, warp = t >> 5;
  const int row0 = blockIdx.y * BM, column0 = blockIdx.x * BN;
  const int warp_row = (warp & 1) * 64, warp_column = (warp >> 1) * 32;

  const int a_row = t >> 2, a_chunk = t & 3;
  const int b_row = t >> 4, b_chunk = t & 15;
  const bool b_inside = column0 + b_chunk * 8 < n;
  auto fill = [&](int stage, int k0) {
    unsigned char* tile = shared + stage * STAGE_BYTES;
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int row = a_row + i * 64;
      const bool inside = row0 + row < m && k0 + a_chunk * 8 < k;
      const unsigned short* from = inside ? a + (long long)(row0 + row) * k + k0 + a_chunk * 8 : a;
      tl_cp_async_cg_16_zfill(tile + a_offset(row, a_chunk), from, inside ? 16 : 0);
    }
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int row = b_row + i * 16;
      const bool inside = b_inside && k0 + row < k;
      const unsigned short* from = inside ? b + (long long)(k0 + row) * n + column0 + b_chunk * 8 : b;
      tl_cp_async_cg_16_zfill(tile + A_BYTES + b_offset(row, b_chunk), from, inside ? 16 : 0);
    }
  };

  float sum[4][4][4];
#pragma unroll
  for (int i = 0; i < 4; ++i)
#pragma unroll
    for (int j = 0; j < 4; ++j)
#pragma unroll
      for (int e = 0; e < 4; ++e) sum[i][j][e] = 0.f;

  for (int s = 0; s < STAGES - 1; ++s) {
    if (s * BK < k) fill(s, s * BK);
    tl_cp_async_commit();
  }
  int stage = 0;
  for (int k0 = 0; k0 < k; k0 += BK) {
    tl_cp_async_wait<STAGES - 2>();
    __syncthreads();
    const int next = k0 + (STAGES - 1) * BK;
    if (next < k) fill((stage + STAGES - 1) % STAGES, next);
    tl_cp_async_commit();
    const unsigned char* tile = shared + stage * STAGE_BYTES;
#pragma unroll
    for (int kk = 0; kk < BK / 16; ++kk) {
      unsigned left[4][4], right[2][4];
#pragma unroll
      for (int i = 0; i < 4; ++i)
        tl_ldmatrix_x4(left[i], tile + a_offset(warp_row + i * 16 + (lane & 15), kk * 2 + (lane >> 4)));
#pragma unroll
      for (int j = 0; j < 2; ++j)
        tl_ldmatrix_x4_trans(
            right[j], tile + A_BYTES + b_offset(kk * 16 + (lane & 15), warp_column / 8 + j * 2 + (lane >> 4)));
#pragma unroll
      for (int i = 0; i < 4; ++i)
#pragma unroll
        for (int j = 0; j < 4; ++j) tl_mma_m16n8k16_f32_bf16(sum[i][j], left[i], &right[j >> 1][(j & 1) * 2]);
    }
    stage = (stage + 1) % STAGES;
  }

#pragma unroll
  for (int i = 0; i < 4; ++i)
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int row = row0 + warp_row + i * 16 + half * 8 + (lane >> 2);
      if (row >= m) continue;
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        const int column = column0 + warp_column + j * 8 + (lane & 3) * 2;
        if (column < n)
          *(float2*)(c + (long long)row * n + column) = make_float2(sum[i][j][half * 2], sum[i][j][half * 2 + 1]);
      }
    }
}
