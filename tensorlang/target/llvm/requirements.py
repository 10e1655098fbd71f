"""What the CPU must have to run an intrinsic: LLVM ends the whole process when it meets one that the CPU lacks."""

from __future__ import annotations

from collections.abc import Iterator

from tensorlang.errors import TargetError
from tensorlang.ir.expr import walk
from tensorlang.ir.machine import MachineCall
from tensorlang.ir.stmt import MachineCode, stmt_exprs
from tensorlang.target.detect import target_cpu
from tensorlang.target.spec import Target

# The first row as whose texts the name of an LLVM intrinsic begins and ends; each group of features is enough.
_FEATURES: tuple[tuple[str, str, tuple[str, ...]], ...] = (
    ("llvm.x86.avx512.vpdp", "512", ("avx512vnni",)),
    ("llvm.x86.avx512.vpdp", "", ("avx512vnni avx512vl", "avxvnni")),
    ("llvm.x86.avx512bf16.", "512", ("avx512bf16",)),
    ("llvm.x86.avx512bf16.", "", ("avx512bf16 avx512vl",)),
    ("llvm.x86.avx512.vpmadd52", "512", ("avx512ifma",)),
    ("llvm.x86.avx512.", "512", ("avx512f avx512bw avx512dq",)),
    ("llvm.x86.avx512.", "", ("avx512f avx512bw avx512dq avx512vl",)),
    ("llvm.x86.avx2.", "", ("avx2",)),
    ("llvm.x86.avx.", "", ("avx",)),
    ("llvm.x86.fma.", "", ("fma",)),
    ("llvm.x86.sse42.", "", ("sse4.2",)),
    ("llvm.x86.sse41.", "", ("sse4.2",)),
    ("llvm.x86.ssse3.", "", ("sse4.2",)),
    ("llvm.x86.sse2.", "", ("",)),
    ("llvm.x86.sse.", "", ("",)),
    ("llvm.aarch64.neon.sdot", "", ("dotprod",)),
    ("llvm.aarch64.neon.udot", "", ("dotprod",)),
    ("llvm.aarch64.neon.usdot", "", ("i8mm",)),
    ("llvm.aarch64.neon.smmla", "", ("i8mm",)),
    ("llvm.aarch64.neon.ummla", "", ("i8mm",)),
    ("llvm.aarch64.neon.bf", "", ("bf16",)),
    ("llvm.aarch64.neon.", "", ("neon",)),
)
_ARCHITECTURES = {"x86": "x86_64", "aarch64": "aarch64"}


def check_requirements(code: MachineCode, target: Target) -> None:
    """Raise TargetError unless the CPU of the target has what machine code needs."""
    cpu = target_cpu(target)
    called = list(_llvm_calls(code))
    wanted = {_ARCHITECTURES[name.split(".")[1]] for name in called if name.split(".")[1] in _ARCHITECTURES}
    wanted |= {code.architecture} - {""}
    if wanted - {cpu.architecture}:
        raise TargetError(
            f"intrinsic {code.name} is for {', '.join(sorted(wanted))}, target {target} is {cpu.architecture}"
        )
    lacking = sorted(set(code.features) - cpu.features)
    lacking += [text for name in called for text in _lacking(name, code, cpu.features)]
    if lacking:
        raise TargetError(
            f"intrinsic {code.name} needs {', '.join(dict.fromkeys(lacking))}, which {cpu.name} (target {target}) does "
            "not have; name a CPU that has it (-mcpu=...) or leave out the tensorize step"
        )


def _llvm_calls(code: MachineCode) -> Iterator[str]:
    for expr in stmt_exprs(code.body):
        for node in walk(expr):
            if isinstance(node, MachineCall) and node.kind == "llvm":
                yield node.name


def _lacking(name: str, code: MachineCode, features: frozenset[str]) -> Iterator[str]:
    """What a CPU with `features` lacks to run an LLVM intrinsic; code with one that the table misses declares it."""
    if name.split(".")[1] not in _ARCHITECTURES:
        return
    for prefix, end, groups in _FEATURES:
        if name.startswith(prefix) and name.endswith(end):
            if not any(set(group.split()) <= features for group in groups):
                yield " or ".join(group.replace(" ", " and ") for group in groups)
            return
    if not code.features:
        raise TargetError(
            f"intrinsic {code.name} calls {name}, of which tensorlang does not know what the CPU must have; declare it "
            "with features=[...] of te.decl_tensor_intrin"
        )
