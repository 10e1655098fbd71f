"""Instructions of x86 CPUs."""

from tensorlang.target.llvm.instructions.families import Dot, PairDot, table

_VNNI = "llvm.x86.avx512.vpdpbusd"
_BF16 = "llvm.x86.avx512bf16.dpbf16ps"

TABLE = table(
    Dot("x86.avx512.vpdpbusd", f"{_VNNI}.512", "uint8", "int8", "int32", 16, 4, "x86_64", ("avx512vnni",)),
    Dot("x86.avx2.vpdpbusd", f"{_VNNI}.256", "uint8", "int8", "int32", 8, 4, "x86_64", ()),
    Dot(
        "x86.avx512.vpdpbusd.signed",
        f"{_VNNI}.512",
        "int8",
        "uint8",
        "int32",
        lanes=16,
        group=4,
        architecture="x86_64",
        features=("avx512vnni",),
        kernel_first=True,
    ),
    Dot(
        "x86.avx2.vpdpbusd.signed",
        f"{_VNNI}.256",
        "int8",
        "uint8",
        "int32",
        lanes=8,
        group=4,
        architecture="x86_64",
        features=(),
        kernel_first=True,
    ),
    PairDot(
        "x86.avx2.vpmaddubsw.signed",
        "llvm.x86.avx2.pmadd.ub.sw",
        "int8",
        "uint8",
        "int32",
        lanes=8,
        group=4,
        architecture="x86_64",
        features=("avx2",),
        kernel_first=True,
        halves="llvm.x86.avx2.pmadd.wd",
    ),
    Dot(
        "x86.avx512.vdpbf16ps",
        f"{_BF16}.512",
        "bfloat16",
        "bfloat16",
        "float32",
        lanes=16,
        group=2,
        architecture="x86_64",
        features=("avx512bf16",),
        packed=False,
    ),
    Dot(
        "x86.avx2.vdpbf16ps",
        f"{_BF16}.256",
        "bfloat16",
        "bfloat16",
        "float32",
        lanes=8,
        group=2,
        architecture="x86_64",
        features=("avx512bf16", "avx512vl"),
        packed=False,
    ),
)
"""Name -> what declares it; `signed` ones take signed data and an unsigned kernel.

The 256-bit vpdpbusd is in AVX512-VNNI with VL, and in AVX-VNNI.
"""
