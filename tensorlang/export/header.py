"""The C header of an exported kernel: C99 and C++, and needs stdint.h only."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field
from math import prod

from tensorlang import dtypes
from tensorlang.dataclass import dataclass
from tensorlang.export.words import c_names, c_type
from tensorlang.ir.expr import Buffer, Const
from tensorlang.runtime.memory import HUGE_PAGE
from tensorlang.target.llvm.library.front import ABI

_HOST = f"""\
#ifndef TL_HOST
#define TL_HOST {ABI}
/* How the tasks of a parallel loop run. parallel_for calls task for index 0 .. count-1, each once, and returns when all
   have returned; count may be less than tasks, and not more. Tasks never wait for one another. */
typedef struct tl_host {{
  int32_t abi;     /* TL_HOST */
  int32_t threads; /* the most tasks of a loop, at least 1; 0, where the kernel has a runner: as many as that takes */
  void *user;      /* handed to parallel_for */
  void (*parallel_for)(void *user, int64_t tasks, void (*task)(void *arg, int64_t index, int64_t count), void *arg);
}} tl_host;
#if defined(__cplusplus)
#define TL_RESTRICT __restrict
#else
#define TL_RESTRICT restrict
#endif
#endif
"""
_FACES = {
    "tvm_ffi": "/* For TVM-FFI: tvm_ffi.load_module(...).{0}(tensors...) calls __tvm_ffi_{0}. */",
    "xla": "/* For XLA: jax.ffi.register_ffi_target takes this function; its results are what the kernel writes. */\n"
    "void *{0}_xla(void *frame);",
    "onnxruntime": "/* For ONNX Runtime 1.16 and newer: the library registers the operator {0} of the domain\n"
    "   tensorlang.{0}. Its outputs are what the kernel writes, its inputs all other arrays. */\n"
    "void *RegisterCustomOps(void *options, const void *api_base);",
}
_RUNNERS = {
    "host": "With host == NULL loops run in the calling thread.",
    "serial": "Loops run in the calling thread, whatever the host says.",
    "openmp": (
        "With host == NULL loops run on OpenMP's threads (libgomp, or another that has GOMP_parallel). They spin for\n"
        "   milliseconds after a loop by default: set GOMP_SPINCOUNT=10000 on a machine that others use. There are\n"
        "   omp_get_max_threads() of them: the workspace has to be for as many."
    ),
}


@dataclass(frozen=True, slots=True)
class Described:
    """What a header says: the arguments in the caller's order, those that are written, the sizes, and the codes."""

    name: str
    arrays: tuple[Buffer, ...]
    written: frozenset[str]
    sizes: tuple[str, ...]
    threads: str
    limit: int
    externs: tuple[str, ...]
    messages: dict[int, str]
    facts: tuple[str, ...]
    about: str
    takes_tensors: bool = True
    faces: tuple[str, ...] = ()
    beside: Mapping[str, str] = field(default_factory=dict)


def header(d: Described) -> str:
    """The text of NAME.h."""
    names = c_names([b.name for b in d.arrays], taken=(d.name,))
    sizes = c_names(d.sizes, taken=(d.name, *names))
    arrays = [_parameter(b, n, b.name in d.written) for b, n in zip(d.arrays, names, strict=True)]
    given = [*arrays, *(f"int64_t {n}" for n in sizes)]
    guard = f"TENSORLANG_{d.name.upper()}_H"
    spelt = dict(zip(d.sizes, sizes, strict=True))
    shapes = [_shape(b, n, spelt, b.name in d.written) for b, n in zip(d.arrays, names, strict=True)]
    lines = [
        f"/* {d.about} */",
        f"#ifndef {guard}",
        f"#define {guard}",
        "#include <stdint.h>",
        _HOST.rstrip(),
        "#ifdef __cplusplus",
        'extern "C" {',
        "#endif",
        "",
        _comment([*shapes, *_rules(d), *_codes(d.messages)]),
        _function("int32_t", d.name, given),
        "",
        _comment(["The same in the caller's workspace: this function never allocates. " + _RUNNERS[d.threads]]),
        _function("int32_t", f"{d.name}_run", [*given, "void *workspace", "const tl_host *host"]),
        "",
        _comment(
            [
                "Bytes of the workspace, which begins at a multiple of 64, for so many threads: the host's, or 0 for",
                "those of the default runner. With 0 bytes workspace may be NULL; less than 0 is a code.",
            ]
        ),
        _function("int64_t", f"{d.name}_workspace_bytes", [*(f"int64_t {n}" for n in sizes), "int64_t threads"]),
        "",
        *_of_tensors(d),
        *[line.format(d.name) for face, line in _FACES.items() if face in d.faces],
        "/* What a code means; never NULL. */",
        f"const char *{d.name}_message(int32_t code);",
        "/* What the kernel is and what was proven of it, as JSON. */",
        f"const char *{d.name}_metadata(void);",
        "",
        "#ifdef __cplusplus",
        "}",
        "#endif",
        "#endif",
    ]
    return "\n".join(lines) + "\n"


