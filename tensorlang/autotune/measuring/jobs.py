"""What worker processes do: build a candidate, run a built one, compare the winner with NumPy.

Jobs and their results are plain data. Candidates travel as trace JSON, built kernels as machine code with what it
takes to load it.
"""

from __future__ import annotations

import os
import pickle
import statistics
import time
from collections.abc import Callable, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from tensorlang import config, dtypes, topi
from tensorlang.autotune.devices import is_device, timed_device
from tensorlang.autotune.measuring.arrays import Arguments, Array, Arrays, difference
from tensorlang.autotune.measuring.device import DeviceArguments, device_clock
from tensorlang.autotune.measuring.flushing import cache_flusher
from tensorlang.autotune.measuring.timing import (
    MOST_REJECTED,
    Take,
    Timing,
    raised_priority,
    sample,
    time_interleaved,
    time_kernel,
)
from tensorlang.autotune.records.record import Status
from tensorlang.autotune.task import arguments_of, extent, places_of
from tensorlang.dataclass import dataclass
from tensorlang.driver import build, lower
from tensorlang.runtime.executable import Executable
from tensorlang.schedule import Trace, create_schedule
from tensorlang.target import Rates, measure_rates
from tensorlang.target.backend import backend
from tensorlang.target.spec import Target
from tensorlang.te.operation import PlaceholderOp, Tensor
from tensorlang.te.program import Program, canonical
from tensorlang.te.reference import evaluate
from tensorlang.te.tensor_intrin import declare, find_intrin, own_names

TIME_SLICE = 3e-3  # a sample longer than this is likely to meet another process
PATIENCE = 5  # disturbed samples of a long call, before it gets priority
HOPELESS, LONG_ENOUGH = 3.0, 5e-3  # a first run over both is measurement enough: times the best, and seconds


@dataclass(frozen=True, slots=True)
class BuildJob:
    """A candidate: its tensors (pickled), its trace as JSON data, and the target.

    `intrinsics` (pickled): those that the trace names, and that a new process would not know.
    """

    tensors: bytes
    trace: Any
    target: Target
    intrinsics: bytes = b""


def build_job(tensors: bytes, trace: Any, target: Target) -> BuildJob:
    """The job of a candidate of this process."""
    steps = [step for step in trace if step.get("step") == "tensorize"] if isinstance(trace, list) else []
    named = dict.fromkeys((str(step.get("intrinsic")), str(step.get("key"))) for step in steps)
    own = set(own_names())
    found = [made for name, key in named if name not in own and (made := find_intrin(name, key)) is not None]
    return BuildJob(tensors, trace, target, pickle.dumps(found) if found else b"")


@dataclass(frozen=True, slots=True)
class RunJob:
    """A built kernel, the file of its arrays, and the time to beat in seconds.

    `flush`: empty the caches before every sample. `urgent`: with real-time priority at once, since the system
    disturbed the last runs.
    """

    kernel: bytes
    target: Target
    arrays: str
    best: float | None
    flush: bool = False
    urgent: bool = False


@dataclass(frozen=True, slots=True)
class RunResult:
    """How a run ended: ok, noisy or wrong-answer. `priority`: it was timed with real-time priority."""

    status: Status
    timing: Timing
    error: str = ""
    priority: bool = False


def output_tensors(tensors: tuple[Tensor, ...]) -> list[Tensor]:
    """The tensors of a kernel that it computes."""
    return [t for t in tensors if not isinstance(t.op, PlaceholderOp)]


def build_candidate(job: BuildJob) -> bytes:
    """Replay the trace, prove its final state legal, lower it, compile it; return it packed, for another process."""
    tensors: tuple[Tensor, ...] = pickle.loads(job.tensors)
    for intrin in pickle.loads(job.intrinsics) if job.intrinsics else ():
        declare(intrin)
    schedule = Trace.from_json(job.trace).apply(create_schedule([t.op for t in output_tensors(tensors)]), check="final")
    kernel = lower(schedule, arguments_of(tensors), target=job.target).kernel
    return backend(job.target.kind).pack(kernel, job.target)


