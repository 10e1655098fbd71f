"""`python -m benchmarks replay save|compare FILE`: the schedules of every operator, before and after a change.

A schedule is told by its trace, as Python. Where traces are equal, so are the kernels; the others are to be timed.
"""

from __future__ import annotations

import difflib
import json
from collections.abc import Callable, Iterator, Sequence
from fnmatch import fnmatchcase as fnmatch
from functools import partial
from pathlib import Path
from unittest.mock import patch

import click
import numpy as np

from benchmarks import own
from benchmarks.gpu.workloads import WORKLOADS as GPU_WORKLOADS
from benchmarks.gpu.workloads import Workload as GpuWorkload
from benchmarks.peers.serve import Array, Call, Given
from benchmarks.workloads import WORKLOADS, Workload
from tensorlang import topi
from tensorlang.errors import TensorlangError
from tensorlang.ir.expr import to_text
from tensorlang.target import Target
from tensorlang.te.operation import Tensor

DTYPES = ("float16", "bfloat16", "float32", "float64", "int8", "uint8", "int32", "int64")
CPUS = tuple(
    f"llvm -mcpu={cpu} -num-cores={cores}"
    for cpu in ("haswell", "skylake-avx512", "sapphirerapids")
    for cores in (1, 2)
)
GPUS = ("cuda -arch=sm_75", "cuda -arch=sm_80", "cuda -arch=sm_90a", "opencl")
SIZES: tuple[dict[str, int], ...] = (
    {"N": 5, "M": 7, "K": 3, "C": 4, "H": 6, "W": 9, "O": 8, "Q": 2, "D": 4},
    {"N": 256, "M": 384, "K": 512, "C": 64, "H": 28, "W": 28, "O": 128, "Q": 8, "D": 64},
    {"N": 4096, "M": 1000, "K": 1024, "C": 3, "H": 224, "W": 224, "O": 32, "Q": 64, "D": 128},
)
WINDOW = {"conv2d": 3, "depthwise_conv2d": 3, "conv2d_int8": 3, "conv2d_int8_packed": 3, "pack_conv2d_int8": 3}
"""Operators whose size K is that of a window."""

Schedules = dict[str, str]
Made = Callable[[], str]
"""Makes a trace, as Python."""


def library(only: str = "*") -> Schedules:
    """The traces of all operators by name: three sets of sizes, all dtypes, CPUs and GPUs. `only`: of names like it."""
    made = (*_library(), *_cpu_workloads(), *_gpu_workloads())
    return {name: make() for name, make in made if fnmatch(name, only)}


def _library() -> Iterator[tuple[str, Made]]:
    for name, operator in topi.OPERATORS.items():
        for sizes in SIZES:
            images = sizes["H"] > 100 or "H" in operator.sizes
            given = sizes | ({"N": 1} if images and "H" in operator.sizes else {})
            given |= {"K": WINDOW[name]} if name in WINDOW else {}
            shape = [given[size] for size in operator.sizes]
            for dtype in DTYPES:
                for target in (*CPUS, *GPUS):
                    yield f"{name} {shape} {dtype} {target}", partial(_trace_of, name, shape, dtype, target)


def _trace_of(name: str, shape: Sequence[int], dtype: str, target: str) -> str:
    try:
        with Target(target):
            tensors = topi.operator(name).tensors(shape, dtype)
            return _text(tensors[-1:], target)
    except TensorlangError as error:
        return f"{type(error).__name__}: {error}"


def _text(outputs: Sequence[Tensor], target: str) -> str:
    return topi.schedule(list(outputs), target, tuned=False).trace.to_python()


def _gpu_workloads() -> Iterator[tuple[str, Made]]:
    for workload in GPU_WORKLOADS:
        for target in GPUS:
            yield f"gpu {workload.name} {target}", partial(_gpu_trace, workload, target)


def _gpu_trace(workload: GpuWorkload, target: str) -> str:
    with Target(target):
        try:
            return _text(workload.program()[-1:], target)
        except TensorlangError as error:
            return f"{type(error).__name__}: {error}"


def _cpu_workloads() -> Iterator[tuple[str, Made]]:
    for workload in WORKLOADS:
        if workload.operator != "jacobi":
            for target in CPUS:
                yield f"cpu {workload.name} {target}", partial(_cpu_trace, workload, target)


def _cpu_trace(workload: Workload, target: str) -> str:
    found: list[str] = []

    def recorded(inputs: Sequence[Tensor], output: Tensor, arrays: Sequence[Array]) -> Call:
        found.append(_text([output], target))
        made = np.zeros([int(to_text(extent)) for extent in output.shape], output.dtype)
        return lambda: made

    given = Given(workload.inputs(), workload.constant, workload.all_options, 1)
    with patch.object(own, "kernel", recorded), Target(target):
        own.BUILDERS[workload.operator](given)
    return "\n".join(found)


@click.group("replay")
def replay() -> None:
    """Compare the library's schedules before and after a change."""


_ONLY = click.option(
    "--only", default="*", metavar="PATTERN", help="Schedules with names like it: 'conv2d *', '* float32 llvm*'."
)


@replay.command("save")
@click.argument("file", type=click.Path(path_type=Path))
@_ONLY
def save(file: Path, only: str) -> None:
    """Write the traces of all schedules to FILE."""
    file.write_text(json.dumps(library(only), indent=0), encoding="utf-8")


@replay.command("compare")
@click.argument("file", type=click.Path(path_type=Path, exists=True))
@click.option("--show", default=3, show_default=True, help="Differences shown in full.")
@_ONLY
def compare(file: Path, show: int, only: str) -> None:
    """Print which schedules differ from those in FILE; the exit code is 1 where one does."""
    stored: Schedules = json.loads(file.read_text(encoding="utf-8"))
    before = {name: trace for name, trace in stored.items() if fnmatch(name, only)}
    after = library(only)
    differing = [name for name in before | after if before.get(name) != after.get(name)]
    for name in differing[:show]:
        old, new = (traces.get(name, "").splitlines() for traces in (before, after))
        click.echo("\n".join(difflib.unified_diff(old, new, f"{name} before", f"{name} after", lineterm="")))
    for name in differing:
        click.echo(name)
    click.echo(f"{len(before | after) - len(differing)} schedules equal, {len(differing)} differ")
    raise SystemExit(bool(differing))
