# %% [markdown]
# # Tuning on another machine
#
# A schedule is as good as the machine that it was measured on. To tune for a machine that is not this one (a board, a
# server of a cluster), start a *worker* there and point the tuner at it. Between them stands a scheduler of
# [Dask](https://distributed.dask.org) (`pip install 'tensorlang[cluster]'`):
#
# ```
# dask scheduler --host 127.0.0.1 --port 8786           # anywhere
# tensorlang worker dask://127.0.0.1:8786               # on the machine to tune for
# tensorlang tune matmul --shape 1024,1024,1024 --runner dask://127.0.0.1:8786
# ```
#
# This tutorial starts all three on this machine.

# %%
import subprocess
import sys
from typing import Any

import numpy as np
from distributed import LocalCluster

import tensorlang
from tensorlang import autotune, te

# %% [markdown]
# ## A scheduler and a worker
#
# A worker measures for one device, one candidate at a time. Candidates run in processes of their own, which the worker
# kills when they hang: whatever they do, the worker stays.
#
# `--device` names the device; a tuner asks for it with `dask://host:port/NAME`. Without a name all workers behind a
# scheduler must have the same CPU, since times of different ones cannot be compared.

# %%
scheduler = LocalCluster(n_workers=0, dashboard_address=":0", host="127.0.0.1")
address = f"dask://{scheduler.scheduler_address.removeprefix('tcp://')}"
command = [sys.executable, "-m", "tensorlang", "worker", address, "--device", "board", "--threads", "1"]
worker = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
assert worker.stderr is not None
print(worker.stderr.readline().partition(" dask://")[0])

# %% [markdown]
# ## Tuning there
#
# `runner=` is all that changes. `target_of` is the target of the workers' machine, with its vectors, caches and cores.
# A task for `llvm`, this machine, would do too: `tune` makes it one for the workers', and the result has that task.

# %%
LOG = "cluster.jsonl"
with autotune.machines_of(f"{address}/board") as machines:
    target = machines.target_of("llvm")
    task = autotune.create_task("matmul", (64, 128, 96), target)
    result = autotune.tune(task, trials=6, log=LOG, runner=machines)

assert result.best is not None
print(f"{len(result.records)} trials, {sum(r.ok or r.status == 'noisy' for r in result.records)} measured")
print("threads of the device:", result.task.threads)
print("every record names its machine:", all(r.host["name"] for r in result.records))

# %% [markdown]
# Nothing is lost when a worker dies: another one gets its candidates, or its nanny restarts it. When nobody is left,
# the tuner ends with what it has (`result.ended` says why), and the same command goes on from the log later.
#
# ## The schedule comes home
#
# Records name the target that they were measured on. Here that is this very machine, so the schedule runs.

# %%
schedule = autotune.apply_best(LOG, result.task)
matmul = tensorlang.build(schedule, list(task.tensors), result.task.target)
rng = np.random.default_rng(0)
a, b = (rng.standard_normal(shape, dtype=np.float32) for shape in ((64, 96), (96, 128)))
c = np.empty((64, 128), np.float32)
matmul(a, b, c)
np.testing.assert_allclose(c, a @ b, rtol=1e-4, atol=1e-4)
print("the best schedule: equal to NumPy")

# %% [markdown]
# ## Templates and several tasks
#
# Tuners of templates take the cluster in `measure_option`, search tasks and `TaskScheduler` in `TuningOptions`. Here
# too `runner` is an address, an open cluster, or a `DaskRunner`, which has limits as well: it takes the place of TVM's
# `RPCRunner`. A task for `llvm` becomes one for the workers' CPU. All tasks of a scheduler share one connection.


# %%
@autotune.register_workload
def scaled(n: int) -> list[te.Tensor]:
    A = te.placeholder((n, n), name="A")
    return [A, te.compute((n, n), lambda i, j: A[i, j] * 2.0, name="B")]


tasks = [autotune.SearchTask(func=scaled, args=(n,), target="llvm", threads=1) for n in (64, 96)]
options = autotune.TuningOptions(
    num_measure_trials=6,
    measure_callbacks=[autotune.RecordToFile(LOG)],
    runner=autotune.DaskRunner(f"{address}/board", timeout=5, enable_cpu_cache_flush=True),
    verbose=0,
)
results = autotune.TaskScheduler(tasks).tune(options)
print("trials of each task:", [len(r.records) for r in results])
print("tuned for the workers' target:", all(t.target == target for t in tasks))


@autotune.template("tutorial/scaled")
def scaled_rows(n: int) -> Any:
    A, B = scaled(n)
    s = te.create_schedule(B.op)
    cfg = autotune.get_config()
    cfg.define_split("tile", s[B].op.axis[1], num_outputs=2, max_factor=64)
    _, inner = cfg["tile"].apply(s, B, s[B].op.axis[1])
    s[B].vectorize(inner)
    return s, [A, B]


tuner = autotune.tuner.XGBTuner(autotune.task.create("tutorial/scaled", args=(64,), target=target))
tuner.tune(n_trial=4, measure_option=autotune.measure_option(runner=f"{address}/board"))
print("configurations of a template measured:", tuner.trials)

# %% [markdown]
# ## Other machines, safely
#
# A Dask scheduler runs whatever anybody sends to it. So tensorlang connects to other machines only with certificates on
# both sides (`--tls-ca-file`, `--tls-cert`, `--tls-key`, and Dask's options of these names for the scheduler), and
# without them to this machine alone. A port that is forwarded through ssh counts as this machine.

# %%
try:
    with autotune.machines_of("dask://192.0.2.7:8786"):
        pass
except tensorlang.TensorlangError as error:
    print(str(error).partition(":8786 ")[2].partition(":")[0])

worker.terminate()
worker.wait()
scheduler.close()
