"""Identifiers of C for names of loop IR."""

from __future__ import annotations

import re
from collections.abc import Collection

from tensorlang.ir import intrinsics

_LONGEST = 64
_KEYWORDS = """
alignas alignof and and_eq asm auto bitand bitor bool break case catch char char8_t char16_t char32_t class compl
concept const consteval constexpr constinit const_cast continue co_await co_return co_yield decltype default delete do
double dynamic_cast else enum explicit export extern false float for friend goto if inline int long mutable namespace
new noexcept not not_eq nullptr operator or or_eq private protected public register reinterpret_cast requires restrict
return short signed sizeof static static_assert static_cast struct switch template this thread_local throw true try
typedef typeid typename union unsigned using virtual void volatile wchar_t while xor xor_eq main linux unix
"""
_DEVICE = """
blockIdx blockDim gridDim threadIdx warpSize kernel global local constant generic pipe uniform half quad complex
imaginary uchar ushort uint ulong size_t ptrdiff_t intptr_t uintptr_t event_t sampler_t image1d_t image2d_t image3d_t
read_only write_only read_write barrier mem_fence min max clamp select popcount clz any all dot cross length distance
step sign mix shuffle prefetch as_float as_double as_int as_uint as_long as_ulong NULL INFINITY NAN MAXFLOAT HUGE_VAL
HUGE_VALF CHAR_BIT INT_MIN INT_MAX UINT_MAX LONG_MIN LONG_MAX OPENCL_VERSION fault shared_memory shared_tiles
reduce_scratch fabs rint fmod remainder gamma isnormal signbit ldexp frexp modf nan mad get_group_id get_local_id
atomic_add atomic_cmpxchg atom_cmpxchg atomicAdd atomicCAS atomicMin atomicMax assert printf
"""
_NUMBERS = ("char", "uchar", "short", "ushort", "int", "uint", "long", "ulong", "float", "double", "half")
_VECTORS = {f"{number}{lanes}" for number in _NUMBERS for lanes in (1, 2, 3, 4, 8, 16)}
_MATHEMATICS = {name + suffix for name in (*intrinsics.TABLE, "fabs", "fmod", "rint") for suffix in ("", "f")}
_RESERVED = {*_KEYWORDS.split(), *_DEVICE.split(), *_VECTORS, *_MATHEMATICS}
_OURS = re.compile(r"(tl|async|atomic|shfl|__)_?\w*|\w+_(u?int|b?float)(8|16|32|64)(_(global|shared))?|M_\w+|CLK_\w+")
"""Names like those of our device functions and of what compilers bring along."""


def identifier(name: str, taken: Collection[str]) -> str:
    """A C identifier made from a name: letters, digits and underscores, no reserved word, and none that is taken.

    Of long names the beginning stays: there are compilers that crash on others.
    """
    made = re.sub(r"\W", "_", name[:_LONGEST], flags=re.ASCII)
    if not made or made[0].isdigit():
        made = f"v{made}"
    if made in _RESERVED or _OURS.fullmatch(made):
        made += "_"
    result, count = made, 1
    while result in taken:
        result, count = f"{made}_{count}", count + 1
    return result
