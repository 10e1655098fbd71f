# %% [markdown]
# # Ship it: a kernel for people without Python
#
# A schedule is found and proven here; the kernel runs elsewhere. `export` writes it as an object, a library and a
# header that C can use. There is no runtime to install: who calls it gives it memory and, if there are any, threads.

# %%
import ctypes
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np

import tensorlang
from tensorlang import autotune, te, topi

LOG = "layer.jsonl"

# %% [markdown]
# ## 1. A layer, tuned
#
# A few trials stand for a night of tuning; more can be added to the same log.

# %%
x = te.placeholder((24, 64), name="x")
w = te.placeholder((96, 64), name="w")
b = te.placeholder((96,), name="b")
y = topi.relu(topi.add(topi.dense(x, w), b))

result = autotune.tune(autotune.task_of([x, w, b, y]), trials=4, log=LOG)
print(f"{len(result.records)} trials in {LOG}")
with autotune.apply_history_best(LOG):
    layer = tensorlang.build([x, w, b, y], schedule="best", name="layer")

# %% [markdown]
# ## 2. Files
#
# `check` are the arrays of a call: a C program that runs the kernel on them is written, too.

# %%
rng = np.random.default_rng(0)
arrays = [rng.standard_normal(shape, np.float32) for shape in ((24, 64), (96, 64), (96,))]
out = np.zeros((24, 96), np.float32)
made = layer.export("out/layer", formats=("so", "a", "h", "c"), check=[*arrays, out])
print(*sorted(path.name for path in made.files.values()))

# %% [markdown]
# ## 3. From C
#
# The header says what the arrays are and what codes mean. Any C compiler will do: `cc` here, where there is one.

# %%
print(next(line for line in Path("out/layer.h").read_text().splitlines() if line.startswith("int32_t layer(")))
if shutil.which("cc"):
    subprocess.run(["cc", "-O1", "layer_test.c", "layer.a", "-lm", "-o", "layer_test"], cwd="out", check=True)
    told = subprocess.run(["./layer_test"], cwd="out", check=True, capture_output=True, text=True).stdout
    print(f"C: {told.partition(',')[0]}")

# %% [markdown]
# ## 4. From anything that calls C
#
# `ctypes` stands for Rust, Julia, Go or C#: pointers, and a number that is 0 when all went well.

# %%
library = ctypes.CDLL(str(made.files["so"].resolve()))
library.layer_message.restype = ctypes.c_char_p
pointers = [ctypes.c_void_p(a.ctypes.data) for a in (*arrays, out)]
code = library.layer(*pointers)
assert code == 0, library.layer_message(code)
np.testing.assert_allclose(out, np.maximum(arrays[0] @ arrays[1].T + arrays[2], 0), rtol=1e-4, atol=1e-4)
print("ctypes: equal to NumPy")

# %% [markdown]
# Memory and threads are the caller's: a workspace, and a function that runs tasks. This one runs them backwards.

# %%
Task = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)
ParallelFor = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, Task, ctypes.c_void_p)


class Host(ctypes.Structure):
    """tl_host of the header."""

    _fields_ = [("abi", ctypes.c_int32), ("threads", ctypes.c_int32), ("user", ctypes.c_void_p), ("run", ParallelFor)]


def backwards(user: int, tasks: int, task: Callable[[int, int, int], None], arg: int) -> None:
    """Run every task, the last one first."""
    for index in reversed(range(tasks)):
        task(arg, index, tasks)


host = Host(1, 3, None, ParallelFor(backwards))
library.layer_workspace_bytes.restype = ctypes.c_int64
size = library.layer_workspace_bytes(ctypes.c_int64(host.threads))
room = np.empty(size + 64, np.uint8)
workspace = ctypes.c_void_p(room.ctypes.data + -room.ctypes.data % 64)
before, out[:] = out.copy(), 0
assert library.layer_run(*pointers, workspace, ctypes.byref(host)) == 0
print(f"the same bits from a host of our own: {bool((out == before).all())}")

# %% [markdown]
# ## 5. The proof travels along
#
# `layer.json` holds the program and the steps as data. Whoever gets the files can prove again that the schedule is
# legal, and load the library as a kernel that checks its arguments.

# %%
command = [sys.executable, "-m", "tensorlang", "check", "out/layer.json"]
print(
    subprocess.run(command, cwd=".", check=True, capture_output=True, text=True)
    .stdout.partition("\n")[0]
    .partition(": ")[2]
)
again = tensorlang.load("out/layer.so")
again(*arrays, out)
print(f"loaded: {again.entry_name} is equal, too: {bool((out == before).all())}")
try:
    again(*arrays, arrays[0])
except tensorlang.ArgumentError as error:
    print(error)
