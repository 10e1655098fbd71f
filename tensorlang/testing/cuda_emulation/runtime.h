// What the CUDA text, as C++, and the machine that runs it know of each other. Built apart: see runtime.cpp.
#pragma once
#include <stddef.h>
#include <stdint.h>

struct uint3 {
  unsigned x, y, z;
};

struct dim3 {
  unsigned x = 1, y = 1, z = 1;
};

namespace emu {

// One thread of the block that runs now.
struct Place {
  uint3 thread, block;
  unsigned rank;  // in the block, x fastest
};
extern Place* current;
extern dim3 block_size, grid_size;

struct Settings {
  dim3 grid, block;
  uint64_t seed;
  uint64_t dynamic_bytes, dynamic_alignment;
  int late;  // asynchronous copies as late as their waits allow, instead of at once
};

// An array of the caller; the kernel gets a copy that begins at `device`, with a page behind that nobody may touch.
struct Array {
  void* host;
  uint64_t bytes;
  uint64_t item_bytes;
  const char* name;
  void* device;
};

enum ValueKind { POINTER, INTEGER, REAL, TENSOR_MAP };

// A tensor map as the emulation encodes it. Innermost dimension first; strides in bytes.
struct Map {
  uint32_t magic, rank, item_bytes, swizzle;  // swizzle: 0 none, 1 32 bytes, 2 64 bytes, 3 128 bytes
  unsigned char* base;
  uint32_t extent[5], box[5];
  uint32_t stride[5];
  uint32_t unused[11];
};
static_assert(sizeof(Map) == 128);
constexpr uint32_t MAP_MAGIC = 0x7e4504a9;

struct Value {
  int32_t kind, array;  // `array`: which one a pointer or a map is of
  int64_t integer;      // of a pointer: the bytes of an element
  double real;
  Map map;  // of a pointer: its base
};

using Body = void (*)(const Value*);
const char* launch(const Settings&, Array*, int arrays, Value*, int values, Body);
[[noreturn]] __attribute__((format(printf, 1, 2))) void fail(const char* format, ...);

// Shared memory. Its addresses have 18 bits, as descriptors do.
void static_shared(unsigned char* begin, unsigned char* end);
unsigned char* dynamic_shared();
uint32_t shared_address(const void*);
unsigned char* shared_pointer(uint64_t address, uint64_t bytes, uint64_t alignment, const char* what);

// Threads that wait for each other. `line` 0: not known.
void block_barrier(int id, unsigned threads, int line, bool waits = true);
void yield();
using Together = void (*)(void** operands, unsigned lanes);
void warp_together(const char* what, unsigned lanes, void* operand, Together);
unsigned warp_lanes();

// Asynchronous copies of a thread, and bulk copies that a barrier in shared memory, or a group of the thread, counts.
void copy_async(uint64_t to, const void* from, unsigned bytes, unsigned read);
void copy_commit();
void copy_wait(unsigned pending, bool open_too = false);
void bulk_load(uint64_t to, const void* map, const int* at, int rank, uint64_t barrier);
void bulk_store(const void* map, const int* at, int rank, uint64_t from);
void bulk_commit();
void bulk_wait(unsigned pending);
void mbarrier_init(uint64_t barrier, unsigned count);
void mbarrier_arrive(uint64_t barrier, unsigned count, unsigned bytes, bool arrives);
void mbarrier_wait(uint64_t barrier, unsigned parity);

// Numbers by their bits.
enum Kind { F16, BF16, TF32, F32, F64, E4M3, E5M2, S8, U8, S16, U16, S32, U32, S64, U64 };
double decode(Kind, uint64_t bits);
uint64_t encode(Kind, double, char rounding, bool finite);
uint64_t convert(Kind to, Kind from, uint64_t bits, char rounding, bool finite);

// Matrices. Registers are 32 bits each.
struct Product {
  int m, n, k;
  Kind d, a, b, c;
};
void mma(const Product&, uint32_t* d, const uint32_t* a, const uint32_t* b, const uint32_t* c);
void ldmatrix(int count, bool transposed, uint64_t address, uint32_t* registers);
void stmatrix(int count, bool transposed, uint64_t address, const uint32_t* registers);
struct GroupProduct {
  int n, k;
  Kind d, a, b;
  bool a_in_registers, accumulates, negates_a, negates_b, a_along_m, b_along_n;
  uint64_t a_tile, b_tile;
  uint32_t a_registers[4];
};
void wgmma(const GroupProduct&, uint32_t* const* d);
void wgmma_fence();
void wgmma_commit();
void wgmma_wait(unsigned pending);

}  // namespace emu
