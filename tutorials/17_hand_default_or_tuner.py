# %% [markdown]
# # By hand, by the library, or by the tuner?
#
# | | takes | is good for |
# |---|---|---|
# | `topi.schedule` | milliseconds | the first kernel of anything: it knows products, convolutions, rows, reductions |
# | the tuner | seconds to minutes | sizes that matter; programs that the library has no form for |
# | a hand | your time | what neither knows: a layout of your own, fusion across stages, tiles of time |
#
# They are not exclusive: all three make steps that are proven, the tuner begins with what the library does, and what it
# finds can be read, changed and kept as Python. Here one program is scheduled three times.

# %%
from typing import Any

import numpy as np

import tensorlang
from tensorlang import autotune, te, topi

N = 128
A, B = te.placeholder((N, N), name="A"), te.placeholder((N, N), name="B")
k = te.reduce_axis((0, N), "k")
C = te.compute((N, N), lambda i, j: te.max(A[i, k] + B[k, j], axis=k), name="C")
a, b = np.random.default_rng(0).random((2, N, N), np.float32)
wanted = (a[:, :, None] + b[None]).max(axis=1)
task = autotune.task_of([A, B, C], threads=1)


def timed(f: Any) -> float:
    """Microseconds of a kernel that gives what NumPy gives."""
    c = f(a, b)
    np.testing.assert_array_equal(c, wanted)
    seconds: float = min(f.time_evaluator(number=3, repeat=5)(a, b, c).results)
    return 1e6 * seconds


# %% [markdown]
# ## The library
#
# `origin` says which form it took, and why.

# %%
default = topi.schedule(C, task.target, tuned=False)
library = timed(tensorlang.build(default, [A, B, C], target=task.target))
for form in default.explain().forms:
    print(form.stage, form.form, "-", form.why)

# %% [markdown]
# ## A hand
#
# Four steps are enough to leave plain loops far behind. Is it the best tile? That is a question for a tuner.

# %%
s = te.create_schedule(C.op)
i_o, j_o, i_i, j_i = s[C].tile("i", "j", 4, 32)
s[C].reorder(i_o, j_o, "k", i_i, j_i)
s[C].unroll(i_i)
s[C].vectorize(j_i)
hand = timed(tensorlang.build(s, [A, B, C], target=task.target))
plain = timed(tensorlang.build(te.create_schedule(C.op), [A, B, C], target=task.target))
print("a hand beats plain loops:", hand < plain)

# %% [markdown]
# ## The tuner
#
# It measures the library's schedule first, so that its result is never worse than that, but for the noise of a clock.
# What you know goes into the same log: `record_by_hand` makes a record of your schedule.

# %%
result = autotune.tune(task, trials=6, log="max_plus.jsonl")
print(len(result.records), "trials, failures:", sum(not record.ok for record in result.records))
with autotune.LogWriter("max_plus.jsonl") as log:
    log.append(autotune.record_by_hand(task, s, [hand * 1e-6]))

with autotune.apply_history_best("max_plus.jsonl"):
    best = tensorlang.build([A, B, C], schedule="best", target=task.target)
tuned = timed(best)
print(f"plain {plain:.0f}, hand {hand:.0f}, library {library:.0f}, tuned {tuned:.0f} microseconds")
print("the best of the log beats plain loops:", tuned < plain)

# %% [markdown]
# ## What to do when
#
# - Begin with `topi.schedule`. Ask `f.warnings()` and `f.profile(...)` whether there is anything left.
# - Where one kernel matters, tune it for a minute; keep the log beside your sources, and build with `schedule="best"`.
# - Where you know what a tuner cannot see, write it, and let `autotune.tune` run beside it: the faster one is in the
# log.
