"""From a target text to a target: this machine's CPU, named CPUs, cores and caches."""

from __future__ import annotations

import difflib
import os
import platform
import re
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path

from tensorlang.errors import TargetError, shown
from tensorlang.runtime.threads import available_cores, default_threads
from tensorlang.target.cpus import CPUS, ONE_OF_512_BITS, Cpu
from tensorlang.target.gpus import CUDA, OPENCL
from tensorlang.target.kinds import DEFAULT_CUDA, check_kind
from tensorlang.target.spec import GpuLimits, Target

_DEFAULT_CACHES = (32768, 1048576, 33554432)
_ARCHITECTURES = {"x86_64": "x86_64", "amd64": "x86_64", "aarch64": "aarch64", "arm64": "aarch64"} | {
    name: name for name in ("riscv64", "wasm32")
}
_FOREIGN_TRIPLE = {
    "x86_64": "x86_64-unknown-linux-gnu",
    "aarch64": "aarch64-unknown-linux-gnu",
    "riscv64": "riscv64-unknown-linux-gnu",
    "wasm32": "wasm32-unknown-unknown",
}
_ALWAYS_FUSED = ("aarch64", "riscv64")
BASE = {"x86_64": "x86-64", "aarch64": "generic", "riscv64": "rv64gcv", "wasm32": "wasm32-simd128"}
_MANY_REGISTERS = ("aarch64", "riscv64")
_BLOCK = ("-max_num_threads", "-max_shared_memory_per_block")
THIS_MACHINE = "llvm"
"""The text of the target that is this machine's CPU."""


def parse(text: str | Target | None = None) -> Target:
    """Return the target that a text names.

    `"llvm"` is this machine, None the target in use (`with target:`), else this machine. `-mcpu=NAME` takes another
    CPU, `-mattr=+a,-b` changes its features, `-mtriple=TRIPLE` another system, `-num-cores=N` the threads of a parallel
    loop (default: TENSORLANG_NUM_THREADS, else the CPUs this process may use, at most OMP_NUM_THREADS of them).
    `"cuda"` and `"opencl"` are GPUs: `-arch=sm_90a` names the architecture to compile for, `-device=TEXT` the device by
    a part of its name, and `-max_num_threads=N` and `-max_shared_memory_per_block=BYTES` lower what a block may use;
    they set it for the interpreter, whose blocks have 1024 threads and 48 KB otherwise.
    TargetError names what is wrong.
    """
    if text is None:
        text = Target.current() or THIS_MACHINE
    if isinstance(text, Target):
        return text
    if not isinstance(text, str):
        raise TargetError(f"a target is text, as in 'llvm -mcpu=haswell', got {shown(text)}")
    try:
        words = shlex.split(text)
    except ValueError as error:
        raise TargetError(f"a target is words as of a command line, got {shown(text)}: {error}") from error
    if not words:
        raise TargetError("an empty target; write for instance 'llvm' or 'llvm -mcpu=haswell'")
    kind = words[0]
    check_kind(kind)
    taken, target_of = _TEXTS[kind]
    return target_of(_options(kind, taken, words[1:]))


@cache
def host_cpu() -> Cpu:
    """This machine's CPU, as LLVM reports it."""
    from tensorlang.target.llvm.host import this_cpu

    name, features = this_cpu()
    return Cpu(name, _host_architecture(), features)


@cache
def target_cpu(target: Target) -> Cpu:
    """The CPU of an llvm target, with the features that its text adds and removes."""
    cpu = _named(target.cpu) if target.cpu else host_cpu()
    return replace(cpu, features=_changed(cpu.features, target.features))


@cache
def has_fma(target: Target) -> bool:
    """Whether the CPU of an llvm target multiplies and adds in one instruction that rounds once."""
    cpu = target_cpu(target)
    return cpu.architecture in _ALWAYS_FUSED or bool(cpu.features & {"fma", "avx512f"})


@cache
def multiply_adds(target: Target) -> int:
    """Multiply-adds of its widest vectors that a core of an llvm target begins in a cycle."""
    return 1 if target.vector_bytes == 64 and target_cpu(target).name in ONE_OF_512_BITS else 2


