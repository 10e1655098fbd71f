"""The kernels of tensorlang that its tuner has found: contestants that are told a trace."""

from __future__ import annotations

import numpy as np

import tensorlang
from benchmarks.peers.serve import Array, Call, Given
from tensorlang import te, topi
from tensorlang.autotune import create_task
from tensorlang.schedule import Trace


def kernel(given: Given) -> Call:
    """The program with the schedule of `trace`, or with the library's when that is nothing."""
    options = given.options
    task = create_task(options["program"], options["sizes"], threads=given.threads)
    if options["trace"] is None:
        schedule = topi.schedule(task.outputs, task.target, tuned=False)
    else:
        schedule = Trace.from_json(options["trace"]).apply(te.create_schedule([t.op for t in task.outputs]))
    run = tensorlang.build(schedule, list(task.tensors), target=task.target)
    arrays, made = [given[name] for name in options["arguments"]], np.empty(options["shape"], given.dtype)

    def call() -> Array:
        run(*arrays, made)
        return made

    return call


BUILDERS = dict.fromkeys(("matmul", "conv2d", "softmax"), kernel)
