"""The dialects of C for devices, in one table: how CUDA C and OpenCL C say the same thing."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from tensorlang import dtypes
from tensorlang.dataclass import dataclass

Space = Literal["global", "shared", "local"]


@dataclass(frozen=True, slots=True, eq=False)
class Dialect:
    """One column of the table; texts in braces are filled in.

    `types`: what holds a value of a dtype in a variable (half precision as float), `words` in memory where that is
    another type. `spaces` qualify pointers. `keeps_thread_index`: the number of a thread is a variable; else each use
    asks for it, since Intel's runtime for CPUs gives all threads the first one's where a loop has barriers and what is
    made of the variable is the same in each iteration. `static_shared`: bytes of shared memory that a kernel may
    declare; more is one block whose size the launch gives. `wide_bytes`: the widest access. `aligned_accesses`: a wide
    access has to be a multiple of its size. `warps`: threads of a warp that exchange values in reductions, 0 for none.
    `whole_warps` asks for warps of 32 in a kernel that shuffles. `sub_groups`: threads take values from each other
    within sub-groups, which number them along x only, and not within masks of a warp.

    `atomic` is how updates of one element are called, of integers of `atomic_bits`; `atomic_sums`: sums of floats too.
    `exchange` compares and exchanges words of so many bits, in memory that is `volatile`; `float_bits` are the
    functions from floats to their bits and back. `counting` has the functions that count bits. `same_operands`: its
    minimum takes operands of one type only. `bulk_copies`: one thread begins the copy of a whole tile, by a map of it
    that the host makes. `extensions`: words in a text, and what is asked of a device that has to know them.
    """

    name: str
    types: Mapping[str, str]
    words: Mapping[str, str]
    suffixes: Mapping[str, str]
    infinity: Mapping[str, str]
    nan: Mapping[str, str]
    kernel: str
    bounds: str
    function: str
    spaces: Mapping[str, str]
    restrict: str
    shared: str
    align: str
    block_index: Mapping[str, str]
    thread_index: Mapping[str, str]
    keeps_thread_index: bool
    barrier: str
    global_barrier: str
    warp_barrier: str
    float_suffix: str
    static_shared: int
    wide_bytes: int
    aligned_accesses: bool
    async_copies: bool
    warps: int
    atomic: str
    atomic_bits: tuple[int, ...]
    atomic_sums: bool
    exchange: Mapping[int, str]
    float_bits: Mapping[str, tuple[str, str]]
    counting: Mapping[str, str]
    volatile: str = ""
    whole_warps: str = ""
    sub_groups: bool = False
    same_operands: bool = False
    bulk_copies: bool = False
    extensions: tuple[tuple[str, str], ...] = ()

    def word(self, dtype: str) -> str:
        """The C type of an element in memory."""
        return self.words.get(dtype) or self.types[dtype]

    def unsigned(self, bits: int) -> str:
        """The unsigned type in which integers of so many bits wrap around."""
        return self.types["uint64" if bits == 64 else "uint32"]


SUB_GROUP = "sub_group_shuffle"
"""The function of OpenCL, of devices with `SUB_GROUPS`."""

SUB_GROUPS = ("cl_khr_subgroup_shuffle", "cl_intel_required_subgroup_size")
"""What a device needs for shuffles among 32 neighbours, as each of our kernels that has them asks."""

_AXES = ("x", "y", "z")
_FLOATS = {d.name: "double" if d.bits == 64 else "float" for d in dtypes.TABLE.values() if d.is_float}

NARROW = {"float16": "f16", "bfloat16": "bf16", "float8_e4m3fn": "e4m3", "float8_e5m2": "e5m2"}
"""Floats that variables hold as float32 -> what the names of their conversions call them."""


def _words(byte: str, short: str) -> dict[str, str]:
    """What holds narrow floats in memory."""
    return {name: byte if dtypes.info(name).bits == 8 else short for name in NARROW}


CUDA = Dialect(
    name="cuda",
    types={
        "bool": "bool", "int8": "signed char", "int16": "short", "int32": "int", "int64": "long long",
        "uint8": "unsigned char", "uint16": "unsigned short", "uint32": "unsigned int",
        "uint64": "unsigned long long", **_FLOATS,
    },
    words={"bool": "unsigned char", **_words("unsigned char", "unsigned short")},
    suffixes={"int64": "ll", "uint32": "u", "uint64": "ull"},
    infinity={"float32": "__int_as_float(0x7f800000)", "float64": "__longlong_as_double(0x7ff0000000000000ll)"},
    nan={"float32": "__int_as_float(0x7fffffff)", "float64": "__longlong_as_double(0x7fffffffffffffffll)"},
    kernel='extern "C" __global__ void {bounds}',
    bounds="__launch_bounds__({launch})",
    function="static __device__ __forceinline__",
    spaces={"global": "", "shared": "", "local": ""},
    restrict="__restrict__",
    shared="__shared__",
    align="__align__({bytes})",
    block_index={axis: f"blockIdx.{axis}" for axis in _AXES},
    thread_index={axis: f"threadIdx.{axis}" for axis in _AXES},
    keeps_thread_index=True,
    barrier="__syncthreads();",
    global_barrier="__syncthreads();",
    warp_barrier="__syncwarp();",
    float_suffix="f",
    static_shared=48 * 1024,
    wide_bytes=16,
    aligned_accesses=True,
    async_copies=True,
    warps=32,
    atomic="atomic{name}",
    atomic_bits=(32, 64),
    atomic_sums=True,
    exchange={32: "atomicCAS", 64: "atomicCAS"},
    float_bits={
        "float32": ("__float_as_uint", "__uint_as_float"),
        "float64": ("__double_as_longlong", "__longlong_as_double"),
    },
    counting={"popcount32": "__popc", "popcount64": "__popcll", "clz32": "__clz", "clz64": "__clzll"},
    bulk_copies=True,
)  # fmt: skip

OPENCL = Dialect(
    name="opencl",
    types={
        "bool": "bool", "int8": "char", "int16": "short", "int32": "int", "int64": "long", "uint8": "uchar",
        "uint16": "ushort", "uint32": "uint", "uint64": "ulong", **_FLOATS,
    },
    words={"bool": "uchar", **_words("uchar", "ushort")},
    suffixes={"int64": "l", "uint32": "u", "uint64": "ul"},
    infinity={"float32": "as_float(0x7f800000)", "float64": "as_double(0x7ff0000000000000l)"},
    nan={"float32": "as_float(0x7fffffff)", "float64": "as_double(0x7fffffffffffffffl)"},
    kernel="__kernel {bounds} void",
    bounds="__attribute__((reqd_work_group_size({x}, {y}, {z})))",
    function="static",
    spaces={"global": "__global ", "shared": "__local ", "local": "__private "},
    restrict="restrict",
    shared="__local",
    align="__attribute__((aligned({bytes})))",
    block_index={axis: f"get_group_id({n})" for n, axis in enumerate(_AXES)},
    thread_index={axis: f"get_local_id({n})" for n, axis in enumerate(_AXES)},
    keeps_thread_index=False,
    barrier="barrier(CLK_LOCAL_MEM_FENCE);",
    global_barrier="barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE);",
    warp_barrier="barrier(CLK_LOCAL_MEM_FENCE);",
    float_suffix="",
    static_shared=2**31,
    wide_bytes=128,
    aligned_accesses=False,
    async_copies=False,
    warps=0,
    atomic="atomic_{lower}",
    atomic_bits=(32,),
    atomic_sums=False,
    exchange={32: "atomic_cmpxchg", 64: "atom_cmpxchg"},
    float_bits={"float32": ("as_uint", "as_float"), "float64": ("as_ulong", "as_double")},
    counting={"popcount32": "popcount", "popcount64": "popcount", "clz32": "clz", "clz64": "clz"},
    volatile="volatile ",
    whole_warps="__attribute__((intel_reqd_sub_group_size(32)))",
    sub_groups=True,
    same_operands=True,
    extensions=(
        ("double", "cl_khr_fp64"),
        ("atom_cmpxchg", "cl_khr_int64_base_atomics"),
        *((SUB_GROUP, name) for name in SUB_GROUPS),
    ),
)  # fmt: skip
