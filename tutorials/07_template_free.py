# %% [markdown]
# # Tuning an operator of your own, without a template
#
# The tuner needs no template: it reads from a program which axes are parallel, what is used again, and how much of it,
# and makes its own search space. This page takes an operator that no library has, tunes it from Python and from the
# command line, and then shows the ways to use what was found: as a log, as a Python file, and by
# `tensorlang.build(..., schedule="best")` from the default store.
#
# Run it as a script, or cell by cell in an editor that knows `# %%`.

# %%
import logging
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

import tensorlang
from tensorlang import autotune, te, topi

SIZES = (256, 64, 32)
TRIALS = 4
FOLDER = Path(tempfile.mkdtemp())
LOG = FOLDER / "nearest.jsonl"
TARGET = "llvm -num-cores=1"
os.environ["TENSORLANG_STORE"] = str(FOLDER / "store")  # this page leaves your own store alone


def command(*words: object) -> str:
    """What a command of tensorlang prints."""
    line = [sys.executable, "-m", "tensorlang", *map(str, words)]
    done = subprocess.run(line, cwd=FOLDER, encoding="utf-8", stdout=subprocess.PIPE, check=True)
    return done.stdout


# %% [markdown]
# ## The operator
#
# To which of some centres is each point nearest? A matrix of squared distances, and where each of its rows is least:
# the inner step of k-means, or of a vector quantizer. A function returns its tensors, inputs first. It is in a file of
# its own, so that the command line can find it, too.

# %%
SOURCE = """
from tensorlang import te, topi


def nearest(points, centres, features):
    x = te.placeholder((points, features), name="x")
    c = te.placeholder((centres, features), name="c")
    f = te.reduce_axis((0, features), name="f")
    distance = te.compute(
        (points, centres), lambda i, j: te.sum((x[i, f] - c[j, f]) * (x[i, f] - c[j, f]), axis=f), name="distance"
    )
    return [x, c, topi.argmin(distance, axis=1, name="label")]
"""
(FOLDER / "operators.py").write_text(SOURCE)
sys.path.insert(0, str(FOLDER))
nearest: Any = __import__("operators").nearest
x, c, label = nearest(*SIZES)

# %% [markdown]
# ## Tuning from Python
#
# Every candidate is a schedule of the whole program: tiles of the distances, centres copied into panels, rows of the
# minimum in vectors. All are proven legal before they are built, and outputs are compared with the reference.

# %%
task = autotune.task_of([x, c, label], "operators.py:nearest", SIZES, target=TARGET)
result = autotune.tune(task, trials=TRIALS, log=LOG, seed=0)
assert result.best is not None
print(f"{len(result.records)} trials, failures: {dict(result.failures) or 'none'}")

# %% [markdown]
# ## Tuning from the command line
#
# The same search with the same log goes on where the other stopped. `--seconds 60` would bound its time, Ctrl-C may end
# it at any moment, and `--log default` writes to the default store instead.

# %%
words = ["operators.py:nearest", "--args", ",".join(map(str, SIZES)), "--target", TARGET]
print(command("tune", *words, "--trials", TRIALS + 2, "--log", LOG).splitlines()[-1])

# %% [markdown]
# ## A log is text
#
# `tensorlang log` shows, merges, splits, compares and verifies logs. Exported as Python, a record is a function that
# schedules: it can be read, kept with your sources, and changed by hand; every step of it is proven like yours. The log
# names the file of the operator, which is run only where you ask for it: `--run-files`.

# %%
print(command("log", "validate", LOG, "--run-files").splitlines()[-1])
command("log", "export", LOG, "--format", "python", "--run-files", "-o", "schedules.py")
schedules: Any = __import__("schedules")
by_hand = te.create_schedule(label.op)
schedules.nearest_256_64_32(by_hand)
best = autotune.apply_best(LOG, [x, c, label], TARGET)
assert str(by_hand) == str(best)
print(f"exported: {len(best.trace.steps)} steps, as in the record")

# %% [markdown]
# ## Built by its best schedule
#
# `schedule="best"` builds what was tuned, or nothing. It asks the histories in use, then the default store. There is
# nothing yet: the error says so, and what to do.

# %%
try:
    tensorlang.build([x, c, label], target=TARGET, schedule="best")
except tensorlang.TensorlangError as error:
    print(error)

with autotune.apply_history_best(LOG):
    kernel = tensorlang.build([x, c, label], target=TARGET, schedule="best")

rng = np.random.default_rng(0)
points, centres = (rng.standard_normal((n, SIZES[2]), dtype=np.float32) for n in SIZES[:2])
expected = ((points[:, None, :] - centres[None, :, :]) ** 2).sum(axis=2).argmin(axis=1)
found = np.empty(SIZES[0], np.int32)
kernel(points, centres, found)
assert np.array_equal(found, expected)
print("the best schedule of the log: equal to NumPy")

# %% [markdown]
# ## The default store
#
# A store is a folder with a log for every machine. What is in there needs no context any more. Of other sizes there is
# still no record, and nothing else is built silently: the error names the nearest.

# %%
command("log", "import", LOG)
kernel = tensorlang.build([x, c, label], target=TARGET, schedule="best")
kernel(points, centres, found)
assert np.array_equal(found, expected)
print("the best schedule of the store: equal to NumPy")

try:
    tensorlang.build(nearest(256, 64, 33), target=TARGET, schedule="best")
except tensorlang.TensorlangError as error:
    print(error)

# %% [markdown]
# `topi.schedule` has a schedule for any program. It takes a tuned one where there is one for this program (whatever
# its tensors are called) or its main group (what a relu follows), target and number of threads, and says so: the
# schedule has an `origin`, and the logger `tensorlang` tells at INFO.

# %%
logging.basicConfig(level=logging.INFO, format="%(levelname)s: %(message)s", stream=sys.stdout)
print(repr(topi.schedule(label, TARGET)))
print(repr(topi.schedule(label, TARGET, tuned=False)))
