"""Micro-kernels that do one thing as often as a core can: steps of a clock, vector instructions, reads of memory."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator, Mapping
from functools import cache

from tensorlang.dataclass import dataclass
from tensorlang.runtime.cache import cached
from tensorlang.target.detect import machine_options, target_cpu
from tensorlang.target.llvm import engine
from tensorlang.target.llvm.host import Machine, fingerprint
from tensorlang.target.llvm.image import Library
from tensorlang.target.rates import CLOCK
from tensorlang.target.spec import Target

_LONGEST_CHAIN = 24
"""Additions of the clock in a round, without the first."""

Run = Callable[[int, int, int], None]
"""A probe of (address, rounds, sweeps): every sweep does, or reads, the same rounds."""


@dataclass(frozen=True, slots=True)
class Probe:
    """A function of LLVM: `chains` results of type `vector`, each made from its last one by `step` in every round.

    `step` stands for instructions on %x{c} that make %n{c}; `declares` what it calls. `steps` are done in a round.
    """

    name: str
    vector: str
    step: str
    chains: int
    declares: str = ""
    steps: int = 1

    @property
    def operations(self) -> int:
        """Instructions that are counted, in a round."""
        return self.chains * self.steps


@dataclass(frozen=True, slots=True)
class Probes:
    """The probes of a target, compiled: by name what runs them, and how many operations a round has."""

    runs: Mapping[str, Run]
    operations: Mapping[str, int]
    library: Library
    """What holds their code."""


def probes_of(target: Target) -> Iterator[Probe]:
    """What is measured of the cores of a target; each name says the operation and the vector that it works on."""
    chains = 12 if target.vector_registers <= 16 else 20  # more than latency times throughput of any unit
    widths = [wide for wide in (16, 32, 64) if wide <= target.vector_bytes]
    yield _clock()
    for kind, bits in (("float", 32), ("double", 64)):
        yield from (_multiply(kind, bits, 8 * wide // bits, chains) for wide in widths)
    yield from (_dot(*row, chains) for row in _DOTS if row[1] in target_cpu(target).features)
    yield from (_load(wide // 4, chains) for wide in widths)


def _clock() -> Probe:
    """Additions of which each waits for the last one, between which nothing can be simplified: one takes a cycle."""
    steps = [f"  %c{k + 1} = {('add', 'xor')[k % 2]} i64 %c{k}, %sweeps" for k in range(_LONGEST_CHAIN)]
    whole = ["  %c0 = add i64 %x{c}, %sweeps", *steps[:-1], f"  %n{{c}} = xor i64 %c{_LONGEST_CHAIN - 1}, %sweeps"]
    return Probe(CLOCK, "i64", "\n".join(whole), 1, steps=len(whole))


def _multiply(kind: str, bits: int, lanes: int, chains: int) -> Probe:
    """Chains of x = x * x + 1, which are never denormal."""
    vector, name = f"<{lanes} x {kind}>", f"llvm.fma.v{lanes}f{bits}"
    step = f"  %n{{c}} = call {vector} @{name}({vector} %x{{c}}, {vector} %x{{c}}, {vector} splat ({kind} 1.0))"
    return Probe(
        f"fma float{bits}x{lanes}", vector, step, chains, f"declare {vector} @{name}({vector}, {vector}, {vector})"
    )


def _dot(name: str, feature: str, called: str, sums: str, operands: str, one: str, chains: int) -> Probe:
    """Short dot products of narrow numbers."""
    ones = f"{operands} splat ({one})"
    step = f"  %n{{c}} = call {sums} @{called}({sums} %x{{c}}, {ones}, {ones})"
    return Probe(name, sums, step, chains, f"declare {sums} @{called}({sums}, {operands}, {operands})")


_DOTS = (
    ("dot int8x64", "avx512vnni", "llvm.x86.avx512.vpdpbusd.512", "<16 x i32>", "<16 x i32>", "i32 1"),
    ("dot int8x32", "avxvnni", "llvm.x86.avx512.vpdpbusd.256", "<8 x i32>", "<8 x i32>", "i32 1"),
    (
        "dot bfloat16x32",
        "avx512bf16",
        "llvm.x86.avx512bf16.dpbf16ps.512",
        "<16 x float>",
        "<32 x bfloat>",
        "bfloat 1.0",
    ),
    ("dot int8x16", "dotprod", "llvm.aarch64.neon.sdot.v4i32.v16i8", "<4 x i32>", "<16 x i8>", "i8 1"),
    ("dot bfloat16x8", "bf16", "llvm.aarch64.neon.bfdot.v4f32.v8bf16", "<4 x float>", "<8 x bfloat>", "bfloat 1.0"),
)
"""What is measured, the feature that it needs, LLVM's name, and the types of its sums and of its operands, and 1."""


