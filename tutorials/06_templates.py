# %% [markdown]
# # Templates: a schedule of your own with knobs
#
# A template is a function that schedules a program and leaves some numbers open. You decide on the shape of the
# schedule, the tuner on tile sizes, orders and annotations. The words are AutoTVM's: its templates run here after
# `from tensorlang import autotvm`. What differs: every configuration is proven legal before it is built, two that make
# the same schedule are measured once, and a record holds the steps of the schedule, so that it replays without the
# template.
#
# Run it as a script, or cell by cell in an editor that knows `# %%`.

# %%
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

import tensorlang
from tensorlang import autotune, te

N = 64
TRIALS = 10
FOLDER = Path(tempfile.mkdtemp())
LOG = FOLDER / "templates.jsonl"
TARGET = tensorlang.target.Target("llvm -num-cores=1")

# %% [markdown]
# ## A template
#
# `get_config` gives the configuration of this run. Knobs are defined on it first, then used: `apply` splits or
# annotates, `.val` is a plain value. A filter takes out what makes no sense, here tiles without a whole vector.
#
# This one is in a file of its own, so that the command line can find it, too.

# %%
SOURCE = """
from tensorlang import autotune, te


@autotune.template("tutorial/matmul")
def matmul(m, n, k):
    A, B = te.placeholder((m, k), name="A"), te.placeholder((k, n), name="B")
    r = te.reduce_axis((0, k), name="r")
    C = te.compute((m, n), lambda i, j: te.sum(A[i, r] * B[r, j], axis=r), name="C")
    s = te.create_schedule(C.op)
    local = s.cache_write(C, "local")

    cfg = autotune.get_config()
    i, j = s[C].op.axis
    cfg.define_split("tile_i", i, num_outputs=2, max_factor=16)
    cfg.define_split("tile_j", j, num_outputs=2, filter=lambda tile: tile.size[-1] % 8 == 0)
    cfg.define_annotate("rows", [i], policy="try_unroll")
    cfg.define_knob("sum_outside", [True, False])

    io, ii = cfg["tile_i"].apply(s, C, i)
    jo, ji = cfg["tile_j"].apply(s, C, j)
    s[C].reorder(io, jo, ii, ji)
    s[C].vectorize(ji)
    s[local].compute_at(s[C], jo)
    y, x = s[local].op.axis
    if cfg["sum_outside"].val:
        s[local].reorder(s[local].op.reduce_axis[0], y, x)
    cfg["rows"].apply(s, local, [y])
    s[local].vectorize(x)
    return s, [A, B, C]
"""
(FOLDER / "operators.py").write_text(SOURCE)
sys.path.insert(0, str(FOLDER))
matmul: Any = __import__("operators").matmul

# %% [markdown]
# ## A task and its space
#
# `task.create` runs the template once to collect its knobs. Configurations have numbers; a space may have millions of
# them, since none is listed. Each is a point that can be looked at.

# %%
task = autotune.task.create("tutorial/matmul", args=(N, N, N), target=TARGET)
print(task.config_space)
print(task.config_space.get(17))
print(task.trace(task.config_space.get(17)).to_python())

# %% [markdown]
# ## Tuning
#
# Four tuners: `RandomTuner`, `GridSearchTuner`, `GATuner`, and `XGBTuner`, which learns from the knobs what is fast.
# Builds and runs are in worker processes; outputs are compared with the unscheduled program.

# %%
tuner = autotune.tuner.XGBTuner(task, seed=0)
tuner.tune(
    n_trial=TRIALS,
    early_stopping=None,
    measure_option=autotune.measure_option(
        builder=autotune.LocalBuilder(timeout=30), runner=autotune.LocalRunner(number=5, timeout=5)
    ),
    callbacks=[autotune.callback.log_to_file(LOG), autotune.callback.progress_bar(TRIALS, prefix="[matmul]")],
)
print(f"{tuner.trials} trials, {tuner.filtered} configurations refused before any build")
print(f"best: {tuner.best_config}, {tuner.best_flops / 1e9:.1f} GFLOP/s")

# %% [markdown]
# ## Using the best
#
# In `apply_history_best`, calling the template gives its best schedule. A program that nobody tuned is not passed over
# in silence: a warning names the nearest record.

# %%
with autotune.apply_history_best(LOG), TARGET:
    s, args = matmul(N, N, N)
    f = tensorlang.build(s, args, TARGET)

rng = np.random.default_rng(0)
a, b = (rng.standard_normal((N, N), dtype=np.float32) for _ in range(2))
c = np.empty((N, N), np.float32)
f(a, b, c)
np.testing.assert_allclose(c, a @ b, rtol=1e-4, atol=1e-4)
print("the best schedule: equal to NumPy")

try:
    with autotune.apply_history_best(LOG, miss="error"), TARGET:
        matmul(N, N, 2 * N)
except tensorlang.TensorlangError as error:
    print(error)

# %% [markdown]
# ## Without the template
#
# The record is of the program, not of the template: any code that declares the same program gets the schedule, by
# `apply_best`, or by building it unscheduled while the history is in use.

# %%
A, B = te.placeholder((N, N), name="A"), te.placeholder((N, N), name="B")
k = te.reduce_axis((0, N), name="r")
C = te.compute((N, N), lambda i, j: te.sum(A[i, k] * B[k, j], axis=k), name="C")
schedule = autotune.apply_best(LOG, [A, B, C], TARGET)
assert schedule.trace.key == s.trace.key
with autotune.apply_history_best(LOG):
    again = tensorlang.build(te.create_schedule(C.op), [A, B, C], TARGET)
again(a, b, c)
np.testing.assert_allclose(c, a @ b, rtol=1e-4, atol=1e-4)
print("the same program, declared elsewhere: the same schedule")

# %% [markdown]
# ## From the command line
#
# `tensorlang tune file.py:function` knows a template when it sees one. With the same log it goes on where tuning
# stopped: what was measured counts, and teaches.

# %%
command = ["tune", "operators.py:matmul", "--args", f"{N},{N},{N}", "--target", "llvm -num-cores=1"]
command += ["--trials", str(TRIALS + 2), "--log", str(LOG)]
done = subprocess.run(
    [sys.executable, "-m", "tensorlang", *command], cwd=FOLDER, text=True, stdout=subprocess.PIPE, check=True
)
print(done.stdout.splitlines()[-1])
assert len(autotune.read_log(LOG).records) == TRIALS + 2
