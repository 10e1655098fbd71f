// Numbers of every width by their bits: what cvt does, and what matrix instructions read and write.
#include <math.h>
#include <string.h>

#include "runtime.h"

namespace emu {

namespace {

struct Format {
  int exponent, mantissa;
  bool infinite;  // without: one NaN a sign, above the largest value
};

Format format_of(Kind kind) {
  switch (kind) {
    case F16: return {5, 10, true};
    case BF16: return {8, 7, true};
    case TF32: return {8, 10, true};
    case E4M3: return {4, 3, false};
    default: return {5, 2, true};
  }
}

double read_small(Format f, uint64_t bits) {
  int bias = (1 << (f.exponent - 1)) - 1, top = (1 << f.exponent) - 1;
  uint64_t mantissa = bits & ((1u << f.mantissa) - 1);
  int exponent = bits >> f.mantissa & top;
  double sign = bits >> (f.mantissa + f.exponent) & 1 ? -1.0 : 1.0;
  if (f.infinite && exponent == top) return mantissa ? NAN : sign * INFINITY;
  if (!f.infinite && exponent == top && mantissa == (1u << f.mantissa) - 1) return NAN;
  if (exponent == 0) return sign * ldexp(double(mantissa), 1 - bias - f.mantissa);
  return sign * ldexp(double(mantissa | 1u << f.mantissa), exponent - bias - f.mantissa);
}

double rounded(double x, char rounding) {
  double low = floor(x), rest = x - low;
  switch (rounding) {
    case 'z': return low;  // of a magnitude
    case 'a': return rest >= 0.5 ? low + 1 : low;
    default: return rest > 0.5 || (rest == 0.5 && fmod(low, 2) != 0) ? low + 1 : low;
  }
}

uint64_t write_small(Format f, double value, char rounding, bool finite) {
  int bias = (1 << (f.exponent - 1)) - 1, top = (1 << f.exponent) - 1;
  uint64_t ones = (1u << f.mantissa) - 1;
  uint64_t nan = uint64_t(top) << f.mantissa | ones;
  uint64_t infinity = f.infinite ? uint64_t(top) << f.mantissa : nan;
  uint64_t most = f.infinite ? infinity - 1 : nan - 1;
  uint64_t sign = uint64_t(signbit(value) != 0) << (f.mantissa + f.exponent);
  if (isnan(value)) return nan;
  if (isinf(value)) return sign | (finite ? most : infinity);
  double size = fabs(value);
  if (size == 0) return sign;
  int exponent = fmax(ilogb(size), 1 - bias);
  double steps = rounded(ldexp(size, f.mantissa - exponent), rounding);
  if (steps == ldexp(1.0, f.mantissa + 1)) ++exponent, steps /= 2;
  bool normal = steps >= ldexp(1.0, f.mantissa);
  uint64_t bits = normal ? (uint64_t(exponent + bias) << f.mantissa) + (uint64_t(steps) & ones) : uint64_t(steps);
  if (bits > most) bits = finite || rounding == 'z' ? most : infinity;
  return sign | bits;
}

double whole(double x, char rounding) {
  switch (rounding) {
    case 'z': return trunc(x);
    case 'm': return floor(x);
    case 'p': return ceil(x);
    default: return nearbyint(x);
  }
}

bool is_integer(Kind kind) { return kind >= S8; }

unsigned width(Kind kind) { return kind == S8 || kind == U8 ? 8 : kind <= U16 ? 16 : kind <= U32 ? 32 : 64; }

bool is_signed(Kind kind) { return kind == S8 || kind == S16 || kind == S32 || kind == S64; }

uint64_t clamped(Kind kind, double value) {
  unsigned bits = width(kind);
  double low = is_signed(kind) ? -ldexp(1.0, bits - 1) : 0, beyond = ldexp(1.0, is_signed(kind) ? bits - 1 : bits);
  uint64_t ones = ~0ull >> (64 - bits), most = is_signed(kind) ? ones >> 1 : ones;
  if (isnan(value)) return 0;
  if (value <= low) return is_signed(kind) ? most + 1 : 0;
  if (value >= beyond) return most;
  return (value < 0 ? uint64_t(int64_t(value)) : uint64_t(value)) & ones;
}

uint64_t extended(Kind kind, uint64_t bits) {
  unsigned spare = 64 - width(kind);
  return is_signed(kind) ? uint64_t(int64_t(bits << spare) >> spare) : bits << spare >> spare;
}

}  // namespace

double decode(Kind kind, uint64_t bits) {
  if (is_integer(kind)) return is_signed(kind) ? double(int64_t(extended(kind, bits))) : double(extended(kind, bits));
  if (kind == F64) {
    double value;
    memcpy(&value, &bits, 8);
    return value;
  }
  if (kind == F32 || kind == BF16 || kind == TF32) {
    uint32_t word = kind == BF16 ? uint32_t(bits) << 16 : kind == TF32 ? uint32_t(bits) & ~0x1fffu : uint32_t(bits);
    float value;
    memcpy(&value, &word, 4);
    return value;
  }
  return read_small(format_of(kind), bits);
}

uint64_t encode(Kind kind, double value, char rounding, bool finite) {
  uint64_t bits = 0;
  switch (kind) {
    case F64: memcpy(&bits, &value, 8); return bits;
    case F32: {
      float narrow = float(value);
      if (rounding == 'z' && fabs(narrow) > fabs(value)) narrow = nextafterf(narrow, 0);
      memcpy(&bits, &narrow, 4);
      return bits;
    }
    case TF32: return write_small(format_of(TF32), value, rounding, finite) << 13;
    default: return is_integer(kind) ? clamped(kind, value) : write_small(format_of(kind), value, rounding, finite);
  }
}

uint64_t convert(Kind to, Kind from, uint64_t bits, char rounding, bool finite) {
  if (is_integer(from) && is_integer(to)) return extended(to, extended(from, bits));
  double value = decode(from, bits);
  if (from == F16 && isnan(value) && to == F32) return 0x7fffffff;
  if (is_integer(to)) value = whole(value, rounding);
  return encode(to, value, rounding, finite);
}

}  // namespace emu
