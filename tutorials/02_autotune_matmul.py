# %% [markdown]
# # Tuning a matrix multiplication
#
# Scheduling by hand is a search: sizes of tiles, orders of loops, what to pack. The tuner does that search. It
# proposes schedules that are proven legal, builds and times them in worker processes, checks their outputs, learns
# from the times which to try next, and writes every measurement to a log.
#
# The command line does the same as this page: `tensorlang tune matmul --shape 256,256,256`.
#
# Run it as a script, or cell by cell in an editor that knows `# %%`.

# %%
import statistics
import tempfile
from pathlib import Path

import numpy as np

import tensorlang
from tensorlang import autotune

M = N = K = 256
TRIALS = 12
LOG = Path(tempfile.mkdtemp()) / "matmul.jsonl"

# %% [markdown]
# ## A task
#
# A task is a program, a target and a number of threads. `matmul` is in the operator library; a function of yours that
# returns its tensors, inputs first, is named `path/to/file.py:function`. Tensors at hand make a task by
# `autotune.task_of([A, B, C])`.

# %%
task = autotune.create_task("matmul", (M, N, K, "float32"), target="llvm", threads=1)
print(task.workload, "has", int(task.workload.flops / 1e6), "million operations")

# %% [markdown]
# ## Tuning
#
# A callback sees every trial. Nothing that a candidate does can end the tuning: a crash, a hang or a wrong answer is
# a status in its record. Ctrl-C keeps all that was measured.


# %%
def show(progress: autotune.Progress) -> None:
    """Print each trial beside the best so far."""
    best = 0.0 if progress.best is None else progress.best.gflops
    record = progress.record
    print(f"{progress.trials:>3}  {record.status:<12} {record.gflops:6.1f} GFLOP/s   best {best:6.1f}")


result = autotune.tune(task, trials=TRIALS, log=LOG, seed=0, callbacks=[show])
assert result.best is not None
print(f"{result.best.gflops / result.peak_gflops:.0%} of the measured peak, decisions {result.best.decisions}")

# %% [markdown]
# ## A log goes on
#
# Tuning again with the same log measures only what is new: records already there count as trials, are not measured
# again, and train the model.

# %%
more = autotune.tune(task, trials=TRIALS + 4, log=LOG, seed=0)
assert more.resumed == TRIALS
assert len(more.records) == TRIALS + 4

# %% [markdown]
# ## The best schedule
#
# `apply_best` takes the fastest record of this program and target, whatever its tensors are called, and replays its
# steps with every check. What comes out is an ordinary schedule: it prints as Python, lowers, and builds.

# %%
schedule = autotune.apply_best(LOG, task)
print(schedule)

matmul = tensorlang.build(schedule, list(task.tensors), "llvm")
rng = np.random.default_rng(0)
a, b = (rng.standard_normal(shape, dtype=np.float32) for shape in ((M, K), (K, N)))
c = np.empty((M, N), np.float32)
matmul(a, b, c)
np.testing.assert_allclose(c, a @ b, rtol=1e-4, atol=1e-4)

# %% [markdown]
# ## Beside NumPy
#
# Two programs are compared fairly in one run, in turn, in a process of their own. `bench_best` does that.

# %%
comparison = autotune.bench_best(LOG, task).comparison
ours, numpys = statistics.median(comparison.tensorlang), statistics.median(comparison.numpy)
print(f"tensorlang {1e6 * ours:.0f} µs, {comparison.competitor} {1e6 * numpys:.0f} µs")