def runs_here(target: Target) -> bool:
    """Whether this machine can execute code compiled for an llvm target."""
    cpu, here = target_cpu(target), host_cpu()
    return cpu.architecture == here.architecture and cpu.features <= here.features


def machine_options(target: Target) -> tuple[str, str, str]:
    """Return triple (empty: this process's), CPU and feature changes of an llvm target, as LLVM takes them."""
    host = host_cpu()
    if target.cpu in ("", host.name) and not target.triple:
        own = ",".join(f"+{f}" for f in sorted(host.features))
        return "", host.name, f"{own},{target.features}" if target.features else own
    cpu = CPUS.get(target.cpu)
    if cpu is None or not cpu.llvm:
        return target.triple, target.cpu, target.features
    own = ",".join(f"+{f}" for f in sorted(cpu.features))
    return target.triple, cpu.llvm, f"{own},{target.features}" if target.features else own


@cache
def cache_sizes() -> tuple[int, ...]:
    """Bytes of the data caches of the first CPU, L1 first; usual sizes where the system does not tell."""
    sizes: dict[int, int] = {}
    for index in sorted(Path("/sys/devices/system/cpu/cpu0/cache").glob("index*")):
        try:
            kind, level, size = ((index / f).read_text().strip() for f in ("type", "level", "size"))
        except OSError:
            continue
        amount = re.fullmatch(r"(\d+)([KMG]?)", size)
        if kind != "Instruction" and amount:
            sizes[int(level)] = int(amount[1]) << {"": 0, "K": 10, "M": 20, "G": 30}[amount[2]]
    return tuple(sizes[level] for level in sorted(sizes)) or _DEFAULT_CACHES


def physical_cores() -> int:
    """The cores that this process may use; two CPUs may be threads of one. As many as CPUs, where nobody tells."""
    places: set[str] = set()
    for cpu in os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else ():
        topology = Path(f"/sys/devices/system/cpu/cpu{cpu}/topology")
        try:
            places.add(" ".join((topology / name).read_text() for name in ("physical_package_id", "core_id")))
        except OSError:
            return available_cores()
    return len(places) or available_cores()


def cpu_model() -> str:
    """The name of this machine's CPU as the system spells it; empty where it does not tell."""
    try:
        found = re.search(r"^model name\s*:\s*(.+)$", Path("/proc/cpuinfo").read_text(errors="replace"), re.MULTILINE)
    except OSError:
        found = None
    return found[1].strip() if found else platform.processor()


def _llvm(options: dict[str, str]) -> Target:
    triple, features = options.get("-mtriple", ""), options.get("-mattr", "")
    if triple:
        architecture = _ARCHITECTURES.get(triple.split("-")[0])
        if architecture is None:
            raise TargetError(f"-mtriple={triple}: tensorlang generates code for {', '.join(_FOREIGN_TRIPLE)}")
        cpu = _named(options.get("-mcpu", BASE[architecture]))
        if cpu.name != "generic" and cpu.architecture != architecture:
            raise TargetError(f"-mcpu={cpu.name} is an {cpu.architecture} CPU, -mtriple={triple} is {architecture}")
    else:
        cpu = _named(options["-mcpu"]) if "-mcpu" in options else host_cpu()
        architecture = cpu.architecture
        if architecture != _host_architecture():
            triple = _FOREIGN_TRIPLE[architecture]
    _check_features(features, architecture)
    have = _changed(cpu.features, features)
    wide = 64 if "avx512f" in have else 32 if "avx2" in have else 16
    registers = 32 if "avx512f" in have or architecture in _MANY_REGISTERS else 16
    cores = _cores(options)
    return Target("llvm", triple, cpu.name, features, wide, registers, cores, cache_sizes())


def _interpreter(options: dict[str, str]) -> Target:
    return Target("interpreter", cores=_cores(options), gpu=_limited(GpuLimits(), options))


def _cuda(options: dict[str, str]) -> Target:
    """A GPU by its architecture; that of this machine, or of the arrays, where none is given."""
    name = options.get("-arch", "")
    if name and name not in CUDA:
        near = difflib.get_close_matches(name, CUDA, n=2)
        hint = f"; did you mean {' or '.join(near)}?" if near else ""
        raise TargetError(f"unknown architecture -arch={name}; known: {', '.join(CUDA)}{hint}")
    return Target("cuda", cpu=name, gpu=_limited(CUDA[name or DEFAULT_CUDA], options))


