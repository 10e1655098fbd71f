"""A C program that runs an exported kernel on stored arrays, compares what it writes, and times it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tensorlang import dtypes
from tensorlang.dataclass import dataclass
from tensorlang.errors import ArgumentError
from tensorlang.export.compiling import Call
from tensorlang.export.words import c_names, c_type
from tensorlang.ir.expr import Buffer, Var

_TOLERANCES = {"float16": 1e-2, "bfloat16": 5e-2, "float8_e4m3fn": 0.3, "float8_e5m2": 0.6, "float64": 1e-9}
_USUAL = 1e-4
"""How far a float may be from what the unscheduled program gives, relative to it and to 1."""

_TEXT = """\
/* Runs {name} on stored arrays, compares, and times it: cc {name}_test.c {name}.a{flags} -lm && ./a.out
   The first argument is the folder of these files (default: here), the second for how many seconds to time (0.2). */
#include "{name}.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* Memory at a multiple of 64, and where the whole of it begins, just before. */
static void *take(size_t size) {{
  char *whole = (char *)malloc(size + 128), *place;
  if (!whole) exit(2);
  place = whole + 128 - (uintptr_t)whole % 64;
  ((void **)place)[-1] = whole;
  return place;
}}

static void give(void *place) {{ free(((void **)place)[-1]); }}

static void *read_array(const char *folder, const char *file, size_t size) {{
  char path[4096];
  void *data = take(size);
  FILE *from;
  snprintf(path, sizeof path, "%s/%s", folder, file);
  from = fopen(path, "rb");
  if (!from || fread(data, 1, size, from) != size) {{
    fprintf(stderr, "cannot read %s\\n", path);
    exit(2);
  }}
  fclose(from);
  return data;
}}

{decoders}
static int wrong; /* elements that are too far off */

