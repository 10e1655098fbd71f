// CUDA C as C++: the qualifiers, variables and functions that a kernel's text may use. Included in front of the text.
#pragma once
#include <assert.h>
#include <limits.h>
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "ptx.h"
#include "vectors.h"

#define __global__
#define __device__
#define __host__
#define __forceinline__ inline
#define __noinline__
#define __constant__ static
#define __grid_constant__
#define __launch_bounds__(...)
#define __cluster_dims__(...)
#define __maxnreg__(...)
#define __align__(n) __attribute__((aligned(n)))
#define __shared__ static __attribute__((section("emu_shared")))

extern "C" unsigned char __start_emu_shared[], __stop_emu_shared[];
namespace emu {
static __attribute__((section("emu_shared"), used)) unsigned char some_shared[1];
}

#define threadIdx (emu::current->thread)
#define blockIdx (emu::current->block)
#define blockDim (emu::block_size)
#define gridDim (emu::grid_size)
constexpr int warpSize = 32;

#define __syncthreads() emu::block_barrier(0, 0, __LINE__)
inline void __syncwarp(unsigned mask = ~0u) {
  emu::warp_together("__syncwarp()", mask, nullptr, [](void**, unsigned) {});
}
inline void __threadfence() {}
inline void __threadfence_block() {}
inline void __threadfence_system() {}
inline void __nanosleep(unsigned) { emu::yield(); }
[[noreturn]] inline void __trap() { emu::fail("__trap()"); }
inline size_t __cvta_generic_to_shared(const void* p) { return emu::shared_address(p); }
inline unsigned __activemask() { return 1u << emu::current->rank % 32; }
inline long long clock64() {
  static long long count;
  return ++count;
}

// Shuffles and votes: each lane deposits its value and the lane that it wants to read.
namespace emu {
template <class T>
struct Shuffled {
  T value, result;
  unsigned source;
};
// A lane that takes no part has no defined value.
template <class T>
T shuffle(const char* what, unsigned mask, T value, unsigned source) {
  Shuffled<T> own{value, value, source};
  warp_together(what, mask, &own, [](void** operands, unsigned lanes) {
    for (unsigned lane = 0; lane < 32; ++lane) {
      if (!(lanes >> lane & 1)) continue;
      Shuffled<T>& reader = *static_cast<Shuffled<T>*>(operands[lane]);
      if (lanes >> reader.source & 1)
        reader.result = static_cast<Shuffled<T>*>(operands[reader.source])->value;
      else
        memset(&reader.result, 0xff, sizeof(T));
    }
  });
  return own.result;
}
inline unsigned own_lane() { return current->rank % 32; }
template <class Combine>
unsigned vote(const char* what, unsigned mask, unsigned value, Combine) {
  Shuffled<unsigned> own{value, 0, 0};
  warp_together(what, mask, &own, [](void** operands, unsigned lanes) {
    unsigned result = Combine::start;
    for (unsigned lane = 0; lane < 32; ++lane)
      if (lanes >> lane & 1)
        result = Combine::of(result, static_cast<Shuffled<unsigned>*>(operands[lane])->value, lane);
    for (unsigned lane = 0; lane < 32; ++lane)
      if (lanes >> lane & 1) static_cast<Shuffled<unsigned>*>(operands[lane])->result = result;
  });
  return own.result;
}
#define EMU_VOTE(name, first, formula)                                             \
  struct name {                                                                    \
    static constexpr unsigned start = first;                                       \
    static unsigned of(unsigned a, unsigned b, [[maybe_unused]] unsigned lane) { return formula; } \
  };
EMU_VOTE(Ballot, 0, a | unsigned(b != 0) << lane)
EMU_VOTE(All, 1, unsigned(a && b))
EMU_VOTE(Any, 0, unsigned(a || b))
EMU_VOTE(Sum, 0, a + b)
EMU_VOTE(Least, UINT_MAX, a < b ? a : b)
EMU_VOTE(Most, 0, a > b ? a : b)
EMU_VOTE(Bits, UINT_MAX, a& b)
EMU_VOTE(AnyBits, 0, a | b)
EMU_VOTE(OddBits, 0, a ^ b)
#undef EMU_VOTE
}  // namespace emu

template <class T>
T __shfl_sync(unsigned mask, T value, int lane, int width = 32) {
  return emu::shuffle("__shfl_sync", mask, value, (emu::own_lane() & -width) | (unsigned(lane) & (width - 1)));
}
template <class T>
T __shfl_xor_sync(unsigned mask, T value, int change, int width = 32) {
  unsigned own = emu::own_lane(), other = own ^ unsigned(change);
  return emu::shuffle("__shfl_xor_sync", mask, value, (other & -width) > (own & -width) ? own : other);
}
template <class T>
T __shfl_down_sync(unsigned mask, T value, unsigned steps, int width = 32) {
  unsigned own = emu::own_lane(), inside = own & (width - 1);
  return emu::shuffle("__shfl_down_sync", mask, value, inside + steps < unsigned(width) ? own + steps : own);
}
template <class T>
T __shfl_up_sync(unsigned mask, T value, unsigned steps, int width = 32) {
  unsigned own = emu::own_lane();
  return emu::shuffle("__shfl_up_sync", mask, value, (own & (width - 1)) >= steps ? own - steps : own);
}
#define EMU_VOTE(type, name, operand, combine) \
  inline type name(unsigned mask, operand value) { return emu::vote(#name, mask, value, emu::combine()); }
EMU_VOTE(unsigned, __ballot_sync, int, Ballot)
EMU_VOTE(int, __all_sync, int, All)
EMU_VOTE(int, __any_sync, int, Any)
EMU_VOTE(unsigned, __reduce_add_sync, unsigned, Sum)
EMU_VOTE(unsigned, __reduce_min_sync, unsigned, Least)
EMU_VOTE(unsigned, __reduce_max_sync, unsigned, Most)
EMU_VOTE(unsigned, __reduce_and_sync, unsigned, Bits)
EMU_VOTE(unsigned, __reduce_or_sync, unsigned, AnyBits)
EMU_VOTE(unsigned, __reduce_xor_sync, unsigned, OddBits)
#undef EMU_VOTE

// Threads stop only where they wait, so that plain reads and writes are atomic.
namespace emu {
template <class T>
struct Same {
  using type = T;
};
template <class T, class F>
T exchange(T* p, F next) {
  T before = *p;
  *p = next(before);
  return before;
}
}  // namespace emu
#define EMU_ATOMIC(name, formula)                                                     \
  template <class T>                                                                  \
  T name(T* p, typename emu::Same<T>::type v) {                                       \
    return emu::exchange(p, [=](T a) -> T { return formula; });                       \
  }
EMU_ATOMIC(atomicAdd, a + v)
EMU_ATOMIC(atomicSub, a - v)
EMU_ATOMIC(atomicMin, a < v ? a : v)
EMU_ATOMIC(atomicMax, a > v ? a : v)
EMU_ATOMIC(atomicAnd, a& v)
EMU_ATOMIC(atomicOr, a | v)
EMU_ATOMIC(atomicXor, a ^ v)
EMU_ATOMIC(atomicExch, v)
EMU_ATOMIC(atomicInc, a >= v ? 0 : a + 1)
EMU_ATOMIC(atomicDec, a == 0 || a > v ? v : a - 1)
#undef EMU_ATOMIC
template <class T>
T atomicCAS(T* p, typename emu::Same<T>::type expected, typename emu::Same<T>::type wanted) {
  return emu::exchange(p, [=](T a) { return a == expected ? wanted : a; });
}

#include "mathematics.h"
