"""TVM's MetaSchedule: `python -m benchmarks.peers.tvm_tuning REQUEST.json` searches, and writes what it measured.

The folder that a request names gets `best-N.json`, the scheduled module that N trials have found, and at the end
`search.json`: seconds since the start and of the kernel, for every trial in order. As a contestant it runs the modules.
"""

from __future__ import annotations

import json
import sys
import time
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import tvm
from tvm import te, topi
from tvm.ir.utils import derived_object
from tvm.s_tir import meta_schedule

from benchmarks.peers.serve import Array, Call, Given

FAILED = 1e9
"""Seconds from which a time stands for a failure."""


def program(operator: str, sizes: list[int]) -> Any:
    """The function to tune: of tensorlang's operator with these sizes, by TVM's own library."""
    return te.create_prim_func(PROGRAMS[operator](*sizes))


def matmul(m: int, n: int, k: int) -> list[Any]:
    """Two matrices."""
    A, B = te.placeholder((m, k), name="A"), te.placeholder((k, n), name="B")
    return [A, B, topi.nn.matmul(A, B)]


def batch_matmul(q: int, m: int, n: int, k: int) -> list[Any]:
    """As many pairs of them."""
    A, B = te.placeholder((q, m, k), name="A"), te.placeholder((q, k, n), name="B")
    return [A, B, topi.nn.batch_matmul(A, B, transpose_a=False, transpose_b=False)]


def conv2d(n: int, c: int, h: int, w: int, o: int, k: int) -> list[Any]:
    """NCHW and OIHW, the image kept by padding."""
    X, W = te.placeholder((n, c, h, w), name="x"), te.placeholder((o, c, k, k), name="w")
    return [X, W, topi.nn.conv2d(X, W, 1, k // 2, 1, "NCHW", "OIHW")]


def depthwise_conv2d(n: int, c: int, h: int, w: int, k: int) -> list[Any]:
    """One filter a channel."""
    X, W = te.placeholder((n, c, h, w), name="x"), te.placeholder((c, 1, k, k), name="w")
    return [X, W, topi.nn.depthwise_conv2d_nchw(X, W, 1, k // 2, 1)]


def softmax(n: int, m: int) -> list[Any]:
    """Of rows."""
    X = te.placeholder((n, m), name="x")
    return [X, topi.nn.softmax(X)]


PROGRAMS = {f.__name__: f for f in (matmul, batch_matmul, conv2d, depthwise_conv2d, softmax)}


def target_of(threads: int) -> Any:
    """This machine, with so many cores."""
    return tvm.target.Target({"kind": "llvm", "mcpu": tvm.target.codegen.llvm_get_system_cpu(), "num-cores": threads})


@derived_object
class Watch(meta_schedule.measure_callback.PyMeasureCallback):  # type: ignore[misc]
    """Notes every trial, and keeps the best module at the numbers of trials that count."""

    def __init__(self, folder: Path, marks: list[int]) -> None:
        super().__init__()
        self._folder, self._marks, self._start = folder, marks, time.monotonic()
        self.trials: list[tuple[float, float | None]] = []
        self._best: tuple[float, Any] | None = None

    def apply(self, scheduler: Any, task: int, candidates: Any, builds: Any, runs: Any) -> None:
        """What TVM calls after each batch."""
        elapsed = time.monotonic() - self._start
        for candidate, run in zip(candidates, runs, strict=True):
            seconds = None if run.run_secs is None else float(np.median([float(s) for s in run.run_secs]))
            if seconds is not None and seconds < FAILED and (self._best is None or seconds < self._best[0]):
                self._best = seconds, candidate.sch.mod
            self.trials.append((elapsed, seconds if seconds is not None and seconds < FAILED else None))
            if len(self.trials) in self._marks:
                self.keep([len(self.trials)])

    def keep(self, marks: list[int]) -> None:
        """Write the best module so far, if there is one, as that of these numbers of trials."""
        if self._best is not None:
            text = tvm.ir.save_json(self._best[1])
            for mark in marks:
                (self._folder / f"best-{mark}.json").write_text(text, encoding="utf-8")

    def end(self) -> None:
        """Write down the trials; a search that ended early has found for all marks what it has."""
        self.keep([mark for mark in self._marks if mark > len(self.trials)])
        (self._folder / "search.json").write_text(json.dumps(self.trials), encoding="utf-8")


def search(operator: str, sizes: list[int], threads: int, trials: list[int], folder: str, seed: int) -> None:
    """Tune one function, as MetaSchedule does by default: it builds on all cores, and runs one candidate at a time."""
    watch = Watch(Path(folder), trials)
    meta_schedule.tune_tir(
        program(operator, sizes),
        target_of(threads),
        work_dir=folder,
        max_trials_global=max(trials),
        num_trials_per_iter=min(64, *trials),
        measure_callbacks=[*meta_schedule.MeasureCallback.create("default"), watch],
        num_tuning_cores="logical",
        seed=seed,
    )
    watch.end()


def kernel(operator: str, given: Given) -> Call:
    """The kernel of a module that a search has kept."""
    module = tvm.ir.load_json(Path(given.options["module"]).read_text(encoding="utf-8"))
    run = tvm.compile(module, target_of(given.threads))
    arrays = [tvm.runtime.tensor(given[name]) for name in given.options["arguments"]]
    made = tvm.runtime.tensor(np.empty(given.options["shape"], given.dtype))
    call = run["main"]

    def once() -> Any:
        call(*arrays, made)
        return made

    return once


def to_numpy(made: Any) -> Array:
    """The array of a result."""
    return np.asarray(made.numpy())


BUILDERS = {name: partial(kernel, name) for name in ("matmul", "conv2d", "softmax")}

if __name__ == "__main__":
    search(**json.loads(Path(sys.argv[1]).read_text(encoding="utf-8")))
