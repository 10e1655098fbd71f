// Mathematical functions and conversions of CUDA C that C does not have.
#pragma once
#include <math.h>
#include <stdint.h>
#include <string.h>

namespace emu {
template <class To, class From>
To bits_as(From from) {
  static_assert(sizeof(To) == sizeof(From));
  To to;
  memcpy(&to, &from, sizeof to);
  return to;
}
}  // namespace emu

inline unsigned __float_as_uint(float x) { return emu::bits_as<unsigned>(x); }
inline int __float_as_int(float x) { return emu::bits_as<int>(x); }
inline float __uint_as_float(unsigned x) { return emu::bits_as<float>(x); }
inline float __int_as_float(int x) { return emu::bits_as<float>(x); }
inline long long __double_as_longlong(double x) { return emu::bits_as<long long>(x); }
inline double __longlong_as_double(long long x) { return emu::bits_as<double>(x); }

#define EMU_ORDER(T)                                  \
  inline T min(T a, T b) { return b < a ? b : a; }    \
  inline T max(T a, T b) { return a < b ? b : a; }
EMU_ORDER(int)
EMU_ORDER(unsigned)
EMU_ORDER(long)
EMU_ORDER(unsigned long)
EMU_ORDER(long long)
EMU_ORDER(unsigned long long)
#undef EMU_ORDER
inline float min(float a, float b) { return fminf(a, b); }
inline float max(float a, float b) { return fmaxf(a, b); }
inline double min(double a, double b) { return fmin(a, b); }
inline double max(double a, double b) { return fmax(a, b); }

inline float rsqrtf(float x) { return float(1 / sqrt(double(x))); }
inline double rsqrt(double x) { return 1 / sqrt(x); }
inline float rcbrtf(float x) { return 1 / cbrtf(x); }
inline float exp10f(float x) { return float(pow(10.0, double(x))); }
inline float sinpif(float x) { return float(sin(M_PI * double(x))); }
inline float cospif(float x) { return float(cos(M_PI * double(x))); }
inline float normcdff(float x) { return float(0.5 * erfc(-double(x) * M_SQRT1_2)); }
inline float __expf(float x) { return expf(x); }
inline float __exp10f(float x) { return exp10f(x); }
inline float __logf(float x) { return logf(x); }
inline float __log2f(float x) { return log2f(x); }
inline float __log10f(float x) { return log10f(x); }
inline float __sinf(float x) { return sinf(x); }
inline float __cosf(float x) { return cosf(x); }
inline float __tanf(float x) { return tanf(x); }
inline float __powf(float x, float y) { return powf(x, y); }
inline float __fdividef(float x, float y) { return x / y; }
inline float __saturatef(float x) { return x > 0 ? (x < 1 ? x : 1.f) : 0.f; }
inline float __frcp_rn(float x) { return 1 / x; }
inline float __frsqrt_rn(float x) { return rsqrtf(x); }
inline float __fsqrt_rn(float x) { return sqrtf(x); }
inline float __fadd_rn(float x, float y) { return x + y; }
inline float __fsub_rn(float x, float y) { return x - y; }
inline float __fmul_rn(float x, float y) { return x * y; }
inline float __fdiv_rn(float x, float y) { return x / y; }
inline float __fmaf_rn(float x, float y, float z) { return fmaf(x, y, z); }
inline double __dadd_rn(double x, double y) { return x + y; }
inline double __dmul_rn(double x, double y) { return x * y; }
inline double __fma_rn(double x, double y, double z) { return fma(x, y, z); }

#define EMU_CONVERT(name, from_type, from, to_type, to, rounding)                             \
  inline to_type name(from_type x) {                                                          \
    return emu::get<to_type>(emu::convert(emu::to, emu::from, emu::bits(x), rounding, false)); \
  }
EMU_CONVERT(__float2int_rz, float, F32, int, S32, 'z')
EMU_CONVERT(__float2int_rn, float, F32, int, S32, 'n')
EMU_CONVERT(__float2int_rd, float, F32, int, S32, 'm')
EMU_CONVERT(__float2int_ru, float, F32, int, S32, 'p')
EMU_CONVERT(__float2uint_rz, float, F32, unsigned, U32, 'z')
EMU_CONVERT(__float2uint_rn, float, F32, unsigned, U32, 'n')
EMU_CONVERT(__float2ll_rz, float, F32, long long, S64, 'z')
EMU_CONVERT(__float2ll_rn, float, F32, long long, S64, 'n')
EMU_CONVERT(__float2ull_rz, float, F32, unsigned long long, U64, 'z')
EMU_CONVERT(__double2int_rz, double, F64, int, S32, 'z')
EMU_CONVERT(__double2int_rn, double, F64, int, S32, 'n')
EMU_CONVERT(__double2uint_rz, double, F64, unsigned, U32, 'z')
EMU_CONVERT(__double2ll_rz, double, F64, long long, S64, 'z')
EMU_CONVERT(__double2ll_rn, double, F64, long long, S64, 'n')
EMU_CONVERT(__double2ull_rz, double, F64, unsigned long long, U64, 'z')
EMU_CONVERT(__double2float_rn, double, F64, float, F32, 'n')
EMU_CONVERT(__int2float_rn, int, S32, float, F32, 'n')
EMU_CONVERT(__uint2float_rn, unsigned, U32, float, F32, 'n')
#undef EMU_CONVERT

inline int __clz(int x) { return x ? __builtin_clz(x) : 32; }
inline int __clzll(long long x) { return x ? __builtin_clzll(x) : 64; }
inline int __ffs(int x) { return __builtin_ffs(x); }
inline int __ffsll(long long x) { return __builtin_ffsll(x); }
inline int __popc(unsigned x) { return __builtin_popcount(x); }
inline int __popcll(unsigned long long x) { return __builtin_popcountll(x); }
inline unsigned __brev(unsigned x) {
  unsigned reversed = 0;
  for (int k = 0; k < 32; ++k) reversed |= (x >> k & 1) << (31 - k);
  return reversed;
}
inline unsigned long long __brevll(unsigned long long x) {
  return (unsigned long long)__brev(unsigned(x)) << 32 | __brev(unsigned(x >> 32));
}
inline int __mulhi(int a, int b) { return int((long long)a * b >> 32); }
inline unsigned __umulhi(unsigned a, unsigned b) { return unsigned((unsigned long long)a * b >> 32); }
inline long long __mul64hi(long long a, long long b) { return (long long)((__int128)a * b >> 64); }
inline unsigned long long __umul64hi(unsigned long long a, unsigned long long b) {
  return (unsigned long long)((unsigned __int128)a * b >> 64);
}
inline int __dp4a(int a, int b, int c) {
  for (int k = 0; k < 32; k += 8) c += int((signed char)(a >> k)) * int((signed char)(b >> k));
  return c;
}
inline unsigned __byte_perm(unsigned x, unsigned y, unsigned selector) {
  unsigned long long bytes = (unsigned long long)y << 32 | x;
  unsigned result = 0;
  for (int k = 0; k < 4; ++k) {
    unsigned s = selector >> 4 * k & 15, byte = unsigned(bytes >> 8 * (s & 7)) & 255;
    result |= (s & 8 ? (byte & 128 ? 255u : 0u) : byte) << 8 * k;
  }
  return result;
}
template <class T>
T __ldg(const T* p) {
  return *p;
}
