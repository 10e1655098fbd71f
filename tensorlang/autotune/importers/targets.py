"""Targets of TVM, as tensorlang knows them."""

from __future__ import annotations

import shlex

from tensorlang.errors import RecordError, TargetError, shown
from tensorlang.target import parse
from tensorlang.target.spec import GpuLimits, Target

_GPUS = ("cuda", "rocm", "opencl", "metal", "vulkan", "nvptx", "webgpu")
_FAMILIES = {
    "core-avx2": "haswell",
    "core-avx-i": "ivybridge",
    "corei7-avx": "sandybridge",
    "corei7": "nehalem",
}
"""Names of CPUs that LLVM gave up -> what it calls them now."""
_LONGEST = 9  # digits of a number that counts anything


def target_of(text: str, cores: int | None = None) -> Target:
    """The target that a text of TVM names, to keep with a record.

    The CPU, its features, the system and the cores count; keys, libraries and the like do not. A CPU that the text
    leaves out is the baseline that LLVM takes. `cores` are those that the log tells apart from the target; one where
    nobody tells. A machine that tensorlang does not compile for is kept by its names.
    """
    try:
        words = shlex.split(text)
    except ValueError as error:
        raise RecordError(f"its target is no text that names one: {shown(text)}") from error
    kind = words[0] if words else "llvm"
    options = {name: value for name, _, value in (word.partition("=") for word in words[1:])}
    team = _number(options.get("-num-cores", ""), cores or 1)
    if kind in _GPUS:
        limits = GpuLimits(
            _number(options.get("-max_num_threads", ""), 1024),
            _number(options.get("-max_shared_memory_per_block", ""), 49152),
            _number(options.get("-thread_warp_size", ""), 32),
        )
        return Target(kind, cpu=options.get("-arch", options.get("-model", "")), cores=team, gpu=limits)
    triple = options.get("-mtriple", options.get("-target", ""))
    cpu = options.get("-mcpu", "" if triple else "x86-64")
    named = {"-mtriple": triple, "-mcpu": _FAMILIES.get(cpu, cpu), "-mattr": options.get("-mattr", "")}
    given = " ".join(f"{name}={value}" for name, value in named.items() if value)
    try:
        return parse(f"{kind} {given} -num-cores={team}")
    except TargetError:
        return Target(kind, triple, cpu, named["-mattr"], cores=team)


def _number(text: str, otherwise: int) -> int:
    return int(text) if text.isdecimal() and len(text) <= _LONGEST and int(text) else otherwise