def _read_arrays(path: str) -> Arrays:
    with Path(path).open("rb") as file:
        arrays: Arrays = pickle.load(file)
    return arrays


@lru_cache(maxsize=1)
def _load_arrays(path: str) -> tuple[Arrays, Arguments]:
    """The arrays of a task, and the arguments that all its candidates are run on."""
    arrays = _read_arrays(path)
    return arrays, Arguments(arrays)


def run_candidate(job: RunJob) -> RunResult:
    """Run a built kernel: check its outputs, then time it."""
    if is_device(job.target):
        return _run_on_device(job)
    call = backend(job.target.kind).unpack(job.kernel, job.target)
    arrays, given = _load_arrays(job.arrays)
    args = given.args
    given.renew()
    first, clean = sample(lambda: call(*args), 1)
    wrong = difference(arrays, given.outputs)
    if wrong:
        return RunResult(Status.WRONG_ANSWER, Timing(()), wrong)
    if clean and job.best is not None and first > max(HOPELESS * job.best, LONG_ENOUGH):
        return RunResult(Status.OK, Timing((first,)))
    flush = cache_flusher(job.target.caches, job.target.cores) if job.flush else None
    return time_call(lambda: call(*args), first, job.best, flush, job.urgent)


@lru_cache(maxsize=1)
def _load_on_device(path: str, target: Target) -> tuple[Arrays, DeviceArguments]:
    """The arrays of a task, and its arguments in the memory of the target's device."""
    arrays = _read_arrays(path)
    return arrays, DeviceArguments(arrays, timed_device(target).place)


def _run_on_device(job: RunJob) -> RunResult:
    """The same on a device, whose clock counts from its first launch until the last is done."""
    kernel = backend(job.target.kind).unpack(job.kernel, job.target)
    arrays, given = _load_on_device(job.arrays, job.target)
    given.renew()
    call = given.call(kernel)
    call()
    wrong = difference(arrays, given.outputs())
    if wrong:
        return RunResult(Status.WRONG_ANSWER, Timing(()), wrong)
    take = device_clock(kernel, given.args)
    first, clean = take(call, 1)
    if clean and job.best is not None and first > max(HOPELESS * job.best, LONG_ENOUGH):
        return RunResult(Status.OK, Timing((first,)))
    return time_call(call, first, job.best, None, job.urgent, take)


def time_call(
    call: Callable[[], object],
    first: float,
    best: float | None,
    flush: Callable[[], object] | None = None,
    urgent: bool = False,
    take: Take = sample,
) -> RunResult:
    """Time a call; when the system disturbs it too often, again with priority, and then give up as noisy.

    `first`: seconds of its first run. Short calls find undisturbed moments by themselves, and need no priority.
    """
    long = first > TIME_SLICE
    if not (long and urgent):
        timing = time_kernel(call, best, take, PATIENCE if long else MOST_REJECTED, flush)
    if long and (urgent or timing.noisy):
        with raised_priority() as raised:
            timing = time_kernel(call, best, take, flush=flush)
    else:
        raised = False
    if timing.noisy:
        error = f"{timing.rejected} samples waited for a CPU; is the machine busy?"
        return RunResult(Status.NOISY, timing, error, raised)
    return RunResult(Status.OK, timing, priority=raised)


def in_program_order(program: Program, tensors: Sequence[Tensor], inputs: Sequence[Array]) -> list[Array]:
    """The arrays of a kernel's inputs in the order in which its program reads them."""
    names = [t.name for t in tensors if isinstance(t.op, PlaceholderOp)]
    given = dict(zip(names, inputs, strict=True))
    return [given[op.name] for op in program.ops if isinstance(op, PlaceholderOp)]