def _opencl(options: dict[str, str]) -> Target:
    """A device by a part of its name."""
    return Target("opencl", cpu=options.get("-device", ""), gpu=_limited(OPENCL, options))


_TEXTS: Mapping[str, tuple[Sequence[str], Callable[[dict[str, str]], Target]]] = {
    "llvm": (("-mcpu", "-mattr", "-mtriple", "-num-cores"), _llvm),
    "interpreter": (("-num-cores", *_BLOCK), _interpreter),
    "cuda": (("-arch", *_BLOCK), _cuda),
    "opencl": (("-device", *_BLOCK), _opencl),
}
"""The options that a kind of target takes, and what makes a target of them."""


def _limited(limits: GpuLimits, options: dict[str, str]) -> GpuLimits:
    threads, shared = (_limit(options, n, m) for n, m in zip(_BLOCK, (limits.max_threads, limits.shared_bytes)))
    return replace(limits, max_threads=threads, shared_bytes=shared)


def _limit(options: dict[str, str], name: str, otherwise: int) -> int:
    text = options.get(name)
    if text is None:
        return otherwise
    if not text.isdecimal() or int(text) < 1:
        raise TargetError(f"{name}={text}: expected a whole number of at least 1")
    return int(text)


_WITHOUT_EFFECT = ("-device", "-keys", "-libs", "-link-params", "-model", "-opt-level", "-runtime", "-system-lib")
"""Options of classic targets that choose among TVM's schedules and runtimes, of which there is one here."""


def _options(kind: str, known: Sequence[str], words: list[str]) -> dict[str, str]:
    found: dict[str, str] = {}
    for word in words:
        name, equals, value = word.partition("=")
        if name in _WITHOUT_EFFECT and name not in known:
            continue
        if name not in known:
            near = difflib.get_close_matches(name, known, n=1)
            hint = f"; did you mean {near[0]}?" if near else ""
            raise TargetError(f"unknown target option {word!r}; target {kind} takes {', '.join(known)}{hint}")
        if not equals or not value:
            raise TargetError(f"target option {name} needs a value: {name}=...")
        found[name] = value
    return found


def _cores(options: dict[str, str]) -> int:
    text = options.get("-num-cores")
    if text is None:
        return default_threads()
    if not text.isdecimal() or int(text) < 1:
        raise TargetError(f"-num-cores={text}: expected a whole number of at least 1")
    return int(text)


def _host_architecture() -> str:
    machine = platform.machine().lower()
    if machine not in _ARCHITECTURES:
        raise TargetError(f"this machine is {machine}; tensorlang generates code for {', '.join(_FOREIGN_TRIPLE)}")
    return _ARCHITECTURES[machine]


def _named(name: str) -> Cpu:
    if name == host_cpu().name:
        return host_cpu()
    if name in CPUS:
        return CPUS[name]
    near = difflib.get_close_matches(name, CPUS, n=3)
    hint = f"did you mean {' or '.join(near)}?" if near else f"known: {', '.join(CPUS)}"
    raise TargetError(f"unknown CPU -mcpu={name}; {hint}")


def _check_features(text: str, architecture: str) -> None:
    """Refuse what LLVM would ignore; the features of other architectures are not known here."""
    for word in filter(None, text.split(",")):
        if not re.fullmatch(r"[+-][a-z0-9.\-]+", word):
            raise TargetError(f"-mattr={text}: expected +feature or -feature, separated by commas, got {word!r}")
        if architecture == _host_architecture() and word[1:] not in _known_features():
            near = difflib.get_close_matches(word[1:], _known_features(), n=1)
            hint = f"; did you mean {word[0]}{near[0]}?" if near else ""
            raise TargetError(f"-mattr={text}: {architecture} has no feature {word[1:]!r}{hint}")


@cache
def _known_features() -> frozenset[str]:
    from tensorlang.target.llvm.engine import known_features

    return known_features()


def _changed(features: frozenset[str], text: str) -> frozenset[str]:
    words = [w for w in text.split(",") if w]
    return (features | {w[1:] for w in words if w[0] == "+"}) - {w[1:] for w in words if w[0] == "-"}
