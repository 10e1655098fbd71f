// From the caller's values to the parameters of a kernel. Included behind the text; `emu_run` is what the caller calls.
#pragma once
#include <type_traits>
#include <utility>

#include "runtime.h"

namespace emu {

static int value_count;

template <class P>
P parameter(const Value& value, int number) {
  if constexpr (std::is_pointer_v<P>) {
    using Element = std::remove_cv_t<std::remove_pointer_t<P>>;
    if (value.kind != POINTER) fail("parameter %d of the kernel is a pointer, and the argument is no array", number);
    if constexpr (!std::is_void_v<Element>)
      if (sizeof(Element) % value.integer || (sizeof(Element) != size_t(value.integer) && !std::is_class_v<Element>))
        fail("parameter %d of the kernel points to elements of %zu bytes, and those of the array have %d", number,
             sizeof(Element), int(value.integer));
    return reinterpret_cast<P>(value.map.base);
  } else if constexpr (std::is_class_v<P>) {
    if (value.kind != TENSOR_MAP)
      fail("parameter %d of the kernel is a structure, and the argument no tensor map", number);
    static_assert(sizeof(P) == sizeof(Map), "the only structure that a kernel can have as parameter is a tensor map");
    P map;
    __builtin_memcpy(&map, &value.map, sizeof map);
    return map;
  } else if constexpr (std::is_integral_v<P>) {
    if (value.kind != INTEGER) fail("parameter %d of the kernel is an integer, and the argument is not", number);
    if (static_cast<int64_t>(static_cast<P>(value.integer)) != value.integer)
      fail("parameter %d of the kernel has %zu bytes, too few for %ld", number, sizeof(P), long(value.integer));
    return static_cast<P>(value.integer);
  } else {
    if (value.kind != REAL) fail("parameter %d of the kernel is a float, and the argument is not", number);
    return static_cast<P>(value.real);
  }
}

template <class... P, size_t... I>
void call(void (*kernel)(P...), const Value* values, std::index_sequence<I...>) {
  if (sizeof...(P) != size_t(value_count))
    fail("the kernel has %zu parameters, and there are %d arguments", sizeof...(P), value_count);
  kernel(parameter<std::remove_cv_t<P>>(values[I], int(I) + 1)...);
}

template <class... P>
void call(void (*kernel)(P...), const Value* values) {
  call(kernel, values, std::index_sequence_for<P...>());
}

inline const char* run(const Settings& settings, Array* arrays, int array_count, Value* values, int count, Body body) {
  static_shared(__start_emu_shared, __stop_emu_shared);
  value_count = count;
  return launch(settings, arrays, array_count, values, count, body);
}

}  // namespace emu