def _parameter(buffer: Buffer, name: str, written: bool) -> str:
    return f"{'' if written else 'const '}{c_type(buffer.dtype)} *TL_RESTRICT {name}"


def _function(result: str, name: str, parameters: Sequence[str]) -> str:
    return f"{result} {name}({', '.join(parameters) or 'void'});"


def _shape(buffer: Buffer, name: str, sizes: dict[str, str], written: bool) -> str:
    extents = ", ".join(str(e) for e in buffer.shape)
    for plain, spelt in sizes.items():
        extents = extents if plain == spelt else extents.replace(plain, spelt)
    bits = " (bits)" if c_type(buffer.dtype).startswith("uint") and buffer.dtype != c_type(buffer.dtype)[:-2] else ""
    return f"{name}: {buffer.dtype}{bits}[{extents}], {'written' if written else 'read'}"


def _of_tensors(d: Described) -> list[str]:
    """The call with DLTensors, where shapes tell all sizes."""
    if not d.takes_tensors:
        return []
    words = [
        f"The same with {len(d.arrays)} pointers to DLTensors (dlpack.h), which are tested: device, dtype, shape,",
        "strides, alignment, overlap. A code below -99 says what is wrong with which.",
    ]
    return [_comment(words), f"int32_t {d.name}_dl(const void *const *arrays);", ""]


def _rules(d: Described) -> list[str]:
    """What a caller has to keep."""
    lines = ["Arrays are compact, rows one after the other; what is written overlaps nothing else."]
    for array, ending in d.beside.items():
        lines += [f"{array} is the file {d.name}.{ending}, whole, in memory at a multiple of 64: read or mapped once,"]
        lines += ["for all calls. Each call looks at its first 64 bytes, which hold its size and digest."]
    if d.beside or any(_fixed_bytes(buffer) >= HUGE_PAGE for buffer in d.arrays):
        lines += ["What is large and read once in a call, as weights are, comes fastest from huge pages: on Linux"]
        lines += ["madvise(.., MADV_HUGEPAGE) before it is filled, at a multiple of 2 MB."]
    if d.sizes:
        lines.append(f"Sizes are from 0 to {d.limit}.")
    lines += [f"Assumed of the arrays, and not tested: {fact}." for fact in d.facts]
    if d.externs:
        lines.append(f"Calls C functions that you link to it: {', '.join(d.externs)}.")
    return lines


def _fixed_bytes(buffer: Buffer) -> int:
    """The bytes of an array; 0 where sizes tell."""
    extents = [e.value for e in buffer.shape if isinstance(e, Const) and isinstance(e.value, int)]
    return prod(extents) * dtypes.info(buffer.dtype).bytes if len(extents) == len(buffer.shape) else 0


def _codes(messages: dict[int, str]) -> list[str]:
    usual = {code: text for code, text in messages.items() if code > -100}
    return ["Returns 0, or a code:", *(f"  {code}: {text}" for code, text in usual.items())]


def _comment(lines: Sequence[str]) -> str:
    text = "\n   ".join(lines).replace("*/", "* /")
    return f"/* {text} */"
