"""Instructions of x86 CPUs."""

from dataclasses import replace

from tensorlang.target.llvm.instructions.families import Dot, PairDot, PairOfRows, Pairs, table

_VNNI = "llvm.x86.avx512.vpdpbusd"
_WORDS = "llvm.x86.avx512.vpdpwssd"
_BF16 = "llvm.x86.avx512bf16.dpbf16ps"

_BYTES = Dot("x86.avx512.vpdpbusd", f"{_VNNI}.512", "uint8", "int8", "int32", 16, 4, "x86_64", ("avx512vnni",))
_FEWER_BYTES = replace(_BYTES, name="x86.avx2.vpdpbusd", llvm=f"{_VNNI}.256", lanes=8, features=())
_FLOATS = Dot(
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
)


def _signed(dot: Dot) -> Dot:
    """The same instruction for signed data and an unsigned kernel: it takes them the other way around."""
    return replace(dot, name=f"{dot.name}.signed", data=dot.kernel, kernel=dot.data, kernel_first=True)


def _pairs(name: str, llvm: str, lanes: int, feature: str = "", adds: bool = True) -> tuple[Pairs, PairOfRows]:
    """An instruction that multiplies pairs, of neighbours and of rows: of bfloat16, or of int16 by int8."""
    dtypes = ("bfloat16", "bfloat16", "float32") if _BF16 in llvm else ("int16", "int8", "int32")
    rest = (llvm, *dtypes, lanes, (feature,) if feature else (), adds)
    return Pairs(f"{name}.pairs", *rest), PairOfRows(f"{name}.rows", *rest)


TABLE = table(
    _BYTES,
    _FEWER_BYTES,
    _signed(_BYTES),
    _signed(_FEWER_BYTES),
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
    _FLOATS,
    *_pairs("x86.avx512.vdpbf16ps", f"{_BF16}.512", 16, "avx512bf16"),
    *_pairs("x86.avx512.vpdpwssd", f"{_WORDS}.512", 16, "avx512vnni"),
    *_pairs("x86.avx512.vpmaddwd", "llvm.x86.avx512.pmaddw.d.512", 16, "avx512bw", adds=False),
    *_pairs("x86.avx2.vpdpwssd", f"{_WORDS}.256", 8),
    *_pairs("x86.avx2.vpmaddwd", "llvm.x86.avx2.pmadd.wd", 8, "avx2", adds=False),
    replace(_FLOATS, name="x86.avx2.vdpbf16ps", llvm=f"{_BF16}.256", lanes=8, features=("avx512bf16", "avx512vl")),
)
"""Name -> what declares it; `signed` ones take signed data and an unsigned kernel.

The 256-bit vpdpbusd is in AVX512-VNNI with VL, and in AVX-VNNI.
"""