def run_reference(tensors: bytes, target: Target, inputs: tuple[Array, ...], scheduled: bool) -> tuple[Array, ...]:
    """Outputs of the program, compiled: the reference of programs too large for NumPy.

    With no schedule at all; `scheduled`: with the library's, for programs of devices, whose sizes take minutes without.
    """
    args: tuple[Tensor, ...] = pickle.loads(tensors)
    made = output_tensors(args)
    expected = tuple(np.empty([extent(n) for n in t.shape], dtypes.info(t.dtype).numpy) for t in made)
    arrays = Arrays(inputs, expected, 0, 0, places_of(args))
    given, outputs = arrays.fresh()
    s = topi.schedule(made, target, tuned=False) if scheduled else create_schedule([t.op for t in made])
    build(s, arguments_of(args), target)(*given)
    return tuple(outputs)


def undisturbed_rates(threads: int, kept: bool) -> Rates:
    """What this machine does, measured with priority: a busy one has no other peak than an idle one.

    `kept`: the best of earlier measurements counts, and the best of all is kept, also in a worker that caches nothing.
    """
    with config.override(cache=kept), raised_priority():
        return measure_rates(threads)


@dataclass(frozen=True, slots=True)
class CompareJob:
    """The winner against NumPy: `operator`, with `options`, names its competitor (empty: the reference evaluation)."""

    build: BuildJob
    arrays: str
    operator: str
    options: tuple[str, ...] = ()
    rounds: int = 30
    seconds: float = 6.0


@dataclass(frozen=True, slots=True)
class Comparison:
    """Seconds of every undisturbed repeat, taken in turn in one run; an evaluation of the program is timed once."""

    tensorlang: tuple[float, ...]
    numpy: tuple[float, ...]
    competitor: str

    @property
    def speedup(self) -> float:
        """How many times faster the winner is, by medians."""
        return statistics.median(self.numpy) / statistics.median(self.tensorlang)


def compare_with_numpy(job: CompareJob) -> Comparison:
    """Time the candidate and NumPy on the same inputs, interleaved."""
    call = backend(job.build.target.kind).unpack(build_candidate(job.build), job.build.target)
    arrays, run, take = _competing(call, job)
    theirs = [np.empty_like(o) for o in arrays.outputs]
    if job.operator in topi.OPERATORS:
        operator = topi.operator(job.operator)
        numpy_call = operator.with_options(operator.read_options(job.options)).numpy
        calls: list[Callable[[], object]] = [lambda: numpy_call(*arrays.inputs, *theirs)]
        chosen = os.environ.get("OPENBLAS_CORETYPE")
        competitor = f"NumPy ({chosen} kernels)" if chosen else "NumPy"
    else:
        tensors: tuple[Tensor, ...] = pickle.loads(job.build.tensors)
        program, _ = canonical(output_tensors(tensors))
        inputs = in_program_order(program, tensors, arrays.inputs)
        begun = time.perf_counter()
        evaluate(program, inputs)
        once = time.perf_counter() - begun
        run()
        with raised_priority():
            (mine,) = time_interleaved([run], job.rounds, job.seconds, take)
        return Comparison(tuple(mine), (once,), "NumPy reference evaluation")
    calls.insert(0, run)
    for each in calls:
        each()
    with raised_priority():
        mine, other = time_interleaved(calls, job.rounds, job.seconds, take)
    return Comparison(tuple(mine), tuple(other), competitor)


def _competing(kernel: Executable, job: CompareJob) -> tuple[Arrays, Callable[[], object], Take]:
    """The arrays, the call of our kernel, and the clock of each competitor: ours is the device's where it has one."""
    target = job.build.target
    if not is_device(target):
        arrays, ours = _load_arrays(job.arrays)
        ours.renew()
        return arrays, lambda: kernel(*ours.args), sample
    arrays, given = _load_on_device(job.arrays, target)
    given.renew()
    call, clock = given.call(kernel), device_clock(kernel, given.args)
    return arrays, call, lambda other, number: (clock if other is call else sample)(other, number)