{compares}
int main(int count, char **words) {{
  const char *folder = count > 1 ? words[1] : ".";
  double seconds = count > 2 ? atof(words[2]) : 0.2, best = 1e9, spent = 0;
{reads}
  int64_t bytes = {bytes};
  void *workspace = take(bytes > 0 ? (size_t)bytes : 0);
  int32_t code = bytes < 0 ? (int32_t)bytes : {call};
  if (code) {{
    fprintf(stderr, "{name}: %s\\n", {name}_message(code));
    return 1;
  }}
{checks}
  if (wrong) {{
    fprintf(stderr, "{name}: %d elements are wrong\\n", wrong);
    return 1;
  }}
  while (spent < seconds) {{
    long calls = 1, k;
    clock_t start, end;
    double each;
    for (;; calls *= 2) {{
      start = clock();
      for (k = 0; k < calls; ++k) {call};
      end = clock();
      if (end - start >= CLOCKS_PER_SEC / 100) break;
    }}
    each = (double)(end - start) / CLOCKS_PER_SEC / (double)calls;
    if (each < best) best = each;
    spent += (double)(end - start) / CLOCKS_PER_SEC;
  }}
  if (spent > 0) printf("{name}: as expected, %.3g us of one CPU a call\\n", best * 1e6);
  else printf("{name}: as expected\\n");
{frees}
  give(workspace);
  return 0;
}}
"""
_NARROW = """\
static double {dtype}_value(uint{bits}_t bits) {{
  int exponent = (int)(bits >> {fraction} & {top}u), sign = bits >> {last} ? -1 : 1;
  double part = (double)(bits & {mask}u) / {whole}.0;
  if (exponent == {top}{only}) return part != 0 ? NAN : sign * (double)INFINITY;
  return exponent ? sign * ldexp(1 + part, exponent - {bias}) : sign * ldexp(part, 1 - {bias});
}}
"""
_FORMATS = {"float16": (16, 10, 15), "bfloat16": (16, 7, 127), "float8_e5m2": (8, 2, 15), "float8_e4m3fn": (8, 3, 7)}
_COMPARE = """\
static void compare_{dtype}(const char *array, const {type} *made, const {type} *wanted, size_t count) {{
  size_t k;
  for (k = 0; k < count; ++k) {{
    double a = {made}, b = {wanted};
    if (fabs(a - b) <= {tolerance} * (1 + fabs(b)) || a == b || (isnan(a) && isnan(b))) continue;
    if (wrong++ < 5) fprintf(stderr, "%s[%zu] is %g, expected %g\\n", array, k, a, b);
  }}
}}
"""


@dataclass(frozen=True, slots=True)
class Checked:
    """A test: its text, and its data by file name."""

    text: str
    data: dict[str, bytes]


def program_of(call: Call, before: Sequence[Any], after: Sequence[Any], sizes: Sequence[int], flags: str) -> Checked:
    """The program for some arrays: their values before a call, and after it. `flags` name libraries to a linker."""
    arrays, name = call.arrays, call.name
    names = c_names(["made_" + b.name for b in arrays])
    data: dict[str, bytes] = {}
    reads, checks, frees = list[str](), list[str](), list[str]()

    def read(buffer: Buffer, variable: str, values: Any) -> None:
        file = f"{name}_data/{variable}.bin"
        if buffer.name in call.beside:
            file = f"{name}.{call.beside[buffer.name]}"
        else:
            data[file] = values.tobytes()
        kind = c_type(buffer.dtype)
        reads.append(f'  {kind} *{variable} = ({kind} *)read_array(folder, "{file}", {values.nbytes}u);')
        frees.append(f"  give({variable});")

    for buffer, variable, old, new in zip(arrays, names, before, after, strict=True):
        read(buffer, variable, old)
        if buffer.name in call.kernel.outputs:
            read(buffer, f"wanted_{variable}", new)
            checks.append(f'  compare_{buffer.dtype}("{variable}", {variable}, wanted_{variable}, {new.size}u);')
    used = list(dict.fromkeys(b.dtype for b in arrays if b.name in call.kernel.outputs))
    text = _TEXT.format(
        name=name,
        flags=flags,
        decoders="".join(_decoder(d) for d in used if d in _FORMATS),
        compares="".join(_compare(d) for d in used),
        reads="\n".join(reads),
        checks="\n".join(checks),
        frees="\n".join(frees),
        bytes=f"{name}_workspace_bytes({', '.join([*map(str, sizes), '0'])})",
        call=f"{name}_run({', '.join([*names, *map(str, sizes), 'workspace', 'NULL'])})",
    )
    return Checked(text, data)


def _decoder(dtype: str) -> str:
    bits, fraction, bias = _FORMATS[dtype]
    top = (1 << (bits - 1 - fraction)) - 1
    only = f" && (bits & {(1 << fraction) - 1}u) == {(1 << fraction) - 1}u" if dtype == "float8_e4m3fn" else ""
    return _NARROW.format(
        dtype=dtype, bits=bits, fraction=fraction, top=top, last=bits - 1, mask=(1 << fraction) - 1, only=only,
        whole=1 << fraction, bias=bias,
    )  # fmt: skip


def _compare(dtype: str) -> str:
    def value(of: str) -> str:
        return f"{dtype}_value({of}[k])" if dtype in _FORMATS else f"(double){of}[k]"

    tolerance = _TOLERANCES.get(dtype, _USUAL) if dtypes.info(dtype).is_float else 0
    return _COMPARE.format(
        dtype=dtype, type=c_type(dtype), made=value("made"), wanted=value("wanted"), tolerance=tolerance
    )


def check_program(call: Call, answer: Sequence[Any] | None, libraries: Sequence[str]) -> Checked:
    """The program for the arrays of a call: `answer` holds what it is given, before it and then after it."""
    if answer is None:
        raise ArgumentError("export: formats has 'c', a test; give the arrays of a call, outputs too: check=[x, y]")
    half = len(call.signature)
    places = [k for k, p in enumerate(call.signature) if isinstance(p, Buffer)]
    before, after = [answer[k] for k in places], [answer[half + k] for k in places]
    sizes = {p.name: answer[k] for k, p in enumerate(call.signature) if not isinstance(p, Buffer)}
    for buffer, array in zip(call.arrays, before, strict=True):
        bare = zip(buffer.shape, array.shape, strict=True)
        sizes |= {e.name: length for e, length in bare if isinstance(e, Var)}
    if missing := [v.name for v in call.kernel.sizes if v.name not in sizes]:
        raise ArgumentError(f"export: the shapes of check do not tell {', '.join(missing)}; leave 'c' out of formats")
    flags = "".join(f" -l{library}" for library in libraries if library != "m")
    return program_of(call, before, after, [sizes[v.name] for v in call.kernel.sizes], flags)
