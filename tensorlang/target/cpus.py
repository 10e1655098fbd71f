"""CPUs that can be named in a target, and the features of theirs that the generated code may use."""

from __future__ import annotations

from tensorlang.dataclass import dataclass


@dataclass(frozen=True, slots=True)
class Cpu:
    """A CPU by LLVM's name: architecture (x86_64, aarch64, riscv64, wasm32) and features as LLVM spells them.

    `llvm` is LLVM's name where that is another one: then LLVM is told all features.
    """

    name: str
    architecture: str
    features: frozenset[str]
    llvm: str = ""


_V2 = "sse4.2 popcnt"
_AVX = f"{_V2} avx"
_V3 = f"{_AVX} avx2 fma f16c bmi bmi2 lzcnt"
_V4 = f"{_V3} avx512f avx512bw avx512cd avx512dq avx512vl"
_VNNI = f"{_V4} avx512vnni"
_ICELAKE = f"{_VNNI} avx512vbmi avx512vbmi2 avx512ifma avx512bitalg avx512vpopcntdq gfni"
_SAPPHIRE = f"{_ICELAKE} avx512bf16 avx512fp16 avxvnni amx-tile amx-int8 amx-bf16"
_NEON = "neon"
_NEOVERSE = "neon dotprod fullfp16"
_SVE = f"{_NEOVERSE} bf16 i8mm sve"

_X86 = {
    "x86-64": "",
    "core2": "",
    "nehalem westmere x86-64-v2": _V2,
    "sandybridge": _AVX,
    "ivybridge": f"{_AVX} f16c",
    "haswell broadwell skylake x86-64-v3 znver1 znver2 znver3": _V3,
    "alderlake raptorlake meteorlake": f"{_V3} avxvnni gfni",
    "skylake-avx512 x86-64-v4": _V4,
    "cascadelake": _VNNI,
    "cooperlake": f"{_VNNI} avx512bf16",
    "icelake-client icelake-server tigerlake rocketlake": _ICELAKE,
    "znver4": f"{_ICELAKE} avx512bf16",
    "znver5": f"{_ICELAKE} avx512bf16 avxvnni",
    "sapphirerapids emeraldrapids graniterapids": _SAPPHIRE,
}
_AARCH64 = {
    "generic cortex-a53 cortex-a57 cortex-a72": _NEON,
    "cortex-a76 neoverse-n1 apple-m1": _NEOVERSE,
    "apple-m2 apple-m3 apple-m4": f"{_NEOVERSE} bf16 i8mm",
    "neoverse-v1 neoverse-n2 neoverse-v2": _SVE,
}

ONE_OF_512_BITS = frozenset(["icelake-client", "tigerlake", "rocketlake", "znver4"])
"""CPUs that begin one multiply-add of 512 bits in a cycle; others begin two of their widest vectors."""

_RVV = "m a f d c v zvl128b"
_SIMD128 = "simd128 bulk-memory sign-ext nontrapping-fptoint"
_OTHERS = (
    Cpu("rv64gcv", "riscv64", frozenset(_RVV.split()), "generic-rv64"),
    Cpu("wasm32-simd128", "wasm32", frozenset(_SIMD128.split()), "generic"),
)
"""RISC-V with vectors of 128 bits at least (code for longer ones would be wrong on these, and not say so), and what
all engines of WebAssembly have."""

CPUS: dict[str, Cpu] = {
    name: Cpu(name, architecture, frozenset(features.split()))
    for architecture, families in (("x86_64", _X86), ("aarch64", _AARCH64))
    for names, features in families.items()
    for name in names.split()
} | {cpu.name: cpu for cpu in _OTHERS}
"""LLVM's CPU name -> CPU."""