def _load(lanes: int, chains: int) -> Probe:
    """Vectors, one behind the other; of what units combine them, xor has the most."""
    vector = f"<{lanes} x i32>"
    step = (
        f"  %o{{c}} = mul i64 %j, {chains}\n  %k{{c}} = add i64 %o{{c}}, {{c}}\n"
        f"  %p{{c}} = getelementptr {vector}, ptr %address, i64 %k{{c}}\n"
        f"  %l{{c}} = load {vector}, ptr %p{{c}}, align 4\n  %n{{c}} = xor {vector} %x{{c}}, %l{{c}}"
    )
    return Probe(f"load float32x{lanes}", vector, step, chains)


def source(target: Target) -> tuple[list[Probe], str]:
    """The probes of a target, and their functions as text of LLVM."""
    probes = list(probes_of(target))
    text = "".join(map(_function, probes, range(len(probes)))) + "\n".join(sorted({p.declares for p in probes}))
    attributes = f'attributes #0 = {{ nounwind "prefer-vector-width"="{8 * target.vector_bytes}" }}'
    # Two rounds in one may be read side by side, and hardware that reads ahead sees no stream in that.
    kept = '!0 = distinct !{!0, !1}\n!1 = !{!"llvm.loop.unroll.disable"}'
    return probes, f"{text}\n{attributes}\n{kept}\n"


@cache
def compiled(target: Target) -> Probes:
    """The probes of this machine, by its target."""
    probes, text = source(target)
    machine = Machine(*machine_options(target))
    symbols = [_symbol(n) for n in range(len(probes))]
    library = cached(
        ("probes", text, fingerprint(machine)),
        lambda: engine.compile_object(text, machine),
        lambda code: engine.load(code, symbols, {}),
    )
    signature = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)
    runs = {p.name: signature(library.addresses[symbol]) for p, symbol in zip(probes, symbols, strict=True)}
    return Probes(runs, {p.name: p.operations for p in probes}, library)


def _symbol(number: int) -> str:
    return f"probe{number}"


def _function(probe: Probe, number: int) -> str:
    """A function that repeats the steps on accumulators, and keeps the results from being removed.

    %j counts the rounds of a sweep.
    """
    vector, places = probe.vector, range(probe.chains)
    accumulators = [f"  %x{c} = phi {vector} [zeroinitializer, %entry], [%n{c}, %loop]" for c in places]
    keep = [f"  store volatile {vector} %n{c}, ptr %keep" for c in places]
    return f"""
define void @{_symbol(number)}(ptr %address, i64 %rounds, i64 %sweeps) #0 {{
entry:
  %keep = alloca {vector}
  %total = mul i64 %rounds, %sweeps
  br label %loop
loop:
  %i = phi i64 [0, %entry], [%i1, %loop]
  %j = phi i64 [0, %entry], [%j2, %loop]
{chr(10).join(accumulators)}
{chr(10).join(probe.step.replace("{c}", str(c)) for c in places)}
  %j1 = add i64 %j, 1
  %wrap = icmp eq i64 %j1, %rounds
  %j2 = select i1 %wrap, i64 0, i64 %j1
  %i1 = add i64 %i, 1
  %more = icmp slt i64 %i1, %total
  br i1 %more, label %loop, label %end, !llvm.loop !0
end:
{chr(10).join(keep)}
  ret void
}}
"""
