"""What an exported kernel is, as data: its arguments, how it was made, and what was proven of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from tensorlang.ir.expr import Buffer, Const
from tensorlang.ir.stmt import Kernel
from tensorlang.runtime.arguments import Signature
from tensorlang.runtime.facts import FactCheck
from tensorlang.runtime.returning import made_by_calls
from tensorlang.schedule import Schedule
from tensorlang.target.detect import has_fma, machine_options, target_cpu
from tensorlang.target.llvm.library.build import Draft
from tensorlang.target.llvm.library.front import ABI
from tensorlang.target.llvm.storage.scratch import scratch_memory
from tensorlang.target.spec import Target
from tensorlang.te.data import NotData, to_data
from tensorlang.te.program import Program
from tensorlang.version import VERSION

FIRST_KEY = "tensorlang_abi"
"""The key that metadata begin with, by which they are found in a library."""
NETWORK = "network"
"""The key of what networks have: kernels, calls, arrays."""
REPEAT = "repeat"
"""The key of the arrays of a loop, by which it is told from a call."""


class Variant(Protocol):
    """A kernel for one target, and the schedule that it was lowered from."""

    @property
    def kernel(self) -> Kernel:
        """Its loops."""

    @property
    def target(self) -> Target:
        """The machine."""

    @property
    def schedule(self) -> Schedule:
        """What its loops were lowered from."""


def metadata(
    name: str,
    signature: Signature,
    variants: Sequence[Variant],
    threads: str,
    draft: Draft,
    facts: Sequence[FactCheck],
    left_out: Mapping[str, str],
) -> dict[str, Any]:
    """The metadata of a library, as JSON data."""
    kernel = variants[0].kernel
    return {
        FIRST_KEY: ABI,
        "name": name,
        "version": VERSION,
        "arguments": [_argument(b, b.name in kernel.outputs) for b in signature if isinstance(b, Buffer)],
        "sizes": {v.name: {"min": 0, "max": draft.limit} for v in kernel.sizes},
        "threads": threads,
        "variants": [variant_data(v) for v in variants],
        "left_out": dict(left_out),
        "externs": list(draft.externs),
        "assumes": [str(fact) for fact in facts],
        "messages": {str(code): text for code, text in draft.messages.items()},
        "program": program_data(variants[0]),
        "call": to_data((kernel.params, kernel.sizes, tuple(signature), kernel.outputs)),
        "returns": [*made_by_calls(signature, kernel.outputs, variants[0].schedule.original.inputs)],
        "tests_facts": variants[0].schedule.tests_assumptions,
        "facts": [[f.kind, f.name, f.position, f.low, f.high] for f in facts],
    }


def program_data(variant: Variant) -> dict[str, Any]:
    """The program of a kernel, before any step, by which its schedule is proven again."""
    program = variant.schedule.original
    return {"key": program.key, "text": program.text, "data": _data(program)}


def _data(program: Program) -> Any:
    """A program as data, None if it is code; then nobody can prove it from its file."""
    try:
        return to_data(program)
    except NotData:
        return None


def _argument(buffer: Buffer, written: bool) -> dict[str, Any]:
    return {"name": buffer.name, "dtype": buffer.dtype, "shape": extents(buffer), "written": written}


def extents(buffer: Buffer) -> list[int | str]:
    """The shape of an array: numbers, and expressions of sizes as text."""
    return [int(e.value) if isinstance(e, Const) else str(e) for e in buffer.shape]


def machine_data(target: Target) -> dict[str, Any]:
    """What the CPU of a target must have."""
    triple, cpu, _ = machine_options(target)
    return {
        "target": str(target),
        "machine": target.to_json(),
        "triple": triple,
        "cpu": cpu,
        "multiply_add": "fused" if has_fma(target) else "in two steps",
        "features": sorted(target_cpu(target).features),
    }


def variant_data(v: Variant) -> dict[str, Any]:
    """One instruction set: what the CPU must have, the schedule, and the verdict about it."""
    found = machine_data(v.target) | {
        "schedule": v.schedule.trace.to_python(),
        "trace": v.schedule.trace.to_json(),
        "verdict": {"legal": True, "for": "all sizes" if v.kernel.sizes else "its sizes"},
    }
    if not v.kernel.sizes:
        memory = scratch_memory(v.kernel, {}, 1)
        found["workspace"] = {"shared": memory.shared, "per_task": memory.per_thread}
    return found
