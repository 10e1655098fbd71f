"""What this machine can do at most, measured with micro-kernels of our own."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache
from time import perf_counter

import numpy as np

from tensorlang.errors import ArgumentError
from tensorlang.runtime.arrays import Array, address
from tensorlang.target.detect import machine_options, parse
from tensorlang.target.llvm import engine
from tensorlang.target.spec import Target

_SECONDS = 0.04
"""Time given to each measurement."""
_SAMPLE = 0.002
"""Least time of a sample, so that starting the threads does not count."""
_CHAINS = 12
"""Independent accumulators: more than latency times throughput of any vector unit."""
_MEMORY_FACTOR = 3
"""Reads from memory go over an array this many times as large as the last cache."""


@dataclass(frozen=True, slots=True)
class _Probes:
    """Micro-kernels of (address, rounds, sweeps).

    Every round is `_CHAINS` vector multiply-adds, or as many loads; every sweep reads the same `rounds` rounds.
    """

    multiply: Callable[[int, int, int], None]
    read: Callable[[int, int, int], None]
    library: engine.Library


def measure(threads: int = 1) -> dict[str, float]:
    """Measure `gflops` (float32 fused multiply-add) and reads (`l2_gbs`, `last_cache_gbs`, `memory_gbs`) on `threads`.

    All threads together, the best of several samples; about 0.2 s.
    """
    if threads < 1:
        raise ArgumentError(f"threads must be at least 1, got {threads}")
    target = parse(None)
    probes = _probes(target)
    lanes, round_bytes = target.lanes(32), _CHAINS * target.vector_bytes
    l2 = target.caches[min(1, len(target.caches) - 1)] // 2
    last = target.caches[-1] // 2 // threads
    memory = _MEMORY_FACTOR * target.caches[-1] // threads
    with ThreadPoolExecutor(threads) as pool:

        def rate(work: Callable[[int], object], amount: float) -> float:
            return _best_rate(pool, threads, work, amount)

        rounds = int(_SAMPLE * 4e9 / _CHAINS * 2)
        gflops = rate(lambda _: probes.multiply(0, rounds, 1), 2.0 * _CHAINS * lanes * rounds)
        return {
            "gflops": gflops,
            "l2_gbs": _read_rate(probes, rate, [_memory(l2) for _ in range(threads)], round_bytes),
            "last_cache_gbs": _read_rate(probes, rate, [_memory(last) for _ in range(threads)], round_bytes),
            "memory_gbs": _read_rate(probes, rate, [_memory(memory) for _ in range(threads)], round_bytes),
        }


def _read_rate(
    probes: _Probes,
    rate: Callable[[Callable[[int], object], float], float],
    arrays: list[Array],
    round_bytes: int,
) -> float:
    rounds = arrays[0].nbytes // round_bytes
    sweeps = max(1, int(_SAMPLE * 200e9 / arrays[0].nbytes))
    addresses = [address(a) for a in arrays]
    return rate(lambda t: probes.read(addresses[t], rounds, sweeps), float(sweeps * rounds * round_bytes))


def _best_rate(pool: ThreadPoolExecutor, threads: int, work: Callable[[int], object], amount: float) -> float:
    """The best of several samples, in units of 1e9 a second, all threads together."""
    best, deadline = 0.0, perf_counter() + _SECONDS
    while True:
        start = perf_counter()
        list(pool.map(work, range(threads)))
        end = perf_counter()
        best = max(best, amount * threads / (end - start) / 1e9)
        if end > deadline:
            return best


def _memory(size: int) -> Array:
    """Touched memory of `size` bytes, at a cache line."""
    block = np.ones(size + 64, np.uint8)
    start = -address(block) % 64
    return block[start : start + size]


@cache
def _probes(target: Target) -> _Probes:
    lanes = target.lanes(32)
    text = (
        _multiply_text(lanes)
        + _read_text(lanes)
        + f'attributes #0 = {{ nounwind "prefer-vector-width"="{32 * lanes}" }}'
    )
    machine = engine.Machine(*machine_options(target))
    library = engine.load(engine.compile_object(text, machine), ["multiply", "read"], {})
    signature = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)
    return _Probes(signature(library.addresses["multiply"]), signature(library.addresses["read"]), library)


def _multiply_text(lanes: int) -> str:
    """Chains of x = x * x + 1, which are never denormal."""
    vector = f"<{lanes} x float>"
    step = f"call {vector} @llvm.fma.v{lanes}f32({vector} {{x}}, {vector} {{x}}, {vector} splat (float 1.0))"
    body = [f"  %n{c} = {step.format(x=f'%x{c}')}" for c in range(_CHAINS)]
    function = _loop("multiply", vector, body)
    return function + f"declare {vector} @llvm.fma.v{lanes}f32({vector}, {vector}, {vector})\n"


def _read_text(lanes: int) -> str:
    """Every load is added to an accumulator of its own."""
    vector, body = f"<{lanes} x float>", list[str]()
    for c in range(_CHAINS):
        body += [
            f"  %o{c} = mul i64 %j, {_CHAINS}",
            f"  %k{c} = add i64 %o{c}, {c}",
            f"  %p{c} = getelementptr {vector}, ptr %address, i64 %k{c}",
            f"  %l{c} = load {vector}, ptr %p{c}, align 4",
            f"  %n{c} = fadd {vector} %x{c}, %l{c}",
        ]
    return _loop("read", vector, body)


def _loop(name: str, vector: str, body: list[str]) -> str:
    """A function that repeats `body` on accumulators %x, made into %n, and keeps the results from being removed.

    %j counts the rounds of a sweep.
    """
    accumulators = [f"  %x{c} = phi {vector} [zeroinitializer, %entry], [%n{c}, %loop]" for c in range(_CHAINS)]
    keep = [f"  store volatile {vector} %n{c}, ptr %keep" for c in range(_CHAINS)]
    return f"""
define void @{name}(ptr %address, i64 %rounds, i64 %sweeps) #0 {{
entry:
  %keep = alloca {vector}
  %total = mul i64 %rounds, %sweeps
  br label %loop
loop:
  %i = phi i64 [0, %entry], [%i1, %loop]
  %j = phi i64 [0, %entry], [%j2, %loop]
{chr(10).join(accumulators)}
{chr(10).join(body)}
  %j1 = add i64 %j, 1
  %wrap = icmp eq i64 %j1, %rounds
  %j2 = select i1 %wrap, i64 0, i64 %j1
  %i1 = add i64 %i, 1
  %more = icmp slt i64 %i1, %total
  br i1 %more, label %loop, label %end
end:
{chr(10).join(keep)}
  ret void
}}
"""
