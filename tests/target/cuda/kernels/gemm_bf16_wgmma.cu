// c = a b^T: a is m x k and b is n x k in bf16, c is m x n in f32; n is even. Boxes of the maps: 64 x 128 and 64 x 256,
// swizzled in 128 bytes. A block computes 128 x 256: warp group 0 loads, groups 1 and 2 compute 64 x 256 each.
// Four stages of 64 k each, 192 KB and 1088 bytes of dynamic shared memory.
constexpr int BM = 128, BN = 256, BK = 64, STAGES = 4;
constexpr int A_BYTES = BM * BK * 2, STAGE_BYTES = A_BYTES + BN * BK * 2;
constexpr int CONSUMER_WARPS = 8;

extern "C" __global__ void __launch_bounds__(384, 1)
gemm_bf16_wgmma(const __grid_constant__ tl_tensor_map a, const __grid_constant__ tl_tensor_map b,
                float* __restrict__ c, int m, int n, int k) {
  extern __shared__ __align__(1024) unsigned char shared[];
  unsigned char* tiles = shared + (-(unsigned long long)shared & 1023);
  unsigned long long* full = (unsigned long long*)(tiles + STAGES * STAGE_BYTES);
  unsigned long long* empty = full + STAGES;
  const int row0 = blockIdx.y * BM, column0 = blockIdx.x * BN;
  const int group = threadIdx.x >> 7, t = threadIdx.x & 127;
  const int steps = (k + BK - 1) / BK;

  if (threadIdx.x == 0) {
    for (int s = 0; s < STAGES; ++s) {
      tl_mbarrier_init(full + s, 1);
      tl_mbarrier_init(empty + s, CONSUMER_WARPS);
    }
    tl_mbarrier_fence_init();
  }
  __syncthreads();

  if (group == 0) {
    tl_setmaxnreg_dec<40>();
    if (t == 0) {
      for (int step = 0; step < steps; ++step) {
        const int s = step % STAGES;
        tl_mbarrier_wait(empty + s, (step / STAGES & 1) ^ 1);
        tl_mbarrier_arrive_expect_tx(full + s, STAGE_BYTES);
        tl_tma_load_2d(tiles + s * STAGE_BYTES, &a, step * BK, row0, full + s);
        tl_tma_load_2d(tiles + s * STAGE_BYTES + A_BYTES, &b, step * BK, column0, full + s);
      }
    }
  } else {
    tl_setmaxnreg_inc<232>();
    float sum[128];
    for (int step = 0; step < steps; ++step) {
      const int s = step % STAGES;
      const unsigned char* tile = tiles + s * STAGE_BYTES;
      const unsigned long long left = tl_wgmma_descriptor(tile + (group - 1) * 64 * BK * 2, 16, 1024, 1);
      const unsigned long long right = tl_wgmma_descriptor(tile + A_BYTES, 16, 1024, 1);
      tl_mbarrier_wait(full + s, step / STAGES & 1);
      tl_wgmma_fence();
#pragma unroll
      for (int kk = 0; kk < BK / 16; ++kk)
        tl_wgmma_m64n256k16_f32_bf16(sum, left + kk * 2, right + kk * 2, step != 0 || kk != 0);
      tl_wgmma_commit();
      tl_wgmma_wait<1>();
      if (step > 0 && (t & 31) == 0) tl_mbarrier_arrive(empty + (step - 1) % STAGES);
    }
    tl_wgmma_wait<0>();

    const int row = row0 + (group - 1) * 64 + (t >> 5) * 16 + (t >> 2 & 7);
#pragma unroll
    for (int half = 0; half < 2; ++half)
#pragma unroll
      for (int j = 0; j < BN / 8; ++j) {
        const int column = column0 + j * 8 + (t & 3) * 2;
        if (row + half * 8 < m && column < n)
          *(float2*)(c + (long long)(row + half * 8) * n + column) =
              make_float2(sum[j * 4 + half * 2], sum[j * 4 + half * 2 + 1]);
      }
  }
}
