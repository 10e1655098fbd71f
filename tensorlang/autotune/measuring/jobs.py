"""What worker processes do: build a candidate, run a built one, compare the winner with NumPy.

Jobs and their results are plain data. Candidates travel as trace JSON, built kernels as loop IR; the machine
code passes through the disk cache that builder and runner share.
"""

from __future__ import annotations

import os
import pickle
import statistics
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from tensorlang import dtypes, topi
from tensorlang.autotune.measuring.timing import Timing, raised_priority, sample, time_interleaved, time_kernel
from tensorlang.autotune.records.record import Status
from tensorlang.autotune.task import extent
from tensorlang.driver import build, lower
from tensorlang.schedule import Trace, create_schedule
from tensorlang.target.backend import backend
from tensorlang.target.spec import Target
from tensorlang.te.operation import PlaceholderOp, Tensor
from tensorlang.te.program import canonical
from tensorlang.te.reference import evaluate

Array = npt.NDArray[Any]

TIME_SLICE = 3e-3  # a sample longer than this is likely to meet another process


@dataclass(frozen=True, slots=True)
class BuildJob:
    """A candidate: its tensors (pickled), its trace as JSON data, and the target."""

    tensors: bytes
    trace: Any
    target: Target


@dataclass(frozen=True, slots=True)
class RunJob:
    """A built kernel (pickled), the file of its arrays, and the time to beat in seconds."""

    kernel: bytes
    target: Target
    arrays: str
    best: float | None


@dataclass(frozen=True, slots=True)
class Arrays:
    """Seeded inputs, the outputs that they must give, and how far from them is still right."""

    inputs: tuple[Array, ...]
    outputs: tuple[Array, ...]
    rtol: float
    atol: float


@dataclass(frozen=True, slots=True)
class RunResult:
    """How a run ended: ok, noisy or wrong-answer."""

    status: Status
    timing: Timing
    error: str = ""


def output_tensors(tensors: tuple[Tensor, ...]) -> list[Tensor]:
    """The tensors of a kernel that it computes."""
    return [t for t in tensors if not isinstance(t.op, PlaceholderOp)]


def build_candidate(job: BuildJob) -> bytes:
    """Replay the trace, prove its final state legal, lower it, compile it into the cache; return the loop IR."""
    tensors: tuple[Tensor, ...] = pickle.loads(job.tensors)
    schedule = Trace.from_json(job.trace).apply(create_schedule([t.op for t in output_tensors(tensors)]), check="final")
    kernel = lower(schedule, list(tensors), target=job.target).kernel
    backend(job.target.kind).compile(kernel, job.target)
    return pickle.dumps(kernel)


@lru_cache(maxsize=1)
def _load_arrays(path: str) -> Arrays:
    arrays: Arrays = pickle.loads(Path(path).read_bytes())
    return arrays


def run_candidate(job: RunJob) -> RunResult:
    """Run a built kernel: check its outputs, then time it."""
    call = backend(job.target.kind).compile(pickle.loads(job.kernel), job.target)
    arrays = _load_arrays(job.arrays)
    outputs = [np.empty_like(o) for o in arrays.outputs]
    call(*arrays.inputs, *outputs)
    wrong = difference(arrays, outputs)
    if wrong:
        return RunResult(Status.WRONG_ANSWER, Timing(()), wrong)
    return time_call(lambda: call(*arrays.inputs, *outputs), job.best)


def time_call(call: Callable[[], object], best: float | None) -> RunResult:
    """Time a call; when the system disturbs it too often, again with priority, and then give up as noisy."""
    timing = time_kernel(call, best)
    if timing.noisy and sample(call, 1)[0] > TIME_SLICE:
        with raised_priority():
            timing = time_kernel(call, best)
    if timing.noisy:
        return RunResult(Status.NOISY, timing, f"{timing.rejected} samples waited for a CPU; is the machine busy?")
    return RunResult(Status.OK, timing)


def difference(arrays: Arrays, outputs: list[Array]) -> str:
    """The worst wrong element as text; empty when all are within tolerance."""
    for n, (got, wanted) in enumerate(zip(outputs, arrays.outputs, strict=True)):
        exact = wanted.dtype.kind in "biu"
        x, y = (got, wanted) if exact else (got.astype(np.float64), wanted.astype(np.float64))
        good = x == y if exact else np.isclose(x, y, arrays.rtol, arrays.atol, equal_nan=True)
        if not good.all():
            index = np.unravel_index(int(np.argmin(good)), good.shape)
            place = ", ".join(map(str, map(int, index)))
            count = f"{good.size - int(good.sum())} of {good.size}"
            return f"output {n} differs at {count} elements; at [{place}] {got[index]} instead of {wanted[index]}"
    return ""


def run_unscheduled(tensors: bytes, target: Target, inputs: tuple[Array, ...]) -> tuple[Array, ...]:
    """Outputs of the program with no schedule at all, compiled: the reference of programs too large for NumPy."""
    args: tuple[Tensor, ...] = pickle.loads(tensors)
    made = output_tensors(args)
    outputs = tuple(np.empty([extent(n) for n in t.shape], dtypes.info(t.dtype).numpy) for t in made)
    build(create_schedule([t.op for t in made]), list(args), target)(*inputs, *outputs)
    return outputs


@dataclass(frozen=True, slots=True)
class CompareJob:
    """The winner against NumPy: `operator` names its competitor (empty: the reference evaluation)."""

    build: BuildJob
    arrays: str
    operator: str
    rounds: int = 30
    seconds: float = 6.0


@dataclass(frozen=True, slots=True)
class Comparison:
    """Seconds of every undisturbed repeat, taken in turn in one run."""

    tensorlang: tuple[float, ...]
    numpy: tuple[float, ...]
    competitor: str

    @property
    def speedup(self) -> float:
        """How many times faster the winner is, by medians."""
        return statistics.median(self.numpy) / statistics.median(self.tensorlang)


def compare_with_numpy(job: CompareJob) -> Comparison:
    """Time the candidate and NumPy on the same inputs, interleaved."""
    kernel = pickle.loads(build_candidate(job.build))
    call = backend(job.build.target.kind).compile(kernel, job.build.target)
    arrays = _load_arrays(job.arrays)
    ours, theirs = ([np.empty_like(o) for o in arrays.outputs] for _ in range(2))
    if job.operator in topi.OPERATORS:
        numpy_call = topi.OPERATORS[job.operator].numpy
        calls: list[Callable[[], object]] = [lambda: numpy_call(*arrays.inputs, *theirs)]
        chosen = os.environ.get("OPENBLAS_CORETYPE")
        competitor = f"NumPy ({chosen} kernels)" if chosen else "NumPy"
    else:
        program, _ = canonical(output_tensors(pickle.loads(job.build.tensors)))
        calls = [lambda: evaluate(program, arrays.inputs)]
        competitor = "NumPy reference evaluation"
    calls.insert(0, lambda: call(*arrays.inputs, *ours))
    for each in calls:
        each()
    with raised_priority():
        mine, other = time_interleaved(calls, job.rounds, job.seconds)
    return Comparison(tuple(mine), tuple(other), competitor)
