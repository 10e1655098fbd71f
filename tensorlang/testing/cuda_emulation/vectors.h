// The short vectors of CUDA C.
#pragma once
#include "runtime.h"

#define EMU_VECTORS(T, name, size)                                                                    \
  struct alignas(2 * size) name##2 { T x, y; };                                                       \
  struct alignas(4 * size > 16 ? 16 : 4 * size) name##4 { T x, y, z, w; };                            \
  inline name##2 make_##name##2(T x, T y) { return {x, y}; }                                          \
  inline name##4 make_##name##4(T x, T y, T z, T w) { return {x, y, z, w}; }

EMU_VECTORS(signed char, char, 1)
EMU_VECTORS(unsigned char, uchar, 1)
EMU_VECTORS(short, short, 2)
EMU_VECTORS(unsigned short, ushort, 2)
EMU_VECTORS(int, int, 4)
EMU_VECTORS(unsigned, uint, 4)
EMU_VECTORS(float, float, 4)
EMU_VECTORS(long long, longlong, 8)
EMU_VECTORS(unsigned long long, ulonglong, 8)
EMU_VECTORS(double, double, 8)
#undef EMU_VECTORS

struct float3 { float x, y, z; };
struct int3 { int x, y, z; };
inline float3 make_float3(float x, float y, float z) { return {x, y, z}; }
inline int3 make_int3(int x, int y, int z) { return {x, y, z}; }
inline uint3 make_uint3(unsigned x, unsigned y, unsigned z) { return {x, y, z}; }
