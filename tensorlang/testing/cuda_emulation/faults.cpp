// What the checks of the compiler find (-fsanitize) is the end of the launch, with the line of the kernel's text.
#include <stdint.h>

#include "runtime.h"

namespace {

struct Location {
  const char* file;
  uint32_t line, column;
};

struct Type {
  uint16_t kind, info;
  char name[1];
};

struct OutOfBounds {
  Location at;
  const Type *array, *index;
};

struct Mismatch {
  Location at;
  const Type* type;
  unsigned char log_alignment, kind;
};

struct Overflow {
  Location at;
  const Type* type;
};

[[noreturn]] void overflows(const Overflow* data) {
  emu::fail("line %u: overflow of %s, which C leaves undefined", data->at.line, data->type->name);
}

}  // namespace

extern "C" {
void __ubsan_handle_out_of_bounds(OutOfBounds* data, uintptr_t index) {
  emu::fail("line %u: index %ld of an array %s", data->at.line, long(index), data->array->name);
}
void __ubsan_handle_type_mismatch_v1(Mismatch* data, uintptr_t pointer) {
  emu::fail("line %u: an access of %s at an address (%#lx) that is no multiple of %u", data->at.line, data->type->name,
            long(pointer), 1u << data->log_alignment);
}
void __ubsan_handle_add_overflow(Overflow* data, uintptr_t, uintptr_t) { overflows(data); }
void __ubsan_handle_sub_overflow(Overflow* data, uintptr_t, uintptr_t) { overflows(data); }
void __ubsan_handle_mul_overflow(Overflow* data, uintptr_t, uintptr_t) { overflows(data); }
void __ubsan_handle_negate_overflow(Overflow* data, uintptr_t) { overflows(data); }
void __ubsan_handle_divrem_overflow(Overflow* data, uintptr_t, uintptr_t) {
  emu::fail("line %u: division by zero, or overflow of %s", data->at.line, data->type->name);
}
}
