// What the translation of inline assembly (translate.py) writes, besides the functions of runtime.h: registers by bits.
#pragma once
#include <string.h>

#include "runtime.h"

namespace emu {

template <class T>
uint64_t bits(T value) {
  uint64_t word = 0;
  memcpy(&word, &value, sizeof value);
  return word;
}

template <class T>
T get(uint64_t word) {
  T value;
  memcpy(&value, &word, sizeof value);
  return value;
}

// Give a register the low bits of a word.
template <class T>
void put(T& to, uint64_t word) {
  memcpy(&to, &word, sizeof to);
}
inline void put(bool& to, uint64_t word) { to = word != 0; }

// An operand of assembly, as a register of its letter; unlike C's conversion it keeps the bits of a pointer.
template <class R, class T>
R operand(T value) {
  return static_cast<R>(value);
}
template <class R, class T>
R operand(T* value) {
  return static_cast<R>(reinterpret_cast<uintptr_t>(value));
}

inline uint64_t pair(uint64_t low, uint64_t high, unsigned width) {
  return (low & ((1ull << width) - 1)) | high << width;
}

inline uint64_t thread_index(char what, char axis) {
  const uint3& t = current->thread;
  const uint3& b = current->block;
  switch (what) {
    case 't': return axis == 'x' ? t.x : axis == 'y' ? t.y : t.z;
    case 'c': return axis == 'x' ? b.x : axis == 'y' ? b.y : b.z;
    case 'n': return axis == 'x' ? block_size.x : axis == 'y' ? block_size.y : block_size.z;
    default: return axis == 'x' ? grid_size.x : axis == 'y' ? grid_size.y : grid_size.z;
  }
}

}  // namespace emu
