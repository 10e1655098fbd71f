"""Which of several kernels a CPU can run: asked once, and kept in one word.

A row of `_BITS` says where `cpuid` tells of a feature. Vectors of 256 and 512 bits need the system's word, too, and
for tile registers it is asked to let the process use them (Linux's documentation, x86/xstate).
"""

from __future__ import annotations

from collections.abc import Sequence

from tensorlang.target.llvm.text import Module

_LEAVES = (("1.c", 1, 0, 2), ("7.b", 7, 0, 1), ("7.c", 7, 0, 2), ("7.d", 7, 0, 3), ("71.a", 7, 1, 0))
_EXTENDED = ("ex.c", 0x80000001, 0, 2)
_BITS: dict[str, dict[str, int]] = {
    "1.c": {
        "sse3": 0, "ssse3": 9, "fma": 12, "cx16": 13, "sse4.1": 19, "sse4.2": 20, "movbe": 22, "popcnt": 23,
        "avx": 28, "f16c": 29,
    },
    "7.b": {
        "bmi": 3, "avx2": 5, "bmi2": 8, "avx512f": 16, "avx512dq": 17, "adx": 19, "avx512ifma": 21, "avx512cd": 28,
        "avx512bw": 30, "avx512vl": 31,
    },
    "7.c": {
        "avx512vbmi": 1, "avx512vbmi2": 6, "gfni": 8, "vaes": 9, "vpclmulqdq": 10, "avx512vnni": 11,
        "avx512bitalg": 12, "avx512vpopcntdq": 14,
    },
    "7.d": {"avx512vp2intersect": 8, "amx-bf16": 22, "avx512fp16": 23, "amx-tile": 24, "amx-int8": 25},
    "71.a": {"avxvnni": 4, "avx512bf16": 5, "avxifma": 23},
    "ex.c": {"lzcnt": 5, "sse4a": 6},
}  # fmt: skip
_KNOWN = frozenset(name for bits in _BITS.values() for name in bits)
_YMM, _ZMM, _TMM = 0x6, 0xE6, 0x60000
TILES = "amx-"
"""How the names of the features of tile registers begin."""
_MAY_USE_TILES = 'asm sideeffect "syscall", "={ax},{ax},{di},{si},~{rcx},~{r11},~{memory},~{dirflag},~{fpsr},~{flags}"'
_ASK = '"={ax},={bx},={cx},={dx},{ax},{cx},~{dirflag},~{fpsr},~{flags}"'


def told(features: frozenset[str]) -> frozenset[str]:
    """Those of some features that a CPU can be asked about."""
    return features & _KNOWN


def emit_pick(module: Module, name: str, wanted: Sequence[frozenset[str]]) -> None:
    """Add `i32 @NAME()`: the number of the first set of features that the CPU has, from 1 on, or 0 for none."""
    module.declarations[f"{name}.kept"] = f"@{name}.kept = internal global i32 -1, align 4"
    lines = [
        f"define internal i32 @{name}() #0 {{",
        "entry:",
        f"  %kept = load atomic i32, ptr @{name}.kept monotonic, align 4",
        "  %known = icmp sge i32 %kept, 0",
        "  br i1 %known, label %told, label %look",
        "told:",
        "  ret i32 %kept",
        "look:",
        f"  %found = call i32 @{name}.look()",
        f"  store atomic i32 %found, ptr @{name}.kept monotonic, align 4",
        "  ret i32 %found",
        "}",
    ]
    module.functions += ["\n".join(lines), _look(name, wanted)]


def _look(name: str, wanted: Sequence[frozenset[str]]) -> str:
    """The function that asks the CPU."""
    lines = [f"define internal i32 @{name}.look() noinline #0 {{", "entry:"]
    lines += [_cpuid("first", 0, 0), "  %first.a = extractvalue {i32, i32, i32, i32} %first, 0"]
    lines += [_cpuid("last", 0x80000000, 0), "  %last.a = extractvalue {i32, i32, i32, i32} %last, 0"]
    for key, leaf, sub, register in (*_LEAVES, _EXTENDED):
        most = "last" if leaf > 0xFFFF else "first"
        lines += [
            _cpuid(f"asked.{key}", leaf, sub),
            f"  %raw.{key} = extractvalue {{i32, i32, i32, i32}} %asked.{key}, {register}",
            f"  %there.{key} = icmp uge i32 %{most}.a, {leaf}",
            f"  %has.{key} = select i1 %there.{key}, i32 %raw.{key}, i32 0",
        ]
    lines += [
        "  %saves = and i32 %has.1.c, 134217728",
        "  %can = icmp ne i32 %saves, 0",
        "  br i1 %can, label %ask, label %choose",
        "ask:",
        '  %state = call {i32, i32} asm sideeffect "xgetbv", "={ax},={dx},{cx}"(i32 0)',
        "  %low = extractvalue {i32, i32} %state, 0",
        "  br label %choose",
        "choose:",
        "  %kept = phi i32 [0, %entry], [%low, %ask]",
        "  br label %try1",
    ]
    for number, features in enumerate(wanted, 1):
        lines.append(f"try{number}:")
        masks = [
            (f"%has.{key}", sum(1 << bit for f, bit in bits.items() if f in features)) for key, bits in _BITS.items()
        ]
        wide = _ZMM if any(f.startswith("avx512") for f in features) else _YMM if "avx" in features else 0
        tiles = any(f.startswith(TILES) for f in features)
        wide |= _TMM * tiles
        held = "true"
        for step, (place, mask) in enumerate([*masks, ("%kept", wide)]):
            if mask:
                lines += [
                    f"  %m{number}.{step} = and i32 {place}, {mask}",
                    f"  %e{number}.{step} = icmp eq i32 %m{number}.{step}, {mask}",
                    f"  %a{number}.{step} = and i1 {held}, %e{number}.{step}",
                ]
                held = f"%a{number}.{step}"
        if tiles:
            lines += [
                f"  br i1 {held}, label %tiles{number}, label %try{number + 1}",
                f"tiles{number}:",
                f"  %said{number} = call i64 {_MAY_USE_TILES}(i64 158, i64 4131, i64 18)",
                f"  %may{number} = icmp eq i64 %said{number}, 0",
            ]
            held = f"%may{number}"
        lines += [f"  br i1 {held}, label %take{number}, label %try{number + 1}"]
        lines += [f"take{number}:", f"  ret i32 {number}"]
    lines += [f"try{len(wanted) + 1}:", "  ret i32 0", "}"]
    return "\n".join(lines)


def _cpuid(result: str, leaf: int, sub: int) -> str:
    signed = leaf - (1 << 32) if leaf >> 31 else leaf
    return f'  %{result} = call {{i32, i32, i32, i32}} asm sideeffect "cpuid", {_ASK}(i32 {signed}, i32 {sub})'
